//! The name that a person gave a container, as its engine keeps it. Only files are read: no program is started, and an
//! engine that is hung or gone costs nothing.

use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tranche_core::bounded;
use tranche_core::ledger::ContainerName;

/// A file larger than this is not read. podman keeps all its containers in one file, at about 600 bytes each.
const MOST_BYTES: u64 = 16 << 20;

/// The names of containers. Each file is read once, however many containers it names.
#[derive(Debug, Clone, Default)]
pub struct ContainerNames {
    /// Whether files of root's engines are left unread, because the names are not for the one who asks.
    are_hidden: bool,
    files: HashMap<PathBuf, Option<Value>>,
}

impl ContainerNames {
    /// No names, for one who may not read the files of root's engines.
    pub fn hidden() -> Self {
        Self {
            are_hidden: true,
            ..Self::default()
        }
    }

    /// The name of `container`; `None` if no file of its engine has it.
    pub fn of(&mut self, container: &ContainerName) -> Option<String> {
        if self.are_hidden {
            return None;
        }
        let bundle = Path::new(&container.bundle);
        self.of_podman(bundle, &container.id)
            .or_else(|| self.of_annotations(bundle))
            .or_else(|| self.of_docker(bundle, &container.id))
            .filter(|name| !name.is_empty())
    }

    /// The name of the container `id`, of which no bundle is known: it is looked for where engines keep containers by
    /// default, and beside the containers in `known`.
    pub fn of_id<'a>(&mut self, id: &str, known: impl Iterator<Item = &'a ContainerName>) -> Option<String> {
        // An id becomes part of a path here, and it comes from a container's state.
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) || id.starts_with('.')
        {
            return None;
        }
        let beside = known.map(|other| other.bundle.replace(&other.id, id));
        let podman = format!("/var/lib/containers/storage/overlay-containers/{id}/userdata");
        let containerd = "/run/containerd/io.containerd.runtime.v2.task";
        let by_default = [
            podman,
            format!("{containerd}/k8s.io/{id}"),
            format!("{containerd}/default/{id}"),
        ];
        let mut bundles = beside.chain(by_default).filter(|bundle| bundle.contains(id));
        let found = bundles.find_map(|bundle| {
            self.of(&ContainerName {
                bundle,
                id: id.to_owned(),
            })
        });
        // docker removes the bundle of a container that was refused, and keeps its own file.
        found.or_else(|| {
            let file = format!("/var/lib/docker/containers/{id}/config.v2.json");
            let name = self.read(Path::new(&file))?.get("Name")?.as_str()?;
            Some(name.trim_start_matches('/').to_owned())
        })
    }

    /// podman and CRI-O keep a container's files in `STORE/KIND-containers/ID/userdata`, and the names of all
    /// containers in `STORE/KIND-containers/containers.json` (containers/storage, `containers.go`).
    fn of_podman(&mut self, bundle: &Path, id: &str) -> Option<String> {
        let store = bundle.parent()?.parent()?;
        // Containers that do not survive a reboot are in a file of their own.
        ["containers.json", "volatile-containers.json"].iter().find_map(|file| {
            let list = self.read(&store.join(file))?.as_array()?;
            let container = list.iter().find(|c| c["id"] == id)?;
            let name = container["names"].get(0)?.as_str()?;
            // CRI-O names a container k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT; its annotations have the same parts.
            (!name.starts_with("k8s_")).then(|| name.to_owned())
        })
    }

    /// containerd's CRI plugin, CRI-O and nerdctl write names into the annotations of `config.json`.
    fn of_annotations(&mut self, bundle: &Path) -> Option<String> {
        let annotations = self.read(&bundle.join("config.json"))?.get("annotations")?;
        let get = |name: &str| annotations.get(name)?.as_str();
        if let Some(name) = get("nerdctl/name") {
            return Some(name.to_owned());
        }
        // (namespace, pod, container): https://github.com/containerd/containerd/blob/main/internal/cri/annotations/annotations.go
        // and https://github.com/cri-o/cri-o/blob/main/pkg/annotations, internal/factory/container.
        [
            [
                "io.kubernetes.cri.sandbox-namespace",
                "io.kubernetes.cri.sandbox-name",
                "io.kubernetes.cri.container-name",
            ],
            [
                "io.kubernetes.pod.namespace",
                "io.kubernetes.pod.name",
                "io.kubernetes.container.name",
            ],
        ]
        .iter()
        .find_map(|[namespace, pod, container]| Some(format!("{}/{}/{}", get(namespace)?, get(pod)?, get(container)?)))
    }

    /// docker keeps a container's name in `ROOT/containers/ID/config.v2.json`. ROOT is found by the files there
    /// that docker mounts into the container (`hostname`, `resolv.conf`).
    fn of_docker(&mut self, bundle: &Path, id: &str) -> Option<String> {
        let mounts = self.read(&bundle.join("config.json"))?.get("mounts")?.as_array()?;
        let sources = mounts.iter().filter_map(|m| m["source"].as_str()).map(Path::new);
        let mut directories = sources.filter_map(Path::parent).map(Path::to_owned);
        let directory = directories.find(|d| d.file_name().is_some_and(|name| name == id) && d.is_absolute())?;
        let name = self.read(&directory.join("config.v2.json"))?.get("Name")?.as_str()?;
        Some(name.trim_start_matches('/').to_owned())
    }

    fn read(&mut self, path: &Path) -> Option<&Value> {
        let value = self.files.entry(path.to_owned()).or_insert_with(|| json(path));
        value.as_ref()
    }
}

/// A JSON file; `None` where it is missing or not readable, since a name is a help and nothing depends on it.
fn json(path: &Path) -> Option<Value> {
    let file = bounded::regular_file(path).ok()?;
    serde_json::from_slice(&bounded::read(file, MOST_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn named(bundle: &Path, id: &str) -> Option<String> {
        ContainerNames::default().of(&ContainerName {
            bundle: bundle.to_str().unwrap().into(),
            id: id.into(),
        })
    }

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn as_each_engine_keeps_it() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        // podman 4.3.1, shortened.
        write(
            at("store/vfs-containers/containers.json"),
            r#"[{"id":"aa","names":["other"]},{"id":"bb","names":["train"],"metadata":"{}"}]"#,
        );
        write(
            at("store/vfs-containers/volatile-containers.json"),
            r#"[{"id":"cc","names":["short"]}]"#,
        );
        assert_eq!(named(&at("store/vfs-containers/bb/userdata"), "bb").unwrap(), "train");
        assert_eq!(named(&at("store/vfs-containers/cc/userdata"), "cc").unwrap(), "short");
        let known = ContainerName {
            bundle: at("store/vfs-containers/bb/userdata").to_str().unwrap().into(),
            id: "bb".into(),
        };
        let beside = |id: &str| ContainerNames::default().of_id(id, std::iter::once(&known));
        assert_eq!(beside("aa").unwrap(), "other");
        assert_eq!((beside("zz"), beside("../bb"), beside("")), (None, None, None));
        write(
            at("cri/config.json"),
            r#"{"annotations":{"io.kubernetes.cri.container-name":"main","io.kubernetes.cri.sandbox-name":"web-0",
                "io.kubernetes.cri.sandbox-namespace":"prod","io.kubernetes.cri.container-type":"container"}}"#,
        );
        assert_eq!(named(&at("cri"), "dd").unwrap(), "prod/web-0/main");
        write(
            at("crio-containers/ee/userdata/config.json"),
            r#"{"annotations":{"io.kubernetes.container.name":"main","io.kubernetes.pod.name":"web-1",
                "io.kubernetes.pod.namespace":"prod"}}"#,
        );
        write(
            at("crio-containers/containers.json"),
            r#"[{"id":"ee","names":["k8s_main_web-1_prod_1234_0"]}]"#,
        );
        assert_eq!(
            named(&at("crio-containers/ee/userdata"), "ee").unwrap(),
            "prod/web-1/main"
        );
        write(at("nerd/config.json"), r#"{"annotations":{"nerdctl/name":"box"}}"#);
        assert_eq!(named(&at("nerd"), "ff").unwrap(), "box");
        let root = at("docker/containers/gg");
        let mounts = serde_json::json!({ "mounts": [{"source": "proc"}, {"source": root.join("hostname")}] });
        write(at("moby/gg/config.json"), &mounts.to_string());
        assert_eq!(named(&at("moby/gg"), "gg"), None, "docker's own file is missing");
        write(root.join("config.v2.json"), r#"{"ID":"gg","Name":"/wonderful_gauss"}"#);
        assert_eq!(named(&at("moby/gg"), "gg").unwrap(), "wonderful_gauss");
    }

    #[test]
    fn what_cannot_be_read_is_not_a_name() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(named(&top.path().join("a/b/c"), "x"), None);
        assert_eq!(named(Path::new("/"), "x"), None);
        write(top.path().join("config.json"), "{");
        assert_eq!(named(top.path(), "x"), None);
        nix::unistd::mkfifo(&top.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(json(&top.path().join("fifo")), None, "returns at once");
        write(top.path().join("config.json"), r#"{"annotations":{"nerdctl/name":""}}"#);
        assert_eq!(named(top.path(), "x"), None);
    }
}
