//! Any words as the arguments of a hook, the verb first, without a state: the arguments are understood, or refused with a
//! line, and then there is nothing to do.
#![no_main]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let words: Vec<OsString> = bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect();
    // A state in a file is a file of the machine that fuzzes.
    if words.iter().any(|word| word.as_encoded_bytes().starts_with(b"--container-spec")) {
        return;
    }
    let mut lines = Vec::new();
    let code = tranche_hook::run(words, &mut std::io::empty(), &mut lines);
    assert!(code <= 2, "{code}");
    let lines = String::from_utf8(lines).expect("lines are text");
    assert!(lines.lines().all(|line| line.starts_with("tranche-oci: hook") && !line.contains(char::is_control)), "{lines:?}");
    assert!(code == 0 || !lines.is_empty());
});
