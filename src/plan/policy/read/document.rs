//! A policy's text as a tree of YAML, and the place of everything in it in the file that a person edits.

use crate::yaml::{self, Node, TextOrigin};
use std::fmt::Display;
use tranche_core::error::{Error, Result};
use tranche_core::types::Place;

/// A file with a policy, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Document<'a> {
    /// The name of the file, for messages.
    pub(crate) file: &'a str,
    pub(crate) origin: TextOrigin,
}

impl Document<'_> {
    /// Where `node` is in the file.
    pub(crate) fn place(&self, node: &Node) -> Place {
        self.moved(yaml::place(node.referenced))
    }

    fn moved(&self, place: Option<Place>) -> Place {
        self.origin.moved(place).unwrap_or_default()
    }

    /// An error about `node`.
    pub(crate) fn wrong(&self, node: &Node, what: impl Display) -> Error {
        Error::usage(self.place(node).of(self.file), what)
    }

    /// Reads `text`, which is this document.
    ///
    /// # Errors
    /// Returns a usage error if the text is not valid YAML, if a key is written twice, or if it is nested deeper than a
    /// policy can be.
    pub(crate) fn parse(&self, text: &str) -> Result<Node> {
        serde_saphyr::from_str_with_options(text, yaml::options()).map_err(|error| {
            let place = self.moved(error.location().and_then(yaml::place));
            let (what, hint) = in_our_words(&error);
            Error::usage(place.of(self.file), what).hint(hint)
        })
    }
}

/// What is wrong and what to do, for a person who knows YAML and not the library.
fn in_our_words(error: &serde_saphyr::Error) -> (String, &'static str) {
    use serde_saphyr::Error as E;
    let (what, hint) = match error {
        E::AliasError { error, .. } => return in_our_words(error),
        E::DuplicateMappingKey { key: Some(key), .. } => {
            return (format!("the key \"{key}\" is there twice"), "remove one of them");
        }
        E::DuplicateMappingKey { .. } => ("a key is there twice", "remove one of them"),
        E::MultipleDocuments { .. } => (
            "a second YAML document begins here",
            "keep one document in the file, without a line of three hyphens in between",
        ),
        E::Budget { .. } => (
            "the document has more parts or deeper nesting than any policy",
            "make it smaller",
        ),
        E::AliasReplayCounterOverflow { .. }
        | E::AliasReplayLimitExceeded { .. }
        | E::AliasExpansionLimitExceeded { .. }
        | E::AliasReplayStackDepthExceeded { .. } => (
            "the aliases (*name) repeat more than a policy can hold",
            "write the values out",
        ),
        E::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias (*name) is used within its own anchor (&name)",
            "write the value out",
        ),
        E::UnknownAnchor { .. } => (
            "an alias (*name) has no anchor (&name) before it",
            "write the value out",
        ),
        E::Eof { .. } => ("the document ends too early", "close every bracket, brace and quote"),
        E::UnsupportedTag { .. } => ("YAML tags (!name) have no meaning in a policy", "remove the tag"),
        _ => (
            "this is not valid YAML",
            "check the indentation, and that brackets, braces and quotes are closed",
        ),
    };
    (what.to_owned(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::Value;

    fn complaint(text: &str) -> String {
        let document = Document {
            file: "c.yaml",
            origin: TextOrigin::File,
        };
        document.parse(text).unwrap_err().to_string()
    }

    #[test]
    fn everything_has_its_place() {
        let text = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: a, replicas: 10}\n";
        for (origin, moved) in [
            (TextOrigin::File, (0, 0)),
            (TextOrigin::Within { lines: 7, indent: 4 }, (7, 4)),
        ] {
            let at = |line: u32, column: u32| Place {
                line: line + moved.0,
                column: column + moved.1,
            };
            let document = Document { file: "c.yaml", origin };
            let doc = document.parse(text).unwrap();
            let Value::Map(top) = &doc.value else { panic!("{doc:?}") };
            assert_eq!(document.place(&top[1].0), at(2, 1));
            let Value::Map(sharing) = &top[1].1.value else { panic!() };
            let Value::Map(mps) = &sharing[0].1.value else { panic!() };
            let Value::List(list) = &mps[0].1.value else { panic!() };
            let Value::Map(entry) = &list[0].value else { panic!() };
            assert_eq!(document.place(&entry[1].1), at(5, 27));
            assert!(matches!(&entry[1].1.value, Value::Number(n) if n == "10"));
        }
    }

    #[test]
    fn what_is_wrong_with_the_yaml_is_said_in_our_words_with_place_and_remedy() {
        let deep = format!("a: {}", "[".repeat(5000));
        for (text, place, says) in [
            ("a: 1\na: 2\n", "c.yaml:2:1", "\"a\" is there twice; remove"),
            (
                "a: 1\n---\nb: 2\n",
                "c.yaml:",
                "second YAML document begins here; keep one",
            ),
            (deep.as_str(), "c.yaml:", ";"),
            ("a: &x [*x]\n", "c.yaml:1:", "alias"),
            ("a: *x\n", "c.yaml:1:", "no anchor"),
            ("a: [1\nb: 2\n", "c.yaml:", "brackets"),
            ("a: \"x\n", "c.yaml:", "quote"),
            ("a: b: c\n", "c.yaml:1:", "indentation"),
        ] {
            let said = complaint(text);
            assert!(said.starts_with(place) && said.contains(says), "{said}");
            for internal in [
                "DuplicateKeyPolicy",
                "from_str",
                "budget",
                "weak",
                "Options",
                "Spanned",
                "serde",
            ] {
                assert!(!said.contains(internal), "{said}");
            }
        }
    }
}
