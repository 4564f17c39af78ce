//! Claims on devices, for everybody who makes, uses or shows them: hooks and the command line today; a broker, a
//! container runtime and Kubernetes need only this.
//!
//! A claim is *reserved* of a plan, for later or for the start of a container (`Plan::reserve`), and *entered* by the
//! container that uses it ([`Claims::enter`], which also takes a part of a device directly). A claim ends in one of
//! three ways:
//!
//! - It is *released* by its holder ([`Claims::release`], or [`Claims::release_failed_start`] while the container
//!   lives), or by a person ([`LockedClaims::release_by_hand`]).
//! - It is *withdrawn*, if it was reserved and never entered ([`Claims::withdraw`]).
//! - It is *collected*, if its holder is gone or its time is over ([`LockedClaims::collect`]).
//!
//! [`Claims::books`] says what is held, and [`Book::is_free`] what is free.
//!
//! Errors are typed ([`LedgerError`]). Only [`explain()`] makes text for people.

mod enter;
mod explain;
mod made;
mod renumber;
mod resource_claim;
mod turn;

pub use explain::{RESERVED, explain, kind_of, until_ended};
pub use made::{just_made_for, make_way};
pub use renumber::MovedClaim;
pub use resource_claim::{ClaimPart, NotReserved, Reserved};
pub use turn::{Attempt, nobody_waits};

use crate::bounded;
use crate::call::ClaimCall;
use crate::error::{Context, Error};
use crate::ledger::process::Machine;
use crate::ledger::{
    Ask, Book, Books, Bounds, Change, Claim, ClaimState, HeldPart, HeldShare, Holder, InitProcess, Ledger, LedgerError,
    LedgerResult, Locked, PodName, Refused, World,
};
use crate::types::GpuUuid;
use crate::types::{DeviceKey, Part, ShareName, Subject};
use std::path::Path;
use std::time::Duration;

/// The claims that are recorded in one state directory, as the user who runs this may use them.
#[derive(Debug)]
pub struct Claims {
    ledger: Ledger,
    machine: Machine,
    uid: u32,
    /// How many of the nearest ancestors of this process end its waits by their end.
    callers: usize,
    /// The pod for whose container this process works.
    pod: Option<PodName>,
    /// After how many seconds a new hold is known to end.
    ends_within: Option<u64>,
}

/// The claims while nobody else changes them.
#[derive(Debug)]
pub struct LockedClaims<'a> {
    claims: &'a Claims,
    locked: Locked<'a>,
}

/// A claim that was made beforehand, and the file that offers it to engines.
pub struct OfferedClaim<'a> {
    /// The name of the claim.
    pub name: &'a str,
    /// The file.
    pub file: &'a Path,
    /// Whether this is the text of the file that was written for this claim: another claim may have its name by now.
    pub is_own: &'a dyn Fn(&str) -> bool,
}

impl OfferedClaim<'_> {
    /// A longer file is not one of a claim.
    const MOST_BYTES: u64 = 1 << 20;

    /// Removes the file if it exists and was written for this claim.
    fn remove(&self) -> Result<(), Error> {
        match self.is_own_file()? {
            true => remove(self.file),
            false => Ok(()),
        }
    }

    fn is_own_file(&self) -> Result<bool, Error> {
        let read = bounded::regular_file(self.file).and_then(|file| bounded::read(file, Self::MOST_BYTES));
        let bytes = match read {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            read => read.about(self.file.display(), "cannot be read")?,
        };
        Ok(std::str::from_utf8(&bytes).is_ok_and(|text| (self.is_own)(text)))
    }
}

/// What a holder takes into use.
#[derive(Debug)]
pub struct ClaimEntry {
    /// The device.
    pub device: DeviceKey,
    /// What of it. The whole of it and a share are claimed now; a holder that has one of equal replicas keeps it.
    pub subject: Subject,
    /// How many equal replicas the device has, whose names are their numbers; 0 if its shares have names of the
    /// policy.
    pub replicas: u32,
    /// The most that may be promised of the device to all holders together.
    pub bounds: Bounds,
    /// The name under which an engine was asked for it, for people.
    pub asked_as: Option<String>,
    /// Whether the holder may hold nothing else of this device.
    pub alone: bool,
}

impl ClaimEntry {
    /// The use of `claim`, which was reserved under `name`, by a holder that has nothing else of its device.
    pub fn reserved(name: &str, claim: &Claim) -> Self {
        Self {
            device: claim.device.clone(),
            subject: Subject::Claim(name.to_owned(), claim.part.promise()),
            replicas: 0,
            bounds: Bounds::default(),
            asked_as: claim.asked_as.clone(),
            alone: true,
        }
    }

    /// What a container's hook enters.
    pub fn of(call: &ClaimCall) -> Self {
        Self {
            device: call.device.clone(),
            subject: call.subject.clone(),
            replicas: call.siblings.replicas(),
            bounds: call.bounds.unwrap_or_default(),
            asked_as: call.asked_as.clone(),
            alone: call.alone,
        }
    }

    /// What is asked of the ledger for `holder`, who belongs to the user `uid`. `process` is the init of its container.
    #[inline(never)]
    pub fn ask(&self, holder: Holder, process: Option<InitProcess>, uid: u32) -> Ask {
        Ask {
            device: self.device.clone(),
            part: HeldPart::Whole,
            bounds: self.bounds,
            asked_as: self.asked_as.clone(),
            spec_file: None,
            name: None,
            holder,
            process,
            state: ClaimState::Held,
            once: true,
            for_root: false,
            alone: self.alone,
            uid,
            ttl: None,
        }
    }

    /// Enters it in `book`, for a holder that is not a container of a pod.
    ///
    /// # Errors
    /// Returns why the rules of the ledger refuse it.
    pub fn enter(&self, book: &mut Book, ask: Ask, world: &impl World) -> Result<(), Refused> {
        match &self.subject {
            Subject::Claim(name, promise) => book.enter(name, &ask, *promise, world),
            Subject::Part(_, promise) => match self.subject.held() {
                Some(part) => book.take(&Ask { part, ..ask }, world),
                None => {
                    let share = |name| HeldShare {
                        name,
                        promise: *promise,
                    };
                    book.take_any(self.replicas().map(share), &ask, world).map(drop)
                }
            },
        }
    }

    /// Whether `part` is one that the subject may mean.
    fn may_mean(&self, part: &HeldPart) -> bool {
        match (&self.subject, part) {
            (Subject::Part(Part::Any, promise), HeldPart::Shares(shares)) => {
                let is_replica = |share: &HeldShare| share.name.number().is_some() && share.promise == *promise;
                shares.iter().all(is_replica)
            }
            (subject, part) => subject.held().as_ref() == Some(part),
        }
    }

    /// The names of the device's equal replicas.
    fn replicas(&self) -> impl Iterator<Item = ShareName> + Clone + use<> {
        (0..self.replicas).map(ShareName::replica)
    }
}

/// An entry that was refused.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotEntered {
    /// Why.
    #[source]
    pub error: LedgerError,
    /// The book of the GPU, if it could be read: it says what is free. It has parsed claims only where
    /// the refusal depends on them.
    pub book: Option<Box<Book>>,
    /// For how long it was waited for; `None` if it was not.
    pub waited: Option<Duration>,
}

impl From<LedgerError> for NotEntered {
    fn from(error: LedgerError) -> Self {
        Self {
            error,
            book: None,
            waited: None,
        }
    }
}

/// What [`LockedClaims::collect`] did.
#[derive(Debug, Default)]
pub struct Collected {
    /// How many claims have ended.
    pub ended: usize,
    /// Books that could not be read or written.
    pub problems: Vec<LedgerError>,
}

impl Claims {
    /// The claims in `state_dir`, whose ledger is created if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be created, or if another user could replace or write it.
    pub fn open(state_dir: &Path) -> LedgerResult<Self> {
        Self::of(Ledger::restored(state_dir)?)
    }

    /// The claims in `state_dir`; `None` if there is no ledger, and so nothing is held.
    ///
    /// # Errors
    /// As [`Claims::open`].
    pub fn existing(state_dir: &Path) -> LedgerResult<Option<Self>> {
        Ledger::existing(state_dir)?.map(Self::of).transpose()
    }

    fn of(ledger: Ledger) -> LedgerResult<Self> {
        Ok(Self {
            ledger,
            machine: Machine::here()?,
            uid: nix::unistd::getuid().as_raw(),
            callers: 0,
            pod: None,
            ends_within: None,
        })
    }

    /// The same claims, as `uid` may use them.
    #[must_use]
    pub fn for_user(self, uid: u32) -> Self {
        Self { uid, ..self }
    }

    /// The same claims for a process that works for its `callers` nearest ancestors
    /// ([`crate::caller::Callers::nearest`]): when one of them ends, it waits for nothing any more.
    #[must_use]
    pub fn called_by(self, callers: usize) -> Self {
        Self { callers, ..self }
    }

    /// The same claims for a process that works for a container of `pod`: it enters what is reserved for the pod.
    #[must_use]
    pub fn for_pod(self, pod: Option<PodName>) -> Self {
        Self { pod, ..self }
    }

    /// The same claims for a user whose new hold is ended after so many seconds; `None` if nothing ends it. What is
    /// known to end in time is given also shortly before the device is reserved for another user.
    #[must_use]
    pub fn ending_within(self, ends_within: Option<u64>) -> Self {
        Self { ends_within, ..self }
    }

    /// Asks `book` for the user as whom the claims are used.
    pub fn ask(&self, book: &mut Book) {
        book.asked_by(self.uid, self.ends_within);
    }

    /// The machine whose processes hold the claims.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The user as whom the claims are used.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Seconds since boot: the clock of [`Claim::until`].
    pub fn uptime(&self) -> u64 {
        self.machine.uptime()
    }

    /// Keeps everybody else from changing claims until the result is dropped.
    ///
    /// # Errors
    /// Returns an error if the lock cannot be made, or if another process holds it for too long.
    pub fn lock(&self) -> LedgerResult<LockedClaims<'_>> {
        Ok(LockedClaims {
            claims: self,
            locked: self.lock_ledger()?,
        })
    }

    fn lock_ledger(&self) -> LedgerResult<Locked<'_>> {
        Ok(self.ledger.lock()?.recording(self.machine.uptime()))
    }

    /// What is held. Claims that nothing can hold any more are left out. On disk they stay until another claim needs
    /// what they hold, or until they are collected. Waits for no lock.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be listed.
    pub fn books(&self) -> LedgerResult<Books> {
        let mut all = self.ledger.books()?;
        all.books.iter_mut().for_each(|book| {
            book.collect(&self.machine);
        });
        all.books.retain(|book| !book.claims.is_empty());
        Ok(all)
    }

    /// Those who wait, in their order.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub fn queued(&self) -> LedgerResult<Vec<crate::ledger::QueuedStart>> {
        self.ledger.queued()
    }

    /// What is held of one GPU, as in [`Claims::books`].
    ///
    /// # Errors
    /// Returns an error if the book of the GPU cannot be read.
    pub fn book(&self, gpu: &GpuUuid) -> LedgerResult<Book> {
        let mut book = self.ledger.book(gpu)?;
        book.collect(&self.machine);
        Ok(book)
    }

    /// Withdraws the claims `names` that no container has entered, because the start that they were made for has
    /// failed.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be locked, or if a book of it cannot be read or written.
    pub fn withdraw(&self, names: &[&str]) -> LedgerResult<()> {
        let locked = self.lock_ledger()?;
        let Books { books: old, .. } = self.ledger.books()?;
        let mut new = old.clone();
        new.iter_mut().for_each(|book| {
            book.withdraw(names, self.uid);
        });
        locked.replace(&old, &new)
    }

    /// Lets `holder` use what it wants. `pid` is the init of a container, whose end ends the claim.
    ///
    /// # Errors
    /// Returns the refusal, or what is wrong with the ledger.
    pub fn enter(&self, entry: &ClaimEntry, holder: Holder, pid: Option<u32>) -> Result<(), NotEntered> {
        self.enter_waiting(entry, &holder, pid, Duration::ZERO)
    }

    fn enter_book(&self, book: &mut Book, entry: &ClaimEntry, ask: Ask) -> Result<(), Refused> {
        if let Some(name) = self.reserved_for_pod(book, entry) {
            return book.enter(&name, &ask, entry.subject.promise(), &self.machine);
        }
        entry.enter(book, ask, &self.machine)
    }

    /// The claim that is reserved for the pod of the holder, on what it wants.
    fn reserved_for_pod(&self, book: &mut Book, entry: &ClaimEntry) -> Option<String> {
        let pod = self.pod.as_ref()?;
        book.reserved_for(pod, &entry.device, |part| entry.may_mean(part), &self.machine)
    }

    /// Releases what `holder` has entered of `device`, although its container has not ended: its start fails.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be locked, or if the book of `device` cannot be changed.
    pub fn release_failed_start(&self, holder: &Holder, device: &DeviceKey) -> LedgerResult<()> {
        self.lock()?.locked.change(device, |book| {
            let made = match book.release_failed_start(holder, device, self.uid, &self.machine) {
                0 => Change::None,
                _ => Change::Made,
            };
            Ok(((), made))
        })
    }

    /// Releases what `holder` holds of `device`, or of every device. A claim that was reserved for more than one
    /// holder waits for the next. Returns what was left: books that could not be read or written, and the file.
    ///
    /// `reserved` is a claim on `device` with the file that offers it to engines: the file is removed if the claim is
    /// gone and the file is still that of the claim.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be locked or listed, and if the book of `device` cannot be changed.
    pub fn release(
        &self,
        holder: &Holder,
        device: Option<&DeviceKey>,
        reserved: Option<&OfferedClaim<'_>>,
    ) -> LedgerResult<Vec<LedgerError>> {
        let locked = self.lock_ledger()?;
        let release = |book: &mut Book| match book.release(holder, self.uid, &self.machine) {
            0 => Change::None,
            _ => Change::Made,
        };
        let Some(device) = device else {
            return locked.change_each(release);
        };
        let is_over = locked.change(device, |book| {
            let made = release(book);
            Ok((reserved.filter(|offered| book.named(offered.name).is_none()), made))
        })?;
        // Under the lock: a claim that is made under this name again writes its file while it holds the lock. It may be
        // on another device, in another book. The claim has ended, whatever becomes of the file, which no container can
        // use.
        let left = is_over.and_then(|offered| Some((offered.name, offered.remove().err()?)));
        let left = left.map(|(name, error)| {
            Error::failed(
                format_args!("claim {name}"),
                "was released, and its specification is left",
            )
            .from_source(error)
        });
        Ok(left.map(LedgerError::from).into_iter().collect())
    }
}

impl<'a> LockedClaims<'a> {
    /// The claims that are locked.
    pub fn claims(&self) -> &'a Claims {
        self.claims
    }

    /// The ledger, for those who choose what to claim.
    pub fn ledger(&self) -> &Locked<'_> {
        &self.locked
    }

    /// What is on disk, with the claims that nothing can hold any more.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be listed.
    pub fn books_on_disk(&self) -> LedgerResult<Books> {
        self.claims.ledger.books()
    }

    /// As [`Locked::keep`].
    ///
    /// # Errors
    /// As [`Locked::keep`].
    pub fn keep(&self, needed: impl Fn(&GpuUuid) -> bool) -> LedgerResult<Vec<Error>> {
        self.locked.keep(needed)
    }

    /// Gives up what is reserved for `pod` under these ids of devices, as [`Book::give_up`] does, and what is kept of
    /// it over a reboot. Returns what [`Locked::keep`] does.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub fn give_up(&self, pod: &PodName, ids: &[String]) -> LedgerResult<Vec<Error>> {
        let names: Vec<String> = ids.iter().map(|id| pod.claim_on(id)).collect();
        self.give_up_those(|_| names.clone())
    }

    /// Gives up the claims of each book that `names` returns.
    fn give_up_those(&self, names: impl Fn(&Book) -> Vec<String>) -> LedgerResult<Vec<Error>> {
        let Books {
            books: old, damaged, ..
        } = self.books_on_disk()?;
        let mut new = old.clone();
        for book in &mut new {
            let names = names(book);
            book.give_up(&names, &self.claims.machine);
        }
        self.locked.replace(&old, &new)?;
        let changed = old.iter().zip(&new).filter(|(old, new)| old != new);
        let changed: Vec<GpuUuid> = changed.map(|(old, _)| old.gpu.clone()).collect();
        self.locked
            .keep_books(new, &damaged, |gpu: &GpuUuid| changed.contains(gpu))
    }

    /// As [`Claims::books`].
    ///
    /// # Errors
    /// As [`Claims::books`].
    pub fn books(&self) -> LedgerResult<Books> {
        self.claims.books()
    }

    /// Collects on disk what nothing can hold any more, and removes what a killed writer left. The time to live of a
    /// claim whose container is gone begins here.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be listed, or if the rest of a killed writer cannot be removed.
    pub fn collect(&self) -> LedgerResult<Collected> {
        let mut ended = 0;
        self.locked.remove_unfinished()?;
        self.locked.waiters()?;
        let problems = self.locked.change_each(|book| {
            let before = book.clone();
            ended += book.collect(&self.claims.machine);
            if *book == before { Change::None } else { Change::Made }
        })?;
        Ok(Collected { ended, problems })
    }

    /// Releases `meant` because a person says so: all of these claims, or none. `force` releases also what a
    /// container uses, which then keeps its access to the device until it ends.
    ///
    /// # Errors
    /// Returns [`Refused::NotYours`] or [`Refused::InUse`] for the first claim that is not released, and the errors
    /// of the ledger.
    pub fn release_by_hand(&self, meant: &[&Claim], force: bool) -> LedgerResult<()> {
        // No two claims hold the same part of one device.
        let is_meant = |claim: &Claim| meant.iter().any(|m| m.device == claim.device && m.part == claim.part);
        let Books {
            books: old, damaged, ..
        } = self.books_on_disk()?;
        let mut damaged = damaged.into_iter();
        if let Some(book) = damaged.find(|book| meant.iter().any(|claim| book.gpu.as_ref() == Some(claim.device.gpu())))
        {
            return Err(LedgerError::Damaged(book));
        }
        let mut new = old.clone();
        for book in new.iter_mut().filter(|book| book.claims.iter().any(is_meant)) {
            book.release_by_hand(is_meant, self.claims.uid, force, &self.claims.machine)?;
        }
        self.locked.replace(&old, &new)
    }
}

/// Removes `file`. A file that does not exist is removed already.
///
/// # Errors
/// Returns an error if it exists and cannot be removed.
pub fn remove(file: &Path) -> Result<(), Error> {
    match std::fs::remove_file(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.about(file.display(), "cannot be removed"),
    }
}
