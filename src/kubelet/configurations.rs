//! Which configuration of a ConfigMap is for this node. The rule is that of the config manager of NVIDIA's device
//! plugin: the label of the node names the key; without it, the default that the chart has; without one, the key
//! `default`, or the only key (`cmd/config-manager/main.go` of k8s-device-plugin,
//! `--fallback-strategies=named,single`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use tranche_core::text::candidates;
use tranche_core::{bounded, broker};

/// The label of a node that names its configuration.
pub const LABEL: &str = "nvidia.com/device-plugin.config";

/// The key that is taken if there is neither a label nor a default.
const USUAL: &str = "default";

/// The texts of a ConfigMap by their keys.
pub type Configurations = BTreeMap<String, String>;

/// The ConfigMap that is mounted at `dir`.
///
/// # Errors
/// Returns which file cannot be read, and why.
pub fn read(dir: &Path) -> Result<Configurations, String> {
    let failed = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    let mut found = Configurations::new();
    for entry in fs::read_dir(dir).map_err(|e| failed(dir, e))? {
        let path = entry.map_err(|e| failed(dir, e))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        // The kubelet keeps the files in directories whose names begin with two dots, and links to them.
        let Some(name) = name.filter(|name| !name.starts_with("..")) else {
            continue;
        };
        let text = bounded::regular_file(&path).and_then(|file| text(&file));
        found.insert(name.to_owned(), text.map_err(|e| failed(&path, e))?);
    }
    Ok(found)
}

/// The broker reads no longer one.
fn text(file: &File) -> io::Result<String> {
    let bytes = bounded::read(file, broker::MOST_BYTES as u64)?;
    String::from_utf8(bytes).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

/// The key of the configuration for a node with this `label`. An empty label, and an empty default, is as none.
///
/// # Errors
/// Returns why no key can be chosen.
pub fn choose<'a>(
    configurations: &'a Configurations,
    label: Option<&str>,
    default: Option<&str>,
) -> Result<&'a str, String> {
    let is_set = |name: &&str| !name.is_empty();
    let keys = |asked: &str| candidates(asked, &configurations.keys().collect::<Vec<_>>());
    let find = |key: &str, who: &str| match configurations.get_key_value(key) {
        Some((key, _)) => Ok(key.as_str()),
        None => Err(format!(
            "{who} names the configuration {key}, and the ConfigMap has {}",
            keys(key)
        )),
    };
    if let Some(label) = label.filter(is_set) {
        return find(label, &format!("the label {LABEL} of this node"));
    }
    if let Some(default) = default.filter(is_set) {
        return find(default, "the option --config-default");
    }
    let mut all = configurations.keys();
    match (configurations.get_key_value(USUAL), all.next(), all.next()) {
        (Some((key, _)), ..) | (None, Some(key), None) => Ok(key),
        (None, None, _) => Err("the ConfigMap has no configuration".to_owned()),
        (None, Some(_), Some(_)) => Err(format!(
            "the ConfigMap has several configurations ({}); set the label {LABEL} of this node, or a default",
            keys("")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[&str]) -> Configurations {
        keys.iter().map(|key| ((*key).to_owned(), String::new())).collect()
    }

    #[test]
    fn the_label_comes_before_the_default_and_the_usual_names_last() {
        let map = of(&["a", "b", "default"]);
        assert_eq!(choose(&map, Some("a"), Some("b")), Ok("a"));
        assert_eq!(choose(&map, None, Some("b")), Ok("b"));
        assert_eq!(choose(&map, Some(""), Some("")), Ok("default"));
        assert_eq!(choose(&of(&["only"]), None, None), Ok("only"));
    }

    #[test]
    fn what_cannot_be_chosen_has_its_reason() {
        for (keys, label, default, part) in [
            (
                &["a"][..],
                Some("x"),
                None,
                "the label nvidia.com/device-plugin.config of this node names the configuration x",
            ),
            (
                &["a"],
                None,
                Some("x"),
                "--config-default names the configuration x, and the ConfigMap has a",
            ),
            (&["a", "b"], None, None, "several configurations (a, b)"),
            (&[], None, None, "has no configuration"),
        ] {
            let why = choose(&of(keys), label, default).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_config_map_is_read_as_the_kubelet_mounts_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("..2026")).unwrap();
        fs::write(at("..2026/a"), "version: v1").unwrap();
        std::os::unix::fs::symlink("..2026", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/a", at("a")).unwrap();
        let found = read(dir.path()).unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), "version: v1".to_owned())]
        );
        fs::write(at("..2026/a"), vec![b'x'; broker::MOST_BYTES + 1]).unwrap();
        assert!(read(dir.path()).unwrap_err().contains("larger than"));
        fs::write(at("..2026/a"), [0xff]).unwrap();
        assert!(read(dir.path()).unwrap_err().contains("/a: "));
        assert!(read(&at("nowhere")).unwrap_err().contains("nowhere: "));
    }
}
