//! Which operations a seed means.

use crate::chance::Chance;
use crate::operation::{Act, Disk, Place, Profile, ROOT, Rules, Step, USERS, What};
use crate::reserving::Killed;
use crate::weights::Weights;

/// The split GPUs, the dedicated ones, and the one on which instances are made.
pub(crate) const SPLIT: [u8; 2] = [4, 7];
pub(crate) const DEDICATED: [u8; 2] = [5, 6];
pub(crate) const ON_DEMAND: u8 = 0;

/// The operations of one life of a machine.
pub(crate) fn steps(seed: u64, number: usize, weights: &Weights) -> Vec<Step> {
    let mut chance = Chance::new(seed);
    // A part of the lives has few users and one GPU, so that they meet more often.
    let narrow = chance.once_in(2);
    let mut draw = Draw {
        chance,
        narrow,
        weights,
        steps: Vec::new(),
        used: Vec::new(),
    };
    if draw.chance.once_in(2) {
        let rules = draw.rules();
        draw.push(rules);
    }
    while draw.steps.len() < number {
        draw.some();
    }
    draw.steps
}

/// What may be in use by now, if everything that was drawn is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Claim(u32, u8),
    Runs(u32, u8),
    Pod(u8),
    Resource(u8),
}

/// Draws the operations of one kind.
type Kind<'a> = fn(&mut Draw<'a>);

struct Draw<'a> {
    chance: Chance,
    narrow: bool,
    weights: &'a Weights,
    steps: Vec<Step>,
    used: Vec<Used>,
}

impl<'a> Draw<'a> {
    fn push(&mut self, act: Act) {
        let overlaps = self.chance.once_in(4);
        self.steps.push(Step { act, overlaps });
    }

    fn user(&mut self) -> u32 {
        let most = if self.narrow { 3 } else { USERS.len() };
        self.chance.one(&USERS[..most])
    }

    fn anybody(&mut self) -> u32 {
        if self.chance.once_in(4) { ROOT } else { self.user() }
    }

    fn split(&mut self) -> u8 {
        if self.narrow { SPLIT[0] } else { self.chance.one(&SPLIT) }
    }

    fn what(&mut self) -> What {
        match self.chance.below(10) {
            0..=6 => What::Shares(self.split(), self.chance.one(&[1, 1, 2, 3])),
            7..=8 => What::Whole(self.chance.one(&DEDICATED)),
            _ => What::Any,
        }
    }

    fn profile(&mut self) -> Profile {
        self.chance
            .one(&[Profile::One, Profile::One, Profile::Two, Profile::Three])
    }

    fn wait(&mut self) -> u8 {
        self.chance.one(&[0, 0, 0, 1, 2, 60, 60, 60, 60])
    }

    /// Something that is not in use, most often.
    fn unused(&mut self, make: impl Fn(u8) -> Used) -> Used {
        let mut used = make(self.chance.below(4) as u8);
        for _ in 0..4 {
            if !self.used.contains(&used) {
                break;
            }
            used = make(self.chance.below(4) as u8);
        }
        if !self.used.contains(&used) {
            self.used.push(used);
        }
        used
    }

    /// Something that is in use, if anything is: it is not from now on.
    fn used(&mut self, is: impl Fn(&Used) -> bool) -> Option<Used> {
        let all: Vec<Used> = self.used.iter().filter(|used| is(used)).copied().collect();
        if all.is_empty() {
            return None;
        }
        let one = self.chance.one(&all);
        self.used.retain(|used| *used != one);
        Some(one)
    }

    fn some(&mut self) {
        let weights = self.weights;
        // The fuller, the more ends.
        if self.chance.below(20) < self.used.len() as u64 && self.chance.once_in(2) {
            return self.give_back();
        }
        let kinds: [(u64, Kind<'a>); 12] = [
            (weights.claims, Self::claim),
            (weights.containers, Self::container),
            (weights.programs, Self::program),
            (weights.instances, Self::instance),
            (weights.kubernetes, Self::kubernetes),
            (weights.drains, Self::drain),
            (weights.kills, Self::kill),
            (weights.disks, Self::disk),
            (weights.boots, Self::boot),
            (weights.rejoins, Self::rejoin),
            (weights.times, Self::time),
            (6, Self::rest),
        ];
        let mut left = self.chance.below(kinds.iter().map(|(weight, _)| weight).sum());
        for (weight, draw) in kinds {
            if left < weight {
                return draw(self);
            }
            left -= weight;
        }
    }

    fn give_back(&mut self) {
        let act = match self.used(|_| true) {
            Some(Used::Claim(who, name)) => Act::Release { who, name },
            Some(Used::Runs(who, name)) => Act::End { who, name },
            Some(Used::Pod(pod)) => Act::GiveUp { pod },
            Some(Used::Resource(claim)) => Act::Unprepare { claim },
            None => return,
        };
        self.push(act);
    }

    fn claim(&mut self) {
        let who = self.anybody();
        let (what, wait) = (self.what(), self.wait());
        self.create(who, what, wait);
    }

    fn create(&mut self, who: u32, what: What, wait: u8) {
        let Used::Claim(who, name) = self.unused(|name| Used::Claim(who, name)) else {
            return;
        };
        self.push(Act::Create { who, name, what, wait });
    }

    fn container(&mut self) {
        let who = self.anybody();
        let Used::Runs(who, name) = self.unused(|name| Used::Runs(who, name)) else {
            return;
        };
        let what = match self.chance.once_in(4) {
            true => What::Whole(self.chance.one(&DEDICATED)),
            false => What::Shares(self.split(), 1),
        };
        let elsewhere = who == ROOT && self.chance.once_in(4);
        self.push(Act::Start {
            who,
            name,
            what,
            elsewhere,
        });
    }

    fn program(&mut self) {
        let who = self.anybody();
        let Used::Runs(who, name) = self.unused(|name| Used::Runs(who, name)) else {
            return;
        };
        let what = match self.chance.below(4) {
            0 => What::Any,
            1 if who == ROOT && self.weights.instances > 0 => What::Instance(self.profile()),
            _ => What::Shares(self.split(), 1),
        };
        let wait = if matches!(what, What::Instance(_)) {
            0
        } else {
            self.wait()
        };
        self.push(Act::Run { who, name, what, wait });
    }

    fn instance(&mut self) {
        // No other user may have one made.
        let who = if self.chance.once_in(12) { self.user() } else { ROOT };
        let made = What::Instance(self.profile());
        match self.chance.below(8) {
            // Somebody else looks for any device meanwhile.
            0..=1 => {
                self.create(who, made, 0);
                if let Some(step) = self.steps.last_mut() {
                    step.overlaps = true;
                }
                for _ in 0..self.chance.below(4) {
                    let milliseconds = self.chance.below(200) as u16;
                    self.steps.push(Step {
                        act: Act::Pause { milliseconds },
                        overlaps: true,
                    });
                    let other = self.anybody();
                    self.create(other, What::Any, 0);
                    if let Some(step) = self.steps.last_mut() {
                        step.overlaps = true;
                    }
                }
            }
            2 => {
                let call = self.chance.one(&[
                    "nvmlDeviceCreateGpuInstanceWithPlacement",
                    "nvmlGpuInstanceCreateComputeInstance",
                    "nvmlGpuInstanceDestroy",
                    "nvmlComputeInstanceDestroy",
                ]);
                self.push(Act::KillAt { call });
                self.create(who, made, 0);
                self.give_back();
                self.push(Act::Pause { milliseconds: 300 });
                self.push(Act::Up);
            }
            3..=5 => {
                if let Some(Used::Claim(who, name)) = self.used(|used| matches!(used, Used::Claim(ROOT, _))) {
                    self.push(Act::Release { who, name });
                }
            }
            _ => self.create(who, made, 0),
        }
    }

    fn kubernetes(&mut self) {
        match self.chance.below(6) {
            0..=1 => {
                let Used::Pod(pod) = self.unused(Used::Pod) else { return };
                let what = match self.chance.once_in(4) {
                    true => What::Whole(5),
                    false => What::Shares(4, 1 + self.chance.below(2) as u8),
                };
                self.push(Act::Reserve { pod, what });
            }
            3..=4 => {
                let Used::Resource(claim) = self.unused(Used::Resource) else {
                    return;
                };
                let what = match self.chance.once_in(2) {
                    true => What::Instance(self.profile()),
                    false => What::Shares(7, 1 + self.chance.below(3) as u8),
                };
                self.push(Act::Prepare { claim, what });
            }
            _ => {
                let old = self.used(|used| matches!(used, Used::Pod(_) | Used::Resource(_)));
                match old {
                    Some(Used::Pod(pod)) => self.push(Act::GiveUp { pod }),
                    Some(Used::Resource(claim)) => self.push(Act::Unprepare { claim }),
                    _ => {}
                }
            }
        }
    }

    fn drain(&mut self) {
        let gpu = self.chance.one(&[4, 5, 6, 7]);
        let act = if self.chance.once_in(3) {
            Act::Drain { gpu }
        } else {
            Act::Undrain { gpu }
        };
        self.push(act);
    }

    /// The broker is down for none, one or a few operations.
    fn kill(&mut self) {
        if self.chance.once_in(4) {
            let which = self.chance.below(8) as u8;
            return self.push(Act::KillClient { which });
        }
        for _ in 0..self.chance.below(3) {
            self.one_of_usual();
            if let Some(step) = self.steps.last_mut() {
                step.overlaps = true;
            }
        }
        let after = self.chance.below(20_000) as u32;
        self.push(Act::Kill { after });
        for _ in 0..self.chance.below(3) {
            self.one_of_usual();
        }
        self.push(Act::Up);
    }

    fn one_of_usual(&mut self) {
        match self.chance.below(4) {
            0 if self.weights.kubernetes > 0 => self.kubernetes(),
            1 => self.give_back(),
            2 => self.container(),
            _ => self.claim(),
        }
    }

    fn disk(&mut self) {
        let place = self.chance.one(&[Place::Kept, Place::Kept, Place::State, Place::Specs]);
        let disk = self.chance.one(&[Disk::Full, Disk::Full, Disk::ReadOnly]);
        self.push(Act::Disk { place, disk });
        for _ in 0..1 + self.chance.below(4) {
            match (place, self.chance.below(5)) {
                (Place::Kept, 0..=2) => self.kubernetes(),
                (_, 3) => self.drain(),
                (_, 4) => self.give_back(),
                (_, 2) => self.kubernetes(),
                _ => self.claim(),
            }
        }
        self.push(Act::Disk {
            place,
            disk: Disk::Well,
        });
    }

    /// Those who come first after a boot are different ones.
    fn boot(&mut self) {
        self.push(Act::Boot);
        self.used
            .retain(|used| matches!(used, Used::Pod(_) | Used::Resource(_)));
        if self.chance.once_in(3) {
            let Used::Runs(who, name) = self.unused(|name| Used::Runs(ROOT, name)) else {
                return;
            };
            let what = What::Shares(self.split(), 1);
            self.push(Act::Start {
                who,
                name,
                what,
                elsewhere: false,
            });
        }
        self.push(Act::Up);
    }

    /// One who hangs up again and again, and others who ask for less of the same.
    fn rejoin(&mut self) {
        let (who, gpu) = (self.user(), self.split());
        self.push(Act::Rejoin {
            who,
            what: What::Shares(gpu, 3),
            times: 25,
        });
        for _ in 0..2 {
            let other = self.user();
            self.create(other, What::Shares(gpu, 1), 60);
        }
        self.push(Act::Rest);
    }

    /// What is reserved for later, and those who ask for it while its time is near.
    fn time(&mut self) {
        let who = self.anybody();
        let what = match self.chance.below(5) {
            0 => What::Shares(SPLIT[0], 1),
            1 => What::Any,
            _ => What::Whole(self.chance.one(&DEDICATED)),
        };
        match self.chance.below(8) {
            0..=3 => {
                let (ahead, lasts, killed) = (
                    1 + self.chance.below(6) as u8,
                    1 + self.chance.below(5) as u8,
                    self.killed(),
                );
                self.push(Act::Promise {
                    who,
                    what,
                    ahead,
                    lasts,
                    killed,
                });
                self.up_after(killed);
                if self.chance.once_in(2) {
                    let slots = self.chance.below(5) as i8;
                    self.push(Act::Clock { slots });
                    for who in [self.anybody(), who, self.anybody()] {
                        let wait = self.wait();
                        self.create(who, what, wait);
                    }
                }
            }
            4 => {
                let (which, killed) = (self.chance.below(8) as u8, self.killed());
                self.push(Act::Cancel { who, which, killed });
                self.up_after(killed);
            }
            _ => {
                let slots = self.chance.one(&[1, 1, 2, 2, 3, 4, 6, -1, -2, -8]);
                self.push(Act::Clock { slots });
            }
        }
    }

    fn killed(&mut self) -> Killed {
        let after = self.chance.below(60_000) as u16;
        self.chance.one(&[
            Killed::Nothing,
            Killed::Nothing,
            Killed::Broker(after),
            Killed::Client(after),
        ])
    }

    fn up_after(&mut self, killed: Killed) {
        if matches!(killed, Killed::Broker(_)) {
            self.push(Act::Up);
        }
    }

    fn rules(&mut self) -> Act {
        let root_waits = self.weights.root_waits && self.chance.once_in(2);
        let (reserve_for, quota) = (self.chance.one(&[1, 1, 2, 20, 20]), self.chance.one(&[3, 4, 8]));
        Act::Rules(Rules {
            root_waits,
            reserve_for,
            quota,
        })
    }

    fn rest(&mut self) {
        let act = match self.chance.below(8) {
            0 => self.rules(),
            1..=2 => Act::Pause {
                milliseconds: self.chance.below(400) as u16,
            },
            _ => Act::Rest,
        };
        self.push(act);
    }
}
