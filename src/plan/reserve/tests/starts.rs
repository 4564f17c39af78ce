//! What a container runtime reserves for a start: all of it or nothing, and in the order of coming.

use super::*;
use std::time::Duration;
use tranche_core::types::{Bounds, Device};

fn device(gpu: usize) -> Device {
    plan().devices[gpu].device
}

fn container_of(id: &str) -> Holder {
    Holder::Container(ContainerName {
        bundle: "/b".into(),
        id: id.into(),
    })
}

fn start(id: &str, wish: Wish) -> Reservation {
    Reservation::for_start(wish, container_of(id), Some(std::process::id())).unwrap()
}

fn reserve_all(claims: &Claims, wishes: &[Reservation]) -> Result<Vec<Claim>, ReserveError> {
    let reserved = plan().reserve_all(&claims.lock()?, wishes, &Unoffered)?;
    Ok(reserved.into_iter().map(|(_, claim)| claim).collect())
}

fn named(gpu: usize, name: &str) -> Wish {
    Wish {
        names: vec![name.parse().unwrap()],
        device: Some(device(gpu)),
        ..Wish::default()
    }
}

fn claims() -> (tempfile::TempDir, Claims) {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::open(dir.path()).unwrap();
    (dir, claims)
}

#[test]
fn all_that_a_start_asks_for_is_reserved_or_nothing() {
    let (dir, claims) = claims();
    let wishes = [start("c", shares(2, 0)), start("c", shares(1, 1))];
    let reserved = reserve_all(&claims, &wishes).unwrap();
    let process = reserved[0].process.clone().unwrap();
    assert_eq!((process.pid, process.cgroup), (std::process::id(), None));
    assert_eq!(reserved.len(), 2);
    assert!(
        reserved
            .iter()
            .all(|claim| claim.who() == "container c" && claim.state == ClaimState::Reserved)
    );
    // The second wish cannot be served, and the third is not tried.
    let wishes = [
        start("d", shares(1, 0)),
        start("d", shares(1, 1)),
        start("d", shares(1, 0)),
    ];
    let refused = reserve_all(&claims, &wishes).unwrap_err();
    assert!(
        matches!(&refused, ReserveError::NothingFits { held, .. } if *held == reserved[1..]),
        "{refused:?}"
    );
    assert_eq!(held(&claims).len(), 2);
    let names: Vec<&str> = reserved.iter().filter_map(|claim| claim.name.as_deref()).collect();
    claims.withdraw(&names[1..]).unwrap();
    // A book that cannot be written, after another one was: it is a directory.
    let gpu = reserved[1].device.gpu();
    let file = dir.path().join(format!("ledger/{gpu}.claims"));
    let broken = Breaks(file.clone());
    let before = held(&claims);
    let wishes = [start("d", shares(1, 0)), start("d", shares(1, 1))];
    let refused = plan()
        .reserve_all(&claims.lock().unwrap(), &wishes, &broken)
        .unwrap_err();
    assert!(
        matches!(refused, ReserveError::Ledger(LedgerError::Failed(_))),
        "{refused:?}"
    );
    std::fs::remove_dir(&file).unwrap();
    assert_eq!(held(&claims), before);
}

/// An offer that puts a directory in the place of a book.
struct Breaks(PathBuf);

impl Offer for Breaks {
    fn publish(&self, _fit: &Fit) -> Result<Option<String>, Error> {
        drop(std::fs::create_dir(&self.0));
        Ok(None)
    }
}

#[test]
fn a_start_is_not_stopped_by_the_damaged_book_of_a_gpu_that_it_does_not_ask_for() {
    let (dir, claims) = claims();
    let file = dir
        .path()
        .join(format!("ledger/{}.claims", plan().devices[1].key.gpu()));
    std::fs::write(&file, "damaged").unwrap();
    reserve_all(&claims, &[start("c", shares(4, 0))]).unwrap();
    for wish in [shares(1, 1), Wish::shares(1)] {
        let refused = reserve_all(&claims, &[start("d", wish)]).unwrap_err();
        assert!(
            matches!(refused, ReserveError::Ledger(LedgerError::Damaged(_))),
            "{refused:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "damaged");
}

#[test]
fn a_start_that_looks_at_every_process_leaves_the_damaged_book_of_another_gpu_as_it_is() {
    let (dir, claims) = claims();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let entry = ClaimEntry {
        device: plan().devices[0].key.clone(),
        subject: Subject::Part(Part::Share("0".parse().unwrap()), "1/4".parse().unwrap()),
        replicas: 4,
        bounds: Bounds::default(),
        asked_as: None,
        alone: false,
    };
    claims.enter(&entry, container_of("c"), Some(child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let file = dir
        .path()
        .join(format!("ledger/{}.claims", plan().devices[1].key.gpu()));
    std::fs::write(&file, "damaged").unwrap();
    reserve_all(&claims, &[start("d", shares(4, 0))]).unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "damaged");
}

#[test]
fn what_a_dead_process_reserved_is_free_for_the_next_start() {
    let (_dir, claims) = claims();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let mut wish = start("c", shares(4, 0));
    wish.process = Some(child.id());
    reserve_all(&claims, &[wish]).unwrap();
    assert!(reserve_all(&claims, &[start("d", shares(1, 0))]).is_err());
    child.kill().unwrap();
    child.wait().unwrap();
    reserve_all(&claims, &[start("d", shares(4, 0))]).unwrap();
    assert_eq!(held(&claims).len(), 1);
    // Without a process there is a time to live.
    let timed = Reservation::for_start(shares(1, 1), container_of("e"), None).unwrap();
    let until = reserve_all(&claims, &[timed]).unwrap()[0].until.unwrap();
    assert!((50..=60).contains(&(until - claims.uptime())), "{until}");
}

#[test]
fn a_start_that_failed_leaves_no_share_that_the_next_one_skips() {
    let (_dir, claims) = claims();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let mut failing = start("c", shares(1, 0));
    failing.process = Some(child.id());
    let failed = reserve_all(&claims, &[failing]).unwrap();
    assert_eq!(held(&claims), failed, "it can be seen while its process lives");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(held(&claims), []);
    let next = reserve_all(&claims, &[start("d", shares(1, 0))]).unwrap();
    assert_eq!(next[0].part, failed[0].part);
}

/// Takes a place in the queue as a process would that waits for `wish`.
fn waits(claims: &Claims, wish: &Wish) -> tranche_core::ledger::Ticket {
    let wants = draft::wanted(&plan(), wish);
    claims.lock().unwrap().ledger().line_up(&wants).unwrap()
}

#[test]
fn nobody_takes_what_another_one_waits_for_and_everybody_what_nobody_waits_for() {
    let (_dir, claims) = claims();
    let ticket = waits(&claims, &named(0, "2"));
    let refused = reserve_all(&claims, &[start("c", named(0, "2"))]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "share 2: another start waits for it and is served first"
    );
    let refused = reserve_all(&claims, &[start("c", shares(4, 0))]).unwrap_err();
    assert!(
        matches!(refused, ReserveError::Behind { waiting: 1, .. }),
        "{refused:?}"
    );
    let three = &reserve_all(&claims, &[start("c", shares(3, 0))]).unwrap()[0];
    let names: Vec<&str> = three.part.shares().iter().map(|share| share.name.as_str()).collect();
    assert_eq!(names, ["0", "1", "3"]);
    let whole = waits(&claims, &shares(1, 1));
    let any = reserve_all(&claims, &[start("d", Wish::shares(1))]).unwrap_err();
    assert!(matches!(any, ReserveError::Behind { waiting: 2, .. }), "{any:?}");
    // A hook of a static device takes what is left too, and nothing else.
    let entry = |subject| ClaimEntry {
        device: plan().devices[0].key.clone(),
        subject,
        replicas: 4,
        bounds: Bounds::default(),
        asked_as: None,
        alone: false,
    };
    let two = || Subject::Part(Part::Share("2".parse().unwrap()), "1/4".parse().unwrap());
    let refused = claims.enter(&entry(two()), pod("p"), None).unwrap_err();
    assert!(
        matches!(refused.error, LedgerError::Refused(Refused::Waiting { waiting: 1 })),
        "{refused:?}"
    );
    // What was reserved before is entered all the same.
    claims
        .enter(&enters(three), container_of("c"), Some(std::process::id()))
        .unwrap();
    drop((ticket, whole));
    claims.enter(&entry(two()), pod("p"), None).unwrap();
}

#[test]
fn what_can_never_be_had_is_not_waited_for_and_the_end_of_waiting_says_why() {
    let (dir, claims) = claims();
    let hour = Duration::from_secs(3600);
    let wait = |wishes: &[Reservation], wait| plan().reserve_all_waiting(&claims, wishes, &Unoffered, wait);
    for wishes in [
        vec![start("c", shares(5, 0))],
        vec![start("c", shares(3, 0)), start("c", shares(2, 0))],
        vec![start("c", named(0, "7"))],
    ] {
        assert!(matches!(
            wait(&wishes, hour).unwrap_err(),
            ReserveError::NothingFits { .. }
        ));
    }
    let other = reserve_all(&claims, &[start("other", shares(3, 0))]).unwrap();
    let ahead = waits(&claims, &shares(1, 1));
    let refused = wait(&[start("c", shares(2, 0))], Duration::from_millis(20)).unwrap_err();
    let line = explain("start", refused, list).to_string();
    let since = tranche_core::ledger::utc(other[0].since);
    // On a busy machine it may wait for longer than 20 ms.
    let (line, waited) = line.split_once("; waited ").unwrap();
    assert_eq!(
        line,
        format!(
            "2 shares: no device can give it now; gpu 0 has 1 of 4 shares free; held: shares 0, 1, 2 by container other \
             since {since}"
        )
    );
    assert!(waited.ends_with(" s for it"), "{waited}");
    let refused = wait(&[start("c", shares(1, 1))], Duration::from_millis(20)).unwrap_err();
    assert!(
        matches!(&refused, ReserveError::TimedOut { last, .. } if matches!(**last, ReserveError::Behind { waiting: 1, .. })),
        "{refused:?}"
    );
    drop(ahead);
    assert_eq!(std::fs::read_dir(dir.path().join("ledger/queue")).unwrap().count(), 0);
}

/// The second in the queue is served first by a device that the first one does not want.
#[test]
fn who_is_behind_for_one_device_may_be_first_for_another() {
    let (_dir, claims) = claims();
    let all = reserve_all(&claims, &[start("x", shares(4, 0)), start("y", shares(1, 1))]).unwrap();
    let first = waits(&claims, &shares(1, 0));
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let wish = [start("c", Wish::shares(1))];
            plan()
                .reserve_all_waiting(&claims, &wish, &Unoffered, Duration::from_secs(60))
                .unwrap()
        });
        while claims.lock().unwrap().ledger().waiters().unwrap().len() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let names: Vec<&str> = all.iter().filter_map(|claim| claim.name.as_deref()).collect();
        claims.withdraw(&names).unwrap();
        assert_eq!(second.join().unwrap()[0].0.device, device(1));
    });
    drop(first);
}
