//! A value of a TOML file, with its place.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as SerdeError, StrDeserializer};
use std::fmt::Display;
use toml_edit::{Item, TableLike};
use tranche_core::error::{Error, Result};
use tranche_core::types::{HostPath, Place};

/// A value, and the names by which errors call it.
#[derive(Clone, Copy)]
pub(super) struct TomlValue<'a> {
    pub(super) file: &'a str,
    /// The text of the file, in which places are counted.
    pub(super) text: &'a str,
    /// The key with the tables around it: `nvidia-container-runtime.mode`.
    pub(super) name: &'a str,
    pub(super) item: &'a Item,
}

impl<'a> TomlValue<'a> {
    /// The file with line and column.
    pub(super) fn place(&self) -> String {
        let start = self.item.span().unwrap_or_default().start;
        place(self.text, start).of(self.file)
    }

    pub(super) fn wrong(&self, what: impl Display) -> Error {
        Error::usage(self.place(), format!("{}: {what}", self.name))
    }

    fn expected(&self, what: &str) -> Error {
        self.wrong(format_args!(
            "expected {what}, found a value of type {}",
            self.item.type_name()
        ))
    }

    pub(super) fn table(&self) -> Result<&'a dyn TableLike> {
        self.item.as_table_like().ok_or_else(|| self.expected("a table"))
    }

    pub(super) fn bool(&self) -> Result<bool> {
        self.item.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    pub(super) fn text(&self) -> Result<&'a str> {
        self.item.as_str().ok_or_else(|| self.expected("text in quotes"))
    }

    /// The text; `None` if it is empty, which in NVIDIA's file means that the key has no value.
    pub(super) fn some_text(&self) -> Result<Option<String>> {
        let text = self.text()?;
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A directory; `None` if the text is empty, or `/`, which is the host itself.
    pub(super) fn directory(&self) -> Result<Option<HostPath>> {
        match self.text()? {
            "" | "/" => Ok(None),
            path => path.parse().map(Some).map_err(|error| self.wrong(error)),
        }
    }

    /// A list of texts, each of which passes the check.
    pub(super) fn list(&self, check: fn(&str) -> Result<(), &'static str>) -> Result<Vec<String>> {
        let expected = || self.expected("a list of texts in quotes");
        let list = self.item.as_array().ok_or_else(expected)?;
        let text = |value: &toml_edit::Value| self.checked(value.as_str().ok_or_else(expected)?, check);
        list.iter().map(text).collect()
    }

    /// As [`Self::list`], for a list that must not be empty.
    pub(super) fn not_empty(&self, check: fn(&str) -> Result<(), &'static str>) -> Result<Vec<String>> {
        let list = self.list(check)?;
        match list.is_empty() {
            true => Err(self.wrong("the list is empty; write at least one item, or remove the key")),
            false => Ok(list),
        }
    }

    /// The words of a text with commas between them, each of which passes the check.
    pub(super) fn words(&self, check: fn(&str) -> Result<(), &'static str>) -> Result<Vec<String>> {
        let words = self.text()?.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(|word| self.checked(word, check)).collect()
    }

    /// One of the words of an enum, which are `known`.
    pub(super) fn word<T: Deserialize<'a>>(&self, known: &str) -> Result<T> {
        let text = self.text()?;
        let word: StrDeserializer<'_, SerdeError> = text.into_deserializer();
        T::deserialize(word).map_err(|_| self.wrong(format_args!("\"{text}\" is unknown; write {known}")))
    }

    fn checked(&self, text: &str, check: fn(&str) -> Result<(), &'static str>) -> Result<String> {
        match check(text) {
            Ok(()) => Ok(text.to_owned()),
            Err(what) => Err(self.wrong(format_args!("\"{text}\" {what}"))),
        }
    }
}

/// The place of the byte at `offset`.
pub(super) fn place(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
    Place {
        line: number(before.matches('\n').count()),
        column: number(line.chars().count()),
    }
}
