//! The run-time directory of the user whose engine runs a hook.

use crate::error::{Context, Error, Result};
use nix::unistd::geteuid;
use std::fs;
use std::path::PathBuf;

/// The run-time directory of this process's user by convention (pam_systemd(8)). A hook has no environment variable for
/// it. In a user namespace the user has another number, so the number outside is read from /proc.
///
/// # Errors
/// Returns an error if /proc does not have the number.
pub(super) fn runtime_dir() -> Result<PathBuf> {
    const MAP: &str = "/proc/self/uid_map";
    let map = fs::read_to_string(MAP).about(MAP, "cannot be read")?;
    let uid = outside(&map, geteuid().as_raw());
    let uid = uid.ok_or_else(|| Error::failed(MAP, "does not have the user of this process"))?;
    Ok(PathBuf::from(format!("/run/user/{uid}")))
}

/// The number of the user `uid` outside of the user namespace with this map (user_namespaces(7)).
fn outside(map: &str, uid: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let within = uid.checked_sub(inside).filter(|within| *within < count)?;
        outside.checked_add(within)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_outside_is_found_in_the_map() {
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(outside(rootless, 0), Some(1000));
        assert_eq!(outside(rootless, 1), Some(100_000));
        assert_eq!(outside(rootless, 65_537), None);
        assert_eq!(outside("0 0 4294967295\n", 1000), Some(1000));
        assert_eq!(outside("", 0), None);
        assert_eq!(outside("0 x 1", 0), None);
    }
}
