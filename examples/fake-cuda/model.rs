//! A GPU in time: what its processes wait for, and how fast each piece of work goes on.
//!
//! This is a model, made of what is documented of time-slicing and MPS, and not of measurements:
//! - Contexts that do not share a server of MPS have the GPU in turns, each for a slice of time. A context without work
//!   gives its turn away.
//! - The clients of one server run at once. A client has no more SMs than its percentage allows. A kernel that holds
//!   SMs until its end begins when older kernels leave it some, and leaves the others what remains; these share that
//!   equally.
//! - Copies share the memory's bandwidth equally, and no percentage divides it. While the footprints of all copies fit
//!   into the L2 cache together, copies are faster than the memory. Half of the SMs can use all of the bandwidth.
//! - Copies between host and device share the bus, whoever has the turn.
//! - A fault ends all clients of its server, or its own context.

use crate::config::{Cheat, Model};

/// How much faster than the memory the L2 cache is.
const L2_SPEED: f64 = 4.0;
/// A slice is this much longer for the first context, where turns are unequal.
const UNEQUAL: u64 = 4;
/// The furthest that a forecast looks.
const HORIZON: u64 = 60_000_000_000;

/// `CUDA_ERROR_LAUNCH_FAILED`, which the neighbours of a fault get too.
pub(crate) const LAUNCH_FAILED: i32 = 719;

/// What does not change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hardware<'a> {
    pub(crate) sms: u32,
    pub(crate) model: &'a Model,
}

impl Hardware<'_> {
    fn cheats(&self, cheat: Cheat) -> bool {
        self.model.cheats.contains(&cheat)
    }
}

/// A kind of work. How much of it is left is in [`Task::left`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Work {
    /// Calculations, in nanoseconds of one SM.
    Calculate,
    /// A kernel that copies, in bytes that are read and written; with its footprint in bytes.
    Copy(u64),
    /// A kernel that holds its SMs for a time, in nanoseconds from its begin.
    Hold,
    /// A copy to the device, in bytes.
    In,
    /// A copy to the host, in bytes.
    Out,
    /// A kernel that takes a time and few SMs, in nanoseconds.
    Short,
    /// The same, with this error at its end.
    Fault(i32),
}

impl Work {
    fn is_on_bus(self) -> bool {
        matches!(self, Work::In | Work::Out)
    }
}

/// A piece of work that was begun, or waits for those before it in its stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) client: u64,
    pub(crate) stream: u64,
    pub(crate) work: Work,
    pub(crate) left: f64,
    /// Whether it has had an SM.
    pub(crate) begun: bool,
}

/// A process with a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    /// Its number, which no other process has at the same time.
    pub(crate) number: u64,
    /// What it shares turns with: the same for all clients of a server.
    pub(crate) group: u64,
    /// The SMs that it can use at once.
    pub(crate) sms: u32,
    /// Bytes of memory that it has.
    pub(crate) used: u64,
    /// The error that all of its calls return; 0 for none.
    pub(crate) error: i32,
}

/// What changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    pub(crate) now: u64,
    /// The group whose turn it is, and when that ends.
    pub(crate) turn: (u64, u64),
    pub(crate) clients: Vec<Client>,
    /// In the order in which they were begun.
    pub(crate) tasks: Vec<Task>,
}

impl State {
    pub(crate) fn client(&self, number: u64) -> Option<&Client> {
        self.clients.iter().find(|client| client.number == number)
    }

    /// Removes clients that have ended, with their work.
    pub(crate) fn keep(&mut self, is_alive: impl Fn(u64) -> bool) {
        self.clients.retain(|client| is_alive(client.number));
        let State { clients, tasks, .. } = self;
        tasks.retain(|task| clients.iter().any(|client| client.number == task.client));
    }

    pub(crate) fn is_idle(&self, client: u64, stream: u64) -> bool {
        !self
            .tasks
            .iter()
            .any(|task| (task.client, task.stream) == (client, stream))
    }

    /// When all work of a stream will be done, if nothing is added and nobody ends.
    pub(crate) fn idle_at(&self, hardware: Hardware<'_>, client: u64, stream: u64) -> u64 {
        let mut future = self.clone();
        let end = self.now + HORIZON;
        while !future.is_idle(client, stream) && future.step(hardware, end) {}
        future.now
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, hardware: Hardware<'_>, to: u64) {
        while self.step(hardware, to) {}
    }

    /// The first task of each stream, which are those that go on.
    fn heads(&self) -> Vec<usize> {
        let is_first = |at: &usize| {
            let stream = |task: &Task| (task.client, task.stream);
            let this = stream(&self.tasks[*at]);
            !self.tasks[..*at].iter().any(|task| stream(task) == this)
        };
        (0..self.tasks.len()).filter(is_first).collect()
    }

    fn group(&self, task: usize) -> u64 {
        self.client(self.tasks[task].client).map_or(0, |client| client.group)
    }

    /// Lets time pass until something changes, at most until `to`. Returns whether there may be more before `to`.
    fn step(&mut self, hardware: Hardware<'_>, to: u64) -> bool {
        let heads = self.heads();
        let mut waiting: Vec<u64> = heads
            .iter()
            .filter(|head| !self.tasks[**head].work.is_on_bus())
            .map(|head| self.group(*head))
            .collect();
        waiting.sort_unstable();
        waiting.dedup();
        self.give_turn(hardware, &waiting);
        let rates = self.rates(hardware, &heads);
        let mut length = to.saturating_sub(self.now);
        if waiting.len() > 1 {
            length = length.min(self.turn.1.saturating_sub(self.now));
        }
        for (task, rate, ends) in &rates {
            if *rate > 0.0 && *ends {
                length = length.min((self.tasks[*task].left / rate).ceil() as u64);
            }
        }
        self.now += length;
        let mut done = Vec::new();
        for (at, rate, ends) in rates {
            let task = &mut self.tasks[at];
            task.left = (task.left - rate * length as f64).max(0.0);
            task.begun |= rate > 0.0;
            if ends && rate > 0.0 && task.left <= 0.0 {
                done.push(at);
            }
        }
        let has_changed = !done.is_empty() || length > 0;
        for at in done.into_iter().rev() {
            let task = self.tasks.remove(at);
            if let Work::Fault(error) = task.work {
                self.fail(hardware, task.client, error);
                break;
            }
        }
        has_changed && (self.now < to || !self.tasks.is_empty())
    }

    /// Gives the turn to the next group if the one that has it has no work, or has had its slice.
    fn give_turn(&mut self, hardware: Hardware<'_>, waiting: &[u64]) {
        let (group, end) = self.turn;
        let has_work = waiting.contains(&group);
        if has_work && (self.now < end || waiting.len() == 1) {
            return;
        }
        let next = waiting.iter().find(|other| **other > group).or(waiting.first());
        if let Some(next) = next {
            let is_first = self.clients.first().is_some_and(|client| client.group == *next);
            let times = if is_first && hardware.cheats(Cheat::Turns) {
                UNEQUAL
            } else {
                1
            };
            self.turn = (*next, self.now + times * hardware.model.slice_us * 1000);
        }
    }

    /// How much of each task is done in a nanosecond, and whether it can end now.
    fn rates(&self, hardware: Hardware<'_>, heads: &[usize]) -> Vec<(usize, f64, bool)> {
        let model = hardware.model;
        let cap = |task: usize| match hardware.cheats(Cheat::Cap) {
            true => hardware.sms,
            false => self.client(self.tasks[task].client).map_or(0, |client| client.sms),
        };
        let (mut rates, mut running) = (Vec::new(), Vec::new());
        let (mut free, mut older) = (hardware.sms, 0);
        let holds = |head: &usize| self.tasks[*head].begun && self.tasks[*head].work == Work::Hold;
        let (holding, others): (Vec<usize>, Vec<usize>) = heads.iter().copied().partition(holds);
        for head in holding.into_iter().chain(others) {
            let task = &self.tasks[head];
            let has_turn = self.group(head) == self.turn.0;
            match task.work {
                Work::In | Work::Out => {
                    let same = heads
                        .iter()
                        .filter(|other| self.tasks[**other].work == task.work)
                        .count();
                    rates.push((head, model.bus_gb_s as f64 / same as f64, true));
                }
                Work::Hold if has_turn => {
                    // What begins to hold SMs waits for those that older kernels use.
                    let held = cap(head).min(free.saturating_sub(if task.begun { 0 } else { older }));
                    free -= held;
                    rates.push((head, f64::from(u8::from(held > 0 || task.begun)), true));
                }
                // Its time passes while others have their turns.
                Work::Hold if task.begun => rates.push((head, 1.0, false)),
                _ if has_turn => {
                    older += cap(head);
                    running.push(head);
                }
                _ => {}
            }
        }
        let is_copy = |head: &usize| matches!(self.tasks[*head].work, Work::Copy(_));
        let calculating: Vec<usize> = running.iter().copied().filter(|head| !is_copy(head)).collect();
        let caps: Vec<u32> = calculating.iter().map(|head| cap(*head)).collect();
        for (head, sms) in calculating.into_iter().zip(shared(free, &caps)) {
            let rate = match self.tasks[head].work {
                Work::Calculate => sms,
                _ => f64::from(u8::from(sms > 0.0)),
            };
            rates.push((head, rate, true));
        }
        let copies: Vec<usize> = running.into_iter().filter(is_copy).collect();
        let footprint = |head: &usize| match self.tasks[*head].work {
            Work::Copy(bytes) => bytes,
            _ => 0,
        };
        let fits = copies.iter().map(footprint).sum::<u64>() <= model.l2_mib << 20;
        let bandwidth = model.bandwidth_gb_s as f64 * if fits { L2_SPEED } else { 1.0 };
        for head in &copies {
            let sms = f64::from(cap(*head).min(free));
            let most = bandwidth * (2.0 * sms / f64::from(hardware.sms)).min(1.0);
            rates.push((*head, most.min(bandwidth / copies.len() as f64), true));
        }
        rates
    }

    fn fail(&mut self, hardware: Hardware<'_>, number: u64, error: i32) {
        let Some(group) = self.client(number).map(|client| client.group) else {
            return;
        };
        for client in &mut self.clients {
            if client.number == number {
                client.error = error;
            } else if (client.group == group || hardware.cheats(Cheat::Faults)) && client.error == 0 {
                client.error = LAUNCH_FAILED;
            }
        }
        let State { clients, tasks, .. } = self;
        tasks.retain(|task| {
            clients
                .iter()
                .any(|client| client.number == task.client && client.error == 0)
        });
    }
}

/// Divides SMs equally among those who want no more than their caps.
fn shared(sms: u32, caps: &[u32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..caps.len()).collect();
    order.sort_by_key(|at| caps[*at]);
    let (mut left, mut shares) = (f64::from(sms), vec![0.0; caps.len()]);
    for (position, at) in order.iter().enumerate() {
        let share = (left / (caps.len() - position) as f64).min(f64::from(caps[*at]));
        shares[*at] = share;
        left -= share;
    }
    shares
}

impl State {
    /// As numbers, for a file.
    pub(crate) fn to_numbers(&self) -> Vec<u64> {
        let mut numbers = vec![
            self.now,
            self.turn.0,
            self.turn.1,
            self.clients.len() as u64,
            self.tasks.len() as u64,
        ];
        for client in &self.clients {
            numbers.extend([client.number, client.group, u64::from(client.sms), client.used]);
            numbers.push(u64::from(client.error.unsigned_abs()));
        }
        for task in &self.tasks {
            let (kind, of_kind) = match task.work {
                Work::Calculate => (0, 0),
                Work::Copy(bytes) => (1, bytes),
                Work::Hold => (2, 0),
                Work::In => (3, 0),
                Work::Out => (4, 0),
                Work::Short => (5, 0),
                Work::Fault(error) => (6, u64::from(error.unsigned_abs())),
            };
            numbers.extend([task.client, task.stream, kind, of_kind]);
            numbers.extend([task.left.to_bits(), u64::from(task.begun)]);
        }
        numbers
    }

    /// What [`Self::to_numbers`] gave. `None` for anything else.
    pub(crate) fn of_numbers(numbers: &[u64]) -> Option<Self> {
        let mut rest = numbers.iter().copied();
        let mut next = || rest.next();
        let mut state = Self {
            now: next()?,
            turn: (next()?, next()?),
            ..Self::default()
        };
        let (clients, tasks) = (next()?, next()?);
        for _ in 0..clients {
            state.clients.push(Client {
                number: next()?,
                group: next()?,
                sms: next()? as u32,
                used: next()?,
                error: next()? as i32,
            });
        }
        for _ in 0..tasks {
            let (client, stream, kind, of_kind) = (next()?, next()?, next()?, next()?);
            let work = match kind {
                0 => Work::Calculate,
                1 => Work::Copy(of_kind),
                2 => Work::Hold,
                3 => Work::In,
                4 => Work::Out,
                5 => Work::Short,
                _ => Work::Fault(of_kind as i32),
            };
            state.tasks.push(Task {
                client,
                stream,
                work,
                left: f64::from_bits(next()?),
                begun: next()? != 0,
            });
        }
        Some(state)
    }
}
