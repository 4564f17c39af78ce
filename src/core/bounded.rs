//! Reads input of a limited size. The kernel, an engine or a person may give more than any valid input has.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Instant;

/// Opens a regular file, without waiting for the other end of a pipe and without making a terminal the program's own.
/// The open file is what is checked.
///
/// # Errors
/// Returns `InvalidInput` if it is not a regular file, or the error of opening.
pub fn regular_file(path: &std::path::Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOCTTY;
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Reads to the end of `from`.
///
/// # Errors
/// Returns `FileTooLarge` if there are more than `limit` bytes, or the error of reading.
pub fn read(from: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(too_large(limit)),
        false => Ok(bytes),
    }
}

/// The error of an input that has more than `limit` bytes.
pub fn too_large(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes"))
}

/// Reads the first line, and returns it without its end. What follows it may be lost.
///
/// # Errors
/// As [`Lines::next`].
pub fn line(from: impl Read + AsFd, limit: usize, until: Instant) -> io::Result<Vec<u8>> {
    Lines::new(from).next(limit, until)
}

/// Reads lines, one after another.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    /// What was read of the lines that follow.
    rest: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    /// The lines of `from`.
    pub fn new(from: R) -> Self {
        Self { from, rest: Vec::new() }
    }

    /// Reads the next line, and returns it without its end.
    ///
    /// # Errors
    /// Returns `TimedOut` if the line has not ended by `until`, `FileTooLarge` if it has more than `limit` bytes,
    /// `UnexpectedEof` if the input ends before it does, or the error of reading.
    pub fn next(&mut self, limit: usize, until: Instant) -> io::Result<Vec<u8>> {
        let mut line = std::mem::take(&mut self.rest);
        let mut piece = [0; 4096];
        let mut looked = 0;
        loop {
            let new = line.get(looked..).unwrap_or_default();
            if let Some(end) = new.iter().position(|byte| *byte == b'\n').map(|end| looked + end) {
                self.rest = line.split_off(end + 1);
                line.truncate(end);
                return match line.len() > limit {
                    true => Err(io::ErrorKind::FileTooLarge.into()),
                    false => Ok(line),
                };
            }
            if line.len() > limit {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            looked = line.len();
            let read = read_by(&mut self.from, &mut piece, until)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            line.extend_from_slice(piece.get(..read).unwrap_or_default());
        }
    }
}

/// Reads up to the end of the input and forgets it: at most `limit` bytes, and not after `until`. A socket that is
/// closed with input that nobody has read resets the connection, and the other end may lose what was sent to it
/// (tcp(7), unix(7)).
pub fn skip(mut from: impl Read + AsFd, limit: usize, until: Instant) {
    let mut piece = [0; 4096];
    let mut skipped = 0;
    while skipped < limit {
        match read_by(&mut from, &mut piece, until) {
            // What cannot be read any more needs no answer either.
            Ok(0) | Err(_) => return,
            Ok(read) => skipped += read,
        }
    }
}

/// Reads once, and waits for that until `until`. Returns how many bytes; 0 at the end of the input.
fn read_by(from: &mut (impl Read + AsFd), piece: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            ready => ready?,
        };
        return from.read(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_one_after_another() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a\n\nbc\nd").unwrap();
        drop(writer);
        let mut lines = Lines::new(reader);
        let until = Instant::now() + Duration::from_secs(60);
        for expected in [&b"a"[..], b"", b"bc"] {
            assert_eq!(lines.next(2, until).unwrap(), expected);
        }
        assert_eq!(lines.next(2, until).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"abc\n").unwrap();
        assert_eq!(
            Lines::new(reader).next(2, until).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn a_line_is_read_whole_in_time_or_not_at_all() {
        let minute = || Instant::now() + Duration::from_secs(60);
        let with = |text: &[u8]| {
            let (mut writer, reader) = UnixStream::pair().unwrap();
            writer.write_all(text).unwrap();
            (writer, reader)
        };
        let (_open, from) = with(b"1234\n5");
        assert_eq!(line(&from, 4, minute()).unwrap(), b"1234");
        let (_open, from) = with(b"12345\n");
        assert_eq!(
            line(&from, 4, minute()).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        let (_open, from) = with(b"1234");
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(line(&from, 4, soon).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (open, from) = with(b"1234");
        drop(open);
        assert_eq!(
            line(&from, 4, minute()).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_byte_more_than_the_limit_is_refused() {
        assert_eq!(read(&b"1234"[..], 4).unwrap(), b"1234");
        let e = read(&b"12345"[..], 4).unwrap_err();
        assert_eq!(
            (e.kind(), e.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "larger than 4 bytes")
        );
        // An endless input is not read to its end.
        assert_eq!(read(io::repeat(0), 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
