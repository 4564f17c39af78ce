//! `/metrics` over HTTP 1, and nothing else: one request for each connection.

use super::Metrics;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tranche_core::openmetrics::CONTENT_TYPE;

/// The longest head of a request, in bytes.
const MOST_HEAD: u64 = 8 << 10;

/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Collectors at one time: the kubelet is not to wait for those who open connections for nothing.
const MOST_CLIENTS: usize = 8;

/// Listens on `port` of all addresses of the pod.
///
/// # Errors
/// Returns why the port cannot be had.
pub async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        // A kernel without IPv6.
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

/// Answers collectors. It never returns.
pub async fn serve(listener: TcpListener, metrics: Metrics) {
    let places = Arc::new(Semaphore::new(MOST_CLIENTS));
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let metrics = metrics.clone();
                tokio::spawn(async move {
                    // A collector that has gone says so in its own log.
                    let _ = timeout(PATIENCE, answer(stream, &metrics)).await;
                    drop(place);
                });
            }
            // Too many open files, for example: others may be closed soon.
            Err(e) => {
                tracing::warn!("/metrics: {e}");
                sleep(PATIENCE).await;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let head = head(reader).await?;
    let mut words = head.split(|byte| byte.is_ascii_whitespace());
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    let (status, kind, text) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", CONTENT_TYPE, metrics.text()),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", String::new()),
    };
    let length = text.len();
    let fields = "Allow: GET, HEAD\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n";
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{fields}\r\n");
    if method != b"HEAD" {
        answer.push_str(&text);
    }
    writer.write_all(answer.as_bytes()).await?;
    writer.shutdown().await
}

/// What comes before an empty line, or the end.
async fn head(reader: impl AsyncReadExt + Unpin) -> io::Result<Vec<u8>> {
    let mut reader = reader.take(MOST_HEAD);
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && reader.read_buf(&mut head).await? > 0 {}
    Ok(head)
}
