//! The daemons of NVIDIA's that run.

use crate::doctor::{DAEMONS, FoundDaemon};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The most characters of a program's name that the kernel keeps for a process (proc(5), `/proc/PID/comm`).
const COMM: usize = 15;

/// The most bytes of a command line that are read: the path of the program is at its beginning.
const MOST_BYTES: u64 = 4096;

/// The processes in `proc` that are one of [`DAEMONS`]. One that ends meanwhile is not.
pub(super) fn running(proc: &Path) -> Vec<FoundDaemon> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<FoundDaemon> = pids
        .filter_map(|pid| {
            let directory = proc.join(pid.to_string());
            let comm = fs::read_to_string(directory.join("comm")).ok()?;
            let short = |name: &&str| name.get(..COMM).unwrap_or(name) == comm.trim_end();
            // Two programs of MPS have the same short name.
            DAEMONS.into_iter().find(short)?;
            let name = program(&directory)?;
            let program = DAEMONS.into_iter().find(|known| *known == name)?;
            Some(FoundDaemon { program, pid })
        })
        .collect();
    found.sort_by_key(|daemon| daemon.pid);
    found
}

/// The name of the program of a process, without its directory.
fn program(process: &Path) -> Option<String> {
    let mut line = Vec::new();
    let file = File::open(process.join("cmdline")).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut line).ok()?;
    let first = line.split(|byte| *byte == 0).next()?;
    let path = String::from_utf8_lossy(first);
    Some(path.rsplit('/').next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_whole_name() {
        let proc = tempfile::tempdir().unwrap();
        let add = |pid: &str, comm: &str, line: &str| {
            let directory = proc.path().join(pid);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(directory.join("cmdline"), line).unwrap();
        };
        add("7", "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-control\0-d\0");
        add("8", "nvidia-cuda-mps", "nvidia-cuda-mps-server\0-force-tegra\0");
        add("9", "nvidia-imex", "/usr/bin/nvidia-imex\0-c\0x\0");
        add("10", "sh", "sh\0-c\0nvidia-imex\0");
        add("11", "nvidia-imex", "");
        fs::create_dir(proc.path().join("self")).unwrap();
        fs::create_dir(proc.path().join("12")).unwrap();
        let found: Vec<(u32, &str)> = running(proc.path()).iter().map(|one| (one.pid, one.program)).collect();
        assert_eq!(found, [(7, "nvidia-cuda-mps-control"), (9, "nvidia-imex")]);
        assert_eq!(running(&proc.path().join("missing")), []);
    }
}
