//! tranche and NVIDIA's toolkit on one machine: every name resolves in either order, and `--take-over` can be undone.

use super::others::nvidia;
use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};
use tranche_plan::cdi::registry::Registry;

/// GPU 0 in two shares of its own kind's names; GPU 1 is plain.
const SHARES: &str = "  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n";

/// Calls that change a file, and those that `cp` and `ln` of other C libraries use.
const CHANGING: [&str; 14] = [
    "write",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "symlink",
    "symlinkat",
    "fsync",
    "fchmod",
    "chmod",
    "fchmodat",
    "utimensat",
    "mkdir",
];

/// A machine with specifications and a unit of NVIDIA's toolkit.
struct Both {
    bed: Bed,
}

impl Both {
    fn new() -> Self {
        let bed = Bed::new();
        bed.share(SHARES);
        for dir in ["etc", "cdi", "units", "record"] {
            fs::create_dir_all(bed.at(dir)).unwrap();
        }
        Self { bed }
    }

    /// The names that tranche writes alone, and those that NVIDIA's toolkit writes: index, UUID and `all`.
    fn names(&self) -> [BTreeSet<String>; 2] {
        self.bed.refreshed("sim:t4x2");
        let of_tranche = self.resolved();
        fs::remove_file(self.bed.spec("tranche.yaml")).unwrap();
        let mut of_nvidia: BTreeSet<String> = of_tranche.iter().filter(|name| !name.contains('.')).cloned().collect();
        of_nvidia.insert("all".to_owned());
        [of_tranche, of_nvidia]
    }

    /// NVIDIA's toolkit writes its specification for these names.
    fn nvidia_writes(&self, directory: &str, names: &BTreeSet<String>) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        fs::write(self.bed.at(directory).join("nvidia.yaml"), nvidia(&names)).unwrap();
    }

    /// The names that an engine finds.
    fn resolved(&self) -> BTreeSet<String> {
        let registry = Registry::read(&[self.bed.at("etc"), self.bed.at("cdi")]);
        registry.devices().map(|(name, _)| name.device.to_string()).collect()
    }

    fn options(&self, verb: &str) -> [String; 3] {
        [
            verb.to_owned(),
            format!("--unit-dir={}", self.bed.at("units").display()),
            format!("--record-dir={}", self.bed.at("record").display()),
        ]
    }

    fn run(&self, verb: &str) -> Said {
        let options = self.options(verb);
        self.bed.refresh("sim:t4x2", &options.each_ref().map(String::as_str))
    }

    /// Everything of NVIDIA's, with modes and times: kind and content by path.
    fn of_nvidia(&self) -> BTreeMap<String, String> {
        let dirs = ["etc", "cdi", "units"].map(|dir| self.bed.at(dir));
        let paths = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap());
        let paths = paths.map(|entry| entry.unwrap().path());
        // A refresh that was killed leaves a file that the next one which writes to the directory removes.
        let is_temporary = |path: &Path| path.extension().is_some_and(|end| end == "tmp") && path.starts_with(&dirs[1]);
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("tranche") || is_temporary(path)
        };
        let shown = |path: PathBuf| {
            let data = path.symlink_metadata().unwrap();
            let content = match data.is_symlink() {
                true => format!("-> {}", fs::read_link(&path).unwrap().display()),
                false => format!(
                    "{:o} {:?} {}",
                    data.mode(),
                    data.modified().unwrap(),
                    fs::read_to_string(&path).unwrap()
                ),
            };
            (path.display().to_string(), content)
        };
        paths.filter(|path| !is_ours(path)).map(shown).collect()
    }

    /// The state before a take-over: files in both directories, one unit that the administrator changed, one that was
    /// not.
    fn prepare(&self, names: &BTreeSet<String>) {
        self.nvidia_writes("cdi", names);
        symlink(self.bed.spec("nvidia.yaml"), self.bed.at("etc/nvidia.yaml")).unwrap();
        let unit = self.bed.at("units/nvidia-cdi-refresh.service");
        fs::write(&unit, "[Service]\nExecStart=/opt/nvidia-ctk\n").unwrap();
        fs::set_permissions(&unit, fs::Permissions::from_mode(0o640)).unwrap();
        let spec = fs::File::options()
            .write(true)
            .open(self.bed.spec("nvidia.yaml"))
            .unwrap();
        spec.set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 7))
            .unwrap();
    }

    fn assert_taken(&self, names: &BTreeSet<String>) {
        let units = ["nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"];
        for unit in units {
            let target = fs::read_link(self.bed.at("units").join(unit)).unwrap();
            assert_eq!(target, Path::new("/dev/null"), "{unit}");
        }
        assert_eq!(self.of_nvidia().len(), 2, "only the masks: {:?}", self.of_nvidia());
        assert_eq!(&self.resolved(), names);
    }
}

#[test]
fn every_name_resolves_in_either_order() {
    for directory in ["etc", "cdi"] {
        let both = Both::new();
        let [of_tranche, of_nvidia] = both.names();
        let all: BTreeSet<String> = of_tranche.union(&of_nvidia).cloned().collect();
        assert!(
            all.contains("0.any") && all.contains("1") && all.contains("all"),
            "{all:?}"
        );
        // NVIDIA's toolkit first.
        both.nvidia_writes(directory, &of_nvidia);
        both.bed.refreshed("sim:t4x2");
        assert_eq!(both.resolved(), all, "{directory}");
        // tranche first. In one directory, both are lost until the refresh that the new file starts.
        fs::remove_file(both.bed.at(directory).join("nvidia.yaml")).unwrap();
        both.bed.refreshed("sim:t4x2");
        assert_eq!(both.resolved(), of_tranche);
        both.nvidia_writes(directory, &of_nvidia);
        assert_eq!(both.resolved() == all, directory == "etc");
        let said = both.run("--if-changed");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(both.resolved(), all, "{directory}: {said:?}");
    }
}

#[test]
fn names_that_only_tranche_would_define_are_reported() {
    let both = Both::new();
    let [_, mut of_nvidia] = both.names();
    let uuid = of_nvidia.iter().find(|name| name.starts_with("GPU-")).unwrap().clone();
    of_nvidia.remove(&uuid);
    both.nvidia_writes("cdi", &of_nvidia);
    let line = both.bed.refreshed("sim:t4x2");
    assert!(
        line.contains(&format!(
            "; no file defines {uuid}; tranche cdi refresh --take-over does"
        )),
        "{line}"
    );
}

#[test]
fn what_was_taken_over_is_handed_back_exactly() {
    let both = Both::new();
    let [of_tranche, of_nvidia] = both.names();
    both.prepare(&of_nvidia);
    let before = both.of_nvidia();
    let said = both.run("--take-over");
    assert_eq!(said.code, Some(0), "{said:?}");
    both.assert_taken(&of_tranche);
    // Again, and with a file that a person wrote meanwhile.
    assert_eq!(both.run("--take-over").code, Some(0));
    both.assert_taken(&of_tranche);
    both.bed.refreshed("sim:t4x2");
    both.assert_taken(&of_tranche);
    let said = both.run("--hand-back");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(both.of_nvidia(), before);
    let all: BTreeSet<String> = of_tranche.union(&of_nvidia).cloned().collect();
    assert_eq!(both.resolved(), all);
    assert_eq!(fs::read_dir(both.bed.at("record")).unwrap().count(), 0);
    let said = both.run("--hand-back");
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 1), "{said:?}");
    assert!(said.err.contains("nothing was taken over"), "{said:?}");
}

#[test]
fn what_somebody_wrote_after_a_take_over_stays() {
    let both = Both::new();
    let [_, of_nvidia] = both.names();
    both.prepare(&of_nvidia);
    assert_eq!(both.run("--take-over").code, Some(0));
    fs::write(both.bed.spec("nvidia.yaml"), nvidia(&["7"])).unwrap();
    let unit = both.bed.at("units/nvidia-cdi-refresh.path");
    fs::remove_file(&unit).unwrap();
    fs::write(&unit, "[Path]\n").unwrap();
    let said = both.run("--hand-back");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(
        said.err.matches("kept as it is, because it was written after").count(),
        2,
        "{said:?}"
    );
    assert_eq!(
        fs::read_to_string(both.bed.spec("nvidia.yaml")).unwrap(),
        nvidia(&["7"])
    );
    assert_eq!(fs::read_to_string(unit).unwrap(), "[Path]\n");
    assert!(both.bed.at("units/nvidia-cdi-refresh.service").is_file());
}

#[test]
fn a_host_without_a_device_takes_nothing_and_hands_everything_back() {
    let both = Both::new();
    let [_, of_nvidia] = both.names();
    both.prepare(&of_nvidia);
    let before = both.of_nvidia();
    let no_driver = both.bed.inventory("t4x2", |inventory| {
        inventory["driver"] = Value::Null;
        inventory["gpus"] = json!([]);
    });
    let run = |verb: &str| {
        both.bed
            .refresh(&no_driver, &both.options(verb).each_ref().map(String::as_str))
    };
    assert_eq!(run("--take-over").code, Some(3));
    assert_eq!(both.of_nvidia(), before);
    assert_eq!(both.run("--take-over").code, Some(0));
    assert_eq!(run("--hand-back").code, Some(3));
    assert_eq!(both.of_nvidia(), before);
}

#[test]
fn units_of_this_machine_are_not_changed_for_another_one() {
    let both = Both::new();
    for verb in ["--take-over", "--hand-back"] {
        let record = format!("--record-dir={}", both.bed.at("record").display());
        let said = both.bed.refresh("sim:t4x2", &[verb, &record]);
        let line = format!(
            "tranche: {verb}: changes the units of this machine, and --root or --inventory names another one\n"
        );
        assert_eq!((said.code, said.err), (Some(2), line));
        assert_eq!(fs::read_dir(both.bed.at("record")).unwrap().count(), 0);
    }
}

#[test]
fn without_systemd_only_files_are_taken() {
    let both = Both::new();
    let [of_tranche, of_nvidia] = both.names();
    both.nvidia_writes("cdi", &of_nvidia);
    fs::remove_dir(both.bed.at("units")).unwrap();
    let said = both.run("--take-over");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("units: not found, so no unit was masked"), "{said:?}");
    assert_eq!(both.resolved(), of_tranche);
    assert_eq!(both.run("--hand-back").code, Some(0));
    assert!(both.bed.spec("nvidia.yaml").exists() && !both.bed.at("units").exists());
}

/// Runs `verb` behind strace with these options.
fn behind(both: &Both, verb: &str, options: &[&str]) -> Output {
    let verb = both.options(verb);
    let refresh = both.bed.command("sim:t4x2", &verb.each_ref().map(String::as_str));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(options).arg(refresh.get_program());
    command.args(refresh.get_args()).env_clear().output().unwrap()
}

#[test]
fn a_kill_at_any_write_loses_nothing() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run("refresh::take_over::a_kill_at_any_write_loses_nothing", "no strace");
    }
    let [of_tranche, of_nvidia] = Both::new().names();
    let all: BTreeSet<String> = of_tranche.union(&of_nvidia).cloned().collect();
    for verb in ["--take-over", "--hand-back"] {
        let mut kills = 0;
        for name in CHANGING {
            for when in 1.. {
                let both = Both::new();
                both.prepare(&of_nvidia);
                let before = both.of_nvidia();
                both.bed.refreshed("sim:t4x2");
                if verb == "--hand-back" {
                    assert_eq!(both.run("--take-over").code, Some(0));
                }
                let trace = format!("trace=?{name}");
                let inject = format!("inject=?{name}:signal=KILL:when={when}");
                let output = behind(&both, verb, &["-o", "/dev/null", "-e", &trace, "-e", &inject]);
                if output.status.code().is_some() {
                    // It was not called that often.
                    assert_eq!(output.status.code(), Some(0), "{verb} {name} {when}: {output:?}");
                    break;
                }
                kills += 1;
                let at = format!("{verb} killed at {name} {when}");
                // Half of them go on, the others go back.
                if (kills % 2 == 0) == (verb == "--take-over") {
                    let said = both.run("--take-over");
                    assert_eq!(said.code, Some(0), "{at}: {said:?}");
                    both.assert_taken(&of_tranche);
                }
                let said = both.run("--hand-back");
                let is_untouched = said.code == Some(3) && both.of_nvidia() == before;
                assert!(said.code == Some(0) || is_untouched, "{at}: {said:?}");
                assert_eq!(both.of_nvidia(), before, "{at}");
                both.bed.refresh("sim:t4x2", &[]);
                assert_eq!(both.resolved(), all, "{at}");
            }
        }
        assert!(kills > 15, "{verb}: {kills} places");
    }
}
