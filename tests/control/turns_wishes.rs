//! Sees the calls of programs that are really suspended.

use super::turns_driver::{PATIENCE, driver, identity, resume, suspend};
use crate::support::fake_turns::FakeTurns;
use crate::support::skip::not_run;
use std::time::{Duration, Instant};
use tranche_turns::wishes::{HostLibrary, Wishes};

const MIB: u64 = 1 << 20;
const GOAL: Duration = Duration::from_millis(50);

#[test]
fn a_suspended_program_wants_the_gpu_when_it_or_a_new_thread_calls_it() {
    let fake = FakeTurns::new(20, None, &[]);
    let wishes = HostLibrary::at(&fake.library()).and_then(|library| Wishes::new(library, 200));
    let mut wishes = match wishes {
        Ok(wishes) => wishes,
        Err(reason) => return not_run("turns_wishes::a_suspended_program_wants_the_gpu", &reason.to_string()),
    };
    let driver = driver(&fake);
    let (mut client, mut silent) = (fake.client(MIB), fake.client(MIB));
    let (process, other) = (identity(client.pid()), identity(silent.pid()));
    let mut times = Vec::new();
    for words in ["call", "thread"].repeat(5) {
        wishes.forget(process);
        for one in [process, other] {
            wishes.watch(one).unwrap();
        }
        suspend(&driver, &client);
        suspend(&driver, &silent);
        assert_eq!(wishes.wait(Duration::from_millis(50)).unwrap(), []);
        let began = Instant::now();
        client.tell(words);
        assert_eq!(wishes.wait(PATIENCE).unwrap(), [process], "{words}");
        times.push((words, began.elapsed()));
        assert!(!client.says_something_in(Duration::from_millis(20)), "its call waits");
        resume(&driver, process);
        assert_ne!(client.read(), "");
        resume(&driver, other);
    }
    assert_eq!(silent.ask("check"), "good");
    // The shortest of each: others may use this machine.
    for words in ["call", "thread"] {
        let of = times.iter().filter(|(of, _)| *of == words).map(|(_, time)| *time);
        assert!(of.min() < Some(GOAL), "{times:?}");
    }
}
