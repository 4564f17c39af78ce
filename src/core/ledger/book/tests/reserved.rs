//! What is reserved for the start of a container, and what is left to those who wait.

use super::*;
use crate::ledger::WaitedFor;
use proptest::prelude::*;

const NAME: &str = "start-0123456789abcdef";

/// A reservation for container `id`, which process `creator` creates.
fn reserve(book: &mut Book, share_name: &str, name: &str, id: &str, creator: u32, world: &Toy) -> Result<(), Refused> {
    let ask = Ask {
        name: Some(name.into()),
        state: ClaimState::Reserved,
        ..ask(share(share_name), id, creator)
    };
    book.take(&ask, world)
}

#[test]
fn a_container_enters_what_another_process_reserved_for_it_and_nobody_else_does() {
    let (mut book, world) = (book(), Toy::new());
    reserve(&mut book, "a", NAME, "one", 10, &world).unwrap();
    assert_eq!(book.claims[0].who(), "container one", "no name that nobody gave");
    let other = book.enter(NAME, &guest("two", 11), None, &world);
    assert!(
        matches!(&other, Err(Refused::Taken { by, .. }) if by.who() == "container one"),
        "{other:?}"
    );
    let stranger = Ask {
        uid: 1000,
        ..guest("one", 11)
    };
    assert!(matches!(
        book.enter(NAME, &stranger, None, &world),
        Err(Refused::NotYours(_))
    ));
    let promise = "1/2".parse().ok();
    assert_eq!(
        book.enter(NAME, &guest("one", 11), promise, &world),
        Err(Refused::OtherPromise(NAME.into()))
    );
    book.enter(NAME, &guest("one", 11), "1/10".parse().ok(), &world)
        .unwrap();
    // The process that created it ends, as every one does.
    world.kill(10);
    assert_eq!(book.collect(&world), 0);
    let claim = &book.claims[0];
    assert_eq!((claim.state, &claim.process), (ClaimState::Held, &Some(process(11))));
    assert!(
        book.enter(NAME, &guest("one", 12), None, &world).is_err(),
        "a second init"
    );
    assert!(book.enter(NAME, &guest("two", 12), None, &world).is_err());
    world.kill(11);
    assert_eq!(book.release(&Holder::Container(container("one")), 0, &world), 1);
    assert!(book.claims.is_empty(), "it goes with its container");
}

#[test]
fn a_reservation_ends_with_its_process_and_a_late_release_of_an_earlier_container_leaves_it() {
    let (mut book, world) = (book(), Toy::new());
    reserve(&mut book, "a", NAME, "one", 10, &world).unwrap();
    assert_eq!(book.release(&Holder::Container(container("one")), 0, &world), 0);
    assert!(reserve(&mut book, "a", "start-0000000000000002", "two", 11, &world).is_err());
    world.kill(10);
    assert_eq!(
        book.clone().enter(NAME, &guest("one", 12), None, &world),
        Err(Refused::NoSuchClaim(NAME.into()))
    );
    reserve(&mut book, "a", "start-0000000000000002", "two", 11, &world).unwrap();
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn a_reservation_without_a_process_ends_in_time() {
    let (mut book, world) = (book(), Toy::new());
    let asked = Ask {
        name: Some(NAME.into()),
        state: ClaimState::Reserved,
        process: None,
        ttl: Some(60),
        ..ask(share("a"), "one", 0)
    };
    book.take(&asked, &world).unwrap();
    world.uptime.set(159);
    assert_eq!(book.collect(&world), 0);
    let mut entered = book.clone();
    entered.enter(NAME, &guest("one", 12), None, &world).unwrap();
    world.uptime.set(160);
    assert_eq!((book.collect(&world), entered.collect(&world)), (1, 0));
}

#[test]
fn only_what_no_container_has_entered_is_withdrawn() {
    let (mut book, world) = (book(), Toy::new());
    let names = [
        "start-0000000000000001",
        "start-0000000000000002",
        "start-0000000000000003",
    ];
    for (name, share) in names.iter().zip(["a", "b", "c"]) {
        reserve(&mut book, share, name, "one", 10, &world).unwrap();
    }
    book.enter(names[0], &guest("one", 11), None, &world).unwrap();
    assert_eq!(book.withdraw(&names[..2], 1000), 0, "another user's");
    assert_eq!(book.withdraw(&names[..2], 0), 1);
    let left: Vec<&str> = book.claims.iter().filter_map(|claim| claim.name.as_deref()).collect();
    assert_eq!(left, [names[0], names[2]]);
}

#[test]
fn what_others_wait_for_is_left_to_them_and_what_is_held_is_kept() {
    let (mut book, world) = (book(), Toy::new());
    book.take(&ask(share("1"), "one", 10), &world).unwrap();
    let waiter = |shares: &[&str]| Waiter {
        number: 1,
        wants: Some(
            [WaitedFor {
                device: key(GPU),
                shares: shares.iter().map(|name| name.parse().unwrap()).collect(),
            }]
            .into(),
        ),
    };
    book.leave_to(vec![waiter(&["0"]), waiter(&["0", "1"])]);
    let refused = |waiting| Err(Refused::Waiting { waiting });
    assert_eq!(book.take(&ask(share("0"), "two", 11), &world), refused(2));
    book.take(&ask(share("1"), "one", 10), &world).unwrap();
    book.take(&ask(share("3"), "two", 11), &world).unwrap();
    let shares = || (0..3).flat_map(|n| share(&n.to_string()).shares().to_vec());
    let mut any = |id: &str, pid| {
        book.take_any(shares(), &ask(HeldPart::Whole, id, pid), &world)
            .map(|share| share.name.to_string())
    };
    assert_eq!(any("three", 12).unwrap(), "2", "rather one that nobody waits for");
    assert_eq!(any("four", 13).unwrap_err(), Refused::Waiting { waiting: 2 });
    assert_eq!(any("one", 10).unwrap(), "1", "it has one already");
    book.leave_to(vec![]);
    book.take(&ask(share("0"), "two", 11), &world).unwrap();
}

/// What may happen to the shares of one device.
#[derive(Debug, Clone)]
enum Event {
    /// A process reserves a share for a container.
    Reserve { share: u8, container: u8 },
    /// The container's init enters it.
    Enter { share: u8, container: u8 },
    /// The process that creates a container ends, or its init.
    Die { container: u8, init: bool },
    /// The start failed.
    Withdraw { share: u8, container: u8 },
    /// poststop.
    Release { container: u8 },
}

fn events() -> impl Strategy<Value = Event> {
    let (share, container) = (0..3u8, 0..4u8);
    prop_oneof![
        4 => (share.clone(), container.clone()).prop_map(|(share, container)| Event::Reserve { share, container }),
        4 => (share.clone(), container.clone()).prop_map(|(share, container)| Event::Enter { share, container }),
        1 => (container.clone(), any::<bool>()).prop_map(|(container, init)| Event::Die { container, init }),
        1 => (share, container.clone()).prop_map(|(share, container)| Event::Withdraw { share, container }),
        1 => container.prop_map(|container| Event::Release { container }),
    ]
}

/// What one share is used for, as a person would keep the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Use {
    container: u8,
    init: bool,
}

proptest! {
    #[test]
    fn each_share_is_reserved_for_or_held_by_the_one_who_got_it_first(
        events in prop::collection::vec(events(), 1..60),
    ) {
        let world = Toy::new();
        let mut book = book();
        let mut model: [Option<Use>; 3] = [None; 3];
        let mut dead: Vec<(u8, bool)> = Vec::new();
        let pid = |container: u8, init: bool| 10 + u32::from(container) * 2 + u32::from(init);
        let name = |share: u8, container: u8| format!("start-{:016x}", u16::from(share) * 256 + u16::from(container));
        let id = |container: u8| container.to_string();
        for event in &events {
            // As each process on disk does: the claims are read from their text.
            book = record::scan(record::encode(&book)).unwrap();
            let gone = |dead: &[(u8, bool)], used: Use| dead.contains(&(used.container, used.init));
            match *event {
                Event::Reserve { share: s, container: c } => {
                    if dead.contains(&(c, false)) {
                        continue;
                    }
                    let expected = match model[usize::from(s)] {
                        None => true,
                        // The same start once more, or one that is over.
                        Some(used) => used == Use { container: c, init: false } || gone(&dead, used),
                    };
                    let took = reserve(&mut book, &s.to_string(), &name(s, c), &id(c), pid(c, false), &world);
                    // The same claim of a container that runs is not reserved again.
                    prop_assert_eq!(took.is_ok(), expected, "{:?}: {:?}", event, took);
                    if expected {
                        model[usize::from(s)] = Some(Use { container: c, init: false });
                    }
                }
                Event::Enter { share: s, container: c } => {
                    if dead.contains(&(c, true)) {
                        continue;
                    }
                    let used = model[usize::from(s)].filter(|used| !gone(&dead, *used));
                    let expected = used.is_some_and(|used| used.container == c);
                    let entered = book.enter(&name(s, c), &guest(&id(c), pid(c, true)), None, &world);
                    prop_assert_eq!(entered.is_ok(), expected, "{:?}: {:?}", event, entered);
                    if expected {
                        model[usize::from(s)] = Some(Use { container: c, init: true });
                    }
                }
                Event::Die { container, init } => {
                    world.kill(pid(container, init));
                    dead.push((container, init));
                }
                Event::Withdraw { share: s, container: c } => {
                    let expected = model[usize::from(s)] == Some(Use { container: c, init: false });
                    let count = book.withdraw(&[&name(s, c)], 0);
                    // A reservation of a process that has ended may be on disk still.
                    prop_assert!(count == 0 || expected);
                    if expected {
                        model[usize::from(s)] = None;
                    }
                }
                Event::Release { container: c } => {
                    book.release(&Holder::Container(container(&id(c))), 0, &world);
                    for used in &mut model {
                        *used = used.filter(|used| used.container != c || !gone(&dead, *used));
                    }
                }
            }
            prop_assert!(book.is_sound());
            let mut now = record::decode(&record::encode(&book)).unwrap();
            now.collect(&world);
            let held = now.claims.iter().map(|claim| {
                let share: usize = claim.part.shares()[0].name.as_str().parse().unwrap();
                let Holder::Container(holder) = &claim.holder else {
                    panic!("{claim:?}");
                };
                (share, holder.id.clone(), claim.state == ClaimState::Held)
            });
            let mut held: Vec<_> = held.collect();
            held.sort();
            let live = model.iter().enumerate().filter_map(|(share, used)| Some((share, (*used)?)));
            let live = live.filter(|(_, used)| !gone(&dead, *used));
            let expected: Vec<_> = live.map(|(share, used)| (share, id(used.container), used.init)).collect();
            prop_assert_eq!(held, expected, "after {:?}", event);
        }
    }
}

#[test]
fn any_share_is_one_that_a_failed_start_had_reserved() {
    let (mut book, world) = (book(), Toy::new());
    reserve(&mut book, "0", "start-0000000000000001", "one", 10, &world).unwrap();
    reserve(&mut book, "1", "start-0000000000000002", "two", 11, &world).unwrap();
    world.kill(10);
    let replicas = ["0", "1", "2"].map(|name| share(name).shares()[0].clone());
    let any = |book: &mut Book, id: &str, pid| {
        let taken = book.take_any(replicas.iter().cloned(), &ask(share("0"), id, pid), &world);
        taken.unwrap().name.to_string()
    };
    // As a hook reads a book: lines of other claims are text.
    let mut book = record::scan(record::encode(&book)).unwrap();
    assert_eq!(
        (any(&mut book, "three", 12), any(&mut book, "four", 13)),
        ("0".into(), "2".into())
    );
}
