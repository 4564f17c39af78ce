use super::*;
use crate::ledger::{Ask, Bounds, Change, ContainerName, World};
use crate::types::{GpuUuid, ShareName};
use std::fs;
use std::path::Path;

const GPU: &str = "GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab";

/// Nobody ends, and it is second 100 of the machine.
struct Still;

impl World for Still {
    fn is_gone(&self, _: &crate::ledger::InitProcess) -> bool {
        false
    }
    fn lives(&self, _: &crate::ledger::InitProcess) -> bool {
        true
    }
    fn now(&self) -> u64 {
        1_000
    }
    fn uptime(&self) -> u64 {
        100
    }
}

fn device() -> DeviceKey {
    DeviceKey::whole(GPU.parse::<GpuUuid>().unwrap())
}

fn share(number: u32) -> HeldPart {
    HeldPart::share(ShareName::replica(number), "1/5000".parse().unwrap())
}

fn ask(number: u32, id: &str) -> Ask {
    Ask {
        device: device(),
        part: share(number),
        bounds: Bounds::default(),
        asked_as: Some("nvidia.com/gpu=0.any".into()),
        spec_file: Some("/etc/cdi/secret.json".into()),
        name: None,
        holder: Holder::Container(ContainerName {
            bundle: "/run/bundle of it".into(),
            id: id.into(),
        }),
        process: None,
        state: ClaimState::Held,
        once: true,
        for_root: false,
        alone: false,
        uid: 7,
        ttl: None,
    }
}

/// A state directory in which a history is wanted.
fn state() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join(DIRECTORY)).unwrap();
    top
}

fn log(state: &Path) -> String {
    fs::read_to_string(state.join("events/log")).unwrap_or_default()
}

fn events(state: &Path) -> Vec<Event> {
    let text = log(state);
    let events = text.lines().filter_map(|line| match parse(line) {
        EventLine::Event(event) => Some(*event),
        _ => None,
    });
    events.collect()
}

fn take(ledger: &Ledger, uptime: u64, number: u32, id: &str) {
    let locked = ledger.lock().unwrap().recording(uptime);
    let taken = locked.change_scanned(&device(), |book| {
        book.take(&ask(number, id), &Still)?;
        Ok(((), Change::Made))
    });
    taken.unwrap();
}

fn release(ledger: &Ledger, uptime: u64, id: &str) {
    let locked = ledger.lock().unwrap().recording(uptime);
    let released = locked.change_each(|book| {
        book.claims
            .retain(|claim| claim.holder.container().is_none_or(|name| name.id != id));
        Change::Made
    });
    assert!(released.unwrap().is_empty());
}

#[test]
fn each_change_is_a_line_and_has_names_alone() {
    let top = state();
    let ledger = Ledger::open(top.path()).unwrap();
    take(&ledger, 100, 3, "one");
    take(&ledger, 101, 4, "two");
    // It is the same claim.
    take(&ledger, 102, 4, "two");
    release(&ledger, 110, "one");
    let found: Vec<(EventKind, u64, String)> = events(top.path())
        .into_iter()
        .map(|event| (event.kind, event.uptime, event.claim.unwrap().with_part()))
        .collect();
    let expected = [
        (EventKind::Began, 100, "container one on share 3".to_owned()),
        (EventKind::Began, 101, "container two on share 4".to_owned()),
        (EventKind::Ended, 110, "container one on share 3".to_owned()),
    ];
    assert_eq!(found, expected);
    let text = log(top.path());
    assert!(!text.contains("secret") && !text.contains("bundle"), "{text}");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(
        parse(text.lines().next().unwrap()),
        EventLine::Boot(boot.trim().to_owned())
    );
}

#[test]
fn nothing_is_recorded_where_nobody_wants_a_history() {
    let top = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(top.path()).unwrap();
    take(&ledger, 100, 3, "one");
    assert!(!top.path().join(DIRECTORY).exists());
    // A directory that another user may write is not used.
    fs::create_dir(top.path().join(DIRECTORY)).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(top.path().join(DIRECTORY), open).unwrap();
    take(&ledger, 100, 4, "two");
    assert_eq!(fs::read_dir(top.path().join(DIRECTORY)).unwrap().count(), 0);
    assert_eq!(ledger.books().unwrap().claims().count(), 2);
}

#[test]
fn a_claim_of_a_person_that_is_used_has_changed() {
    let old = {
        let mut book = Book::new(GPU.parse().unwrap());
        book.take(&ask(1, "one"), &Still).unwrap();
        book.take(&ask(2, "two"), &Still).unwrap();
        book.take(&ask(3, "three"), &Still).unwrap();
        book.claims
    };
    let mut new = old.clone();
    new[1].state = ClaimState::Reserved;
    new[1].holder = Holder::Person;
    let same: Vec<EventKind> = differences(&old, &new).map(|(kind, _)| kind).collect();
    assert_eq!(same, [EventKind::Changed]);
    // In any order.
    new.rotate_left(1);
    new.pop();
    let kinds: Vec<(EventKind, &HeldPart)> = differences(&old, &new)
        .map(|(kind, claim)| (kind, &claim.part))
        .collect();
    assert_eq!(kinds, [(EventKind::Ended, &share(1)), (EventKind::Changed, &share(2))]);
}

/// Whatever of the last line is on disk: the lines before it are read, and so are those after it.
#[test]
fn half_a_line_costs_that_line() {
    let top = state();
    let ledger = Ledger::open(top.path()).unwrap();
    take(&ledger, 100, 1, "one");
    let before = log(top.path());
    take(&ledger, 101, 2, "two");
    let whole = log(top.path());
    for cut in before.len()..whole.len() {
        fs::write(top.path().join("events/log"), &whole[..cut]).unwrap();
        let read = events(top.path()).len();
        assert_eq!(read, if cut == whole.len() - 1 { 2 } else { 1 }, "{cut}");
        release(&ledger, 102, "two");
        let found: Vec<EventKind> = events(top.path()).iter().map(|event| event.kind).collect();
        assert_eq!(
            found.first().zip(found.last()),
            Some((&EventKind::Began, &EventKind::Ended)),
            "{cut}"
        );
        take(&ledger, 101, 2, "two");
    }
}

#[test]
fn a_file_that_has_grown_is_followed_by_another() {
    let top = state();
    let ledger = Ledger::open(top.path()).unwrap();
    for number in 0..4 {
        take(&ledger, 100, number, "one");
        let grown = log(top.path()) + &"x".repeat(usize::try_from(MOST_BYTES).unwrap());
        fs::write(top.path().join("events/log"), grown).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(top.path().join(DIRECTORY))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, FILES);
    for name in names {
        let text = fs::read_to_string(top.path().join(DIRECTORY).join(&name)).unwrap();
        assert!(
            matches!(parse(text.lines().next().unwrap()), EventLine::Boot(_)),
            "{name}"
        );
    }
}

#[test]
fn a_list_of_all_that_is_held_has_its_end() {
    let top = state();
    let ledger = Ledger::open(top.path()).unwrap();
    take(&ledger, 100, 1, "one");
    take(&ledger, 100, 2, "two");
    fs::write(top.path().join("events/log"), "").unwrap();
    ledger.lock().unwrap().recording(200).note_all().unwrap();
    let found: Vec<(EventKind, u64)> = events(top.path())
        .iter()
        .map(|event| (event.kind, event.value))
        .collect();
    assert_eq!(
        found,
        [(EventKind::Holds, 0), (EventKind::Holds, 0), (EventKind::Checked, 2)]
    );
}

#[test]
fn what_is_long_or_hostile_stays_one_bounded_line() {
    let mut book = Book::new(GPU.parse().unwrap());
    let shares = (0..5_000).map(|number| share(number).shares()[0].clone());
    let long = "\n\t\\\u{1b}[31m".repeat(1_000);
    let hostile = Ask {
        part: HeldPart::Shares(shares.collect()),
        name: Some(long.clone()),
        asked_as: Some(long.clone()),
        ..ask(1, &long)
    };
    book.take(&hostile, &Still).unwrap();
    let text = encode_one(&book.claims[0]);
    assert!(
        text.len() < 8 << 10 && text.matches('\n').count() == 1,
        "{}",
        text.len()
    );
    let EventLine::Event(event) = parse(text.trim_end_matches('\n')) else {
        panic!("{text}");
    };
    assert!(long.starts_with(event.claim.unwrap().name.unwrap().as_str()));
}

fn encode_one(claim: &Claim) -> String {
    line::encode(EventKind::Began, [1, 2, 0], Some(claim))
}

#[test]
fn a_newer_file_and_unknown_kinds_are_not_guessed() {
    assert_eq!(parse("tranche-events 2 x"), EventLine::Newer(2));
    for line in [
        "",
        "began",
        "began\t1\t2\t0\t",
        "flew\t1\t2\t0\t",
        "checked\t1\t2\t\u{30}x\t",
    ] {
        assert_eq!(parse(line), EventLine::Unknown, "{line:?}");
    }
    assert!(matches!(parse("checked\t1\t2\t0\t"), EventLine::Event(_)));
}
