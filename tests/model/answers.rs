//! What an answer means: who has what from now on, and whether that answer may be given.

use crate::life::{Life, Pending, Purpose};
use crate::observed::{self, By};
use crate::operation::{ROOT, What};
use crate::oracle::{Checked, Hold, Holder, broken};
use crate::request::Answer;

impl Life<'_> {
    pub(crate) fn answered(&mut self, pending: Pending, answer: Answer) -> Checked {
        let short: String = format!("{answer:?}").chars().take(300).collect();
        self.note(format!(
            "    {} of {}, {:?}: {short}",
            pending.row, pending.holder, pending.what
        ));
        match pending.purpose {
            Purpose::Make => self.made(pending, answer),
            Purpose::Release => self.released(pending, answer),
            Purpose::Drain(gpu) | Purpose::Undrain(gpu) => {
                let out = matches!(pending.purpose, Purpose::Drain(_));
                match answer {
                    Answer::Done(_) if out => drop(self.oracle.drained.insert(gpu)),
                    Answer::Done(_) => drop(self.oracle.drained.remove(&gpu)),
                    // Of a refused one nobody knows. It stays among those that may be drained.
                    Answer::Refused(why) if !pending.disturbed => return broken("a drain is refused", why),
                    _ => {}
                }
                self.table.count(pending.row, "answered");
                Ok(())
            }
        }
    }

    pub(crate) fn made(&mut self, pending: Pending, answer: Answer) -> Checked {
        let holder = &pending.holder;
        match answer {
            Answer::Done(said) => {
                let again = pending.before.is_some_and(|before| before.is_sure);
                let is_promise = matches!(holder, Holder::Pod(_) | Holder::Resource(_));
                if again && !is_promise {
                    return broken("a name was given twice", format!("{holder}: {said}"));
                }
                self.table.count(pending.row, "done");
                let what = given(pending.what, &said);
                let kept = self.oracle.times.kept(holder.who());
                if let What::Whole(gpu) = what
                    && pending.kept.contains(&gpu)
                    && kept.contains(&gpu)
                {
                    let all = &self.oracle.times.all;
                    return broken(
                        "given although it is reserved for another user",
                        format!("{holder}: {said}; {all:?}"),
                    );
                }
                let holder = holder.clone();
                if let Some(running) = pending.request.into_running() {
                    let pid = running.pid();
                    self.runs(holder.clone(), running);
                    // A program does not say what it was given.
                    let seen = if what == What::Any {
                        observed::claims(self.machine).ok()
                    } else {
                        None
                    };
                    let own = seen.iter().flatten().find(|one| one.by == By::Process(pid));
                    let what = own.map_or(what, |own| own.any());
                    return self.oracle.held(&holder, what);
                }
                self.oracle.held(&holder, what)
            }
            Answer::Refused(why) => {
                self.table.count(pending.row, refusal(&why));
                let is_kubernetes = matches!(holder, Holder::Pod(_) | Holder::Resource(_));
                if pending.surely && !pending.disturbed && !is_kubernetes {
                    return broken("refused although it is free", format!("{holder}: {why}"));
                }
                // A resource claim has a place, and no other one instead of it.
                if pending.first && !is_kubernetes && !pending.disturbed && is_of_others(&why) {
                    return broken(
                        "an instance that was made for somebody is another's",
                        format!("{holder}: {why}"),
                    );
                }
                if pending.lost && (holder.who() != ROOT || is_kubernetes) {
                    self.unknown(&pending);
                    return Ok(());
                }
                self.end_container(holder, pending.before);
                match pending.before {
                    // Nobody knew, because the broker was killed when it was asked for.
                    Some(before) if !before.is_sure && refusal(&why) == "has it already" => {
                        return self.oracle.held(holder, before.what);
                    }
                    Some(before) => drop(self.oracle.holds.insert(holder.clone(), before)),
                    None => {
                        self.oracle.free(holder);
                        self.forget_allocation(holder);
                    }
                }
                Ok(())
            }
            Answer::None(why) => {
                self.table.count(pending.row, "not answered");
                if !pending.disturbed && !pending.lost {
                    return broken("no answer", format!("{holder}: {why}"));
                }
                self.unknown(&pending);
                Ok(())
            }
        }
    }

    /// The engine ends a container whose hook has failed.
    pub(crate) fn end_container(&mut self, holder: &Holder, before: Option<Hold>) {
        if before.is_none()
            && matches!(holder, Holder::Container(..))
            && let Some(mut running) = self.running.remove(holder)
        {
            running.end();
        }
    }

    pub(crate) fn released(&mut self, pending: Pending, answer: Answer) -> Checked {
        let holder = &pending.holder;
        match answer {
            Answer::Done(said) => {
                self.table.count(pending.row, "done");
                let is_kubernetes = matches!(holder, Holder::Pod(_) | Holder::Resource(_));
                if pending.before.is_none() && !is_kubernetes {
                    return broken("released what nobody holds", format!("{holder}: {said}"));
                }
                self.oracle.free(holder);
                self.forget_allocation(holder);
            }
            // It is released, and what is said after that could not be done.
            Answer::Refused(why) if why.starts_with("released ") && pending.disturbed => {
                self.table.count(pending.row, "done, but for the rest");
                self.oracle.free(holder);
            }
            Answer::Refused(why) => {
                self.table.count(pending.row, refusal(&why));
                match pending.before {
                    Some(before) if before.is_sure && !pending.disturbed => {
                        return broken("a release is refused", format!("{holder}: {why}"));
                    }
                    Some(_) if matches!(holder, Holder::Pod(_) | Holder::Resource(_)) => {
                        self.give_back_again.insert(holder.clone());
                        self.unknown(&pending);
                    }
                    Some(before) if !pending.lost => drop(self.oracle.holds.insert(holder.clone(), before)),
                    Some(_) => self.unknown(&pending),
                    None => {}
                }
            }
            Answer::None(_) => {
                self.table.count(pending.row, "not answered");
                self.unknown(&pending);
            }
        }
        Ok(())
    }

    /// Nobody knows what became of it.
    pub(crate) fn unknown(&mut self, pending: &Pending) {
        let of_drain = matches!(pending.purpose, Purpose::Drain(_) | Purpose::Undrain(_));
        let again = pending.purpose == Purpose::Make && pending.before.is_some_and(|before| before.is_sure);
        if of_drain || pending.purpose == Purpose::Release && pending.before.is_none() {
            return;
        }
        match pending.before {
            Some(before) if again => drop(self.oracle.holds.insert(pending.holder.clone(), before)),
            _ => {
                let what = pending.before.map_or(pending.what, |before| before.what);
                self.oracle.open(&pending.holder, what);
            }
        }
    }
}

/// What was given to somebody who asked for anything.
fn given(what: What, said: &str) -> What {
    use crate::operation::Profile;
    let device = said.split("gpu ").nth(1).unwrap_or_default();
    match (what, device.as_bytes()) {
        (What::Any, [_, b':', b'0'..=b'9', ..]) => What::Instance(Profile::One),
        (What::Any, [gpu @ b'0'..=b'9', ..]) => What::Whole(gpu - b'0'),
        _ => what,
    }
}

/// The column of a refusal.
fn refusal(why: &str) -> &'static str {
    let reasons = [
        ("reserved for", "reserved"),
        ("No space left", "no room on the disk"),
        ("Read-only file system", "disk read-only"),
        ("out of service", "out of service"),
        ("already exists", "has it already"),
        ("exists already", "has it already"),
        ("there is no broker", "no broker"),
        ("Connection refused", "no broker"),
        ("broker", "no broker"),
        ("not found", "not found"),
        ("waited", "waited in vain"),
        ("quota", "over the limit"),
        ("may hold", "over the limit"),
        ("waits for", "others wait"),
        ("wait", "others wait"),
        ("room", "held"),
        ("held", "held"),
        ("holds", "held"),
    ];
    let found = reasons.iter().find(|(words, _)| why.contains(words));
    found.map_or("refused", |(_, column)| column)
}

/// The reason is that somebody holds it.
fn is_of_others(why: &str) -> bool {
    why.contains("holds the") || why.contains("is held") || why.contains("another user")
}
