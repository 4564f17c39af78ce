//! The directories of MPS daemons' sockets: made with the specification, and made again at boot.

use crate::support::{fake_host, skip};
use crate::{Said, said};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MPS: &str = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";
const TURNS: &str =
    "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";

/// A host whose state directory is in memory and whose specifications are on a disk, as `/run` and `/etc/cdi` are.
struct Place {
    disk: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl Place {
    fn of(test: &str) -> Option<Self> {
        let memory = Path::new("/dev/shm");
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let kind = |dir| rustix::fs::statfs(dir).map(|system| system.f_type);
        const TMPFS: i64 = 0x0102_1994;
        if kind(memory) != Ok(TMPFS) || kind(disk) == Ok(TMPFS) {
            let why = "needs /dev/shm in memory and the build directory on a disk";
            skip::not_run(&format!("pipe_directories::{test}"), why);
            return None;
        }
        let place = Self {
            disk: tempfile::tempdir_in(disk).unwrap(),
            memory: tempfile::tempdir_in(memory).unwrap(),
        };
        fake_host::build("t4x2-old-driver", &place.at("host")).unwrap();
        fs::create_dir(place.at("tmpfiles.d")).unwrap();
        Some(place)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.disk.path().join(path)
    }

    fn state(&self) -> PathBuf {
        self.memory.path().join("state")
    }

    fn pipe(&self, device: &str) -> PathBuf {
        self.state().join("mps").join(device)
    }

    fn conf(&self) -> PathBuf {
        self.at("tmpfiles.d/tranche-mps.conf")
    }

    /// Runs `tranche` with a strict umask.
    fn run(&self, words: &[&str], policy: &str) -> Said {
        fs::write(self.at("policy.yaml"), policy).unwrap();
        let host = self.at("host").display().to_string();
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "umask 077; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_tranche"),
            "cdi",
        ]);
        command.args(words).env_clear();
        command.arg(format!("--config={}", self.at("policy.yaml").display()));
        command.arg(format!("--state-dir={}", self.state().display()));
        command.arg(format!("--tmpfiles-dir={}", self.at("tmpfiles.d").display()));
        for (name, below) in [
            ("driver-root", ""),
            ("dev-root", ""),
            ("proc-root", "/proc"),
            ("sys-root", "/sys"),
        ] {
            command.arg(format!("--{name}={host}{below}"));
        }
        said(command)
    }

    fn generate(&self, output: &Path, policy: &str) -> Said {
        let said = self.run(&["generate", "--output", output.to_str().unwrap()], policy);
        assert_eq!(said.code, Some(0), "{said:?}");
        said
    }
}

#[test]
fn what_a_specification_on_disk_mounts_is_made_again_at_boot() {
    let Some(place) = Place::of("what_a_specification_on_disk_mounts_is_made_again_at_boot") else {
        return;
    };
    let spec = place.at("cdi/nvidia.yaml");
    place.generate(&spec, MPS);
    for device in ["0", "1"] {
        let mode = fs::metadata(place.pipe(device)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "the umask of the caller does not count");
        let line = format!("\nd {} 0755 root root -\n", place.pipe(device).display());
        assert!(fs::read_to_string(place.conf()).unwrap().contains(&line));
    }
    assert_eq!(fs::metadata(place.conf()).unwrap().permissions().mode() & 0o777, 0o644);

    // Without a share under MPS, nothing is needed at boot.
    place.generate(&spec, TURNS);
    assert!(!place.conf().exists());
}

#[test]
fn a_specification_in_memory_needs_nothing_at_boot() {
    let Some(place) = Place::of("a_specification_in_memory_needs_nothing_at_boot") else {
        return;
    };
    place.generate(&place.memory.path().join("cdi/nvidia.yaml"), MPS);
    assert!(place.pipe("0").is_dir() && !place.conf().exists());
    let output = format!("--output-dir={}", place.memory.path().join("other").display());
    let said = place.run(&["refresh", &output, "--degraded"], MPS);
    assert!(matches!(said.code, Some(0 | 1)) && !place.conf().exists(), "{said:?}");

    // It does not remove what a specification on disk needs.
    place.generate(&place.at("cdi/nvidia.yaml"), MPS);
    place.generate(&place.memory.path().join("cdi/nvidia.yaml"), TURNS);
    assert!(place.conf().exists());
}

#[test]
fn without_systemd_a_line_says_what_to_do_at_boot() {
    let Some(place) = Place::of("without_systemd_a_line_says_what_to_do_at_boot") else {
        return;
    };
    fs::remove_dir(place.at("tmpfiles.d")).unwrap();
    let said = place.generate(&place.at("cdi/nvidia.yaml"), MPS);
    assert!(
        said.err.contains("run this command again at each boot") && said.err.contains("/mps/0"),
        "{said:?}"
    );
    fs::create_dir(place.at("tmpfiles.d")).unwrap();
    fs::write(place.conf(), "d /run/other 0755 root root -\n").unwrap();
    place.generate(&place.at("cdi/nvidia.yaml"), TURNS);
    assert!(place.conf().exists(), "another program's file is kept");
}
