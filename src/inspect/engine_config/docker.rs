//! docker: `daemon.json`.

use super::Settings;
use super::document::ConfigFile;
use super::edit::{Edit, keys};
use serde_json::{Value, json};
use tranche_core::error::Result;

/// The changes of `daemon.json` that add the runtime.
///
/// `features.cdi` exists from docker 25 on, and is on by default from 28.2 on. Earlier versions ignore features that
/// they do not know.
///
/// # Errors
/// Returns an error if a key that docker reads has the wrong type.
pub fn edits(file: &ConfigFile, settings: &Settings) -> Result<Vec<Edit>> {
    let name = settings.name.as_str();
    let mut entry = file.table(&["runtimes", name])?.cloned().unwrap_or_default();
    entry.insert("path".to_owned(), Value::from(&*settings.path));
    entry.entry("runtimeArgs").or_insert_with(|| json!([]));
    // docker refuses an entry with both: its own runtime v2 takes options, and a program takes arguments.
    entry.shift_remove("runtimeType");
    entry.shift_remove("options");
    let mut edits = vec![Edit::Own {
        keys: keys(&["runtimes", name]),
        value: Value::Object(entry),
    }];
    file.text_at(&["default-runtime"])?;
    if settings.is_default {
        edits.push(Edit::Set {
            keys: keys(&["default-runtime"]),
            value: name.into(),
        });
    }
    file.table(&["features"])?;
    if settings.cdi {
        edits.push(Edit::Set {
            keys: keys(&["features", "cdi"]),
            value: Value::Bool(true),
        });
    }
    Ok(edits)
}
