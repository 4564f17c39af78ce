//! A small server for a program that collects metrics: nothing but `GET /metrics`.
//!
//! Every user of the machine can connect. A client has a short time for its request and for taking the answer, and
//! there is room for some of them at once. One that comes when all places are taken gets the place of the oldest one
//! that keeps the server waiting: a collector sends its request at once, so that slow clients crowd out one another.

use super::exposition::CONTENT_TYPE;
use crate::out;
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tranche_core::bounded;
use tranche_core::error::{Context, Error};
use tranche_state::mutex::lock;

/// The most bytes of a request. Collectors send some hundreds.
const MOST_BYTES: usize = 8 << 10;

/// How long a client may take for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most clients at once.
const MOST_CLIENTS: usize = 64;

/// How long what a client sends after its request is read, so that it gets the answer.
const LINGER: Duration = Duration::from_millis(200);

/// How long an answer is given again. Every user of the machine can ask, and each answer asks the driver.
const KEEP: Duration = Duration::from_secs(1);

/// How long it is given again while a new one is made.
const KEEP_MEANWHILE: Duration = Duration::from_secs(10);

/// What makes the text.
pub(super) type Make<'m> = dyn Fn() -> Result<String> + Sync + 'm;

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
pub(super) fn run(address: SocketAddr, make: &Make<'_>) -> Result<()> {
    let listener = TcpListener::bind(address).about(address, "cannot listen there")?;
    let bound = listener.local_addr().about(address, "cannot listen there")?;
    out::note(format_args!("http://{bound}/metrics"));
    serve(&listener, make)
}

fn serve(listener: &TcpListener, make: &Make<'_>) -> ! {
    let (clients, page) = (OpenClients::default(), Page::new(make));
    std::thread::scope(|threads| {
        loop {
            // A client that has gone again, or too many open files: the next one may be served.
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            // Without a place or a thread, its connection is closed.
            let Some(place) = clients.enter(&stream) else { continue };
            let (clients, page) = (&clients, &page);
            let _ = std::thread::Builder::new().spawn_scoped(threads, move || {
                talk(stream, || {
                    clients.keeps_server_waiting(place, false);
                    let text = page.text();
                    clients.keeps_server_waiting(place, true);
                    text
                });
                clients.leave(place);
            });
        }
    })
}

/// Reads the request of a client and answers it.
fn talk(mut stream: TcpStream, text: impl FnOnce() -> Option<Arc<str>>) {
    // One that is too slow or is gone gets no answer, and one that does not take its answer harms nobody else.
    if let Ok(line) = request(&mut stream)
        && send(&mut stream, &answer(&line, text)).is_ok()
        && stream.shutdown(Shutdown::Write).is_ok()
    {
        bounded::skip(&stream, MOST_BYTES, Instant::now() + LINGER);
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
fn answer(line: &str, text: impl FnOnce() -> Option<Arc<str>>) -> String {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let path = target.map(|target| target.split('?').next().unwrap_or_default());
    let is_http = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body): (_, _, Arc<str>) = match (method, path) {
        _ if !is_http => ("400 Bad Request", plain, "not a request of HTTP/1\n".into()),
        (Some("GET"), Some("/metrics")) => match text() {
            Some(text) => ("200 OK", CONTENT_TYPE, text),
            None => {
                let body = "the state cannot be read; see the server's log\n".into();
                ("500 Internal Server Error", plain, body)
            }
        },
        (Some("GET"), _) => ("404 Not Found", plain, "only /metrics is here\n".into()),
        _ => ("405 Method Not Allowed", plain, "only GET is allowed\n".into()),
    };
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

/// The text that clients get, which is not made for each of them.
struct Page<'m> {
    make: &'m Make<'m>,
    /// The last one; `None` in it if it could not be made.
    kept: Mutex<Option<(Instant, Option<Arc<str>>)>>,
    making: Mutex<()>,
}

impl<'m> Page<'m> {
    fn new(make: &'m Make<'m>) -> Self {
        Self {
            make,
            kept: Mutex::default(),
            making: Mutex::default(),
        }
    }

    /// The text; `None` if it cannot be made, which is reported.
    fn text(&self) -> Option<Arc<str>> {
        if let Some(kept) = self.kept(KEEP) {
            return kept;
        }
        let _making = match self.making.try_lock() {
            Ok(making) => making,
            Err(_) => {
                if let Some(kept) = self.kept(KEEP_MEANWHILE) {
                    return kept;
                }
                lock(&self.making)
            }
        };
        // Another client may have waited for it and got it.
        if let Some(kept) = self.kept(KEEP) {
            return kept;
        }
        let made = (self.make)().map_err(out::complain).ok().map(Arc::from);
        *lock(&self.kept) = Some((Instant::now(), made.clone()));
        made
    }

    fn kept(&self, time: Duration) -> Option<Option<Arc<str>>> {
        let kept = lock(&self.kept);
        let kept = kept.as_ref().filter(|(at, _)| at.elapsed() < time);
        kept.map(|(_, text)| text.clone())
    }
}

/// The clients that are connected, in the order in which they came.
#[derive(Debug, Default)]
struct OpenClients(Mutex<(u64, BTreeMap<u64, OpenClient>)>);

#[derive(Debug)]
struct OpenClient {
    stream: TcpStream,
    /// Whether it has not sent its request or taken its answer.
    keeps_server_waiting: bool,
}

impl OpenClients {
    /// A place for a client; `None` if all have sent their requests and wait for the text.
    fn enter(&self, stream: &TcpStream) -> Option<u64> {
        let mut guard = lock(&self.0);
        let (next, open) = &mut *guard;
        if open.len() >= MOST_CLIENTS {
            let oldest = open.iter().find(|(_, client)| client.keeps_server_waiting);
            let oldest = open.remove(&oldest.map(|(place, _)| *place)?)?;
            // Its thread finds its connection closed.
            let _ = oldest.stream.shutdown(Shutdown::Both);
        }
        let place = *next;
        *next += 1;
        open.insert(
            place,
            OpenClient {
                stream: stream.try_clone().ok()?,
                keeps_server_waiting: true,
            },
        );
        Some(place)
    }

    fn keeps_server_waiting(&self, place: u64, keeps: bool) {
        if let Some(client) = lock(&self.0).1.get_mut(&place) {
            client.keeps_server_waiting = keeps;
        }
    }

    fn leave(&self, place: u64) {
        lock(&self.0).1.remove(&place);
    }
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
        let answer = answer(line, || Some("x 1\n".into()));
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
        let whole = answer("GET /metrics HTTP/1.1", || Some("x 1\n".into()));
        assert!(
            whole.contains("Content-Length: 4\r\n") && whole.ends_with("\r\n\r\nx 1\n"),
            "{whole}"
        );
        let page = Page::new(&|| anyhow::bail!("a secret path"));
        let failed = answer("GET /metrics HTTP/1.1", || page.text());
        assert!(
            failed.starts_with("HTTP/1.1 500 ") && !failed.contains("secret"),
            "{failed}"
        );
    }

    /// A server of its own, which lasts as long as the test.
    fn serving(make: impl Fn() -> Result<String> + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &make));
        address
    }

    /// The answer to `sent`, read to its end without an error.
    fn exchange(address: SocketAddr, sent: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(sent).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn slow_clients_do_not_hold_up_a_collector() {
        let address = serving(|| Ok("x 1\n".to_owned()));
        let mut slow = Vec::new();
        for _ in 0..3 {
            for _ in 0..130 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /metr").unwrap();
                slow.push(stream);
            }
            // One after another, each of them would have two seconds.
            assert!(exchange(address, GET).ends_with("x 1\n"));
        }
        println!("{} slow clients", slow.len());
    }

    #[test]
    fn a_text_that_is_being_made_is_not_waited_for_if_there_is_an_earlier_one() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, ended) = (Mutex::new(begin), Mutex::new(ended));
        let address = serving(move || {
            begin.lock().unwrap().send(()).unwrap();
            ended.lock().unwrap().recv().unwrap();
            Ok("x 1\n".to_owned())
        });
        let ask = || std::thread::spawn(move || exchange(address, GET));
        let first = ask();
        begun.recv().unwrap();
        let waiting: Vec<_> = (0..10).map(|_| ask()).collect();
        end.send(()).unwrap();
        for asked in std::iter::once(first).chain(waiting) {
            assert!(asked.join().unwrap().ends_with("x 1\n"), "made once for all of them");
        }
        std::thread::sleep(KEEP);
        let second = ask();
        begun.recv().unwrap();
        assert!(exchange(address, GET).ends_with("x 1\n"));
        end.send(()).unwrap();
        second.join().unwrap();
    }

    #[test]
    fn a_client_that_sends_more_than_a_request_gets_the_whole_answer() {
        let address = serving(|| Ok("x 1\n".to_owned()));
        for _ in 0..20 {
            let body = [b"POST /metrics HTTP/1.1\r\n\r\n", &vec![b'x'; 4000][..]].concat();
            assert!(exchange(address, &body).ends_with("only GET is allowed\n"));
        }
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
