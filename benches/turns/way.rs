//! The ways in which ten developers can have GPUs.

use std::collections::VecDeque;
use std::time::Duration;
use tranche_plan::turns::{Handover, TurnDevice, TurnTimes};

/// The GPUs that they share.
const GPUS: usize = 3;

/// For how long a holder is resident while others want the GPU.
const TURN: Duration = Duration::from_secs(15 * 60);

/// For how many seconds nobody computes during a change: 20 GiB to the host and 20 GiB back, at 5 GiB/s. Nobody has
/// measured it here.
const CHANGE: u64 = 8;

/// After how many seconds without work a claim in a queue is released.
const RELEASED_AFTER: u64 = 30 * 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each has a GPU.
    Own,
    /// Each claims a whole GPU for a run, and waits for one by arrival.
    QueueByRun,
    /// Each keeps the claim until it has done nothing for half an hour.
    QueueByIdleness,
    /// Three or four share a GPU all the time, each with a fixed part of its memory.
    TimeSlicing,
    /// Three or four are holders of a GPU, which they have by turns; the resident gives way when it has done nothing
    /// for so many seconds.
    Turns(u64),
}

impl Way {
    pub(crate) const ALL: [Self; 6] = [
        Self::Own,
        Self::QueueByRun,
        Self::QueueByIdleness,
        Self::TimeSlicing,
        Self::Turns(180),
        Self::Turns(30),
    ];
    pub(crate) const ON_THREE: [Self; 4] = [
        Self::QueueByIdleness,
        Self::TimeSlicing,
        Self::Turns(180),
        Self::Turns(30),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "a GPU for each",
            Self::QueueByRun => "a queue, released after each run",
            Self::QueueByIdleness => "a queue, released when idle for 30 min",
            Self::TimeSlicing => "time-slicing",
            Self::Turns(180) => "turns, `idle: 3m`",
            Self::Turns(_) => "turns, `idle: 30s`",
        }
    }

    pub(crate) fn gpus(self, developers: usize) -> usize {
        match self {
            Self::Own => developers,
            _ => GPUS,
        }
    }

    pub(crate) fn memory(self) -> &'static str {
        match self {
            Self::TimeSlicing => "a quarter",
            _ => "the whole",
        }
    }
}

/// What holds the GPUs at one time.
pub(crate) struct World {
    way: Way,
    /// Of each GPU, who has it in a queue, and since when that one has done nothing.
    held: [Option<(usize, u64)>; GPUS],
    queue: VecDeque<usize>,
    turns: Vec<TurnDevice<usize>>,
    /// Of each GPU, the change that is being made, and when it ends.
    changing: [Option<(Handover<usize>, u64)>; GPUS],
    /// Who has used a GPU, and so has memory.
    has_memory: Vec<bool>,
    pub(crate) changes: u64,
    /// How many had their memory on the host at most at one time.
    pub(crate) most_away: usize,
}

impl World {
    pub(crate) fn new(way: Way, developers: usize) -> Self {
        let idle = match way {
            Way::Turns(idle) => Duration::from_secs(idle),
            _ => TURN,
        };
        let times = TurnTimes { turn: TURN, idle };
        let mut turns: Vec<TurnDevice<usize>> = (0..GPUS).map(|_| TurnDevice::new(times)).collect();
        (0..developers).for_each(|developer| turns[developer % GPUS].enter(developer));
        Self {
            way,
            held: [None; GPUS],
            queue: VecDeque::new(),
            turns,
            changing: [const { None }; GPUS],
            has_memory: vec![false; developers],
            changes: 0,
            most_away: 0,
        }
    }

    /// What part of a GPU each developer has in this second, of those who want one.
    pub(crate) fn second(&mut self, second: u64, wants: &[bool]) -> Vec<f64> {
        match self.way {
            Way::Own => wants.iter().map(|wants| f64::from(u8::from(*wants))).collect(),
            Way::QueueByRun => self.queue(second, wants, 0),
            Way::QueueByIdleness => self.queue(second, wants, RELEASED_AFTER),
            Way::TimeSlicing => {
                let on = |gpu: usize| (gpu..wants.len()).step_by(GPUS).filter(|one| wants[*one]).count();
                let share = |developer: usize| match wants[developer] {
                    true => 1.0 / on(developer % GPUS) as f64,
                    false => 0.0,
                };
                (0..wants.len()).map(share).collect()
            }
            Way::Turns(_) => self.turn(second, wants),
        }
    }

    fn queue(&mut self, second: u64, wants: &[bool], released_after: u64) -> Vec<f64> {
        for held in &mut self.held {
            if let Some((developer, worked)) = held {
                match wants[*developer] {
                    true => *worked = second,
                    false if second - *worked > released_after => *held = None,
                    false => {}
                }
            }
        }
        for (developer, wants) in wants.iter().enumerate() {
            let has = self.held.iter().flatten().any(|(holder, _)| *holder == developer);
            if *wants && !has && !self.queue.contains(&developer) {
                self.queue.push_back(developer);
            }
        }
        for held in self.held.iter_mut().filter(|held| held.is_none()) {
            *held = self.queue.pop_front().map(|developer| (developer, second));
        }
        let mut shares = vec![0.0; wants.len()];
        for (developer, _) in self.held.iter().flatten().filter(|(developer, _)| wants[*developer]) {
            shares[*developer] = 1.0;
        }
        shares
    }

    fn turn(&mut self, second: u64, wants: &[bool]) -> Vec<f64> {
        let now = Duration::from_secs(second);
        let mut shares = vec![0.0; wants.len()];
        for (gpu, device) in self.turns.iter_mut().enumerate() {
            if let Some((handover, _)) = self.changing[gpu].take_if(|(_, end)| *end <= second) {
                device.complete(&handover, now);
            }
            for developer in (gpu..wants.len()).step_by(GPUS).filter(|one| wants[*one]) {
                device.call(&developer, now);
            }
            if self.changing[gpu].is_none()
                && let Some(handover) = device.next(now)
            {
                self.changes += 1;
                // Who comes for the first time has nothing that is copied back, and takes as long nevertheless.
                self.changing[gpu] = Some((handover, second + CHANGE));
            }
            let resident = device.resident().filter(|_| self.changing[gpu].is_none());
            if let Some(resident) = resident.filter(|resident| wants[**resident]) {
                shares[*resident] = 1.0;
                self.has_memory[*resident] = true;
            }
        }
        let resident = self.turns.iter().filter_map(TurnDevice::resident).count();
        let with_memory = self.has_memory.iter().filter(|has| **has).count();
        self.most_away = self.most_away.max(with_memory.saturating_sub(resident));
        shares
    }
}
