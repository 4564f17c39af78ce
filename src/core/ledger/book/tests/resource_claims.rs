//! What is reserved for a resource claim: all containers of the claim use it together, and nobody else does.

use super::*;
use crate::ledger::KubernetesObject;

fn train() -> KubernetesObject {
    KubernetesObject {
        namespace: "lab".into(),
        name: "train".into(),
        uid: "8a1c2d3e".into(),
    }
}

fn reserved(part: HeldPart, name: &str) -> Ask {
    Ask {
        name: Some(train().claim_on(name)),
        holder: Holder::ResourceClaim(train()),
        process: None,
        state: ClaimState::Reserved,
        once: false,
        ..ask(part, "", 0)
    }
}

fn limited(name: &str, memory: u32, compute: u32) -> HeldPart {
    sized(name, &format!("mps:{memory}:{compute}"))
}

/// A book with two containers that use one claim.
fn shared(part: &HeldPart, world: &Toy) -> Book {
    let mut book = book();
    book.take(&reserved(part.clone(), "gpu-0"), world).unwrap();
    for (id, pid) in [("one", 10), ("two", 11)] {
        book.enter(&train().claim_on("gpu-0"), &ask(part.clone(), id, pid), None, world)
            .unwrap();
    }
    book
}

#[test]
fn several_containers_use_one_claim_and_count_once() {
    let world = Toy::new();
    let mut book = shared(&limited("s", 6000, 60), &world);
    assert_eq!((book.claims.len(), book.held().count(), book.is_sound()), (3, 1, true));
    let bounds = Bounds {
        memory: Some(crate::types::MemorySize::from_mib(10_000)),
        ..Bounds::default()
    };
    let rest = Ask {
        bounds,
        ..ask(limited("t", 4000, 40), "three", 12)
    };
    book.take(&rest, &world).unwrap();
    let more = Ask {
        bounds,
        ..ask(limited("u", 1, 0), "four", 13)
    };
    assert!(matches!(book.take(&more, &world), Err(Refused::Misfit { .. })));
}

#[test]
fn nobody_else_gets_what_a_claim_has_and_the_refusal_names_it() {
    let world = Toy::new();
    let mut book = shared(&HeldPart::Whole, &world);
    let refused = book.take(&guest("podman", 20), &world).unwrap_err().to_string();
    assert!(refused.contains("resource claim lab/train"), "{refused}");
    let other = KubernetesObject {
        uid: "9b".into(),
        ..train()
    };
    let other = Ask {
        name: Some(other.claim_on("gpu-0")),
        holder: Holder::ResourceClaim(other),
        ..reserved(HeldPart::Whole, "gpu-0")
    };
    assert!(matches!(book.take(&other, &world), Err(Refused::Taken { .. })));
}

#[test]
fn to_prepare_and_to_join_twice_changes_nothing() {
    let world = Toy::new();
    let mut book = shared(&HeldPart::Whole, &world);
    let before = book.clone();
    book.take(&reserved(HeldPart::Whole, "gpu-0"), &world).unwrap();
    book.enter(&train().claim_on("gpu-0"), &guest("two", 11), None, &world)
        .unwrap();
    assert_eq!(book, before);
    let impostor = book.enter(&train().claim_on("gpu-0"), &guest("two", 99), None, &world);
    assert!(matches!(impostor, Err(Refused::Taken { .. })), "the first one lives");
    world.kill(11);
    book.enter(&train().claim_on("gpu-0"), &guest("two", 99), None, &world)
        .unwrap();
    assert_eq!(book.claims.len(), 3);
}

#[test]
fn it_stays_reserved_after_its_containers_until_it_is_given_up() {
    let world = Toy::new();
    let mut book = shared(&HeldPart::Whole, &world);
    world.kill(10);
    assert_eq!(book.collect(&world), 1);
    world.kill(11);
    assert_eq!(book.release(&ask(HeldPart::Whole, "two", 11).holder, 0, &world), 1);
    assert_eq!((book.claims.len(), book.claims[0].state), (1, ClaimState::Reserved));
    book.give_up(&[train().claim_on("gpu-0")], &world);
    assert!(book.claims.is_empty());
}

#[test]
fn a_claim_that_is_given_up_under_a_running_container_ends_with_it() {
    for by_release in [false, true] {
        let world = Toy::new();
        let mut book = shared(&HeldPart::Whole, &world);
        book.give_up(&[train().claim_on("gpu-0")], &world);
        assert_eq!((book.claims.len(), book.is_sound()), (3, true));
        let late = book.enter(&train().claim_on("gpu-0"), &guest("late", 12), None, &world);
        assert!(matches!(late, Err(Refused::NoSuchClaim(_))), "{late:?}");
        assert!(matches!(
            book.take(&guest("podman", 20), &world),
            Err(Refused::Taken { .. })
        ));
        world.kill(10);
        match by_release {
            true => drop(book.release(&guest("one", 10).holder, 0, &world)),
            false => drop(book.collect(&world)),
        }
        assert_eq!((book.claims.len(), book.is_sound()), (2, true), "the second one runs");
        world.kill(11);
        book.take(&guest("podman", 20), &world).unwrap();
        assert_eq!(book.claims.len(), 1);
    }
}

#[test]
fn a_claim_that_was_given_up_and_is_prepared_again_stays() {
    let world = Toy::new();
    let mut book = shared(&HeldPart::Whole, &world);
    book.give_up(&[train().claim_on("gpu-0")], &world);
    book.take(&reserved(HeldPart::Whole, "gpu-0"), &world).unwrap();
    book.enter(&train().claim_on("gpu-0"), &guest("three", 12), None, &world)
        .unwrap();
    [10, 11, 12].into_iter().for_each(|pid| world.kill(pid));
    book.collect(&world);
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn what_others_have_joined_stays_where_only_starts_are_looked_at() {
    let world = Toy::new();
    let mut whole = shared(&HeldPart::Whole, &world);
    whole.give_up(&[train().claim_on("gpu-0")], &world);
    let mut book = record::scan(record::encode(&whole)).unwrap();
    book.collect_failed_starts(&world);
    assert_eq!(book.held().count(), 1);
    assert!(matches!(
        book.take(&guest("podman", 20), &world),
        Err(Refused::Taken { .. })
    ));
    [10, 11].into_iter().for_each(|pid| world.kill(pid));
    let mut book = record::scan(record::encode(&whole)).unwrap();
    book.take(&guest("podman", 20), &world).unwrap();
    assert_eq!(book.held().count(), 1);
}

#[test]
fn a_start_that_fails_leaves_the_claim_to_the_others() {
    let world = Toy::new();
    let mut book = shared(&HeldPart::Whole, &world);
    let failed = ask(HeldPart::Whole, "two", 11);
    assert_eq!(book.release_failed_start(&failed.holder, &failed.device, 0, &world), 1);
    assert_eq!((book.claims.len(), book.is_sound()), (2, true));
}
