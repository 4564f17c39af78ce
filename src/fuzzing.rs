//! Doors to parsers that are nobody's business but for those who throw bytes at them (see `fuzz/`). Only there when
//! the compiler is told that it builds for that.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

use crate::types::{GpuInstanceId, Minor};

/// The texts below `/proc` that the kernel and the driver write.
pub fn kernel_texts(text: &str) {
    use crate::host::proc::{Majors, MigCapability, find_minors};
    use crate::host::proc::{capability_minor, information, module_version, numbered, printable};
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
    crate::host::nvml::read_pieces(pieces);
}

/// The book of a GPU in the ledger.
pub fn ledger_book(text: &str) {
    if let Some(book) = crate::ledger::parse_book(text) {
        let _ = book.is_sound();
    }
}

/// The name and the note of a compatibility library, and the driver's parameters.
pub fn driver_texts(name: &str, note: &[u8], parameters: &str) {
    use crate::hook::fuzzing::{Host, is_used, without_modification};
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

/// A container's configuration: what is not parsed, because its bytes show that it asks for nothing, asks for nothing.
pub fn container_request(config: &[u8]) {
    use crate::engines::Engine;
    use crate::inject::CallingEngine;
    use crate::inject::request::{of, parsed};
    use crate::policy::{AcceptEnvironment, RuntimeSettings};
    let usual = RuntimeSettings::default();
    let strict = RuntimeSettings {
        accept_environment: AcceptEnvironment::Privileged,
        accept_volume_mounts: true,
        swarm_resource: vec!["SWARM".to_owned()],
        ..usual.clone()
    };
    for settings in [usual, strict] {
        let asked = of(config, &settings, CallingEngine::Known(Engine::Docker));
        let line = asked.as_ref().err().map(|wrong| crate::error::line(wrong));
        assert!(line.is_none_or(|line| line.lines().count() == 1));
        if let (Ok(asked), Ok(parsed)) = (asked, parsed(config, &settings, CallingEngine::Known(Engine::Docker))) {
            assert_eq!(asked, parsed);
        }
    }
}

/// A line that a client sends to the broker: it is a request, or it is refused in one line.
pub fn broker_request(line: &[u8]) {
    if let Err(error) = crate::broker::Request::parse(line) {
        assert_eq!(crate::error::line(&error).lines().count(), 1);
    }
}
