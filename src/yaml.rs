//! YAML that people write: one set of options for the parser, and the place of each value and of each error.

use crate::types::Place;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, MergeKeyPolicy, Options, Spanned};
use std::fmt;

/// One step on the way from the root of a document to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this key.
    Field(&'static str),
    /// The entry of a list with this number, from 0.
    Item(usize),
}

/// Options of the parser: merge keys (`<<`) work, and an error is one line without an excerpt of the file.
pub fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        merge_keys: MergeKeyPolicy::Merge,
    }
}

/// The place that the parser calls `location`; `None` if it does not know the place.
pub fn place(location: Location) -> Option<Place> {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    (location.line() > 0).then(|| Place {
        line: number(location.line()),
        column: number(location.column()),
    })
}

/// The place of an error of the parser, and its text in one line without that place.
pub fn explain(error: &serde_saphyr::Error) -> (Option<Place>, String) {
    let text = error.without_snippet().to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    (
        error.location().and_then(place),
        without_place(line.unwrap_or("not valid YAML")).to_owned(),
    )
}

/// The parser names the place in its text too, before or after the message.
fn without_place(text: &str) -> &str {
    let text = text.find(" at line ").map_or(text, |at| &text[..at]);
    match text.strip_prefix("error: line ") {
        Some(rest) => rest.split_once(": ").map_or(text, |(_, what)| what),
        None => text.strip_prefix("error: ").unwrap_or(text),
    }
}

/// The place in `text` of the value that `steps` lead to, or else of the nearest value above it. `None` if `text` is not
/// valid YAML.
pub fn find(text: &str, steps: &[PathStep]) -> Option<Place> {
    let root: Spanned<Tree> = serde_saphyr::from_str_with_options(text, options()).ok()?;
    let mut here = &root;
    for step in steps {
        let next = match (step, &here.value) {
            (PathStep::Field(name), Tree::Fields(fields)) => fields.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            (PathStep::Item(i), Tree::Items(items)) => items.get(*i),
            _ => None,
        };
        match next {
            Some(next) => here = next,
            None => break,
        }
    }
    place(here.referenced)
}

/// A document without its scalar values: only where everything is.
enum Tree {
    Fields(Vec<(String, Spanned<Tree>)>),
    Items(Vec<Spanned<Tree>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

/// Methods that accept any scalar value.
macro_rules! leaf {
    ($($visit:ident($($type:ty)?)),*) => {
        $(fn $visit<E>(self $(, _: $type)?) -> Result<Tree, E> {
            Ok(Tree::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    leaf!(
        visit_unit(),
        visit_none(),
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_i128(i128),
        visit_u128(u128),
        visit_f64(f64),
        visit_str(&str)
    );

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::Items(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Option<String>>()? {
            match name {
                Some(name) => fields.push((name, map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Tree::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_or_the_nearest_one_above_it() {
        let text = "a: 1\ndevices:\n- name: x\n- name: y\n  containerEdits:\n    env:\n    - A=b\n    - oops\n";
        let at = |steps: &[PathStep]| find(text, steps).map(|p| (p.line, p.column));
        let devices = PathStep::Field("devices");
        let env = [
            devices.clone(),
            PathStep::Item(1),
            PathStep::Field("containerEdits"),
            PathStep::Field("env"),
            PathStep::Item(1),
        ];
        assert_eq!(at(&env), Some((8, 7)));
        assert_eq!(
            at(&[devices.clone(), PathStep::Item(1), PathStep::Field("name")]),
            Some((4, 9))
        );
        assert_eq!(
            at(&[devices, PathStep::Item(0), PathStep::Field("nothing")]),
            Some((3, 3))
        );
        assert_eq!(find("a: [", &env), None);
    }
}
