//! The values of a specification with their places, before anything is known of the fields: YAML by the rules of the
//! reference library ([`super::scalar`] has those of scalars).
//!
//! - Only the first document of a file is read.
//! - A key that a map has twice makes the file invalid. That includes keys that a merge (`<<`) brings: the library has
//!   no overriding of merged keys.

use super::parse::Refusal;
use super::scalar::{Scalar, ScalarTag};
use granit_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::Place;

/// One step on the way from the root of a specification to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// The value of this field.
    Field(&'static str),
    /// The entry of a list with this number, from 0.
    Item(usize),
}

/// A value with its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    /// Keys with their places and values, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) at: Place,
    pub(super) name: String,
}

impl Key {
    /// Whether this key means the field `field`: Go's JSON ignores the case of letters, with two letters that look like
    /// others.
    pub(super) fn means(&self, field: &str) -> bool {
        let folded = |c: char| match c {
            '\u{212a}' => 'k',
            '\u{17f}' => 's',
            c => c.to_ascii_lowercase(),
        };
        self.name.chars().map(folded).eq(field.chars().map(folded))
    }
}

/// The most values that aliases repeat. A specification of a hundred devices has a few thousand.
const MOST_REPEATED: usize = 100_000;

impl Node {
    /// Reads the first document of `text`; `None` if it has no document.
    ///
    /// # Errors
    /// Returns [`Refusal::Invalid`] if it is not valid YAML.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, Refusal> {
        let mut reader = Reader {
            text,
            events: Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false }),
            anchors: BTreeMap::new(),
            left: MOST_REPEATED,
        };
        loop {
            let Some(event) = reader.events.next_event() else {
                return Ok(None);
            };
            let (event, span) = event.map_err(invalid)?;
            match event {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                    return Err(refused(span.start, "engines read YAML 1.1 only; remove the line %YAML"));
                }
                Event::DocumentStart(..) => {
                    let (event, span) = reader.next()?;
                    return reader.node(event, span).map(Some);
                }
                _ => {}
            }
        }
    }

    /// The place of the value that `steps` lead to, or else of the nearest value above it.
    pub(super) fn find(&self, steps: &[PathStep]) -> Place {
        let mut here = self;
        for step in steps {
            let next = match (step, &here.value) {
                (PathStep::Field(name), Value::Map(entries)) => {
                    let mut entries = entries.iter().rev();
                    entries.find(|(key, _)| key.means(name)).map(|(_, value)| value)
                }
                (PathStep::Item(i), Value::List(items)) => items.get(*i),
                _ => None,
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        here.at
    }

    /// What this is, for a message.
    pub(super) fn kind(&self) -> String {
        match &self.value {
            Value::Scalar(Scalar::Null) => "nothing".to_owned(),
            Value::Scalar(Scalar::Text(text)) => format!("the text \"{text}\""),
            Value::Scalar(scalar) => scalar.clone().into_text(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

fn place(at: Marker) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place {
        line: number(at.line()),
        column: number(at.col()).saturating_add(1),
    }
}

fn refused(at: Marker, what: impl Into<String>) -> Refusal {
    Refusal::Invalid {
        at: Some(place(at)),
        what: what.into(),
    }
}

fn invalid(error: granit_parser::ScanError) -> Refusal {
    refused(*error.marker(), error.info())
}

struct Reader<'t> {
    text: &'t str,
    events: Parser<'t, granit_parser::StrInput<'t>>,
    /// Values that may be repeated, each with the number of values in it.
    anchors: BTreeMap<usize, (Node, usize)>,
    /// How many values may still be repeated.
    left: usize,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Refusal> {
        match self.events.next_event() {
            Some(event) => event.map_err(invalid),
            None => Err(Refusal::Invalid {
                at: None,
                what: "the document has no end".to_owned(),
            }),
        }
    }

    /// The value that begins with `event`.
    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Node, Refusal> {
        let at = place(span.start);
        let before = self.left;
        let (anchor, value) = match event {
            Event::Alias(id) => return self.repeated(id, span),
            Event::Scalar(text, style, anchor, tag) => {
                self.look_at_escapes(style, span)?;
                (anchor, Value::Scalar(scalar(&text, style, tag.as_deref(), span)?))
            }
            Event::SequenceStart(_, anchor, _) => (anchor, Value::List(self.items()?)),
            Event::MappingStart(_, anchor, _) => (anchor, Value::Map(self.entries(span)?)),
            _ => return Err(refused(span.start, "a value is missing")),
        };
        let node = Node { at, value };
        if anchor > 0 {
            let size = size(&node).saturating_add(before.saturating_sub(self.left));
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    /// The value that an alias repeats, with the alias' place.
    fn repeated(&mut self, id: usize, span: Span) -> Result<Node, Refusal> {
        let Some((node, size)) = self.anchors.get(&id) else {
            return Err(refused(span.start, "the value contains itself"));
        };
        self.left = self
            .left
            .checked_sub(*size)
            .ok_or_else(|| refused(span.start, format!("aliases repeat more than {MOST_REPEATED} values")))?;
        Ok(Node {
            at: place(span.start),
            value: node.value.clone(),
        })
    }

    /// Refuses what YAML 1.1 lacks and JSON has: engines refuse the file.
    fn look_at_escapes(&self, style: ScalarStyle, span: Span) -> Result<(), Refusal> {
        let bytes = span.start.byte_offset().zip(span.end.byte_offset());
        let written = bytes
            .and_then(|(start, end)| self.text.get(start..end))
            .unwrap_or_default();
        if style != ScalarStyle::DoubleQuoted || !written.contains('\\') {
            return Ok(());
        }
        let mut rest = written;
        while let Some((_, after)) = rest.split_once('\\') {
            if after.starts_with('/') {
                return Err(refused(
                    span.start,
                    "engines refuse the escape \\/ in a specification; write /",
                ));
            }
            let unit = after.strip_prefix('u').and_then(|after| after.get(..4));
            if unit.is_some_and(|unit| matches!(u32::from_str_radix(unit, 16), Ok(0xd800..=0xdfff))) {
                let what =
                    "engines refuse a character in two escapes (\\ud83d\\ude00) in a specification; write it itself";
                return Err(refused(span.start, what));
            }
            rest = after.get(1..).unwrap_or_default();
        }
        Ok(())
    }

    fn items(&mut self) -> Result<Vec<Node>, Refusal> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(items);
            }
            items.push(self.node(event, span)?);
        }
    }

    fn entries(&mut self, of: Span) -> Result<Vec<(Key, Node)>, Refusal> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut names = BTreeSet::new();
        let mut add = |key: Key, value: Node| {
            if !names.insert(key.name.clone()) {
                let what = format!("the key \"{}\" is there twice", key.name);
                return Err(Refusal::Invalid { at: Some(key.at), what });
            }
            entries.push((key, value));
            Ok(())
        };
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let is_merge = is_merge(&event);
            let key = self.node(event, span)?;
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span)?;
            if is_merge {
                for (key, value) in merged(value)? {
                    add(key, value)?;
                }
                continue;
            }
            let kind = key.kind();
            let name = match key.value {
                Value::Scalar(scalar) => scalar.into_key(),
                _ => None,
            };
            let name = name.ok_or_else(|| refused(of.start, format!("{kind} is not a key")))?;
            add(Key { at: key.at, name }, value)?;
        }
    }
}

/// The number of values in `node`.
fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar(_) => 1,
        Value::List(items) => items.iter().map(size).sum::<usize>().saturating_add(1),
        Value::Map(entries) => entries
            .iter()
            .map(|(_, value)| size(value))
            .sum::<usize>()
            .saturating_add(1),
    }
}

/// Whether a key brings the keys of other maps.
fn is_merge(key: &Event<'_>) -> bool {
    match key {
        Event::Scalar(text, style, _, None) => text == "<<" && *style == ScalarStyle::Plain,
        Event::Scalar(text, _, _, Some(tag)) => text == "<<" && core_suffix(tag) == Some("merge"),
        _ => false,
    }
}

/// The keys that the value of a merge brings.
fn merged(value: Node) -> Result<Vec<(Key, Node)>, Refusal> {
    let wrong = |at| Refusal::Invalid {
        at: Some(at),
        what: "a merge (<<) takes a map or a list of maps".to_owned(),
    };
    match value.value {
        Value::Map(entries) => Ok(entries),
        Value::List(items) => {
            let maps = items.into_iter().map(|item| match item.value {
                Value::Map(entries) => Ok(entries),
                _ => Err(wrong(item.at)),
            });
            let maps: Vec<_> = maps.collect::<Result<_, _>>()?;
            Ok(maps.into_iter().flatten().collect())
        }
        Value::Scalar(_) => Err(wrong(value.at)),
    }
}

/// The name of a tag of YAML itself.
fn core_suffix(tag: &Tag) -> Option<&str> {
    (tag.handle() == "tag:yaml.org,2002:").then(|| tag.suffix())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Scalar, Refusal> {
    let text_itself = || Ok(Scalar::Text(text.to_owned()));
    match tag {
        None if style == ScalarStyle::Plain => Ok(Scalar::plain(text)),
        None => text_itself(),
        Some(tag) => match core_suffix(tag) {
            Some("binary") => Err(refused(span.start, "!!binary is not read here; write the text itself")),
            Some(suffix) => match ScalarTag::of(suffix) {
                Some(known) => Scalar::tagged(known, text)
                    .ok_or_else(|| refused(span.start, format!("\"{text}\" is not of the type !!{suffix}"))),
                None => text_itself(),
            },
            None => text_itself(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_or_the_nearest_one_above_it() {
        let text = "a: 1\nDevices:\n- name: x\n- name: y\n  containerEdits:\n    env:\n    - A=b\n    - oops\n";
        let root = Node::parse(text).unwrap().unwrap();
        let at = |steps: &[PathStep]| {
            let place = root.find(steps);
            (place.line, place.column)
        };
        let devices = PathStep::Field("devices");
        let env = [
            devices.clone(),
            PathStep::Item(1),
            PathStep::Field("containerEdits"),
            PathStep::Field("env"),
            PathStep::Item(1),
        ];
        assert_eq!(at(&env), (8, 7));
        assert_eq!(
            at(&[devices.clone(), PathStep::Item(1), PathStep::Field("name")]),
            (4, 9)
        );
        assert_eq!(at(&[devices, PathStep::Item(0), PathStep::Field("nothing")]), (3, 3));
    }

    #[test]
    fn aliases_do_not_grow_without_a_limit() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..10 {
            let before = format!("*a{}", i - 1);
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", [before.as_str(); 10].join(", ")));
        }
        let refused = Node::parse(&bomb).unwrap_err();
        assert!(refused.to_string().contains("aliases repeat more than"), "{refused}");
        assert!(Node::parse("a: &a [*a]\n").is_err());
    }
}
