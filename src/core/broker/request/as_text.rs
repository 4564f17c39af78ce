//! Values that are text in a request, as people type them, although they may be numbers in other JSON.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Display;
use std::str::FromStr;

/// Writes the value as people type it.
///
/// # Errors
/// Returns the error of `serializer`.
pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

/// Reads what [`serialize`] wrote.
///
/// # Errors
/// Returns an error if the text is no such value.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(Error::custom)).transpose()
}
