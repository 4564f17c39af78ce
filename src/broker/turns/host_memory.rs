//! Whether the memory of suspended work fits into the memory of the machine and of its container. What the driver
//! copies there belongs to the suspended process, so the limit of its cgroup counts it.

use std::fs;
use std::path::{Path, PathBuf};

/// What is left to the machine besides, in bytes.
const RESERVE: u64 = 256 << 20;

/// How much suspended work the machine has memory for now, in bytes; `None` where the kernel does not say it.
pub fn room() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available(&meminfo).map(|available| available.saturating_sub(RESERVE))
}

/// Why `bytes` more do not fit; `None` if they do, and where the kernel says nothing. `containers` are those of the
/// work, each with the directories of its cgroups, of which the first with a limit counts.
pub(super) fn lacks(bytes: u64, mut containers: impl Iterator<Item = Vec<PathBuf>>) -> Option<String> {
    if let Some(room) = room().filter(|room| *room < bytes) {
        return Some(format!(
            "its {} MiB do not fit: the machine has room for {} MiB",
            bytes >> 20,
            room >> 20
        ));
    }
    containers.find_map(|cgroups| {
        let left = cgroups.iter().find_map(|cgroup| left_in(cgroup))?;
        (left < bytes).then(|| {
            let (bytes, left) = (bytes >> 20, left >> 20);
            format!("its {bytes} MiB do not fit: the limit of memory of its container leaves {left} MiB")
        })
    })
}

/// `MemAvailable`, in bytes (proc_meminfo(5)).
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// What a cgroup may have more, in bytes; `None` without a limit.
fn left_in(cgroup: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(cgroup.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = match number("memory.max") {
        Some(limit) => (limit, number("memory.current")?),
        None => (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?),
    };
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_each_container_has_to_have_room() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        let top = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(top.path().join(name), text).unwrap();
        assert_eq!(left_in(top.path()), None);
        for (limit, used) in [
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            ("memory.max", "memory.current"),
        ] {
            write(limit, "1073741824\n");
            write(used, "73741824\n");
            assert_eq!(left_in(top.path()), Some(1_000_000_000));
        }
        write("memory.max", "max\n");
        fs::remove_file(top.path().join("memory.limit_in_bytes")).unwrap();
        assert_eq!(left_in(top.path()), None, "no limit");
        write("memory.max", "1073741824\n");
        let container = || std::iter::once(vec![PathBuf::from("/nowhere"), top.path().to_owned()]);
        let refused = lacks(1_000_000_001, container()).unwrap();
        assert_eq!(
            refused,
            "its 953 MiB do not fit: the limit of memory of its container leaves 953 MiB"
        );
        assert_eq!(lacks(1 << 20, container()), None);
        assert!(
            lacks(1 << 60, std::iter::empty())
                .unwrap()
                .contains("the machine has room")
        );
    }
}
