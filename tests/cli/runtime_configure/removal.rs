//! `tranche system prepare-removal`: engines work afterwards, without a program of tranche.

use super::*;
use crate::support::own_mounts::with_own_mounts;
use nix::mount::{MsFlags, mount, umount};
use std::os::unix::fs::chown;

/// The files of a machine on which each engine is configured, beside one in an unusual place.
const FILES: [(&str, &str); 5] = [
    (
        "docker/daemon.json",
        "{ \"debug\" :true,\n\t\"default-runtime\": \"crun\"}",
    ),
    (
        "containerd/config.toml",
        "# ours\nversion = 2\n\n[metrics]\naddress = ''",
    ),
    ("crio/crio.conf", "[crio.runtime]\r\ndefault_runtime = \"crun\"\r\n"),
    ("containers/containers.conf", "[engine]\nruntime = 'runc' # ours\n"),
    (
        "rancher/config.toml",
        "version = 2\nimports = ['/etc/rancher/x.d/*.toml']\n",
    ),
];

/// A machine with an `/etc` of its own, as the programs see it that the test starts.
struct Machine {
    bed: Bed,
}

impl Machine {
    /// Runs `test` on a machine with these files below `/etc`.
    fn run(name: &str, files: &[(&str, &str)], test: impl FnOnce(&Machine) + Send) {
        if !rights::owns_machine(&format!("runtime_configure::removal::{name}")) {
            return;
        }
        let ended = with_own_mounts(|| {
            let machine = Machine {
                bed: Bed::new("docker"),
            };
            mount(Some("tmpfs"), "/etc", Some("tmpfs"), MsFlags::empty(), Some("mode=755")).unwrap();
            for (path, text) in files {
                let path = Path::new("/etc").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            test(&machine);
        });
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    fn tranche(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        // No engine is asked for its version.
        command.env_clear().env("PATH", "/nowhere");
        said(command.args(words).arg("--state-dir").arg(self.bed.at("state")))
    }

    fn configure(&self, engine: &str, more: &[&str]) {
        let runtime = format!("--runtime-path={}", self.bed.runtime().display());
        let words = ["runtime", "configure", "--runtime", engine, &runtime];
        let done = self.tranche(&[&words[..], more].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    fn prepare_removal(&self, more: &[&str]) -> Said {
        let [cdi, tmpfiles] = ["cdi", "tmpfiles"].map(|name| self.bed.at(name).display().to_string());
        let words = [
            "system",
            "prepare-removal",
            "--spec-dir",
            &cdi,
            "--tmpfiles-dir",
            &tmpfiles,
        ];
        self.tranche(&[&words[..], more].concat())
    }

    /// Every file and directory below `/etc`, with its mode and its bytes.
    fn etc(&self) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
        // podman makes a directory for networks when it is asked whether it accepts a file.
        let all = walkdir::WalkDir::new("/etc")
            .into_iter()
            .filter_entry(|entry| entry.file_name() != "cni");
        let all = all.map(Result::unwrap);
        let of = |entry: walkdir::DirEntry| {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            (entry.path().to_owned(), (entry.metadata().unwrap().mode(), bytes))
        };
        all.map(of).collect()
    }

    /// Whether something is kept of the files that are not in their usual places.
    fn keeps_list(&self) -> bool {
        self.bed.at("state/kept/engine-files.json").exists()
    }
}

/// Configures everything.
fn configure_all(machine: &Machine) {
    for engine in ["docker", "containerd", "crio", "podman"] {
        machine.configure(engine, &["--set-as-default"]);
    }
    let elsewhere = [
        "--config=/etc/rancher/config.toml",
        "--drop-in-config=/etc/rancher/x.d/99-tranche.toml",
    ];
    machine.configure("containerd", &elsewhere);
}

#[test]
fn each_file_gets_its_bytes_back() {
    Machine::run("each_file_gets_its_bytes_back", &FILES, |machine| {
        fs::set_permissions("/etc/docker/daemon.json", fs::Permissions::from_mode(0o640)).unwrap();
        let before = machine.etc();
        configure_all(machine);
        let configured = machine.etc();
        assert!(
            configured.contains_key(Path::new("/etc/rancher/x.d/99-tranche.toml")),
            "{configured:?}"
        );
        assert!(machine.keeps_list());

        let dry = machine.prepare_removal(&["--dry-run"]);
        assert_eq!(dry.code, Some(0), "{dry:?}");
        assert!(
            dry.err.contains("/etc/docker/daemon.json: would be restored\n"),
            "{dry:?}"
        );
        assert_eq!(machine.etc(), configured, "--dry-run changed a file");

        let done = machine.prepare_removal(&[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(machine.etc(), before);
        assert!(!machine.keeps_list());
        for line in [
            "/etc/docker/daemon.json: the original file is restored\n",
            "docker: the runtime is removed; run systemctl restart docker to apply it\n",
            "/etc/rancher/x.d/99-tranche.toml: removed\n",
        ] {
            assert!(done.err.contains(line), "{line}: {done:?}");
        }
        let again = machine.prepare_removal(&[]);
        assert_eq!((again.code, again.err.as_str()), (Some(0), ""));
    });
}

/// A ledger that another user may write is not read.
#[test]
fn what_else_cannot_be_done_keeps_no_file_changed() {
    let name = "what_else_cannot_be_done_keeps_no_file_changed";
    Machine::run(name, &FILES, |machine| {
        let before = machine.etc();
        configure_all(machine);
        let ledger = machine.bed.at("state/ledger");
        fs::create_dir_all(&ledger).unwrap();
        chown(&ledger, Some(12345), None).unwrap();
        let done = machine.prepare_removal(&[]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains("ledger"), "{done:?}");
        assert_eq!(machine.etc(), before);
    });
}

#[test]
fn what_was_edited_since_stays() {
    Machine::run("what_was_edited_since_stays", &FILES, |machine| {
        configure_all(machine);
        let daemon = Path::new("/etc/docker/daemon.json");
        let text = fs::read_to_string(daemon).unwrap();
        fs::write(
            daemon,
            text.replace("\"debug\" :true", "\"debug\" :true, \"mtu\": 1450"),
        )
        .unwrap();
        let drop_in = Path::new("/etc/rancher/x.d/99-tranche.toml");
        let text = fs::read_to_string(drop_in).unwrap();
        fs::write(drop_in, format!("{text}[debug]\nlevel = 'info'\n")).unwrap();

        let done = machine.prepare_removal(&[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let left = fs::read_to_string(daemon).unwrap();
        assert_eq!(
            left,
            "{ \"debug\" :true, \"mtu\": 1450,\n\t\"default-runtime\": \"crun\"\n}"
        );
        let left = fs::read_to_string(drop_in).unwrap();
        assert!(!left.contains("tranche"), "{left}");
        assert_eq!(read(&left, false), json!({"debug": {"level": "info"}}), "{left}");
        let names: Vec<PathBuf> = machine.etc().into_keys().collect();
        assert!(
            !names.iter().any(|name| name.to_string_lossy().contains("tranche.json")),
            "{names:?}"
        );
    });
}

/// Runs the command of the only line about `file` in what `done` said: the last words of it, up to what the engine
/// needs. No program of tranche is in the path.
fn do_by_hand(done: &Said, file: &str) {
    assert_eq!(done.code, Some(4), "{done:?}");
    let mut lines = done.err.lines().filter(|line| line.contains(file));
    let line = lines.next().unwrap_or_else(|| panic!("{done:?}"));
    assert_eq!(lines.next(), None, "{done:?}");
    assert!(
        line.contains("remove runtimes.tranche, default-runtime, features.cdi from it by hand"),
        "{line}"
    );
    assert!(line.ends_with("; run systemctl restart docker to apply it"), "{line}");
    let command = line
        .split("or restore it: ")
        .nth(1)
        .unwrap()
        .split("; run")
        .next()
        .unwrap();
    let ended = Command::new("/bin/sh")
        .args(["-euc", command])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .status();
    assert!(ended.unwrap().success(), "{command}");
}

#[test]
fn a_file_that_cannot_be_edited_is_named_with_a_command_that_needs_no_tranche() {
    let test = "a_file_that_cannot_be_edited_is_named_with_a_command_that_needs_no_tranche";
    Machine::run(test, &FILES[..1], |machine| {
        let file = "/etc/docker/daemon.json";
        let before = machine.etc();
        let none = None::<&str>;

        // Nothing else can take the place of a file that is mounted.
        machine.configure("docker", &["--set-as-default"]);
        mount(Some(file), file, none, MsFlags::MS_BIND, none).unwrap();
        let done = machine.prepare_removal(&[]);
        umount(file).unwrap();
        do_by_hand(&done, file);
        assert_eq!(machine.etc(), before);

        // A file that is no JSON any more.
        machine.configure("docker", &["--set-as-default"]);
        let text = fs::read_to_string(file).unwrap();
        fs::write(file, &text[..text.len() - 9]).unwrap();
        do_by_hand(&machine.prepare_removal(&[]), file);
        assert_eq!(machine.etc(), before);

        // A file that tranche created.
        fs::remove_file(file).unwrap();
        let before = machine.etc();
        machine.configure("docker", &["--set-as-default"]);
        fs::write(file, "{").unwrap();
        do_by_hand(&machine.prepare_removal(&[]), file);
        assert_eq!(machine.etc(), before);
        assert_eq!(machine.prepare_removal(&[]).err, "");
    });
}

/// A user who can replace the file meanwhile would choose what root writes, and where.
#[test]
fn a_file_in_a_user_s_directory_is_named_and_not_changed() {
    let test = "a_file_in_a_user_s_directory_is_named_and_not_changed";
    Machine::run(test, &[("ann/daemon.json", "{}\n")], |machine| {
        chown("/etc/ann", Some(1000), None).unwrap();
        machine.configure("docker", &["--set-as-default", "--config=/etc/ann/daemon.json"]);
        let configured = machine.etc();
        let done = machine.prepare_removal(&[]);
        assert_eq!(machine.etc(), configured);
        do_by_hand(&done, "/etc/ann/daemon.json");
        assert_eq!(fs::read_to_string("/etc/ann/daemon.json").unwrap(), "{}\n");
        assert_eq!(machine.prepare_removal(&[]).err, "");
        assert!(!machine.keeps_list());
    });
}

#[test]
fn what_a_person_wrote_about_the_runtime_is_named_and_stays() {
    let crio = "[crio.runtime.runtimes.own]\nruntime_path = '/usr/bin/tranche-runtime'\n";
    let hook = "{\"version\": \"1.0.0\", \"hook\": {\"path\": \"/usr/bin/tranche-runtime\"}}";
    let files = [
        ("docker/daemon.json", "{}\n"),
        ("crio/crio.conf", crio),
        ("containers/oci/hooks.d/tranche.json", hook),
    ];
    Machine::run(
        "what_a_person_wrote_about_the_runtime_is_named_and_stays",
        &files,
        |machine| {
            machine.configure("docker", &[]);
            let file = "/etc/docker/daemon.json";
            let text = fs::read_to_string(file).unwrap();
            fs::write(file, text.replacen('{', "{\"default-runtime\": \"tranche\", ", 1)).unwrap();
            let done = machine.prepare_removal(&[]);
            assert_eq!(done.code, Some(4), "{done:?}");
            for line in [
                "/etc/docker/daemon.json: has the default runtime tranche, whose program goes, and tranche did not write it",
                "/etc/containers/oci/hooks.d/tranche.json: names a hook of tranche: after the removal, podman and CRI-O start",
                "/etc/crio/crio.conf: has the runtime own, whose program goes, and tranche did not write it",
            ] {
                assert!(done.err.contains(line), "{done:?}");
            }
            assert_eq!(
                read(&fs::read_to_string(file).unwrap(), true),
                json!({"default-runtime": "tranche"})
            );
            assert_eq!(fs::read_to_string("/etc/crio/crio.conf").unwrap(), crio);
        },
    );
}

#[test]
fn a_file_that_was_unconfigured_is_forgotten() {
    let bed = Bed::new("docker");
    assert_eq!(bed.configure(&[]).code, Some(0));
    let list = fs::read_to_string(bed.at("state/kept/engine-files.json")).unwrap();
    assert!(list.contains(&bed.main().display().to_string()), "{list}");
    assert_eq!(bed.unconfigure().code, Some(0));
    assert!(!bed.at("state/kept/engine-files.json").exists());
}
