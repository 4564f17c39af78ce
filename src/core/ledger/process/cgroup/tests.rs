//! On the cgroups of this machine, where it has some and lets us make others.

use super::*;
use std::process::{Child, Command};

/// A cgroup for a test, removed with its processes.
struct Made(PathBuf);

impl Made {
    /// One below each hierarchy that can be written here: version 2, and version 1.
    fn each() -> Vec<Made> {
        let tops = [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/pids",
            "/sys/fs/cgroup/devices",
        ];
        let name = format!("tranche-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let name: String = name
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        let tops = tops.map(Path::new).into_iter().filter(|top| is_cgroup(top).is_ok());
        tops.map(|top| top.join(&name))
            .filter(|path| fs::create_dir(path).is_ok())
            .map(Made)
            .collect()
    }

    fn below(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a cgroup and those below it, whose files are the kernel's.
fn remove(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    fs::remove_dir(directory).ok();
}

struct Sleeper(Child);

impl Sleeper {
    fn in_cgroup(directory: &Path) -> Self {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(directory.join("cgroup.procs"), child.id().to_string()).unwrap();
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_cgroup_holds_until_its_last_process_has_ended() {
    let made = Made::each();
    if made.is_empty() {
        println!("not run: ledger::process::cgroup: may not make a cgroup");
    }
    for made in made {
        let init = Sleeper::in_cgroup(&made.0);
        let cgroup = of(&ProcFiles::open().unwrap(), init.pid()).unwrap_or_else(|| panic!("{}", made.0.display()));
        assert_eq!(cgroup.path, made.0.to_str().unwrap());
        assert!(has_processes(&cgroup) && !is_empty(&cgroup));
        let below = made.below("below");
        let other = Sleeper::in_cgroup(&below);
        assert_eq!(
            of(&ProcFiles::open().unwrap(), init.pid()),
            None,
            "others are in it: it is not its own"
        );
        drop(init);
        assert!(
            has_processes(&cgroup),
            "another process lives below: {}",
            made.0.display()
        );
        drop(other);
        assert!(is_empty(&cgroup) && !has_processes(&cgroup), "{}", made.0.display());
        fs::remove_dir(&below).unwrap();
        fs::remove_dir(&made.0).unwrap();
        assert!(is_empty(&cgroup), "it is gone");
        fs::create_dir(&made.0).unwrap();
        let later = Sleeper::in_cgroup(&made.0);
        assert!(is_empty(&cgroup), "a later one of its name");
        drop(later);
    }
}

#[test]
fn one_who_sees_another_part_of_the_hierarchy_says_nothing() {
    for made in Made::each() {
        let init = Sleeper::in_cgroup(&made.0);
        let cgroup = of(&ProcFiles::open().unwrap(), init.pid()).unwrap();
        assert!(cgroup.top.is_some(), "{}", made.0.display());
        // As from a cgroup namespace in which something else, or nothing, has this path.
        for other in [made.below("other"), made.0.join("missing")] {
            let other = Cgroup {
                path: other.to_str().unwrap().into(),
                ..cgroup.clone()
            };
            assert!(is_empty(&other), "{}", other.path);
            let from_elsewhere = Cgroup {
                top: cgroup.top.map(|top| top + 1),
                ..other
            };
            assert!(
                !is_empty(&from_elsewhere) && !has_processes(&from_elsewhere),
                "{}",
                from_elsewhere.path
            );
        }
    }
}

#[test]
fn the_cgroup_of_the_engine_is_not_the_containers() {
    let child = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
    assert_eq!(of(&ProcFiles::open().unwrap(), child.pid()), None);
}

#[test]
fn what_cannot_be_seen_is_neither_empty_nor_in_use() {
    for path in ["/sys/fs/cgroup-elsewhere/x", "/tmp"] {
        let cgroup = Cgroup {
            path: path.into(),
            inode: 1,
            top: None,
        };
        assert!(!is_empty(&cgroup) && !has_processes(&cgroup), "{path}");
    }
}

#[test]
fn a_path_that_leads_through_a_file_of_a_cgroup_says_nothing() {
    for made in Made::each() {
        let through = made.0.join("cgroup.procs/below");
        let cgroup = Cgroup {
            path: through.to_str().unwrap().into(),
            inode: 1,
            top: None,
        };
        assert!(!is_empty(&cgroup) && !has_processes(&cgroup), "{}", through.display());
    }
}

#[test]
fn a_tree_that_is_too_deep_to_search_is_neither_empty_nor_in_use() {
    for made in Made::each() {
        let cgroup = Cgroup {
            path: made.0.to_str().unwrap().into(),
            inode: is_cgroup(&made.0).unwrap(),
            top: None,
        };
        let mut deepest = made.0.clone();
        for _ in 0..MOST_LEVELS {
            deepest.push("below");
            fs::create_dir(&deepest).unwrap();
        }
        assert!(is_empty(&cgroup), "{}", deepest.display());
        fs::create_dir(deepest.join("below")).unwrap();
        assert!(!is_empty(&cgroup) && !has_processes(&cgroup), "{}", deepest.display());
    }
}

/// Plain directories, which have links like those of cgroups on most file systems.
#[test]
fn a_cgroup_that_is_removed_during_the_search_has_no_processes() {
    let top = tempfile::tempdir().unwrap();
    let numbers = || {
        let mut processes = Vec::new();
        collect(top.path(), MOST_LEVELS, &mut processes).map(|()| processes)
    };
    assert_eq!(numbers().unwrap_err().kind(), io::ErrorKind::NotFound);
    fs::write(top.path().join("cgroup.procs"), "7\n0\n").unwrap();
    assert_eq!(numbers().unwrap(), [7, 0]);
    fs::create_dir(top.path().join("below")).unwrap();
    assert_eq!(numbers().unwrap(), [7, 0], "its list of processes is gone");
}

/// Threads of one process may be in different cgroups of version 2; the process is then listed above them.
#[test]
fn a_threaded_cgroup_has_the_processes_of_its_parent() {
    for made in Made::each() {
        let below = made.below("below");
        // Version 1 has no such file.
        if !below.join("cgroup.type").exists() || fs::write(below.join("cgroup.type"), "threaded").is_err() {
            continue;
        }
        let cgroup = Cgroup {
            path: made.0.to_str().unwrap().into(),
            inode: is_cgroup(&made.0).unwrap(),
            top: None,
        };
        assert!(is_empty(&cgroup), "{}", below.display());
        let child = Sleeper::in_cgroup(&made.0);
        fs::write(below.join("cgroup.threads"), child.pid().to_string()).unwrap();
        assert!(has_processes(&cgroup), "{}", below.display());
    }
}

#[test]
fn where_the_cgroup_of_a_container_may_be() {
    let of = |text: &str, own: &str| {
        let found = candidates(&hierarchies(text), &hierarchies(own));
        found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let scope = "/machine.slice/libpod-1.scope/container";
    assert_eq!(
        of(&format!("0::{scope}\n"), "0::/user.slice/session-1.scope\n"),
        [
            format!("/sys/fs/cgroup{scope}"),
            format!("/sys/fs/cgroup/unified{scope}")
        ]
    );
    let version_1 = "12:cpu,cpuacct:/c/1\n4:devices:/c/1\n1:name=systemd:/c:1\n0::/\n";
    let found = of(version_1, "4:devices:/\n1:name=systemd:/user\n0::/\n");
    assert_eq!(
        found,
        [
            "/sys/fs/cgroup/devices/c/1",
            "/sys/fs/cgroup/devices/c/1",
            "/sys/fs/cgroup/systemd/c:1",
            "/sys/fs/cgroup/name=systemd/c:1"
        ]
    );
    for (text, own) in [
        // The engine's own, the root, and one outside of this program's cgroup namespace.
        ("0::/user.slice\n", "0::/user.slice\n"),
        ("0::/\n", "0::/x\n"),
        ("0::/../x\n", "0::/\n"),
        ("", ""),
    ] {
        assert_eq!(of(text, own), [""; 0], "{text}");
    }
}

#[test]
fn only_the_kubelet_has_cgroups_of_pods() {
    for path in [
        "/kubepods/burstable/pod8f3e/c0ffee",
        "/kubepods.slice/kubepods-pod8f3e.slice/cri-containerd-c0ffee.scope",
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod8f3e.slice/c",
        "/docker/5a/kubelet/kubepods/pod8f3e/c",
    ] {
        assert!(is_of_pods(path), "{path}");
    }
    for path in [
        "/",
        "/kubepods",
        "/system.slice/docker-c0ffee.scope",
        "/user.slice/user-1000.slice/user@1000.service/kubepods/pod8f3e/c",
        "/machine.slice/libpod-kubepods.scope",
        "/notkubepods/x",
    ] {
        assert!(!is_of_pods(path), "{path}");
    }
}
