//! Makes the requests of a kubelet acceptable to tonic.
//!
//! A kubelet dials the sockets in `plugins_registry` by their paths and sets no authority
//! (`pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go`, dial), so that grpc-go sends
//! `:authority: %2Fvar%2Flib%2Fkubelet%2F…`. h2 takes that for malformed and resets the stream (hyperium/h2#442). The
//! filter between the socket and tonic writes `localhost` in its place.

mod block;
mod frames;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;

use frames::Rewriter;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// How many bytes are read from the socket at once.
const CHUNK: usize = 4 << 10;

/// Why what a client sent is not HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed HTTP/2: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// A connection whose requests all have the authority `localhost`. What is written to it is not changed.
///
/// It is for a server that announces no SETTINGS_HEADER_TABLE_SIZE, as tonic's does not: the table of the client then
/// has at most 4096 bytes (RFC 9113, 6.5.2). What the client announces is about the headers of the answers, and passes.
#[derive(Debug)]
pub struct AuthorityFilter<IO> {
    io: IO,
    rewriter: Rewriter,
    /// What is ready for the server, from `read` on.
    ready: Vec<u8>,
    read: usize,
}

impl<IO> AuthorityFilter<IO> {
    /// The filter of one connection, of which nothing was read yet.
    pub fn new(io: IO) -> Self {
        Self {
            io,
            rewriter: Rewriter::default(),
            ready: Vec::new(),
            read: 0,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for AuthorityFilter<IO> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while to.remaining() > 0 {
            let rest = this.ready.get(this.read..).unwrap_or_default();
            if !rest.is_empty() {
                let taken = rest.len().min(to.remaining());
                to.put_slice(&rest[..taken]);
                this.read += taken;
                break;
            }
            this.ready.clear();
            this.read = 0;
            if this.rewriter.next(&mut this.ready)? {
                continue;
            }
            let mut chunk = [0; CHUNK];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut chunk))?;
            if !chunk.filled().is_empty() {
                this.rewriter.take(chunk.filled());
            } else if this.rewriter.is_between_frames() {
                break;
            } else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for AuthorityFilter<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<IO> Connected for AuthorityFilter<IO> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
