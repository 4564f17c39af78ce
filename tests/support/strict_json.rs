//! JSON in which no object has a key twice. Parsers keep one of the two values, and not all keep the same one
//! (RFC 8259, section 4).

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// A value that was checked, and nothing of it.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Check)
    }
}

struct Check;

impl<'de> Visitor<'de> for Check {
    type Value = Checked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Checked, A::Error> {
        while list.next_element::<Checked>()?.is_some() {}
        Ok(Checked)
    }

    // Some numbers come here too: with arbitrary precision, serde_json gives them as an object with one key.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Checked, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format!("the key {key:?} is there twice")));
            }
            keys.insert(key);
            map.next_value::<Checked>()?;
        }
        Ok(Checked)
    }
}

/// Panics where `text` is not JSON, or has an object with a key twice.
pub fn check(text: &str) {
    if let Err(error) = serde_json::from_str::<Checked>(text) {
        panic!("{error}:\n{text}");
    }
}
