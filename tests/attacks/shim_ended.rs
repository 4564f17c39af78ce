//! What is expected of a start that is harmless, and of one that must not be served.

use crate::run::Ended;
use crate::shim::{EXECUTED, Shim};
use crate::trial::Trial;

/// What is wrong with a start of [`Shim::new`] as it is.
pub(crate) fn not_started(shim: &Shim, ended: &Ended) -> Vec<String> {
    let mut wrong = Vec::new();
    if ended.code != EXECUTED || shim.limits().is_empty() {
        wrong.push(format!(
            "exit code {}, {:?}: {}",
            ended.code,
            shim.limits(),
            ended.stderr
        ));
    }
    wrong
}

/// A harmless start, which must succeed.
pub(crate) fn twin(trial: &mut Trial) {
    let shim = Shim::new();
    let ended = shim.create();
    let mut wrong = not_started(&shim, &ended);
    if shim.subject.is_real() {
        wrong.extend(ended.wrong);
    }
    trial.record_twin("create", &wrong);
}

/// Refused in one line.
pub(crate) fn refused(ended: &Ended) -> Option<String> {
    let seen = (ended.code == EXECUTED, ended.stderr.lines().count());
    (seen != (false, 1)).then(|| format!("not refused in one line: {} {:.300}", ended.code, ended.stderr))
}
