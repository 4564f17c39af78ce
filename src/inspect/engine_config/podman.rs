//! podman: `containers.conf`, and drop-ins in `containers.conf.d`. CDI is always on.

use super::Settings;
use super::document::ConfigFile;
use super::edit::{Edit, keys};
use tranche_core::error::Result;

/// The directory that podman reads hooks from if no file names one (`DefaultHooksDirs` of containers/common).
pub const DEFAULT_HOOKS_DIR: &str = "/usr/share/containers/oci/hooks.d";

/// The runtimes that podman asks for errors as JSON if no file names any (`RuntimeSupportsJSON` of containers/common).
const JSON_RUNTIMES: [&str; 6] = ["crun", "runc", "kata", "runsc", "youki", "krun"];

const HOOKS_DIR: [&str; 2] = ["engine", "hooks_dir"];

/// The changes of `file`. `before` are the files that podman reads before it, in that order.
///
/// # Errors
/// Returns an error if a key that podman reads has the wrong type.
pub fn edits(file: &ConfigFile, before: &[ConfigFile], settings: &Settings) -> Result<Vec<Edit>> {
    let name = settings.name.as_str();
    let program = ["engine", "runtimes", name];
    file.list_at(&program)?;
    file.table(&["engine", "runtimes"])?;
    let mut edits = vec![Edit::Own {
        keys: keys(&program),
        value: vec![&*settings.path].into(),
    }];
    edits.extend(added_to_list(
        file,
        before,
        &["engine", "runtime_supports_json"],
        &JSON_RUNTIMES,
        name,
    )?);
    file.text_at(&["engine", "runtime"])?;
    if settings.is_default {
        edits.push(Edit::Set {
            keys: keys(&["engine", "runtime"]),
            value: name.into(),
        });
    }
    if let Some(dir) = &settings.hooks_dir {
        edits.extend(added_to_list(
            file,
            before,
            &HOOKS_DIR,
            &[DEFAULT_HOOKS_DIR],
            dir.as_str(),
        )?);
    }
    Ok(edits)
}

/// The changes that add `item` to a list. A list in a file replaces that of the files before it, and the one that
/// podman has by default. So what these have goes into it, too.
fn added_to_list(
    file: &ConfigFile,
    before: &[ConfigFile],
    key: &[&str],
    default: &[&str],
    item: &str,
) -> Result<Vec<Edit>> {
    let mut items: Vec<&str> = Vec::new();
    if file.list_at(key)?.is_none() {
        items = default.to_vec();
        let mut appends = false;
        for earlier in before {
            if let Some(list) = earlier.list_at(key)? {
                appends = append_mark(earlier, key).unwrap_or(appends);
                match appends {
                    true => items.extend(list),
                    false => items = list,
                }
            }
        }
        if appends {
            items.clear();
        }
    }
    if !items.contains(&item) {
        items.push(item);
    }
    let edit = |item: &&str| Edit::Include {
        keys: keys(key),
        value: (*item).into(),
    };
    Ok(items.iter().map(edit).collect())
}

/// Whether the list in `file` says `{append=true}` or `{append=false}` (podman 5). The mark also counts for later
/// files.
fn append_mark(file: &ConfigFile, key: &[&str]) -> Option<bool> {
    let list = file.get(key)?.as_array()?;
    list.iter().find_map(|item| item.get("append")?.as_bool())
}

/// Whether `file`, which podman reads after the changed one, replaces a list or a setting of it.
///
/// # Errors
/// Returns an error if a key has the wrong type.
pub fn overrides(file: &ConfigFile, settings: &Settings) -> Result<Option<&'static str>> {
    let replaces = |list: Option<Vec<&str>>, key: &[&str], item: &str| {
        list.is_some_and(|list| append_mark(file, key) != Some(true) && !list.contains(&item))
    };
    if let Some(dir) = &settings.hooks_dir
        && replaces(file.list_at(&HOOKS_DIR)?, &HOOKS_DIR, dir.as_str())
    {
        return Ok(Some("engine.hooks_dir"));
    }
    let program = file.list_at(&["engine", "runtimes", settings.name.as_str()])?;
    if program.is_some_and(|list| list != [&*settings.path]) {
        return Ok(Some("engine.runtimes"));
    }
    let default = file.text_at(&["engine", "runtime"])?;
    let is_other = default.is_some_and(|default| settings.is_default && default != settings.name.as_str());
    Ok(is_other.then_some("engine.runtime"))
}
