//! A book of which a rule reads only what it needs says and becomes the same as one that was read to the end.

use super::*;
use crate::ledger::book::record;
use proptest::prelude::*;

/// What happens to a book.
#[derive(Debug, Clone)]
enum Event {
    /// A container takes a part of a device.
    Take {
        device: &'static str,
        part: HeldPart,
        container: u32,
        alone: bool,
    },
    /// A container takes any share of a device.
    Any {
        device: &'static str,
        container: u32,
    },
    /// A container's process ends.
    Die(u32),
    Release(u32),
    Reboot,
}

fn devices() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(GPU), 1 => Just("GPU-11111111/7/0"), 1 => Just("GPU-11111111/7/1")]
}

fn events() -> impl Strategy<Value = Event> {
    let size = prop_oneof![6 => Just("1/6"), 1 => Just("1/4"), 1 => Just("mps:10:20")];
    let part = prop_oneof![
        8 => (0..6u32, size).prop_map(|(name, size)| sized(&name.to_string(), size)),
        1 => Just(HeldPart::Whole),
    ];
    let container = || 0..9u32;
    prop_oneof![
        6 => (devices(), part, container(), any::<bool>()).prop_map(|(device, part, container, alone)| Event::Take {
            device, part, container, alone
        }),
        2 => (devices(), container()).prop_map(|(device, container)| Event::Any { device, container }),
        2 => container().prop_map(Event::Die),
        2 => container().prop_map(Event::Release),
        1 => Just(Event::Reboot),
    ]
}

/// The kind of result, without the names in it: where two claims are in the way, either may be named.
fn happen(book: &mut Book, event: &Event, world: &Toy) -> String {
    let request = |device: &str, part: HeldPart, id: u32, alone: bool| Ask {
        device: key(device),
        alone,
        // Ids that look like other fields of a line, or must be escaped in it.
        holder: Holder::Container(container(
            ["0\t", "once", "\\t", "0", "a=1/2"].get(id as usize).unwrap_or(&"c"),
        )),
        ..ask(part, "", 100 + id)
    };
    let kind = |refused: Refused| {
        format!("{refused:?}")
            .split([' ', '('])
            .next()
            .map(str::to_owned)
            .unwrap()
    };
    match event {
        Event::Take {
            device,
            part,
            container,
            alone,
        } => match book.take(&request(device, part.clone(), *container, *alone), world) {
            Ok(()) => "taken".to_owned(),
            Err(refused) => kind(refused),
        },
        Event::Any { device, container } => {
            let shares = (0..6).flat_map(|n| sized(&n.to_string(), "1/6").shares().to_vec());
            match book.take_any(shares, &request(device, HeldPart::Whole, *container, false), world) {
                Ok(share) => share.name.to_string(),
                Err(refused) => kind(refused),
            }
        }
        Event::Release(id) => {
            let holder = request(GPU, HeldPart::Whole, *id, false).holder;
            book.release(&holder, 0, world).to_string()
        }
        Event::Die(_) | Event::Reboot => String::new(),
    }
}

fn sorted(book: &Book) -> Vec<String> {
    let mut claims: Vec<String> = book.claims.iter().map(|claim| format!("{claim:?}")).collect();
    claims.sort();
    claims
}

proptest! {
    #[test]
    fn it_makes_no_difference_how_much_was_read(events in prop::collection::vec(events(), 1..40)) {
        let world = Toy::new();
        let mut whole = book();
        let mut scanned = book();
        for event in &events {
            match event {
                Event::Die(id) => world.kill(100 + id),
                Event::Reboot => world.uptime.set(world.uptime.get() / 2),
                _ => {}
            }
            scanned = record::scan(record::encode(&scanned)).unwrap();
            prop_assert!(scanned.claims.is_empty());
            prop_assert_eq!(happen(&mut whole, event, &world), happen(&mut scanned, event, &world), "{:?}", event);
            prop_assert!(scanned.is_sound());
            let held = |book: &Book| book.held().count();
            prop_assert_eq!(held(&whole), held(&scanned));
            let read = record::decode(&record::encode(&scanned)).unwrap();
            prop_assert_eq!(sorted(&whole), sorted(&read), "after {:?}", event);
        }
    }
}

#[test]
fn a_claim_reads_what_is_in_its_way_and_no_more() {
    let parts: Vec<(&str, HeldPart)> = (0..9).map(|n| (GPU, share(&n.to_string()))).collect();
    let world = Toy::new();
    let mut book = record::scan(record::encode(&held(&parts, "-:100"))).unwrap();
    take(&mut book, GPU, share("9"), "-:100", 9, &world).unwrap();
    assert_eq!((book.claims.len(), book.held().count()), (1, 10));
    assert!(take(&mut book, GPU, share("3"), "-:100", 8, &world).is_err());
    assert_eq!((book.claims.len(), book.held().count()), (2, 10));
}

#[test]
fn what_a_damaged_line_holds_is_held() {
    let world = Toy::new();
    let good = record::encode(&held(&[(GPU, share("a")), (GPU, share("b"))], "-:100"));
    // The state of share a's claim.
    let bad = record::with_checksum(&good.replacen("\theld\t", "\tlost\t", 1));
    assert!(record::decode(&bad).is_err());
    let mut book = record::scan(bad).unwrap();
    world.kill(100);
    let refused = take(&mut book, GPU, share("a"), "-:100", 1, &world);
    assert_eq!(refused, Err(Refused::Unreadable(share("a"))));
    take(&mut book, GPU, share("c"), "-:100", 1, &world).unwrap();
    assert_eq!(book.held().count(), 3);
    assert!(record::encode(&book).contains("\tlost\t"), "it is kept as it was found");
    assert!(take(&mut book, GPU, HeldPart::Whole, "-:100", 2, &world).is_err());
}
