//! Recordings of HTTP/2, frame by frame, and how they are played. The numbers are those of RFC 9113.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// What a client sends before its first frame (3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// The flag of the last frame of a request or an answer (6.1, 6.2).
const END_STREAM: u8 = 1;

/// A frame with its header, or the preface.
pub(crate) struct Frame(Vec<u8>);

/// The frames of a recording: each line has one, in hexadecimal digits, before a comment.
pub(crate) fn frames(recording: &str) -> Vec<Frame> {
    let lines = recording.lines().map(|line| line.split('#').next().unwrap().trim());
    let digits = lines.filter(|line| !line.is_empty());
    digits
        .map(|digits| {
            let pairs = (0..digits.len()).step_by(2);
            Frame(
                pairs
                    .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
                    .collect(),
            )
        })
        .collect()
}

impl Frame {
    /// The next frame; `None` when the other side has ended.
    fn read(from: &mut UnixStream) -> Option<Self> {
        let mut frame = vec![0; 9];
        from.read_exact(&mut frame).ok()?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        frame.resize(9 + length as usize, 0);
        from.read_exact(&mut frame[9..]).ok()?;
        Some(Self(frame))
    }

    fn kind(&self) -> Option<u8> {
        (self.0 != PREFACE).then(|| self.0[3])
    }

    /// Whether a request is complete with it.
    pub(crate) fn ends_request(&self) -> bool {
        matches!(self.kind(), Some(DATA | HEADERS)) && self.0[4] & END_STREAM != 0
    }
}

fn send<'a>(to: &mut UnixStream, frames: impl IntoIterator<Item = &'a Frame>) {
    for frame in frames {
        // The other side may have ended.
        let _ = to.write_all(&frame.0);
    }
}

fn read_preface(from: &mut UnixStream) -> bool {
    let mut read = [0; PREFACE.len()];
    from.read_exact(&mut read).is_ok() && &read == PREFACE
}

/// Serves `socket` as the recorded server did, on each connection from the beginning: what it sent before its first
/// answer when a client has sent its settings, and the rest after the request and `before_answer`.
pub(crate) fn serve(socket: &Path, recording: &str, before_answer: impl Fn() + Send + Sync + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    let recorded = Arc::new((frames(recording), before_answer));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (recorded, mut client) = (recorded.clone(), stream.unwrap());
            thread::spawn(move || {
                let (recorded, before_answer) = &*recorded;
                let answer = recorded.iter().position(|frame| frame.kind() == Some(HEADERS)).unwrap();
                let (greeting, answer) = recorded.split_at(answer);
                if !read_preface(&mut client) || Frame::read(&mut client).is_none() {
                    return;
                }
                send(&mut client, greeting);
                while let Some(frame) = Frame::read(&mut client) {
                    if frame.ends_request() {
                        before_answer();
                        send(&mut client, answer);
                    }
                }
            });
        }
    });
}

/// Lets a client at `socket` ask the server at `server` with the requests of a recording: what the client itself sends
/// is dropped, and for each of its requests the server gets what the recorded client sent until its next request was
/// complete. The answers are passed on, and the client reads them as those to its own requests. So its requests must
/// be those of the recording, in the same order.
pub(crate) fn replace_requests(socket: &Path, recording: &'static str, server: PathBuf) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let server = UnixStream::connect(&server).unwrap();
            thread::spawn(move || replace(stream.unwrap(), server, frames(recording)));
        }
    });
}

fn replace(mut client: UnixStream, mut server: UnixStream, recorded: Vec<Frame>) {
    // The preface and the settings. The client went on when it had the settings of the server.
    let (greeting, requests) = recorded.split_at(2);
    assert!(read_preface(&mut client));
    send(&mut server, greeting);
    let settings = Frame::read(&mut server).unwrap();
    send(&mut client, [&settings]);
    let (mut answers, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut requests = requests.iter();
    while let Some(frame) = Frame::read(&mut client) {
        while frame.ends_request()
            && let Some(next) = requests.next()
        {
            send(&mut server, [next]);
            if next.ends_request() {
                break;
            }
        }
    }
    // What it sent after its last request.
    send(&mut server, requests);
    let _ = server.shutdown(Shutdown::Write);
}
