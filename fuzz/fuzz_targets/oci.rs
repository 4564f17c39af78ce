//! Any bytes as a container's state and as its config.json.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tranche_core::oci::{Config, State};

fuzz_target!(|bytes: &[u8]| {
    match State::parse(bytes) {
        Ok(state) => assert!(state.bundle.is_absolute() && state.pid != Some(0)),
        Err(error) => assert_eq!(tranche_core::error::line(&error).lines().count(), 1),
    }
    match Config::parse(bytes) {
        Ok(config) => {
            assert!(!config.root.as_os_str().is_empty());
            let _ = config.is_bound_from_host(Path::new("/dev/dri"));
            let _ = config.has_node(Path::new("/dev/dri/card0"));
        }
        Err(error) => assert_eq!(tranche_core::error::line(&error).lines().count(), 1),
    }
});
