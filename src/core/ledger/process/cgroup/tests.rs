//! On the cgroups of this machine, where it has some and lets us make others.

use super::*;
use crate::until::until;
use std::os::unix::process::CommandExt;
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

/// The cgroup in `made` as a claim records it.
fn recorded(made: &Made) -> Cgroup {
    Cgroup {
        path: made.0.to_str().unwrap().into(),
        inode: is_cgroup(&made.0).unwrap(),
        top: None,
    }
}

#[test]
fn depth_does_not_matter() {
    for made in Made::each() {
        let cgroup = recorded(&made);
        let mut deepest = made.0.clone();
        for _ in 0..40 {
            deepest.push("below");
            fs::create_dir(&deepest).unwrap();
        }
        assert!(is_empty(&cgroup) && !has_processes(&cgroup), "{}", deepest.display());
        let process = Sleeper::in_cgroup(&deepest);
        assert!(!is_empty(&cgroup) && has_processes(&cgroup), "{}", deepest.display());
        assert_eq!(processes(&cgroup).unwrap(), [process.pid()]);
    }
}

/// The processor time of this thread that `what` takes, in nanoseconds: the least of some times.
fn cost(what: impl Fn()) -> i64 {
    let now = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    let once = || {
        let began = now();
        (0..20).for_each(|_| what());
        let spent = now() - began;
        spent.tv_sec() * 1_000_000_000 + spent.tv_nsec()
    };
    (0..15).map(|_| once()).min().unwrap()
}

#[test]
fn a_look_costs_the_same_with_any_number_of_cgroups() {
    for made in Made::each() {
        let (few, many) = (made.below("few"), made.below("many"));
        for (top, number) in [(&few, 10), (&many, 5000)] {
            (0..number).for_each(|number| fs::create_dir(top.join(number.to_string())).unwrap());
        }
        let of = |path: &Path| Cgroup {
            path: path.to_str().unwrap().into(),
            inode: is_cgroup(path).unwrap(),
            top: None,
        };
        let (of_few, of_many) = (of(&few), of(&many));
        if i128::from(statfs(&made.0).unwrap().f_type) != VERSION_2 {
            assert!(is_empty(&of_few) && !is_too_large(&of_few));
            assert!(
                is_too_large(&of_many) && has_processes(&of_many) && !is_empty(&of_many),
                "counts as in use"
            );
            continue;
        }
        assert!(is_empty(&of_few) && is_empty(&of_many) && !is_too_large(&of_many));
        let [little, much] = [&of_few, &of_many].map(|cgroup| cost(|| assert!(is_empty(cgroup))));
        // It grew with the number before: by a factor of some hundred.
        assert!(much < 8 * little, "{much} ns with 5000, {little} ns with 10");
        let process = Sleeper::in_cgroup(&many.join("4711"));
        assert!(
            has_processes(&of_many) && !is_empty(&of_many),
            "the kernel finds the one process"
        );
        drop(process);
        let error = processes(&of_many).unwrap_err().to_string();
        assert_eq!(error, "has more than 4096 cgroups below it");
        // The init of a container, with what it has made below its own cgroup.
        let init = Sleeper::in_cgroup(&many);
        let own = of_process(init.pid());
        assert_eq!(own.map(|cgroup| cgroup.path), Some(of_many.path));
    }
}

fn of_process(pid: u32) -> Option<Cgroup> {
    of(&ProcFiles::open().unwrap(), pid)
}

/// Plain directories, which have links like those of cgroups of version 1 on most file systems.
#[test]
fn a_cgroup_that_is_removed_during_the_search_has_no_processes() {
    let top = tempfile::tempdir().unwrap();
    let population = || population_of(top.path());
    assert!(is_gone(&population().unwrap_err()));
    fs::write(top.path().join("cgroup.procs"), "").unwrap();
    assert_eq!(population().unwrap(), Population::Empty);
    let below = top.path().join("below");
    fs::create_dir(&below).unwrap();
    assert_eq!(
        population().unwrap(),
        Population::Empty,
        "its list of processes is gone"
    );
    fs::write(below.join("cgroup.procs"), "0\n").unwrap();
    assert_eq!(
        population().unwrap(),
        Population::Populated,
        "one of another pid namespace"
    );
}

#[test]
fn as_many_directories_are_looked_at_as_may_be() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("cgroup.procs"), "").unwrap();
    for number in 0..MOST_DIRECTORIES {
        fs::create_dir(top.path().join(number.to_string())).unwrap();
    }
    assert_eq!(population_of(top.path()).unwrap(), Population::Empty);
    fs::create_dir(top.path().join("0/one-more")).unwrap();
    assert_eq!(population_of(top.path()).unwrap(), Population::TooMany);
}

#[test]
fn thousands_of_processes_are_listed_and_are_one_look() {
    for made in Made::each().into_iter().take(1) {
        let cgroup = recorded(&made);
        let mut shell = Command::new("sh");
        shell.args(["-c", "for n in $(seq 2000); do sleep 1000 & done; echo; wait"]);
        let mut shell = shell
            .stdout(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = nix::unistd::Pid::from_raw(shell.id().try_into().unwrap());
        fs::write(made.0.join("cgroup.procs"), shell.id().to_string()).unwrap();
        // It prints a line when it has started all.
        let mut line = [0];
        shell.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let found = processes(&cgroup).unwrap().len();
        let is_used = has_processes(&cgroup) && !is_empty(&cgroup);
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        shell.wait().unwrap();
        // The shell may have started some before it was moved.
        assert!(is_used && found > 1000, "{found}");
        until("they have ended", || is_empty(&cgroup));
    }
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
