//! CRI-O: `crio.conf`, and drop-ins in `crio.conf.d`. CDI is always on.

use super::Settings;
use super::document::ConfigFile;
use super::edit::{Edit, keys};
use serde_json::{Map, Value};
use tranche_core::error::Result;

/// The changes of `file`. `context` is what CRI-O reads altogether, from which the options of the present runtime are
/// copied.
///
/// # Errors
/// Returns an error if a key that CRI-O reads has the wrong type.
pub fn edits(file: &ConfigFile, context: &ConfigFile, settings: &Settings) -> Result<Vec<Edit>> {
    let name = settings.name.as_str();
    let entry_keys = ["crio", "runtime", "runtimes", name];
    let mut entry = match file.table(&entry_keys)? {
        Some(entry) => entry.clone(),
        None => model(context, settings)?,
    };
    entry.insert("runtime_path".to_owned(), Value::from(&*settings.path));
    entry.insert("runtime_type".to_owned(), "oci".into());
    let mut edits = vec![Edit::Own {
        keys: keys(&entry_keys),
        value: Value::Object(entry),
    }];
    let default = ["crio", "runtime", "default_runtime"];
    file.text_at(&default)?;
    if settings.is_default {
        edits.push(Edit::Set {
            keys: keys(&default),
            value: name.into(),
        });
    }
    Ok(edits)
}

/// The options of the runtime that containers use now: where its monitor is, and which annotations it may use.
fn model(context: &ConfigFile, settings: &Settings) -> Result<Map<String, Value>> {
    let mut entry = present_runtime(context, settings)?.cloned().unwrap_or_default();
    entry.shift_remove("runtime_config_path");
    Ok(entry)
}

fn present_runtime<'a>(context: &'a ConfigFile, settings: &Settings) -> Result<Option<&'a Map<String, Value>>> {
    let default = context.text_at(&["crio", "runtime", "default_runtime"])?;
    for name in default.into_iter().chain(["crun", "runc"]) {
        let entry = context.table(&["crio", "runtime", "runtimes", name])?;
        let Some(entry) = entry.filter(|_| name != settings.name.as_str() && !name.starts_with("nvidia")) else {
            continue;
        };
        // A runtime of type vm is no program with runc's command line.
        if entry.get("runtime_type").is_none_or(|kind| kind == "oci" || kind == "") {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The program of the runtime whose options are copied, if the configuration names it.
pub fn low_level_program(context: &ConfigFile, settings: &Settings) -> Option<String> {
    let entry = present_runtime(context, settings).ok()??;
    let program = entry.get("runtime_path")?.as_str()?;
    (!program.is_empty()).then(|| program.to_owned())
}
