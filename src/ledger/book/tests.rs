//! The rules, in a world that the test makes.

mod scanned;

use super::*;
use std::cell::Cell;

struct Toy {
    dead: Cell<Vec<u32>>,
    uptime: Cell<u64>,
    boot: String,
    now: u64,
}

impl Toy {
    fn new() -> Self {
        Self {
            dead: Cell::new(Vec::new()),
            uptime: Cell::new(100),
            boot: "b1".into(),
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
    fn is_gone(&self, process: &Process) -> bool {
        let dead = self.dead.take();
        let gone = process.namespace == 1 && dead.contains(&process.pid);
        self.dead.set(dead);
        gone
    }
    fn lives(&self, process: &Process) -> bool {
        process.namespace == 1 && !self.is_gone(process)
    }
    fn now(&self) -> u64 {
        self.now
    }
    fn uptime(&self) -> u64 {
        self.uptime.get()
    }
    fn boot(&self) -> &str {
        &self.boot
    }
}

fn process(pid: u32) -> Process {
    Process {
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

fn ask(part: Part, id: &str, pid: u32) -> Ask {
    Ask {
        device: key("GPU-11111111"),
        part,
        bounds: Bounds::default(),
        asked_as: None,
        name: None,
        container: Some(container(id)),
        process: Some(process(pid)),
        state: State::Held,
        once: true,
        alone: false,
        uid: 0,
        ttl: None,
        spec_file: None,
    }
}

fn key(text: &str) -> DeviceKey {
    text.parse().unwrap()
}

fn share(name: &str) -> Part {
    Part::share(name.parse().unwrap(), "1/10".parse().unwrap())
}

fn sized(name: &str, promise: &str) -> Part {
    Part::share(name.parse().unwrap(), promise.parse().unwrap())
}

fn guest(id: &str, pid: u32) -> Guest {
    Guest {
        container: container(id),
        process: process(pid),
        uid: 0,
        alone: false,
        promise: None,
    }
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
        book.release_container(&container("one"), 0, &world),
        0,
        "a late release: its init lives"
    );
    world.kill(10);
    assert_eq!(book.release_container(&container("one"), 0, &world), 1);
    book.take(&ask(share("a"), "three", 12), &world).unwrap();
    assert!(book.is_sound());
}

#[test]
fn the_whole_device_and_its_shares_exclude_one_another() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    assert!(book.take(&ask(Part::Whole, "two", 11), &world).is_err());
    world.kill(10);
    assert_eq!(book.release_container(&container("one"), 0, &world), 1);
    book.take(&ask(Part::Whole, "two", 11), &world).unwrap();
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
    assert_eq!(book.release_container(&container("one"), 0, &world), 1);
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
    assert_eq!(book.claims[0].holder.process, Some(process(20)));
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
    other.container.as_mut().unwrap().bundle = "/run/other/one".into();
    assert!(book.take(&other, &world).is_err());
    assert_eq!(book.release_container(other.container.as_ref().unwrap(), 0, &world), 0);
}

#[test]
fn a_claim_made_beforehand_waits_is_entered_and_goes_with_its_container() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(
        Part::Shares(
            [share("1"), share("2")]
                .iter()
                .flat_map(|part| part.shares().to_vec())
                .collect(),
        ),
        "-",
        0,
    );
    (made.name, made.container, made.process, made.state) = (Some("train1".into()), None, None, State::Reserved);
    made.ttl = Some(60);
    book.take(&made, &world).unwrap();
    assert_eq!(book.take(&made, &world), Err(Refused::NameTaken("train1".into())));
    assert!(book.enter("nobody", guest("c", 30), &world).is_err());
    book.enter("train1", guest("c", 30), &world).unwrap();
    assert!(book.enter("train1", guest("d", 31), &world).is_err());
    world.uptime.set(1000);
    assert_eq!(book.reconcile(&world), 0, "in use, time does not end it");
    world.kill(30);
    assert_eq!(book.release_container(&container("c"), 0, &world), 1);
    assert!(book.claims.is_empty());
}

#[test]
fn a_claim_that_nobody_uses_ends_in_time_and_stays_while_it_is_used() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("1"), "-", 0);
    (made.name, made.container, made.process, made.state, made.ttl) =
        (Some("a".into()), None, None, State::Reserved, Some(60));
    book.take(&made, &world).unwrap();
    (made.name, made.part, made.ttl, made.once) = (Some("b".into()), share("2"), Some(60), false);
    book.take(&made, &world).unwrap();
    book.enter("b", guest("c", 30), &world).unwrap();
    world.kill(30);
    world.uptime.set(160);
    assert_eq!(book.reconcile(&world), 1);
    assert_eq!(book.claims[0].name.as_deref(), Some("b"));
    assert_eq!(book.claims[0].holder.process, None);
    // Its time begins anew when its container is gone.
    world.uptime.set(219);
    assert_eq!(book.reconcile(&world), 0);
    world.uptime.set(220);
    assert_eq!(book.reconcile(&world), 1);
}

#[test]
fn another_user_touches_nothing_of_mine() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(share("1"), "-", 0);
    (made.name, made.container, made.process, made.uid) = (Some("a".into()), None, None, 1000);
    book.take(&made, &world).unwrap();
    assert!(
        book.enter(
            "a",
            Guest {
                uid: 1001,
                ..guest("c", 30)
            },
            &world
        )
        .is_err()
    );
    assert!(book.release_name("a", 1001).is_err());
    assert_eq!(book.release_name("a", 1000), Ok(true));
}

#[test]
fn a_reboot_ends_what_processes_held() {
    let (mut book, mut world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    world.boot = "b2".into();
    assert_eq!(book.reconcile(&world), 1);
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
    (made.name, made.container, made.process, made.state) = (Some("train1".into()), None, None, State::Reserved);
    book.take(&made, &world).unwrap();
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    let enter = |book: &mut Book, alone| {
        book.enter(
            "train1",
            Guest {
                alone,
                ..guest("one", 10)
            },
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
    let whole = book.take(&ask(Part::Whole, "three", 12), &world).unwrap_err();
    assert!(whole.to_string().contains("gone-from-policy"), "{whole}");
    world.kill(10);
    world.kill(11);
    book.take(&ask(Part::Whole, "three", 12), &world).unwrap();
}

#[test]
fn a_clock_that_jumps_ends_nothing() {
    let (mut book, mut world) = (book(), Toy::new());
    let mut made = ask(share("a"), "-", 0);
    (made.name, made.container, made.process, made.ttl) = (Some("a".into()), None, None, Some(60));
    book.take(&made, &world).unwrap();
    world.now = 7;
    assert_eq!(book.reconcile(&world), 0);
    world.now = u64::MAX;
    assert_eq!(book.reconcile(&world), 0);
}

/// A world in which every process ends after it was looked at `after` times.
struct Ends {
    toy: Toy,
    after: Cell<u32>,
}

impl World for Ends {
    fn is_gone(&self, _: &Process) -> bool {
        let left = self.after.get();
        self.after.set(left.saturating_sub(1));
        left == 0
    }
    fn lives(&self, process: &Process) -> bool {
        !self.is_gone(process)
    }
    fn now(&self) -> u64 {
        self.toy.now
    }
    fn uptime(&self) -> u64 {
        self.toy.uptime.get()
    }
    fn boot(&self) -> &str {
        &self.toy.boot
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
        book.reconcile(&world);
        for claim in &book.claims {
            assert_eq!(
                (claim.state, claim.holder.process.is_some()),
                (State::Held, true),
                "after {after} looks"
            );
        }
        world.after.set(0);
        book.reconcile(&world);
        assert!(book.claims.is_empty(), "after {after} looks: {:?}", book.claims);
    }
}

/// A book whose claims are these parts of these devices, each within these bounds.
fn held(claims: &[(&str, Part)], bounds: &str) -> Book {
    let (mut book, world) = (book(), Toy::new());
    for (n, (device, part)) in (100..).zip(claims) {
        take(&mut book, device, part.clone(), bounds, n, &world).unwrap();
    }
    book
}

fn take(book: &mut Book, device: &str, part: Part, bounds: &str, n: u32, world: &Toy) -> Result<(), Refused> {
    let ask = Ask {
        device: key(device),
        bounds: bounds.parse().unwrap(),
        ..ask(part, &n.to_string(), n)
    };
    book.take(&ask, world)
}

const GPU: &str = "GPU-11111111";

#[test]
fn what_is_held_and_what_is_asked_for_fit_the_device_whatever_a_policy_says() {
    let halves = [(GPU, sized("0", "mps:5000:50")), (GPU, sized("1", "mps:5000:50"))];
    let world = Toy::new();
    for (part, bounds, fits) in [
        // All is held.
        (sized("big", "mps:1:1"), "10000:100", false),
        (sized("0", "mps:1:1"), "10000:100", false),
        // The asking policy allows more.
        (sized("big", "mps:10000:100"), "20000:200", true),
        (sized("big", "mps:10001:100"), "20000:200", false),
        (sized("big", "mps:10000:101"), "20000:200", false),
        // The limits of what is held would not hold beside one that has none.
        (sized("big", "mps:-:1"), "20000:200", false),
        (sized("big", "mps:1:-"), "20000:200", false),
        // Its memory is not known: nothing can be said about it.
        (sized("big", "mps:10000:100"), "-:200", true),
        // Another strategy.
        (sized("big", "1/1000"), "20000:200", false),
    ] {
        let mut book = held(&halves, "10000:100");
        let took = take(&mut book, GPU, part.clone(), bounds, 1, &world);
        assert_eq!(took.is_ok(), fits, "{part:?} of {bounds}: {took:?}");
        assert_eq!(book.claims.len(), if fits { 3 } else { 2 });
    }
    let mut book = held(&halves[..1], "10000:100");
    take(&mut book, GPU, sized("0", "mps:5000:20"), "10000:100", 1, &world).unwrap();
    let line = take(&mut book, GPU, sized("c", "mps:1:31"), "10000:100", 2, &world).unwrap_err();
    assert_eq!(
        line.to_string(),
        "it needs 31% of compute, and 70% of 100% are held: by container 100, container 1"
    );
}

#[test]
fn one_device_has_one_strategy_and_two_instances_may_have_two() {
    let world = Toy::new();
    let (one, two) = ("GPU-11111111/7/0", "GPU-11111111/8/0");
    // Without limits, no sum refuses turns beside MPS.
    let mut book = held(&[(one, sized("a", "mps:-:-"))], "10000:100");
    let refused = take(&mut book, one, share("b"), "10000:100", 1, &world).unwrap_err();
    assert!(
        matches!(
            refused,
            Refused::Misfit {
                misfit: Misfit::Strategy { .. },
                ..
            }
        ),
        "{refused}"
    );
    take(&mut book, two, share("b"), "10000:100", 1, &world).unwrap();
    take(&mut book, two, share("c"), "10000:100", 2, &world).unwrap();
}

#[test]
fn turns_of_two_policies_fit_together_exactly() {
    let world = Toy::new();
    let mut book = held(&[(GPU, sized("0", "1/2")), (GPU, sized("0", "1/4"))], "-:100");
    for n in 0..2 {
        take(&mut book, GPU, sized(&n.to_string(), "1/8"), "-:100", n, &world).unwrap();
    }
    let refused = take(&mut book, GPU, sized("2", "1/1000000"), "-:100", 9, &world).unwrap_err();
    assert!(
        matches!(
            refused,
            Refused::Misfit {
                misfit: Misfit::Turns,
                ..
            }
        ),
        "{refused}"
    );
    assert!(
        take(&mut book, GPU, sized("0", "1/2"), "-:100", 9, &world).is_err(),
        "the same share"
    );
}

#[test]
fn who_is_gone_does_not_count() {
    let world = Toy::new();
    let mut book = held(&[(GPU, sized("a", "mps:1:60")), (GPU, sized("b", "mps:1:40"))], "9:100");
    world.kill(101);
    take(&mut book, GPU, sized("c", "mps:1:40"), "9:100", 1, &world).unwrap();
    assert_eq!(book.claims.len(), 2, "the dead one went");
}

#[test]
fn a_claim_looks_at_no_process_that_is_not_in_its_way() {
    let parts: Vec<(&str, Part)> = (0..9).map(|n| (GPU, share(&n.to_string()))).collect();
    let mut book = held(&parts, "-:100");
    let world = Ends {
        toy: Toy::new(),
        after: Cell::new(0),
    };
    // Every process that is looked at is gone: so those that are left were not looked at.
    book.take(&ask(share("3"), "new", 1), &world).unwrap();
    assert_eq!(book.claims.len(), 9);
}

#[test]
fn a_gpu_and_its_instances_exclude_one_another() {
    let world = Toy::new();
    let (gpu, one, two) = (GPU, "GPU-11111111/7/0", "GPU-11111111/8/0");
    for (first, second, both) in [
        ((gpu, Part::Whole), (one, Part::Whole), false),
        ((one, Part::Whole), (gpu, Part::Whole), false),
        ((one, Part::Whole), (gpu, share("a")), false),
        ((gpu, share("a")), (one, share("b")), false),
        ((one, Part::Whole), (one, Part::Whole), false),
        ((one, Part::Whole), (two, Part::Whole), true),
        ((one, share("a")), (two, share("a")), true),
    ] {
        let mut book = held(std::slice::from_ref(&first), "-:100");
        let took = take(&mut book, second.0, second.1.clone(), "-:100", 1, &world);
        assert_eq!(took.is_ok(), both, "{first:?} and {second:?}: {took:?}");
        assert!(book.is_sound());
        if !both {
            book.claims.push(Claim {
                device: key(second.0),
                part: second.1,
                ..book.claims[0].clone()
            });
            assert!(!book.is_sound());
        }
    }
}

#[test]
fn compute_instances_of_one_gpu_instance_have_its_memory_together() {
    let world = Toy::new();
    let (one, two, other) = ("GPU-11111111/7/0", "GPU-11111111/7/1", "GPU-11111111/8/0");
    let mut book = held(&[(one, sized("a", "mps:6000:100"))], "10000:100");
    assert!(take(&mut book, two, sized("a", "mps:5000:100"), "10000:100", 1, &world).is_err());
    assert!(
        take(&mut book, two, share("a"), "10000:100", 1, &world).is_err(),
        "no limit"
    );
    assert!(
        take(&mut book, two, Part::Whole, "10000:100", 1, &world).is_err(),
        "no limit"
    );
    take(&mut book, two, sized("a", "mps:4000:100"), "10000:100", 1, &world).unwrap();
    take(&mut book, other, sized("a", "mps:10000:100"), "10000:100", 2, &world).unwrap();
    let mut book = held(&[(one, Part::Whole)], "10000:100");
    take(&mut book, two, Part::Whole, "10000:100", 1, &world).unwrap();
}

#[test]
fn any_share_is_the_first_that_is_free_and_then_one_whose_holder_is_gone() {
    let (mut book, world) = (book(), Toy::new());
    let shares = || (0..3).flat_map(|n| share(&n.to_string()).shares().to_vec());
    let any = |book: &mut Book, pid: u32| {
        book.take_any(shares(), &ask(Part::Whole, &pid.to_string(), pid), &world)
            .map(|share| share.name.to_string())
    };
    assert_eq!(any(&mut book, 10).unwrap(), "0");
    assert_eq!(any(&mut book, 11).unwrap(), "1");
    assert_eq!(any(&mut book, 10).unwrap(), "0", "it holds one already");
    assert_eq!(any(&mut book, 12).unwrap(), "2");
    assert_eq!(any(&mut book, 13), Err(Refused::NoneFree));
    world.kill(11);
    assert_eq!(any(&mut book, 13).unwrap(), "1");
    assert_eq!(book.claims.len(), 3);
}

#[test]
fn a_specification_of_an_earlier_claim_sets_no_limits() {
    let (mut book, world) = (book(), Toy::new());
    let mut made = ask(sized("a", "mps:10:10"), "-", 0);
    (made.name, made.container, made.process, made.state) = (Some("a".into()), None, None, State::Reserved);
    book.take(&made, &world).unwrap();
    let with = |promise: &str| Guest {
        promise: Some(promise.parse().unwrap()),
        ..guest("c", 30)
    };
    assert_eq!(
        book.enter("a", with("mps:20:10"), &world),
        Err(Refused::OtherPromise("a".into()))
    );
    book.enter("a", with("mps:10:10"), &world).unwrap();
}

#[test]
fn a_person_gives_back_what_cannot_be_seen_and_not_what_runs() {
    let (mut book, world) = (book(), Toy::new());
    let mut inner = ask(share("a"), "one", 10);
    inner.process.as_mut().unwrap().namespace = 2;
    book.take(&inner, &world).unwrap();
    book.take(&ask(share("b"), "two", 11), &world).unwrap();
    let all = book.release_by_hand(|_| true, 0, &world);
    assert_eq!(all, Err(Refused::InUse("container two".into())));
    assert_eq!(book.claims.len(), 2, "all or none");
    let one = |claim: &Claim| claim.part == share("a");
    assert!(book.release_by_hand(one, 1000, &world).is_err());
    assert_eq!(book.release_by_hand(one, 0, &world).unwrap().len(), 1);
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn what_a_container_held_before_is_given_back_first() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("a"), "one", 10), &world).unwrap();
    world.kill(10);
    // Its next start may hold one share, and asks for another one than before.
    let next = Ask {
        alone: true,
        ..ask(share("b"), "one", 11)
    };
    book.take(&next, &world).unwrap();
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn the_name_of_a_claim_whose_time_is_over_is_free() {
    let (mut book, world) = (book(), Toy::new());
    let made = |part: Part| Ask {
        name: Some("n".into()),
        container: None,
        process: None,
        state: State::Reserved,
        ttl: Some(60),
        ..ask(part, "", 0)
    };
    book.take(&made(share("a")), &world).unwrap();
    world.uptime.set(159);
    let early = book.take(&made(share("b")), &world);
    assert_eq!(early, Err(Refused::NameTaken("n".into())));
    world.uptime.set(160);
    book.take(&made(share("b")), &world).unwrap();
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn no_share_is_free_beside_the_whole_device_or_an_instance_on_it() {
    let (one, two) = ("GPU-11111111/7/0", "GPU-11111111/8/0");
    let free = |held_device: &str, part: Part, device: &str| {
        let book = held(&[(held_device, part)], "-:100");
        book.unheld(&key(device), share("b").shares().to_vec().into_iter())
            .count()
    };
    assert_eq!(free(GPU, share("a"), GPU), 1);
    assert_eq!(free(GPU, share("b"), GPU), 0, "that share is held");
    assert_eq!(free(GPU, Part::Whole, GPU), 0);
    assert_eq!(free(one, share("a"), GPU), 0);
    assert_eq!(free(GPU, share("a"), one), 0);
    assert_eq!(free(one, Part::Whole, two), 1);
    assert_eq!(
        free(one, share("b"), two),
        1,
        "a share of that name on another instance"
    );
}

#[test]
fn any_share_of_one_device_is_not_the_one_that_is_held_of_another() {
    let (mut book, world) = (book(), Toy::new());
    let (one, two) = ("GPU-11111111/7/0", "GPU-11111111/8/0");
    let shares = || (0..3).flat_map(|n| share(&n.to_string()).shares().to_vec());
    let of = |device: &str, id: &str, pid: u32| Ask {
        device: key(device),
        ..ask(Part::Whole, id, pid)
    };
    book.take_any(shares(), &of(two, "other", 9), &world).unwrap();
    book.take_any(shares(), &of(one, "third", 8), &world).unwrap();
    // It holds share 1 of the first instance, which says nothing about the second one.
    let first = book.take_any(shares(), &of(one, "c", 10), &world).unwrap();
    book.take_any(shares(), &of(two, "fourth", 7), &world).unwrap();
    let second = book.take_any(shares(), &of(two, "c", 10), &world).unwrap();
    assert_eq!((first.name.as_str(), second.name.as_str()), ("1", "2"));
    let again = book.take_any(shares(), &of(two, "c", 10), &world).unwrap();
    assert_eq!(again.name.as_str(), "2");
}

#[test]
fn any_of_these_shares_is_not_another_one_that_the_container_holds() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("x"), "c", 10), &world).unwrap();
    let shares = (0..3).flat_map(|n| share(&n.to_string()).shares().to_vec());
    let took = book.take_any(shares, &ask(Part::Whole, "c", 10), &world).unwrap();
    assert_eq!(took.name.as_str(), "0");
}

#[test]
fn a_claim_made_beforehand_is_entered_in_time_by_its_user_or_root_beside_other_containers() {
    let world = Toy::new();
    let made = || {
        let mut book = book();
        let made = Ask {
            name: Some("n".into()),
            container: None,
            process: None,
            state: State::Reserved,
            ttl: Some(60),
            uid: 1000,
            ..ask(share("a"), "", 0)
        };
        book.take(&made, &Toy::new()).unwrap();
        // The other container has a share of the same device.
        book.take(&ask(share("b"), "other", 9), &Toy::new()).unwrap();
        book
    };
    let by = |uid: u32| Guest {
        uid,
        alone: true,
        ..guest("c", 30)
    };
    made().enter("n", by(1000), &world).unwrap();
    made().enter("n", by(0), &world).unwrap();
    assert_eq!(made().enter("n", by(1001), &world), Err(Refused::NotYours("n".into())));
    world.uptime.set(160);
    assert_eq!(
        made().enter("n", by(1000), &world),
        Err(Refused::NoSuchClaim("n".into())),
        "its time is over"
    );
}

#[test]
fn only_its_user_and_root_give_a_share_back() {
    let world = Toy::new();
    world.kill(10);
    for (uid, may) in [(1000, true), (0, true), (1001, false)] {
        let of_1000 = || {
            let (mut book, alive) = (book(), Toy::new());
            let user = Ask {
                uid: 1000,
                ..ask(share("a"), "c", 10)
            };
            book.take(&user, &alive).unwrap();
            book
        };
        let by_engine = of_1000().release_container(&container("c"), uid, &world);
        assert_eq!(by_engine, usize::from(may), "{uid}");
        let by_hand = of_1000().release_by_hand(|_| true, uid, &world);
        assert_eq!(by_hand.is_ok(), may, "{uid}: {by_hand:?}");
    }
}
