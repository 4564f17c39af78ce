//! To which container a process belongs: by its cgroups, and by the processes from which it descends.

use super::{Machine, cgroup, time};
use crate::ledger::claim::InitProcess;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The kernel has no deeper trees of processes than it has numbers of processes; a tree that an image makes is bounded
/// here.
const MOST_ANCESTORS: usize = 4096;

/// Where a process comes from, as it was seen at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The name of its program, at most 15 bytes, which the program chooses itself (`/proc/PID/comm`).
    pub command: String,
    /// The pid namespace that its number is of.
    namespace: u64,
    /// Directories that may be its cgroups.
    cgroups: Vec<PathBuf>,
    /// The process, its parent and so on, with their start times.
    ancestors: Vec<(u32, u64)>,
}

impl Machine {
    /// Whether processes of the container that has this init can be told from others here: they cannot, if it is in a
    /// foreign pid namespace.
    pub fn sees(&self, init: &InitProcess) -> bool {
        init.namespace == self.namespace
    }

    /// Where process `pid` comes from; `None` if it does not exist.
    pub fn lineage(&self, pid: u32) -> Option<Lineage> {
        let mut ancestors = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = pid;
        // The parent of a process that was started outside this pid namespace is 0.
        while next != 0 && ancestors.len() < MOST_ANCESTORS && seen.insert(next) {
            let Ok(Some(found)) = self.stat_of(next) else { break };
            ancestors.push((next, self.offset.without(found.start)));
            next = found.parent;
        }
        let command = self.proc.read(&format!("{pid}/comm")).unwrap_or_default();
        (!ancestors.is_empty()).then(|| Lineage {
            command: String::from_utf8_lossy(&command).trim_end().to_owned(),
            namespace: self.namespace,
            cgroups: cgroup::directories(&self.proc, pid),
            ancestors,
        })
    }
}

impl Lineage {
    /// Whether the process belongs to the container that has this init: it is in the container's cgroup or below, or it
    /// is the init or descends from it. Of a container of a foreign pid namespace this cannot be said.
    pub fn is_of(&self, init: &InitProcess) -> bool {
        if init.namespace != self.namespace {
            return false;
        }
        let in_cgroup = init
            .cgroup
            .as_ref()
            .is_some_and(|own| self.cgroups.iter().any(|directory| directory.starts_with(&own.path)));
        let is_init = |(pid, start): &(u32, u64)| *pid == init.pid && time::is_same(*start, init.start);
        in_cgroup || self.ancestors.iter().any(is_init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Cgroup;
    use crate::ledger::process::proc_files::ProcFiles;
    use std::fs;

    /// A /proc with a file tree of processes.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        /// A process that started at tick 100 times its number.
        fn process(&self, pid: u32, parent: u32, cgroup: &str) {
            let directory = self.0.path().join(pid.to_string());
            fs::create_dir_all(&directory).unwrap();
            let start = u64::from(pid) * 100;
            let stat = format!("{pid} (a) b) S {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0");
            fs::write(directory.join("stat"), stat).unwrap();
            fs::write(directory.join("comm"), format!("python{pid}\n")).unwrap();
            fs::write(directory.join("cgroup"), cgroup).unwrap();
        }

        fn machine(&self) -> Machine {
            let here = Machine::here().unwrap();
            Machine {
                offset: time::Offset::read(&ProcFiles::at(self.0.path()).unwrap()).unwrap(),
                proc: ProcFiles::at(self.0.path()).unwrap(),
                ..here
            }
        }

        fn is_of(&self, pid: u32, init: &InitProcess) -> bool {
            self.machine().lineage(pid).unwrap().is_of(init)
        }
    }

    fn init(pid: u32, cgroup: Option<&str>) -> InitProcess {
        InitProcess {
            pid,
            start: u64::from(pid) * 100,
            namespace: Machine::here().unwrap().namespace,
            cgroup: cgroup.map(|path| Cgroup {
                path: path.to_owned(),
                inode: 7,
                top: None,
            }),
        }
    }

    #[test]
    fn a_process_is_of_the_container_in_whose_cgroup_it_is_under_each_kind_of_hierarchy() {
        let lines =
            "12:devices:/machine.slice/libpod-aa.scope/worker\n3:cpu,cpuacct:/other\n0::/system.slice/x.service\n";
        for (text, of_container) in [
            (
                "0::/machine.slice/libpod-aa.scope/worker\n",
                "/sys/fs/cgroup/machine.slice/libpod-aa.scope",
            ),
            (
                "0::/machine.slice/libpod-aa.scope\n",
                "/sys/fs/cgroup/machine.slice/libpod-aa.scope",
            ),
            // Hybrid: version 1 for resources, version 2 for systemd alone.
            (lines, "/sys/fs/cgroup/devices/machine.slice/libpod-aa.scope"),
            (
                "0::/machine.slice/libpod-aa.scope\n",
                "/sys/fs/cgroup/unified/machine.slice/libpod-aa.scope",
            ),
            (
                "4:name=systemd:/machine.slice/libpod-aa.scope\n",
                "/sys/fs/cgroup/systemd/machine.slice/libpod-aa.scope",
            ),
        ] {
            let tree = Tree::new();
            // A process that an engine started by exec does not descend from the init.
            tree.process(50, 1, text);
            tree.process(1, 0, "0::/init.scope\n");
            assert!(tree.is_of(50, &init(40, Some(of_container))), "{text}");
            let other = of_container.replace("libpod-aa", "libpod-a");
            assert!(!tree.is_of(50, &init(40, Some(&other))), "{text}");
            assert!(!tree.is_of(1, &init(40, Some(of_container))), "{text}");
        }
    }

    #[test]
    fn without_a_cgroup_of_its_own_a_container_has_the_descendants_of_its_init() {
        let tree = Tree::new();
        let engine = "0::/system.slice/engine.service\n";
        for (pid, parent) in [(1, 0), (40, 1), (41, 40), (42, 41), (50, 1)] {
            tree.process(pid, parent, engine);
        }
        let container = init(40, None);
        assert!([40, 41, 42].iter().all(|pid| tree.is_of(*pid, &container)));
        assert!(!tree.is_of(50, &container) && !tree.is_of(1, &container));
        let reused = InitProcess {
            start: 1,
            ..container.clone()
        };
        assert!(!tree.is_of(42, &reused), "the number was given to another process");
        let foreign = InitProcess {
            namespace: container.namespace + 1,
            ..container
        };
        assert!(!tree.is_of(42, &foreign), "its numbers and paths mean something else");
    }

    #[test]
    fn a_process_that_is_gone_has_no_lineage_and_a_loop_ends() {
        let tree = Tree::new();
        tree.process(7, 8, "");
        tree.process(8, 7, "");
        assert!(tree.machine().lineage(9).is_none());
        let found = tree.machine().lineage(7).unwrap();
        assert_eq!((found.command.as_str(), found.ancestors.len()), ("python7", 2));
        assert!(!found.is_of(&init(9, Some("/sys/fs/cgroup/devices/x"))));
    }
}
