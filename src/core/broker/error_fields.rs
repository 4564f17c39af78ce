//! An error as it goes over the socket.

use crate::error::{Error, Kind, parts};
use serde::{Deserialize, Serialize};

/// An error: what it is about, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorFields {
    kind: String,
    object: String,
    what: String,
    hint: Option<String>,
}

/// The kind of [`ErrorFields::busy`]. A client of an earlier version takes it for a failure.
const BUSY: &str = "busy";

impl ErrorFields {
    /// There is no place for one more request of this user now.
    pub fn busy() -> Self {
        let error = Error::failed("broker", "there are too many requests at once").hint("try again later");
        Self {
            kind: BUSY.to_owned(),
            ..Self::from(&error)
        }
    }

    /// Whether it may be different in a moment.
    pub(super) fn is_busy(&self) -> bool {
        self.kind == BUSY
    }
}

impl From<&Error> for ErrorFields {
    fn from(error: &Error) -> Self {
        let (object, what, hint) = parts(error);
        let kind = match error.kind() {
            Kind::Usage => "usage",
            Kind::Nothing => "nothing",
            Kind::Failed | Kind::Found => "failed",
        };
        Self {
            kind: kind.to_owned(),
            object: object.to_owned(),
            what,
            hint,
        }
    }
}

impl From<ErrorFields> for Error {
    fn from(fields: ErrorFields) -> Self {
        let kind = match fields.kind.as_str() {
            "usage" => Kind::Usage,
            "nothing" => Kind::Nothing,
            _ => Kind::Failed,
        };
        let error = Error::new(kind, fields.object, fields.what);
        match fields.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}
