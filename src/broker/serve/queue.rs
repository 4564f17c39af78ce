//! Users who wait for what others hold, in the order that [`FairQueue`] says.
//!
//! The thread of a connection that waits gets its turn from one thread that serves the queue ([`run`]), and makes the
//! attempt by itself. So that thread knows nothing of what is waited for, and an attempt has what the request has.
//! Root's containers wait in the queue of the ledger, and users come after them; where the policy says that root waits,
//! each comes after those who came before.

mod tickets;
mod turn;
mod usage;

use super::commands::Commands;
use super::peer::BrokerClient;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use tickets::Tickets;
use tranche_core::claims::{Attempt, Claims};
use tranche_core::error::{Error, line};
use tranche_core::ledger::{Ledger, LedgerError, LedgerResult, WaitedFor, Waiter};
use tranche_core::text::counted;
use tranche_core::types::{DeviceKey, HeldPart};
use tranche_plan::policy::UserRules;
use tranche_plan::queue::{FairQueue, RequestNumber, UsedLately};
use tranche_state::accounts::Account;
use tranche_state::held::user_wait::{self, UserWait};
use tranche_state::mutex::lock;
use turn::{Reply, Turn, Turns};

/// How often the queue is served although nothing has changed: a container that ends by itself writes nothing.
const POLL: Duration = Duration::from_millis(100);

/// How often a request that waits looks whether its client still waits.
const LOOK: Duration = Duration::from_millis(200);

/// How often root is shown who waits.
const SHOW: Duration = Duration::from_secs(1);

/// The requests of users that wait.
#[derive(Debug, Default)]
pub(super) struct UserQueue {
    state: Mutex<QueueState>,
    /// Somebody has joined, or the broker ends.
    changed: Condvar,
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
    /// What users have held; `None` until it is read.
    used: Option<UsedLately<Account>>,
    /// Until when it was counted.
    counted_until: Duration,
}

/// A request that waits.
#[derive(Debug)]
struct Waits {
    account: Account,
    uid: u32,
    /// What it waits for, for people: `claim 1000.train`.
    about: String,
    wants: Vec<WaitedFor>,
    since: Instant,
    turns: Sender<Turn>,
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
    /// Whether it failed because of what the user holds, so that nothing is kept free for it.
    pub(super) is_over_limit: fn(&A::Error) -> bool,
}

impl UserQueue {
    /// Makes the attempt, and waits for what others hold if the request may wait.
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
        let wants = attempt.wants();
        let refused = match self.attempt_now(claims, attempt) {
            Err(error) if A::may_pass(&error) => attempt.worth_waiting(error)?,
            done => return done,
        };
        if wait.is_zero() {
            return Err(refused);
        }
        let (sender, turns) = channel();
        let account = commands.accounts.of(options.peer.uid);
        let number = self.join(commands, account, sender, &wants, options)?;
        let place = Place { queue: self, number };
        let root_waits = commands.facts().is_ok_and(|facts| facts.plan.queue.root_waits);
        let mut ticket = None;
        loop {
            let left = wait.saturating_sub(began.elapsed());
            // Each time: while turns come, nothing else is a reason to look.
            let over = match () {
                () if left.is_zero() => Some(None),
                () if has_hung_up(options.client) => Some(Some(nobody_waits(&options.about).into())),
                () if self.is_closing.load(Ordering::SeqCst) => Some(Some(ends(&options.about).into())),
                () => attempt.check_needed().err().map(Some),
            };
            if let Some(why) = over {
                // First the end of the channel: the thread that serves the queue may wait for an answer, and has the
                // lock.
                drop(turns);
                drop(ticket);
                drop(place);
                return match why {
                    Some(error) => Err(error),
                    None => match self.attempt_now(claims, attempt) {
                        Err(error) if A::may_pass(&error) => Err(A::timed_out(began.elapsed(), error)),
                        done => done,
                    },
                };
            }
            let Turn { left_to, reply } = match turns.recv_timeout(LOOK.min(left)) {
                Ok(turn) => turn,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(ends(&options.about).into()),
            };
            let locked = claims.lock()?;
            let mut ahead = self.tickets.of_root(&locked, ticket.as_ref())?;
            ahead.extend(left_to);
            let made = attempt.make(&locked, Some(ahead));
            let is_over_limit = made.as_ref().is_err_and(asked.is_over_limit);
            let is_still_waiting = made.as_ref().is_err_and(A::may_pass);
            // Nothing is kept from root for somebody who may not have it.
            match root_waits && is_still_waiting && !is_over_limit {
                true if ticket.is_none() => ticket = Some(self.tickets.line_up(&locked, number, &wants)?),
                true => {}
                false => ticket = None,
            }
            drop(locked);
            let (answer, done) = match made {
                Ok(got) => (Reply::Granted((asked.taken)(&got)), Some(Ok(got))),
                Err(_) if is_still_waiting => {
                    let is_partly_free = !is_over_limit && is_partly_free(commands, claims, &wants);
                    (Reply::NotNow { is_partly_free }, None)
                }
                Err(error) => (Reply::Gone, Some(Err(error))),
            };
            // A queue that does not listen any more has ended with the broker.
            let _ = reply.send(answer);
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Makes the attempt, without waiting. What others wait for is left to them.
    fn attempt_now<A: Attempt>(&self, claims: &Claims, attempt: &A) -> Result<A::Got, A::Error> {
        let waiting: Vec<Waiter> = {
            let state = lock(&self.state);
            let wants = state.waiting.values().map(|waits| waits.wants.clone());
            wants.map(Waiter::without_ticket).collect()
        };
        let locked = claims.lock()?;
        let mut ahead = self.tickets.of_root(&locked, None)?;
        ahead.extend(waiting);
        attempt.make(&locked, Some(ahead))
    }

    fn join(
        &self,
        commands: &Commands<'_>,
        account: Account,
        turns: Sender<Turn>,
        wants: &[WaitedFor],
        options: &WaitOptions<'_>,
    ) -> LedgerResult<RequestNumber> {
        let facts = commands.facts()?;
        let mut state = lock(&self.state);
        let own = state.waiting.values().filter(|other| other.account == account).count();
        let most = options.rules.waits();
        if own >= most {
            let what = format!(
                "{} of this user wait already, and no more may wait",
                counted(own, "request")
            );
            return Err(Error::failed(&options.about, what)
                .hint("wait until one of them is served, or end one; root sets waits in sharing.users")
                .into());
        }
        let number = state.next;
        state.next += 1;
        let devices = facts.plan.devices.len();
        let rule = state
            .rule
            .get_or_insert_with(|| FairQueue::new(facts.plan.queue.times(), devices));
        rule.join(number, account, options.rules.served());
        let waits = Waits {
            account,
            uid: options.peer.uid,
            about: options.about.clone(),
            wants: wants.to_vec(),
            since: Instant::now(),
            turns,
        };
        state.waiting.insert(number, waits);
        self.changed.notify_all();
        Ok(number)
    }

    /// Those who wait, in the order in which they are served now.
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
        // A thread that has looked before, and does not wait yet, has the lock.
        drop(lock(&self.state));
        self.changed.notify_all();
    }
}

/// The place of a request in the queue, until it is dropped.
struct Place<'q> {
    queue: &'q UserQueue,
    number: RequestNumber,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.waiting.remove(&self.number);
        if let Some(rule) = &mut state.rule {
            rule.leave(self.number);
        }
        if state.waiting.is_empty() {
            // The next one gets the times of the policy of then.
            state.rule = None;
        }
    }
}

/// Serves the queue until it is closed.
pub(super) fn run(commands: &Commands<'_>) {
    let queue = &commands.queue;
    let watch = match Ledger::open(commands.state_dir()) {
        Ok(ledger) => ledger.watch(),
        Err(error) => {
            tracing::warn!("{error}");
            return;
        }
    };
    let show = |waiting: &[UserWait]| {
        if let Err(error) = user_wait::write(waiting, commands.state_dir()) {
            tracing::warn!("{}", line(&error));
        }
    };
    loop {
        // Also what a broker left that was killed.
        show(&[]);
        if !queue.until_somebody_waits() {
            return;
        }
        let mut shown: Option<Instant> = None;
        while !queue.is_idle() {
            queue.count(commands);
            queue.serve();
            if shown.is_none_or(|at| at.elapsed() >= SHOW) {
                shown = Some(Instant::now());
                show(&queue.waiting());
            }
            watch.wait(POLL);
        }
    }
}

impl UserQueue {
    /// Returns false when the broker ends.
    fn until_somebody_waits(&self) -> bool {
        let mut state = lock(&self.state);
        while state.waiting.is_empty() && !self.is_closing.load(Ordering::SeqCst) {
            state = match self.changed.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        !self.is_closing.load(Ordering::SeqCst)
    }

    /// Whether nobody waits, or the broker ends.
    fn is_idle(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst) || lock(&self.state).waiting.is_empty()
    }

    /// Gives each request its turn.
    fn serve(&self) {
        let mut state = lock(&self.state);
        let QueueState {
            rule, waiting, used, ..
        } = &mut *state;
        if let Some((rule, used)) = rule.as_mut().zip(used.as_ref()) {
            rule.serve(used, now(), &mut Turns::of(waiting));
        }
    }
}

/// Time since boot. It goes on while the machine sleeps, and nobody can set it.
pub(super) fn now() -> Duration {
    let since_boot = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    since_boot.map_or(Duration::ZERO, Duration::from)
}

/// Whether the other end of the connection is closed.
fn has_hung_up(client: &UnixStream) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let flags = PollFlags::POLLHUP | PollFlags::POLLERR;
    let mut fds = [PollFd::new(client.as_fd(), PollFlags::empty())];
    let polled = poll(&mut fds, PollTimeout::ZERO);
    let [client] = fds;
    polled.is_ok() && client.revents().is_some_and(|events| events.intersects(flags))
}

fn is_partly_free(commands: &Commands<'_>, claims: &Claims, wants: &[WaitedFor]) -> bool {
    let Ok((facts, books)) = commands.facts().and_then(|facts| Ok((facts, claims.books()?))) else {
        return false;
    };
    facts.plan.is_partly_free(&books.books, wants)
}

fn nobody_waits(about: &str) -> LedgerError {
    Error::failed(about, "given up, because the program that asked for it has ended").into()
}

fn ends(about: &str) -> LedgerError {
    Error::failed(about, "given up, because the broker ends")
        .hint("try again")
        .into()
}
