//! The rules, in a world that the test makes.

mod fitting;
mod pods;
mod reserved;
mod resource_claims;
mod scanned;
mod times;

use super::*;
use crate::ledger::{ContainerName, PodName};
use std::cell::Cell;

struct Toy {
    dead: Cell<Vec<u32>>,
    uptime: Cell<u64>,
    now: u64,
}

impl Toy {
    fn new() -> Self {
        Self {
            dead: Cell::new(Vec::new()),
            uptime: Cell::new(100),
            now: 1_795_227_000,
        }
    }

    fn kill(&self, pid: u32) {
        let mut dead = self.dead.take();
        dead.push(pid);
        self.dead.set(dead);
    }
}

impl World for Toy {
    fn is_gone(&self, process: &InitProcess) -> bool {
        let dead = self.dead.take();
        let gone = process.namespace == 1 && dead.contains(&process.pid);
        self.dead.set(dead);
        gone
    }
    fn lives(&self, process: &InitProcess) -> bool {
        process.namespace == 1 && !self.is_gone(process)
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn uptime(&self) -> u64 {
        self.uptime.get()
    }
}

fn process(pid: u32) -> InitProcess {
    InitProcess {
        pid,
        start: 1,
        namespace: 1,
        cgroup: None,
    }
}

fn container(id: &str) -> ContainerName {
    ContainerName {
        bundle: format!("/run/engine/{id}"),
        id: id.into(),
    }
}

fn ask(part: HeldPart, id: &str, pid: u32) -> Ask {
    Ask {
        device: key("GPU-11111111"),
        part,
        bounds: Bounds::default(),
        asked_as: None,
        name: None,
        holder: Holder::Container(container(id)),
        process: Some(process(pid)),
        state: ClaimState::Held,
        once: true,
        for_root: false,
        alone: false,
        uid: 0,
        ttl: None,
        spec_file: None,
    }
}

fn key(text: &str) -> DeviceKey {
    text.parse().unwrap()
}

fn share(name: &str) -> HeldPart {
    HeldPart::share(name.parse().unwrap(), "1/10".parse().unwrap())
}

fn sized(name: &str, promise: &str) -> HeldPart {
    HeldPart::share(name.parse().unwrap(), promise.parse().unwrap())
}

fn guest(id: &str, pid: u32) -> Ask {
    ask(HeldPart::Whole, id, pid)
}

fn book() -> Book {
    Book::new("GPU-11111111".parse().unwrap())
}

#[test]
fn a_share_is_held_by_one_and_the_other_is_told_who() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    book.take(&ask(share("b"), "two", 11), &world).unwrap();
    let refused = book
        .take(&ask(share("a"), "three", 12), &world)
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "container one holds share a since 2026-11-21 02:10:00 UTC");
    assert_eq!(
        book.release(&Holder::Container(container("one")), 0, &world),
        0,
        "a late release: its init lives"
    );
    world.kill(10);
    assert_eq!(book.release(&Holder::Container(container("one")), 0, &world), 1);
    book.take(&ask(share("a"), "three", 12), &world).unwrap();
    assert!(book.is_sound());
}

#[test]
fn the_whole_device_and_its_shares_exclude_one_another() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    assert!(book.take(&ask(HeldPart::Whole, "two", 11), &world).is_err());
    world.kill(10);
    assert_eq!(book.release(&Holder::Container(container("one")), 0, &world), 1);
    book.take(&ask(HeldPart::Whole, "two", 11), &world).unwrap();
    assert!(book.take(&ask(share("a"), "one", 13), &world).is_err());
}

#[test]
fn who_is_gone_holds_nothing() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    world.kill(10);
    book.take(&ask(share("a"), "two", 11), &world).unwrap();
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn a_foreign_pid_namespace_is_not_judged() {
    let (mut book, world) = (book(), Toy::new());
    let mut inner = ask(share("a"), "one", 10);
    inner.process.as_mut().unwrap().namespace = 2;
    book.take(&inner, &world).unwrap();
    world.kill(10);
    assert!(book.take(&ask(share("a"), "two", 11), &world).is_err());
    assert_eq!(book.release(&Holder::Container(container("one")), 0, &world), 1);
    assert!(book.take(&ask(share("a"), "two", 11), &world).is_ok());
}

#[test]
fn the_same_container_takes_it_twice_and_restarts_with_a_new_init() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    assert!(
        book.take(&ask(share("a"), "one", 20), &world).is_err(),
        "its init lives"
    );
    world.kill(10);
    book.take(&ask(share("a"), "one", 20), &world).unwrap();
    assert_eq!(book.claims[0].process, Some(process(20)));
    let mut stranger = ask(share("a"), "one", 20);
    stranger.uid = 1000;
    assert!(
        book.take(&stranger, &world).is_err(),
        "a name is not squatted by another user"
    );
}

#[test]
fn equal_ids_of_two_engines_are_two_containers() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    let mut other = ask(share("a"), "one", 10);
    other.holder = Holder::Container(ContainerName {
        bundle: "/run/other/one".into(),
        ..container("one")
    });
    assert!(book.take(&other, &world).is_err());
    assert_eq!(book.release(&other.holder, 0, &world), 0);
}

#[test]
fn a_claim_made_beforehand_waits_is_entered_and_goes_with_its_container() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(
        HeldPart::Shares(
            [share("1"), share("2")]
                .iter()
                .flat_map(|part| part.shares().to_vec())
                .collect(),
        ),
        "-",
        0,
    );
    (made.name, made.holder, made.process, made.state) =
        (Some("train1".into()), Holder::Person, None, ClaimState::Reserved);
    made.ttl = Some(60);
    book.take(&made, &world).unwrap();
    assert!(
        book.take(&made, &world).is_err(),
        "nobody takes the same twice for a person"
    );
    assert!(book.enter("nobody", &guest("c", 30), None, &world).is_err());
    book.enter("train1", &guest("c", 30), None, &world).unwrap();
    assert!(book.enter("train1", &guest("d", 31), None, &world).is_err());
    world.uptime.set(1000);
    assert_eq!(book.collect(&world), 0, "in use, time does not end it");
    world.kill(30);
    assert_eq!(book.release(&Holder::Container(container("c")), 0, &world), 1);
    assert!(book.claims.is_empty());
}

#[test]
fn a_claim_that_nobody_uses_ends_in_time_and_stays_while_it_is_used() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("1"), "-", 0);
    (made.name, made.holder, made.process, made.state, made.ttl) =
        (Some("a".into()), Holder::Person, None, ClaimState::Reserved, Some(60));
    book.take(&made, &world).unwrap();
    (made.name, made.part, made.ttl, made.once) = (Some("b".into()), share("2"), Some(60), false);
    book.take(&made, &world).unwrap();
    book.enter("b", &guest("c", 30), None, &world).unwrap();
    world.kill(30);
    world.uptime.set(160);
    assert_eq!(book.collect(&world), 1);
    assert_eq!(book.claims[0].name.as_deref(), Some("b"));
    assert_eq!(book.claims[0].process, None);
    // Its time begins anew when its container is gone.
    world.uptime.set(219);
    assert_eq!(book.collect(&world), 0);
    world.uptime.set(220);
    assert_eq!(book.collect(&world), 1);
}

#[test]
fn another_user_touches_nothing_of_mine() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("1"), "-", 0);
    (made.name, made.holder, made.process, made.uid) = (Some("a".into()), Holder::Person, None, 1000);
    book.take(&made, &world).unwrap();
    assert!(
        book.enter(
            "a",
            &Ask {
                uid: 1001,
                ..guest("c", 30)
            },
            None,
            &world
        )
        .is_err()
    );
    let named = |claim: &Claim| claim.name.as_deref() == Some("a");
    assert!(book.release_by_hand(named, 1001, false, &world).is_err());
    assert_eq!(book.release_by_hand(named, 1000, false, &world).unwrap().len(), 1);
}

#[test]
fn root_uses_the_claim_of_a_user_only_if_its_owner_allowed_it() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("1"), "-", 0);
    (made.name, made.holder, made.process, made.uid) = (Some("1000.a".into()), Holder::Person, None, 1000);
    book.take(&made, &world).unwrap();
    let enter = |book: &mut Book, uid| book.enter("1000.a", &Ask { uid, ..guest("c", 30) }, None, &world);
    assert!(matches!(enter(&mut book, 0), Err(Refused::NotForRoot(_))));
    assert!(matches!(enter(&mut book, 1001), Err(Refused::NotYours(_))));
    book.claims[0].for_root = true;
    assert!(matches!(enter(&mut book, 1001), Err(Refused::NotYours(_))));
    enter(&mut book, 0).unwrap();
    // Root releases it in any case.
    book.claims[0].for_root = false;
    let named = |claim: &Claim| claim.name.as_deref() == Some("1000.a");
    assert_eq!(book.release_by_hand(named, 0, true, &world).unwrap().len(), 1);
}

#[test]
fn a_reboot_ends_what_processes_held_and_every_time_that_was_counted_before_it() {
    let (mut book, world) = (book(), Toy::new());
    world.uptime.set(1_000_000);
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    let mut made = ask(share("b"), "-", 0);
    (made.name, made.holder, made.process, made.ttl) = (Some("b".into()), Holder::Person, None, Some(60));
    book.take(&made, &world).unwrap();
    let without_ttl = Ask {
        name: Some("c".into()),
        part: share("c"),
        ttl: None,
        ..made.clone()
    };
    book.take(&without_ttl, &world).unwrap();
    assert_eq!(book.collect(&world), 0);
    // No process has the number and the start of an earlier one, and the seconds since boot begin again.
    world.kill(10);
    world.uptime.set(100);
    assert_eq!(book.collect(&world), 2);
    assert_eq!(book.claims[0].name.as_deref(), Some("c"), "it waits for a person");
    book.take(&made, &world).unwrap();
    world.uptime.set(159);
    assert_eq!(book.collect(&world), 0);
}

#[test]
fn a_second_share_for_one_container_is_refused_where_it_may_have_one() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    book.take(&ask(share("b"), "one", 10), &world).unwrap();
    let mut third = ask(share("c"), "one", 10);
    third.alone = true;
    assert!(matches!(book.take(&third, &world), Err(Refused::Another { .. })));
}

#[test]
fn nor_may_it_enter_a_claim_beside_its_share() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("b"), "-", 0);
    (made.name, made.holder, made.process, made.state) =
        (Some("train1".into()), Holder::Person, None, ClaimState::Reserved);
    book.take(&made, &world).unwrap();
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    let enter = |book: &mut Book, alone| {
        book.enter(
            "train1",
            &Ask {
                alone,
                ..guest("one", 10)
            },
            None,
            &world,
        )
    };
    assert!(matches!(enter(&mut book, true), Err(Refused::Another { .. })));
    enter(&mut book, false).unwrap();
    enter(&mut book, false).unwrap();
}

#[test]
fn a_share_that_the_policy_no_longer_has_is_held_until_its_container_ends() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("gone-from-policy"), "one", 10), &world).unwrap();
    book.take(&ask(share("a"), "two", 11), &world).unwrap();
    let whole = book.take(&ask(HeldPart::Whole, "three", 12), &world).unwrap_err();
    assert!(whole.to_string().contains("gone-from-policy"), "{whole}");
    world.kill(10);
    world.kill(11);
    book.take(&ask(HeldPart::Whole, "three", 12), &world).unwrap();
}

#[test]
fn a_clock_that_jumps_ends_nothing() {
    let (mut book, mut world) = (book(), Toy::new());
    let mut made = ask(share("a"), "-", 0);
    (made.name, made.holder, made.process, made.ttl) = (Some("a".into()), Holder::Person, None, Some(60));
    book.take(&made, &world).unwrap();
    world.now = 7;
    assert_eq!(book.collect(&world), 0);
    world.now = u64::MAX;
    assert_eq!(book.collect(&world), 0);
}

/// A world in which every process ends after it was looked at `after` times.
struct Ends {
    toy: Toy,
    after: Cell<u32>,
}

impl World for Ends {
    fn is_gone(&self, _: &InitProcess) -> bool {
        let left = self.after.get();
        self.after.set(left.saturating_sub(1));
        left == 0
    }
    fn lives(&self, process: &InitProcess) -> bool {
        !self.is_gone(process)
    }
    fn now(&self) -> u64 {
        self.toy.now
    }
    fn uptime(&self) -> u64 {
        self.toy.uptime.get()
    }
}

#[test]
fn a_process_that_ends_while_it_is_looked_at_loses_no_share() {
    for after in 0..6 {
        let mut book = book();
        for n in 0..3 {
            book.take(&ask(share(&n.to_string()), &n.to_string(), n), &Toy::new())
                .unwrap();
        }
        let world = Ends {
            toy: Toy::new(),
            after: Cell::new(after),
        };
        book.collect(&world);
        for claim in &book.claims {
            assert_eq!(
                (claim.state, claim.process.is_some()),
                (ClaimState::Held, true),
                "after {after} looks"
            );
        }
        world.after.set(0);
        book.collect(&world);
        assert!(book.claims.is_empty(), "after {after} looks: {:?}", book.claims);
    }
}

/// A book whose claims are these parts of these devices, each within these bounds.
fn held(claims: &[(&str, HeldPart)], bounds: &str) -> Book {
    let (mut book, world) = (book(), Toy::new());
    for (n, (device, part)) in (100..).zip(claims) {
        take(&mut book, device, part.clone(), bounds, n, &world).unwrap();
    }
    book
}

fn take(book: &mut Book, device: &str, part: HeldPart, bounds: &str, n: u32, world: &Toy) -> Result<(), Refused> {
    let ask = Ask {
        device: key(device),
        bounds: bounds.parse().unwrap(),
        ..ask(part, &n.to_string(), n)
    };
    book.take(&ask, world)
}

const GPU: &str = "GPU-11111111";

#[test]
fn a_part_is_free_if_nobody_holds_any_of_it_and_it_fits() {
    let bounds = "1000:100".parse().unwrap();
    let book = held(&[(GPU, sized("a", "mps:400:40"))], "1000:100");
    let is_free = |part: HeldPart| book.is_free(&key(GPU), &part, bounds);
    assert!(is_free(sized("b", "mps:600:60")));
    assert!(!is_free(sized("b", "mps:601:60")), "it does not fit");
    assert!(
        !is_free(sized("a", "mps:400:40")),
        "it is held, though another one of its size fits"
    );
    assert!(!is_free(HeldPart::Whole), "a part of it is held");
}

fn pod(name: &str) -> Holder {
    Holder::Pod(PodName {
        namespace: "default".into(),
        name: name.into(),
    })
}

/// A pod has no process: it holds its claims until they are released.
fn for_pod(part: HeldPart, name: &str) -> Ask {
    Ask {
        holder: pod(name),
        process: None,
        ..ask(part, "", 0)
    }
}

#[test]
fn a_claim_made_beforehand_is_used_by_one_pod_at_a_time() {
    let (mut book, world) = (book(), Toy::new());
    let made = Ask {
        name: Some("n".into()),
        holder: Holder::Person,
        state: ClaimState::Reserved,
        once: false,
        ..for_pod(share("a"), "")
    };
    book.take(&made, &world).unwrap();
    let enter = |book: &mut Book, name: &str| book.enter("n", &for_pod(HeldPart::Whole, name), None, &world);
    enter(&mut book, "one").unwrap();
    enter(&mut book, "one").unwrap();
    let refused = enter(&mut book, "two");
    assert!(
        matches!(&refused, Err(Refused::Taken { by, .. }) if by.holder == pod("one")),
        "{refused:?}"
    );
    assert_eq!(book.release(&pod("one"), 0, &world), 1);
    enter(&mut book, "two").unwrap();
}

#[test]
fn a_claim_of_a_pod_is_not_over_before_it_is_released() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&for_pod(share("a"), "one"), &world).unwrap();
    assert_eq!(book.collect(&world), 0);
    assert!(book.take(&for_pod(share("a"), "two"), &world).is_err());
    assert_eq!(book.release(&pod("one"), 0, &world), 1);
    book.take(&for_pod(share("a"), "two"), &world).unwrap();
}
