//! JSON: reads a file, and changes values in its text.

use super::lines;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::{Map, Value};

/// What `text` says.
pub(super) fn value(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    // Stricter than the parser below, as engines are.
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    if !value.is_object() {
        return Err("expected a JSON object".to_owned());
    }
    let root = parsed(text)?;
    if let Some(key) = root.object_value().and_then(|object| duplicate(&object)) {
        return Err(format!("\"{key}\" is in one object twice"));
    }
    Ok(value)
}

fn parsed(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| format!("not valid JSON: {error}"))
}

/// A key that an object in `object` has twice. Programs do not agree on which of the two counts.
fn duplicate(object: &CstObject) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    for property in object.properties() {
        let name = property
            .name()
            .and_then(|name| name.decoded_value().ok())
            .unwrap_or_default();
        if !seen.insert(name.clone()) {
            return Some(name);
        }
        if let Some(found) = property.object_value().and_then(|inner| duplicate(&inner)) {
            return Some(found);
        }
    }
    None
}

/// `text`, which says `from`, changed so that it says `to`.
pub(super) fn changed(text: &str, from: &Value, to: &Value) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = parsed(&lines::normal(text))?;
    let object = root.object_value().ok_or("expected a JSON object")?;
    if let (Value::Object(from), Value::Object(to)) = (from, to) {
        change(&object, from, to);
    }
    Ok(lines::like(text, &root.to_string()))
}

fn change(object: &CstObject, from: &Map<String, Value>, to: &Map<String, Value>) {
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        if let Some(property) = object.get(key) {
            property.remove();
        }
    }
    for (key, new) in to {
        match (object.get(key), from.get(key), new) {
            (Some(_), Some(old), new) if old == new => {}
            (Some(property), Some(Value::Object(old)), Value::Object(new)) if property.object_value().is_some() => {
                if let Some(inner) = property.object_value() {
                    change(&inner, old, new);
                }
            }
            (Some(property), _, new) => property.set_value(input(new)),
            (None, _, new) => {
                object.append(key, input(new));
            }
        }
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(list) => CstInputValue::Array(list.iter().map(input).collect()),
        Value::Object(table) => {
            CstInputValue::Object(table.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}
