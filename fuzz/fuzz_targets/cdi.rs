//! Any bytes as a CDI specification, in YAML or JSON: what is read can be checked, and written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tranche_plan::cdi::encode::{Format, encode};
use tranche_plan::cdi::{minimum_version, parse, validate};

fuzz_target!(|bytes: &[u8]| {
    let _ = parse::outline(bytes);
    let Ok(spec) = parse::spec(bytes) else { return };
    let _ = minimum_version(&spec);
    if !validate::validate(&spec).is_empty() {
        return;
    }
    for format in [Format::Json, Format::Yaml] {
        let text = encode(&spec, format, &[]).expect("what is valid can be written");
        assert_eq!(parse::spec(text.as_bytes()).as_ref(), Ok(&spec), "{text}");
    }
});
