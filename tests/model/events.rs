//! What happens to the machine, to the broker and to clients.

use crate::life::{Life, Purpose};
use crate::operation::{Disk, Place, ROOT};
use crate::oracle::{Holder, Violation};

impl Life<'_> {
    pub(crate) fn up(&mut self, row: &'static str) {
        self.machine.kill_at(None);
        self.armed = false;
        self.notice_end_of_broker();
        self.broker_is_up = self.machine.up();
        self.table
            .count(row, if self.broker_is_up { "done" } else { "ended at once" });
        if !self.broker_is_up {
            self.disturb(false);
        }
    }

    /// The broker may have been killed at a call of NVML.
    pub(crate) fn notice_end_of_broker(&mut self) {
        if self.broker_is_up && !self.machine.is_up() {
            self.note("the broker has ended".to_owned());
            self.table.count("broker killed at a call of NVML", "done");
            self.broker_is_gone();
        }
    }

    pub(crate) fn broker_is_gone(&mut self) {
        self.broker_is_up = false;
        self.armed = false;
        self.machine.kill_at(None);
        self.disturb(true);
    }

    /// What is asked for now may fail for another reason than that there is no room.
    pub(crate) fn disturb(&mut self, lost: bool) {
        for pending in &mut self.pending {
            pending.disturbed = true;
            pending.lost |= lost;
        }
    }

    pub(crate) fn disk(&mut self, place: Place, disk: Disk, row: &'static str) -> bool {
        let done = self.machine.disk(place, disk).is_some();
        self.disturb(false);
        let number = place as u8;
        if disk == Disk::Well {
            self.ill.remove(&number);
        } else if done {
            self.ill.insert(number);
        }
        self.table.count(row, if done { "done" } else { "busy" });
        true
    }

    pub(crate) fn boot(&mut self, row: &'static str) {
        for mut pending in std::mem::take(&mut self.pending) {
            pending.request.kill();
            // What is given back is what was held, and who held nothing has nothing.
            let is_of_nothing = pending.purpose == Purpose::Release && pending.before.is_none();
            if pending.holder_lasts() && !is_of_nothing {
                let what = pending.before.map_or(pending.what, |before| before.what);
                self.oracle.open(&pending.holder, what);
            }
            if let Purpose::Drain(gpu) = pending.purpose {
                self.oracle.drained.insert(gpu);
            }
        }
        for running in std::mem::take(&mut self.running).values_mut() {
            running.end();
        }
        self.restless.clear();
        self.machine.boot();
        self.broker_is_up = false;
        self.armed = false;
        self.ill.remove(&(Place::State as u8));
        self.ill.remove(&(Place::Specs as u8));
        self.oracle.boot();
        self.table.count(row, "done");
    }

    pub(crate) fn kill_client(&mut self, which: u8, row: &'static str) -> bool {
        if self.pending.is_empty() || !self.kill_pending(usize::from(which) % self.pending.len()) {
            return false;
        }
        self.table.count(row, "done");
        true
    }

    /// Kills the client of a request. Returns whether it can be killed.
    pub(crate) fn kill_pending(&mut self, place: usize) -> bool {
        if !self.pending[place].request.kill() {
            return false;
        }
        let pending = self.pending.remove(place);
        self.root_was_killed |= pending.holder.who() == ROOT;
        self.note(format!("    killed: {} of {}", pending.row, pending.holder));
        self.unknown(&pending);
        true
    }

    /// Mends a disk.
    pub(crate) fn make_well(&mut self, place: Place, disk: Disk) {
        self.disk(place, disk, "disk well again");
    }

    pub(crate) fn end_of(&mut self, who: u32, name: u8) -> Result<bool, Violation> {
        let mut ended = false;
        for holder in [Holder::Container(who, name), Holder::Program(who, name)] {
            if self.is_pending(&holder) {
                continue;
            }
            if let Some(mut running) = self.running.remove(&holder) {
                running.end();
                self.oracle.free(&holder);
                self.table.count("a container or program ends", "done");
                ended = true;
            }
        }
        Ok(ended)
    }

    /// Everything ends that this life has started.
    pub(crate) fn end_everything(&mut self) {
        self.restless.clear();
        for mut pending in std::mem::take(&mut self.pending) {
            pending.request.kill();
            self.root_was_killed |= pending.holder.who() == ROOT;
            if pending.purpose == Purpose::Make {
                self.unknown(&pending);
            }
        }
        for (holder, mut running) in std::mem::take(&mut self.running) {
            running.end();
            self.oracle.free(&holder);
        }
    }
}
