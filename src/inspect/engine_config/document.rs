//! The text of a configuration file, with what it says.

use super::edit::{Edit, at};
use super::{json, toml};
use serde_json::{Map, Value};
use tranche_core::error::{Error, Result};
use tranche_plan::engines::Engine;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// `daemon.json`
    Json,
    /// The files of containerd, CRI-O and podman.
    Toml,
}

impl Syntax {
    /// The format of the files of `engine`.
    pub fn of(engine: Engine) -> Self {
        match engine {
            Engine::Docker => Self::Json,
            Engine::Containerd | Engine::Crio | Engine::Podman => Self::Toml,
        }
    }
}

/// A configuration file that was read.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The file's name, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    syntax: Syntax,
    value: Value,
}

impl ConfigFile {
    /// Reads `text` of the file `name`. A text without any content is an empty table: engines accept such files.
    ///
    /// # Errors
    /// Returns an error if the text is not valid, or if a key is in one table twice.
    pub fn read(name: impl Into<String>, syntax: Syntax, text: &str) -> Result<Self> {
        let name = name.into();
        if text.starts_with('\u{feff}') {
            let what = "begins with a byte order mark (EF BB BF), which not every version of the engine reads";
            let remove = format!("nothing was changed; remove it: sed -i '1s/^\\xEF\\xBB\\xBF//' {name}");
            return Err(Error::failed(&name, what).hint(remove));
        }
        let value = match syntax {
            Syntax::Json => json::value(text),
            Syntax::Toml => toml::value(text),
        };
        let value = value.map_err(|what| {
            Error::failed(&name, what).hint("nothing was changed; correct the file, then run the command again")
        })?;
        Ok(ConfigFile {
            name,
            text: text.to_owned(),
            syntax,
            value,
        })
    }

    /// What an engine reads from `first` and from files that it reads after it. A later value replaces an earlier one.
    #[must_use]
    pub fn together<'a>(first: &ConfigFile, others: impl Iterator<Item = &'a ConfigFile>) -> ConfigFile {
        let mut together = first.clone();
        others.for_each(|other| merge(&mut together.value, &other.value));
        together
    }

    /// What the file says.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Whether the file says nothing.
    pub fn is_empty(&self) -> bool {
        self.value.as_object().is_some_and(Map::is_empty)
    }

    /// The value at `keys`.
    pub fn get(&self, keys: &[&str]) -> Option<&Value> {
        at(&self.value, keys)
    }

    /// The table at `keys`.
    ///
    /// # Errors
    /// Returns an error if something else is there, or on the way there.
    pub fn table(&self, keys: &[&str]) -> Result<Option<&Map<String, Value>>> {
        let mut value = &self.value;
        for depth in 0..=keys.len() {
            let Value::Object(table) = value else {
                return Err(self.wrong(keys.get(..depth).unwrap_or_default(), "a table", value));
            };
            match keys.get(depth) {
                None => return Ok(Some(table)),
                // docker takes null for an absent table.
                Some(key) => match table.get(*key).filter(|next| !next.is_null()) {
                    Some(next) => value = next,
                    None => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// The text at `keys`.
    ///
    /// # Errors
    /// Returns an error if something else is there.
    pub fn text_at(&self, keys: &[&str]) -> Result<Option<&str>> {
        match self.get(keys) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(keys, "a string", other)),
        }
    }

    /// The strings of the list at `keys`, and whether podman's mark `{append=true}` is in it.
    ///
    /// # Errors
    /// Returns an error if something else is there.
    pub fn list_at(&self, keys: &[&str]) -> Result<Option<Vec<&str>>> {
        let list = match self.get(keys) {
            None => return Ok(None),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.wrong(keys, "a list of strings", other)),
        };
        let strings = list.iter().filter(|item| !item.is_object());
        let strings: Option<Vec<&str>> = strings.map(Value::as_str).collect();
        let found = self.get(keys).unwrap_or(&Value::Null);
        strings
            .map(Some)
            .ok_or_else(|| self.wrong(keys, "a list of strings", found))
    }

    /// An error about the value at `keys`.
    pub fn wrong(&self, keys: &[&str], expected: &str, found: &Value) -> Error {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "a table",
        };
        let place = match keys {
            [] => "the file".to_owned(),
            keys => keys.join("."),
        };
        Error::failed(&self.name, format!("{place}: expected {expected}, found {found}"))
            .hint("nothing was changed; correct the file, then run the command again")
    }

    /// The file with `edits`. Only the places of the edits change in the text.
    ///
    /// # Errors
    /// Returns an error if a value in the file has the wrong type, or if the new text does not say exactly what was
    /// meant.
    pub fn with(&self, edits: &[Edit]) -> Result<ConfigFile> {
        let mut target = self.value.clone();
        for edit in edits {
            edit.apply(&mut target).map_err(|keys| {
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let expected = match edit {
                    Edit::Include { .. } => "a list",
                    _ => "a table",
                };
                self.wrong(&keys, expected, self.get(&keys).unwrap_or(&Value::Null))
            })?;
        }
        self.changed_to(&target)
    }

    /// The file without `edits`, which had the content of `original` before them. Returns also the names of the
    /// settings that were kept because they changed since.
    ///
    /// # Errors
    /// Returns an error if the new text does not say exactly what was meant.
    pub fn without(&self, edits: &[Edit], original: &ConfigFile) -> Result<(ConfigFile, Vec<String>)> {
        let mut target = self.value.clone();
        let mut kept = Vec::new();
        for edit in edits {
            if edit.take_back(&mut target, &original.value) {
                kept.push(edit.keys().join("."));
            }
        }
        Ok((self.changed_to(&target)?, kept))
    }

    fn changed_to(&self, target: &Value) -> Result<ConfigFile> {
        if *target == self.value {
            return Ok(self.clone());
        }
        let text = match self.syntax {
            Syntax::Json => json::changed(&self.text, &self.value, target),
            Syntax::Toml => toml::changed(&self.text, &self.value, target),
        };
        let failed = |what: String| {
            Error::failed(&self.name, what)
                .hint("nothing was changed; make the change by hand, see docs/how-to/engines.md")
        };
        let text = text.map_err(failed)?;
        // The text is read again: nothing else in it may have changed its meaning.
        let result = ConfigFile::read(&*self.name, self.syntax, &text);
        let result = result.map_err(|error| failed(format!("cannot be changed: the result is not valid: {error}")))?;
        if result.value != *target {
            return Err(failed(
                "cannot be changed: the result says something else than intended".to_owned(),
            ));
        }
        Ok(result)
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
