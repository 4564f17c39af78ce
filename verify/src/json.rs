//! Output as JSON, and its parts.

use crate::sys::cuda::{Cuda, Unanswered};
use crate::sys::{Stream, write_all};
use core::fmt::{self, Display, Formatter, Write};

/// Standard output, through a buffer.
pub struct Output {
    buffer: [u8; 4096],
    used: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// A buffer with nothing in it.
    pub fn new() -> Self {
        Self {
            buffer: [0; 4096],
            used: 0,
        }
    }

    /// Writes what is in the buffer. Returns false if that failed.
    pub fn flush(&mut self) -> bool {
        let used = core::mem::take(&mut self.used);
        write_all(Stream::Output, self.buffer.get(..used).unwrap_or_default())
    }
}

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if self.used == self.buffer.len() && !self.flush() {
                return Err(fmt::Error);
            }
            if let Some(place) = self.buffer.get_mut(self.used) {
                *place = byte;
                self.used += 1;
            }
        }
        Ok(())
    }
}

/// Bytes from elsewhere, as the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD. As text for people
/// they are one line that a terminal does not act on.
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_char('\u{fffd}')?;
            }
        }
        Ok(())
    }
}

/// A UUID without the prefix that says whether it is one of a GPU or of a MIG instance, which CUDA does not say.
pub struct Uuid(pub [u8; 16]);

impl Display for Uuid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Why a question has no answer.
pub struct Why<'a>(pub &'a Cuda, pub Unanswered);

impl Display for Why<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Unanswered::Missing(name) => {
                write!(f, "{} is not in this libcuda.so.1", Escaped(name.to_bytes()))
            }
            Unanswered::Error(name, error) => {
                write!(f, "{} returned ", Escaped(name.to_bytes()))?;
                match self.0.error_name(error) {
                    Some(text) => write!(f, "{} ({error})", Escaped(text)),
                    None => write!(f, "{error}"),
                }
            }
        }
    }
}

/// `null` for an answer that is missing.
pub struct OrNull<T>(pub Option<T>);

impl<T: Display> Display for OrNull<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("null"),
        }
    }
}

/// A string of JSON.
pub struct Quoted<T>(pub T);

impl<T: Display> Display for Quoted<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}
