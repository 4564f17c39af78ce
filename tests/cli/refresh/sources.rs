//! What of a host makes `host.json` out of date.

use super::*;
use crate::support::fake_host;

#[test]
fn a_change_of_the_host_makes_the_file_out_of_date() {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("root")).unwrap();
    let root = format!("--root={}", host.root.display());
    let refresh = || {
        let said = bed.refresh("", &[&root]);
        assert_eq!(said.code, Some(0), "{said:?}");
        bed.host_file()
    };
    let changed = || match HostFile::read(&bed.state()) {
        Err(HostFileError::Stale { changed, .. }) => changed.kind,
        other => panic!("{other:?}"),
    };
    let file = refresh();
    assert_eq!(file.inventory.gpus.len(), 2);
    let kinds: Vec<SourceKind> = file.sources.iter().map(|source| source.kind).collect();
    for kind in [
        SourceKind::Boot,
        SourceKind::Policy,
        SourceKind::DriverModule,
        SourceKind::MigNodes,
        SourceKind::DriverLibrary,
    ] {
        assert_eq!(kinds.iter().filter(|one| **one == kind).count(), 1, "{kinds:?}");
    }
    let version = host.path("/sys/module/nvidia/version");
    fs::create_dir_all(version.parent().unwrap()).unwrap();
    fs::write(&version, "999.1\n").unwrap();
    assert_eq!(changed(), SourceKind::DriverModule);
    refresh();
    fs::remove_file(&version).unwrap();
    assert_eq!(changed(), SourceKind::DriverModule);
    refresh();
    fs::create_dir_all(host.path("/dev/nvidia-caps")).unwrap();
    assert_eq!(changed(), SourceKind::MigNodes);
    refresh();
    fs::write(host.path("/dev/nvidia-caps/nvidia-cap7"), "").unwrap();
    assert_eq!(changed(), SourceKind::MigNodes);
    let file = refresh();
    let library = file
        .sources
        .iter()
        .find(|source| source.kind == SourceKind::DriverLibrary)
        .unwrap();
    let bytes = fs::read(&library.path).unwrap();
    fs::remove_file(&library.path).unwrap();
    fs::write(&library.path, bytes).unwrap();
    assert_eq!(changed(), SourceKind::DriverLibrary);
    refresh();
}

#[test]
fn the_driver_root_of_the_settings_counts_on_this_machine_alone() {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("root")).unwrap();
    let policy = fs::read_to_string(bed.at("config.yaml")).unwrap();
    fs::write(bed.at("config.yaml"), format!("{policy}  driverRoot: /run/nowhere\n")).unwrap();
    let said = bed.refresh("", &[&format!("--root={}", host.root.display())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(bed.host_file().runtime.driver_root.unwrap().as_str(), "/run/nowhere");
    let said = bed.refresh("", &[]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
    assert!(said.err.contains("/run/nowhere: driver root not found"), "{said:?}");
}
