//! Reads a specification. JSON and YAML are read by one strict YAML parser, as in the reference library: an unknown
//! field or a duplicate key makes the whole file invalid. What a word means, and which field a name means, is decided
//! by the library's rules as well, so that an engine and tranche read one thing in one file.

use super::Spec;
use super::fields::Misfit;
use super::scalar::Scalar;
use super::tree::{Node, PathStep, Value};
use serde::Deserialize;
use tranche_core::types::Place;

/// Why a text is not a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// A byte is not part of UTF-8.
    #[error("not UTF-8")]
    NotUtf8 {
        /// The place of the byte.
        at: Place,
    },
    /// It is not valid YAML, or a field is unknown, missing, duplicate or of the wrong type.
    #[error("{what}")]
    Invalid {
        /// The place, if the parser knows it.
        at: Option<Place>,
        /// The parser's message, in one line.
        what: String,
    },
}

impl Refusal {
    /// The place in the text.
    pub fn at(&self) -> Option<Place> {
        match self {
            Refusal::Empty => None,
            Refusal::NotUtf8 { at } => Some(*at),
            Refusal::Invalid { at, .. } => *at,
        }
    }
}

/// Reads a specification. [`super::validate`] may still find faults in it.
///
/// # Errors
/// Returns an error if the text is not UTF-8, not YAML, or does not have the fields of [`Spec`].
pub fn spec(text: &[u8]) -> Result<Spec, Refusal> {
    let root = root(text)?;
    Spec::deserialize(&root).map_err(|Misfit { at, what }| Refusal::Invalid { at, what })
}

/// The kind and the names of the devices in a text that [`spec()`] refuses, if these can still be read.
pub fn outline(text: &[u8]) -> Option<(String, Vec<String>)> {
    #[derive(Deserialize)]
    struct Outline {
        kind: String,
        #[serde(default)]
        devices: Vec<Name>,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    let outline = Outline::deserialize(&root(text).ok()?).ok()?;
    Some((outline.kind, outline.devices.into_iter().map(|d| d.name).collect()))
}

/// The place in `text` of the value that `steps` lead to, or else of the nearest value above it. `None` if `text` is
/// not valid YAML.
pub fn place_of(text: &[u8], steps: &[PathStep]) -> Option<Place> {
    root(text).ok().map(|root| root.find(steps))
}

/// The values of the text.
fn root(text: &[u8]) -> Result<Node, Refusal> {
    match Node::parse(utf8(text)?)? {
        Some(root) if !matches!(root.value, Value::Scalar(Scalar::Null)) => Ok(root),
        _ => Err(Refusal::Empty),
    }
}

fn utf8(text: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(text).map_err(|e| {
        let valid = text.get(..e.valid_up_to()).unwrap_or_default();
        let after = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).saturating_add(1);
        Refusal::NotUtf8 {
            at: Place {
                line: after(valid.iter().filter(|b| **b == b'\n').count()),
                column: after(valid.iter().rev().take_while(|b| **b != b'\n').count()),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_yaml_are_one() {
        let yaml = b"---\ncdiVersion: \"0.5.0\"\nkind: a.b/c\ndevices:\n- name: 0\n  containerEdits:\n    env: [A=b]\ncontainerEdits: null\n";
        let json =
            br#"{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}"#;
        let spec_ = spec(yaml).unwrap();
        assert_eq!(spec_, spec(json).unwrap());
        assert_eq!(spec_.devices[0].name, "0");
    }

    #[test]
    fn a_refusal_has_its_place() {
        let text = b"cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: x\n  oops: 1\n";
        let e = spec(text).unwrap_err();
        assert_eq!(e.at().map(|p| p.line), Some(5), "{e:?}");
        assert!(e.to_string().contains("oops") && !e.to_string().contains('\n'), "{e:?}");
        assert_eq!(outline(text), Some(("a.b/c".into(), vec!["x".into()])));
        let twice = spec(b"kind: a\nkind: b\n").unwrap_err();
        assert_eq!(twice.at().map(|p| p.line), Some(2), "{twice:?}");
        let e = spec(b"a\nb\xff").unwrap_err();
        assert_eq!(
            e,
            Refusal::NotUtf8 {
                at: Place { line: 2, column: 2 }
            }
        );
        assert_eq!(spec(b" \n").unwrap_err(), Refusal::Empty);
    }
}
