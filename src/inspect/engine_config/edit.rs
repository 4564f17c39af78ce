//! Values that a configuration shall contain, and how they are taken back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a value is: the keys from the top of the file.
pub type Keys = Vec<String>;

/// One change of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edit {
    /// A setting that others may change later. It is taken back only if it still has this value.
    Set {
        /// Where it is.
        keys: Keys,
        /// The new value.
        value: Value,
    },
    /// An entry that belongs to tranche, with all that is in it. It is taken back as a whole.
    Own {
        /// Where it is.
        keys: Keys,
        /// The entry.
        value: Value,
    },
    /// One element of a list. The list is created if it does not exist.
    Include {
        /// Where the list is.
        keys: Keys,
        /// The element.
        value: Value,
    },
}

impl Edit {
    /// Where the change is made.
    pub fn keys(&self) -> &[String] {
        let (Edit::Set { keys, .. } | Edit::Own { keys, .. } | Edit::Include { keys, .. }) = self;
        keys
    }

    /// Whether `other` takes the place of `self` in a list of changes.
    pub fn is_replaced_by(&self, other: &Edit) -> bool {
        match (self, other) {
            (Edit::Include { .. }, Edit::Include { .. }) => self == other,
            _ => self.keys() == other.keys(),
        }
    }

    /// Makes the change in `root`. Returns the keys of a value on the way that is not a table, if there is one.
    pub(super) fn apply(&self, root: &mut Value) -> Result<(), Keys> {
        match self {
            Edit::Set { keys, value } | Edit::Own { keys, value } => put(root, keys, value.clone()),
            Edit::Include { keys, value } => {
                let mut list = match at(root, keys) {
                    None => Vec::new(),
                    Some(Value::Array(list)) => list.clone(),
                    Some(_) => return Err(keys.clone()),
                };
                if !list.contains(value) {
                    list.push(value.clone());
                }
                put(root, keys, Value::Array(list))
            }
        }
    }

    /// Takes the change back in `root`, where the file had `original` before. Returns whether a value was kept because
    /// another program or person changed it since.
    pub(super) fn take_back(&self, root: &mut Value, original: &Value) -> bool {
        let keys = self.keys();
        let before = at(original, keys);
        let mut kept = false;
        match (self, at(root, keys)) {
            (_, None) => {}
            (Edit::Include { value, .. }, Some(Value::Array(list))) => {
                let was_there = before
                    .and_then(Value::as_array)
                    .is_some_and(|list| list.contains(value));
                if !was_there && list.contains(value) {
                    let rest: Vec<Value> = list.iter().filter(|item| *item != value).cloned().collect();
                    match rest.is_empty() && before.is_none() {
                        true => remove(root, keys),
                        false => replace(root, keys, Value::Array(rest)),
                    }
                }
            }
            (Edit::Set { value, .. }, Some(now)) if now != value => kept = Some(now) != before,
            (Edit::Include { .. }, Some(_)) => kept = true,
            (Edit::Set { .. } | Edit::Own { .. }, Some(_)) => match before {
                Some(before) => replace(root, keys, before.clone()),
                None => remove(root, keys),
            },
        }
        // Tables that only held what was removed.
        for length in (1..keys.len()).rev() {
            let parent = keys.get(..length).unwrap_or_default();
            let is_empty = at(root, parent).and_then(Value::as_object).is_some_and(Map::is_empty);
            if is_empty && at(original, parent).is_none() {
                remove(root, parent);
            }
        }
        kept
    }
}

/// The value at `keys`.
pub(super) fn at<'a, K: AsRef<str>>(root: &'a Value, keys: &[K]) -> Option<&'a Value> {
    keys.iter()
        .try_fold(root, |value, key| value.as_object()?.get(key.as_ref()))
}

/// Puts `new` at `keys`, and creates the tables on the way.
fn put(root: &mut Value, keys: &[String], new: Value) -> Result<(), Keys> {
    let mut value = root;
    for (depth, key) in keys.iter().enumerate() {
        let Value::Object(table) = value else {
            return Err(keys.get(..depth).unwrap_or_default().to_vec());
        };
        value = table.entry(key).or_insert(Value::Null);
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
    }
    *value = new;
    Ok(())
}

fn replace(root: &mut Value, keys: &[String], new: Value) {
    if let Some(value) = at_mut(root, keys) {
        *value = new;
    }
}

fn remove(root: &mut Value, keys: &[String]) {
    if let Some((last, parents)) = keys.split_last()
        && let Some(Value::Object(table)) = at_mut(root, parents)
    {
        table.shift_remove(last);
    }
}

fn at_mut<'a>(root: &'a mut Value, keys: &[String]) -> Option<&'a mut Value> {
    keys.iter()
        .try_fold(root, |value, key| value.as_object_mut()?.get_mut(key))
}

/// `keys` from words.
pub(super) fn keys(words: &[&str]) -> Keys {
    words.iter().map(|word| (*word).to_owned()).collect()
}
