//! The libraries that configuration files name. The loaders of Vulkan, EGL and OpenCL read such a file, open the
//! library in it, and say nothing if that is missing: a program then sees no GPU, or takes another driver.

use super::lists;
use crate::scan::Scan;
use crate::tree::TreePath;
use serde_json::Value;
use std::path::Path;
use tranche_core::bounded;
use tranche_core::types::HostPath;
use tranche_plan::inventory::{DriverFile, ElfClass, FileKind};

/// More than such a file has.
const LIMIT: u64 = 64 << 10;

/// A library that a file names.
#[derive(Debug)]
pub(super) struct NamedLibrary {
    file: HostPath,
    library: String,
    /// The word size that the file is for; `None`: whichever.
    class: Option<ElfClass>,
}

/// The libraries that the configuration file `name` at `path` names. A file that cannot be read or has another form
/// names none: that is for its loader to say.
pub(super) fn libraries(name: &str, path: &TreePath<'_>) -> Vec<NamedLibrary> {
    let names_libraries = [".json", ".icd"].iter().any(|end| name.ends_with(end));
    let bytes = names_libraries.then(|| path.open().and_then(|file| bounded::read(file, LIMIT)));
    let Some(Ok(bytes)) = bytes else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut libraries = Vec::new();
    match serde_json::from_str(&text) {
        Ok(document) => of_json(&document, &mut libraries),
        // A file of OpenCL has nothing but the name.
        Err(_) => libraries.extend(
            text.lines()
                .map(str::trim)
                .find(|line| line.contains(".so"))
                .map(str::to_owned),
        ),
    }
    let class = lists::class_of_config(name);
    let named = libraries.into_iter().map(|library| NamedLibrary {
        file: path.host(),
        library,
        class,
    });
    named.collect()
}

/// Every `library_path` of a document: Vulkan's files for layers have several.
fn of_json(value: &Value, libraries: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(library) if key == "library_path" => libraries.push(library.clone()),
                    value => of_json(value, libraries),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| of_json(value, libraries)),
        _ => {}
    }
}

/// Warns about each library of `named` that is not among `files`.
pub(super) fn note_absent(scan: &Scan<'_>, named: &[NamedLibrary], files: &[DriverFile]) {
    for NamedLibrary { file, library, class } in named {
        let name = Path::new(library).file_name().and_then(|name| name.to_str());
        let name = name.unwrap_or(library);
        if !files.iter().any(|file| has_name(file, name, *class)) {
            let text = format!(
                "names {name}, which is not among the driver's libraries: programs that load it see no GPU; install \
                 the package with it, or name its directory with --library-search-path"
            );
            scan.findings.warn(file, text);
        }
    }
}

/// Whether `file` is a library of this word size that a loader finds by `name`.
fn has_name(file: &DriverFile, name: &str, wanted: Option<ElfClass>) -> bool {
    let FileKind::Library { soname, class, .. } = &file.kind else {
        return false;
    };
    let is_name = soname.as_deref() == Some(name)
        || file.container.file_name() == name
        || file.links.iter().any(|link| link.path.file_name() == name);
    is_name && wanted.is_none_or(|wanted| wanted == *class)
}
