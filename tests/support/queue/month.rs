//! A month of thirty people with four GPUs, of whose hours a third is reserved, beside the same work without a
//! calendar. The rules are those of the product: what may be reserved, what a reservation keeps from whom, and the
//! order
//! of those who wait. Each step checks that no two reservations of a GPU are at one time, that nothing reserved is
//! given
//! to another user, and that what nobody uses is given.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tranche_core::ledger::{Book, Calendar, NearTimes, ReservedTime};
use tranche_core::types::{Bounds, DeviceKey, GpuUuid, HeldPart, WaitTime};
use tranche_plan::calendar::{Period, check_period, is_free};
use tranche_plan::policy::CalendarSettings;
use tranche_plan::queue::{Attempted, FairQueue, Free, Grants, QueueTimes, RequestNumber, UsedLately};

use super::world::user_of;

const GPUS: u32 = 4;
/// Half of the thirty reserve, and the other half come when they need something.
const HALF: u32 = 15;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const END: u64 = 30 * 24 * HOUR;
const STEP: u64 = 5 * MINUTE;

/// For how many hours a session lasts; the last is also `maxHold`.
const SESSIONS: [u64; 4] = [1, 2, 4, 8];

/// One of ten does not come in the reserved time.
const ABSENT: f64 = 0.1;

/// Which month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Month {
    /// Nobody reserves, and all wait in the order.
    Without,
    /// Who still holds what is reserved keeps it until the end.
    Drain,
    /// As this, and nothing is given for eight hours before, which is `maxHold`, that may last longer.
    Early,
    /// Who still holds it is ended.
    End,
}

/// What came of a month. Times are in hours.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MonthOutcome {
    /// Pairs of reservations of one GPU at one time.
    pub overlaps: usize,
    /// The part of the GPUs' hours that was reserved.
    pub reserved: f64,
    /// The part that was held.
    pub used: f64,
    /// Waits of the work that has a reservation, where there are any: mean, 95 % and longest.
    pub planned: [f64; 3],
    /// Waits of all other work.
    pub others: [f64; 3],
    /// Each of these waits, in order: of the work that has a reservation, where there are any, and of all other work.
    pub waits: [Vec<f64>; 2],
    /// The longest time in which others waited and none of them was served.
    pub standstill: f64,
    /// Sessions that were ended for a reservation.
    pub ended: usize,
    /// Requests that were never served.
    pub unserved: usize,
}

/// A session that somebody wants.
#[derive(Debug, Clone)]
struct Session {
    user: u32,
    comes: u64,
    lasts: u64,
    is_planned: bool,
}

struct World<'m> {
    month: Month,
    times: &'m [ReservedTime],
    begun: BTreeSet<u32>,
    /// Which session holds each GPU, and until when.
    held: Vec<Option<(usize, u64)>>,
    books: Vec<Book>,
    sessions: &'m [Session],
    waiting: BTreeMap<RequestNumber, usize>,
    now: u64,
    taken: Option<usize>,
    served: Vec<(usize, u64)>,
    ended: usize,
}

struct Chance(u64);

impl Chance {
    /// From 0 to 1 (splitmix64).
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((x ^ (x >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() * end as f64) as u64
    }
}

fn gpu(number: usize) -> GpuUuid {
    format!("GPU-0000000{number}").parse().unwrap()
}

/// What people reserve, as the rules accept it, until a third of the hours is.
fn reservations(chance: &mut Chance, settings: &CalendarSettings) -> Vec<ReservedTime> {
    let mut calendar = Calendar::default();
    let (mut hours, mut now) = (0, 0);
    while hours < u64::from(GPUS) * END / HOUR / 3 {
        // Somebody asks every two hours, for a begin on the hour within the next days.
        now = (now + chance.below(4 * HOUR)) % (END - 24 * HOUR);
        let uid = 1000 + u32::try_from(chance.below(HALF.into())).unwrap();
        let length = SESSIONS[usize::try_from(chance.below(3)).unwrap() + 1];
        let from = (now / HOUR + 1 + chance.below(72)) * HOUR;
        let period = Period {
            from,
            until: from + length * HOUR,
        };
        if period.until > END || check_period(&calendar.times, settings, uid, period, now).is_err() {
            continue;
        }
        let free = (0..GPUS as usize).map(|number| DeviceKey::whole(gpu(number)));
        let mut free = free.filter(|key| {
            let part = (key, &HeldPart::Whole, Bounds::default());
            is_free(&calendar.times, settings, part, period).is_ok()
        });
        if let Some(device) = free.next() {
            drop(free);
            hours += length;
            calendar.add(ReservedTime {
                id: 0,
                uid,
                who: format!("user{uid}"),
                label: device.to_string(),
                device,
                part: HeldPart::Whole,
                from,
                until: period.until,
                before: settings.before.get().as_secs(),
                no_show: settings.no_show.get().as_secs(),
                made: now,
                zone: "UTC".into(),
                offsets: [0, 0],
                reason: None,
            });
        }
    }
    calendar.times
}

/// The work of the month: what is reserved, but for those who do not come, and as much again by arrival.
fn sessions(chance: &mut Chance, times: &[ReservedTime]) -> Vec<Session> {
    let mut sessions = Vec::new();
    for time in times {
        if chance.next() < ABSENT {
            continue;
        }
        sessions.push(Session {
            user: time.uid,
            comes: time.from + chance.below(2) * STEP,
            lasts: time.until - time.from - STEP,
            is_planned: true,
        });
    }
    let mut left = u64::from(GPUS) * END * 45 / 100;
    while left > 0 {
        let lasts = (SESSIONS[usize::try_from(chance.below(4)).unwrap()] * HOUR).min(left);
        left -= lasts;
        sessions.push(Session {
            user: 1000 + HALF + u32::try_from(chance.below(HALF.into())).unwrap(),
            comes: chance.below(END - 24 * HOUR) / STEP * STEP,
            lasts,
            is_planned: false,
        });
    }
    sessions.sort_by_key(|session| session.comes);
    sessions
}

impl Month {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Without, Self::Drain, Self::Early, Self::End];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Without => "no calendar",
            Self::Drain => "calendar, `clear: drain`",
            Self::Early => "calendar, `clear: drain`, `before: 8h`",
            Self::End => "calendar, `clear: end`",
        }
    }

    /// The month of this seed.
    ///
    /// # Panics
    /// If a rule is broken.
    pub fn run(self, seed: u64) -> MonthOutcome {
        let before = WaitTime::seconds(if self == Self::Early { 8 * 3600 } else { 30 * 60 });
        let settings = CalendarSettings {
            before,
            ..CalendarSettings::default()
        };
        let mut chance = Chance(seed);
        let reserved = reservations(&mut chance, &settings);
        let work = sessions(&mut chance, &reserved);
        let none = Vec::new();
        let times = if self == Self::Without { &none } else { &reserved };
        let mut world = World {
            month: self,
            times,
            begun: BTreeSet::new(),
            held: vec![None; GPUS as usize],
            books: Vec::new(),
            sessions: &work,
            waiting: BTreeMap::new(),
            now: 0,
            taken: None,
            served: Vec::new(),
            ended: 0,
        };
        let queue_times = QueueTimes {
            reserve_for: Duration::from_secs(30),
            reserve_at_most: Duration::from_secs(3600),
        };
        let mut queue = FairQueue::new(queue_times, GPUS as usize, false);
        let mut used = UsedLately::new(Duration::from_secs(86_400));
        let (mut next, mut held, mut since, mut standstill) = (0, 0, 0, 0);
        // The last of those who wait are served after its end.
        while world.now < END + 10 * 24 * HOUR {
            held += world.step(&mut used);
            while next < work.len() && work[next].comes <= world.now {
                queue.join(next as u64, user_of(work[next].user));
                world.waiting.insert(next as u64, next);
                next += 1;
            }
            let now = Duration::from_secs(world.now);
            queue.serve(&used, now, &mut world);
            let is_other = |session: &usize| !work[*session].is_planned;
            let served = world.served.iter().rev().take_while(|(_, at)| *at == world.now);
            let is_served = served.map(|(session, _)| session).any(is_other);
            if is_served || !world.waiting.values().any(is_other) {
                since = world.now;
            }
            standstill = standstill.max(world.now - since);
        }
        let waits = |is_planned: bool| {
            let served = world
                .served
                .iter()
                .filter(|(session, _)| work[*session].is_planned == is_planned);
            let mut waits: Vec<f64> = served
                .map(|(session, at)| (at - work[*session].comes) as f64 / HOUR as f64)
                .collect();
            waits.sort_by(f64::total_cmp);
            waits
        };
        let waits = [true, false].map(waits);
        let all = f64::from(GPUS) * END as f64;
        let sum: u64 = times.iter().map(|time| time.until - time.from).sum();
        MonthOutcome {
            overlaps: overlaps(times),
            reserved: sum as f64 / all,
            used: held as f64 / all,
            planned: spread(&waits[0]),
            others: spread(&waits[1]),
            waits,
            standstill: standstill as f64 / HOUR as f64,
            ended: world.ended,
            unserved: world.waiting.len() + work.len() - next,
        }
    }
}

/// Pairs of one GPU at one time.
fn overlaps(times: &[ReservedTime]) -> usize {
    let pairs = times.iter().enumerate().flat_map(|(at, one)| {
        let others = times.iter().skip(at + 1);
        others.filter(move |other| one.device == other.device && one.is_at_the_time_of(other.from, other.until))
    });
    pairs.count()
}

/// The mean of waits in order, what 95 % wait at most, and the longest.
fn spread(waits: &[f64]) -> [f64; 3] {
    let mean = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
    let of_95 = waits.get(waits.len() * 95 / 100).copied().unwrap_or(0.0);
    [mean, of_95, waits.last().copied().unwrap_or(0.0)]
}

impl World<'_> {
    /// The next step of time. Returns for how many seconds GPUs were held in it, within the month.
    fn step(&mut self, used: &mut UsedLately<u32>) -> u64 {
        self.now += STEP;
        let mut held = 0;
        for slot in &mut self.held {
            if let Some((session, until)) = *slot {
                held += if self.now <= END { STEP } else { 0 };
                let now = Duration::from_secs(self.now);
                used.add(self.sessions[session].user, STEP as f64, now);
                if until <= self.now {
                    *slot = None;
                }
            }
        }
        self.books = (0..GPUS as usize).map(|number| self.book(number)).collect();
        if self.month == Month::End {
            for number in 0..GPUS as usize {
                let Some((session, _)) = self.held[number] else {
                    continue;
                };
                let has_begun = |time: &&ReservedTime| {
                    time.device.gpu() == &gpu(number)
                        && time.from <= self.now
                        && self.now < time.until
                        && !self.books[number].has_given_up(time.id)
                };
                let mut begun = self.times.iter().filter(has_begun);
                if begun.any(|time| time.uid != self.sessions[session].user) {
                    self.held[number] = None;
                    self.ended += 1;
                }
            }
        }
        held
    }

    fn book(&self, number: usize) -> Book {
        let mut calendar = Calendar::default();
        calendar.times = self
            .times
            .iter()
            .filter(|time| time.is_near(self.now))
            .cloned()
            .collect();
        let near = NearTimes::at(&calendar, Some(&gpu(number)), self.now, 1 << 40, || {
            Ok(self.begun.clone())
        });
        Book::new(gpu(number)).with_times(near.unwrap())
    }

    /// Whether the session may have the GPU now, and whether it is reserved for it.
    fn may_have(&self, session: &Session, number: usize) -> (bool, bool) {
        let mut book = self.books[number].clone();
        let most = SESSIONS[SESSIONS.len() - 1] * HOUR;
        book.asked_by(session.user, Some(most));
        let key = DeviceKey::whole(gpu(number));
        let is_free = self.held[number].is_none() && book.is_free(&key, &HeldPart::Whole, Bounds::default());
        (is_free, book.is_own_time(&key, &HeldPart::Whole))
    }
}

impl Grants for World<'_> {
    fn attempt(&mut self, request: RequestNumber, left_to: &[RequestNumber]) -> Attempted {
        let number = self.waiting[&request];
        let session = self.sessions[number].clone();
        let gpus = (0..GPUS as usize).map(|gpu| (gpu, self.may_have(&session, gpu)));
        let gpus: Vec<(usize, (bool, bool))> = gpus.filter(|(_, (is_free, _))| *is_free).collect();
        let own = gpus.iter().find(|(_, (_, is_own))| *is_own);
        let any = gpus.first().filter(|_| left_to.is_empty());
        let Some((gpu, (_, is_own))) = own.or(any) else {
            return Attempted::NotNow(if gpus.is_empty() { Free::Nothing } else { Free::Part });
        };
        // Nothing is given that is reserved for another user, whatever the rule says.
        for time in self.times.iter().filter(|time| time.device.gpu() == &self::gpu(*gpu)) {
            let is_used = self.begun.contains(&time.id) || self.now < time.from + time.no_show;
            let is_its = time.uid == session.user;
            assert!(
                is_its || !is_used || !(time.from <= self.now && self.now < time.until),
                "given: {time}"
            );
        }
        let near = self
            .times
            .iter()
            .filter(|time| time.device.gpu() == &self::gpu(*gpu) && time.is_near(self.now));
        let mine = near
            .filter(|time| *is_own && time.uid == session.user)
            .map(|time| time.id);
        self.begun.extend(mine);
        self.held[*gpu] = Some((number, self.now + session.lasts));
        self.taken = Some(*gpu);
        self.waiting.remove(&request);
        self.served.push((number, self.now));
        self.books[*gpu] = self.book(*gpu);
        Attempted::Granted
    }

    fn compete(&self, _: RequestNumber, _: RequestNumber) -> bool {
        true
    }

    fn was_taken_from(&self, _: RequestNumber) -> bool {
        self.taken.is_some()
    }
}

/// All kinds of the months of these seeds.
pub fn months(seeds: std::ops::Range<u64>) -> Vec<[MonthOutcome; 4]> {
    seeds.map(|seed| Month::ALL.map(|month| month.run(seed))).collect()
}

/// The months as a table: means of each number, and the largest of the longest.
pub fn table_of_months(months: &[[MonthOutcome; 4]]) -> String {
    let mut text =
        "| thirty people, four GPUs | GPUs in use | with a reservation: mean wait | 95 % at most | longest | the \
                    others: mean | 95 % at most | longest | sessions ended | overlaps |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for (at, month) in Month::ALL.into_iter().enumerate() {
        let all: Vec<&MonthOutcome> = months.iter().map(|months| &months[at]).collect();
        let mean = |of: &dyn Fn(&MonthOutcome) -> f64| {
            all.iter().map(|outcome| of(outcome)).sum::<f64>() / all.len().max(1) as f64
        };
        let most = |of: &dyn Fn(&MonthOutcome) -> f64| all.iter().map(|outcome| of(outcome)).fold(0.0, f64::max);
        text.push_str(&format!(
            "| {} | {:.0} % | {:.1} h | {:.1} h | {:.1} h | {:.1} h | {:.1} h | {:.1} h | {:.0} | {} |\n",
            month.name(),
            100.0 * mean(&|outcome| outcome.used),
            mean(&|outcome| outcome.planned[0]),
            mean(&|outcome| outcome.planned[1]),
            most(&|outcome| outcome.planned[2]),
            mean(&|outcome| outcome.others[0]),
            mean(&|outcome| outcome.others[1]),
            most(&|outcome| outcome.others[2]),
            mean(&|outcome| outcome.ended as f64),
            all.iter().map(|outcome| outcome.overlaps).sum::<usize>(),
        ));
    }
    text
}

/// For how many minutes sessions waited at most, by the part of them in percent, in these months of one kind. `of` is
/// which of [`MonthOutcome::waits`].
pub fn curve_of_months(months: &[[MonthOutcome; 4]], month: Month, of: usize) -> Vec<(f64, f64)> {
    let at = Month::ALL.iter().position(|one| *one == month).unwrap_or_default();
    let mut waits: Vec<f64> = months
        .iter()
        .flat_map(|months| months[at].waits[of].iter().copied())
        .collect();
    waits.sort_by(f64::total_cmp);
    let most = |percent: usize| waits.get(waits.len() * percent / 100).copied().unwrap_or(0.0);
    (50..100)
        .map(|percent| (percent as f64, 60.0 * most(percent)))
        .collect()
}
