//! The broker and the driver's process are killed while work is suspended and resumed: `TRANCHE_TEST_KILLS` times.

use super::*;
use crate::chance::Chance;
use nix::sys::signal::kill;
use nix::unistd::Pid;

impl Turns {
    /// The process that suspends and resumes work, of this broker or one before.
    fn driver_process(&self) -> Option<Pid> {
        let library = self.library().display().to_string();
        let is_it = |pid: &i32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split('\0').skip(1).take(2).eq(["turns", &library])
        };
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        pids.find(is_it).map(Pid::from_raw)
    }

    fn is_changing(&self) -> bool {
        self.record().is_some_and(|record| !record["change"].is_null())
    }
}

#[test]
fn whoever_is_killed_at_any_moment_of_a_change_no_work_is_lost() {
    let Some(mut turns) = Turns::new("killed::whoever_is_killed_at_any_moment_of_a_change_no_work_is_lost") else {
        return;
    };
    let kills = std::env::var("TRANCHE_TEST_KILLS").map_or(10, |number| number.parse().unwrap());
    let mut chance = Chance::new();
    let mut containers = turns.with_two();
    let (mut brokers, mut drivers, mut in_changes) = (0, 0, 0);
    for round in 0..kills {
        let next = usize::from(turns.resident() == Some(0));
        containers[next].program.tell("call");
        // Most of them while it is changed, which takes a moment.
        if chance.below(4) > 0 {
            until("a change begins", || turns.is_changing());
        }
        std::thread::sleep(Duration::from_millis(chance.below(120)));
        in_changes += usize::from(turns.is_changing());
        match turns.driver_process() {
            Some(driver) if chance.below(2) == 0 => {
                kill(driver, Signal::SIGKILL).unwrap();
                drivers += 1;
            }
            _ => {
                turns.bed.scene.stop(Signal::SIGKILL);
                turns.bed.start();
                brokers += 1;
            }
        }
        let said = turns.said(&mut containers[next]);
        let about = || format!("seed {}, round {round}\n{}", chance.seed(), turns.logged());
        assert_eq!(said, "called", "{}", about());
        assert_eq!(containers[next].program.ask("check"), "good", "{}", about());
    }
    for container in &mut containers {
        container.program.tell("call");
        assert_eq!(turns.said(container), "called");
        assert_eq!(container.program.ask("check"), "good");
    }
    println!("killed: {brokers} brokers, {drivers} processes of the driver; {in_changes} in a change");
    assert!(brokers > 0 && drivers > 0 && in_changes > 0);
}
