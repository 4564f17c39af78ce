//! Containers of root's engine with a user namespace under crun, which starts a `createContainer` hook in the bundle's
//! directory as root of that namespace. podman keeps bundles where only root of the machine may go, so there crun
//! (1.8.1 and 1.21) starts no hook, and its message says nothing of that. A later crun may do better, so this is said
//! and nothing is refused.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tranche_core::error::Error;

/// The right of everybody to search a directory; shifted by 3 it is that of its group, by 6 that of its owner.
const SEARCH: u32 = 0o1;

/// Why `low_level` starts no hook of the container of `config`, and which runtime does: it is crun, and root of the
/// container's user namespace may not enter `bundle`.
pub(super) fn starts_no_hook(config: &[u8], bundle: &Path, low_level: &Path) -> Option<Error> {
    low_level.file_name().filter(|name| *name == "crun")?;
    // A configuration that does not parse is for crun to refuse.
    let config: Value = serde_json::from_slice(config).ok()?;
    let hooks = config["hooks"]["createContainer"].as_array()?;
    let root = root_outside(&config).filter(|_| !hooks.is_empty())?;
    let closed = closed_to(root, bundle)?.display();
    let uid = root.0;
    let what = format!("its root, uid {uid} of the host, may not enter {closed}, and crun starts no hook then");
    Some(Error::failed("user namespace", what).hint("start the container with runc (podman --runtime runc)"))
}

/// The uid and the gid on the host of root in the container's user namespace; `None` if it has none of its own.
fn root_outside(config: &Value) -> Option<(u32, u32)> {
    let outside = |mappings: &str| {
        let mappings = config["linux"][mappings].as_array()?;
        let root = mappings.iter().find(|mapping| mapping["containerID"] == 0)?;
        u32::try_from(root["hostID"].as_u64()?).ok()
    };
    Some((outside("uidMappings")?, outside("gidMappings")?))
}

/// The first directory on the way to `bundle` that this user and group may not search.
fn closed_to((uid, gid): (u32, u32), bundle: &Path) -> Option<&Path> {
    let may_search = |directory: &fs::Metadata| {
        let class = match () {
            () if directory.uid() == uid => 6,
            () if directory.gid() == gid => 3,
            () => 0,
        };
        uid == 0 || directory.mode() >> class & SEARCH != 0
    };
    let above: Vec<&Path> = bundle.ancestors().collect();
    let is_closed = |path: &&Path| fs::metadata(path).is_ok_and(|directory| !may_search(&directory));
    above.into_iter().rev().find(is_closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_is_said_of_crun_where_root_of_the_namespace_may_not_enter_the_bundle() {
        let top = tempfile::tempdir().unwrap();
        let set = |mode: u32| fs::set_permissions(top.path(), PermissionsExt::from_mode(mode)).unwrap();
        let bundle = top.path().join("bundle");
        fs::create_dir(&bundle).unwrap();
        fs::set_permissions(&bundle, PermissionsExt::from_mode(0o711)).unwrap();
        let config = json!({
            "hooks": {"createContainer": [{"path": "/hook"}]},
            "linux": {
                "uidMappings": [{"containerID": 0, "hostID": 4_000_000, "size": 65536}],
                "gidMappings": [{"containerID": 0, "hostID": 4_000_000, "size": 65536}],
            },
        });
        let is_said = |config: &Value, runtime: &str| {
            let config = serde_json::to_vec(config).unwrap();
            starts_no_hook(&config, &bundle, Path::new(runtime)).is_some()
        };
        set(0o700);
        assert!(is_said(&config, "/usr/bin/crun"));
        assert!(!is_said(&config, "/usr/bin/runc"));
        set(0o711);
        assert!(!is_said(&config, "/usr/bin/crun"));
        set(0o700);
        for (pointer, value) in [
            ("/hooks/createContainer", json!([])),
            ("/linux/uidMappings", json!(null)),
            ("/linux/uidMappings/0/hostID", json!(0)),
        ] {
            let mut other = config.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert!(!is_said(&other, "/usr/bin/crun"), "{pointer}");
        }
    }
}
