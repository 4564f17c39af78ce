//! What a client gets: one JSON object in a line.

use serde_json::{Value, json};
use tranche_core::broker::{ErrorFields, VERSION};
use tranche_core::error::Result;

/// The line that answers a request, with its end.
pub(super) fn line(result: Result<Value>) -> String {
    match result {
        Ok(value) => format!("{}\n", json!({"version": VERSION, "ok": value})),
        Err(error) => refusal(&ErrorFields::from(&error)),
    }
}

/// The line of a refusal, with its end.
pub(super) fn refusal(error: &ErrorFields) -> String {
    format!("{}\n", json!({"version": VERSION, "error": error}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::error::Error;

    #[test]
    fn an_answer_is_one_line_with_all_that_went_wrong() {
        assert_eq!(line(Ok(json!({"a": 1}))), "{\"version\":1,\"ok\":{\"a\":1}}\n");
        let error = Error::usage("gpu 0\n", "not ready")
            .from_source(std::io::Error::other("gone"))
            .hint("wait");
        let answer = line(Err(error));
        assert_eq!(answer.matches('\n').count(), 1);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let expected = json!({"kind": "usage", "object": "gpu 0\n", "what": "not ready: gone", "hint": "wait"});
        assert_eq!(answer["error"], expected);
        let bare: Value = serde_json::from_str(&line(Err(Error::failed("a", "b")))).unwrap();
        assert_eq!(bare["error"]["hint"], Value::Null);
    }
}
