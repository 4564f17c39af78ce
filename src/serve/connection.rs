//! One connection: a line of a request, and the line that answers it.

use super::answer;
use super::commands::Commands;
use super::peer::BrokerClient;
use super::request;
use crate::bounded;
use crate::broker::MOST_BYTES;
use crate::error::{Error, Result};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a client may take to send its line, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads the request of `stream` and answers it. A client that sends no complete line in time gets no answer.
pub(super) fn answer(stream: &UnixStream, peer: &BrokerClient, commands: &Commands<'_>) {
    // The limit counts the end of the line.
    let answer = match bounded::line(stream, MOST_BYTES - 1, Instant::now() + PATIENCE) {
        Ok(line) => request::parse(&line).and_then(|request| commands.run(peer, request)),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => Err(too_long()),
        Err(_) => return,
    };
    send(stream, answer);
}

/// Tells a client that it has too many connections, without waiting for anything.
pub(super) fn refuse(stream: &UnixStream) {
    if stream.set_nonblocking(true).is_ok() {
        let busy = Error::failed("broker", "there are too many requests at once").hint("try again later");
        send(stream, Err(busy));
    }
}

fn too_long() -> Error {
    Error::usage("request", format!("is longer than {MOST_BYTES} bytes"))
}

fn send(mut stream: &UnixStream, result: Result<serde_json::Value>) {
    // A client that is gone needs no answer.
    let _ = stream
        .set_write_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(answer::line(result).as_bytes()));
}
