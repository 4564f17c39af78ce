//! A reboot is the loss of the ledger: all of its directory but what is kept.

use super::*;
use crate::claims::Claims;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Bounds, Change, ContainerName, HeldPart, PodName};
use std::fs;

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
    assert!(locked.keep().unwrap().is_empty());
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
    locked.keep().unwrap();
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
fn a_damaged_file_costs_its_own_gpu_alone_and_is_set_aside() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    reserve(&ledger, "a", &pod("web-0").claim_on("GPU-11111111.a"));
    let kept = top.path().join("kept/ledger");
    let file = kept.join("GPU-11111111.claims");
    let text = fs::read_to_string(&file).unwrap();
    for damaged in [
        text.replace("web-0", "web-9"),
        text.replace("ledger 3", "ledger 9"),
        String::new(),
    ] {
        fs::write(&file, &damaged).unwrap();
        let after = reboot(top.path());
        assert!(held(&after).is_empty(), "{damaged}");
        let locked = after.lock().unwrap();
        let problems = locked.keep().unwrap();
        assert_eq!(problems.len(), 1, "{damaged}");
        assert!(!file.exists() && kept.join("GPU-11111111.claims.damaged").exists());
        assert!(locked.keep().unwrap().is_empty(), "it is said once");
    }
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
