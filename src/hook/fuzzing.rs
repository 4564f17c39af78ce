//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// The name and the note of a compatibility library, and the driver's parameters.
pub fn driver_texts(name: &str, note: &[u8], parameters: &str) {
    use crate::cuda_compat::{Host, is_used};
    use crate::driver_params::without_modification;
    let host = Host {
        driver: "580.95.05".parse().ok(),
        cuda: "13.0".parse().ok(),
    };
    let _ = is_used(name, Some(note), &host);
    let _ = is_used(name, None, &Host { cuda: None, ..host });
    if let Some(text) = without_modification(parameters) {
        assert_eq!(without_modification(&text), None, "once is enough");
    }
}
