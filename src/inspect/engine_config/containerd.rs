//! containerd: `config.toml` of versions 2 to 4, and drop-ins of it.

use super::Settings;
use super::check::files_in;
use super::document::{ConfigFile, Syntax};
use super::edit::{Edit, keys};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};

/// The shim of containerd that runs programs with runc's command line.
const SHIM: &str = "io.containerd.runc.v2";

/// The version of a configuration file, which decides the names of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// The version to write to a new file: what every containerd since 1.3 reads, or what 2.0 and later read without a
    /// migration.
    pub fn of_new_file(containerd_is_2: bool) -> Self {
        Version(if containerd_is_2 { 3 } else { 2 })
    }

    /// The version of `file`, or `new` if the file has no content.
    ///
    /// # Errors
    /// Returns an error for version 1, for a file without a version (which is version 1), and for an unknown version.
    fn of(file: &ConfigFile, new: Version) -> Result<Self> {
        let is_docker_s = file.get(&["disabled_plugins"]) == Some(&json!(["cri"]));
        let hint = match is_docker_s {
            true => "this file is docker's, whose containers are configured with --runtime docker",
            false => "run containerd config migrate, which prints the file as a newer version, and put it in place",
        };
        let refused = |what: &str| Error::failed(&file.name, what).hint(hint);
        match file.get(&["version"]) {
            None if file.is_empty() => Ok(new),
            None => Err(refused(
                "has no version, which means version 1: its plugins have other names, and containerd 2 does not support CDI \
                 through them",
            )),
            Some(version) => match version.as_u64() {
                Some(version @ 2..=4) => Ok(Version(version)),
                Some(0 | 1) => Err(refused(
                    "is of version 1, in which plugins have other names; versions 2 to 4 are supported",
                )),
                _ => Err(Error::failed(&file.name, format!("version {version} is not known"))
                    .hint("versions 2 to 4 are supported; a newer tranche may support it")),
            },
        }
    }

    /// The name of the plugin that runs containers for Kubernetes.
    fn plugin(self) -> &'static str {
        match self.0 {
            2 => "io.containerd.grpc.v1.cri",
            _ => "io.containerd.cri.v1.runtime",
        }
    }

    /// Whether containerd may replace the whole section of a plugin by that of an imported file. containerd before 2.0
    /// does, which reads no newer version than 2 (containerd issue 5837).
    fn replaces_sections(self) -> bool {
        self.0 == 2
    }

    /// Whether CDI is off unless the file turns it on (containerd 1.7). containerd 2.0 and later have it on, and 2.4
    /// cannot turn it off.
    fn needs_cdi(self) -> bool {
        self.0 == 2
    }
}

/// The changes that add the runtime to the file itself.
///
/// # Errors
/// Returns an error if the version is not supported, if a key has the wrong type, or if the CRI plugin is disabled.
pub fn edits(file: &ConfigFile, context: &ConfigFile, settings: &Settings, new: Version) -> Result<Vec<Edit>> {
    let version = Version::of(file, new)?;
    let mut edits = vec![version_edit(version)];
    edits.extend(runtime_edits(file, context, settings, version)?);
    Ok(edits)
}

/// The changes of the main file and of a drop-in: the drop-in has the runtime, and the main file imports it.
#[derive(Debug)]
pub struct DropIn {
    /// The changes of the main file.
    pub main: Vec<Edit>,
    /// The changes of the drop-in.
    pub drop_in: Vec<Edit>,
}

/// The changes that add the runtime through the file `path`, which the main file `file` imports.
///
/// # Errors
/// As [`edits`].
pub fn drop_in(
    file: &ConfigFile,
    context: &ConfigFile,
    present: &ConfigFile,
    path: &Path,
    settings: &Settings,
    new: Version,
) -> Result<DropIn> {
    let version = Version::of(file, new)?;
    let mut main = vec![version_edit(version)];
    if !imports(file, path)? {
        let pattern = path.with_file_name("*.toml").display().to_string();
        main.push(Edit::Include {
            keys: keys(&["imports"]),
            value: pattern.into(),
        });
    }
    let mut drop_in = vec![version_edit(version)];
    if version.replaces_sections() {
        // The section replaces that of the main file, so it has all of it.
        let section = json!({"plugins": {version.plugin(): section(context, version)?.cloned().unwrap_or_default()}});
        let whole = ConfigFile::read(&*file.name, Syntax::Toml, "")?.with(&[Edit::Own {
            keys: keys(&["plugins"]),
            value: section.get("plugins").cloned().unwrap_or_default(),
        }])?;
        let whole = whole.with(&runtime_edits(&whole, context, settings, version)?)?;
        drop_in.push(Edit::Own {
            keys: keys(&["plugins", version.plugin()]),
            value: whole.get(&["plugins", version.plugin()]).cloned().unwrap_or_default(),
        });
    } else {
        check_enabled(file, version)?;
        drop_in.extend(runtime_edits(present, context, settings, version)?);
    }
    Ok(DropIn { main, drop_in })
}

/// The name of the plugin that runs containers for Kubernetes in `file`. A file without a version that is known is read
/// as one of version 2.
pub(super) fn plugin_of(file: &ConfigFile) -> &'static str {
    let version = file.get(&["version"]).and_then(Value::as_u64);
    Version(version.unwrap_or(2)).plugin()
}

/// Whether a table of runtimes in `file` takes the place of containerd's own, which has runc, in containerd before 2.0.
pub(super) fn replaces_runtimes(file: &ConfigFile) -> bool {
    plugin_of(file) == Version(2).plugin()
}

/// The files that `file` imports, in the order in which containerd reads them, without those that they import.
///
/// # Errors
/// Returns an error if the list of imports has the wrong type.
pub fn imported(file: &ConfigFile) -> Result<Vec<PathBuf>> {
    let directory = Path::new(&file.name).parent().unwrap_or(Path::new("/"));
    let mut files = Vec::new();
    for import in file.list_at(&["imports"])?.unwrap_or_default() {
        let path = directory.join(import);
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        match (name.split_once('*'), path.parent()) {
            (Some((begin, end)), Some(directory)) => {
                let matches = |path: &PathBuf| {
                    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                    name.starts_with(begin) && name.ends_with(end)
                };
                files.extend(files_in(directory).into_iter().filter(matches));
            }
            _ if path.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(files)
}

/// Whether `file` imports `path`, by its name or by a pattern for its directory.
fn imports(file: &ConfigFile, path: &Path) -> Result<bool> {
    let imports = file.list_at(&["imports"])?.unwrap_or_default();
    let directory = Path::new(&file.name).parent().unwrap_or(Path::new("/"));
    Ok(imports.iter().any(|import| {
        let import = directory.join(import);
        let is_pattern = import.file_name().is_some_and(|name| name == "*.toml" || name == "*");
        import == path || (is_pattern && import.parent() == path.parent())
    }))
}

fn version_edit(version: Version) -> Edit {
    Edit::Set {
        keys: keys(&["version"]),
        value: version.0.into(),
    }
}

fn section(file: &ConfigFile, version: Version) -> Result<Option<&Map<String, Value>>> {
    file.table(&["plugins", version.plugin()])
}

/// Without its CRI plugin, containerd does not read the runtimes in its file.
fn check_enabled(file: &ConfigFile, version: Version) -> Result<()> {
    match disabled(file, version)? {
        None => Ok(()),
        Some(name) => Err(Error::failed(
            &file.name,
            format!("disabled_plugins has \"{name}\", and without this plugin containerd reads no runtimes"),
        )
        .hint("remove it from the list if Kubernetes uses this containerd; docker needs --runtime docker instead")),
    }
}

/// The name under which `file` turns off the plugin that runs containers for Kubernetes.
fn disabled(file: &ConfigFile, version: Version) -> Result<Option<&str>> {
    let mut disabled = file.list_at(&["disabled_plugins"])?.unwrap_or_default().into_iter();
    Ok(disabled.find(|name| ["cri", version.plugin(), "io.containerd.grpc.v1.cri"].contains(name)))
}

/// Whether `file` turns off that plugin.
///
/// # Errors
/// Returns an error if the list of such plugins has the wrong type.
pub(super) fn is_off(file: &ConfigFile) -> Result<bool> {
    Ok(disabled(file, Version(2))?.is_some() || disabled(file, Version(3))?.is_some())
}

/// The changes in the section of the plugin. `context` has the runtime whose options are copied.
fn runtime_edits(file: &ConfigFile, context: &ConfigFile, settings: &Settings, version: Version) -> Result<Vec<Edit>> {
    check_enabled(file, version)?;
    let (plugin, name) = (version.plugin(), settings.name.as_str());
    let runtimes = ["plugins", plugin, "containerd", "runtimes"];
    let entry_keys = [&runtimes[..], &[name]].concat();
    file.table(&entry_keys)?;
    file.table(&[&entry_keys[..], &["options"]].concat())?;
    let mut entry = match file.table(&entry_keys)? {
        Some(entry) => entry.clone(),
        None => model(context, version, settings)?,
    };
    entry.insert("runtime_type".to_owned(), SHIM.into());
    // The program of a runtime of another shim, which this shim would not run.
    entry.shift_remove("runtime_path");
    if let Some(prefix) = settings.annotations {
        for list in ["container_annotations", "pod_annotations"] {
            let keys = [&entry_keys[..], &[list]].concat();
            file.list_at(&keys)?;
            include(&mut entry, list, &format!("{prefix}*"));
        }
    }
    let options = entry.entry("options").or_insert_with(|| json!({}));
    if let Value::Object(options) = options {
        options.insert("BinaryName".to_owned(), Value::from(&*settings.path));
    }
    let mut edits = Vec::new();
    // containerd itself has runc, and a table of runtimes takes its place: without its default runtime, the plugin does
    // not start. An earlier tranche may have written such a table.
    let default = context.text_at(&["plugins", plugin, "containerd", "default_runtime_name"])?;
    let has_runc = file.table(&[&runtimes[..], &["runc"]].concat())?.is_some();
    if version.replaces_sections() && matches!(default, None | Some("runc")) && !has_runc {
        edits.push(Edit::Own {
            keys: keys(&[&runtimes[..], &["runc"]].concat()),
            value: json!({"runtime_type": SHIM}),
        });
    }
    edits.push(Edit::Own {
        keys: keys(&entry_keys),
        value: Value::Object(entry),
    });
    let default = ["plugins", plugin, "containerd", "default_runtime_name"];
    file.text_at(&default)?;
    if settings.is_default {
        edits.push(Edit::Set {
            keys: keys(&default),
            value: name.into(),
        });
    }
    let cdi = ["plugins", plugin, "enable_cdi"];
    let is_off = file.get(&cdi).or(context.get(&cdi)) == Some(&Value::Bool(false));
    if settings.cdi && (version.needs_cdi() || is_off) {
        edits.push(Edit::Set {
            keys: keys(&cdi),
            value: Value::Bool(true),
        });
    }
    Ok(edits)
}

fn include(entry: &mut Map<String, Value>, list: &str, item: &str) {
    let list = entry.entry(list).or_insert_with(|| json!([]));
    if let Value::Array(list) = list
        && !list.iter().any(|present| present == item)
    {
        list.push(item.into());
    }
}

/// The options of the runtime that containers use now: the default one, or runc, or crun. A runtime of another shim has
/// options with another meaning, and one of NVIDIA's or of tranche is itself made from one of these.
fn model(context: &ConfigFile, version: Version, settings: &Settings) -> Result<Map<String, Value>> {
    Ok(present_runtime(context, version, settings)?
        .cloned()
        .unwrap_or_default())
}

fn present_runtime<'a>(
    context: &'a ConfigFile,
    version: Version,
    settings: &Settings,
) -> Result<Option<&'a Map<String, Value>>> {
    let containerd = ["plugins", version.plugin(), "containerd"];
    let default = context.text_at(&[&containerd[..], &["default_runtime_name"]].concat())?;
    for name in default.into_iter().chain(["runc", "crun"]) {
        let entry = context.table(&[&containerd[..], &["runtimes", name]].concat())?;
        let Some(entry) = entry.filter(|_| name != settings.name.as_str() && !name.starts_with("nvidia")) else {
            continue;
        };
        if entry.get("runtime_type").is_none_or(|shim| shim == SHIM) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The program of the runtime whose options are copied, if the configuration names it.
pub fn low_level_program(context: &ConfigFile, settings: &Settings) -> Option<String> {
    let version = Version::of(context, Version(2)).ok()?;
    let entry = present_runtime(context, version, settings).ok()??;
    let program = entry.get("options")?.get("BinaryName")?.as_str()?;
    (!program.is_empty()).then(|| program.to_owned())
}

/// Whether a drop-in for `file` would have to repeat a whole section of it.
///
/// # Errors
/// Returns an error if the version of the file is not supported.
pub fn replaces_sections(file: &ConfigFile, new: Version) -> Result<bool> {
    Ok(Version::of(file, new)?.replaces_sections())
}
