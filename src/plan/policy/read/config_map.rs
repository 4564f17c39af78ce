//! A policy inside a Kubernetes ConfigMap, which is how NVIDIA's device plugin gets its file.
//!
//! Each key under `data` is a configuration. Where there are several, the plugin's config manager takes the one that a
//! label of the node names, and without a label the one called `default`; here `--config-key` takes the label's place.

use super::document::Document;
use super::fill::Filler;
use crate::yaml::{Node, TextOrigin, Value};
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;

/// The configuration that is taken if nobody names one.
const DEFAULT_KEY: &str = "default";

/// Filled only to refuse a key that is written twice in different letter cases.
#[derive(serde::Deserialize)]
#[serde(rename = "the ConfigMap")]
struct ConfigMap {}

/// The text of the policy in the ConfigMap `root`, and where it is in the file, whose text is `text`; `None` if `root`
/// is not a ConfigMap.
///
/// # Errors
/// Returns a usage error if the ConfigMap has no data or no configuration of the name `key`. Without `key`, it is one
/// if the ConfigMap has several configurations and none of them is called `default`.
pub(super) fn policy_in<'a>(
    document: &Document<'_>,
    text: &str,
    root: &'a Node,
    key: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<Option<(&'a str, TextOrigin)>> {
    if !is_config_map(root) {
        return match key {
            None => Ok(None),
            Some(_) => Err(
                Error::usage(document.file, "is not a ConfigMap, so there is no key to choose")
                    .hint("leave --config-key out"),
            ),
        };
    }
    let ConfigMap {} = Filler::of(document, root, "the ConfigMap").fill()?;
    let (data, entries) = match entry(root, "data").map(|data| (data, &data.value)) {
        Some((data, Value::Map(entries))) if !entries.is_empty() => (data, entries),
        None | Some((_, Value::Null | Value::Map(_))) => {
            return Err(document
                .wrong(root, "the ConfigMap: it has no data")
                .hint("write the configuration below data, as KEY: |"));
        }
        Some((data, _)) => return Err(document.wrong(data, "data: expected keys with values")),
    };
    let named: Vec<(&str, &Node)> = entries
        .iter()
        .filter_map(|(key, value)| Some((key.value.text()?, value)))
        .collect();
    let known = candidates(
        key.unwrap_or_default(),
        &named.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
    );
    let find = |wanted: &str| named.iter().find(|(name, _)| *name == wanted);
    let (name, value) = match (key, named.as_slice()) {
        (Some(key), _) => find(key).ok_or_else(|| {
            let what = format!("the ConfigMap has no key \"{key}\"");
            document.wrong(data, what).hint(format!("it has {known}"))
        })?,
        (None, [only]) => only,
        (None, _) => {
            let several = "the ConfigMap has several configurations";
            let found = find(DEFAULT_KEY).ok_or_else(|| {
                let what = format!("{several}, and none is called default");
                let hint = format!("give --config-key with one of {known}");
                document.wrong(data, what).hint(hint)
            })?;
            let place = document.place(data).of(document.file);
            warnings.push(format!(
                "{place}: {several} ({known}); default is used, and --config-key names another"
            ));
            found
        }
    };
    match &value.value {
        Value::Text(inner) => Ok(Some((inner, TextOrigin::of(text, document.place(value), inner)))),
        other => Err(document
            .wrong(value, format!("data.{name}: expected text, found {other}"))
            .hint(format!("write {name}: | and the configuration below it, indented"))),
    }
}

/// The value of a key of `root`, in any letter case.
fn entry<'a>(root: &'a Node, name: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &root.value else { return None };
    let is_name = |key: &Node| key.value.text().is_some_and(|key| key.eq_ignore_ascii_case(name));
    entries.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value)
}

/// Whether this is a ConfigMap, with all of it or with `data` alone.
fn is_config_map(root: &Node) -> bool {
    let has = |name| entry(root, name).is_some();
    entry(root, "kind").is_some_and(|kind| kind.value.text() == Some("ConfigMap"))
        || (has("data") && !has("sharing") && !has("version"))
}
