//! The state of a container, as a runtime writes it to the standard input of a hook (runtime-spec, runtime.md,
//! "State").

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use serde::Deserialize;

use super::STATE_LIMIT;
use crate::bounded;
use crate::error::{Context, Error, Result};

/// The part of a container's state that a hook needs.
///
/// `status` is left out because crun writes values of its own (`starting`), and `ociVersion` because it does not affect
/// the keys below.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct State {
    /// The container's name in its runtime.
    #[serde(default)]
    pub id: String,
    /// The directory with `config.json`, absolute.
    pub bundle: PathBuf,
    /// The pid of the container's first process, in the engine's pid namespace. It is valid in a `createRuntime` hook
    /// only: a `createContainer` hook gets 0 from crun, and from runc the pid in the container's own namespace.
    #[serde(default, deserialize_with = "pid")]
    pub pid: Option<u32>,
    /// The absolute path of the root directory, which only crun writes.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// The annotations that are texts. Some engines copy them from images.
    #[serde(default, deserialize_with = "texts")]
    pub annotations: BTreeMap<String, String>,
}

impl State {
    /// Reads a state to the end of `from`, which the engine closes.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is larger than [`STATE_LIMIT`], or is invalid.
    pub fn read(from: impl Read) -> Result<State> {
        let bytes = bounded::read(from, STATE_LIMIT).about("container state", "cannot read standard input")?;
        Self::parse(&bytes)
    }

    /// Parses a state.
    ///
    /// # Errors
    /// Returns an error if it is not a JSON object, or has no absolute `bundle`.
    pub fn parse(bytes: &[u8]) -> Result<State> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(Error::failed("container state", "standard input is empty")
                .hint("this program is run by an OCI runtime, which writes the state there"));
        }
        let state: State = serde_json::from_slice(bytes).about("container state", "does not parse")?;
        if !state.bundle.is_absolute() {
            let what = format!("bundle {:?} is not an absolute path", state.bundle);
            return Err(Error::failed("container state", what));
        }
        Ok(state)
    }
}

/// A pid; `None` for any other value, because only some callers need a pid.
fn pid<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<u32>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
}

/// The texts of an object; nothing of any other value, because most callers need no annotation.
fn texts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let entries = value.as_object().into_iter().flatten();
    Ok(entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::line;

    #[test]
    fn crun_and_runc_are_both_understood() {
        let crun =
            br#"{"ociVersion":"1.0","id":"c","pid":0,"root":"/r","bundle":"/b","status":"starting","annotations":{}}"#;
        let runc = br#"{"ociVersion":"1.0.2-dev","id":"c","status":"creating","pid":1,"bundle":"/b"}"#;
        assert_eq!(State::parse(crun).unwrap().root, Some(PathBuf::from("/r")));
        let state = State::parse(runc).unwrap();
        assert_eq!((state.id.as_str(), state.root), ("c", None));
    }

    #[test]
    fn a_key_that_we_do_not_need_may_hold_anything() {
        let odd = br#"{"ociVersion":2,"status":null,"pid":"x","bundle":"/b","root":null,"annotations":[]}"#;
        assert_eq!(State::parse(odd).unwrap().bundle, PathBuf::from("/b"));
        assert_eq!(State::parse(odd).unwrap().pid, None);
        assert_eq!(State::parse(br#"{"bundle":"/b","pid":42}"#).unwrap().pid, Some(42));
        let annotated = State::parse(br#"{"bundle":"/b","annotations":{"a":"b","c":1}}"#).unwrap();
        assert_eq!(
            annotated.annotations,
            BTreeMap::from([("a".to_owned(), "b".to_owned())])
        );
    }

    #[test]
    fn what_is_no_state_is_one_line() {
        for (bytes, says) in [
            (&b""[..], "empty"),
            (b"\n", "empty"),
            (b"{\"bundle\":\"/b\"", "does not parse"),
            (b"{\"id\":\"c\"}", "missing field `bundle`"),
            (b"{\"bundle\":\"b\"}", "not an absolute path"),
            (b"{\"bundle\":\"/b\"} x", "does not parse"),
            (b"[1]", "does not parse"),
        ] {
            let line = line(&State::parse(bytes).unwrap_err());
            assert!(line.contains(says), "{line}");
        }
    }

    #[test]
    fn an_endless_state_is_cut() {
        let line = line(&State::read(std::io::repeat(b' ')).unwrap_err());
        assert!(line.contains("larger than"), "{line}");
    }
}
