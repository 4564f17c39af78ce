//! Device nodes that logind gives to the users of seats.

use std::fs;
use std::path::Path;
use tranche_core::error::{Error, Result};
use tranche_plan::inventory::{DeviceNode, Inventory};

/// Where udev names nodes with the tag `uaccess`: those of modules that are not loaded, by their names, and devices,
/// by their numbers (systemd: static-nodes, `c195:0`).
const STATIC: &str = "run/udev/static_node-tags/uaccess";
const TAGGED: &str = "run/udev/tags/uaccess";

/// Refuses nodes with the tag `uaccess`: at each change of a seat, logind removes all users from their lists, also
/// those of tranche (systemd, `devnode_acl`). `root` is the directory that is `/`.
///
/// # Errors
/// Returns an error that names the nodes.
pub fn check(inventory: &Inventory, root: &Path) -> Result<()> {
    let names = |dir: &str| {
        let entries = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect::<Vec<_>>()
    };
    let of_gpus = inventory.gpus.iter().filter_map(|gpu| gpu.node.as_ref());
    let tag = |node: &DeviceNode| format!("c{}:{}", node.major, node.minor);
    let tags: Vec<String> = of_gpus.map(tag).collect();
    let by_name = names(STATIC).into_iter().filter(|name| name.starts_with("nvidia"));
    let mut found: Vec<String> = by_name
        .chain(names(TAGGED).into_iter().filter(|tagged| tags.contains(tagged)))
        .collect();
    found.sort();
    match found.is_empty() {
        true => Ok(()),
        false => Err(Error::failed(
            "device nodes",
            format!(
                "have the tag uaccess of udev ({}), so that logind removes all users from their lists when a seat changes",
                tranche_core::text::some(&found)
            ),
        )
        .hint("remove the rule of udev that sets the tag, and restart")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_nodes_are_found_by_name_and_by_number() {
        let top = tempfile::tempdir().unwrap();
        let inventory = tranche_plan::sim::open("t4x2").unwrap();
        for (dir, name, is_refused) in [
            (STATIC, "snd\\x2fseq", false),
            (TAGGED, "c116:1", false),
            (STATIC, "nvidia1", true),
        ] {
            fs::create_dir_all(top.path().join(dir)).unwrap();
            fs::write(top.path().join(dir).join(name), "").unwrap();
            assert_eq!(check(&inventory, top.path()).is_err(), is_refused, "{name}");
        }
        fs::remove_file(top.path().join(STATIC).join("nvidia1")).unwrap();
        let node = inventory.gpus[1].node.as_ref().unwrap();
        let tag = format!("c{}:{}", node.major, node.minor);
        fs::write(top.path().join(TAGGED).join(&tag), "").unwrap();
        let error = check(&inventory, top.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("({tag})")), "{error}");
    }
}
