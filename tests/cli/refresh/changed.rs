//! `--if-changed`, on a host of files: each cause for which a specification is out of date, and nothing else, leads to
//! a refresh.

use super::*;
use crate::support::fake_host::{self, Host};
use crate::support::programs;

/// A host on this machine, by the options that name its parts, so that engines are asked, too.
pub(super) struct Machine {
    pub(super) bed: Bed,
    pub(super) host: Host,
}

impl Machine {
    pub(super) fn new(name: &str) -> Self {
        let bed = Bed::new();
        let host = fake_host::build(name, &bed.at("root")).unwrap();
        fs::create_dir(bed.at("bin")).unwrap();
        Self { bed, host }
    }

    pub(super) fn options(&self) -> Vec<String> {
        let root = self.host.root.display();
        vec![
            format!("--driver-root={root}"),
            format!("--dev-root={root}"),
            format!("--proc-root={root}/proc"),
            format!("--sys-root={root}/sys"),
            format!("--engine-dir={}", self.bed.at("bin").display()),
            format!("--tmpfiles-dir={}", self.bed.at("tmpfiles").display()),
        ]
    }

    pub(super) fn run(&self, more: &[&str]) -> Said {
        let options = self.options();
        let options: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.bed.refresh("", &options)
    }

    /// Whether a refresh was needed, which then is made.
    pub(super) fn is_changed(&self) -> bool {
        let said = self.run(&["--if-changed"]);
        assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
        !said.err.contains("host.json: nothing has changed\n")
    }

    /// Refreshes until nothing changes any more: the driver's library may make nodes at its first use.
    pub(super) fn settle(&self) {
        let settled = (0..3).any(|_| !self.is_changed());
        assert!(settled, "{:?}", self.run(&["--if-changed", "-v"]));
    }

    /// Puts an engine into the directory of engines, in place of an older one.
    fn install(&self, program: &str, prints: &str) {
        let new = self.bed.at("bin/new");
        programs::script(&new, &format!("echo '{prints}'"));
        fs::rename(new, self.bed.at("bin").join(program)).unwrap();
    }

    fn cdi_version(&self) -> String {
        let text = fs::read_to_string(self.bed.spec("tranche.yaml")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("cdiVersion: "));
        line.unwrap().trim_matches('"').to_owned()
    }
}

#[test]
fn a_look_finds_each_cause_and_asks_the_driver_for_nothing_else() {
    let machine = Machine::new("t4x2-old-driver");
    assert!(machine.is_changed(), "there was no refresh yet");
    machine.settle();
    let before = machine.bed.files();
    // NVML would never answer, so it is not asked. This file is no part of the driver.
    let answers = machine.host.root.join("fake-nvml.json");
    let good = fs::read_to_string(&answers).unwrap();
    let mut silent: Value = serde_json::from_str(&good).unwrap();
    silent["faults"]["init"] = "hang".into();
    fs::write(&answers, silent.to_string()).unwrap();
    assert!(!machine.is_changed(), "{:?}", machine.run(&["--if-changed", "-v"]));
    assert_eq!(machine.bed.files(), before);
    fs::write(&answers, good).unwrap();

    let path = |inner: &str| machine.host.path(inner);
    let causes: [(&str, &dyn Fn()); 7] = [
        ("a MIG device that was made", &|| {
            fs::create_dir_all(path("/dev/nvidia-caps")).unwrap();
            fs::write(path("/dev/nvidia-caps/nvidia-cap7"), "").unwrap();
        }),
        ("a driver that was updated", &|| {
            let version = path("/sys/module/nvidia/version");
            fs::create_dir_all(version.parent().unwrap()).unwrap();
            fs::write(version, "470.256.02\n").unwrap();
        }),
        ("a module that was loaded", &|| {
            let devices = fs::read_to_string(path("/proc/devices")).unwrap();
            fs::write(path("/proc/devices"), devices.replace("Block", "510 new\n\nBlock")).unwrap();
        }),
        ("a specification that somebody changed", &|| {
            fs::write(machine.bed.spec("tranche.yaml"), "{").unwrap();
        }),
        ("a specification of another program", &|| {
            fs::write(machine.bed.spec("vendor.yaml"), "{").unwrap();
        }),
        ("a policy that was changed", &|| machine.bed.share(RENAMED)),
        ("an engine that was installed", &|| {
            machine.install("podman", "podman version 4.3.1");
        }),
    ];
    for (cause, make) in causes {
        make();
        assert!(machine.is_changed(), "{cause}");
        machine.settle();
    }
    // A GPU that was plugged in, of which this NVML knows nothing yet: the files stay, and the next look tries again.
    let gpu = path("/proc/driver/nvidia/gpus/0000:99:00.0");
    fs::create_dir_all(&gpu).unwrap();
    for _ in 0..2 {
        let said = machine.run(&["--if-changed"]);
        assert!(
            said.code == Some(1) && said.err.contains("gpu 0000:99:00.0 does not answer"),
            "{said:?}"
        );
    }
    fs::remove_dir_all(gpu).unwrap();
    machine.settle();
    // What comes and goes with claims changes nothing.
    fs::write(machine.bed.spec("nvidia.com-claim_a.yaml"), "{").unwrap();
    fs::write(path("/dev/other"), "").unwrap();
    assert!(!machine.is_changed(), "{:?}", machine.run(&["--if-changed", "-v"]));
    // Other options may have another result.
    let said = machine.run(&["--if-changed", "--cdi-version=0.6"]);
    assert!(
        said.code == Some(0) && !said.err.contains("nothing has changed"),
        "{said:?}"
    );
}

#[test]
fn a_library_that_is_gone_is_noticed_and_left_out_only_on_purpose() {
    let machine = Machine::new("t4x2-old-driver");
    machine.settle();
    let file = machine.bed.host_file();
    let driver = file.inventory.driver.unwrap();
    let library = driver.files.iter().map(|file| file.host.as_path());
    let mut libraries = library.filter(|path| path.to_string_lossy().contains("/libnvidia-ptxjitcompiler.so."));
    let library = libraries.next().unwrap().to_owned();
    let spec = || fs::read_to_string(machine.bed.spec("tranche.yaml")).unwrap();
    assert!(spec().contains(library.to_str().unwrap()), "{}", library.display());
    fs::rename(&library, library.with_extension("moved")).unwrap();
    // host.json looks at one library of the driver, for the runtime; this look is at all of them.
    let said = machine.run(&["--if-changed"]);
    let is_named = said.err.contains("and they are gone: libnvidia-ptxjitcompiler.so.1;");
    assert!(said.code == Some(1) && is_named, "{said:?}");
    assert!(spec().contains(library.to_str().unwrap()), "{}", library.display());
    let said = machine.run(&["--degraded"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!spec().contains(library.to_str().unwrap()), "{}", library.display());
    machine.settle();
}

#[test]
fn the_driver_s_end_and_its_return_are_seen() {
    let machine = Machine::new("t4x2-old-driver");
    machine.settle();
    let before = machine.bed.names();
    let away = machine.bed.at("away");
    fs::rename(&machine.host.root, &away).unwrap();
    for dir in ["proc", "sys", "dev"] {
        fs::create_dir_all(machine.host.root.join(dir)).unwrap();
    }
    fs::write(machine.host.path("/proc/devices"), "Character devices:\n  1 mem\n").unwrap();
    let said = machine.run(&["--if-changed"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 1), "{said:?}");
    assert!(
        said.err.contains("was removed, because it is no longer true"),
        "{said:?}"
    );
    assert_eq!(machine.bed.names(), "");
    assert!(!machine.bed.state().join("refresh.json").exists());
    let again = machine.run(&["--if-changed"]);
    assert_eq!((again.code, again.err.lines().count()), (Some(3), 1), "{again:?}");
    fs::remove_dir_all(&machine.host.root).unwrap();
    fs::rename(away, &machine.host.root).unwrap();
    assert!(machine.is_changed());
    assert_eq!(machine.bed.names(), before);
}

#[test]
fn a_host_that_was_not_complete_is_looked_at_each_time() {
    let machine = Machine::new("t4x2-old-driver");
    machine
        .host
        .nvml(|config| config["faults"]["init"] = "hang".into())
        .unwrap();
    let look = || machine.run(&["--if-changed", "--nvml-deadline=0.2"]);
    assert_eq!(look().code, Some(1));
    let said = look();
    assert!(
        said.code == Some(1) && !said.err.contains("nothing has changed"),
        "{said:?}"
    );
}

#[test]
fn the_oldest_engine_limits_the_version_of_cdi() {
    let machine = Machine::new("workstation-rtx4090");
    machine.settle();
    let newest = machine.cdi_version();
    assert_eq!(newest, "0.7.0", "the groups of the nodes for graphics");
    machine.install("podman", "podman version 4.3.1");
    machine.install("dockerd", "Docker version 28.2.0, build abc");
    let said = machine.run(&[]);
    assert_eq!(machine.cdi_version(), "0.5.0", "{said:?}");
    assert!(
        said.err
            .contains("lacks what needs more than CDI 0.5.0, because podman 4.3.1 does not read that"),
        "{said:?}"
    );
    // The update of the engine is noticed, and lifts the limit.
    machine.install("podman", "podman version 5.4.2");
    assert!(machine.is_changed());
    assert_eq!(machine.cdi_version(), newest);
    // An option counts more than the engines, which are not asked then.
    machine.install("podman", "podman version 4.3.1");
    let said = machine.run(&["--cdi-version=0.7"]);
    assert!(
        machine.cdi_version() == newest && !said.err.contains("podman"),
        "{said:?}"
    );
    // An engine without CDI, and one that says nothing, do not count.
    machine.install("podman", "usage: podman");
    machine.install("dockerd", "Docker version 20.10.24+dfsg1, build 297e128");
    machine.run(&[]);
    assert_eq!(machine.cdi_version(), newest);
}

#[test]
fn a_kind_that_an_old_engine_cannot_read_is_written_for_the_others() {
    let machine = Machine::new("t4x2-old-driver");
    machine.bed.share(RENAMED);
    machine.install("podman", "podman version 4.3.1");
    let said = machine.run(&[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("podman 4.3.1 does not read ")
            && said.err.contains("tranche-gpu.shared.yaml, which needs CDI 0.6.0"),
        "{said:?}"
    );
    assert!(machine.bed.spec("tranche-gpu.shared.yaml").exists());
}

#[test]
fn links_in_dev_char_are_made_on_request() {
    let machine = Machine::new("t4x2-old-driver");
    if let Some(missing) = machine.host.not_made.first() {
        return skip::not_run("refresh::changed::links_in_dev_char_are_made_on_request", &missing.why);
    }
    let links = machine.bed.at("char");
    machine.settle();
    assert!(!links.exists());
    machine.run(&[&format!("--char-links={}", links.display())]);
    let target = fs::read_link(links.join("195:0")).unwrap();
    assert!(target.ends_with("dev/nvidia0"), "{}", target.display());
}

#[test]
fn a_driver_that_is_not_loaded_is_no_failure_and_leaves_no_specification() {
    let machine = Machine::new("workstation-rtx4090");
    machine.settle();
    assert!(machine.bed.spec("tranche.yaml").exists());
    // The module is removed. The libraries and the nodes stay.
    let answers = machine.host.root.join("fake-nvml.json");
    let mut unloaded: Value = serde_json::from_str(&fs::read_to_string(&answers).unwrap()).unwrap();
    unloaded["faults"]["init"] = "DRIVER_NOT_LOADED".into();
    fs::write(&answers, unloaded.to_string()).unwrap();
    fs::remove_dir_all(machine.host.path("/proc/driver/nvidia")).unwrap();
    let module = machine.host.path("/sys/module/nvidia");
    if module.exists() {
        fs::remove_dir_all(module).unwrap();
    }
    let said = machine.run(&["--if-changed", "-q"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(
        said.err.contains("tranche.yaml") && said.err.contains("was removed"),
        "{said:?}"
    );
    assert!(!machine.bed.spec("tranche.yaml").exists());
    // At boot, before the module is loaded.
    assert_eq!(machine.run(&["--if-changed", "-q"]).code, Some(3));
}

/// The version of podman decides whether annotations ask. A start of a container finds an answer that is out of date.
#[test]
fn the_oldest_podman_is_recorded_and_another_one_is_noticed() {
    let machine = Machine::new("t4x2-old-driver");
    machine.settle();
    let recorded = || {
        let podman = machine.bed.host_file().runtime.oldest_podman;
        podman.map(|version| version.to_string())
    };
    assert_eq!(recorded(), None);
    for (prints, version) in [
        ("podman version 4.3.1", Some("4.3.1")),
        ("podman version 5.4.2", Some("5.4.2")),
        ("a version of another kind", None),
    ] {
        machine.install("podman", prints);
        assert!(
            matches!(
                HostFile::read(&machine.bed.state()),
                Err(HostFileError::Stale { changed, .. }) if changed.kind == SourceKind::Engine
            ),
            "{prints}"
        );
        // Also where engines do not decide the version of the specifications.
        assert_eq!(machine.run(&["--cdi-version=0.6"]).code, Some(0));
        assert_eq!(recorded().as_deref(), version, "{prints}");
        machine.settle();
        assert_eq!(recorded().as_deref(), version, "{prints}");
    }
}
