//! Real processes with a fake of the driver's library.

use super::*;
use crate::fake_turns::{FakeTurns, TurnsClient};
use crate::skip::not_run;

const MIB: u64 = 1 << 20;
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(30);

fn wishes(fake: &FakeTurns, most: usize) -> Option<Wishes> {
    let library = HostLibrary::at(&fake.library());
    match library.and_then(|library| Wishes::new(library, most)) {
        Ok(wishes) => Some(wishes),
        Err(reason @ (NoWishes::NoProbes | NoWishes::Refused(_))) => {
            not_run("wishes::a_call_is_seen", &reason.to_string());
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn identity(client: &TurnsClient) -> ProcessIdentity {
    ProcessIdentity::of(client.pid()).unwrap().unwrap()
}

#[test]
fn a_call_is_seen_and_those_of_others_are_not() {
    let fake = FakeTurns::new(20, None, &[]);
    let Some(mut wishes) = wishes(&fake, 10) else {
        return;
    };
    let (mut wants, mut silent, mut unwatched) = (fake.client(MIB), fake.client(MIB), fake.client(MIB));
    let (first, second) = (identity(&wants), identity(&silent));
    wishes.watch(first).unwrap();
    wishes.watch(second).unwrap();
    assert_eq!(unwatched.ask("call"), "called");
    assert_eq!(wishes.wait(SHORT).unwrap(), []);
    let before = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap();
    assert_eq!(wants.ask("call"), "called");
    assert_eq!(wishes.wait(LONG).unwrap(), [first]);
    assert!(wishes.since(first).unwrap() >= before);
    assert_eq!(wishes.since(second), None);
    // Its wish is known, so further calls say nothing.
    assert_eq!(wants.ask("call"), "called");
    assert_eq!(wishes.wait(SHORT).unwrap(), []);
    wishes.forget(first);
    assert_eq!(wishes.since(first), None);
    wishes.watch(first).unwrap();
    assert_eq!(wants.ask("thread"), "threaded");
    assert_eq!(wishes.wait(LONG).unwrap(), [first]);
    assert_eq!(silent.ask("check"), "good");
    assert_eq!(wishes.wait(LONG).unwrap(), [second]);
}

#[test]
fn more_calls_than_there_is_room_for_are_seen_once() {
    let fake = FakeTurns::new(20, None, &[]);
    let Some(mut wishes) = wishes(&fake, 10) else {
        return;
    };
    let mut client = fake.client(MIB);
    let process = identity(&client);
    for _ in 0..3 {
        wishes.watch(process).unwrap();
        assert_ne!(client.ask("many 5000"), "");
        assert_eq!(wishes.wait(LONG).unwrap(), [process]);
        // These may be made before its probes are removed.
        assert_ne!(client.ask("many 5000"), "");
        assert_eq!(wishes.wait(SHORT).unwrap(), []);
        wishes.forget(process);
    }
}

#[test]
fn a_process_with_another_library_is_not_probed() {
    let (fake, own) = (FakeTurns::new(20, None, &[]), FakeTurns::new(20, None, &[]));
    let Some(mut wishes) = wishes(&fake, 10) else {
        return;
    };
    let client = own.client(MIB);
    let process = identity(&client);
    assert_eq!(wishes.watch(process), Err(NoWishes::OtherLibrary(process.pid)));
    let me = ProcessIdentity::of(std::process::id().cast_signed()).unwrap().unwrap();
    assert_eq!(wishes.watch(me), Err(NoWishes::OtherLibrary(me.pid)));
}

#[test]
fn the_number_of_watched_processes_is_bounded() {
    let fake = FakeTurns::new(20, None, &[]);
    let Some(mut wishes) = wishes(&fake, 1) else {
        return;
    };
    let (mut client, other) = (fake.client(MIB), fake.client(MIB));
    let (process, second) = (identity(&client), identity(&other));
    wishes.watch(process).unwrap();
    wishes.watch(process).unwrap();
    assert_eq!(wishes.watch(second), Err(NoWishes::TooMany(1)));
    assert_eq!(client.ask("call"), "called");
    assert_eq!(wishes.wait(LONG).unwrap(), [process]);
    assert_eq!(wishes.watch(second), Err(NoWishes::TooMany(1)), "its wish is kept");
    wishes.forget(process);
    wishes.watch(second).unwrap();
}

#[test]
fn a_process_that_has_ended_is_not_watched() {
    let fake = FakeTurns::new(20, None, &[]);
    let Some(mut wishes) = wishes(&fake, 10) else {
        return;
    };
    let mut client = fake.client(MIB);
    let process = identity(&client);
    wishes.watch(process).unwrap();
    client.kill();
    assert_eq!(wishes.wait(SHORT).unwrap(), []);
    assert_eq!(wishes.since(process), None);
    wishes.forget(process);
    assert_eq!(wishes.watch(process), Err(NoWishes::Ended(process.pid)));
}

#[test]
fn a_library_without_the_functions_is_named() {
    let top = tempfile::tempdir().unwrap();
    let none = HostLibrary::at(&top.path().join("none")).unwrap_err().to_string();
    let other = HostLibrary::at(std::path::Path::new("/proc/self/exe"))
        .unwrap_err()
        .to_string();
    assert!(none.contains("No such file"), "{none}");
    assert!(other.contains("exports none"), "{other}");
}
