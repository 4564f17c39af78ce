//! A small server for a program that collects metrics: one request at a time, and nothing but `GET /metrics`.
//!
//! A client has a short time for its request and for taking the answer, so that one that stops in between holds up the
//! others for no longer than that.

use super::exposition::CONTENT_TYPE;
use crate::cli::out;
use crate::error::{Context, Error};
use anyhow::Result;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The most bytes of a request. Collectors send some hundreds.
const MOST_BYTES: usize = 8 << 10;

/// How long a client may take for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer is given again. Every user of the machine can ask, and each answer asks the driver.
const KEEP: Duration = Duration::from_secs(1);

/// Checks that only processes of this machine reach `address`, unless that was said to be unimportant.
///
/// # Errors
/// Returns a usage error for an address that is reachable from elsewhere.
pub(super) fn check(address: SocketAddr, allow_remote: bool) -> Result<(), Error> {
    if allow_remote || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(Error::usage(
        format!("--listen {address}"),
        "is not a loopback address, so other machines can read it",
    )
    .hint("use 127.0.0.1, or add --allow-remote"))
}

/// Serves the text that `make` returns at `address`, until the process is ended.
///
/// # Errors
/// Returns an error if the address cannot be used.
pub(super) fn run(address: SocketAddr, mut make: impl FnMut() -> Result<String>) -> Result<()> {
    let listener = TcpListener::bind(address).about(address, "cannot listen there")?;
    let bound = listener.local_addr().about(address, "cannot listen there")?;
    out::note(format_args!("http://{bound}/metrics"));
    let mut kept: Option<(Instant, String)> = None;
    loop {
        // A client that has gone again, or too many open files: the next one may be served.
        let Ok((mut client, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let answer = match request(&mut client) {
            Ok(target) => answer(&target, || {
                if let Some((_, text)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEEP) {
                    return Ok(text.clone());
                }
                let text = make()?;
                kept = Some((Instant::now(), text.clone()));
                Ok(text)
            }),
            // Its connection is closed, or it was too slow: it gets no answer.
            Err(_) => continue,
        };
        // A client that does not take its answer harms nobody else.
        let _ = send(&mut client, &answer);
    }
}

/// The first line of a request. Its headers are read and skipped.
///
/// # Errors
/// Returns an error if the request does not end in time, or is too long.
fn request(client: &mut impl Client) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || bytes.len() > MOST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        client.read_within(left)?;
        match client.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// What a request reads from.
trait Client: Read {
    /// Lets the next read end after this time.
    fn read_within(&self, time: Duration) -> io::Result<()>;
}

impl Client for TcpStream {
    fn read_within(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

/// The whole answer to a request with this first line.
fn answer(line: &str, make: impl FnOnce() -> Result<String>) -> String {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    let is_http = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        _ if !is_http => ("400 Bad Request", plain, "not a request of HTTP/1\n".to_owned()),
        (Some("GET"), Some("/metrics")) => match make() {
            Ok(text) => ("200 OK", CONTENT_TYPE, text),
            Err(error) => {
                out::complain(error);
                (
                    "500 Internal Server Error",
                    plain,
                    "the state cannot be read; see the server's log\n".to_owned(),
                )
            }
        },
        (Some("GET"), _) => ("404 Not Found", plain, "only /metrics is here\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "only GET is allowed\n".to_owned()),
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn send(client: &mut TcpStream, answer: &str) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    client.write_all(answer.as_bytes())?;
    client.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    impl Client for Cursor<Vec<u8>> {
        fn read_within(&self, _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    fn status(line: &str) -> String {
        let answer = answer(line, || Ok("x 1\n".to_owned()));
        answer.split("\r\n").next().unwrap().to_owned()
    }

    #[test]
    fn only_the_metrics_are_served() {
        assert_eq!(status("GET /metrics HTTP/1.1"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /metrics?collect=a HTTP/1.0"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET / HTTP/1.1"), "HTTP/1.1 404 Not Found");
        assert_eq!(status("GET /metrics/../etc/passwd HTTP/1.1"), "HTTP/1.1 404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1"), "HTTP/1.1 405 Method Not Allowed");
        for line in [
            "",
            "GET",
            "GET /metrics",
            "GET /metrics HTTP/2",
            "GET /metrics HTTP/1.1 more",
        ] {
            assert_eq!(status(line), "HTTP/1.1 400 Bad Request", "{line:?}");
        }
        let whole = answer("GET /metrics HTTP/1.1", || Ok("x 1\n".to_owned()));
        assert!(
            whole.contains("Content-Length: 4\r\n") && whole.ends_with("\r\n\r\nx 1\n"),
            "{whole}"
        );
        let failed = answer("GET /metrics HTTP/1.1", || anyhow::bail!("a secret path"));
        assert!(
            failed.starts_with("HTTP/1.1 500 ") && !failed.contains("secret"),
            "{failed}"
        );
    }

    #[test]
    fn a_request_is_read_to_its_end_and_no_further_than_allowed() {
        let read = |bytes: &[u8]| request(&mut Cursor::new(bytes.to_vec()));
        assert_eq!(
            read(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(),
            "GET /metrics HTTP/1.1"
        );
        assert!(
            read(b"GET /metrics HTTP/1.1\r\nHost: a\r\n").is_err(),
            "the end is missing"
        );
        let long = [
            b"GET /metrics HTTP/1.1\r\n".to_vec(),
            vec![b'a'; MOST_BYTES + 2000],
            b"\r\n\r\n".to_vec(),
        ]
        .concat();
        assert!(read(&long).is_err());
        assert_eq!(read(b"\xff\r\n\r\n").unwrap(), "\u{fffd}");
    }

    #[test]
    fn an_address_that_others_reach_needs_a_word() {
        let check = |address: &str, allow| check(address.parse().unwrap(), allow).is_ok();
        assert!(check("127.0.0.1:9", false) && check("[::1]:9", false) && check("[::ffff:127.0.0.1]:9", false));
        for address in ["0.0.0.0:9", "[::]:9", "10.0.0.1:9"] {
            assert!(!check(address, false) && check(address, true), "{address}");
        }
    }
}
