//! The bytes of a configuration: what is not a request is not in the way of one, and no spelling hides one.

use super::*;
use crate::request::collect::parsed;
use proptest::prelude::*;

fn of_bytes(config: &str) -> Result<Asked> {
    of(config.as_bytes(), &RuntimeSettings::default(), CallingEngine::Ctr)
}

#[test]
fn a_configuration_that_cannot_ask_is_not_parsed() {
    for config in [
        "",
        "not JSON",
        "{",
        r#"{"process": 1, "annotations": []}"#,
        r#"{"process": {"env": ["A"]}, "process": {}}"#,
        // What Go's encoder escapes, and a path of Windows.
        r#"{"process": {"args": ["a \u0026\u0026 b \u003c c", "C:\\users\n\t\"x\" \ud83d\ude00"]}}"#,
    ] {
        assert_eq!(of_bytes(config).unwrap(), Asked::default(), "{config}");
    }
}

#[test]
fn a_name_behind_an_escape_is_found() {
    for config in [
        r#"{"process":{"env":["\u004eVIDIA_VISIBLE_DEVICES=0"]}}"#,
        r#"{"process":{"env":["NVIDIA\u005fVISIBLE\u005FDEVICES=0"]}}"#,
        r#"{"process":{"env":["\u004E\u0056IDIA_VISIBLE_DEVICES=\u0030"]}}"#,
        r#"{"\u0070rocess":{"\u0065nv":["\\\"","NVIDIA_VISIBLE_DEVICES=0"]}}"#,
        r#"{"annotations":{"cdi.k8s.io\/a":"0"}}"#,
        r#"{"annotations":{"tranche.dev\/shares":"1"}}"#,
    ] {
        assert!(of_bytes(config).unwrap().request.is_some(), "{config}");
    }
    // A name that JSON writes by two escapes for one character, and names with a character that has a short escape.
    for (prefix, config) in [
        ("\u{1f600}/", r#"{"annotations":{"\ud83d\ude00/a":"0"}}"#),
        ("a\n", r#"{"annotations":{"a\nb":"0"}}"#),
        ("\"", r#"{"annotations":{"\"":"0"}}"#),
    ] {
        let settings = RuntimeSettings {
            annotation_prefixes: vec![prefix.to_owned()],
            ..RuntimeSettings::default()
        };
        assert!(
            of(config.as_bytes(), &settings, CallingEngine::Ctr)
                .unwrap()
                .request
                .is_some(),
            "{config}"
        );
    }
}

#[test]
fn what_is_missing_null_or_of_another_type_elsewhere_is_no_obstacle() {
    const ENV: &str = r#""env":["NVIDIA_VISIBLE_DEVICES=0"]"#;
    for config in [
        format!(r#"{{"process":{{{ENV}}}}}"#),
        format!(r#"{{"process":{{{ENV},"capabilities":null,"user":[1]}},"annotations":null,"mounts":null}}"#),
        format!(r#"{{"process":{{{ENV},"capabilities":["CAP_CHOWN"]}},"mounts":{{}},"hooks":7,"linux":"x"}}"#),
        format!(r#"{{"process":{{{ENV}}},"annotations":{{"a":1,"b":null,"tranche.dev/memory":null}},"z":1e999}}"#),
        format!(
            r#"{{"process":{{{ENV}}},"deep":{}{}}}"#,
            "[".repeat(2000),
            "]".repeat(2000)
        ),
    ] {
        assert_eq!(shown(&of_bytes(&config).unwrap()), "environment 0", "{config}");
    }
    for config in [
        r#"{"annotations":{"tranche.dev/shares":"1"}}"#,
        r#"{"process":null,"annotations":{"tranche.dev/shares":"1"}}"#,
        r#"{"process":{"env":null},"annotations":{"tranche.dev/shares":"1","tranche.dev/shares":"1"}}"#,
    ] {
        assert_eq!(shown(&of_bytes(config).unwrap()), "annotation shares:1", "{config}");
    }
}

#[test]
fn a_request_in_a_configuration_that_does_not_parse_is_refused() {
    for (config, expected) in [
        (
            r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]"#,
            "config.json: does not parse: EOF",
        ),
        (
            r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},}"#,
            "config.json: does not parse: trailing comma",
        ),
        (r#"["NVIDIA_VISIBLE_DEVICES"]"#, "config.json: does not parse: invalid"),
        (
            r#"{"process":{"env":{"NVIDIA_VISIBLE_DEVICES":"0"}}}"#,
            "config.json: does not parse: invalid type: map",
        ),
        (
            r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0",1]}}"#,
            "config.json: does not parse: invalid type: integer",
        ),
        (
            r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"process":{}}"#,
            "config.json: does not parse: duplicate field `process`",
        ),
        (
            r#"{"annotations":{"tranche.dev/shares":1}}"#,
            "annotation tranche.dev/shares: is not a text",
        ),
        (
            r#"{"annotations":{"cdi.k8s.io/a":["0"]}}"#,
            "annotation cdi.k8s.io/a: is not a text",
        ),
    ] {
        let line = tranche_core::error::line(&of_bytes(config).unwrap_err());
        assert!(line.starts_with(expected), "{line}");
    }
    let mut settings = RuntimeSettings::default();
    let config = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"],"capabilities":{"bounding":1}},"mounts":1}"#;
    assert!(of(config.as_bytes(), &settings, CallingEngine::Ctr).is_ok());
    settings.accept_volume_mounts = true;
    let line = tranche_core::error::line(&of(config.as_bytes(), &settings, CallingEngine::Ctr).unwrap_err());
    assert!(
        line.starts_with("config.json: mounts does not parse: invalid type"),
        "{line}"
    );
    settings.accept_volume_mounts = false;
    settings.accept_environment = tranche_plan::policy::AcceptEnvironment::Privileged;
    let line = tranche_core::error::line(&of(config.as_bytes(), &settings, CallingEngine::Ctr).unwrap_err());
    assert!(
        line.starts_with("config.json: process.capabilities does not parse: invalid type"),
        "{line}"
    );
}

/// Words of [`container`] that ask, that nearly ask, and that have nothing to do with it.
const WORDS: &[&str] = &[
    "NVIDIA_VISIBLE_DEVICES=0",
    "NVIDIA_VISIBLE_DEVICES=all,none",
    "NVIDIA_VISIBLE_DEVICES=void",
    "NVIDIA_VISIBLE_DEVICES=0.any,1::2,x.com/a=b",
    "NVIDIA_VISIBLE_DEVICES=?",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES=all",
    "NVIDIA_REQUIRE_CUDA=cuda>=12.4~brand=tesla,driver>=535",
    "NVIDIA_IMEX_CHANNELS=1,2",
    "NVIDIA_MIG_CONFIG_DEVICES=all",
    "NVIDIA_GDS=enabled",
    "CUDA_VERSION=12.4.1",
    "TRANCHE_MEMORY=8Gi",
    "TRANCHE_WAIT=30s",
    "PATH=/usr/bin:/bin",
    "SWARM=1",
    "swarm:SWARM",
    "@cdi.k8s.io/a=nvidia.com/gpu=0",
    "@tranche.dev/memory=4Gi",
    "@tranche.dev/shares=2",
    "@io.example/\"quoted\"=\\back~\u{1f600}\u{7}",
    "/var/run/nvidia-container-devices/3",
    "/var/run//nvidia-container-devices/./imex/3",
    "mounts",
    "privileged",
    "accept:privileged",
    "accept:never",
    "mode:legacy",
    "mode:cdi",
];

/// JSON with the keys of each object in another order, and with characters of texts and keys written by escapes, as
/// `choices` say.
fn respelled(value: &Value, choices: &mut impl Iterator<Item = u8>, json: &mut String) {
    let mut choose = || choices.next().unwrap_or(0);
    match value {
        Value::String(text) => respell(text, &mut choose, json),
        Value::Array(values) => {
            json.push('[');
            for (at, value) in values.iter().enumerate() {
                json.push_str(if at > 0 { ", " } else { "" });
                respelled(value, choices, json);
            }
            json.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            let by = usize::from(choose()) % entries.len().max(1);
            entries.rotate_left(by);
            if by % 2 == 1 {
                entries.reverse();
            }
            json.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                json.push_str(if at > 0 { ",\n" } else { "" });
                respell(key, &mut || choices.next().unwrap_or(0), json);
                json.push(':');
                respelled(value, choices, json);
            }
            json.push('}');
        }
        other => json.push_str(&other.to_string()),
    }
}

fn respell(text: &str, choose: &mut impl FnMut() -> u8, json: &mut String) {
    json.push('"');
    for c in text.chars() {
        match choose() % 16 {
            0..=9 if !matches!(c, '"' | '\\') && !c.is_control() => json.push(c),
            10 | 11 if c == '/' => json.push_str("\\/"),
            odd => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    json.push_str(&if odd % 2 == 0 {
                        format!("\\u{unit:04x}")
                    } else {
                        format!("\\u{unit:04X}")
                    });
                }
            }
        }
    }
    json.push('"');
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The configuration of any container asks for the same in another spelling, and the search in its bytes finds it.
    #[test]
    fn every_spelling_of_a_request_is_found(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..8),
        choices in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let container = container(&words.join(" "));
        let plain = container.asked();
        let mut config = String::new();
        respelled(&container.config(), &mut choices.iter().copied().cycle().take(100_000), &mut config);
        prop_assert_eq!(&serde_json::from_str::<Value>(&config).unwrap(), &container.config());
        let settings = &container.settings;
        for asked in [
            of(config.as_bytes(), settings, CallingEngine::Ctr),
            parsed(config.as_bytes(), settings, CallingEngine::Ctr),
        ] {
            match (&plain, asked) {
                (Ok(plain), Ok(asked)) => prop_assert_eq!(plain, &asked),
                (Err(plain), Err(wrong)) => prop_assert_eq!(plain.to_string(), wrong.to_string()),
                (plain, asked) => prop_assert!(false, "{plain:?} {asked:?}"),
            }
        }
    }

    /// Any values, and any damage to a configuration.
    #[test]
    fn nothing_makes_it_panic(
        name in proptest::sample::select(&[
            "NVIDIA_VISIBLE_DEVICES=", "NVIDIA_DRIVER_CAPABILITIES=", "NVIDIA_IMEX_CHANNELS=", "NVIDIA_REQUIRE_CUDA=",
            "NVIDIA_MIG_CONFIG_DEVICES=", "CUDA_VERSION=", "TRANCHE_MEMORY=", "TRANCHE_COMPUTE=", "TRANCHE_SHARES=",
            "TRANCHE_WAIT=",
        ][..]),
        value in "[-0-9a-zA-Z.:,=/% _]{0,24}|.{0,12}",
        at in any::<prop::sample::Index>(),
        damage in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let mut made = container("privileged mounts /var/run/nvidia-container-devices/3 @cdi.k8s.io/a=x.com/nic=a");
        made.annotations.push(("tranche.dev/memory".to_owned(), value.clone()));
        made.env.push(format!("{name}{value}"));
        made.mounts.push((value, "/dev/null".to_owned()));
        if let Err(wrong) = made.asked() {
            prop_assert_eq!(tranche_core::error::line(&wrong).lines().count(), 1);
        }
        made.annotations.clear();
        made.mounts.clear();
        if let Err(wrong) = made.asked() {
            prop_assert_eq!(tranche_core::error::line(&wrong).lines().count(), 1);
        }
        let mut config = made.config().to_string().into_bytes();
        let at = at.index(config.len());
        config.splice(at..at, damage);
        if let Err(wrong) = of(&config, &made.settings, CallingEngine::Ctr) {
            prop_assert_eq!(tranche_core::error::line(&wrong).lines().count(), 1);
        }
    }
}
