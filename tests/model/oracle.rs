//! Who was told what. It knows the sizes of the machine and the answers, and nothing of how they come about.

use crate::draw::{DEDICATED, ON_DEMAND, SPLIT};
use crate::machine::{PARTS, RULES};
use crate::operation::{ROOT, Rules, What};
use crate::times::Times;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Somebody who may hold something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Claim(u32, u8),
    Program(u32, u8),
    Container(u32, u8),
    Pod(u8),
    Resource(u8),
    /// Nobody: who takes a GPU out of service, or back, waits for an answer as well.
    OutOfService(u8),
}

impl Holder {
    pub(crate) fn who(&self) -> u32 {
        match self {
            Self::Claim(who, _) | Self::Program(who, _) | Self::Container(who, _) => *who,
            Self::Pod(_) | Self::Resource(_) | Self::OutOfService(_) => ROOT,
        }
    }

    /// Whether what is promised to it outlives a boot.
    fn lasts(&self) -> bool {
        matches!(self, Self::Pod(_) | Self::Resource(_))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(who, name) => write!(f, "claim {who}.c{name}"),
            Self::Program(who, name) => write!(f, "program {who}.p{name}"),
            Self::Container(who, name) => write!(f, "container k{who}-{name}"),
            Self::Pod(pod) => write!(f, "pod p{pod}"),
            Self::Resource(claim) => write!(f, "resource claim t{claim}"),
            Self::OutOfService(gpu) => write!(f, "gpu {gpu}"),
        }
    }
}

/// What is held, or may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) what: What,
    /// It was said that it is held. Otherwise nobody knows: it is asked for, or the answer was lost.
    pub(crate) is_sure: bool,
    /// Of an instance that was lost at a boot, until it is made again.
    pub(crate) was_lost: bool,
}

/// Something that must not be.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn broken<T>(rule: &'static str, text: impl Into<String>) -> Result<T, Violation> {
    Err(Violation {
        rule,
        text: text.into(),
    })
}

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) holds: BTreeMap<Holder, Hold>,
    /// GPUs that are out of service, and those of which nobody knows.
    pub(crate) drained: BTreeSet<u8>,
    pub(crate) rules: Rules,
    pub(crate) times: Times,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            holds: BTreeMap::new(),
            drained: BTreeSet::new(),
            rules: RULES,
            times: Times::new(),
        }
    }

    /// What was said to be held, and is not more than there is.
    pub(crate) fn held(&mut self, holder: &Holder, what: What) -> Checked {
        self.holds.insert(
            holder.clone(),
            Hold {
                what,
                is_sure: true,
                was_lost: false,
            },
        );
        for gpu in SPLIT {
            let sum = self.taken(gpu, |_, hold| hold.is_sure);
            if sum > PARTS {
                return broken(
                    "promised twice",
                    format!("{sum} of {PARTS} shares of gpu {gpu}: {}", self.list()),
                );
            }
        }
        for gpu in DEDICATED {
            let sum = self.taken(gpu, |_, hold| hold.is_sure);
            if sum > 1 {
                return broken("promised twice", format!("gpu {gpu}, {sum} times: {}", self.list()));
            }
        }
        let slices: u32 = self
            .holds
            .values()
            .filter(|hold| hold.is_sure)
            .map(|hold| slices(hold.what))
            .sum();
        if slices > 7 {
            return broken(
                "promised twice",
                format!("{slices} of 7 slices of gpu {ON_DEMAND}: {}", self.list()),
            );
        }
        Ok(())
    }

    /// What may be held now.
    pub(crate) fn open(&mut self, holder: &Holder, what: What) {
        self.holds.insert(
            holder.clone(),
            Hold {
                what,
                is_sure: false,
                was_lost: false,
            },
        );
    }

    pub(crate) fn free(&mut self, holder: &Holder) {
        self.holds.remove(holder);
    }

    pub(crate) fn boot(&mut self) {
        self.holds.retain(|holder, _| holder.lasts());
        for hold in self.holds.values_mut() {
            // Somebody else may get the place until the kubelet has it made again (docs/how-to/dra.md).
            hold.was_lost = matches!(hold.what, What::Instance(_));
            hold.is_sure &= !hold.was_lost;
        }
    }

    pub(crate) fn list(&self) -> String {
        let one = |(holder, hold): (&Holder, &Hold)| {
            format!("{holder}: {:?}{}", hold.what, if hold.is_sure { "" } else { " (open)" })
        };
        self.holds.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// How many shares of a split GPU those have that count, or how often they have a dedicated one. Any device may
    /// be each.
    fn taken(&self, gpu: u8, counts: impl Fn(&Holder, &Hold) -> bool) -> u8 {
        let parts = |what: What| match what {
            What::Shares(of, number) if of == gpu => number,
            What::Whole(of) if of == gpu => 1,
            _ => 0,
        };
        let all = self.holds.iter().filter(|(holder, hold)| counts(holder, hold));
        all.map(|(_, hold)| parts(hold.what)).sum()
    }

    /// Whether there is room for what `holder` asks, if all those have something who `count`.
    fn fits(&self, holder: &Holder, what: What, counts: impl Fn(&Hold) -> bool) -> bool {
        let counts = |other: &Holder, hold: &Hold| other != holder && counts(hold);
        let any = self
            .holds
            .iter()
            .filter(|(other, hold)| counts(other, hold) && hold.what == What::Any)
            .count();
        let kept = |gpu: u8| self.times.may_be_kept(gpu, holder.who());
        let is_free = |gpu: &u8| !self.drained.contains(gpu) && self.taken(*gpu, counts) + kept(*gpu) == 0;
        let room = match what {
            What::Shares(gpu, number) => {
                !self.drained.contains(&gpu) && self.taken(gpu, counts) + kept(gpu) + number <= PARTS
            }
            What::Whole(gpu) => any == 0 && is_free(&gpu),
            What::Any => DEDICATED.iter().filter(|gpu| is_free(gpu)).count() > any,
            What::Instance(_) => false,
        };
        room && self.may_hold(holder, what, counts)
    }

    fn may_hold(&self, holder: &Holder, what: What, counts: impl Fn(&Holder, &Hold) -> bool) -> bool {
        let who = holder.who();
        let own = self
            .holds
            .iter()
            .filter(|(other, hold)| other.who() == who && counts(other, hold));
        let own: u8 = own.map(|(_, hold)| size(hold.what)).sum();
        who == ROOT || own + size(what) <= self.rules.quota
    }

    /// Whether `holder` can have it whatever those get who were not answered yet.
    pub(crate) fn fits_surely(&self, holder: &Holder, what: What) -> bool {
        self.fits(holder, what, |_| true)
    }

    /// Whether `holder` can have it, as far as is known what is held.
    pub(crate) fn fits_now(&self, holder: &Holder, what: What) -> bool {
        self.fits(holder, what, |hold| hold.is_sure)
    }

    /// Whether nobody has, or may have, an instance, but those who ask for any device.
    pub(crate) fn no_instances(&self, holder: &Holder) -> bool {
        let has = |(other, hold): (&Holder, &Hold)| other != holder && matches!(hold.what, What::Instance(_));
        !self.holds.iter().any(has) && self.may_hold(holder, What::Any, |other, _| other != holder)
    }

    /// How many GPU instances are needed.
    pub(crate) fn instances(&self) -> usize {
        let needs = |hold: &&Hold| matches!(hold.what, What::Instance(_)) && !hold.was_lost;
        self.holds.values().filter(needs).count()
    }
}

/// How much of a user's limit it takes.
fn size(what: What) -> u8 {
    match what {
        What::Shares(_, number) => number,
        _ => 1,
    }
}

fn slices(what: What) -> u32 {
    use crate::operation::Profile;
    match what {
        What::Instance(Profile::One) => 1,
        What::Instance(Profile::Two) => 2,
        What::Instance(Profile::Three) => 3,
        _ => 0,
    }
}
