//! The lines that a hook leaves in the engine's log.

use std::fmt::Display;
use std::io::Write;

use crate::error::Error;

/// Bytes that a line may have. A name of an image or of a spec may be as long as it likes, and an engine that reads our lines
/// only after our end has a pipe of 64 KiB, in which one that is longer would wait for ever.
const LONGEST: usize = 2048;

/// Writes `tranche-oci: hook prepare: <object>: <what>`, one line for one thing.
pub(crate) struct Report<'w> {
    prefix: String,
    lines: &'w mut dyn Write,
}

impl<'w> Report<'w> {
    /// A report of the command `command VERB`.
    pub(crate) fn new(command: &str, verb: Option<&str>, lines: &'w mut dyn Write) -> Self {
        let prefix = match verb {
            Some(verb) => format!("tranche-oci: {command} {verb}"),
            None => format!("tranche-oci: {command}"),
        };
        Report { prefix, lines }
    }

    /// Something that was left undone, though the container can start.
    pub(crate) fn note(&mut self, object: impl Display, what: impl Display) {
        // An error's text is one line whatever is in it, and names of an image are.
        self.failure(&Error::failed(object, what));
    }

    /// The error that the command ends with.
    pub(crate) fn failure(&mut self, error: &Error) {
        // Nobody may be listening, and a line lost must not cost a container its start. One write, so that lines of
        // several hooks do not mix.
        let line = format!("{}: {error}", self.prefix);
        let _ = self.lines.write_all(format!("{}\n", shortened(&line)).as_bytes());
    }
}

fn shortened(line: &str) -> String {
    if line.len() <= LONGEST {
        return line.to_owned();
    }
    format!("{}…", &line[..line.floor_char_boundary(LONGEST)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let mut lines = Vec::new();
        Report::new("hook", Some("prepare"), &mut lines).note("é".repeat(100_000), "too long");
        let text = String::from_utf8(lines).unwrap();
        assert!(text.len() < LONGEST + 8 && text.ends_with("…\n"), "{}", text.len());
        assert!(text.starts_with("tranche-oci: hook prepare: éé"));
    }
}
