//! Whether this process sees the users of the machine.

/// Whether this process is in a user namespace that has not every user of the machine, as a rootless engine and its
/// hooks are. There, files of other users seem to belong to the user 65534 (`/proc/sys/kernel/overflowuid`), and root
/// is not root of the machine.
pub fn is_in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}
