//! The side of the broker's protocol that asks.

use super::request::{Command, RequestLine};
use super::{ErrorFields, MOST_ANSWER};
use crate::bounded;
use crate::error::Error;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why there is no answer to a request, or that the answer is a refusal.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No broker listens on the socket, or it did not answer in time.
    #[error("{0}")]
    Unreachable(#[source] io::Error),
    /// The broker refuses the request, or could not fulfil it.
    #[error("{0}")]
    Refused(#[source] Error),
}

/// Sends `request` to the broker that listens on `socket`, and waits for its answer, at most for `patience` in all.
/// Returns the value of `ok`.
///
/// # Errors
/// Returns [`BrokerError`].
pub fn ask<T: DeserializeOwned>(socket: &Path, request: &impl Command, patience: Duration) -> Result<T, BrokerError> {
    send_again(socket, &RequestLine::of(request), patience, if_busy(request, patience))
}

/// For how long a client tries again that the broker has no place for.
fn if_busy<C: Command>(_: &C, patience: Duration) -> Duration {
    // What is not given back stays held, after everybody who would give it back has gone.
    if C::GIVES_BACK { patience } else { BUSY_PATIENCE }
}

/// As [`ask`], if the answer says nothing but that it is done.
///
/// # Errors
/// Returns [`BrokerError`].
pub fn tell(socket: &Path, request: &impl Command, patience: Duration) -> Result<(), BrokerError> {
    ask::<IgnoredAny>(socket, request, patience).map(drop)
}

/// As [`ask`], with a whole request, which tests make of what no program sends.
///
/// # Errors
/// Returns [`BrokerError`].
pub fn send<T: DeserializeOwned>(
    socket: &Path,
    request: &impl Serialize,
    patience: Duration,
) -> Result<T, BrokerError> {
    send_again(socket, request, patience, BUSY_PATIENCE)
}

/// As [`send`], for `if_busy` again and again while the broker has no place for it.
fn send_again<T: DeserializeOwned>(
    socket: &Path,
    request: &impl Serialize,
    patience: Duration,
    if_busy: Duration,
) -> Result<T, BrokerError> {
    let line = serde_json::to_string(request).map_err(|e| BrokerError::Unreachable(e.into()))?;
    let until = Instant::now() + if_busy.min(patience);
    let other = || Error::failed(socket.display(), "its answer is not one of the broker's");
    loop {
        let answer = exchange(socket, &format!("{line}\n"), patience).map_err(BrokerError::Unreachable)?;
        let answer: Result<AnswerLine<T>, _> = serde_json::from_str(&answer);
        let is_busy = matches!(&answer, Ok(AnswerLine { error: Some(refusal), .. }) if refusal.is_busy());
        if is_busy && Instant::now() < until {
            std::thread::sleep(pause());
            continue;
        }
        return match answer {
            Ok(AnswerLine { ok: Some(value), .. }) => Ok(value),
            Ok(AnswerLine {
                error: Some(refusal), ..
            }) => Err(BrokerError::Refused(refusal.into())),
            Ok(_) => Err(BrokerError::Refused(other())),
            Err(e) => Err(BrokerError::Refused(other().from_source(e))),
        };
    }
}

/// For how long a client tries again that the broker has no place for, unless it gives something back.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);

/// How long it waits before it tries again: between 20 and 147 ms, so that many do not come at the same time. Nothing
/// depends on how random it is.
fn pause() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(20 + u64::from((now.subsec_nanos() >> 10) ^ std::process::id()) % 128)
}

/// What an answer has.
#[derive(Deserialize)]
struct AnswerLine<T> {
    ok: Option<T>,
    error: Option<ErrorFields>,
}

/// Sends a line and returns the line that answers it, without its end.
fn exchange(path: &Path, line: &str, patience: Duration) -> io::Result<String> {
    let until = Instant::now() + patience;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // This also limits how long a connection waits for a broker that accepts none.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut stream = UnixStream::from(socket);
    // A broker that refuses the connection may have answered and closed it before the request was written.
    let written = stream.write_all(line.as_bytes());
    let answer = bounded::line(&stream, MOST_ANSWER, until);
    let answer = match (written, answer) {
        (_, Ok(answer)) => answer,
        (Err(e), Err(_)) | (Ok(()), Err(e)) => return Err(e),
    };
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::SOCKET;
    use crate::error::Kind;
    use rustix::net::{bind, listen};
    use serde_json::{Value, json};
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    const SHORT: Duration = Duration::from_millis(50);

    /// The line that a broker gets, and what its client makes of the pieces of `answer`.
    fn answered(answer: &'static [&'static str]) -> (String, Result<Value, BrokerError>) {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let listener = UnixListener::bind(&path).unwrap();
        let broker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            for piece in answer {
                // The client may have seen enough, and gone.
                let _ = stream.write_all(piece.as_bytes());
            }
            line
        });
        let asked = send(&path, &json!({"a": 1}), Duration::from_secs(60));
        (broker.join().unwrap(), asked)
    }

    #[test]
    fn a_broker_that_answers_has_read_the_line() {
        let (line, asked) = answered(&["{\"ver", "sion\":1,\"ok\":{\"x\":2}}\n"]);
        assert_eq!(line, "{\"a\":1}\n");
        assert_eq!(asked.unwrap(), json!({"x": 2}));
    }

    #[test]
    fn a_refusal_is_an_error_with_its_kind_and_hint() {
        const ANSWER: &[&str] = &[
            r#"{"version":1,"error":{"kind":"usage","object":"gpu 0","what":"is not shared","hint":"share it"}}"#,
            "\n",
        ];
        let (_, asked) = answered(ANSWER);
        let Err(BrokerError::Refused(error)) = asked else {
            panic!("{asked:?}");
        };
        assert_eq!(error.to_string(), "gpu 0: is not shared; share it");
        assert_eq!(error.kind(), Kind::Usage);
    }

    #[test]
    fn a_refusal_is_read_although_the_request_could_not_be_written() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let listener = UnixListener::bind(&path).unwrap();
        let broker = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .write_all(b"{\"version\":1,\"error\":{\"kind\":\"failed\",\"object\":\"broker\",\"what\":\"busy\"}}\n")
        });
        // More than a socket holds: the client still writes when the broker closes.
        let asked = send::<Value>(&path, &json!({"a": "x".repeat(4 << 20)}), Duration::from_secs(60));
        broker.join().unwrap().unwrap();
        assert!(
            matches!(&asked, Err(BrokerError::Refused(error)) if error.to_string() == "broker: busy"),
            "{asked:?}"
        );
    }

    #[test]
    fn an_answer_of_another_form_is_an_error() {
        for answer in [&["{}\n"][..], &["hello\n"], &["{\"version\":1,\"error\":{}}\n"]] {
            assert!(matches!(answered(answer).1, Err(BrokerError::Refused(_))), "{answer:?}");
        }
        const LONG: &str = "a piece of an answer that does not end, because it has no line feed";
        const ENDLESS: &[&str] = &[LONG; 16_000];
        for answer in [&["{\"ok\":1}"], ENDLESS] {
            assert!(
                matches!(answered(answer).1, Err(BrokerError::Unreachable(_))),
                "{answer:?}"
            );
        }
    }

    #[test]
    fn a_broker_that_does_not_answer_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join(SOCKET);
        let kind = |patience| match send::<Value>(&path, &json!({}), patience) {
            Err(BrokerError::Unreachable(error)) => error.kind(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(SHORT), io::ErrorKind::NotFound);
        // Of the connections that nobody accepts, one waits.
        let address = SocketAddrUnix::new(&path).unwrap();
        let stream = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let listener = stream();
        bind(&listener, &address).unwrap();
        listen(&listener, 0).unwrap();
        let silent = kind(SHORT);
        assert!(
            matches!(silent, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            "{silent}"
        );
        let waiting = [stream(), stream(), stream()];
        let refused = waiting.iter().filter(|socket| connect(socket, &address).is_err());
        assert!(refused.count() > 0, "the queue is not full");
        let full = kind(SHORT);
        assert!(
            matches!(full, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            "{full}"
        );
        drop(listener);
        assert_eq!(kind(SHORT), io::ErrorKind::ConnectionRefused);
    }
}
