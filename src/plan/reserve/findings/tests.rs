//! What a plan does not know of what is held.

use super::*;
use tranche_core::ledger::{Ask, ClaimState, Holder, World};

struct Still;

impl World for Still {
    fn is_gone(&self, _: &ledger::InitProcess) -> bool {
        false
    }
    fn lives(&self, _: &ledger::InitProcess) -> bool {
        true
    }
    fn now(&self) -> u64 {
        0
    }
    fn uptime(&self) -> u64 {
        0
    }
}

fn plan(mps: &str) -> Plan {
    let yaml =
        format!("version: v1\nsharing:\n  mps:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], {mps}}}\n");
    let policy = crate::policy::read::parse("c.yaml", &yaml).unwrap().policy;
    crate::share::plan(&policy, &crate::sim::open("t4x2").unwrap()).unwrap()
}

/// A book in which somebody holds these shares of GPU 0 of a plan.
fn holding(plan: &Plan, names: &[&str]) -> Result<Book, ledger::Refused> {
    let split = &plan.devices[0];
    let mut book = Book::new(split.key.gpu().clone());
    take(&mut book, split, names)?;
    Ok(book)
}

fn take(book: &mut Book, split: &SplitDevice, names: &[&str]) -> Result<(), ledger::Refused> {
    for name in names {
        let ask = Ask {
            device: split.key.clone(),
            part: split.part(&[name.parse().unwrap()]),
            bounds: split.bounds(),
            asked_as: Some(format!("nvidia.com/gpu=0.{name}")),
            name: Some(format!("claim-{}", book.claims.len())),
            holder: Holder::Person,
            process: None,
            state: ClaimState::Reserved,
            once: false,
            for_root: false,
            alone: false,
            uid: 0,
            ttl: None,
            spec_file: None,
        };
        book.take(&ask, &Still)?;
    }
    Ok(())
}

const HALVES: &str = "replicas: 2";
const UNEQUAL: &str = "shares: [{name: big, compute: 80%, memory: 10Gi}, {name: small, compute: 20%, memory: 1Gi}]";

#[test]
fn a_policy_that_changes_promises_nothing_twice() {
    let (halves, unequal) = (plan(HALVES), plan(UNEQUAL));
    let mut book = holding(&halves, &["0", "1"]).unwrap();
    for name in ["big", "small"] {
        let refused = take(&mut book, &unequal.devices[0], &[name]).unwrap_err().to_string();
        assert!(
            refused.contains("compute") && refused.contains("claim claim-0, claim claim-1"),
            "{refused}"
        );
        let first = unequal.devices[0].shares.first().unwrap();
        assert!(!InBooks::each(&[book.clone()]).is_free(&unequal.devices[0], &first.name));
    }
    let mut book = holding(&halves, &["0"]).unwrap();
    assert!(take(&mut book, &unequal.devices[0], &["big"]).is_err());
    take(&mut book, &unequal.devices[0], &["small"]).unwrap();
    // The half of the old policy that is left does not fit beside both.
    assert!(take(&mut book, &halves.devices[0], &["1"]).is_err());
}

#[test]
fn what_a_plan_does_not_know_is_named() {
    let (halves, unequal) = (plan(HALVES), plan(UNEQUAL));
    let books = [holding(&halves, &["0"]).unwrap()];
    assert_eq!(findings(&halves, &books), []);
    let found = findings(&unequal, &books);
    let [
        Finding::UnknownShare { claim },
        Finding::NoLongerFits { device, claims, .. },
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!((claim.name.as_deref(), device.as_str()), (Some("claim-0"), "gpu 0"));
    assert_eq!(claims[..], [*claim]);
    // The same name, and another size.
    let quarters = plan("replicas: 4");
    let found = findings(&quarters, &books);
    assert!(matches!(found[0], Finding::UnknownShare { .. }), "{found:?}");
    // Half of what the new policy has is held by the old one's: two of four fit beside it.
    let mut book = books[0].clone();
    take(&mut book, &quarters.devices[0], &["0", "1"]).unwrap();
    assert!(take(&mut book, &quarters.devices[0], &["2"]).is_err());
    let none = Plan::default();
    let found = findings(&none, &books);
    assert!(matches!(found[..], [Finding::NotSplit { .. }]), "{found:?}");
}
