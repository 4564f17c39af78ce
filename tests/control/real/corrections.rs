//! What the broker does right with the real daemons that the stand-in did not notice.

use super::{each, install, until};
use crate::bed::UNEQUAL;
use crate::support::nvidia_packages::unpacked;
use crate::support::old_kernel;
use std::fs;
use std::time::Duration;
use tranche_broker::control::MachineControl;
use tranche_core::mps::connect_to;
use tranche_state::controlled::DaemonState;

/// The default policy started on no driver before 555, and set no limit of memory on any.
#[test]
fn the_default_policy_starts_and_sets_both_limits() {
    each("the_default_policy_starts_and_sets_both_limits", UNEQUAL, |real| {
        let bed = &real.bed;
        let control = bed.control();
        bed.start(&control, "small");
        let pid = bed.pid(&control);
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let many = String::from_utf8_lossy(&line).contains("-multiuser-server");
        assert_eq!(many, real.branch >= 555);
        assert_eq!(real.answer("get_default_active_thread_percentage"), "20.0");
        // 4912 MiB of 24564, and 19651.
        let expected = if real.has_memory() {
            ["4G", "19G"]
        } else {
            ["Unknown", "Unknown"]
        };
        let memory = || real.answer("get_default_device_pinned_mem_limit 0");
        assert!(memory().starts_with(expected[0]), "{}", memory());
        bed.start(&control, "big");
        assert_eq!(real.answer("get_default_active_thread_percentage"), "80.0");
        assert!(memory().starts_with(expected[1]), "{}", memory());
        let daemon = bed.device(&control).daemon.unwrap();
        assert_eq!(
            (daemon.state, daemon.memory_mib.is_some()),
            (DaemonState::Running, real.has_memory())
        );
        bed.stop("small");
        bed.stop("big");
        assert_eq!(control.tick(), None);
        bed.assert_as_it_was(&control);
    });
}

#[test]
fn a_server_that_does_not_start_is_a_state_with_its_last_line() {
    each(
        "a_server_that_does_not_start_is_a_state_with_its_last_line",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let control = bed.control();
            bed.start(&control, "small");
            // As the first client of a user makes the daemon do.
            real.answer("start_server -uid 0");
            until("the server fails", || {
                control.tick();
                bed.device(&control).daemon.unwrap().state == DaemonState::ServerFailed
            });
            let device = bed.device(&control);
            let problem = device
                .problems
                .iter()
                .find(|line| line.contains("its MPS server does not start"));
            assert!(
                problem.is_some_and(|line| line.contains("exited with status")),
                "{:?}",
                device.problems
            );
            let refused = bed.refused(&control, "big");
            assert!(refused.contains("its MPS server does not start"), "{refused}");
            // `quit` ends with 1 after that (550 and later).
            bed.stop("small");
            assert_eq!(control.tick(), None);
            bed.assert_as_it_was(&control);
        },
    );
}

#[test]
fn without_the_server_s_program_no_daemon_is_started() {
    each("without_the_server_s_program_no_daemon_is_started", UNEQUAL, |real| {
        let bed = &real.bed;
        fs::remove_dir_all(bed.host.root.join("usr/sbin")).unwrap();
        let policy = if real.has_memory() {
            UNEQUAL.to_owned()
        } else {
            super::without_memory(UNEQUAL)
        };
        bed.discover(&policy);
        let control = bed.control();
        let refused = bed.refused(&control, "small");
        assert!(
            refused.contains("nvidia-cuda-mps-server") && refused.contains("was not found"),
            "{refused}"
        );
        control.tick();
        bed.assert_as_it_was(&control);
    });
}

/// The front end of the new package commands the daemon of the old one.
#[test]
fn a_package_that_replaces_the_programs_leaves_a_daemon_that_is_in_use() {
    each(
        "a_package_that_replaces_the_programs_leaves_a_daemon_that_is_in_use",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let control = bed.control();
            bed.start(&control, "small");
            let pid = bed.pid(&control);
            let Ok(newer) = unpacked("nvidia-cuda-mps", 555) else {
                return;
            };
            for program in ["usr/bin/nvidia-cuda-mps-control", "usr/sbin/nvidia-cuda-mps-server"] {
                fs::remove_file(bed.host.root.join(program)).unwrap();
            }
            install(bed, &newer.root, 555);
            bed.start(&control, "big");
            assert_eq!(bed.pid(&control), pid);
            assert_eq!(real.answer("get_default_active_thread_percentage"), "80.0");
            bed.stop("small");
            bed.stop("big");
            assert_eq!(control.tick(), None);
            bed.assert_as_it_was(&control);
        },
    );
}

#[test]
fn a_second_user_is_refused_where_one_user_at_a_time_is_served() {
    each(
        "a_second_user_is_refused_where_one_user_at_a_time_is_served",
        UNEQUAL,
        |real| {
            let bed = &real.bed;
            let control = bed.control();
            bed.start(&control, "small");
            bed.set_user("big", 1000);
            bed.claim("big");
            let granted = control.prepare(bed.key());
            match real.branch >= 555 {
                true => granted.unwrap(),
                false => {
                    let refused = granted.unwrap_err().to_string();
                    assert!(refused.contains("serves one user at a time"), "{refused}");
                    assert!(
                        refused.contains("uid 0 (") && refused.contains("uid 1000 ("),
                        "{refused}"
                    );
                }
            }
            assert_eq!(bed.daemons().len(), 1, "the first one keeps its daemon");
        },
    );
}

/// What keeps the daemon from answering is then unknown, and it may be a client.
#[test]
fn without_pidfd_getfd_a_silent_daemon_is_reported_and_not_replaced_at_once() {
    let test = "without_pidfd_getfd_a_silent_daemon_is_reported_and_not_replaced_at_once";
    each(test, UNEQUAL, |real| {
        let bed = &real.bed;
        let tried = std::thread::scope(|threads| {
            let thread = threads.spawn(|| {
                old_kernel::lose_pidfd_getfd();
                let control = bed.control();
                bed.claim_by("small", std::process::id());
                control.prepare(bed.key()).unwrap();
                let pid = bed.pid(&control);
                let blocker = connect_to(&bed.pipe(), None).unwrap();
                // A silent daemon is replaced at the third look, where it is known that no client blocks it.
                for _ in 0..3 {
                    // Whatever it has answered lately does not count any more.
                    std::thread::sleep(Duration::from_millis(2100));
                    let refused = bed.refused(&control, "big");
                    assert!(refused.contains("which client it waits for is unknown"), "{refused}");
                    assert_eq!(bed.pid(&control), pid, "the daemon was replaced");
                }
                drop(blocker);
                control.tick();
                assert_eq!(bed.device(&control).daemon.unwrap().state, DaemonState::Running);
            });
            thread.join()
        });
        tried.unwrap();
    });
}
