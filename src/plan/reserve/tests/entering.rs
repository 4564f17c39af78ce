//! Containers whose hooks wait for what others hold.

use super::*;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tranche_core::ledger::ContainerName;
use tranche_core::types::{MemorySize, Part, Percent};

const LONG: Duration = Duration::from_secs(100);

/// The init of a container.
struct Init(Child);

impl Init {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holder(id: &str) -> Holder {
    Holder::Container(ContainerName {
        bundle: "/b".into(),
        id: id.into(),
    })
}

fn entry(subject: Subject) -> ClaimEntry {
    let plan = plan();
    let split = &plan.devices[0];
    ClaimEntry {
        device: split.key.clone(),
        subject,
        replicas: 4,
        bounds: split.bounds(),
        asked_as: None,
        alone: false,
    }
}

/// Share `name` of GPU 0, which has four.
fn share(name: &str) -> ClaimEntry {
    entry(Subject::Part(
        Part::Share(name.parse().unwrap()),
        "1/4".parse().unwrap(),
    ))
}

fn any() -> ClaimEntry {
    entry(Subject::Part(Part::Any, "1/4".parse().unwrap()))
}

fn held(claims: &Claims) -> Vec<String> {
    let books = claims.books().unwrap();
    books
        .claims()
        .map(|claim| format!("{} {}", claim.who(), claim.part))
        .collect()
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_container_gets_what_it_waits_for_when_the_other_ends_before_one_that_comes_later() {
    let top = tempfile::tempdir().unwrap();
    let claims = Claims::open(top.path()).unwrap();
    let (first, second, third) = (Init::start(), Init::start(), Init::start());
    claims.enter(&share("1"), holder("first"), Some(first.pid())).unwrap();
    let queued = || claims.queued().unwrap().len();
    std::thread::scope(|scope| {
        let enter = |id: &'static str, pid: u32| {
            let claims = Claims::open(top.path()).unwrap();
            scope.spawn(move || {
                claims
                    .enter_waiting(&share("1"), &holder(id), Some(pid), LONG)
                    .map_err(|e| e.to_string())
            })
        };
        let waits = enter("second", second.pid());
        until(|| queued() == 1);
        let later = enter("third", third.pid());
        until(|| queued() == 2);
        // One that does not wait overtakes nobody, and another share is in nobody's way.
        let refused = claims.enter(&share("1"), holder("fourth"), None).unwrap_err();
        assert!(refused.waited.is_none(), "{refused}");
        claims
            .enter(&share("2"), holder("fifth"), Some(std::process::id()))
            .unwrap();
        drop(first);
        waits.join().unwrap().unwrap();
        assert_eq!(held(&claims), ["container fifth share 2", "container second share 1"]);
        assert_eq!(queued(), 1, "the third still waits");
        drop(second);
        later.join().unwrap().unwrap();
    });
    assert_eq!(held(&claims), ["container fifth share 2", "container third share 1"]);
    assert_eq!(queued(), 0);
}

#[test]
fn any_free_share_serves_one_who_waits_for_any_unless_others_wait_for_all_of_them() {
    let top = tempfile::tempdir().unwrap();
    let claims = Claims::open(top.path()).unwrap();
    let mut inits: Vec<Init> = (0..4).map(|_| Init::start()).collect();
    for (number, init) in inits.iter().enumerate() {
        claims
            .enter(&any(), holder(&format!("c{number}")), Some(init.pid()))
            .unwrap();
    }
    std::thread::scope(|scope| {
        let one = Claims::open(top.path()).unwrap();
        let waits = scope.spawn(move || one.enter_waiting(&share("0"), &holder("named"), None, LONG).is_ok());
        until(|| claims.queued().unwrap().len() == 1);
        let other = Claims::open(top.path()).unwrap();
        let any_waits = scope.spawn(move || other.enter_waiting(&any(), &holder("any"), None, LONG).is_ok());
        until(|| claims.queued().unwrap().len() == 2);
        // Share 3 becomes free, which the first does not want.
        drop(inits.pop());
        assert!(any_waits.join().unwrap());
        assert!(held(&claims).contains(&"container any share 3".to_owned()));
        drop(inits.remove(0));
        assert!(waits.join().unwrap());
        assert!(held(&claims).contains(&"container named share 0".to_owned()));
    });
}

#[test]
fn at_the_end_of_the_time_the_refusal_says_how_long_it_waited_and_by_whom_it_is_held() {
    let top = tempfile::tempdir().unwrap();
    let claims = Claims::open(top.path()).unwrap();
    claims
        .enter(&share("1"), holder("first"), Some(std::process::id()))
        .unwrap();
    let short = Duration::from_millis(300);
    let refused = claims
        .enter_waiting(&share("1"), &holder("second"), None, short)
        .unwrap_err();
    assert!(refused.waited.is_some_and(|waited| waited >= short), "{refused}");
    assert!(
        refused.to_string().starts_with("container first holds share 1 since"),
        "{refused}"
    );
    assert!(claims.queued().unwrap().is_empty());
}

#[test]
fn what_can_never_be_entered_is_not_waited_for() {
    let top = tempfile::tempdir().unwrap();
    let claims = Claims::open(top.path()).unwrap();
    // More than the device has, although nothing of it is held.
    let mut too_much = share("1");
    let plan = plan();
    too_much.bounds = Bounds {
        memory: Some(MemorySize::from_mib(0)),
        compute: Percent::of_sum(0),
    };
    too_much.subject = Subject::Part(Part::Share("1".parse().unwrap()), "mps:10:10".parse().unwrap());
    too_much.device = plan.devices[0].key.clone();
    let refused = claims.enter_waiting(&too_much, &holder("a"), None, LONG).unwrap_err();
    assert!(
        matches!(&refused.error, LedgerError::Refused(Refused::Misfit { .. })),
        "{refused}"
    );
    // A claim that nobody has made.
    let unknown = entry(Subject::Claim("train".into(), None));
    let refused = claims.enter_waiting(&unknown, &holder("a"), None, LONG).unwrap_err();
    assert!(refused.waited.is_none(), "{refused}");
    // A container that may hold one share of the device and has one.
    claims.enter(&share("2"), holder("a"), None).unwrap();
    let mut alone = share("1");
    alone.alone = true;
    let refused = claims.enter_waiting(&alone, &holder("a"), None, LONG).unwrap_err();
    assert!(
        matches!(&refused.error, LedgerError::Refused(Refused::Another { .. })),
        "{refused}"
    );
}

#[test]
fn a_container_that_is_killed_while_it_waits_gets_nothing() {
    let top = tempfile::tempdir().unwrap();
    let claims = Claims::open(top.path()).unwrap();
    claims
        .enter(&share("1"), holder("first"), Some(std::process::id()))
        .unwrap();
    let init = Init::start();
    std::thread::scope(|scope| {
        let (pid, waiting) = (init.pid(), Claims::open(top.path()).unwrap());
        let waits = scope.spawn(move || {
            let refused = waiting.enter_waiting(&share("1"), &holder("second"), Some(pid), LONG);
            refused.unwrap_err().to_string()
        });
        until(|| claims.queued().unwrap().len() == 1);
        let pid = init.pid();
        drop(init);
        assert_eq!(
            waits.join().unwrap(),
            format!("process {pid}: has ended while its share was waited for")
        );
    });
    assert_eq!(held(&claims), ["container first share 1"]);
    assert!(claims.queued().unwrap().is_empty());
}
