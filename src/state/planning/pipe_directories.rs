//! The directories of MPS daemons' sockets, which specifications mount into containers.
//!
//! Engines mount before they run hooks, so the program that writes a specification makes the directories. They are in
//! `/run`, which is empty after a boot. A specification in `/etc/cdi` is still there then, and would keep its
//! containers from starting. So systemd-tmpfiles gets a file that makes the directories at boot (tmpfiles.d(5)).

use crate::replace;
use rustix::fs::statfs;
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_core::types::HostPath;
use tranche_plan::derive::Sharing;
use tranche_plan::share::{Need, Plan};

/// Where administrators' files for systemd-tmpfiles are (tmpfiles.d(5)).
pub const DIRECTORY: &str = "/etc/tmpfiles.d";

/// The file for systemd-tmpfiles in its directory.
const FILE: &str = "tranche-mps.conf";

/// The first line of that file. A file without it is another program's.
const HEADER: &str = "# Made by tranche: engines mount these directories before the hooks of a container run.";

/// `TMPFS_MAGIC` (statfs(2)).
const TMPFS: i64 = 0x0102_1994;

/// Makes the pipe directories of `sharing`.
///
/// # Errors
/// Returns an error if a directory cannot be made.
pub fn make(sharing: &Sharing) -> Result<()> {
    of(&sharing.plan, &sharing.state_dir)
        .iter()
        .try_for_each(|dir| replace::make_directory(dir.as_path()))
}

/// As [`make`], for a specification in the directory `of_spec`. If that directory outlives a boot and the pipe
/// directories do not, the file for systemd-tmpfiles in `tmpfiles` is written as well, and without a device under MPS
/// it is removed. Returns a line for people if nothing makes the directories at boot.
///
/// # Errors
/// As [`make`], and if the file cannot be written.
pub fn make_for(sharing: Option<&Sharing>, of_spec: &Path, tmpfiles: &Path) -> Result<Option<String>> {
    let pipes = sharing.map(|sharing| of(&sharing.plan, &sharing.state_dir));
    let pipes = pipes.unwrap_or_default();
    pipes
        .iter()
        .try_for_each(|dir| replace::make_directory(dir.as_path()))?;
    let file = tmpfiles.join(FILE);
    if is_in_memory(of_spec) {
        return Ok(None);
    }
    let lost: Vec<&HostPath> = pipes.iter().filter(|dir| is_in_memory(dir.as_path())).collect();
    if lost.is_empty() {
        return remove_own(&file).map(|()| None);
    }
    if !tmpfiles.is_dir() {
        return Ok(Some(format!(
            "{}: not found, so nothing makes {} at boot: run this command again at each boot, before containers start",
            tmpfiles.display(),
            lost.iter().map(|dir| dir.as_str()).collect::<Vec<_>>().join(", ")
        )));
    }
    replace::write(&file, &text(&lost)).map(|()| None)
}

/// The pipe directories of the daemons that `plan` needs.
pub fn of(plan: &Plan, state_dir: &HostPath) -> Vec<HostPath> {
    let needs = plan.devices.iter().flat_map(|split| split.needs(state_dir));
    needs
        .filter_map(|need| match need {
            Need::MpsDaemon { pipe, .. } => Some(pipe),
            _ => None,
        })
        .collect()
}

/// The lines for systemd-tmpfiles.
fn text(pipes: &[&HostPath]) -> String {
    let mut text = format!("{HEADER}\n");
    for pipe in pipes {
        // Spaces and percent signs have a meaning in this format.
        let path = pipe.as_str().replace('%', "%%").replace(' ', "\\x20");
        text.push_str(&format!("d {path} 0755 root root -\n"));
    }
    text
}

/// The file for systemd-tmpfiles that an earlier run wrote, if there is one.
pub fn own_file(tmpfiles: &Path) -> Option<PathBuf> {
    Some(tmpfiles.join(FILE)).filter(|file| is_own(file))
}

/// Removes the file that an earlier run wrote.
fn remove_own(file: &Path) -> Result<()> {
    match is_own(file) {
        true => fs::remove_file(file).about(file.display(), "cannot be removed"),
        false => Ok(()),
    }
}

fn is_own(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.starts_with(HEADER))
}

/// Whether what is in `dir` is gone after a boot. Of a directory that does not exist yet, the nearest parent decides.
fn is_in_memory(dir: &Path) -> bool {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let existing: Option<PathBuf> = dir.ancestors().find(|dir| dir.exists()).map(Path::to_owned);
    existing.is_some_and(|dir| statfs(&dir).is_ok_and(|system| system.f_type == TMPFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_line_makes_one_directory_and_nothing_else() {
        let path = HostPath::new("/run/a b%h/0").unwrap();
        assert_eq!(
            text(&[&path]),
            format!("{HEADER}\nd /run/a\\x20b%%h/0 0755 root root -\n")
        );
    }

    #[test]
    fn a_pipe_directory_and_its_parents_are_open_to_all() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("mps/0");
        replace::make_directory(&dir).unwrap();
        for dir in [dir.as_path(), &top.path().join("mps")] {
            assert_eq!(
                fs::metadata(dir).unwrap().permissions().mode() & 0o777,
                0o755,
                "{}",
                dir.display()
            );
        }
        replace::make_directory(&dir).unwrap();
        let file = top.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(
            replace::make_directory(&file)
                .unwrap_err()
                .to_string()
                .contains("is not a directory")
        );
    }

    #[test]
    fn another_program_s_file_is_left_alone() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join(FILE);
        remove_own(&file).unwrap();
        fs::write(&file, "d /run/x\n").unwrap();
        remove_own(&file).unwrap();
        assert!(file.exists());
        fs::write(&file, text(&[])).unwrap();
        remove_own(&file).unwrap();
        assert!(!file.exists());
    }
}
