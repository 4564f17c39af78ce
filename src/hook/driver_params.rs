//! `/proc/driver/nvidia/params` as a container should see it.
//!
//! If this file has `ModifyDeviceFiles: 1`, the driver's libraries make missing device nodes and set the modes of
//! existing ones. A container would get nodes that nobody requested, so a copy of the file with 0 is mounted over it.
//!
//! The content is read from the host's /proc, which hooks still see. The file at that path in the container is never
//! read. It is covered only if it is a file of a proc file system that is mounted on the container's /proc.

use std::io::{self, ErrorKind};

use super::report::HookReport;
use tranche_core::oci::Bundle;
use tranche_core::root::{Permissions, read_host_proc};

/// The path below /proc.
const PARAMS: [&str; 3] = ["driver", "nvidia", "params"];
/// The driver's file has about a kilobyte.
const MAX_PARAMS: u64 = 64 << 10;
/// The mode that the driver gives the file.
const MODE: Permissions = Permissions::new_file(0o444);

/// Covers the container's file with the copy. A failure is reported and does not fail the start, because the engine
/// also forbids device nodes that were not requested.
pub(super) fn turn_off(bundle: &Bundle, report: &mut HookReport<'_>) {
    if let Err(error) = cover(bundle, &PARAMS) {
        let object = format!("/proc/{}", PARAMS.join("/"));
        report.note(object, format_args!("device-node modification stays on: {error}"));
    }
}

fn cover(bundle: &Bundle, path: &[&str]) -> io::Result<()> {
    let bytes = match read_host_proc(path, MAX_PARAMS) {
        // Without the driver, nothing reads the container's file.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        read => read?,
    };
    let Some(text) = without_modification(&String::from_utf8_lossy(&bytes)) else {
        return Ok(());
    };
    let target = match bundle.root.file_in_proc(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        found => found?,
    };
    bundle.root.cover_in_proc(&target, text.as_bytes(), MODE)
}

/// The host's text with the modification of device files turned off; `None` if it is not turned on.
pub(crate) fn without_modification(text: &str) -> Option<String> {
    const ON: &str = "ModifyDeviceFiles: 1";
    const OFF: &str = "ModifyDeviceFiles: 0";
    text.lines().any(|line| line == ON).then(|| {
        let lines = text.lines().map(|line| if line == ON { OFF } else { line });
        lines.flat_map(|line| [line, "\n"]).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::mount::{MsFlags, mount, umount};

    use super::*;
    use crate::own_mounts::with_own_mounts;
    use tranche_core::oci::{Reached, State};

    /// Covers a file of /proc that is there without a driver: the arguments of a process.
    #[test]
    fn a_file_of_the_containers_proc_is_covered_by_a_copy_of_the_hosts() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("not run: hook::driver_params: not root");
            return;
        }
        let mut process = Command::new("sleep")
            .arg0("A: 1\nModifyDeviceFiles: 1\n")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = process.id().to_string();
        // A process has its arguments a moment after its start.
        while !fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"A: 1") {
            std::thread::yield_now();
        }
        let ended = with_own_mounts(|| {
            let top = tempfile::tempdir().unwrap();
            fs::create_dir_all(top.path().join("root/proc")).unwrap();
            fs::write(top.path().join("config.json"), r#"{"root":{"path":"root"}}"#).unwrap();
            let state = format!(r#"{{"bundle":"{}"}}"#, top.path().display());
            let state = State::parse(state.as_bytes()).unwrap();
            let Reached::Bundle(bundle) = Bundle::find(&state).unwrap() else {
                panic!("the bundle may be opened");
            };
            let path = [pid.as_str(), "cmdline"];
            assert!(cover(&bundle, &path).is_err(), "no proc is mounted yet");
            let proc = top.path().join("root/proc");
            mount(Some("proc"), &proc, Some("proc"), MsFlags::empty(), None::<&str>).unwrap();
            let at = proc.join(&pid).join("cmdline");
            // A runtime that hides files of /proc: what is not there cannot say anything to a driver.
            mount(
                Some("tmpfs"),
                &proc.join(&pid),
                Some("tmpfs"),
                MsFlags::empty(),
                None::<&str>,
            )
            .unwrap();
            cover(&bundle, &path).unwrap();
            umount(&proc.join(&pid)).unwrap();
            cover(&bundle, &path).unwrap();
            assert_eq!(fs::read(&at).unwrap(), b"A: 1\nModifyDeviceFiles: 0\n\x0060\0\n");
            assert!(fs::write(&at, "").is_err(), "the cover cannot be written");
            let hosts = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            assert!(hosts.starts_with(b"A: 1\nModifyDeviceFiles: 1"), "the host's stays");
            // It is covered already, and what covers it is not a file of the container's /proc.
            assert!(
                cover(&bundle, &path)
                    .unwrap_err()
                    .to_string()
                    .starts_with("it is not a file")
            );
            mount(None::<&str>, &proc, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
            let stat = [pid.as_str(), "stat"];
            let found = bundle.root.file_in_proc(&stat).unwrap();
            let refused = bundle.root.cover_in_proc(&found, b"", MODE).unwrap_err();
            assert_eq!(refused.to_string(), "its mount is shared with the host");
        });
        process.kill().unwrap();
        process.wait().unwrap();
        ended.unwrap();
    }

    #[test]
    fn only_that_line_changes() {
        let host = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nRmMsg: \"\"\n";
        let container = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\nRmMsg: \"\"\n";
        assert_eq!(without_modification(host).as_deref(), Some(container));
        assert_eq!(without_modification(container), None);
        assert_eq!(without_modification("Other: 1\nXModifyDeviceFiles: 1\n"), None);
        assert_eq!(without_modification(""), None);
    }
}
