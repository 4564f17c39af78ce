//! The thread that serves the queue: it gives turns when something has changed, and looks at nothing otherwise.

use super::turn::{Snapshot, Turns};
use super::{QueueState, UserQueue, now};
use crate::serve::commands::Commands;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Result, line};
use tranche_core::ledger::{Claim, Ends, Ledger, Watch};
use tranche_core::types::DeviceKey;
use tranche_plan::queue::RequestNumber;
use tranche_state::accounts::Account;
use tranche_state::held::user_wait::{self, UserWait};
use tranche_state::mutex::lock;

/// How often it looks although nothing has woken it.
const LOOK: Duration = Duration::from_secs(5);

/// How often root is shown who waits.
const SHOW: Duration = Duration::from_secs(1);

/// Serves the queue until it is closed.
pub(in crate::serve) fn run(commands: &Commands<'_>) {
    if let Err(error) = Server::new(commands).and_then(|mut server| server.run()) {
        tracing::warn!("{}", line(&error));
    }
}

struct Server<'a, 'c> {
    commands: &'a Commands<'c>,
    queue: &'a UserQueue,
    /// Readable when it is woken.
    woken: UnixStream,
    snapshot: Snapshot,
    /// What root was shown of those who wait, and when.
    shown: Option<(Instant, Vec<UserWait>)>,
}

impl<'a, 'c> Server<'a, 'c> {
    fn new(commands: &'a Commands<'c>) -> Result<Self> {
        const ABOUT: &str = "the queue of users";
        let (woken, wake) = UnixStream::pair().about(ABOUT, "cannot be served")?;
        for end in [&woken, &wake] {
            end.set_nonblocking(true).about(ABOUT, "cannot be served")?;
        }
        let queue = &commands.queue;
        queue.wake.get_or_init(|| wake);
        Ok(Self {
            commands,
            queue,
            woken,
            snapshot: Snapshot::default(),
            shown: None,
        })
    }

    fn run(&mut self) -> Result<()> {
        loop {
            // Also what a broker left that was killed.
            self.show(&[]);
            self.shown = None;
            while lock(&self.queue.state).waiting.is_empty() {
                if self.queue.is_closing.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let mut woken = [PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
                // A signal is a reason to look.
                let _ = poll(&mut woken, PollTimeout::NONE);
                self.listen();
            }
            let watch = Ledger::open(self.commands.state_dir())?.watch();
            // A policy that is in force is written there, too.
            watch.also(self.commands.state_dir());
            let claims = Claims::open(self.commands.state_dir())?;
            while !lock(&self.queue.state).waiting.is_empty() {
                // Requests that wait end by themselves.
                if let Err(error) = self.serve_and_wait(&claims, &watch) {
                    tracing::warn!("{}", line(&error));
                    std::thread::sleep(SHOW);
                }
            }
        }
    }

    /// Takes away what it was woken by.
    fn listen(&self) {
        let mut bytes = [0; 64];
        loop {
            match (&self.woken).read(&mut bytes) {
                Ok(read) if read > 0 => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn show(&self, waiting: &[UserWait]) {
        if let Err(error) = user_wait::write(waiting, self.commands.state_dir()) {
            tracing::warn!("{}", line(&error));
        }
    }

    /// Shows root who waits now, if that has changed. Returns after what time to do it, if it is too early.
    fn show_changes(&mut self) -> Option<Duration> {
        let waiting = self.queue.waiting();
        if let Some((at, shown)) = &self.shown {
            let mut pairs = shown.iter().zip(&waiting);
            if shown.len() == waiting.len() && pairs.all(|(shown, now)| shown.is_same(now)) {
                return None;
            }
            let early = SHOW.saturating_sub(at.elapsed());
            if !early.is_zero() {
                return Some(early);
            }
        }
        self.show(&waiting);
        self.shown = Some((Instant::now(), waiting));
        None
    }

    /// Gives each request its turn that may have one, and waits for the next change.
    fn serve_and_wait(&mut self, claims: &Claims, watch: &Watch) -> Result<()> {
        self.listen();
        let facts = self.commands.facts()?;
        // What was held until now.
        self.queue.count(self.commands, &facts, self.snapshot.claims())?;
        let books = claims.books()?;
        // Before any turn: what ends after it wakes this thread.
        let ends = {
            let state = lock(&self.queue.state);
            let accounts = self.commands.accounts;
            let counts = |claim: &&Claim| state.waits_for_end_of(&claim.device, accounts.already_known(claim.uid));
            Ends::of(books.claims().filter(counts), claims.machine())
        };
        self.snapshot.set(books, Arc::clone(&facts.plan));
        let next = self.serve(claims, facts.plan.queue.root_waits)?;
        let show = self.show_changes();
        let next = next.map(|next| next.saturating_sub(now()));
        let most = [next, show].into_iter().flatten().fold(LOOK, Duration::min);
        let signs = lock(&self.queue.state).signs();
        let others = signs.iter().map(|(_, sign, events)| (sign.as_fd(), *events));
        let others: Vec<(BorrowedFd<'_>, PollFlags)> =
            others.chain([(self.woken.as_fd(), PollFlags::POLLIN)]).collect();
        watch.wait(most, &ends, &others);
        lock(&self.queue.state).look_at(&signs);
        Ok(())
    }

    /// Gives each request its turn that may have one. Returns when something ceases to be kept.
    fn serve(&mut self, claims: &Claims, root_waits: bool) -> Result<Option<Duration>> {
        let of_root = self.queue.tickets.of_root(&claims.lock()?, None)?;
        let mut state = lock(&self.queue.state);
        state.note_root(of_root, now());
        let QueueState {
            rule,
            waiting,
            of_root,
            used,
            ..
        } = &mut *state;
        let Some((rule, used)) = rule.as_mut().zip(used.as_ref()) else {
            return Ok(None);
        };
        rule.set_root_waits(root_waits);
        let mut turns = Turns {
            waiting,
            of_root: of_root.values().map(|(number, waiter)| (*number, waiter)).collect(),
            before_later_root: rule.before_later_root(),
            claims,
            snapshot: &mut self.snapshot,
            taken: Vec::new(),
        };
        rule.serve(used, now(), &mut turns);
        let hold_root_up = rule.hold_root_up();
        if self.queue.tickets.is_news(&hold_root_up) {
            let wants = |request: RequestNumber| waiting.get(&request).map(|waits| &*waits.wants);
            self.queue.tickets.hold_root_up(&claims.lock()?, &hold_root_up, wants)?;
        }
        Ok(rule.next_end(now()))
    }
}

/// What shows that a request is not needed any more.
type Sign = (RequestNumber, Arc<OwnedFd>, PollFlags);

impl QueueState {
    /// Whether a request may be served when a claim of `account` on `device` ends: it wants something of the device, or
    /// is of the same account, and so more of that account's quota is free.
    fn waits_for_end_of(&self, device: &DeviceKey, account: Account) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|waits| waits.account == account || waits.wants.iter().any(|wanted| wanted.device.overlaps(device)))
    }

    fn signs(&self) -> Vec<Sign> {
        let of = |(number, waits): (&RequestNumber, &super::Waits)| {
            let signs = waits.signs.iter();
            let number = *number;
            signs
                .map(move |(sign, events)| (number, Arc::clone(sign), *events))
                .collect::<Vec<_>>()
        };
        self.waiting.iter().flat_map(of).collect()
    }

    /// Lets requests look that may be needed no more. A sign that has come is not waited for again.
    fn look_at(&mut self, signs: &[Sign]) {
        let mut fds: Vec<PollFd<'_>> = signs
            .iter()
            .map(|(_, sign, events)| PollFd::new(sign.as_fd(), *events))
            .collect();
        if !poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return;
        }
        for ((number, sign, _), _) in signs.iter().zip(&fds).filter(|(_, fd)| fd.any() == Some(true)) {
            if let Some(waits) = self.waiting.get_mut(number) {
                waits.signs.retain(|(own, _)| !Arc::ptr_eq(own, sign));
                waits.look();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::queue::Waits;
    use std::sync::mpsc::channel;
    use tranche_core::ledger::WaitedFor;

    #[test]
    fn the_end_of_what_the_user_itself_holds_is_waited_for_on_any_device() {
        let device = |name: &str| -> DeviceKey { name.parse().unwrap() };
        let waits = Waits {
            account: Account::User(1000),
            uid: 1000,
            about: "claim 1000.train".to_owned(),
            wants: Arc::new([WaitedFor {
                device: device("GPU-11111111"),
                shares: Vec::new(),
            }]),
            since: Instant::now(),
            turns: channel().0,
            signs: Vec::new(),
            answered: None,
        };
        let state = QueueState {
            waiting: [(1, waits)].into(),
            ..QueueState::default()
        };
        for (name, uid, counts) in [
            ("GPU-11111111", 1001, true),
            ("GPU-22222222", 1001, false),
            ("GPU-22222222", 1000, true),
        ] {
            assert_eq!(
                state.waits_for_end_of(&device(name), Account::User(uid)),
                counts,
                "{name} of {uid}"
            );
        }
    }
}
