//! SHA-256 digests of what a specification was made from, by which a later run sees whether that has changed.

use std::fmt;
use std::str::FromStr;
use tranche_core::error::{Error, Result};

/// A SHA-256 digest, as text `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

const PREFIX: &str = "sha256:";

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::usage(format!("\"{text}\""), "is not a digest like sha256:0123…");
        let digits = text.strip_prefix(PREFIX).ok_or_else(invalid)?;
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(Digest(bytes))
    }
}

tranche_core::types::serde_as_text!(Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_from_its_text() {
        let text = "sha256:135f17a475a61afdeeaf3759ad2e45ad1c7abb192395abe47e41fc8e395dc1a9";
        let digest: Digest = text.parse().unwrap();
        assert_eq!((digest.0[0], digest.to_string().as_str()), (0x13, text));
        for bad in [
            "",
            "sha256:",
            &text[1..],
            &text[..70],
            &text.replacen("13", "+f", 1),
            &text.replacen("13", "é", 1),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
