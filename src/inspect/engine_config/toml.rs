//! TOML: reads a file, and changes values in its text.

use super::lines;
use serde_json::{Map, Number, Value};
use toml_edit::{Array, DocumentMut, Entry, InlineTable, Item, Key, RawString, Table, TableLike};

/// What `text` says. A date is the string that stands in the file; no key that tranche reads is one.
pub(super) fn value(text: &str) -> Result<Value, String> {
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| not_valid(text, &error))?;
    Ok(of_table(document.as_table()))
}

fn not_valid(text: &str, error: &toml_edit::TomlError) -> String {
    let line = error
        .span()
        .and_then(|span| text.get(..span.start))
        .map(|before| before.matches('\n').count() + 1);
    let message = error.message().trim().replace('\n', ", ");
    match line {
        Some(line) => format!("not valid TOML: line {line}: {message}"),
        None => format!("not valid TOML: {message}"),
    }
}

fn of_table(table: &dyn TableLike) -> Value {
    let entries = table
        .iter()
        .filter_map(|(key, item)| Some((key.to_owned(), of_item(item)?)));
    Value::Object(entries.collect())
}

fn of_item(item: &Item) -> Option<Value> {
    match item {
        Item::None => None,
        Item::Value(value) => Some(of_value(value)),
        Item::Table(table) => Some(of_table(table)),
        Item::ArrayOfTables(tables) => Some(Value::Array(tables.iter().map(|table| of_table(table)).collect())),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::String(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::from(*number.value()),
        toml_edit::Value::Float(number) => {
            Number::from_f64(*number.value()).map_or_else(|| Value::String(number.value().to_string()), Value::Number)
        }
        toml_edit::Value::Boolean(value) => Value::Bool(*value.value()),
        toml_edit::Value::Datetime(date) => Value::String(date.value().to_string()),
        toml_edit::Value::Array(list) => Value::Array(list.iter().map(of_value).collect()),
        toml_edit::Value::InlineTable(table) => of_table(table),
    }
}

/// Changes `text`, whose value is `from`, so that its value is `to` and all else keeps its form.
pub(super) fn changed(text: &str, from: &Value, to: &Value) -> Result<String, String> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Err("expected a table".to_owned());
    };
    let normal = lines::normal(text);
    // Comments of a file without any key belong to no key. They stay at the beginning.
    let (comments, source) = if from.is_empty() {
        (normal.as_str(), "")
    } else {
        ("", normal.as_str())
    };
    let mut document: DocumentMut = source
        .parse()
        .map_err(|error: toml_edit::TomlError| not_valid(text, &error))?;
    let mut lost = String::new();
    let style = Style {
        inline: false,
        indent: String::new(),
    };
    change(document.as_table_mut(), &style, from, to, &mut lost)?;
    if !lost.is_empty() {
        let trailing = document.trailing().as_str().unwrap_or_default();
        document.set_trailing(format!("{trailing}{lost}"));
    }
    let mut new = document.to_string();
    if !comments.trim().is_empty() {
        new = format!("{}\n\n{}", comments.trim_end(), new.trim_start_matches('\n'));
    }
    Ok(lines::like(text, &new))
}

/// How new entries of a table are written.
struct Style {
    /// In braces, and not below a header.
    inline: bool,
    /// The white space before the table's header.
    indent: String,
}

impl Style {
    /// The style of `item`, which is in a table of this style.
    fn of(&self, item: &Item) -> Style {
        let indent = match item {
            Item::Table(table) if !table.is_implicit() && !table.is_dotted() => indent_of(table.decor().prefix()),
            _ => self.indent.clone(),
        };
        Style {
            inline: self.inline || item.is_inline_table(),
            indent,
        }
    }

    /// The white space before a key or a header that is added to `table`: that of a key or a header in it.
    fn inside(&self, table: &dyn TableLike, of_headers: bool) -> String {
        let like = table.iter().filter_map(|(key, item)| match item {
            Item::Table(inner) => {
                let counts = of_headers && !inner.is_implicit() && !inner.is_dotted();
                counts.then(|| indent_of(inner.decor().prefix()))
            }
            Item::Value(_) if !of_headers => Some(indent_of(table.key(key)?.leaf_decor().prefix())),
            _ => None,
        });
        like.last().unwrap_or_else(|| deeper(&self.indent))
    }
}

/// The indent of what is below a header with `indent`. Files that do not indent headers do not indent what is below
/// them.
fn deeper(indent: &str) -> String {
    match indent {
        "" => String::new(),
        indent if indent.starts_with('\t') => format!("{indent}\t"),
        indent => format!("{indent}  "),
    }
}

/// The white space at the beginning of the line that follows `prefix`.
fn indent_of(prefix: Option<&RawString>) -> String {
    let prefix = prefix.and_then(RawString::as_str).unwrap_or_default();
    let line = prefix.rsplit('\n').next().unwrap_or_default();
    line.chars().take_while(|c| c.is_whitespace()).collect()
}

/// Changes `table`, and adds the comments of removed entries to `lost`.
fn change(
    table: &mut dyn TableLike,
    style: &Style,
    from: &Map<String, Value>,
    to: &Map<String, Value>,
    lost: &mut String,
) -> Result<(), String> {
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        if let Some(key) = table.key(key) {
            lost.push_str(&comments(key.leaf_decor().prefix()));
        }
        if let Some(item) = table.remove(key) {
            comments_in(&item, lost);
        }
    }
    for (key, new) in to {
        match (table.get_mut(key), from.get(key)) {
            (Some(_), Some(old)) if old == new => {}
            (Some(item), Some(old)) => change_item(item, style, old, new, lost)?,
            _ => insert(table, style, key, new)?,
        }
    }
    Ok(())
}

fn change_item(item: &mut Item, style: &Style, old: &Value, new: &Value, lost: &mut String) -> Result<(), String> {
    let style = style.of(item);
    if let (Value::Object(old), Value::Object(new), Some(table)) = (old, new, item.as_table_like_mut()) {
        return change(table, &style, old, new, lost);
    }
    if let (Value::Array(old), Value::Array(new), Some(array)) = (old, new, item.as_array_mut())
        && change_array(array, old, new)?
    {
        return Ok(());
    }
    let mut value = plain(new)?;
    if let Some(before) = item.as_value() {
        // A comment after the value stays.
        *value.decor_mut() = before.decor().clone();
    }
    *item = Item::Value(value);
    Ok(())
}

/// Adds elements at the end of `array`, or removes elements, so that comments between the others stay. Returns false if
/// `new` differs in another way.
fn change_array(array: &mut Array, old: &[Value], new: &[Value]) -> Result<bool, String> {
    if let Some(added) = new.strip_prefix(old) {
        for item in added {
            let mut item = plain(item)?;
            let last = array.len().checked_sub(1).and_then(|last| array.get_mut(last));
            if let Some(last) = last {
                // The new element is indented like the last one, and the text after the last one comes after the new
                // one.
                let suffix = last.decor().suffix().cloned().unwrap_or_default();
                last.decor_mut().set_suffix("");
                item.decor_mut().set_suffix(suffix);
                let prefix = last.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
                let prefix = match prefix.contains('\n') {
                    true => format!("\n{}", indent_of(last.decor().prefix())),
                    false => " ".to_owned(),
                };
                item.decor_mut().set_prefix(prefix);
            }
            array.push_formatted(item);
        }
        return Ok(true);
    }
    if old.iter().filter(|item| new.contains(item)).ne(new.iter()) {
        return Ok(false);
    }
    for (index, _) in old.iter().enumerate().rev().filter(|(_, item)| !new.contains(item)) {
        array.remove(index);
    }
    Ok(true)
}

fn insert(table: &mut dyn TableLike, style: &Style, name: &str, new: &Value) -> Result<(), String> {
    let (mut key, item) = match new {
        Value::Object(new) if !style.inline => {
            let indent = style.inside(table, true);
            (Key::new(name), Item::Table(below_header(new, &indent)?))
        }
        other => (Key::new(name), Item::Value(plain(other)?)),
    };
    if item.is_value() && !style.inline {
        key.leaf_decor_mut().set_prefix(style.inside(table, false));
    }
    match table.entry_format(&key) {
        Entry::Vacant(place) => {
            place.insert(item);
            Ok(())
        }
        Entry::Occupied(_) => Err(format!("{name}: is in the file in a form that cannot be changed")),
    }
}

/// A table with a header of its own, and its tables below it.
fn below_header(entries: &Map<String, Value>, indent: &str) -> Result<Table, String> {
    let inner = deeper(indent);
    let (tables, values): (Vec<_>, Vec<_>) = entries.iter().partition(|(_, value)| value.is_object());
    let mut table = Table::new();
    // A table that only has tables needs no header.
    table.set_implicit(values.is_empty() && !tables.is_empty());
    table.decor_mut().set_prefix(format!("\n{indent}"));
    for (name, value) in values {
        let mut key = Key::new(name);
        key.leaf_decor_mut().set_prefix(&*inner);
        table.entry_format(&key).or_insert(Item::Value(plain(value)?));
    }
    for (name, value) in tables {
        if let Value::Object(entries) = value {
            table.insert(name, Item::Table(below_header(entries, &inner)?));
        }
    }
    Ok(table)
}

/// The lines of `prefix` with a comment.
fn comments(prefix: Option<&RawString>) -> String {
    let prefix = prefix.and_then(RawString::as_str).unwrap_or_default();
    let comments = prefix.lines().filter(|line| line.trim_start().starts_with('#'));
    comments.map(|line| format!("{line}\n")).collect()
}

/// Adds the comments of the entries in a removed table to `lost`.
fn comments_in(item: &Item, lost: &mut String) {
    let Item::Table(table) = item else { return };
    lost.push_str(&comments(table.decor().prefix()));
    for (key, inner) in table {
        lost.push_str(&comments(table.key(key).and_then(|key| key.leaf_decor().prefix())));
        comments_in(inner, lost);
    }
}

/// A value that stands in a line.
fn plain(value: &Value) -> Result<toml_edit::Value, String> {
    Ok(match value {
        Value::Null => return Err("TOML has no null".to_owned()),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => return Err(format!("TOML has no number {number}")),
        },
        Value::String(text) => text.into(),
        Value::Array(list) => toml_edit::Value::Array(list.iter().map(plain).collect::<Result<Array, String>>()?),
        Value::Object(entries) => {
            let mut table = InlineTable::new();
            for (key, value) in entries {
                table.insert(key, plain(value)?);
            }
            toml_edit::Value::InlineTable(table)
        }
    })
}
