//! A policy inside a Kubernetes ConfigMap, which is how NVIDIA's device plugin gets its file.
//!
//! Each key under `data` is a configuration. Where there are several, the plugin's config manager takes the one that a
//! label of the node names, and without a label the one called `default`; here `--config-key` takes the label's place.

use super::field::Fields;
use crate::error::{Error, Result};
use crate::policy::Place;
use crate::policy::yaml::{self, Node, Origin, Value};
use crate::text::some;

/// The configuration that is taken when nobody names one.
const DEFAULT_KEY: &str = "default";

/// The policy in `document`, which is the text `text`; `None` where `document` is not a ConfigMap.
///
/// # Errors
/// A ConfigMap without data; no configuration of the name `key`; several of them, none called `default`, and no `key`.
pub(super) fn policy_in(
    file: &str,
    text: &str,
    document: &Node,
    key: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<Option<Node>> {
    if !is_config_map(document) {
        return match key {
            None => Ok(None),
            Some(_) => {
                Err(Error::usage(file, "is not a ConfigMap, so there is no key to choose")
                    .hint("leave --config-key out"))
            }
        };
    }
    let mut fields = Fields::of(file, "the ConfigMap", document)?;
    let Some(data) = fields.take_section("data") else {
        return Err(fields
            .wrong_as_a_whole("it has no data")
            .hint("write the configuration below data, as KEY: |"));
    };
    let Value::Map(entries) = &data.value else {
        return Err(fields.wrong(data.place, "data: expected keys with values"));
    };
    let named: Vec<(&str, &Node)> = entries
        .iter()
        .filter_map(|(key, value)| match &key.value {
            Value::Text(name) | Value::Number(name) => Some((name.as_str(), value)),
            _ => None,
        })
        .collect();
    let known = || some(&named.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let find = |wanted: &str| named.iter().find(|(name, _)| *name == wanted);
    let (name, value) = match (key, named.as_slice()) {
        (Some(key), _) => find(key).ok_or_else(|| {
            Error::usage(data.place.of(file), format!("the ConfigMap has no key \"{key}\""))
                .hint(format!("it has {}", known()))
        })?,
        (None, [only]) => only,
        (None, _) => {
            let found = find(DEFAULT_KEY).ok_or_else(|| {
                Error::usage(
                    data.place.of(file),
                    "the ConfigMap has several configurations, and none is called default",
                )
                .hint(format!("give --config-key with one of {}", known()))
            })?;
            warnings.push(format!(
                "{}: the ConfigMap has several configurations ({}); default is used, and --config-key names another",
                data.place.of(file),
                known()
            ));
            found
        }
    };
    match &value.value {
        Value::Text(inner) => yaml::parse(file, inner, origin(text, value.place, inner)).map(Some),
        other => {
            let found = other.describe();
            let place = value.place.of(file);
            Err(
                Error::usage(place, format!("data.{name}: expected text, found {found}"))
                    .hint(format!("write {name}: | and the configuration below it, indented")),
            )
        }
    }
}

/// Whether this is a ConfigMap, with all of it or with `data` alone.
fn is_config_map(document: &Node) -> bool {
    let Value::Map(entries) = &document.value else {
        return false;
    };
    let has = |wanted: &str| {
        entries
            .iter()
            .any(|(key, _)| matches!(&key.value, Value::Text(name) if name.eq_ignore_ascii_case(wanted)))
    };
    let is_kind = entries.iter().any(|(key, value)| {
        matches!((&key.value, &value.value), (Value::Text(key), Value::Text(kind)) if key == "kind" && kind == "ConfigMap")
    });
    is_kind || (has("data") && !has("sharing") && !has("version"))
}

/// Where the lines of `inner` are in the file, whose text is `outer`; `place` is where YAML has the value begin.
///
/// The lines of a literal block (`|`) are those of the file, indented. Any other text is folded or quoted.
fn origin(outer: &str, place: Place, inner: &str) -> Origin {
    let lines: Vec<&str> = outer.lines().collect();
    let Some((at, first)) = inner.lines().enumerate().find(|(_, line)| !line.trim().is_empty()) else {
        return Origin::At(place);
    };
    // The block's header (`key: |`) is on the line where the value begins or, as some parsers count, on the one before.
    for header in [place.line, place.line.saturating_sub(1)] {
        let is_header = (header as usize)
            .checked_sub(1)
            .and_then(|index| lines.get(index))
            .is_some_and(|line| line.contains('|'));
        let raw = lines.get(header as usize + at).copied().unwrap_or_default();
        if is_header && let Some(before) = raw.strip_suffix(first) {
            let indent = u32::try_from(before.chars().count()).unwrap_or(u32::MAX);
            return Origin::Within { lines: header, indent };
        }
    }
    Origin::At(place)
}
