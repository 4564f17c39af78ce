//! What goes wrong while work is suspended, and what is refused.

use super::*;
use nix::unistd::Pid;

impl Turns {
    /// Two containers that have taken memory; the second one has the device.
    pub(super) fn with_two(&self) -> [Container; 2] {
        [0, 1].map(|number| {
            let mut container = self.start(number);
            self.await_resident(number);
            let taken = container.program.ask(&format!("take {}", 30 * MIB));
            assert_eq!(taken, "taken", "{}", self.logged());
            container
        })
    }

    fn trouble(&self) -> String {
        let record = self.record().unwrap_or_default();
        record["trouble"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn work_that_another_driver_has_suspended_is_left_as_it_is() {
    let Some(mut turns) = Turns::new("work_that_another_driver_has_suspended_is_left_as_it_is") else {
        return;
    };
    let [mut first, mut second] = turns.with_two();
    turns.bed.scene.stop(Signal::SIGTERM);
    // As if the driver had been changed meanwhile.
    let (state, key) = (turns.bed.scene.at("state"), turns.key());
    let mut record = TurnRecord::read(&state, &key).unwrap();
    for holder in record.holders.values_mut().filter(|holder| holder.bytes > 0) {
        holder.driver_version = Some("570.86.15".parse().unwrap());
    }
    record.write(&state, &key).unwrap();
    turns.bed.start();
    until("it is said", || {
        turns.trouble().contains("was suspended by driver 570.86.15")
    });
    first.program.tell("call");
    assert!(
        !first.program.says_something_in(Duration::from_secs(3)),
        "{}",
        turns.logged()
    );
    assert_eq!(turns.resident(), Some(1));
    let refused = turns
        .bed
        .scene
        .ask(0, "turn", json!({"what": "c0", "suspend": false}))
        .unwrap_err();
    assert!(
        refused.contains("was suspended by driver 570.86.15, which alone can resume it"),
        "{refused}"
    );
    let status = turns.bed.scene.of_root(&["status", "--no-gpu"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(
        status.contains("and this is driver 580.159.04, which cannot resume it"),
        "{status}"
    );
    // It is in nobody's way, and can be ended.
    second.program.tell("call");
    assert_eq!(turns.said(&mut second), "called");
    drop(first);
    until("its claim has ended", || {
        turns
            .record()
            .is_some_and(|record| record["holders"].as_object().unwrap().len() == 1)
    });
}

#[test]
fn a_broker_that_is_stopped_leaves_suspended_work_and_the_next_one_goes_on() {
    let Some(mut turns) = Turns::new("a_broker_that_is_stopped_leaves_suspended_work_and_the_next_one_goes_on") else {
        return;
    };
    let [mut first, mut second] = turns.with_two();
    let before = turns.record().unwrap();
    assert_eq!(turns.bed.scene.stop(Signal::SIGTERM), Some(0));
    let after = turns.record().unwrap();
    let known = |record: &Value| (record["resident"].clone(), record["change"].clone());
    assert_eq!(known(&after), known(&before));
    first.program.tell("call");
    assert!(
        !first.program.says_something_in(Duration::from_secs(2)),
        "nobody resumes it"
    );
    // The one that has the device goes on.
    assert_eq!(second.program.ask("call"), "called");
    turns.bed.start();
    assert_eq!(turns.said(&mut first), "called");
    assert_eq!(first.program.ask("check"), "good");
    // In the middle of a change: a step that has begun is made to its end, and the next broker makes the rest.
    for round in 0..3_u64 {
        let away = if turns.resident() == Some(0) {
            &mut second
        } else {
            &mut first
        };
        std::thread::sleep(Duration::from_millis(1200));
        away.program.tell("call");
        std::thread::sleep(Duration::from_millis(40 + 110 * round));
        assert_eq!(turns.bed.scene.stop(Signal::SIGTERM), Some(0));
        turns.bed.start();
        assert_eq!(turns.said(away), "called", "{round}");
        assert_eq!(away.program.ask("check"), "good", "{round}");
    }
}

#[test]
fn what_does_not_fit_into_host_memory_stays_on_the_device_and_it_is_said() {
    let policy = POLICY.replace("hostMemory: 100Mi", "hostMemory: 20Mi");
    let test = "what_does_not_fit_into_host_memory_stays_on_the_device_and_it_is_said";
    let Some(turns) = Turns::with(test, DRIVER, &policy) else {
        return;
    };
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    let mut second = turns.start(1);
    let expected = "container c0: its 30 MiB and the 0 MiB of suspended work are more than hostMemory, ";
    until("it is said", || turns.trouble().contains(expected));
    assert_eq!(
        (turns.resident(), first.program.ask("check").as_str()),
        (Some(0), "good")
    );
    assert!(!second.may_open(&turns));
}

#[test]
fn a_container_whose_limit_of_memory_has_no_room_stays_on_the_device() {
    let test = "a_container_whose_limit_of_memory_has_no_room_stays_on_the_device";
    let Some(turns) = Turns::new(test) else { return };
    let limited = TestCgroup::of_controller("memory", "turns-limited");
    let limited = match limited {
        Ok(limited) => limited,
        Err(why) => return skip::not_run(&format!("broker::turns::faults::{test}"), &why),
    };
    fs::write(limited.0.join("memory.limit_in_bytes"), (200 * MIB).to_string()).unwrap();
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    limited.add(first.program.pid().cast_unsigned());
    // What it had before is counted elsewhere.
    fs::write(limited.0.join("memory.limit_in_bytes"), (20 * MIB).to_string()).unwrap();
    let second = turns.start(1);
    until("it is said", || {
        turns.trouble().contains("the limit of memory of its container leaves")
    });
    assert_eq!(turns.resident(), Some(0));
    // With a higher one, it gives way.
    fs::write(limited.0.join("memory.limit_in_bytes"), (400 * MIB).to_string()).unwrap();
    turns.await_resident(1);
    drop(second);
    first.program.tell("call");
    assert_eq!(turns.said(&mut first), "called");
    assert_eq!(first.program.ask("check"), "good");
}

#[test]
fn a_holder_that_forks_changes_as_a_whole_and_one_that_ends_meanwhile_is_in_nobodys_way() {
    let test = "a_holder_that_forks_changes_as_a_whole_and_one_that_ends_meanwhile_is_in_nobodys_way";
    let Some(turns) = Turns::new(test) else { return };
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    let forked = first.program.ask("fork");
    let child: i32 = forked.strip_prefix("forked ").unwrap().parse().unwrap();
    let mut second = turns.start(1);
    turns.await_resident(1);
    assert_eq!(second.program.ask(&format!("take {}", 30 * MIB)), "taken");
    first.program.tell("call");
    assert_eq!(turns.said(&mut first), "called");
    assert_eq!(first.program.ask("check"), "good");
    // A child without a context of its own is no reason to end anything.
    nix::sys::signal::kill(Pid::from_raw(child), None).unwrap();
    nix::sys::signal::kill(Pid::from_raw(child), Signal::SIGKILL).unwrap();
    // It is killed while it is being suspended.
    let faults = turns.bed.scene.at("meeting/faults");
    fs::write(&faults, r#"{"lock": "hang"}"#).unwrap();
    second.program.tell("call");
    until("a change is made", || {
        turns.record().is_some_and(|record| !record["change"].is_null())
    });
    first.program.kill();
    fs::remove_file(&faults).unwrap();
    assert_eq!(turns.said(&mut second), "called");
    turns.await_resident(1);
    assert_eq!(second.program.ask("check"), "good");
}

#[test]
fn a_holder_that_is_paused_keeps_the_device_until_it_goes_on() {
    let test = "a_holder_that_is_paused_keeps_the_device_until_it_goes_on";
    let Some(turns) = Turns::new(test) else { return };
    let frozen = match TestCgroup::of_controller("freezer", "turns-paused") {
        Ok(frozen) => frozen,
        Err(why) => return skip::not_run(&format!("broker::turns::faults::{test}"), &why),
    };
    let mut first = turns.start(0);
    turns.await_resident(0);
    assert_eq!(first.program.ask(&format!("take {}", 30 * MIB)), "taken");
    frozen.add(first.program.pid().cast_unsigned());
    let state = |state: &str| fs::write(frozen.0.join("freezer.state"), state).unwrap();
    state("FROZEN");
    let mut second = turns.start(1);
    let expected = "container c0 is paused, so its work cannot be suspended";
    until("it is said", || turns.trouble() == expected);
    assert!(turns.resident() == Some(0) && !second.may_open(&turns));
    state("THAWED");
    turns.await_resident(1);
    assert_eq!(second.program.ask(&format!("take {}", 30 * MIB)), "taken");
    // One that wants it and is paused is passed over.
    let of_third = TestCgroup::of_controller("freezer", "turns-paused-third").unwrap();
    let third = turns.made(2, TurnsClient::without_context(&turns.library()));
    of_third.add(third.program.pid().cast_unsigned());
    fs::write(of_third.0.join("freezer.state"), "FROZEN").unwrap();
    turns.enter(&third).unwrap();
    first.program.tell("call");
    assert_eq!(turns.said(&mut first), "called");
    assert_eq!(first.program.ask("check"), "good");
    fs::write(of_third.0.join("freezer.state"), "THAWED").unwrap();
    turns.await_resident(2);
    second.program.tell("call");
    assert_eq!(turns.said(&mut second), "called");
    assert_eq!(second.program.ask("check"), "good");
}
