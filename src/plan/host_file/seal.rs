//! The checksums of `host.json`: one of the first line, which is read alone, and one of all that follows.
//!
//! Without them a bit that changes on the way from memory to memory could name another device node, or turn a share
//! into more than was promised.

use std::borrow::Cow;
use tranche_core::sealed::{self, SealedError, checksum_of_long};

/// What the second line begins with.
const REST: &str = "\"rest\":\"";

/// The file of these fields: `first` are the fields of the first line, and `rest` all others, without braces.
pub(super) fn seal(first: &str, rest: &str) -> String {
    let first = sealed::seal(&format!("{{{first}}}")).into_owned();
    let first = first.strip_suffix('}').unwrap_or(&first);
    format!("{first},\n{REST}{}\",{rest}}}\n", checksum_of_long(rest))
}

/// The JSON object in the file, without the checksums. A file that has none is taken as it is: the program before this
/// one wrote it, and the next refresh writes it anew.
///
/// # Errors
/// Returns an error if a checksum is that of another content, or if the file is not UTF-8.
pub(super) fn open(bytes: &[u8]) -> Result<Cow<'_, str>, SealedError> {
    let text = std::str::from_utf8(bytes)?;
    if !sealed::is_sealed(text) {
        return Ok(Cow::Borrowed(text));
    }
    let (first, rest) = text.split_once(",\n").ok_or(SealedError::Checksum)?;
    let first = format!("{first}}}");
    let first = sealed::open(&first).ok_or(SealedError::Checksum)?;
    let rest = rest.strip_prefix(REST).and_then(|rest| rest.split_once("\","));
    let (sum, rest) = rest.ok_or(SealedError::Checksum)?;
    let fields = rest.trim_end().strip_suffix('}').ok_or(SealedError::Checksum)?;
    match checksum_of_long(fields) == sum {
        true => Ok(Cow::Owned(format!(
            "{},{fields}}}",
            first.strip_suffix('}').unwrap_or(&first)
        ))),
        false => Err(SealedError::Checksum),
    }
}
