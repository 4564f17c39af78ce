//! Names of claims that are made for the start of one container.

use crate::error::{Error, Result};
use rustix::rand::{GetRandomFlags, getrandom};

/// What such a name begins with. 16 hexadecimal digits follow.
const PREFIX: &str = "start-";
const DIGITS: usize = 16;

/// A name for a claim that is made for the start of one container. The container's hook enters the claim by this name.
/// People know the claim by its container.
///
/// The digits are random, so that no two starts have one name, and no container can be given the name of the next.
///
/// # Errors
/// Returns an error if the kernel gives no random numbers.
pub fn start_name() -> Result<String> {
    let mut bytes = [0; DIGITS / 2];
    let read = getrandom(&mut bytes, GetRandomFlags::empty());
    // The kernel gives up to 256 bytes at once (getrandom(2)).
    read.map_err(|e| Error::failed("claim", "the kernel gave no random number for its name").from_source(e))?;
    Ok(format!("{PREFIX}{:016x}", u64::from_ne_bytes(bytes)))
}

/// Whether `name` is one that [`start_name`] makes.
pub fn is_start_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_starts_are_recognised_and_differ() {
        let (one, two) = (start_name().unwrap(), start_name().unwrap());
        assert!(is_start_name(&one) && is_start_name(&two) && one != two, "{one} {two}");
        for other in [
            "start-",
            "start-me",
            "start-0123456789ABCDEF",
            "start-0123456789abcdef0",
            "0123456789abcdef",
        ] {
            assert!(!is_start_name(other), "{other}");
        }
    }
}
