//! Where in a file a value stands: for faults that are found only after the file was read.

use super::parse::{Place, options};
use super::validate::Step;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// A file as a tree of places.
enum Tree {
    Fields(Vec<(String, Spanned<Tree>)>),
    Items(Vec<Spanned<Tree>>),
    Leaf,
}

/// The place of what `steps` lead to in `text`, or of the nearest thing above it that is there.
pub(super) fn place(text: &str, steps: &[Step]) -> Option<Place> {
    let root: Spanned<Tree> = serde_saphyr::from_str_with_options(text, options()).ok()?;
    let mut here = &root;
    for step in steps {
        let next = match (step, &here.value) {
            (Step::Field(name), Tree::Fields(fields)) => fields.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            (Step::Item(i), Tree::Items(items)) => items.get(*i),
            _ => None,
        };
        match next {
            Some(next) => here = next,
            None => break,
        }
    }
    Some(Place {
        line: here.referenced.line(),
        column: here.referenced.column(),
    })
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

/// Values do not matter, only where they are.
macro_rules! leaf {
    ($($visit:ident($type:ty)),*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Tree, E> {
            Ok(Tree::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    leaf!(
        visit_bool(bool),
        visit_i64(i64),
        visit_u64(u64),
        visit_i128(i128),
        visit_u128(u128),
        visit_f64(f64),
        visit_str(&str)
    );

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

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
    fn the_line_of_a_value() {
        let text = "a: 1\ndevices:\n- name: x\n- name: y\n  containerEdits:\n    env:\n    - A=b\n    - oops\n";
        let at = |steps: &[Step]| place(text, steps).map(|p| p.line);
        let env = [
            Step::Field("devices"),
            Step::Item(1),
            Step::Field("containerEdits"),
            Step::Field("env"),
            Step::Item(1),
        ];
        assert_eq!(at(&env), Some(8));
        assert_eq!(
            at(&[Step::Field("devices"), Step::Item(1), Step::Field("name")]),
            Some(4)
        );
        assert_eq!(
            at(&[Step::Field("devices"), Step::Item(0), Step::Field("nothing")]),
            Some(3)
        );
        assert_eq!(place("a: [", &env), None);
    }
}
