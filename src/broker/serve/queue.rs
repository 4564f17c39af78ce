//! Users who wait for what others hold, in the order that [`FairQueue`] says.
//!
//! The thread of a connection that waits gets its turn from one thread that serves the queue ([`run`]), and makes the
//! attempt by itself. So that thread knows nothing of what is waited for, and an attempt has what the request has.
//! Root's containers and claims wait in the queue of the ledger and make their attempts by themselves, with or without
//! a broker. They have their places in the order here, too, and come after those users who have a ticket there
//! ([`tickets`]).

mod serving;
mod tickets;
mod turn;
mod usage;

pub(super) use serving::run;

use super::commands::Commands;
use super::peer::BrokerClient;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tickets::Tickets;
use tranche_core::claims::{Attempt, Claims};
use tranche_core::error::{Context, Error};
use tranche_core::ledger::events::{self, EventKind};
use tranche_core::ledger::process::EndSign;
use tranche_core::ledger::{Book, Books, LedgerError, LedgerResult, WaitedFor, Waiter};
use tranche_core::text::counted;
use tranche_core::types::{DeviceKey, GpuUuid, HeldPart};
use tranche_plan::policy::UserRules;
use tranche_plan::queue::{FairQueue, Free, RequestNumber, Requester, UsedLately};
use tranche_plan::reserve::FreeParts;
use tranche_state::accounts::Account;
use tranche_state::held::user_wait::UserWait;
use tranche_state::mutex::lock;
use turn::{Answered, Reply, Turn, Wake};

/// How often a request that waits looks whether it is still needed, although nothing has woken it.
const LOOK: Duration = Duration::from_secs(5);

/// The requests of users that wait.
#[derive(Debug, Default)]
pub(super) struct UserQueue {
    state: Mutex<QueueState>,
    /// A byte that is written here wakes the thread that serves the queue.
    wake: OnceLock<UnixStream>,
    /// The broker ends. It is asked without the lock, which the thread that serves the queue has while a request has
    /// its turn.
    is_closing: AtomicBool,
    /// The places of requests in the queue of the ledger.
    tickets: Tickets,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The number of the next request.
    next: RequestNumber,
    /// The rule, while somebody waits.
    rule: Option<FairQueue<Account>>,
    waiting: BTreeMap<RequestNumber, Waits>,
    /// Root's requests, by the numbers of their tickets.
    of_root: BTreeMap<u64, (RequestNumber, Waiter)>,
    /// What users have held; `None` until it is read.
    used: Option<UsedLately<Account>>,
    /// Until when it was counted.
    counted_until: Duration,
}

/// A request of a user that waits.
#[derive(Debug)]
struct Waits {
    account: Account,
    uid: u32,
    /// What it waits for, for people: `claim 1000.train`.
    about: String,
    wants: Arc<[WaitedFor]>,
    since: Instant,
    turns: Sender<Wake>,
    /// What shows that it is not needed any more, with the events to wait for: its client has hung up, or the process
    /// has ended for which it asks. Each is taken away when it was seen.
    signs: Vec<(Arc<OwnedFd>, PollFlags)>,
    /// What the last turn came to.
    answered: Option<Answered>,
}

/// Who waits, for what, and for how long.
pub(super) struct WaitOptions<'a> {
    pub(super) peer: &'a BrokerClient,
    /// What the policy says about the user.
    pub(super) rules: UserRules,
    /// What is waited for, for people.
    pub(super) about: String,
    /// For how long.
    pub(super) wait: Duration,
    /// The connection, whose end ends the wait.
    pub(super) client: &'a UnixStream,
}

/// A part of a device that was given to a request.
pub(super) type TakenPart = (DeviceKey, HeldPart);

/// An attempt, and what the queue asks about it.
pub(super) struct UserAttempt<'a, A: Attempt> {
    pub(super) attempt: &'a A,
    /// What was got.
    pub(super) taken: &'a dyn Fn(&A::Got) -> Vec<TakenPart>,
    /// Takes what the policy says now, before a turn.
    pub(super) renew: &'a dyn Fn(),
    /// Whether it failed because of what the user holds, so that nothing is kept free for it.
    pub(super) is_over_limit: fn(&A::Error) -> bool,
}

impl UserQueue {
    /// Makes the attempt, and waits for what others hold if the request may wait. While others wait, one that does not
    /// wait has a turn in their order as well.
    ///
    /// # Errors
    /// Returns the error of the attempt, [`Attempt::timed_out`], or why the request does not wait any more.
    pub(super) fn take_turn<A: Attempt>(
        &self,
        commands: &Commands<'_>,
        claims: &Claims,
        asked: &UserAttempt<'_, A>,
        options: &WaitOptions<'_>,
    ) -> Result<A::Got, A::Error> {
        let attempt = asked.attempt;
        let began = Instant::now();
        let wait = options.wait.min(options.rules.max_wait());
        if lock(&self.state).waiting.is_empty() {
            let refused = match self.attempt_last(claims, attempt) {
                Err(error) if A::may_pass(&error) => attempt.worth_waiting(error)?,
                done => return done,
            };
            if wait.is_zero() {
                return Err(refused);
            }
        }
        let wants: Arc<[WaitedFor]> = attempt.wants().into();
        let (place, turns, too_many) = self.join(commands, claims, attempt, &wants, options)?;
        // Dropped last, because it locks the ledger.
        let end = WaitEnd {
            claims,
            wants: Arc::clone(&wants),
            began,
            is_recorded: !wait.is_zero() && commands.state_dir().join(events::DIRECTORY).exists(),
            is_served: Cell::new(false),
        };
        let waiting = Waiting {
            turns,
            place,
            claims,
            asked,
            wants,
        };
        // Of a request that may not wait, the first turn is the only one.
        let mut first = Some(move |refused: A::Error| match too_many {
            _ if wait.is_zero() => Err(attempt.worth_waiting(refused)?),
            Some(error) => Err(A::Error::from(error)),
            None => attempt.worth_waiting(refused),
        });
        loop {
            let left = wait.saturating_sub(began.elapsed());
            // Each time: while turns come, nothing else is a reason to look.
            let over = match () {
                () if left.is_zero() && first.is_none() => Some(None),
                () if has_hung_up(options.client) => Some(Some(nobody_waits(&options.about).into())),
                () if self.is_closing.load(Ordering::SeqCst) => Some(Some(ends(&options.about).into())),
                () => attempt.check_needed().err().map(Some),
            };
            if let Some(why) = over {
                drop(waiting);
                return match why {
                    Some(error) => Err(error),
                    None => match self.attempt_last(claims, attempt) {
                        Err(error) if A::may_pass(&error) => Err(A::timed_out(began.elapsed(), error)),
                        done => {
                            end.is_served.set(done.is_ok());
                            done
                        }
                    },
                };
            }
            let most = if first.is_some() { LOOK } else { LOOK.min(left) };
            let turn = match waiting.turns.recv_timeout(most) {
                Ok(Wake::Turn(turn)) => turn,
                Ok(Wake::Look) => continue,
                Err(RecvTimeoutError::Timeout) => {
                    // Nobody serves the queue, or others' turns take long.
                    first = None;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ends(&options.about).into()),
            };
            let waits = |refused| match first.take() {
                Some(first) => first(refused),
                None => Ok(refused),
            };
            if let Some(done) = waiting.use_turn(commands, turn, waits) {
                end.is_served.set(done.is_ok());
                return done;
            }
        }
    }

    /// Makes the attempt without a turn: what others wait for is left to them.
    fn attempt_last<A: Attempt>(&self, claims: &Claims, attempt: &A) -> Result<A::Got, A::Error> {
        let waiting: Vec<Waiter> = {
            let state = lock(&self.state);
            let wants = state.waiting.values().map(|waits| Arc::clone(&waits.wants));
            wants.map(Waiter::without_ticket).collect()
        };
        let locked = claims.lock()?;
        let mut ahead = self.tickets.of_root(&locked, None)?;
        ahead.extend(waiting);
        attempt.make(&locked, Some(ahead))
    }

    fn join<A: Attempt>(
        &self,
        commands: &Commands<'_>,
        claims: &Claims,
        attempt: &A,
        wants: &Arc<[WaitedFor]>,
        options: &WaitOptions<'_>,
    ) -> LedgerResult<(Place<'_>, Receiver<Wake>, Option<LedgerError>)> {
        let facts = commands.facts()?;
        let account = commands.accounts.of(options.peer.uid);
        let client = options.client.try_clone().about(&options.about, "cannot wait")?;
        // Of these events, a hang-up is reported in any case (poll(2)).
        let mut signs = vec![(Arc::new(OwnedFd::from(client)), PollFlags::empty())];
        if let Some(EndSign::Shown(sign, events)) = attempt.process().map(|process| claims.machine().end_of(process)) {
            signs.push((Arc::new(sign), events));
        }
        let (turns, receiver) = channel();
        let mut state = lock(&self.state);
        let devices = facts.plan.devices.len();
        let root_waits = facts.plan.queue.root_waits;
        if state.rule.is_none() {
            state.rule = Some(FairQueue::new(facts.plan.queue.times(), devices, root_waits));
        }
        // All under one lock: who has come before whom.
        let locked = claims.lock()?;
        state.note_root(self.tickets.of_root(&locked, None)?, now());
        let number = state.take_number();
        if root_waits {
            self.tickets.line_up(&locked, number, wants)?;
        }
        if !options.wait.is_zero() {
            locked.ledger().note_wait(EventKind::Waits, 0, wants, claims.uid());
        }
        drop(locked);
        if let Some(rule) = &mut state.rule {
            let served = options.rules.served();
            rule.join(number, Requester::User { account, served });
        }
        let own = state.waiting.values().filter(|other| other.account == account).count();
        let too_many = (own >= options.rules.waits()).then(|| too_many(&options.about, own));
        let waits = Waits {
            account,
            uid: options.peer.uid,
            about: options.about.clone(),
            wants: Arc::clone(wants),
            since: Instant::now(),
            turns,
            signs,
            answered: None,
        };
        state.waiting.insert(number, waits);
        drop(state);
        self.wake();
        Ok((Place { queue: self, number }, receiver, too_many))
    }

    /// Wakes the thread that serves the queue.
    fn wake(&self) {
        // If the socket is full, the thread wakes anyway.
        let _ = self.wake.get().map(|mut wake| wake.write(&[0]));
    }

    /// Those who wait, in the order in which they are served now. Root's requests, which come from the queue of the
    /// ledger, are not among them, and counted.
    pub(super) fn waiting(&self) -> Vec<UserWait> {
        let state = lock(&self.state);
        let Some((rule, used)) = state.rule.as_ref().zip(state.used.as_ref()) else {
            return Vec::new();
        };
        let order = rule.order(used, now());
        let row = |(ahead, number): (usize, &RequestNumber)| {
            let waits = state.waiting.get(number)?;
            Some(UserWait {
                what: waits.about.clone(),
                uid: waits.uid,
                ahead,
                waited: waits.since.elapsed().as_secs(),
                ticket: self.tickets.of(*number),
            })
        };
        order.iter().enumerate().filter_map(row).collect()
    }

    /// Ends every wait, because the broker ends.
    pub(super) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        for waits in lock(&self.state).waiting.values() {
            waits.look();
        }
        self.wake();
    }
}

impl QueueState {
    fn take_number(&mut self) -> RequestNumber {
        self.next += 1;
        self.next
    }

    /// Notes which requests of root wait at `now`.
    fn note_root(&mut self, waiters: Vec<Waiter>, now: Duration) {
        let mut earlier = std::mem::take(&mut self.of_root);
        for waiter in waiters {
            let number = match earlier.remove(&waiter.ticket()) {
                Some((number, _)) => number,
                None => {
                    let number = self.take_number();
                    if let Some(rule) = &mut self.rule {
                        rule.join(number, Requester::Root);
                    }
                    number
                }
            };
            self.of_root.insert(waiter.ticket(), (number, waiter));
        }
        for (number, _) in earlier.into_values() {
            if let Some(rule) = &mut self.rule {
                rule.leave(number, now);
            }
        }
    }
}

impl Waits {
    /// Lets the request look whether it is still needed.
    fn look(&self) {
        // One that has gone needs no answer.
        let _ = self.turns.send(Wake::Look);
    }
}

/// Records, when it is dropped, how a wait has ended.
struct WaitEnd<'a> {
    claims: &'a Claims,
    wants: Arc<[WaitedFor]>,
    began: Instant,
    is_recorded: bool,
    is_served: Cell<bool>,
}

impl Drop for WaitEnd<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            return;
        }
        // Without the lock, the history lacks one wait.
        if let Ok(locked) = self.claims.lock() {
            let kind = match self.is_served.get() {
                true => EventKind::Served,
                false => EventKind::Left,
            };
            let seconds = self.began.elapsed().as_secs();
            locked.ledger().note_wait(kind, seconds, &self.wants, self.claims.uid());
        }
    }
}

/// The place of a request in the queue, until it is dropped.
struct Place<'q> {
    queue: &'q UserQueue,
    number: RequestNumber,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.queue.tickets.give_up(self.number);
        let mut state = lock(&self.queue.state);
        state.waiting.remove(&self.number);
        if let Some(rule) = &mut state.rule {
            rule.leave(self.number, now());
        }
        if state.waiting.is_empty() {
            // The next one gets the times of the policy of then.
            state.rule = None;
            state.of_root.clear();
        }
        drop(state);
        // Others may have what was kept for it.
        self.queue.wake();
    }
}

/// A request that has a place. Its fields are dropped in this order: the thread that serves the queue may wait for an
/// answer, and has the lock that the place needs.
struct Waiting<'a, A: Attempt> {
    turns: Receiver<Wake>,
    place: Place<'a>,
    claims: &'a Claims,
    asked: &'a UserAttempt<'a, A>,
    wants: Arc<[WaitedFor]>,
}

impl<A: Attempt> Waiting<'_, A> {
    /// Makes the attempt in its turn. Returns what it came to, unless the request waits on, which `waits` decides.
    fn use_turn(
        &self,
        commands: &Commands<'_>,
        turn: Turn,
        waits: impl FnOnce(A::Error) -> Result<A::Error, A::Error>,
    ) -> Option<Result<A::Got, A::Error>> {
        let UserAttempt {
            attempt,
            taken,
            renew,
            is_over_limit,
        } = self.asked;
        renew();
        let tickets = &self.place.queue.tickets;
        let made = self.claims.lock().map_err(A::Error::from).and_then(|locked| {
            let own = turn.comes_before_later_root.then_some(self.place.number);
            let mut ahead = tickets.of_root(&locked, own)?;
            ahead.extend(turn.left_to);
            let made = attempt.make(&locked, Some(ahead));
            if made.is_ok() {
                // Before the lock is opened: root must not find somebody who waits no more.
                tickets.give_up(self.place.number);
            }
            made
        });
        let (answer, done) = match made {
            Ok(got) => (Reply::Granted(taken(&got)), Some(Ok(got))),
            Err(error) if A::may_pass(&error) => {
                let free = match is_over_limit(&error) {
                    true => Free::ForOthers,
                    false => self.free(commands),
                };
                match waits(error) {
                    Ok(_) => (Reply::NotNow(free), None),
                    Err(error) => (Reply::Gone, Some(Err(error))),
                }
            }
            Err(error) => (Reply::Gone, Some(Err(error))),
        };
        // A queue that does not listen any more has ended with the broker.
        let _ = turn.reply.send(answer);
        done
    }

    /// What is held and reserved of the GPUs that it waits for, as this user may have it: what is reserved for another
    /// one now is not kept free for this one.
    fn own_books(&self) -> LedgerResult<Vec<Book>> {
        let Books { mut books, times, .. } = self.claims.books()?;
        if !times.is_empty() {
            let gpus: BTreeSet<&GpuUuid> = self.wants.iter().map(|wanted| wanted.device.gpu()).collect();
            for gpu in gpus {
                if books.iter().all(|book| book.gpu != *gpu) {
                    books.push(self.claims.book(gpu)?);
                }
            }
        }
        books.iter_mut().for_each(|book| self.claims.ask(book));
        Ok(books)
    }

    /// What is free of what it waits for.
    fn free(&self, commands: &Commands<'_>) -> Free {
        let known = commands.facts().and_then(|facts| Ok((facts, self.own_books()?)));
        let is_part =
            known.is_ok_and(|(facts, books)| FreeParts::default().may_serve(&facts.plan, &books, &self.wants));
        if is_part { Free::Part } else { Free::Nothing }
    }
}

/// Time since boot. It goes on while the machine sleeps, and nobody can set it.
pub(super) fn now() -> Duration {
    let since_boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    since_boot.map_or(Duration::ZERO, Duration::from)
}

/// Whether the other end of the connection is closed.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut fds = [PollFd::new(client.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The refusal of a request whose user has so many that wait.
fn too_many(about: &str, own: usize) -> LedgerError {
    let what = format!(
        "{} of this user wait already, and no more may wait",
        counted(own, "request")
    );
    Error::failed(about, what)
        .hint("wait until one of them is served, or end one; root sets waits in sharing.users")
        .into()
}

fn nobody_waits(about: &str) -> LedgerError {
    Error::failed(about, "given up, because the program that asked for it has ended").into()
}

fn ends(about: &str) -> LedgerError {
    Error::failed(about, "given up, because the broker ends")
        .hint("try again")
        .into()
}
