//! Answers requests for the page: GET and HEAD alone, one for each connection.

use httparse::{EMPTY_HEADER, Request, Status};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// The longest head of a request, in bytes.
const MOST_HEAD: usize = 8 << 10;

/// The most fields of a head.
const MOST_FIELDS: usize = 64;

/// For how long a head may come in, however slowly.
const PATIENCE: Duration = Duration::from_secs(5);

/// What every answer has. Nothing is loaded from elsewhere, and no other page has this one in a frame.
const FIELDS: &str = "Content-Security-Policy: default-src 'none'; style-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
    Connection: close\r\n";

/// A connection.
pub(crate) trait Stream: Read + Write {
    /// For how long a read and a write may take from now on.
    fn limit(&self, time: Duration) -> std::io::Result<()>;
}

impl Stream for &std::os::unix::net::UnixStream {
    fn limit(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for &std::net::TcpStream {
    fn limit(&self, time: Duration) -> std::io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// What an answer is made of.
pub(crate) struct Content {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Reads a request and answers it. `is_host` says whether the page has that name: a page elsewhere could give this
/// address a name of its own, and then read the answer (DNS rebinding). `find` returns the content of a path.
///
/// # Errors
/// Returns the error of the connection.
pub(crate) fn answer(
    stream: &mut impl Stream,
    is_host: impl Fn(Option<&str>) -> bool,
    find: impl FnOnce(&str) -> Option<Content>,
) -> std::io::Result<()> {
    let head = read_head(stream)?;
    let mut fields = [EMPTY_HEADER; MOST_FIELDS];
    let mut request = Request::new(&mut fields);
    let is_whole = matches!(request.parse(&head), Ok(Status::Complete(_)));
    let (method, path) = match (is_whole, request.method, request.path) {
        (true, Some(method), Some(path)) => (method.to_owned(), path.to_owned()),
        _ => return write(stream, "400 Bad Request", "", false, None),
    };
    let is_head = method == "HEAD";
    let mut hosts = request
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = hosts.next().and_then(|field| std::str::from_utf8(field.value).ok());
    if hosts.next().is_some() || !is_host(host) {
        return write(stream, "421 Misdirected Request", "", is_head, None);
    }
    if !is_head && method != "GET" {
        return write(stream, "405 Method Not Allowed", "Allow: GET, HEAD\r\n", false, None);
    }
    match find(&path) {
        Some(content) => write(stream, "200 OK", "", is_head, Some(content)),
        None => write(stream, "404 Not Found", "", is_head, None),
    }
}

fn read_head(stream: &mut impl Stream) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST_HEAD {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.limit(left)?;
        match stream.read(&mut piece)? {
            0 => break,
            read => head.extend_from_slice(piece.get(..read).unwrap_or_default()),
        }
    }
    Ok(head)
}

fn write(
    stream: &mut impl Stream,
    status: &str,
    more: &str,
    is_head: bool,
    content: Option<Content>,
) -> std::io::Result<()> {
    let Content { kind, text } = content.unwrap_or_else(|| Content {
        kind: "text/plain; charset=utf-8",
        text: format!("{status}\n"),
    });
    let length = text.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{FIELDS}{more}\r\n");
    if !is_head {
        answer.push_str(&text);
    }
    stream.limit(PATIENCE)?;
    stream.write_all(answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// The whole answer to what is sent.
    fn ask(request: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(request).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let find = |path: &str| {
            let text = (path == "/").then(|| "<p>".to_owned());
            text.map(|text| Content {
                kind: "text/html",
                text,
            })
        };
        answer(&mut &server, |host| host == Some("localhost"), find).unwrap();
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_known_hosts_and_reading_are_answered() {
        let found = ask(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("\r\n\r\n<p>"),
            "{found}"
        );
        for field in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-store"] {
            assert!(found.contains(field), "{field}: {found}");
        }
        let head = ask(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"[..], "421"),
            (b"GET / HTTP/1.1\r\n\r\n", "421"),
            (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "421"),
            (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            (b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
            (b"nonsense\r\n\r\n", "400"),
            (b"", "400"),
            (&[b'x'; MOST_HEAD], "400"),
        ] {
            let found = ask(request);
            assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{found}");
        }
    }
}
