//! The queue on a real disk. Two tickets of one process have two locks, as those of two processes do.

use super::*;
use crate::types::{DeviceKey, HeldPart};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

fn wanted(device: &str, shares: &[&str]) -> WaitedFor {
    WaitedFor {
        device: device.parse().unwrap(),
        shares: shares.iter().map(|name| name.parse().unwrap()).collect(),
    }
}

fn ledger() -> (tempfile::TempDir, Ledger) {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    (dir, ledger)
}

fn line_up(ledger: &Ledger, wants: &[WaitedFor]) -> Ticket {
    ledger.lock().unwrap().line_up(wants).unwrap()
}

fn tickets(dir: &Path) -> usize {
    std::fs::read_dir(dir.join("ledger/queue")).unwrap().count()
}

#[test]
fn who_comes_later_is_behind_and_who_leaves_is_gone_at_once() {
    let (dir, ledger) = ledger();
    assert!(ledger.lock().unwrap().waiters().unwrap().is_empty());
    assert!(!dir.path().join("ledger/queue").exists(), "nobody has waited yet");
    let tickets: Vec<Ticket> = (0..3)
        .map(|_| line_up(&ledger, &[wanted("GPU-00000001", &[])]))
        .collect();
    let ahead = tickets.iter().map(|ticket| ticket.ahead().unwrap().len());
    assert_eq!(ahead.collect::<Vec<_>>(), [0, 1, 2]);
    let [first, second, third] = <[Ticket; 3]>::try_from(tickets).unwrap();
    let before = third.ahead().unwrap();
    let mut signs = [0, 1].map(|at| third.leaving(&before[at]).unwrap());
    drop(first);
    let mut read = Vec::new();
    assert_eq!(signs[0].read_to_end(&mut read).unwrap(), 0, "it hangs up");
    let mut other = [PollFd::new(signs[1].as_fd(), PollFlags::empty())];
    assert_eq!(
        poll(&mut other, PollTimeout::from(50_u8)).unwrap(),
        0,
        "the second waits"
    );
    assert_eq!(third.ahead().unwrap(), before[1..]);
    let last = line_up(&ledger, &[]);
    assert_eq!(last.ahead().unwrap().len(), 2);
    drop((second, third, last));
    assert_eq!(self::tickets(dir.path()), 0);
}

#[test]
fn a_ticket_that_is_written_again_keeps_its_place_and_its_time_and_those_behind_look() {
    let (_dir, ledger) = ledger();
    let wants = [wanted("GPU-00000001", &["a"])];
    let (mut first, second) = (line_up(&ledger, &[]), line_up(&ledger, &wants));
    let ahead = second.ahead().unwrap();
    assert!(!ahead[0].competes(&wants), "it waits for nothing yet");
    let since = ledger.queued().unwrap()[0].since;
    let mut sign = second.leaving(&ahead[0]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    first.write_again(&ledger.lock().unwrap(), &wants).unwrap();
    assert_eq!(sign.read_to_end(&mut Vec::new()).unwrap(), 0, "it hangs up");
    let ahead = second.ahead().unwrap();
    assert_eq!((ahead.len(), ahead[0].competes(&wants)), (1, true));
    assert_eq!(ledger.queued().unwrap()[0].since, since);
    drop(first);
    assert_eq!(second.ahead().unwrap(), []);
}

#[test]
fn who_waits_for_what_is_listed_without_a_lock_of_the_ledger() {
    let (dir, ledger) = ledger();
    assert_eq!(ledger.queued().unwrap(), []);
    let before = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let tickets = ["a", "b"].map(|share| line_up(&ledger, &[wanted("GPU-00000001", &[share])]));
    // Left by a process that was killed.
    std::fs::write(dir.path().join("ledger/queue").join(name_of(9)), "[]").unwrap();
    let locked = ledger.lock().unwrap();
    let queued = ledger.queued().unwrap();
    drop(locked);
    let wants: Vec<_> = queued.iter().map(|start| start.wants.clone().unwrap()).collect();
    assert_eq!(
        wants,
        [[wanted("GPU-00000001", &["a"])], [wanted("GPU-00000001", &["b"])]]
    );
    // A file system counts in ticks of the kernel, which may be a second behind.
    assert!(
        queued
            .iter()
            .all(|start| start.pid == std::process::id() && start.since + 1 >= before)
    );
    assert_eq!(tickets[1].ahead().unwrap().len(), 1, "the listing disturbs nobody");
    drop(tickets);
    assert_eq!(ledger.queued().unwrap(), []);
}

#[test]
fn a_ticket_without_a_lock_counts_for_nothing_and_is_removed_under_the_lock() {
    let (dir, ledger) = ledger();
    let live = line_up(&ledger, &[wanted("GPU-00000001", &["a"])]);
    // What processes leave that are killed at different moments, and a file of another program.
    let queue = dir.path().join("ledger/queue");
    for (number, text) in [(2, ""), (3, "[{\"dev"), (4, "[]")] {
        std::fs::write(queue.join(name_of(number)), text).unwrap();
    }
    std::fs::write(queue.join("notes"), "").unwrap();
    let after = line_up(&ledger, &[]);
    assert_eq!(
        (after.number, after.ahead().unwrap().len(), tickets(dir.path())),
        (5, 1, 6)
    );
    let waiters = ledger.lock().unwrap().waiters().unwrap();
    assert_eq!(waiters.iter().map(|w| w.number).collect::<Vec<_>>(), [1, 5]);
    assert_eq!(tickets(dir.path()), 3, "two tickets and the file of the other program");
    drop(live);
}

/// Who was killed waits no more, which is recorded once.
#[test]
fn the_wait_of_a_killed_process_ends_in_the_events() {
    use crate::ledger::events::{EventLine, parse};
    let (dir, ledger) = ledger();
    std::fs::create_dir(dir.path().join("events")).unwrap();
    drop(line_up(&ledger, &[]));
    let ticket = dir.path().join("ledger/queue").join(name_of(7));
    std::fs::write(&ticket, r#"[{"device":"GPU-00000001","shares":[]}]"#).unwrap();
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(40);
    File::options()
        .write(true)
        .open(&ticket)
        .unwrap()
        .set_modified(before)
        .unwrap();
    for _ in 0..2 {
        ledger.lock().unwrap().recording(100).waiters().unwrap();
    }
    let text = std::fs::read_to_string(dir.path().join("events/log")).unwrap();
    let events: Vec<_> = text.lines().map(parse).collect();
    let [EventLine::Boot(_), EventLine::Event(left)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((left.kind, left.uptime), (EventKind::Left, 100));
    assert!((39..=60).contains(&left.value), "{left:?}");
}

#[test]
fn one_that_cannot_be_read_may_want_anything() {
    let (dir, ledger) = ledger();
    let ticket = line_up(&ledger, &[wanted("GPU-00000001", &["a"])]);
    let file = dir.path().join("ledger/queue").join(name_of(ticket.number));
    std::fs::write(file, "of a later version").unwrap();
    let [waiter] = &ledger.lock().unwrap().waiters().unwrap()[..] else {
        panic!("it waits");
    };
    let whole = |device: &str| waiter.wants(&device.parse().unwrap(), &HeldPart::Whole);
    assert!(whole("GPU-00000007") && waiter.competes(&[wanted("GPU-00000007", &["z"])]));
    assert_eq!(waiter.wants, None);
}

#[test]
fn waiters_compete_for_what_cannot_be_held_twice() {
    let part = |name: &str| HeldPart::share(name.parse().unwrap(), "1/10".parse().unwrap());
    let (gpu, instance, other) = ("GPU-00000001", "GPU-00000001/7/0", "GPU-00000001/8/0");
    for (waits, device, part, wants) in [
        (wanted(gpu, &["a"]), gpu, part("a"), true),
        (wanted(gpu, &["a"]), gpu, part("b"), false),
        (wanted(gpu, &["a"]), gpu, HeldPart::Whole, true),
        (wanted(gpu, &[]), gpu, part("b"), true),
        (wanted(gpu, &["a"]), instance, part("b"), true),
        (wanted(instance, &["a"]), gpu, HeldPart::Whole, true),
        (wanted(instance, &[]), other, HeldPart::Whole, false),
        (wanted(gpu, &[]), "GPU-00000002", part("a"), false),
    ] {
        let waiter = Waiter {
            number: 1,
            wants: Some([waits.clone()].into()),
        };
        let device: DeviceKey = device.parse().unwrap();
        assert_eq!(waiter.wants(&device, &part), wants, "{waits:?} and {part} of {device}");
        let of_part = WaitedFor {
            shares: part.shares().iter().map(|share| share.name.clone()).collect(),
            device,
        };
        assert_eq!(
            waiter.competes(std::slice::from_ref(&of_part)),
            wants,
            "{waits:?} and {of_part:?}"
        );
    }
}

#[test]
fn a_directory_that_others_may_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, ledger) = ledger();
    drop(line_up(&ledger, &[]));
    let queue = dir.path().join("ledger/queue");
    std::fs::set_permissions(&queue, std::fs::Permissions::from_mode(0o755)).unwrap();
    let line = ledger.lock().unwrap().waiters().unwrap_err().to_string();
    assert!(line.contains("ledger/queue: has mode 0755"), "{line}");
    std::fs::remove_dir(&queue).unwrap();
    std::os::unix::fs::symlink("/tmp", &queue).unwrap();
    assert!(ledger.lock().unwrap().line_up(&[]).is_err());
}

#[test]
fn one_who_looks_at_the_queue_keeps_nobody_from_joining_it() {
    let (dir, ledger) = ledger();
    let first = line_up(&ledger, &[wanted("GPU-00000001", &["a"])]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                first.ahead().unwrap();
            }
        });
        let joined = (0..2_000).try_for_each(|_| ledger.lock()?.line_up(&[]).map(drop));
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        joined.unwrap();
    });
    // Left by a process that was killed before its ticket was published.
    let left = dir.path().join("ledger/queue/new");
    std::fs::write(&left, "[").unwrap();
    assert_eq!(ledger.lock().unwrap().waiters().unwrap().len(), 1);
    assert!(!left.exists(), "the holder of the lock removes it");
    std::fs::write(&left, "[").unwrap();
    let second = line_up(&ledger, &[]);
    assert_eq!((second.ahead().unwrap().len(), tickets(dir.path())), (1, 2));
}
