//! Which claims fit beside which, and who may take, enter and release.

use super::*;

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
                misfit: Misfit::Slices,
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
    let parts: Vec<(&str, HeldPart)> = (0..9).map(|n| (GPU, share(&n.to_string()))).collect();
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
        ((gpu, HeldPart::Whole), (one, HeldPart::Whole), false),
        ((one, HeldPart::Whole), (gpu, HeldPart::Whole), false),
        ((one, HeldPart::Whole), (gpu, share("a")), false),
        ((gpu, share("a")), (one, share("b")), false),
        ((one, HeldPart::Whole), (one, HeldPart::Whole), false),
        ((one, HeldPart::Whole), (two, HeldPart::Whole), true),
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
        take(&mut book, two, HeldPart::Whole, "10000:100", 1, &world).is_err(),
        "no limit"
    );
    take(&mut book, two, sized("a", "mps:4000:100"), "10000:100", 1, &world).unwrap();
    take(&mut book, other, sized("a", "mps:10000:100"), "10000:100", 2, &world).unwrap();
    let mut book = held(&[(one, HeldPart::Whole)], "10000:100");
    take(&mut book, two, HeldPart::Whole, "10000:100", 1, &world).unwrap();
}

#[test]
fn any_share_is_the_first_that_is_free_and_then_one_whose_holder_is_gone() {
    let (mut book, world) = (book(), Toy::new());
    let shares = || (0..3).flat_map(|n| share(&n.to_string()).shares().to_vec());
    let any = |book: &mut Book, pid: u32| {
        book.take_any(shares(), &ask(HeldPart::Whole, &pid.to_string(), pid), &world)
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
    (made.name, made.holder, made.process, made.state) = (Some("a".into()), Holder::Person, None, ClaimState::Reserved);
    book.take(&made, &world).unwrap();
    let with = |promise: &str| promise.parse().ok();
    assert_eq!(
        book.enter("a", &guest("c", 30), with("mps:20:10"), &world),
        Err(Refused::OtherPromise("a".into()))
    );
    book.enter("a", &guest("c", 30), with("mps:10:10"), &world).unwrap();
}

#[test]
fn a_person_releases_what_cannot_be_seen_and_not_what_runs() {
    let (mut book, world) = (book(), Toy::new());
    let mut inner = ask(share("a"), "one", 10);
    inner.process.as_mut().unwrap().namespace = 2;
    book.take(&inner, &world).unwrap();
    book.take(&ask(share("b"), "two", 11), &world).unwrap();
    let all = book.release_by_hand(|_| true, 0, false, &world);
    let in_use =
        |refused: &Refused| matches!(refused, Refused::InUse { claim, runs: true } if claim.part == share("b"));
    assert!(all.as_ref().is_err_and(in_use), "{all:?}");
    assert_eq!(book.claims.len(), 2, "all or none");
    let one = |claim: &Claim| claim.part == share("a");
    assert!(book.release_by_hand(one, 1000, false, &world).is_err());
    assert_eq!(book.release_by_hand(one, 0, false, &world).unwrap().len(), 1);
    assert_eq!(book.claims.len(), 1);
}

#[test]
fn what_a_container_held_before_is_released_first() {
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
    let made = |part: HeldPart| Ask {
        name: Some("n".into()),
        holder: Holder::Person,
        process: None,
        state: ClaimState::Reserved,
        ttl: Some(60),
        ..ask(part, "", 0)
    };
    book.take(&made(share("a")), &world).unwrap();
    world.uptime.set(159);
    book.collect(&world);
    assert!(book.named("n").is_some());
    world.uptime.set(160);
    book.collect(&world);
    assert_eq!(book.named("n"), None);
}

#[test]
fn no_share_is_free_beside_the_whole_device_or_an_instance_on_it() {
    let (one, two) = ("GPU-11111111/7/0", "GPU-11111111/8/0");
    let free = |held_device: &str, part: HeldPart, device: &str| {
        let book = held(&[(held_device, part)], "-:100");
        book.unheld(&key(device), share("b").shares().to_vec().into_iter())
            .count()
    };
    assert_eq!(free(GPU, share("a"), GPU), 1);
    assert_eq!(free(GPU, share("b"), GPU), 0, "that share is held");
    assert_eq!(free(GPU, HeldPart::Whole, GPU), 0);
    assert_eq!(free(one, share("a"), GPU), 0);
    assert_eq!(free(GPU, share("a"), one), 0);
    assert_eq!(free(one, HeldPart::Whole, two), 1);
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
        ..ask(HeldPart::Whole, id, pid)
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
    let took = book.take_any(shares, &ask(HeldPart::Whole, "c", 10), &world).unwrap();
    assert_eq!(took.name.as_str(), "0");
}

#[test]
fn a_claim_made_beforehand_is_entered_in_time_by_its_user_or_root_beside_other_containers() {
    let world = Toy::new();
    let made = || {
        let mut book = book();
        let made = Ask {
            name: Some("n".into()),
            holder: Holder::Person,
            process: None,
            state: ClaimState::Reserved,
            ttl: Some(60),
            uid: 1000,
            ..ask(share("a"), "", 0)
        };
        book.take(&made, &Toy::new()).unwrap();
        // The other container has a share of the same device.
        book.take(&ask(share("b"), "other", 9), &Toy::new()).unwrap();
        book
    };
    let by = |uid: u32| Ask {
        uid,
        alone: true,
        ..guest("c", 30)
    };
    made().enter("n", &by(1000), None, &world).unwrap();
    let mut for_root = made();
    for_root.claims.iter_mut().for_each(|claim| claim.for_root = true);
    for_root.enter("n", &by(0), None, &world).unwrap();
    let refused = made().enter("n", &by(1001), None, &world);
    assert!(matches!(refused, Err(Refused::NotYours(_))), "{refused:?}");
    world.uptime.set(160);
    assert_eq!(
        made().enter("n", &by(1000), None, &world),
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
        let by_engine = of_1000().release(&Holder::Container(container("c")), uid, &world);
        assert_eq!(by_engine, usize::from(may), "{uid}");
        let by_hand = of_1000().release_by_hand(|_| true, uid, false, &world);
        assert_eq!(by_hand.is_ok(), may, "{uid}: {by_hand:?}");
    }
}

#[test]
fn how_many_free_shares_fit_together() {
    let shares = |of: &[&str]| -> Vec<HeldShare> {
        let part = |text: &&str| sized(text.split_once('=').unwrap().0, text.split_once('=').unwrap().1);
        of.iter().flat_map(|text| part(text).shares().to_vec()).collect()
    };
    let bounds: Bounds = "10000:100".parse().unwrap();
    for (held_part, asked, fit) in [
        ("mps:1:1", &["a=mps:1:1", "b=mps:1:1"][..], 2),
        // Each of them fits alone, and the two smaller ones together.
        ("mps:5000:50", &["a=mps:3000:30", "b=mps:2000:20", "c=mps:4000:10"], 2),
        ("mps:5000:50", &["a=mps:5000:1", "b=mps:5000:1"], 1),
        ("mps:5000:50", &["a=mps:5001:1"], 0),
        ("mps:5000:50", &[], 0),
        ("mps:-:-", &["a=mps:-:-", "b=mps:-:-"], 2),
    ] {
        let book = held(&[(GPU, sized("0", held_part))], "10000:100");
        let found = book.fit_together(&GPU.parse().unwrap(), shares(asked), bounds);
        assert_eq!(found, fit, "{asked:?} beside {held_part}");
    }
}
