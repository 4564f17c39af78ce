//! The lines that a hook leaves in the engine's log, and keeps for `tranche status`.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use tranche_core::call::Unknown;
use tranche_core::error::{Error, Result, line};
use tranche_core::messages::{LINES, Message, Messages, Severity};
use tranche_core::oci::State;
use tranche_core::sys::cpu_time::{self, LastWords};
use tranche_core::text::beginning;

/// The most bytes of a line. A name in an image or a specification may have any length. An engine that reads the lines
/// only after the hook has ended uses a pipe of 64 KiB, and a hook that writes more than that would wait for ever.
const LONGEST: usize = 2048;

/// Writes lines of the form `tranche-oci: hook prepare: <object>: <what>`, and keeps them for `tranche status`.
pub(crate) struct HookReport<'w> {
    prefix: String,
    lines: &'w mut dyn Write,
    hook: String,
    container: Option<String>,
    state_dir: PathBuf,
    said: Vec<(Severity, String)>,
    /// The number of remarks that are not kept because there are too many.
    left_out: usize,
}

impl<'w> HookReport<'w> {
    /// A report of the command `command VERB`. Its messages are kept in `state_dir`, or in the directory of this user.
    pub(crate) fn new(command: &str, verb: Option<&str>, state_dir: PathBuf, lines: &'w mut dyn Write) -> Self {
        let prefix = match verb {
            Some(verb) => format!("tranche-oci: {command} {verb}"),
            None => format!("tranche-oci: {command}"),
        };
        HookReport {
            prefix,
            lines,
            hook: verb.unwrap_or_default().to_owned(),
            container: None,
            state_dir,
            said: Vec::new(),
            left_out: 0,
        }
    }

    /// Sets the container of the messages, once its state was read.
    pub(crate) fn about(&mut self, state: &State) {
        self.container = Some(state.id.clone());
        self.speak_at_limit();
    }

    /// Reports a failure when the limit of processor time ends this process, and keeps it if the container is known and
    /// if messages were kept before.
    pub(crate) fn speak_at_limit(&self) {
        let what = "has used the processor time that a hook may take, and ended";
        let error = Error::failed("hook", what);
        let kept = self.container.as_ref().and_then(|container| {
            let messages = Messages::existing(&self.state_dir, None).ok()??;
            let message = Message {
                at: now(),
                container: container.clone(),
                hook: self.hook.clone(),
                severity: Severity::Failure,
                text: line(&error),
            };
            messages.prepare(&message).ok()
        });
        cpu_time::at_limit(LastWords {
            line: format!("{}: {}\n", self.prefix, line(&error)).into_bytes(),
            kept,
            code: error.kind().exit_code(),
        });
    }

    /// Whether there are messages to keep and the container is not known yet.
    pub(crate) fn needs_container(&self) -> bool {
        !self.said.is_empty() && self.container.is_none()
    }

    /// Reports something that was not done, although the container can start.
    pub(crate) fn note(&mut self, object: impl Display, what: impl Display) {
        self.line(Severity::Remark, &Error::failed(object, what));
    }

    /// Reports an unknown argument, which is ignored.
    ///
    /// # Errors
    /// Returns no error. A parser of arguments takes this function, or one that refuses them.
    pub(crate) fn ignored(&mut self, unknown: &Unknown) -> Result<()> {
        self.note(unknown.argument(), format_args!("{unknown}, ignored"));
        Ok(())
    }

    /// Reports an error: the one that the command ends with, or one that its caller cannot handle.
    pub(crate) fn failure(&mut self, error: &Error) {
        self.line(Severity::Failure, error);
    }

    fn line(&mut self, severity: Severity, error: &Error) {
        // An error's text is one line, also where names of an image are in it.
        let text = line(error);
        // Standard error may be closed, which must not prevent the start. One write for each line, so that the lines of
        // several hooks do not mix.
        let line = shortened(&format!("{}: {text}", self.prefix));
        let _ = self.lines.write_all(format!("{line}\n").as_bytes());
        // Two places stay free: for the number of remarks that are left out, and for a failure, which comes last.
        match severity {
            Severity::Remark if self.said.len() + 2 >= LINES => self.left_out += 1,
            _ => self.said.push((severity, shortened(&text))),
        }
    }

    /// Keeps the messages. Without messages, nothing is done.
    ///
    /// # Errors
    /// Returns an error if they cannot be kept. The engine's log still has them.
    pub(crate) fn keep(self) -> Result<()> {
        if self.said.is_empty() {
            return Ok(());
        }
        let at = now();
        let more = (self.left_out > 0).then(|| (Severity::Remark, format!("and {} more lines", self.left_out)));
        let container = self.container.unwrap_or_default();
        let message = |(severity, text)| Message {
            at,
            container: container.clone(),
            hook: self.hook.clone(),
            severity,
            text,
        };
        let failure = self.said.len().saturating_sub(1);
        let mut said = self.said;
        // In the order of the messages: the failure that the hook ended with is the last.
        if let Some(more) = more {
            let ends = said.last().is_some_and(|(severity, _)| *severity == Severity::Failure);
            said.insert(if ends { failure } else { said.len() }, more);
        }
        let messages: Vec<Message> = said.into_iter().map(message).collect();
        Messages::open(&self.state_dir)?.remember(&messages)
    }
}

/// Seconds since 1970. A clock before 1970 is not set.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn shortened(line: &str) -> String {
    if line.len() <= LONGEST {
        return line.to_owned();
    }
    format!("{}…", beginning(line, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let mut lines = Vec::new();
        HookReport::new("hook", Some("prepare"), "/none".into(), &mut lines).note("é".repeat(100_000), "too long");
        let text = String::from_utf8(lines).unwrap();
        assert!(text.len() < LONGEST + 8 && text.ends_with("…\n"), "{}", text.len());
        assert!(text.starts_with("tranche-oci: hook prepare: éé"));
    }

    fn kept(state_dir: &std::path::Path) -> Vec<Message> {
        let messages = Messages::existing(state_dir, Some(state_dir)).unwrap();
        messages
            .map(|messages| messages.all().unwrap().messages)
            .unwrap_or_default()
    }

    #[test]
    fn what_was_said_is_kept_by_container() {
        let top = tempfile::tempdir().unwrap();
        let mut lines = Vec::new();
        let mut report = HookReport::new("hook", Some("prepare"), top.path().to_owned(), &mut lines);
        report.about(&State::parse(br#"{"bundle":"/b","id":"c1"}"#).unwrap());
        report.note("/a\nb", "left out");
        report.failure(&Error::failed("it", "failed"));
        report.keep().unwrap();
        let seen: Vec<_> = kept(top.path())
            .into_iter()
            .map(|m| (m.container, m.hook, m.severity, m.text))
            .collect();
        let message = |severity, text: &str| ("c1".to_owned(), "prepare".to_owned(), severity, text.to_owned());
        assert_eq!(
            seen,
            [
                message(Severity::Remark, "/a\\nb: left out"),
                message(Severity::Failure, "it: failed")
            ]
        );
    }

    #[test]
    fn a_hook_that_says_nothing_makes_nothing() {
        let top = tempfile::tempdir().unwrap();
        let mut lines = Vec::new();
        let report = HookReport::new("hook", Some("prepare"), top.path().to_owned(), &mut lines);
        report.keep().unwrap();
        assert_eq!(std::fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_remarks_do_not_hide_the_failure() {
        let top = tempfile::tempdir().unwrap();
        let mut lines = Vec::new();
        let mut report = HookReport::new("hook", Some("prepare"), top.path().to_owned(), &mut lines);
        (0..1000).for_each(|number| report.note(number, "left out"));
        report.failure(&Error::failed("it", "failed"));
        report.keep().unwrap();
        let texts: Vec<String> = kept(top.path()).into_iter().map(|message| message.text).collect();
        assert_eq!(texts.len(), LINES);
        assert_eq!(texts[0], "0: left out");
        assert_eq!(texts[LINES - 2..], ["and 978 more lines", "it: failed"]);
    }
}
