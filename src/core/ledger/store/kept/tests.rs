//! A reboot is the loss of the ledger: all of its directory but what is kept.

use super::*;
use crate::claims::Claims;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Bounds, Change, ContainerName, HeldPart, PodName};
use std::fs;
use std::path::PathBuf;

const GPU: &str = "GPU-11111111";

fn pod(name: &str) -> PodName {
    PodName {
        namespace: "shop".into(),
        name: name.into(),
    }
}

fn ask(share: &str, name: Option<String>) -> Ask {
    Ask {
        device: GPU.parse().unwrap(),
        part: HeldPart::share(share.parse().unwrap(), "1/10".parse().unwrap()),
        bounds: Bounds::default(),
        asked_as: None,
        state: ClaimState::Reserved,
        holder: Holder::Person,
        once: false,
        process: None,
        name,
        for_root: false,
        alone: false,
        uid: 0,
        ttl: None,
        spec_file: None,
    }
}

fn reserve(ledger: &Ledger, share: &str, name: &str) {
    let machine = Machine::here().unwrap();
    let ask = ask(share, Some(name.to_owned()));
    let locked = ledger.lock().unwrap();
    locked
        .change(&ask.device.clone(), |book| {
            Ok((book.take(&ask, &machine)?, Change::Made))
        })
        .unwrap();
    assert!(locked.keep(|_| true).unwrap().is_empty());
}

fn reboot(state_dir: &Path) -> Ledger {
    fs::remove_dir_all(state_dir.join("ledger")).unwrap();
    Ledger::open(state_dir).unwrap()
}

/// Who has what, after the ledger was locked once.
fn held(ledger: &Ledger) -> Vec<String> {
    drop(ledger.lock().unwrap());
    let books = ledger.books().unwrap();
    let mut held: Vec<String> = books.claims().map(|c| format!("{} {}", c.who(), c.part)).collect();
    held.sort();
    held
}

#[test]
fn a_pod_has_its_shares_again_after_a_reboot_and_nobody_else_does() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    reserve(&ledger, "b", "train");
    let machine = Machine::here().unwrap();
    let locked = ledger.lock().unwrap();
    let user = Ask {
        holder: Holder::Container(ContainerName {
            bundle: "/b".into(),
            id: "c".into(),
        }),
        process: Some(machine.process(std::process::id()).unwrap()),
        ..ask("a", None)
    };
    let name = pod("web-0").claim_on("GPU-11111111.a");
    locked
        .change(&user.device.clone(), |book| {
            Ok((book.enter(&name, &user, None, &machine)?, Change::Made))
        })
        .unwrap();
    locked.keep(|_| true).unwrap();
    drop(locked);
    let after = reboot(top.path());
    assert_eq!(
        held(&after),
        ["pod shop/web-0 share a"],
        "a claim of a person ends with the machine"
    );
    let claim = after.books().unwrap().books[0].claims[0].clone();
    assert_eq!((claim.state, claim.process), (ClaimState::Reserved, None));
}

#[test]
fn one_who_only_looks_sees_what_was_kept() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    assert!(!is_pending(Some(&ledger), top.path()), "nothing was kept");
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    fs::remove_dir_all(top.path().join("ledger")).unwrap();
    let seen = Ledger::existing(top.path()).unwrap().unwrap().books().unwrap();
    assert_eq!(
        seen.claims().map(|claim| claim.who()).collect::<Vec<_>>(),
        ["pod shop/web-0"]
    );
    assert!(!is_pending(Some(&ledger), &top.path().join("other")));
}

/// The first one after a boot may ask for a ledger that another program has just made and not filled yet.
#[test]
fn one_who_only_looks_sees_what_was_kept_in_a_ledger_that_is_new() {
    let top = tempfile::tempdir().unwrap();
    let name = pod("web-0").claim_on("GPU-11111111.a");
    reserve(&Ledger::open(top.path()).unwrap(), "a", &name);
    drop(reboot(top.path()));
    let seen = Claims::open(top.path()).unwrap().books().unwrap();
    assert_eq!(seen.claims().count(), 1);
}

#[test]
fn what_is_kept_is_read_once_in_a_boot() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    let after = reboot(top.path());
    assert_eq!(held(&after).len(), 1);
    // Released by hand: it does not come back before the next boot.
    after
        .lock()
        .unwrap()
        .change(&GPU.parse().unwrap(), |book| {
            book.claims.clear();
            Ok(((), Change::Made))
        })
        .unwrap();
    assert!(held(&after).is_empty());
}

#[test]
fn what_is_given_up_is_kept_no_longer() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    reserve(&ledger, "b", &pod("web-1").claim_on("GPU-11111111.b"));
    let give_up = |name: &str, id: &str| {
        let claims = Claims::open(top.path()).unwrap();
        claims.lock().unwrap().give_up(&pod(name), &[id.to_owned()]).unwrap()
    };
    give_up("web-0", "GPU-11111111.a");
    assert_eq!(held(&ledger), ["pod shop/web-1 share b"]);
    assert_eq!(held(&reboot(top.path())), ["pod shop/web-1 share b"]);
    give_up("web-1", "GPU-11111111.b");
    assert!(held(&reboot(top.path())).is_empty());
}

#[test]
fn a_damaged_file_is_set_aside_where_the_ledger_knows_better() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    let kept = top.path().join("kept/ledger");
    let file = kept.join("GPU-11111111.claims");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("web-0", "web-9")).unwrap();
    let locked = ledger.lock().unwrap();
    assert_eq!(locked.keep(|_| true).unwrap().len(), 1);
    assert!(kept.join("GPU-11111111.claims.damaged").exists());
    assert!(locked.keep(|_| true).unwrap().is_empty(), "it is said once");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

/// What a pod has may not be given to another, and after a boot nobody knows it but this file.
#[test]
fn a_gpu_of_which_a_damaged_file_was_kept_is_refused_alone() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    let kept = top.path().join("kept/ledger");
    let file = kept.join("GPU-11111111.claims");
    let text = fs::read_to_string(&file).unwrap();
    for (share, damaged) in [
        ("a", text.replace("web-0", "web-9")),
        ("b", text.replace("ledger 3", "ledger 9")),
        ("c", String::new()),
    ] {
        fs::write(&file, &damaged).unwrap();
        let after = reboot(top.path());
        let error = reserving(&after, "GPU-11111111", "a").unwrap_err();
        let said = crate::error::line(&Error::from(error));
        assert!(said.contains("GPU-11111111.claims"), "{damaged}: {said}");
        reserving(&after, "GPU-22222222", share).unwrap();
        let unreadable = after.books().unwrap().damaged;
        assert_eq!(unreadable.len(), 1, "{unreadable:?}");
        let problems = after.lock().unwrap().keep(|_| true).unwrap();
        assert_eq!(problems.len(), 1, "{damaged}");
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged, "for a person");
    }
    fs::remove_file(&file).unwrap();
    reserving(&Ledger::open(top.path()).unwrap(), "GPU-11111111", "a").unwrap();
}

#[test]
fn what_somebody_took_first_stays_with_them() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    let kept = top.path().join("kept");
    let away = top.path().join("away");
    fs::rename(&kept, &away).unwrap();
    let after = reboot(top.path());
    reserve(&after, "a", "train");
    fs::rename(&away, &kept).unwrap();
    fs::remove_file(top.path().join("ledger").join(READ)).unwrap();
    assert_eq!(held(&after), ["claim train share a"]);
}

/// The reservation of `share` of `gpu` for a pod, in the books as they are.
fn reserving(ledger: &Ledger, gpu: &str, share: &str) -> LedgerResult<()> {
    let machine = Machine::here().unwrap();
    let locked = ledger.lock().unwrap();
    let mut old = ledger.books().unwrap().books;
    let ask = Ask {
        device: gpu.parse().unwrap(),
        ..ask(share, Some(pod("web-0").claim_on(&format!("{gpu}.{share}"))))
    };
    if old.iter().all(|book| book.gpu != *ask.device.gpu()) {
        old.push(locked.empty_book(ask.device.gpu()).unwrap());
    }
    let mut new = old.clone();
    let book = new.iter_mut().find(|book| book.gpu == *ask.device.gpu()).unwrap();
    book.take(&ask, &machine).unwrap();
    locked.replace(&old, &new)
}

/// In the place of the file of `gpu`, so that it cannot be written.
fn in_the_place_of(top: &Path, gpu: &str) -> PathBuf {
    let place = top.join("kept/ledger").join(Ledger::name_of(&gpu.parse().unwrap()));
    let _ = fs::remove_file(&place);
    let aside = PathBuf::from(format!("{}{ASIDE}", place.display()));
    for directory in [&place, &aside] {
        fs::create_dir_all(directory.join("x")).unwrap();
    }
    place
}

/// A pod that was refused has nothing, and nobody loses at the next boot what was promised.
#[test]
fn what_cannot_be_kept_is_not_reserved() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserving(&ledger, GPU, "a").unwrap();
    let place = in_the_place_of(top.path(), GPU);
    let refused = reserving(&ledger, GPU, "b").unwrap_err();
    assert!(refused.to_string().contains("cannot be replaced"), "{refused}");
    assert_eq!(ledger.books().unwrap().claims().count(), 1, "b was refused");
    // No half of a file is left either.
    let left: Vec<_> = fs::read_dir(top.path().join("kept/ledger")).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // With room again, it is made and kept, with what was there before.
    fs::remove_dir_all(place).unwrap();
    reserving(&ledger, GPU, "b").unwrap();
    assert_eq!(held(&reboot(top.path())).len(), 2);
}

/// What cannot be written into the ledger is not kept either.
#[test]
fn what_is_not_reserved_is_not_kept() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserving(&ledger, GPU, "a").unwrap();
    let book = top.path().join("ledger").join(Ledger::name_of(&GPU.parse().unwrap()));
    let text = fs::read(&book).unwrap();
    let kept = top
        .path()
        .join("kept/ledger")
        .join(Ledger::name_of(&GPU.parse().unwrap()));
    let before = fs::read(&kept).unwrap();
    let other = "GPU-22222222";
    let locked = top.path().join("ledger").join(Ledger::name_of(&other.parse().unwrap()));
    fs::create_dir_all(locked.join("x")).unwrap();
    let machine = Machine::here().unwrap();
    let lock = ledger.lock().unwrap();
    let old = vec![lock.empty_book(&other.parse().unwrap()).unwrap()];
    let mut new = old.clone();
    let ask = Ask {
        device: other.parse().unwrap(),
        ..ask("a", Some(pod("web-1").claim_on("x")))
    };
    new[0].take(&ask, &machine).unwrap();
    lock.replace(&old, &new).unwrap_err();
    assert_eq!((fs::read(&book).unwrap(), fs::read(&kept).unwrap()), (text, before));
    assert!(!kept.with_file_name(Ledger::name_of(&other.parse().unwrap())).exists());
}

/// A GPU whose file cannot be written refuses what is asked of that GPU alone.
#[test]
fn a_file_that_cannot_be_written_refuses_its_own_gpu_alone() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserving(&ledger, GPU, "a").unwrap();
    let kept = top
        .path()
        .join("kept/ledger")
        .join(Ledger::name_of(&GPU.parse().unwrap()));
    fs::remove_file(&kept).unwrap();
    in_the_place_of(top.path(), GPU);
    reserving(&ledger, "GPU-22222222", "a").unwrap();
    let locked = ledger.lock().unwrap();
    let wrong = locked.keep(|gpu| gpu.to_string() == "GPU-22222222").unwrap();
    assert!(!wrong.is_empty(), "{wrong:?}");
    locked.keep(|gpu| gpu.to_string() == GPU).unwrap_err();
}

/// The same where it is the ledger's file that cannot be written after a boot: what was promised is not lost by it.
#[test]
fn a_gpu_whose_reservations_cannot_be_restored_is_refused_alone() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    let other = "GPU-22222222";
    for gpu in [GPU, other] {
        reserving(&ledger, gpu, "a").unwrap();
    }
    fs::remove_dir_all(top.path().join("ledger")).unwrap();
    let after = Ledger::open(top.path()).unwrap();
    let place = top.path().join("ledger").join(Ledger::name_of(&GPU.parse().unwrap()));
    fs::create_dir_all(place.join("x")).unwrap();
    reserving(&after, other, "b").unwrap();
    let refused = Error::from(reserving(&after, GPU, "b").unwrap_err());
    assert!(
        crate::error::line(&refused).contains("before the last boot"),
        "{refused}"
    );
    let locked = after.lock().unwrap();
    locked.keep(|gpu| gpu.to_string() == other).unwrap();
    drop(locked);
    fs::remove_dir_all(&place).unwrap();
    drop(after.lock().unwrap());
    assert_eq!(held(&after).len(), 3, "{:?}", held(&after));
    reserving(&after, GPU, "b").unwrap();
}
