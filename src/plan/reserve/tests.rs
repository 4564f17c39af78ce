//! What a caller of claims gets: typed refusals, and nothing that stays behind.

use super::*;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::cell::RefCell;
use std::path::PathBuf;
use tranche_core::claims::ClaimEntry;
use tranche_core::ledger::{ClaimState, ContainerName, KubernetesObject, LedgerError, PodName};
use tranche_core::types::{Bounds, DeviceKey, Part, Subject};

fn plan() -> Plan {
    let yaml = "
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
  dedicated: {devices: [1]}
";
    let policy = crate::policy::read::parse("c.yaml", yaml).unwrap().policy;
    crate::share::plan(&policy, &crate::sim::open("t4x2").unwrap()).unwrap()
}

fn shares(count: usize, gpu: u32) -> Wish {
    let device = plan()
        .devices
        .into_iter()
        .find(|d| d.device.gpu.to_string() == gpu.to_string());
    Wish {
        shares: Some(count),
        device: Some(device.unwrap().device),
        ..Wish::default()
    }
}

fn reserve(claims: &Claims, name: &str, wish: Wish) -> Result<Claim, ReserveError> {
    let reserved = plan().reserve(claims, &Reservation::of(name, wish), &Unoffered);
    reserved.map(|(_, claim)| claim)
}

fn enters(claim: &Claim) -> ClaimEntry {
    ClaimEntry {
        device: claim.device.clone(),
        subject: Subject::Claim(claim.name.clone().unwrap(), None),
        replicas: 4,
        bounds: Bounds::default(),
        asked_as: None,
        alone: false,
    }
}

fn any_quarter() -> Subject {
    Subject::Part(Part::Any, "1/4".parse().unwrap())
}

fn pod(name: &str) -> Holder {
    Holder::Pod(PodName {
        namespace: "default".into(),
        name: name.into(),
    })
}

fn held(claims: &Claims) -> Vec<Claim> {
    claims
        .books()
        .unwrap()
        .books
        .into_iter()
        .flat_map(|book| book.claims)
        .collect()
}

#[test]
fn a_claim_is_reserved_entered_and_released_by_every_kind_of_holder() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    let resource_claim = KubernetesObject {
        namespace: "default".into(),
        name: "a".into(),
        uid: "uid-of-a".into(),
    };
    let me = Some(std::process::id());
    let container = Holder::Container(ContainerName {
        bundle: "/b".into(),
        id: "c".into(),
    });
    for (holder, pid) in [
        (container, me),
        (pod("a"), None),
        (Holder::ResourceClaim(resource_claim), None),
    ] {
        let claim = reserve(&claims, "one", shares(3, 0)).unwrap();
        assert_eq!((claim.part.shares().len(), &claim.holder), (3, &Holder::Person));
        claims.enter(&enters(&claim), holder.clone(), pid).unwrap();
        let now = held(&claims);
        assert_eq!(
            (now.len(), &now[0].holder, now[0].state),
            (1, &holder, ClaimState::Held)
        );
        // Nobody else enters it, and what it holds is not given twice.
        let other = claims.enter(&enters(&claim), pod("b"), None).unwrap_err();
        assert!(matches!(other.error, LedgerError::Refused(Refused::Taken { ref by, .. }) if by.holder == holder));
        assert!(reserve(&claims, "two", shares(2, 0)).is_err());
        claims.enter(&enters(&claim), holder.clone(), pid).unwrap();
        claims.release(&pod("b"), None, None).unwrap();
        assert_eq!(held(&claims).len(), 1, "another one releases nothing of it");
        claims.release(&holder, None, None).unwrap();
        // This process, which stands for the container, still runs, so its claim stays.
        let stays = usize::from(pid.is_some());
        assert_eq!(held(&claims).len(), stays);
        let left = held(&claims);
        let meant: Vec<&Claim> = left.iter().collect();
        let by_hand = claims.lock().unwrap().release_by_hand(&meant, false);
        let in_use = |e: &LedgerError| matches!(e, LedgerError::Refused(Refused::InUse { runs: true, .. }));
        assert_eq!(by_hand.as_ref().is_err_and(in_use), pid.is_some(), "{by_hand:?}");
        claims.lock().unwrap().release_by_hand(&meant, true).unwrap();
        assert_eq!(held(&claims), []);
    }
}

#[test]
fn every_refusal_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    let first = reserve(&claims, "one", shares(3, 0)).unwrap();
    // A name is taken on every device.
    let taken = reserve(&claims, "one", shares(1, 1)).unwrap_err();
    assert!(matches!(taken, ReserveError::Ledger(LedgerError::Refused(Refused::NameTaken(ref n))) if n == "one"));
    let full = reserve(&claims, "two", shares(2, 0)).unwrap_err();
    assert!(matches!(full, ReserveError::NothingFits { held, waiting: 0, .. } if held == [first.clone()]));
    let missing = Claim {
        name: Some("never".into()),
        ..first.clone()
    };
    let missing = claims.enter(&enters(&missing), pod("a"), None).unwrap_err();
    assert!(matches!(missing.error, LedgerError::Refused(Refused::NoSuchClaim(_))));
    let any = |replicas| ClaimEntry {
        subject: any_quarter(),
        replicas,
        ..enters(&first)
    };
    claims.enter(&any(4), pod("a"), None).unwrap();
    let none = claims.enter(&any(4), pod("b"), None).unwrap_err();
    assert!(matches!(none.error, LedgerError::Refused(Refused::NoneFree)));
    assert_eq!(none.book.unwrap().held().count(), 2);
    let misfit = ClaimEntry {
        subject: Subject::Part(Part::Share("x".parse().unwrap()), "1/2".parse().unwrap()),
        ..enters(&first)
    };
    let misfit = claims.enter(&misfit, pod("b"), None).unwrap_err();
    assert!(matches!(misfit.error, LedgerError::Refused(Refused::Misfit { beside, .. }) if beside.len() == 2));
    let book = dir.path().join(format!("ledger/{}.claims", first.device.gpu()));
    std::fs::write(book, "damaged").unwrap();
    let damaged = claims.enter(&any(4), pod("b"), None).unwrap_err();
    assert!(matches!(damaged.error, LedgerError::Damaged(book) if book.gpu.as_ref() == Some(first.device.gpu())));
    let damaged = reserve(&claims, "two", shares(1, 1)).unwrap_err();
    assert!(matches!(damaged, ReserveError::Ledger(LedgerError::Damaged(_))));
}

/// An offer that fails, or that remembers what was done with it.
#[derive(Default)]
struct Remembers {
    done: RefCell<Vec<&'static str>>,
    fails: bool,
    /// A book that becomes a directory when the offer is published, so that the claim cannot be recorded.
    damages: Option<PathBuf>,
}

impl Offer for Remembers {
    fn sweep(&self, _claims: &[&Claim]) -> Result<(), Error> {
        self.done.borrow_mut().push("sweep");
        Ok(())
    }
    fn publish(&self, _fit: &Fit) -> Result<Option<String>, Error> {
        self.done.borrow_mut().push("publish");
        if let Some(file) = &self.damages {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        }
        match self.fails {
            true => Err(Error::failed("offer", "fails")),
            false => Ok(Some("/file".into())),
        }
    }
    fn withdraw(&self) -> Result<(), Error> {
        self.done.borrow_mut().push("withdraw");
        Ok(())
    }
}

#[test]
fn what_cannot_be_recorded_is_not_offered_and_the_reverse() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    let reservation = Reservation::of("one", shares(1, 0));
    let offer = Remembers::default();
    let (_, claim) = plan().reserve(&claims, &reservation, &offer).unwrap();
    assert_eq!(offer.done.take(), ["sweep", "publish"]);
    assert_eq!(claim.spec_file.as_deref(), Some("/file"));
    let second = Reservation::of("two", shares(1, 0));
    let fails = Remembers {
        fails: true,
        ..Remembers::default()
    };
    let error = plan().reserve(&claims, &second, &fails).unwrap_err();
    assert!(matches!(error, ReserveError::Offer(_)));
    assert_eq!(held(&claims), std::slice::from_ref(&claim));
    let damages = Remembers {
        damages: Some(dir.path().join(format!("ledger/{}.claims", claim.device.gpu()))),
        ..Remembers::default()
    };
    let error = plan().reserve(&claims, &second, &damages).unwrap_err();
    assert!(
        matches!(error, ReserveError::Ledger(LedgerError::Failed(_))),
        "{error:?}"
    );
    assert_eq!(damages.done.take(), ["sweep", "publish", "withdraw"]);
}

#[test]
fn a_full_disk_and_one_that_may_only_be_read_are_told_from_other_failures() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("state");
    std::fs::create_dir(&place).unwrap();
    // A thread of its own, because it gets mounts of its own.
    let checked = std::thread::spawn(move || {
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        if unshare(CloneFlags::CLONE_NEWNS).is_err() || mount(none, "/", none, private, none).is_err() {
            return;
        }
        mount(none, &place, Some("tmpfs"), MsFlags::empty(), Some("size=16k")).unwrap();
        let claims = Claims::open(&place).unwrap();
        let claim = reserve(&claims, "one", shares(1, 0)).unwrap();
        let filler = place.join("filler");
        let mut file = std::fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 512]).is_ok() {}
        let is_full = |error: &LedgerError| matches!(error, LedgerError::OutOfSpace(_));
        let error = claims.enter(&enters(&claim), pod("a"), None).unwrap_err().error;
        assert!(is_full(&error), "{error:?}");
        assert_eq!(held(&claims), std::slice::from_ref(&claim));
        drop(file);
        std::fs::remove_file(&filler).unwrap();
        let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        // A program that another test starts has the file open until it is executed.
        while let Err(error) = mount(none, &place, none, read_only, none) {
            assert_eq!(error, nix::errno::Errno::EBUSY);
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = claims.enter(&enters(&claim), pod("a"), None).unwrap_err().error;
        assert!(is_full(&error), "{error:?}");
        assert_eq!(held(&claims), [claim], "what is held can be read all the same");
    });
    checked.join().unwrap();
}

mod entering;
mod starts;

#[test]
fn a_container_whose_start_fails_releases_what_it_entered_while_it_lives() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    let container = |id: &str| {
        Holder::Container(ContainerName {
            bundle: "/b".into(),
            id: id.into(),
        })
    };
    let me = Some(std::process::id());
    let kept = Reservation {
        once: false,
        ..Reservation::of("kept", shares(1, 0))
    };
    let (_, kept) = plan().reserve(&claims, &kept, &Unoffered).unwrap();
    claims.enter(&enters(&kept), container("a"), me).unwrap();
    let once = reserve(&claims, "once", shares(1, 0)).unwrap();
    claims.enter(&enters(&once), container("b"), me).unwrap();
    let direct = ClaimEntry {
        subject: any_quarter(),
        ..enters(&kept)
    };
    claims.enter(&direct, container("c"), me).unwrap();
    claims.release_failed_start(&container("d"), &kept.device).unwrap();
    let other: DeviceKey = "GPU-99999999".parse().unwrap();
    claims.release_failed_start(&container("a"), &other).unwrap();
    assert_eq!(held(&claims).len(), 3, "another container, or of another device");
    for id in ["a", "b", "c"] {
        claims.release_failed_start(&container(id), &kept.device).unwrap();
    }
    let left = held(&claims);
    assert_eq!(left, [kept], "what waits for the next container is as it was");
}

#[test]
fn what_belongs_to_one_user_is_neither_used_nor_released_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let claims = |uid| Claims::open(dir.path()).unwrap().for_user(uid);
    let of = |user| Holder::Rootless {
        user,
        name: ContainerName {
            bundle: "/b".into(),
            id: "same".into(),
        },
    };
    let claim = reserve(&claims(7), "7.mine", shares(1, 0)).unwrap();
    assert_eq!(claim.uid, 7);
    let refused = claims(8).enter(&enters(&claim), of(8), None).unwrap_err();
    assert!(matches!(refused.error, LedgerError::Refused(Refused::NotYours(_))));
    claims(7).enter(&enters(&claim), of(7), None).unwrap();
    claims(8).release(&of(7), None, None).unwrap();
    claims(8).release(&of(8), None, None).unwrap();
    claims(8).release_failed_start(&of(7), &claim.device).unwrap();
    let now = held(&claims(0));
    assert_eq!((now.len(), &now[0].holder), (1, &of(7)));
    // Another user's container of the same name holds what it takes for itself.
    let direct = ClaimEntry {
        subject: any_quarter(),
        alone: true,
        ..enters(&claim)
    };
    claims(8).enter(&direct, of(8), None).unwrap();
    claims(7).release(&of(7), None, None).unwrap();
    let left = held(&claims(0));
    assert_eq!((left.len(), left[0].uid, &left[0].holder), (1, 8, &of(8)));
}
