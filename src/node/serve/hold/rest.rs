//! What else is in the cgroup of a holder that is being ended.

use super::ending::{handle, send};
use crate::serve::peer::owns;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::process::Signal;
use std::io;
use std::os::fd::OwnedFd;
use tranche_core::ledger::process::{CgroupState, Machine};
use tranche_core::ledger::{Cgroup, InitProcess};

/// Sends `signal` to each process of the user `uid` in the recorded cgroup. SIGKILL goes to the cgroup as a whole where
/// the kernel can do that (cgroup.kill of version 2), so that nothing forks away from it. Returns how many were there.
///
/// # Errors
/// Returns a line if the cgroup cannot be read, or if a process of another user is in it.
pub(super) fn signal(record: &InitProcess, uid: u32, machine: &Machine, signal: Signal) -> Result<usize, String> {
    let Some(cgroup) = &record.cgroup else { return Ok(0) };
    let list = || machine.processes(record).map_err(|error| error.to_string());
    let found: Vec<(u32, OwnedFd)> = list()?
        .into_iter()
        .filter_map(|pid| Some((pid, handle(pid)?)))
        .collect();
    // After the handles were opened: a number that is still listed is that of the handle's process, or this has ended.
    let now = list()?;
    let (own, others): (Vec<_>, Vec<_>) = found
        .iter()
        .filter(|(pid, _)| now.contains(pid))
        .partition(|(pid, _)| owns(uid, *pid));
    if signal == Signal::KILL
        && !own.is_empty()
        && others.is_empty()
        && machine.cgroup(cgroup).is_ok_and(|state| state == CgroupState::Version2)
        && kill_all(cgroup).is_ok()
    {
        return Ok(own.len());
    }
    for (_, process) in &own {
        send(process, signal)?;
    }
    // One that has ended since is nobody's.
    let is_there = |pid: &u32| machine.process(*pid).is_ok() && !owns(uid, *pid);
    match others.iter().map(|(pid, _)| pid).find(|pid| is_there(pid)) {
        Some(pid) => Err(format!("process {pid} of its cgroup is not the user's")),
        None => Ok(own.len()),
    }
}

/// Writes the file that kills all processes of a cgroup. It fails if another cgroup is in its place.
fn kill_all(cgroup: &Cgroup) -> io::Result<()> {
    let directory = openat(
        CWD,
        &cgroup.path,
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if fstat(&directory)?.st_ino != cgroup.inode {
        return Err(io::Error::other("is another cgroup"));
    }
    let file = openat(
        directory,
        "cgroup.kill",
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(file, b"1")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_cgroup::TestCgroup;
    use std::fs;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A process of `uid` that ignores SIGTERM.
    fn stubborn(uid: u32) -> Child {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            "--clear-groups".into(),
        ]);
        command.args(["sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // The shell writes a line when it ignores the signal.
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        child
    }

    #[test]
    fn what_ignores_sigterm_is_killed_with_the_rest_of_its_cgroup_and_with_nobody_else_s() {
        let test = "serve::hold::rest::what_ignores_sigterm_is_killed_with_the_rest_of_its_cgroup";
        if !nix::unistd::geteuid().is_root() {
            println!("not run: {test}: not root");
            return;
        }
        let cgroup = match TestCgroup::new("rest") {
            Ok(cgroup) => cgroup,
            Err(why) => {
                println!("not run: {test}: {why}");
                return;
            }
        };
        let machine = Machine::here().unwrap();
        // The children of the shells are their own, and end by themselves.
        let [mut init, mut left, mut other] = [65533, 65533, 65532].map(stubborn);
        cgroup.add(init.id());
        let mut record = machine.process(init.id()).unwrap();
        // A child of the shell may be in it already, and then it is not taken for its own.
        let path = cgroup.0.to_str().unwrap().to_owned();
        record.cgroup = Some(Cgroup {
            inode: std::os::linux::fs::MetadataExt::st_ino(&fs::metadata(&path).unwrap()),
            path,
            top: None,
        });
        cgroup.add(left.id());
        cgroup.add(other.id());
        let (mut ending, what) = super::super::ending::tests::begin(&record, 65533, &machine);
        assert_eq!(what, "asked to end, by SIGTERM");
        let grace = Duration::from_secs(10);
        assert_eq!(ending.go_on(grace, &machine, 1009), Ok(None));
        assert!(
            [&mut init, &mut left]
                .into_iter()
                .all(|one| one.try_wait().unwrap().is_none())
        );
        let told = ending.go_on(grace, &machine, 1010).unwrap_err();
        assert!(told.ends_with("of its cgroup is not the user's"), "{told}");
        for child in [&mut init, &mut left] {
            let status = child.wait().unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        }
        assert!(other.try_wait().unwrap().is_none(), "it is another user's");
        other.kill().unwrap();
        other.wait().unwrap();

        // What outlives an init that has ended is ended without it.
        let mut left = stubborn(65533);
        cgroup.add(left.id());
        let (mut ending, _) = super::super::ending::tests::begin(&record, 65533, &machine);
        let killed = ending.go_on(grace, &machine, 1010).unwrap();
        assert_eq!(
            killed.as_deref(),
            Some("killed, because it has not ended within the grace")
        );
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&left.wait().unwrap()),
            Some(9)
        );
    }
}
