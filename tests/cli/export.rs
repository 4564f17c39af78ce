//! `tranche export`: what it prints gives a device to the real program, where that is installed.

use crate::support::{fake_host, rights, skip};
use crate::{Said, tranche};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

/// GPU 0 has two unequal shares under MPS; GPU 1 is not shared.
const POLICY: &str = "\
version: v1
sharing:
  mps:
    resources:
    - name: nvidia.com/gpu
      devices: [0]
      shares:
      - {name: big, compute: 60%, memory: 9Gi}
      - {name: small, compute: 30%, memory: 4Gi}
";

/// A host with two GPUs, and a root with busybox for containers.
struct Place {
    top: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fake_host::build("t4x2-old-driver", &top.path().join("host")).unwrap();
        fs::write(top.path().join("policy.yaml"), POLICY).unwrap();
        Self { top }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn export(&self, target: &str, devices: &[&str]) -> Said {
        let host = self.at("host").display().to_string();
        let options = [
            format!("--for={target}"),
            format!("--driver-root={host}"),
            format!("--dev-root={host}"),
            format!("--proc-root={host}/proc"),
            format!("--sys-root={host}/sys"),
            format!("--config={}", self.at("policy.yaml").display()),
            format!("--state-dir={}", self.at("state").display()),
        ];
        let words: Vec<&str> = ["export"]
            .into_iter()
            .chain(devices.iter().copied())
            .chain(options.iter().map(String::as_str))
            .collect();
        tranche(&words)
    }

    /// A root in which a shell runs.
    fn image(&self) -> PathBuf {
        let image = self.at("image");
        for directory in ["bin", "proc", "sys", "dev", "etc", "tmp", "run", "usr", "root"] {
            fs::create_dir_all(image.join(directory)).unwrap();
        }
        crate::support::programs::install("/bin/busybox", image.join("bin/busybox"));
        for applet in ["sh", "ls", "find", "env", "sort", "grep"] {
            symlink("busybox", image.join("bin").join(applet)).unwrap();
        }
        // systemd-nspawn starts no tree without it.
        fs::write(image.join("etc/os-release"), "").unwrap();
        image
    }
}

/// What a container must see of GPU 1: its nodes, the driver's library under the names that programs ask for, and where
/// the loader finds it.
const SHOW: &str = "find /dev -type c -name 'nvidia*' | sort; find /usr -name 'libcuda.so*' | sort; \
                    env | grep -e ^LD_LIBRARY_PATH= -e ^NVIDIA_VISIBLE_DEVICES= | sort";
const SHOWN: &str = "\
/dev/nvidia-uvm
/dev/nvidia-uvm-tools
/dev/nvidia1
/dev/nvidiactl
/usr/lib/x86_64-linux-gnu/libcuda.so
/usr/lib/x86_64-linux-gnu/libcuda.so.1
/usr/lib/x86_64-linux-gnu/libcuda.so.555.58.02
LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu/vdpau
NVIDIA_VISIBLE_DEVICES=void
";

/// Whether `test` can run: `program` is installed, and this is root of the machine.
fn can_run(test: &str, program: &str) -> bool {
    let test = format!("export::{test}");
    if !rights::owns_machine(&test) {
        return false;
    }
    let is_here = ["/usr/bin", "/bin"]
        .iter()
        .any(|directory| fs::metadata(format!("{directory}/{program}")).is_ok());
    if !is_here {
        skip::not_run(&test, &format!("{program} is not installed"));
        return false;
    }
    let needs = [("systemd-nspawn", 258), ("lxc-execute", 7)];
    let needed = needs
        .iter()
        .find(|(name, since)| *name == program && major_version(program) >= *since);
    if needed.is_some() && !has_cgroup2() {
        skip::not_run(
            &test,
            &format!("{program} of this version needs cgroup v2, which this machine does not have"),
        );
        return false;
    }
    true
}

/// The first number that `program` prints of its version.
fn major_version(program: &str) -> u32 {
    let output = Command::new(program).arg("--version").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|word| !word.is_empty());
    numbers.next().unwrap().parse().unwrap()
}

fn has_cgroup2() -> bool {
    let kind = Command::new("stat")
        .args(["-f", "-c", "%T", "/sys/fs/cgroup"])
        .output()
        .unwrap();
    kind.stdout == b"cgroup2fs\n"
}

/// Runs a script of a shell, in which `$FLAGS` are the flags of GPU 1 and `$SHOW` what the container runs.
fn shown(place: &Place, target: &str, script: &str) -> String {
    let flags = place.export(target, &["1"]);
    assert_eq!(flags.code, Some(0), "{}", flags.err);
    let output = Command::new("timeout")
        .args(["60", "sh", "-c", script])
        .env("FLAGS", flags.out)
        .env("SHOW", SHOW)
        .env("IMAGE", place.image())
        .env("TOP", place.top.path())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{target}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bubblewrap_gives_what_is_exported() {
    if can_run("bubblewrap_gives_what_is_exported", "bwrap") {
        let script = "eval bwrap --bind \"$IMAGE\" / --proc /proc --dev /dev $FLAGS /bin/sh -c '\"$SHOW\"'";
        assert_eq!(shown(&Place::new(), "bwrap", script), SHOWN);
    }
}

#[test]
fn nspawn_gives_what_is_exported() {
    if can_run("nspawn_gives_what_is_exported", "systemd-nspawn") {
        // Without registration, because no machine manager runs everywhere.
        let script =
            "eval systemd-nspawn -q --pipe --register=no --keep-unit -D \"$IMAGE\" $FLAGS /bin/sh -c '\"$SHOW\"'";
        assert_eq!(shown(&Place::new(), "nspawn", script), SHOWN);
    }
}

#[test]
fn lxc_gives_what_is_exported() {
    if can_run("lxc_gives_what_is_exported", "lxc-execute") {
        let script = "printf 'lxc.rootfs.path = dir:%s\\nlxc.net.0.type = none\\nlxc.uts.name = test\\n%s' \"$IMAGE\" \"$FLAGS\" \
                      > \"$TOP/lxc.conf\" && mkdir \"$TOP/lxc\" && \
                      lxc-execute -P \"$TOP/lxc\" -n test -f \"$TOP/lxc.conf\" -- /bin/sh -c \"$SHOW\"";
        assert_eq!(shown(&Place::new(), "lxc", script), SHOWN);
    }
}

#[test]
fn a_share_brings_its_limits_and_its_daemon() {
    let place = Place::new();
    let said = place.export("nspawn", &["nvidia.com/gpu=0.small"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for line in [
        "--bind=DEV/dev/nvidia0:/dev/nvidia0",
        "--setenv=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
        "--setenv=CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
        "--bind-ro=STATE/mps/0:/tmp/nvidia-mps",
    ] {
        let line = line.replace("DEV", &place.at("host").display().to_string());
        let line = line.replace("STATE", &place.at("state").display().to_string());
        assert!(said.out.lines().any(|is| is == line), "{line} in {}", said.out);
    }
    assert!(!said.out.contains("nvidia1"), "{}", said.out);
    assert!(
        said.err.contains("tranche run --share 0.small -- PROGRAM"),
        "{}",
        said.err
    );
}

#[test]
fn what_cannot_be_given_is_refused_in_one_line() {
    let place = Place::new();
    let refused = |devices: &[&str]| {
        let said = place.export("bwrap", devices);
        assert_ne!(said.code, Some(0), "{}", said.out);
        assert_eq!(said.out, "");
        said.err.lines().next_back().unwrap().to_owned()
    };
    // The whole of a device of which others may hold a part.
    assert!(refused(&["0"]).contains("share 0: not a share of this host"));
    assert!(refused(&["0.none"]).contains("expected 0.big, 0.small"));
    assert!(refused(&["7"]).contains('7'));
    assert!(refused(&["0.big", "1"]).contains("share 1: the policy does not share this device"));
}

#[test]
fn a_program_that_takes_the_name_is_unknown() {
    let said = Place::new().export("quadlet", &["0.big"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    let line = "program \"quadlet\": unknown; expected one of lxc, apptainer, nspawn, bwrap";
    assert!(said.err.contains(line), "{}", said.err);
}
