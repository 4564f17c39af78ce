//! A client that sends the bytes that grpc-go does. Section numbers are those of RFC 9113 and RFC 7541.

use fluke_hpack::Decoder;
use prost::Message;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The entries of HPACK's static table (RFC 7541, appendix A).
const STATIC: usize = 61;

/// A connection to a socket that was dialled by its path.
pub(crate) struct GoClient {
    stream: UnixStream,
    authority: String,
    next_stream: u32,
    /// What is in the dynamic table, the oldest first.
    table: Vec<(String, String)>,
    answers: Decoder<'static>,
}

/// The authority that grpc-go makes of a path: each octet that is not allowed in a host is percent-encoded
/// (`internal/transport` in grpc-go, as net/url writes it).
pub(crate) fn authority(path: &Path) -> String {
    path.display().to_string().replace('/', "%2F")
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl GoClient {
    pub(crate) fn dial(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(PREFACE)?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        Ok(Self {
            stream,
            authority: authority(socket),
            next_stream: 1,
            table: Vec::new(),
            answers: Decoder::new(),
        })
    }

    /// The headers of a request: those that are in the table by their index, and others as literals that enter it.
    fn headers(&mut self, path: &str, timeout: Duration) -> Vec<u8> {
        // POST and http are in the static table.
        let mut block = vec![0x83, 0x86];
        let timeout = format!("{}u", timeout.as_micros());
        for (name, value) in [
            (":path", path),
            (":authority", &self.authority.clone()),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.79.3"),
            ("te", "trailers"),
            ("grpc-timeout", &timeout),
        ] {
            let header = (name.to_owned(), value.to_owned());
            if let Some(newer) = self.table.iter().rev().position(|known| *known == header) {
                block.push(0x80 | (STATIC + 1 + newer) as u8);
                continue;
            }
            block.push(0x40);
            for text in [name, value] {
                assert!(text.len() < 127 + 128, "its length has two bytes at most");
                match u8::try_from(text.len()).unwrap() {
                    length @ 0..127 => block.push(length),
                    length => block.extend([127, length - 127]),
                }
                block.extend(text.bytes());
            }
            self.table.push(header);
        }
        block
    }

    /// A call with one request and one answer, or why it failed.
    pub(crate) fn call<A: Message + Default>(
        &mut self,
        path: &str,
        timeout: Duration,
        request: &impl Message,
    ) -> Result<A, String> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let headers = self.headers(path, timeout);
        let message = request.encode_to_vec();
        let data = [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat();
        let sent = [
            frame(HEADERS, END_HEADERS, stream, &headers),
            frame(DATA, END_STREAM, stream, &data),
        ];
        let sent = self.stream.write_all(&sent.concat());
        sent.and_then(|()| self.stream.set_read_timeout(Some(timeout)))
            .map_err(|e| e.to_string())?;
        let mut answer = Vec::new();
        loop {
            let (kind, flags, of, payload) = self.read().map_err(|e| e.to_string())?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.send(&frame(SETTINGS, ACK, 0, &[])),
                PING if flags & ACK == 0 => self.send(&frame(PING, ACK, 0, &payload)),
                RST_STREAM if of == stream => return Err(format!("reset with error {}", payload[3])),
                GOAWAY => return Err("the server goes away".into()),
                DATA if of == stream => answer.extend(payload),
                HEADERS if of == stream => {
                    let headers = self.answers.decode(&payload).map_err(|e| format!("{e:?}"))?;
                    if flags & END_STREAM != 0 {
                        let status = headers.iter().find(|(name, _)| name == b"grpc-status");
                        let is_ok = status.is_some_and(|(_, value)| value == b"0");
                        let message = answer.get(5..).filter(|_| is_ok).ok_or_else(|| shown(&headers))?;
                        return A::decode(message).map_err(|e| e.to_string());
                    }
                }
                _ => {}
            }
        }
    }

    /// The settings that the server announces first, by their numbers.
    pub(crate) fn settings(&mut self) -> io::Result<Vec<(u16, u32)>> {
        loop {
            let (kind, _, _, payload) = self.read()?;
            if kind == SETTINGS {
                let settings = payload.as_chunks::<6>().0.iter();
                let read =
                    |[a, b, c, d, e, f]: &[u8; 6]| (u16::from_be_bytes([*a, *b]), u32::from_be_bytes([*c, *d, *e, *f]));
                return Ok(settings.map(read).collect());
            }
        }
    }

    /// Type, flags, stream, payload.
    fn read(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((kind, flags, u32::from_be_bytes(stream), payload))
    }

    fn send(&mut self, frame: &[u8]) {
        // The next read has the reason.
        let _ = self.stream.write_all(frame);
    }
}

/// Headers as one line.
fn shown(headers: &[(Vec<u8>, Vec<u8>)]) -> String {
    let texts = headers.iter().flat_map(|(name, value)| [name, value]);
    texts
        .map(|text| String::from_utf8_lossy(text))
        .collect::<Vec<_>>()
        .join(" ")
}
