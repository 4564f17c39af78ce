//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// A container's configuration: what is not parsed, because its bytes show that it asks for nothing, asks for nothing.
pub fn container_request(config: &[u8]) {
    use crate::CallingEngine;
    use crate::request::{of, parsed};
    use tranche_plan::engines::Engine;
    use tranche_plan::policy::{AcceptEnvironment, RuntimeSettings};
    let usual = RuntimeSettings::default();
    let strict = RuntimeSettings {
        accept_environment: AcceptEnvironment::Privileged,
        accept_volume_mounts: true,
        swarm_resource: vec!["SWARM".to_owned()],
        ..usual.clone()
    };
    for settings in [usual, strict] {
        let asked = of(config, &settings, CallingEngine::Known(Engine::Docker));
        let line = asked.as_ref().err().map(|wrong| tranche_core::error::line(wrong));
        assert!(line.is_none_or(|line| line.lines().count() == 1));
        if let (Ok(asked), Ok(parsed)) = (asked, parsed(config, &settings, CallingEngine::Known(Engine::Docker))) {
            assert_eq!(asked, parsed);
        }
    }
}
