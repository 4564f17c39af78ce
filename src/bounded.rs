//! Reads input of a limited size. The kernel, an engine or a person may give more than any valid input has.

use std::io::{self, Read};

/// Opens a regular file, without waiting for the other end of a pipe and without making a terminal the program's own. The
/// open file is what is checked.
///
/// # Errors
/// Returns `InvalidInput` if it is not a regular file, or the error of opening.
#[cfg(feature = "runtime")]
pub(crate) fn regular_file(path: &std::path::Path) -> io::Result<std::fs::File> {
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
pub(crate) fn read(from: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {limit} bytes"),
        )),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
