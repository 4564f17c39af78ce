//! What a person sees while something takes its time.

use super::out;
use std::io::{self, IsTerminal, Write};
use tranche_host::nvml::Waiting;

/// Reports that tranche waits for NVML: on a terminal in a line that is overwritten, elsewhere in one line, once.
pub(super) fn waiting(waiting: Option<Waiting>) {
    const ERASE_LINE: &str = "\r\x1b[K";
    let mut stderr = io::stderr().lock();
    if !stderr.is_terminal() {
        drop(stderr);
        if let Some(waiting) = waiting.filter(|w| w.is_first) {
            out::note(waiting);
        }
        return;
    }
    let line = waiting.map(|w| w.to_string()).unwrap_or_default();
    // A failure has no reader, because the line itself had none.
    let _ = write!(stderr, "{ERASE_LINE}{line}").and_then(|()| stderr.flush());
}
