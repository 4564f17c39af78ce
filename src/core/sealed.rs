//! JSON objects in files with a checksum, so that a bit that has changed on a disk or in memory is noticed: a drained
//! device is not given because of it.
//!
//! The checksum is the first field, `{"checksum":"…",…}`, and is of the text without that field. A file of an earlier
//! version has none, and is taken as it is.

use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// What a file with a checksum begins with.
const BEGIN: &str = "{\"checksum\":\"";

/// FNV-1a with 64 bits, as 16 hexadecimal digits. Each step is a bijection of the state, so that any change of one byte
/// gives another sum.
pub fn checksum(text: &str) -> String {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    format!("{:016x}", text.as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, step))
}

/// The same for a text of megabytes that is read at a container's start: eight bytes a step, which takes a sixth of the
/// time. Each step is a bijection, too.
pub fn checksum_of_long(text: &str) -> String {
    let step = |sum: u64, word: u64| (sum.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let sum = words
        .iter()
        .fold(text.len() as u64, |sum, word| step(sum, u64::from_le_bytes(*word)));
    format!(
        "{:016x}",
        rest.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
    )
}

/// The JSON object `text` with its checksum. Any other JSON has no place for one, and stays as it is.
pub fn seal(text: &str) -> Cow<'_, str> {
    match text.strip_prefix('{') {
        None => Cow::Borrowed(text),
        Some(rest) => {
            let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
            Cow::Owned(format!("{BEGIN}{}\"{comma}{rest}", checksum(text.trim_end())))
        }
    }
}

/// The JSON object that was sealed; one without a checksum as it is. `None` if the checksum is that of another text.
pub fn open(text: &str) -> Option<Cow<'_, str>> {
    let Some(rest) = text.strip_prefix(BEGIN) else {
        return Some(Cow::Borrowed(text));
    };
    let (sum, rest) = rest.split_once('"')?;
    let content = format!("{{{}", rest.strip_prefix(',').unwrap_or(rest).trim_end());
    (checksum(&content) == sum).then_some(Cow::Owned(content))
}

/// Why the content of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// Its checksum is that of another text.
    #[error("its checksum is of another content")]
    Checksum,
    /// It is not UTF-8.
    #[error("{0}")]
    Text(#[from] std::str::Utf8Error),
    /// It is not what is expected.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Reads the content of a file: opened, and then parsed.
///
/// # Errors
/// Returns [`SealedError`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, SealedError> {
    let text = open(std::str::from_utf8(bytes)?).ok_or(SealedError::Checksum)?;
    Ok(serde_json::from_str(&text)?)
}

/// Whether the text has a checksum.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(BEGIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_was_sealed_is_opened_and_is_json() {
        for text in ["{}", "{\"a\":1}\n", "{\"a\":{\"b\":[1,2]},\"c\":\"d\"}"] {
            let sealed = seal(text);
            assert_eq!(open(&sealed).unwrap(), text.trim_end());
            let value: Value = serde_json::from_str(&sealed).unwrap();
            assert!(value["checksum"].is_string() && is_sealed(&sealed), "{sealed}");
        }
        assert_eq!(seal("[1]"), "[1]");
        assert_eq!(open("{\"a\":1}").unwrap(), "{\"a\":1}", "of an earlier version");
    }

    #[test]
    fn every_changed_bit_of_a_long_text_gives_another_sum() {
        for length in [0, 1, 7, 8, 9, 31] {
            let text = "x".repeat(length);
            for bit in (0..length * 8).filter(|bit| bit % 8 != 7) {
                let mut bytes = text.clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let changed = String::from_utf8(bytes).unwrap();
                assert_ne!(
                    checksum_of_long(&changed),
                    checksum_of_long(&text),
                    "{length} bit {bit}"
                );
            }
            assert_ne!(checksum_of_long(&format!("{text}\0")), checksum_of_long(&text));
        }
    }

    /// Whatever bit of the file changes: it is refused, or has the same content.
    #[test]
    fn every_changed_bit_is_noticed() {
        let text = "{\"version\":1,\"devices\":[{\"device\":\"GPU-8188460b\",\"from\":10}]}\n";
        let content: Value = serde_json::from_str(text).unwrap();
        let sealed = seal(text);
        for bit in 0..sealed.len() * 8 {
            let mut bytes = sealed.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let opened = std::str::from_utf8(&bytes).ok().and_then(open);
            let Some(mut read) = opened.and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
                continue;
            };
            // The name of the field itself, which has no meaning then.
            if let Some(fields) = read.as_object_mut() {
                fields.retain(|name, _| content.get(name).is_some());
            }
            assert_eq!(read, content, "bit {bit}");
        }
    }
}
