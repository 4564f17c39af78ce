//! Files of other programs in the directories that engines read.

use super::*;

/// A specification as NVIDIA's refresh service writes it.
pub(super) fn nvidia(names: &[&str]) -> String {
    let devices = names
        .iter()
        .map(|name| format!("    - name: \"{name}\"\n      containerEdits:\n        env: [A=b]\n"));
    format!(
        "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{}",
        devices.collect::<String>()
    )
}

/// The names of the devices in a specification.
fn devices(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("- name: "));
    names.map(|name| name.trim_matches('"').to_owned()).collect()
}

#[test]
fn plain_names_that_another_program_defines_are_left_to_it() {
    let shares = RENAMED.replace("    renameByDefault: true\n", "");
    for directory in ["etc", "cdi"] {
        let bed = Bed::new();
        bed.share(&shares);
        bed.refreshed("sim:t4x2");
        assert_eq!(
            devices(&bed.spec("tranche.yaml"))
                .iter()
                .filter(|name| *name == "0")
                .count(),
            1
        );
        fs::create_dir_all(bed.at(directory)).unwrap();
        let other = bed.at(directory).join("nvidia.yaml");
        fs::write(&other, nvidia(&["0", "1", "all"])).unwrap();
        let line = bed.refreshed("sim:t4x2");
        assert!(
            line.contains(&format!(
                "{} defines the plain devices, so tranche writes shares only",
                other.display()
            )),
            "{line}"
        );
        let names = devices(&bed.spec("tranche.yaml"));
        assert_eq!(names.len(), 20, "{names:?}");
        assert!(names.iter().all(|name| name.contains('.')), "{names:?}");
        bed.host_file();
        // Renamed shares have a file of their own, and nothing is left for the first.
        bed.share(RENAMED);
        bed.refreshed("sim:t4x2");
        assert!(!bed.spec("tranche.yaml").exists() && bed.spec("tranche-gpu.shared.yaml").exists());
        assert_eq!(fs::read_to_string(&other).unwrap(), nvidia(&["0", "1", "all"]));
        // Without the other file, all devices are written again.
        fs::remove_file(&other).unwrap();
        bed.refreshed("sim:t4x2");
        assert_eq!(
            devices(&bed.spec("tranche.yaml")).len(),
            5,
            "both GPUs are split, so there is no `all`"
        );
    }
}

#[test]
fn other_devices_of_the_same_kind_do_not_matter() {
    let bed = Bed::new();
    fs::create_dir(bed.at("cdi")).unwrap();
    fs::write(bed.spec("nvidia.yaml"), nvidia(&["7", "gpu7"])).unwrap();
    fs::write(bed.spec("broken.yaml"), "[").unwrap();
    bed.refreshed("sim:t4x2");
    assert_eq!(devices(&bed.spec("tranche.yaml")).len(), 6);
}

#[test]
fn what_generate_wrote_to_the_same_directory_is_not_made_ambiguous() {
    let bed = Bed::new();
    let generate = |directory: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command
            .args(["cdi", "generate", "--inventory=sim:t4x2", "--output"])
            .env_clear();
        assert!(
            command
                .arg(bed.at(directory).join("nvidia.yaml"))
                .status()
                .unwrap()
                .success()
        );
    };
    // The specification of a directory with less precedence is replaced.
    generate("etc");
    bed.refreshed("sim:t4x2");
    generate("cdi");
    let before = bed.files();
    let said = bed.refresh("sim:t4x2", &[]);
    assert_eq!((said.code, said.err.lines().count()), (Some(1), 1), "{said:?}");
    assert!(
        said.err
            .contains("/cdi/nvidia.yaml: tranche cdi generate wrote the same devices there"),
        "{said:?}"
    );
    assert_eq!(bed.files(), before);
}

/// They are the largest by far. One that cannot be parsed shows it: nothing is said of it, and it is replaced.
#[test]
fn the_specifications_of_the_last_refresh_are_not_parsed_by_the_next() {
    let bed = Bed::new();
    bed.share(RENAMED);
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    let own = bed.spec("tranche.yaml");
    let text = fs::read_to_string(&own).unwrap();
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with(['#', '-'])).collect();
    fs::create_dir_all(bed.at("etc")).unwrap();
    for file in [own, bed.at("etc/tranche.yaml")] {
        fs::write(file, format!("{}\n[\n", header.join("\n"))).unwrap();
    }
    let line = bed.refreshed("sim:t4x2");
    assert!(!line.contains("is not looked at"), "{line}");
    let specs = |files: BTreeMap<String, String>| -> Vec<String> {
        let specs = files.into_iter().filter(|(name, _)| name.ends_with(".yaml"));
        specs.map(|(_, text)| text).collect()
    };
    assert_eq!(specs(bed.files()), specs(before));
}
