//! The options of `tranche cdi generate`, and what is said about wrong ones.

use crate::cdi_cli::{cdi, command, generate};
use crate::said;
use serde_json::Value;

#[test]
fn devices_are_chosen_and_named_as_asked() {
    let names = |more: &[&str]| {
        let said = generate(&[&["--format=json"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let spec: Value = serde_json::from_str(&said.out).unwrap();
        let names = spec["devices"].as_array().unwrap();
        let names: Vec<String> = names.iter().map(|d| d["name"].as_str().unwrap().to_owned()).collect();
        names.join(" ")
    };
    let index = "--device-name-strategy=index";
    assert_eq!(names(&["--device-id=0", "--devices=1", index]), "0 1 all");
    assert_eq!(names(&["--device=0", index, "--no-all-device"]), "0");
    assert_eq!(names(&["--device-id=none"]), "none");
    assert!(names(&[index]).ends_with(" all none"));
    assert_eq!(
        names(&["--device-id=0,1", "--device-name-strategy=index,type-index"]),
        "0 1 gpu0 gpu1 all"
    );
    let kind = generate(&["--vendor=x.org", "--cdi-class=card"]).out;
    assert!(kind.contains("kind: x.org/card\n"), "{kind}");
    // It would end dockerd at its start.
    for option in ["--vendor=x", "--cdi-class=y"] {
        let said = generate(&[option]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
        assert!(said.err.contains("engines crash"), "{}", said.err);
    }
}

#[test]
fn variables_of_nvidia_s_tool_hold_lists_and_may_be_empty() {
    let names = |variables: &[(&str, &str)]| {
        let mut command = command(&["generate", "--inventory=sim:t4x2"]);
        command.envs(variables.iter().copied());
        let said = said(command);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let names = said.out.lines().filter_map(|line| line.strip_prefix("- name: "));
        names.collect::<Vec<_>>().join(" ")
    };
    let strategy = ("NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES", "index,type-index");
    assert_eq!(
        names(&[("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS", "1"), strategy]),
        r#""1" "gpu1" "all""#
    );
    let empty = [
        "MODE",
        "OUTPUT_FORMAT",
        "VENDOR",
        "CLASS",
        "DEVICE_IDS",
        "DEVICE_NAME_STRATEGIES",
        "FEATURE_FLAGS",
        "DISABLED_HOOKS",
        "ENABLED_HOOKS",
        "NO_ALL_DEVICE",
        "LDCONFIG_PATH",
    ];
    let empty: Vec<String> = empty
        .iter()
        .map(|name| format!("NVIDIA_CTK_CDI_GENERATE_{name}"))
        .collect();
    let empty: Vec<(&str, &str)> = empty.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(names(&empty), names(&[]));
}

#[test]
fn options_have_their_other_names_in_nvidia_s_tool() {
    for (ours, theirs) in [
        ("--vendor=x.org", "--cdi-vendor=x.org"),
        ("--class=card", "--cdi-class=card"),
        ("--mode=management", "--discovery-mode=management"),
        ("--device-id=0", "--device-ids=0"),
        ("--device-id=0", "--device=0"),
        ("--device-id=0", "--devices=0"),
        (
            "--feature-flag=disable-ipc-discoverer",
            "--feature-flags=disable-ipc-discoverer",
        ),
        ("--hook-path=/x/nvidia-ctk", "--nvidia-ctk-path=/x/nvidia-ctk"),
        ("--hook-path=/x/nvidia-ctk", "--nvidia-cdi-hook-path=/x/nvidia-ctk"),
        ("--disable-hook=update-ldcache", "--disable-hooks=update-ldcache"),
        ("--enable-hook=chmod", "--enable-hooks=chmod"),
    ] {
        let (expected, said) = (generate(&[ours]), generate(&[theirs]));
        assert!(
            said.code == Some(0) && said.out == expected.out,
            "{theirs}: {}",
            said.err
        );
        assert!(expected.out != generate(&[]).out, "{ours}");
    }
    for ignored in [
        "--csv.file=/x",
        "--csv.ignore-pattern=x",
        "--csv.compat-container-root=/x",
    ] {
        assert!(generate(&[ignored]).out == generate(&[]).out, "{ignored}");
    }
}

#[test]
fn wrong_requests_are_one_line_and_code_two() {
    for (arguments, part) in [
        (&["--device-id=99"][..], "device 99: not found; this host has 0"),
        (&["--device-id=../x"], "\"../x\": not a valid device; expected 0, 0:1, "),
        (&["--mode=vfio"], "expected one of auto, nvml"),
        (&["--mode=csv"], "Tegra is not supported yet"),
        (
            &["--mode=gds", "--device-id=0"],
            "device 0: not found; this mode has only the device all",
        ),
        (&["--no-hooks", "--hook-path=/x"], "cannot be used with"),
        (&["--format=toml"], "use yaml or json"),
        (&["--cdi-version=0.2"], "too old"),
        (&["--class=a b"], "not a valid CDI class"),
        (&["--root=/"], "cannot be used with"),
    ] {
        let said = generate(arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            said.err
        );
        assert!(said.err.contains(part), "{arguments:?}: {}", said.err);
    }
    let said = cdi(&["generate", "--inventory=sim:t4x2", "--mode=gds"]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.err);
}
