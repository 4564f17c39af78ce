//! One connection: a line of a request, and the line that answers it.

use super::answer;
use super::commands::Commands;
use super::peer::BrokerClient;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tranche_core::bounded;
use tranche_core::broker::{ErrorFields, MOST_BYTES};
use tranche_core::error::{Error, Result};
use tranche_protocol::Request;

/// How long a client may take to send its line, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// For how long the rest of a request is read that is too long.
const REFUSAL_PATIENCE: Duration = Duration::from_millis(200);

/// The most bytes after the end of a request that are read, so that the client gets the answer.
const MOST_SKIPPED: usize = 1 << 20;

/// Reads the request of `stream` and answers it. A client that sends no complete line in time gets no answer.
pub(super) fn answer(stream: &UnixStream, peer: &BrokerClient, commands: &Commands<'_>) {
    match read(stream, PATIENCE) {
        Ok(line) => send(
            stream,
            Request::parse(&line).and_then(|request| commands.run(peer, stream, request)),
        ),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            send(stream, Err(too_long()));
            finish(stream);
        }
        Err(_) => {}
    }
}

/// Does what a client asks for that has too many connections, and gives something back.
pub(super) fn give_back(stream: &UnixStream, peer: &BrokerClient, commands: &Commands<'_>, request: Request) {
    if stream.set_nonblocking(false).is_ok() {
        send(stream, commands.run(peer, stream, request));
    }
}

/// Tells a client that it has too many connections, without waiting for anything.
pub(super) fn turn_away(stream: &UnixStream) {
    if stream.set_nonblocking(true).is_ok() {
        write(stream, &busy());
    }
}

fn read(stream: &UnixStream, patience: Duration) -> io::Result<Vec<u8>> {
    // The limit counts the end of the line.
    bounded::line(stream, MOST_BYTES - 1, Instant::now() + patience)
}

/// Reads what a client still sends, after the answer.
fn finish(stream: &UnixStream) {
    // A client that is gone sends nothing.
    let _ = stream.shutdown(Shutdown::Write);
    bounded::skip(stream, MOST_SKIPPED, Instant::now() + REFUSAL_PATIENCE);
}

fn busy() -> String {
    answer::refusal(&ErrorFields::busy())
}

fn too_long() -> Error {
    Error::usage("request", format!("is longer than {MOST_BYTES} bytes"))
}

fn send(stream: &UnixStream, result: Result<serde_json::Value>) {
    write(stream, &answer::line(result));
}

fn write(mut stream: &UnixStream, line: &str) {
    // A client that is gone needs no answer.
    let _ = stream
        .set_write_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(line.as_bytes()));
}
