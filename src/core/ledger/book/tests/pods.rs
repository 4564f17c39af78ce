//! What is reserved for a pod: every container of the pod may enter it, one after another, and nobody else.

use super::*;

const ID: &str = "GPU-11111111.a";

fn web() -> PodName {
    PodName {
        namespace: "shop".into(),
        name: "web-0".into(),
    }
}

fn reserve(book: &mut Book, part: HeldPart, id: &str, world: &Toy) -> Result<(), Refused> {
    let reserved = Ask {
        name: Some(web().claim_on(id)),
        holder: Holder::Person,
        process: None,
        state: ClaimState::Reserved,
        once: false,
        ..ask(part, "", 0)
    };
    book.take(&reserved, world)
}

/// The claim that a container of `pod` enters for `part`.
fn found(book: &mut Book, pod: &PodName, part: &HeldPart, world: &Toy) -> Option<String> {
    book.reserved_for(pod, &key("GPU-11111111"), |held| held == part, world)
}

#[test]
fn a_pod_keeps_what_it_has_from_container_to_container() {
    let (mut book, world) = (book(), Toy::new());
    reserve(&mut book, share("a"), ID, &world).unwrap();
    let refused = book.take(&ask(share("a"), "one", 9), &world).unwrap_err().to_string();
    assert!(refused.starts_with("pod shop/web-0 holds share a since"), "{refused}");
    for (id, pid) in [("init", 10), ("app", 11), ("app-again", 12)] {
        let name = found(&mut book, &web(), &share("a"), &world).unwrap();
        book.enter(&name, &ask(share("a"), id, pid), "1/10".parse().ok(), &world)
            .unwrap();
        assert_eq!(book.claims[0].state, ClaimState::Held);
        let second = book.enter(&name, &ask(share("a"), "other", 77), None, &world);
        assert!(matches!(second, Err(Refused::Taken { .. })), "{second:?}");
        world.kill(pid);
        book.collect(&world);
        assert_eq!(
            (book.claims.len(), book.claims[0].state, book.claims[0].who().as_str()),
            (1, ClaimState::Reserved, "pod shop/web-0"),
            "it waits for the next container"
        );
    }
    assert!(book.is_sound());
}

#[test]
fn another_pod_another_share_and_another_size_find_nothing() {
    let (mut book, world) = (book(), Toy::new());
    reserve(&mut book, share("a"), ID, &world).unwrap();
    let other = PodName {
        name: "web-1".into(),
        ..web()
    };
    assert_eq!(found(&mut book, &other, &share("a"), &world), None);
    assert_eq!(found(&mut book, &web(), &share("b"), &world), None);
    assert_eq!(found(&mut book, &web(), &sized("a", "1/5"), &world), None);
    assert_eq!(found(&mut book, &web(), &HeldPart::Whole, &world), None);
    assert!(found(&mut book, &web(), &share("a"), &world).is_some());
}

#[test]
fn of_several_shares_each_container_finds_one_that_is_not_used() {
    let (mut book, world) = (book(), Toy::new());
    for (name, id) in [("a", ID), ("b", "GPU-11111111.b")] {
        reserve(&mut book, share(name), id, &world).unwrap();
    }
    let any = |book: &mut Book| book.reserved_for(&web(), &key("GPU-11111111"), |_| true, &world);
    let first = any(&mut book).unwrap();
    book.enter(&first, &guest("one", 10), None, &world).unwrap();
    let second = any(&mut book).unwrap();
    assert_ne!(first, second);
    book.enter(&second, &guest("two", 11), None, &world).unwrap();
    world.kill(10);
    assert_eq!(any(&mut book).unwrap(), first);
}

#[test]
fn what_is_given_up_goes_at_once_or_with_the_container_that_uses_it() {
    let (mut book, world) = (book(), Toy::new());
    for (name, id) in [("a", ID), ("b", "GPU-11111111.b")] {
        reserve(&mut book, share(name), id, &world).unwrap();
    }
    let names = [web().claim_on(ID), web().claim_on("GPU-11111111.b")];
    book.enter(&names[0], &guest("one", 10), None, &world).unwrap();
    book.give_up(&names, &world);
    let left: Vec<_> = book.claims.iter().map(|claim| claim.name.clone().unwrap()).collect();
    assert_eq!(left, [names[0].clone()]);
    world.kill(10);
    book.collect(&world);
    assert!(book.claims.is_empty());
}
