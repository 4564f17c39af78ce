//! Places that are not as they should be: each refresh does what it can, and says what it skipped.

use super::*;
use nix::sys::stat::Mode;
use std::os::unix::fs::symlink;

#[test]
fn before_run_is_there_the_directories_are_made() {
    let bed = Bed::new();
    let run = |path: &str| format!("--{path}={}", bed.at("run").join(path).display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command
        .args(["cdi", "refresh", "--if-changed", "--inventory=sim:t4x2"])
        .env_clear();
    command.args([run("state-dir"), run("output-dir")]);
    command.arg(format!("--config={}", bed.at("config.yaml").display()));
    // Another file system is mounted there later, and has none of it.
    for _ in 0..2 {
        let said = said(&command.output().unwrap());
        assert!(
            said.code == Some(0) && said.err.contains("host.json: written"),
            "{said:?}"
        );
        fs::remove_dir_all(bed.at("run")).unwrap();
    }
}

#[test]
fn what_cannot_be_read_of_another_vendor_is_named_and_costs_nothing() {
    let bed = Bed::new();
    fs::create_dir(bed.at("cdi")).unwrap();
    symlink("/nowhere/at/all", bed.spec("gone.yaml")).unwrap();
    fs::write(bed.spec("binary.yaml"), b"\xff\xfe\x00").unwrap();
    nix::unistd::mkfifo(&bed.spec("pipe.json"), Mode::S_IRWXU).unwrap();
    fs::create_dir(bed.spec("directory.yaml")).unwrap();
    let line = bed.refreshed("sim:t4x2");
    for name in ["gone.yaml", "binary.yaml", "pipe.json"] {
        assert!(line.contains(&format!("/{name} is not looked at: ")), "{name}: {line}");
    }
    assert!(!line.contains("directory.yaml"), "engines do not look at it: {line}");
    assert_eq!(bed.host_file().inventory.gpus.len(), 2);
    // A directory that cannot be listed.
    fs::remove_dir_all(bed.at("cdi")).unwrap();
    fs::write(bed.at("etc"), "").unwrap();
    let line = bed.refreshed("sim:t4x2");
    assert!(line.contains("/etc is not looked at: "), "{line}");
}

#[test]
fn a_damaged_or_foreign_record_of_the_last_refresh_is_only_not_relied_on() {
    let bed = Bed::new();
    bed.refreshed("sim:t4x2");
    let record = bed.state().join("refresh.json");
    let good = fs::read_to_string(&record).unwrap();
    let other = good.replace(env!("CARGO_PKG_VERSION"), "0.0.7");
    for text in ["", "{", "[]", other.as_str()] {
        fs::write(&record, text).unwrap();
        let said = bed.refresh("sim:t4x2", &["--if-changed"]);
        assert!(
            said.code == Some(0) && said.err.contains("host.json: is current"),
            "{text}: {said:?}"
        );
        assert_eq!(fs::read_to_string(&record).unwrap(), good);
    }
    let said = bed.refresh("sim:t4x2", &["--if-changed", "--json"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&report["changed"], said.err.as_str()), (&json!(false), ""));
}
