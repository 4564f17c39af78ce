//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

use tranche_core::types::{GpuInstanceId, Minor};

/// The texts below `/proc` that the kernel and the driver write.
pub fn kernel_texts(text: &str) {
    use crate::proc::{Majors, MigCapability, find_minors};
    use crate::proc::{capability_minor, information, module_version, numbered, printable};
    let _ = module_version(text);
    let model = information(text).model;
    assert!(model.is_none_or(|model| !model.contains(char::is_control)));
    assert!(printable(text).is_none_or(|text| !text.is_empty() && text.len() <= 128));
    let _ = capability_minor(text);
    let _ = Majors::parse(text).of(&["nvidia-frontend", "nvidia"]);
    assert!(numbered(text, "gi").is_none_or(|number| text == format!("gi{number}")));
    let wanted = [
        MigCapability::Config,
        MigCapability::GpuInstance(Minor(0), GpuInstanceId(1)),
    ];
    assert!(find_minors(text, &wanted).len() <= wanted.len());
}

/// What the child that asks NVML says, as it comes through the pipe.
pub fn nvml_answer(pieces: &[Vec<u8>]) {
    crate::nvml::read_pieces(pieces);
}
