//! The world as this machine has it: processes in `/proc`, cgroups, clocks.
//!
//! The reader may be in other namespaces than the container whose claim it checks, and `/proc` or a part of it may be
//! covered by a mount. Nothing of that may make a process look as if it had ended. So a process is judged only by one
//! who is in the pid namespace that the claim names, and the kernel's word that a number is free decides, not a missing
//! file. The boot says nothing: its number in `/proc` is another one in a container of systemd-nspawn. After a reboot,
//! no process has both the number and the start of an earlier one, or it keeps the claim until it ends.

mod cgroup;
mod end;
mod lineage;
mod proc_files;
mod time;

pub use end::EndSign;
pub use lineage::Lineage;

use super::book::World;
use super::claim::Cgroup;
use super::claim::InitProcess;
use crate::error::{Context, Error, Result};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use proc_files::ProcFiles;
use std::io::ErrorKind;
use std::path::PathBuf;
use time::Offset;

/// The most processes that are looked at for one of a pid namespace, which may happen while the ledger is locked.
const MOST_LOOKED_AT: usize = 32 << 10;

/// What is in the place of a cgroup now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupState {
    /// It was removed; a later one may have its name.
    Gone,
    /// It exists, and is one of version 1.
    Version1,
    /// It exists, and is one of version 2.
    Version2,
}

/// This machine, as seen from this process.
#[derive(Debug, Clone)]
pub struct Machine {
    proc: ProcFiles,
    namespace: u64,
    offset: Offset,
}

impl Machine {
    /// Looks at `/proc`.
    ///
    /// # Errors
    /// Returns an error if `/proc` does not show this process's pid namespace or the offset of its time namespace, or
    /// if it shows the processes of another pid namespace: then the claim of one process could be taken for that of
    /// another.
    pub fn here() -> Result<Self> {
        let proc = ProcFiles::open()?;
        let name = "self/ns/pid";
        let namespace = proc
            .namespace(name)
            .about(proc.path(name).display(), "cannot be read")?;
        let offset = Offset::read(&proc)?;
        Ok(Self {
            proc,
            namespace,
            offset,
        })
    }

    /// The init of a container, as it is now, with the cgroup of the container.
    ///
    /// # Errors
    /// Returns an error if there is no such process.
    pub fn process(&self, pid: u32) -> Result<InitProcess> {
        let start = self
            .start_of(pid)?
            .ok_or_else(|| Error::failed(format!("process {pid}"), "has ended or does not exist"))?;
        Ok(InitProcess {
            pid,
            start,
            namespace: self.namespace,
            cgroup: cgroup::of(&self.proc, pid),
        })
    }

    /// Whether process `pid` is in the cgroups in which the kubelet of Kubernetes keeps its pods.
    pub fn is_in_pods(&self, pid: u32) -> bool {
        cgroup::is_in_pods(&self.proc, pid)
    }

    /// Directories that may be the cgroups of process `pid`, in every hierarchy that engines use. Some may not exist.
    pub fn cgroup_directories(&self, pid: u32) -> Vec<PathBuf> {
        cgroup::directories(&self.proc, pid)
    }

    /// The numbers of the processes of a container, as far as they can be known: those of its cgroup. Without a cgroup
    /// of its own, those of its pid namespace, or its init alone if it has none of its own either. Takes the longer the
    /// more there are: never under the lock of the ledger.
    ///
    /// # Errors
    /// Returns an error if the cgroup or `/proc` cannot be read, or if the cgroup has too many below it.
    pub fn processes(&self, init: &InitProcess) -> Result<Vec<u32>> {
        if let Some(cgroup) = &init.cgroup {
            return cgroup::processes(cgroup).about(&cgroup.path, "cannot be read");
        }
        if init.namespace != self.namespace || self.has_ended(init) {
            return Ok(Vec::new());
        }
        let namespace = |pid: u32| self.proc.namespace(&format!("{pid}/ns/pid"));
        let of_init = namespace(init.pid).about(format!("process {}", init.pid), "cannot be looked at")?;
        if of_init == self.namespace {
            return Ok(vec![init.pid]);
        }
        let pids = self.proc.processes();
        let pids = pids.about(self.proc.path("").display(), "cannot be listed")?;
        Ok(pids
            .into_iter()
            .filter(|pid| namespace(*pid).is_ok_and(|other| other == of_init))
            .collect())
    }

    /// Whether process `pid` is one of the container with this init, as [`Machine::processes`]. Looks at this process
    /// alone.
    ///
    /// # Errors
    /// Returns an error if the cgroup of the container cannot be looked at.
    pub fn has_process(&self, init: &InitProcess, pid: u32) -> Result<bool> {
        if let Some(own) = &init.cgroup {
            let is_below = |directory: &PathBuf| directory.starts_with(&own.path);
            return Ok(self.cgroup(own)? != CgroupState::Gone && self.cgroup_directories(pid).iter().any(is_below));
        }
        if init.namespace != self.namespace || self.has_ended(init) {
            return Ok(false);
        }
        let namespace = |pid: u32| self.proc.namespace(&format!("{pid}/ns/pid")).ok();
        Ok(match namespace(init.pid) {
            Some(of_init) if of_init != self.namespace => namespace(pid) == Some(of_init),
            _ => pid == init.pid,
        })
    }

    /// Whether it cannot be seen when the last process of a container ends: its cgroup has too many others below it, of
    /// a version that does not say whether they have processes. It then counts as running.
    pub fn cannot_see_the_end_of(&self, init: &InitProcess) -> bool {
        init.namespace == self.namespace && init.cgroup.as_ref().is_some_and(cgroup::is_too_large)
    }

    /// Whether a cgroup still exists, and of which version it is.
    ///
    /// # Errors
    /// Returns an error if its place cannot be looked at.
    pub fn cgroup(&self, cgroup: &Cgroup) -> Result<CgroupState> {
        cgroup::state(cgroup).about(&cgroup.path, "cannot be looked at")
    }

    /// A process that creates a container, as it is now. Its cgroup is not the container's and is left out: it may be
    /// the engine's, which would keep for ever what is reserved.
    ///
    /// # Errors
    /// Returns an error if there is no such process.
    pub fn creator(&self, pid: u32) -> Result<InitProcess> {
        Ok(InitProcess {
            cgroup: None,
            ..self.process(pid)?
        })
    }

    /// When a process was started, in ticks since boot; `None` if it does not exist. That includes a zombie, which
    /// holds no device.
    fn start_of(&self, pid: u32) -> Result<Option<u64>> {
        match self.stat_of(pid)? {
            Some(stat) if !stat.is_over() => Ok(Some(self.offset.without(stat.start))),
            _ => Ok(None),
        }
    }

    /// What `/proc` says of a process; `None` if it does not show the process.
    fn stat_of(&self, pid: u32) -> Result<Option<Stat>> {
        let name = format!("{pid}/stat");
        let about = || self.proc.path(&name);
        match self.proc.read(&name) {
            Ok(line) => match stat(&line) {
                Some(stat) => Ok(Some(stat)),
                None => Err(Error::failed(about().display(), "is not what the kernel writes")),
            },
            // ESRCH: it ended between the opening and the reading.
            Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::ESRCH as i32) => Ok(None),
            Err(e) => Err(Error::failed(about().display(), "cannot be read").from_source(e)),
        }
    }

    /// Whether the init itself is gone for certain, whatever its cgroup holds.
    pub fn has_ended(&self, process: &InitProcess) -> bool {
        // The cheapest question first, since a thousand processes may be looked at.
        if is_free(process.pid) {
            return true;
        }
        match self.stat_of(process.pid) {
            // A number that is in use may be another process's by now.
            Ok(Some(stat)) => stat.is_over() || !time::is_same(self.offset.without(stat.start), process.start),
            // It ended since, or its file is hidden from this process, which says nothing.
            Ok(None) | Err(_) => is_free(process.pid),
        }
    }

    /// Whether any process that can be seen from here is in a pid namespace. From the first pid namespace all processes
    /// of the machine are seen. Of more processes than are looked at, one may be in it.
    fn has_processes(&self, namespace: u64) -> bool {
        let Ok(pids) = self.proc.processes() else {
            return true;
        };
        if pids.len() > MOST_LOOKED_AT {
            return true;
        }
        let mut namespaces = pids
            .into_iter()
            .map(|pid| self.proc.namespace(&format!("{pid}/ns/pid")));
        namespaces.any(|of_process| of_process.is_ok_and(|of_process| of_process == namespace))
    }
}

/// Whether no process has the number `pid` in the pid namespace of this process. The kernel says so, whatever is
/// mounted.
fn is_free(pid: u32) -> bool {
    match i32::try_from(pid) {
        Ok(pid) => kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH),
        // The kernel gives no such number (proc(5), `pid_max`).
        Err(_) => true,
    }
}

/// What a line of `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    state: char,
    parent: u32,
    /// Ticks since boot.
    pub(crate) start: u64,
}

impl Stat {
    /// Whether the process has ended, although its parent has not asked how.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads a line of `/proc/PID/stat`. The second field is the program's name in parentheses, which the
/// program chooses: parentheses, spaces and bytes that are no text too. The fields count from the last `)` (proc(5)).
pub(crate) fn stat(line: &[u8]) -> Option<Stat> {
    let name_ends = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(name_ends + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start })
}

impl World for Machine {
    // Many rules ask these two, and each copy of them would make tranche-oci larger.
    #[inline(never)]
    fn is_gone(&self, process: &InitProcess) -> bool {
        // In a foreign pid namespace the number means another process or none, and paths of cgroups may differ there
        // too: only its own engine can say.
        process.namespace == self.namespace
            && self.has_ended(process)
            && process.cgroup.as_ref().is_none_or(cgroup::is_empty)
    }

    #[inline(never)]
    fn lives(&self, process: &InitProcess) -> bool {
        process.namespace == self.namespace
            && (matches!(self.start_of(process.pid), Ok(Some(start)) if time::is_same(start, process.start))
                || process.cgroup.as_ref().is_some_and(cgroup::has_processes))
    }

    fn may_live(&self, process: &InitProcess) -> bool {
        self.lives(process) || (process.namespace != self.namespace && self.has_processes(process.namespace))
    }

    fn now(&self) -> u64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_secs())
    }

    fn uptime(&self) -> u64 {
        use nix::time::{ClockId, clock_gettime};
        // This clock continues while the machine sleeps, and cannot be set. A time namespace shifts it.
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| self.offset.seconds_without(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_name_full_of_parentheses_is_a_name() {
        let line = b"42 (a) R 1 (b\xff) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let expected = Stat {
            state: 'S',
            parent: 1,
            start: 777,
        };
        assert_eq!(stat(line), Some(expected));
        assert_eq!(stat(b"42 (a S"), None);
    }

    #[test]
    fn this_process_is_here_and_its_number_alone_is_not_it() {
        let machine = Machine::here().unwrap();
        let me = machine.process(std::process::id()).unwrap();
        assert!(!machine.is_gone(&me) && machine.lives(&me));
        let reused = InitProcess {
            start: me.start + 2,
            ..me.clone()
        };
        assert!(
            machine.is_gone(&reused) && !machine.lives(&reused),
            "a number that was given to another process"
        );
        let elsewhere = InitProcess {
            namespace: me.namespace + 1,
            pid: 4_000_000,
            ..me
        };
        assert!(!machine.is_gone(&elsewhere), "a foreign namespace cannot be judged");
        assert!(!machine.lives(&elsewhere), "nor seen to live");
    }

    #[test]
    fn a_zombie_holds_nothing() {
        let machine = Machine::here().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let as_started = machine.process(child.id());
        std::thread::sleep(std::time::Duration::from_millis(200));
        if let Ok(process) = as_started {
            assert!(machine.is_gone(&process));
        }
        assert!(machine.process(child.id()).is_err());
        child.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        let proc = tempfile::tempdir().unwrap();
        let machine = Machine {
            proc: ProcFiles::at(proc.path()).unwrap(),
            ..Machine::here().unwrap()
        };
        let me = Machine::here().unwrap().process(std::process::id()).unwrap();
        assert_eq!(machine.start_of(me.pid).unwrap(), None, "it is not there");
        assert!(
            !machine.is_gone(&me),
            "the kernel knows it, although its files are hidden"
        );
        let never = InitProcess {
            pid: u32::MAX,
            ..me.clone()
        };
        assert!(machine.is_gone(&never));
        fs::create_dir_all(proc.path().join(format!("{}/stat", me.pid))).unwrap();
        let error = machine.start_of(me.pid).unwrap_err().to_string();
        assert!(error.ends_with("stat: cannot be read"), "{error}");
        assert!(!machine.is_gone(&me));
    }

    #[test]
    fn a_process_may_live_while_its_pid_namespace_has_processes() {
        let proc = tempfile::tempdir().unwrap();
        let place = |name: &str, namespace: u64| {
            let link = proc.path().join(name).join("ns/pid");
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(format!("pid:[{namespace}]"), &link).unwrap();
            namespace
        };
        let (of_a_process, of_no_process) = (place("77", 7), place("self", 8));
        let machine = Machine {
            proc: ProcFiles::at(proc.path()).unwrap(),
            ..Machine::here().unwrap()
        };
        let process = |namespace: u64| InitProcess {
            pid: 1,
            start: 1,
            namespace,
            cgroup: None,
        };
        assert!(machine.may_live(&process(of_a_process)));
        assert!(!machine.may_live(&process(of_no_process)));
        let here = Machine::here().unwrap();
        let me = here.process(std::process::id()).unwrap();
        assert!(here.may_live(&me));
        let reused = InitProcess {
            start: me.start + 2,
            ..me
        };
        assert!(!here.may_live(&reused), "it is seen to be gone");
    }

    #[test]
    fn clocks_are_the_machines() {
        let machine = Machine::here().unwrap();
        let uptime = || {
            let text = fs::read_to_string("/proc/uptime").unwrap();
            text.split('.').next().unwrap().parse::<u64>().unwrap()
        };
        let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let (up, time) = (uptime(), now());
        assert!((up..=up + 600).contains(&machine.uptime()), "{up}");
        assert!((time..=time + 600).contains(&machine.now()), "{time}");
    }
}
