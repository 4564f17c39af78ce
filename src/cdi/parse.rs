//! A specification from text. JSON and YAML are read by one strict YAML parser, as the reference library does: an
//! unknown field or a key that is there twice refuses the whole file.

use super::Spec;
use serde::Deserialize;
use serde_saphyr::{MergeKeyPolicy, Options};

/// A place in a text. Lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// Line.
    pub line: u64,
    /// Column, in characters.
    pub column: u64,
}

/// Why a text is no specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Where, if the parser could tell.
    pub at: Option<Place>,
    /// Why, in one line.
    pub what: String,
}

/// Reads a specification. It may still hold what [`super::validate`] refuses.
///
/// # Errors
/// Text that is not UTF-8, no YAML, or of another shape than [`Spec`].
pub fn spec(text: &[u8]) -> Result<Spec, Refusal> {
    let text = utf8(text)?;
    if text.trim().is_empty() {
        return Err(Refusal {
            at: None,
            what: "the file is empty".into(),
        });
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|e| refusal(&e))
}

/// What can still be said of a text that [`spec()`] refuses: its kind and the names of its devices.
pub fn outline(text: &[u8]) -> Option<(String, Vec<String>)> {
    #[derive(Deserialize)]
    struct Outline {
        kind: String,
        #[serde(default)]
        devices: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let outline: Outline = serde_saphyr::from_str_with_options(utf8(text).ok()?, options()).ok()?;
    Some((outline.kind, outline.devices.into_iter().map(|d| d.name).collect()))
}

pub(super) fn options() -> Options {
    serde_saphyr::options! {
        // One line is wanted, not a picture of the file.
        with_snippet: false,
        merge_keys: MergeKeyPolicy::Merge,
    }
}

fn utf8(text: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(text).map_err(|e| {
        let good = text.get(..e.valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|b| **b == b'\n').count();
        let column = 1 + good.iter().rev().take_while(|b| **b != b'\n').count();
        Refusal {
            at: Some(Place {
                line: line as u64,
                column: column as u64,
            }),
            what: "not UTF-8".into(),
        }
    })
}

fn refusal(e: &serde_saphyr::Error) -> Refusal {
    let at = e.location().filter(|l| l.line() > 0).map(|l| Place {
        line: l.line(),
        column: l.column(),
    });
    let said = e.without_snippet().to_string();
    let first = said.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or("no YAML");
    Refusal {
        at,
        what: without_place(first).to_owned(),
    }
}

/// The parser says the place once more in its text, before or behind.
fn without_place(text: &str) -> &str {
    let text = match text.find(" at line ") {
        Some(at) => &text[..at],
        None => text,
    };
    match text.strip_prefix("error: line ") {
        Some(rest) => rest.split_once(": ").map_or(text, |(_, what)| what),
        None => text.strip_prefix("error: ").unwrap_or(text),
    }
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
        assert_eq!(e.at.map(|p| p.line), Some(5), "{e:?}");
        assert!(e.what.contains("oops") && !e.what.contains('\n'), "{e:?}");
        assert_eq!(outline(text), Some(("a.b/c".into(), vec!["x".into()])));
        let twice = spec(b"kind: a\nkind: b\n").unwrap_err();
        assert_eq!(twice.at.map(|p| p.line), Some(2), "{twice:?}");
        let e = spec(b"a\nb\xff").unwrap_err();
        assert_eq!(e.at, Some(Place { line: 2, column: 2 }));
        assert_eq!(spec(b" \n").unwrap_err().what, "the file is empty");
    }
}
