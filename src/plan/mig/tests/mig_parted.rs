//! Files of mig-parted.

use super::products::{product, with};
use crate::mig::{ExactGpu, GpuSelector, GpuWish, Layout, MigGpu, mig_parted, plan};

/// A file with one configuration of these entries.
fn file(entries: &str) -> String {
    let entries: String = entries.lines().map(|line| format!("    {line}\n")).collect();
    format!("version: v1\nmig-configs:\n  mine:\n{entries}")
}

fn read(text: &str) -> Result<Vec<Layout>, String> {
    match mig_parted::read("f.yaml", text, None) {
        Ok(configuration) => Ok(configuration.layouts()),
        Err(error) => Err(error.to_string()),
    }
}

fn shown(text: &str, gpus: &[MigGpu]) -> Vec<String> {
    let exact = plan(&read(text).unwrap(), gpus, &[]).unwrap();
    exact
        .iter()
        .map(|gpu: &ExactGpu| gpu.layout().wish.to_string())
        .collect()
}

#[test]
fn usual_configurations_lead_to_their_instances() {
    let gpu = |name: &str, index: &str| MigGpu {
        uuid: format!("GPU-00000000-0000-4000-8000-00000000000{index}")
            .parse()
            .unwrap(),
        index: index.parse().unwrap(),
        ..product(name)
    };
    let gpus = [gpu("a100-40", "0"), gpu("a100-40", "1"), gpu("h100-80", "2")];
    let all = file("- devices: all\n  mig-enabled: true\n  mig-devices: {}\n");
    assert_eq!(shown(&all, &gpus), ["empty", "empty", "empty"]);
    let off = file("- devices: all\n  mig-enabled: false\n");
    assert_eq!(shown(&off, &gpus), ["off", "off", "off"]);
    let by_model = file(
        "- device-filter: [\"0x20B010DE\", \"0x20F110DE\"]\n  devices: all\n  mig-enabled: true\n  mig-devices: {1g.5gb: 2, \
         2g.10gb: 1, 3g.20gb: 1}\n- device-filter: \"0x233010DE\"\n  devices: all\n  mig-enabled: true\n  mig-devices:\n    \
         \"1g.10gb\": 7\n",
    );
    let small = "2x1g.5gb";
    let planned = shown(&by_model, &gpus);
    assert_eq!(planned[0].matches("1g.5gb@").count(), 2, "{small}: {planned:?}");
    assert_eq!(
        planned[0].matches("2g.10gb@").count() + planned[0].matches("3g.20gb@").count(),
        2
    );
    assert_eq!(planned[2].matches("1g.10gb@").count(), 7);
    // Entries apply in their order, and GPUs that no entry names are left alone.
    let order = file(
        "- devices: [0, 2]\n  mig-enabled: false\n- devices: [2]\n  mig-enabled: true\n  mig-devices: {7g.80gb: 1}\n",
    );
    assert_eq!(shown(&order, &gpus), ["off", "7g.80gb@0"]);
}

#[test]
fn what_is_there_already_is_not_made_again() {
    let gpu = with(&product("a100-40"), &[("3g.20gb", 0), ("1g.5gb", 4)]);
    let text =
        file("- devices: all\n  mig-enabled: true\n  mig-devices: {\"3g.20gb\": 1, \"1g.5gb\": 1, \"2g.10gb\": 0}\n");
    let exact = plan(&read(&text).unwrap(), std::slice::from_ref(&gpu), &[]).unwrap();
    assert_eq!(exact[0].next(&gpu), Ok(None));
}

#[test]
fn what_mig_parted_refuses_is_refused_with_its_place() {
    for (text, expected) in [
        ("", "f.yaml"),
        (
            "mig-configs: {a: [{devices: all, mig-enabled: false}]}",
            "has no version",
        ),
        ("version: v2\nmig-configs: {}\n", "version v2 is unknown"),
        ("version: v1\n", "has no mig-configs"),
        ("version: v1\nmig-configs: {}\n", "f.yaml:2:14: has no configuration"),
        ("version: v1\nmig-configs: {a: []}\n", "a list of at least one entry"),
        (
            "version: v1\nextra: 1\nmig-configs: {}\n",
            "f.yaml:2:1: unknown key \"extra\"",
        ),
        (
            &file("- devices: all\n  mig-enabled: false\n  gpus: 1\n"),
            "f.yaml:6:7: unknown key \"gpus\"",
        ),
        (&file("- mig-enabled: false\n"), "has no devices"),
        (
            &file("- devices: 0\n  mig-enabled: false\n"),
            "devices is 0, and not all or a list",
        ),
        (&file("- devices: ALL\n  mig-enabled: false\n"), "devices is \"ALL\""),
        (&file("- devices: [a]\n  mig-enabled: false\n"), "not an index"),
        (&file("- devices: all\n"), "has no mig-enabled"),
        (&file("- devices: all\n  mig-enabled: 1\n"), "mig-enabled is 1"),
        (&file("- devices: all\n  mig-enabled: true\n"), "no mig-devices"),
        (
            &file("- devices: all\n  mig-enabled: true\n  mig-devices: null\n"),
            "mig-devices is nothing",
        ),
        (
            &file("- devices: all\n  mig-enabled: false\n  mig-devices: {1g.5gb: 1}\n"),
            "mig-enabled: false and",
        ),
        (
            &file("- devices: all\n  mig-enabled: true\n  mig-devices: {1g.5gb: -1}\n"),
            "-1 is not a number of instances",
        ),
        (
            &file("- devices: all\n  mig-enabled: true\n  mig-devices: {1g.5gb: 0}\n"),
            "every number of mig-devices is 0",
        ),
        (
            &file("- devices: all\n  mig-enabled: true\n  mig-devices: {5gb: 1}\n"),
            "\"5gb\" is not a MIG profile",
        ),
        (
            &file("- devices: all\n  mig-enabled: true\n  mig-devices: {1g.5gb+me-gfx: 1}\n"),
            "is not a MIG profile",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{text}\n{error}");
    }
}

#[test]
fn one_configuration_is_selected_and_all_are_checked() {
    let entry = "[{devices: all, mig-enabled: false}]";
    let two = format!("version: v1\nmig-configs:\n  a: {entry}\n  b: {entry}\n");
    assert!(
        read(&two)
            .unwrap_err()
            .contains("has several configurations; select one of a, b")
    );
    assert_eq!(mig_parted::read("f.yaml", &two, Some("b")).unwrap().entries.len(), 1);
    let error = mig_parted::read("f.yaml", &two, Some("c")).unwrap_err().to_string();
    assert!(
        error.contains("has no configuration c; expected one of a, b"),
        "{error}"
    );
    let broken = format!("version: v1\nmig-configs:\n  a: {entry}\n  b: []\n");
    assert!(mig_parted::read("f.yaml", &broken, Some("a")).is_err());
}

#[test]
fn what_mig_parted_accepts_is_accepted() {
    for entry in [
        "- devices: []\n  mig-enabled: false\n",
        "- devices: [-1, 0, 0]\n  mig-enabled: false\n  mig-devices: {}\n",
        "- devices: all\n  device-filter: nonsense\n  mig-enabled: true\n  mig-devices: {99g.1gb: 1, 4c.1g.5gb: 1}\n",
        "- devices: all\n  mig-enabled: true\n  mig-devices: {\"1g.10gb+me,gfx\": 1}\n",
    ] {
        let layouts = read(&file(entry)).unwrap();
        assert!(matches!(layouts[0].gpus, GpuSelector::MigParted(_)));
    }
    // A filter that names no model matches no GPU, and a profile that no GPU has does not matter then.
    let nowhere = file("- devices: all\n  device-filter: nonsense\n  mig-enabled: true\n  mig-devices: {99g.1gb: 1}\n");
    assert_eq!(plan(&read(&nowhere).unwrap(), &[product("a30")], &[]).unwrap(), []);
    assert_eq!(
        read(&file("- devices: []\n  mig-enabled: false\n")).unwrap()[0].wish,
        GpuWish::Off
    );
}
