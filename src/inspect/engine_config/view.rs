//! What the configuration of an engine says about CDI and about runtimes, in one form for all engines.

use super::containerd;
use super::document::ConfigFile;
use serde_json::Value;
use std::path::PathBuf;
use tranche_core::error::Result;
use tranche_plan::engines::Engine;

/// What the configuration of an engine says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineView {
    /// The engine.
    pub engine: Engine,
    /// Its main file.
    pub file: String,
    /// The version of the file, for containerd; `None` if it names none.
    pub version: Option<u64>,
    /// Whether it turns off the plugin that starts containers for Kubernetes, as the file of docker's package does.
    pub is_off: bool,
    /// Whether it turns CDI on or off; `None` if it says nothing, or if the engine has no such key.
    pub cdi: Option<bool>,
    /// The directories of specifications that it names; `None` if the engine reads the usual ones.
    pub spec_dirs: Option<Vec<PathBuf>>,
    /// The key that names them, without the section.
    pub spec_dirs_key: &'static str,
    /// The runtime of containers that name none; `None` if it is the engine's own choice.
    pub default_runtime: Option<String>,
    /// The runtimes that it defines: name, and program if it names one.
    pub runtimes: Vec<(String, Option<PathBuf>)>,
    /// Whether these take the place of the engine's own, if it is a containerd before 2.0.
    pub replaces_runtimes: bool,
}

/// The keys of an engine's file.
struct Keys {
    cdi: Option<Vec<&'static str>>,
    spec_dirs: Vec<&'static str>,
    default_runtime: Vec<&'static str>,
    runtimes: Vec<&'static str>,
    /// Below a runtime.
    program: Vec<&'static str>,
}

impl Keys {
    fn of(engine: Engine, file: &ConfigFile) -> Self {
        match engine {
            Engine::Docker => Self {
                cdi: Some(vec!["features", "cdi"]),
                spec_dirs: vec!["cdi-spec-dirs"],
                default_runtime: vec!["default-runtime"],
                runtimes: vec!["runtimes"],
                program: vec!["path"],
            },
            Engine::Containerd => {
                let plugin = |keys: &[&'static str]| [&["plugins", containerd::plugin_of(file)], keys].concat();
                Self {
                    cdi: Some(plugin(&["enable_cdi"])),
                    spec_dirs: plugin(&["cdi_spec_dirs"]),
                    default_runtime: plugin(&["containerd", "default_runtime_name"]),
                    runtimes: plugin(&["containerd", "runtimes"]),
                    program: vec!["options", "BinaryName"],
                }
            }
            Engine::Crio => Self {
                cdi: None,
                spec_dirs: vec!["crio", "runtime", "cdi_spec_dirs"],
                default_runtime: vec!["crio", "runtime", "default_runtime"],
                runtimes: vec!["crio", "runtime", "runtimes"],
                program: vec!["runtime_path"],
            },
            Engine::Podman => Self {
                cdi: None,
                spec_dirs: vec!["engine", "cdi_spec_dirs"],
                default_runtime: vec!["engine", "runtime"],
                runtimes: vec!["engine", "runtimes"],
                program: Vec::new(),
            },
        }
    }
}

impl EngineView {
    /// What `file` says, which is all that the engine reads, merged.
    ///
    /// # Errors
    /// Returns an error if a key that the engine reads has the wrong type: the engine does not start, or ignores the
    /// file.
    pub fn of(engine: Engine, file: &ConfigFile) -> Result<Self> {
        let keys = Keys::of(engine, file);
        let cdi = match keys.cdi.as_ref().and_then(|keys| Some((keys, file.get(keys)?))) {
            None => None,
            Some((_, Value::Bool(is_on))) => Some(*is_on),
            Some((keys, other)) => return Err(file.wrong(keys, "true or false", other)),
        };
        let spec_dirs = file.list_at(&keys.spec_dirs)?;
        let mut runtimes = Vec::new();
        for (name, entry) in file.table(&keys.runtimes)?.into_iter().flatten() {
            let program = match keys.program.as_slice() {
                // podman: a list of places, of which the first one that exists counts.
                [] => entry.as_array().and_then(|places| places.first()),
                keys => super::edit::at(entry, keys),
            };
            let program = program.and_then(Value::as_str).filter(|text| !text.is_empty());
            runtimes.push((name.clone(), program.map(PathBuf::from)));
        }
        Ok(Self {
            engine,
            file: file.name.clone(),
            version: file
                .get(&["version"])
                .and_then(Value::as_u64)
                .filter(|_| engine == Engine::Containerd),
            is_off: engine == Engine::Containerd && containerd::is_off(file)?,
            cdi,
            spec_dirs: spec_dirs.map(|dirs| dirs.into_iter().map(PathBuf::from).collect()),
            spec_dirs_key: keys.spec_dirs.last().copied().unwrap_or_default(),
            default_runtime: file.text_at(&keys.default_runtime)?.map(ToOwned::to_owned),
            replaces_runtimes: engine == Engine::Containerd
                && containerd::replaces_runtimes(file)
                && !runtimes.is_empty(),
            runtimes,
        })
    }

    /// The program of the runtime `name`, if the configuration names it.
    pub fn program(&self, name: &str) -> Option<&PathBuf> {
        let runtime = self.runtimes.iter().find(|(defined, _)| defined == name);
        runtime.and_then(|(_, program)| program.as_ref())
    }

    /// The runtimes whose program is tranche's.
    pub fn of_tranche(&self) -> impl Iterator<Item = (&str, &PathBuf)> {
        let programs = self.runtimes.iter();
        let programs = programs.filter_map(|(name, program)| Some((name.as_str(), program.as_ref()?)));
        programs.filter(|(_, program)| program.file_name().is_some_and(|name| name == "tranche-runtime"))
    }

    /// Whether the engine has the runtime `name` without any configuration.
    pub fn is_built_in(&self, name: &str) -> bool {
        match self.engine {
            // A name with a dot is that of a shim of containerd, and one with a slash is its path.
            Engine::Docker => name == "runc" || name.contains(['.', '/']),
            Engine::Containerd => name == "runc",
            Engine::Crio => matches!(name, "runc" | "crun"),
            // podman looks for any other name as a program.
            Engine::Podman => {
                matches!(
                    name,
                    "crun" | "runc" | "runj" | "kata" | "runsc" | "youki" | "krun" | "ocijail"
                ) || name.contains('/')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::Syntax;
    use super::*;

    fn view(engine: Engine, text: &str) -> Result<EngineView> {
        EngineView::of(engine, &ConfigFile::read("/etc/x", Syntax::of(engine), text)?)
    }

    #[test]
    fn each_engine_has_keys_of_its_own() {
        let program = "/usr/bin/tranche-runtime";
        let docker = format!(
            r#"{{"features": {{"cdi": false}}, "cdi-spec-dirs": ["/x"], "default-runtime": "t", "runtimes": {{"t": {{"path": "{program}"}}}}}}"#
        );
        let containerd = |version: u32, plugin: &str| {
            format!(
                "version = {version}\n[plugins.'{plugin}']\nenable_cdi = false\ncdi_spec_dirs = ['/x']\n\
                 [plugins.'{plugin}'.containerd]\ndefault_runtime_name = 't'\n\
                 [plugins.'{plugin}'.containerd.runtimes.t.options]\nBinaryName = '{program}'\n"
            )
        };
        let crio = format!(
            "[crio.runtime]\ncdi_spec_dirs = ['/x']\ndefault_runtime = 't'\n[crio.runtime.runtimes.t]\nruntime_path = '{program}'\n"
        );
        let podman = format!("[engine]\ncdi_spec_dirs = ['/x']\nruntime = 't'\n[engine.runtimes]\nt = ['{program}']\n");
        let cases = [
            (Engine::Docker, docker, Some(false)),
            (
                Engine::Containerd,
                containerd(2, "io.containerd.grpc.v1.cri"),
                Some(false),
            ),
            (
                Engine::Containerd,
                containerd(3, "io.containerd.cri.v1.runtime"),
                Some(false),
            ),
            (Engine::Crio, crio, None),
            (Engine::Podman, podman, None),
        ];
        for (engine, text, cdi) in cases {
            let view = view(engine, &text).unwrap();
            assert_eq!(view.cdi, cdi, "{engine}");
            assert_eq!(view.spec_dirs, Some(vec![PathBuf::from("/x")]), "{engine}");
            assert_eq!(view.default_runtime.as_deref(), Some("t"), "{engine}");
            assert_eq!(view.program("t"), Some(&PathBuf::from(program)), "{engine}");
            assert_eq!(
                view.of_tranche().map(|(name, _)| name).collect::<Vec<_>>(),
                ["t"],
                "{engine}"
            );
            assert!(!view.is_built_in("t") && view.is_built_in("runc"), "{engine}");
        }
    }

    #[test]
    fn a_key_of_the_wrong_type_is_an_error_and_an_empty_file_says_nothing() {
        for text in [
            r#"{"features": {"cdi": "no"}}"#,
            r#"{"runtimes": []}"#,
            r#"{"cdi-spec-dirs": "/x"}"#,
        ] {
            assert!(view(Engine::Docker, text).is_err(), "{text}");
        }
        for engine in Engine::ALL.iter().copied() {
            let view = view(engine, "").unwrap();
            assert_eq!((view.cdi, view.spec_dirs, view.default_runtime), (None, None, None));
            assert!(view.runtimes.is_empty());
        }
    }
}
