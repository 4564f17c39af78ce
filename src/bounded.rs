//! Reads input of a limited size. The kernel, an engine or a person may give more than any valid input has.

use std::io::{self, Read};

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
