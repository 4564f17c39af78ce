//! HTTP as far as the tests need it.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

pub(super) fn begin_chunks(mut stream: &TcpStream) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).ok()
}

pub(super) fn send_chunk(mut stream: &TcpStream, value: &Value) -> Option<()> {
    let line = value.to_string() + "\n";
    write!(stream, "{:x}\r\n{line}\r\n", line.len()).ok()
}

pub(super) fn end_chunks(mut stream: &TcpStream) -> Option<()> {
    stream.write_all(b"0\r\n\r\n").ok()
}

pub(super) fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, String, Vec<u8>)> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut words = first.split_whitespace().map(str::to_owned);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((words.next()?, words.next()?, body))
}

pub(super) fn send(mut stream: &TcpStream, status: &str, value: &Value) -> Option<()> {
    let body = value.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()
}
