//! Files that hold expected output, and the one switch that writes them anew: `TRANCHE_BLESS=1`.
//!
//! `make bless` runs every test that has such a file with this switch. Read the difference before you commit it.

use std::fs;
use std::path::Path;

/// Whether the expected output is to be written instead of compared.
pub fn is_on() -> bool {
    std::env::var_os("TRANCHE_BLESS").is_some_and(|value| value == "1")
}

/// Whether `text` is what `file` holds. With `TRANCHE_BLESS=1` the file is written first.
pub fn is_expected(file: &Path, text: &str) -> bool {
    if is_on() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    fs::read_to_string(file).is_ok_and(|expected| expected == text)
}
