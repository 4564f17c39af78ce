//! From the id in a command to the container that holds something in the ledger.
//!
//! Two engines, or two namespaces of containerd, may use one id. The low-level runtime keeps the bundle of each
//! container in the directory that `--root` names, which tells them apart.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::Deserialize;

use tranche_core::bounded;
use tranche_core::claims::Claims;
use tranche_core::ledger::{Claim, ContainerName, LedgerResult};
use tranche_core::root::is_in_user_namespace;

/// The most bytes of a container's state that are read. runc keeps the whole configuration in it.
const MOST_BYTES: u64 = 16 << 20;

/// A container with what it holds.
#[derive(Debug)]
pub(super) struct HoldingContainer {
    pub name: ContainerName,
    pub claims: Vec<Claim>,
}

/// The container `id` of the runtime `low_level`, whose option `--root` is `root`; `None` if it holds nothing.
///
/// # Errors
/// Returns an error if the ledger cannot be read.
pub(super) fn find(
    id: &str,
    root: Option<&Path>,
    low_level: &Path,
    state_dir: &Path,
) -> LedgerResult<Option<HoldingContainer>> {
    // The ledger is root's, and containers of other users hold nothing in it.
    if !geteuid().is_root() || is_in_user_namespace() {
        return Ok(None);
    }
    let Some(claims) = Claims::existing(state_dir)? else {
        return Ok(None);
    };
    let claims = claims.books()?.books.into_iter().flat_map(|book| book.claims);
    let mut found: Vec<HoldingContainer> = Vec::new();
    for claim in claims {
        let Some(name) = claim.holder.container().filter(|name| name.id == id).cloned() else {
            continue;
        };
        match found.iter_mut().find(|container| container.name == name) {
            Some(container) => container.claims.push(claim),
            None => found.push(HoldingContainer {
                name,
                claims: vec![claim],
            }),
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    let bundle = bundle(id, root, low_level);
    Ok(match bundle {
        Some(bundle) => {
            let name = ContainerName::at(&bundle, id).ok();
            found
                .into_iter()
                .find(|container| Some(&container.name) == name.as_ref())
        }
        // A runtime that keeps its states elsewhere: the id decides if it is unique.
        None if found.len() == 1 => found.pop(),
        None => None,
    })
}

/// The bundle of a container, as runc (`state.json`, a label of its configuration) or crun (`status`) recorded it.
fn bundle(id: &str, root: Option<&Path>, low_level: &Path) -> Option<PathBuf> {
    if id.contains('/') || matches!(id, "" | "." | "..") {
        return None;
    }
    let default = Path::new("/run").join(low_level.file_name()?);
    let directory = root.unwrap_or(&default).join(id);
    of_runc(&directory).or_else(|| of_crun(&directory))
}

fn of_runc(directory: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct RuncState {
        config: RuncConfig,
    }
    #[derive(Deserialize)]
    struct RuncConfig {
        labels: Vec<String>,
    }
    let state: RuncState = read(&directory.join("state.json"))?;
    let label = state
        .config
        .labels
        .iter()
        .find_map(|label| label.strip_prefix("bundle="));
    label.map(PathBuf::from)
}

fn of_crun(directory: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct CrunStatus {
        bundle: PathBuf,
    }
    read(&directory.join("status")).map(|status: CrunStatus| status.bundle)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let bytes = bounded::read(File::open(path).ok()?, MOST_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn both_runtimes_say_where_the_bundle_is() {
        let top = tempfile::tempdir().unwrap();
        for (id, file, text) in [
            (
                "runc",
                "state.json",
                r#"{"id":"runc","config":{"rootfs":"/r","labels":["a=b","bundle=/b/runc"]}}"#,
            ),
            ("crun", "status", r#"{"pid":1,"bundle":"/b/crun","rootfs":"/r"}"#),
            ("damaged", "status", r#"{"pid":1,"bundle":"#),
        ] {
            fs::create_dir(top.path().join(id)).unwrap();
            fs::write(top.path().join(id).join(file), text).unwrap();
        }
        let bundle = |id: &str| bundle(id, Some(top.path()), Path::new("/usr/bin/runc"));
        assert_eq!(bundle("runc"), Some("/b/runc".into()));
        assert_eq!(bundle("crun"), Some("/b/crun".into()));
        for other in ["damaged", "missing", "", "..", "crun/../runc"] {
            assert_eq!(bundle(other), None, "{other}");
        }
    }
}
