//! As which user the processes of a claim connect to the MPS daemon.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tranche_core::ledger::{Claim, Holder, InitProcess};
use tranche_core::root::HostDirectory;

/// The largest configuration of a container that is read.
const MOST_BYTES: u64 = 16 << 20;

/// The user of the processes of `claim`, by its id on the host. Of a container of an engine that runs as root, that is
/// the one that its configuration names, in its user namespace; of every other claim, the user to whom it belongs.
pub(super) fn client_uid(claim: &Claim) -> u32 {
    let Holder::Container(container) = &claim.holder else {
        return claim.uid;
    };
    let inside = configured(Path::new(&container.bundle)).unwrap_or(0);
    let mapped = claim.process.as_ref().and_then(|init| on_host(init, inside));
    mapped.unwrap_or(inside)
}

/// `process.user.uid` of the configuration in a bundle.
fn configured(bundle: &Path) -> Option<u32> {
    let bytes = HostDirectory::open(bundle)
        .ok()?
        .read("config.json".as_ref(), MOST_BYTES)
        .ok()?;
    let config: Value = serde_json::from_slice(&bytes).ok()?;
    config["process"]["user"]["uid"].as_u64()?.try_into().ok()
}

/// The uid on the host that is `inside` in the user namespace of a process (user_namespaces(7), `uid_map`).
fn on_host(init: &InitProcess, inside: u32) -> Option<u32> {
    // In another pid namespace, the number is another process's.
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let map = (namespace == init.namespace).then(|| fs::read_to_string(format!("/proc/{}/uid_map", init.pid)))?;
    mapped(&map.ok()?, inside)
}

fn mapped(map: &str, inside: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [first, outside, count] = numbers[..] else {
            return None;
        };
        let offset = u64::from(inside).checked_sub(first).filter(|offset| *offset < count)?;
        u32::try_from(outside + offset).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_of_a_namespace_is_another_one_on_the_host() {
        assert_eq!(mapped("         0          0 4294967295\n", 1000), Some(1000));
        let map = "0 1000 1\n1 100000 65536\n";
        assert_eq!(
            (mapped(map, 0), mapped(map, 1), mapped(map, 1000)),
            (Some(1000), Some(100000), Some(100999))
        );
        assert_eq!((mapped(map, 70000), mapped("", 0)), (None, None));
    }

    #[test]
    fn the_user_is_the_one_of_the_configuration() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(configured(bundle.path()), None);
        fs::write(
            bundle.path().join("config.json"),
            r#"{"process":{"user":{"uid":1000,"gid":5}}}"#,
        )
        .unwrap();
        assert_eq!(configured(bundle.path()), Some(1000));
    }
}
