//! Sections that are at a place where nothing reads them. NVIDIA's plugin skips keys that it does not know, and a file
//! of which every key is skipped would be a valid policy that shares nothing.

use super::document::Document;
use super::fill::nearest;
use super::sections::{RuntimeSection, SharingSection};
use crate::yaml::{Node, Value};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use tranche_core::error::{Error, Result};

/// The keys at the top of a policy. Of most of them, only NVIDIA's plugin makes use.
pub(super) const TOP: [&str; 8] = [
    "version",
    "flags",
    "resources",
    "imex",
    "sharing",
    "runtime",
    "kubernetes",
    "mig",
];

/// Those of them that have an effect here.
const OWN: [&str; 4] = ["sharing", "runtime", "kubernetes", "mig"];

/// The keys by which a section is known, also at a wrong place. The others are names that many files have.
const TELLING: [&str; 2] = ["sharing", "timeSlicing"];

/// Checks that `root`, which is not a ConfigMap, has the sections of a policy where they are read.
///
/// # Errors
/// Returns a usage error with the place of a section that belongs elsewhere, of the text in which a values file of Helm
/// keeps a configuration, or of a List of Kubernetes; or if no key of the file belongs to a policy.
pub(super) fn check(document: &Document<'_>, root: &Node) -> Result<()> {
    let Value::Map(entries) = &root.value else {
        return Ok(());
    };
    let named = || {
        entries
            .iter()
            .filter_map(|(key, value)| Some((key, key.value.text()?, value)))
    };
    let has = |name: &str| named().any(|(_, key, _)| is_one_of(key, &[name]));
    if let Some((_, _, kind)) = named().find(|(_, key, value)| *key == "kind" && value.value.text() == Some("List")) {
        let what = "kind: List holds several objects of Kubernetes, and a policy is one";
        return Err(document
            .wrong(kind, what)
            .hint("write the ConfigMap among its items to a file of its own, or the configuration in it"));
    }
    for (key, name, value) in named() {
        // A word of a later version of the plugin may be similar. If the section is there too, it is not the section.
        if !is_one_of(name, &TOP)
            && let Some(near) = nearest(name, &OWN).filter(|near| !has(near))
        {
            let what = format!("\"{name}\" is unknown");
            return Err(document.wrong(key, what).hint(format!("did you mean {near}?")));
        }
        let is_section = is_one_of(name, &OWN);
        if !is_section && let Some(error) = within(document, name, value) {
            return Err(error);
        }
        if is_one_of(name, &["resources"]) && matches!(value.value, Value::List(_)) {
            let what = "resources: a list of resources to share is at the top of the file";
            return Err(document
                .wrong(key, what)
                .hint("write it below sharing and timeSlicing, or below sharing and mps"));
        }
        if is_one_of(name, &TOP) {
            continue;
        }
        let own = OWN
            .into_iter()
            .zip([fields_of::<SharingSection>(), fields_of::<RuntimeSection>()]);
        if let Some((section, _)) = own.into_iter().find(|(_, keys)| is_one_of(name, keys)) {
            let what = format!("{name}: is at the top of the file and belongs to {section}");
            let hint = format!("write {section}: on the line before it, and indent what belongs to it");
            return Err(document.wrong(key, what).hint(hint));
        }
    }
    if !entries.is_empty() && !named().any(|(_, key, _)| is_one_of(key, &TOP)) {
        let what = "no key of this file belongs to a policy";
        return Err(document
            .wrong(root, what)
            .hint("expected version, sharing, runtime, kubernetes or mig at the top"));
    }
    Ok(())
}

/// What is wrong if a section, or a text with one, is somewhere within `value`, which is at `path`.
fn within(document: &Document<'_>, path: &str, value: &Node) -> Option<Error> {
    match &value.value {
        Value::Map(entries) => entries.iter().find_map(|(key, value)| {
            let name = key.value.text().unwrap_or_default();
            if is_one_of(name, &TELLING) && matches!(value.value, Value::Map(_)) {
                let what = format!("{name}: is below {path}, where nothing reads it");
                let hint = match is_one_of(name, &OWN) {
                    true => "write it at the top of the file, without indentation".to_owned(),
                    false => "write it below sharing, which is at the top of the file".to_owned(),
                };
                return Some(document.wrong(key, what).hint(hint));
            }
            within(document, &format!("{path}.{name}"), value)
        }),
        Value::List(items) => items.iter().find_map(|item| within(document, path, item)),
        Value::Text(text) if holds_section(text) => {
            let what = format!("{path}: holds a configuration as text, as a values file of Helm does");
            Some(document.wrong(value, what).hint("write that text to a file of its own"))
        }
        _ => None,
    }
}

/// Whether a line of the text begins a section.
fn holds_section(text: &str) -> bool {
    let keys = text.lines().filter_map(|line| line.split_once(':'));
    keys.into_iter().any(|(key, _)| is_one_of(key.trim(), &TELLING))
}

/// Whether `key` is one of `names`, in any letter case.
fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// The keys of a section.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asks) {
        Err(Fields(fields)) => fields,
        Ok(_) => &[],
    }
}

/// A deserializer that ends with the keys that a type has.
struct Asks;

#[derive(Debug, thiserror::Error)]
#[error("the keys of a section")]
struct Fields(&'static [&'static str]);

impl de::Error for Fields {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Asks {
    type Error = Fields;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
        Err(Fields(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
