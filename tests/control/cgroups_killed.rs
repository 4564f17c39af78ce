//! A broker that is killed while it sets or removes the limit of a cgroup: the next one goes on, and leaves nothing.

use crate::bed::{Bed, TestCgroup, UNEQUAL};
use crate::cgroups::cgroups;
use crate::recovery::{behind, calls};
use crate::support::skip;
use std::collections::BTreeMap;
use std::process::Command;
use tranche_broker::control::MachineControl;

/// A machine before the act: a container that has claimed its share and waits for the broker, or one that has ended and
/// whose cgroup is still there.
fn set_up(act: &str, cgroup: &TestCgroup) -> Bed {
    let bed = Bed::with_cgroup_limits(UNEQUAL);
    bed.claim_in("small", Some(cgroup));
    if act == "tick" {
        let control = bed.control();
        control.prepare(bed.key()).unwrap();
        bed.stop("small");
    }
    bed
}

#[test]
fn a_broker_that_is_killed_anywhere_leaves_no_limit() {
    let name = "a_broker_that_is_killed_anywhere_leaves_no_limit";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run(&format!("control::cgroups_killed::{name}"), "no strace");
    }
    let Some([cgroup]) = cgroups(name, ["small"]) else {
        return;
    };
    for act in ["prepare", "tick"] {
        let set_up = || set_up(act, &cgroup);
        let bed = set_up();
        let all = calls(&bed, act);
        drop(bed);
        let mut were_limited = 0;
        for (name, count) in all {
            // The calls about the limit are the last ones of each act. `recovery` has the others.
            for when in (count.saturating_sub(2)..=count).filter(|when| *when > 0) {
                let bed = set_up();
                let inject = format!("inject={name}:signal=KILL:when={when}");
                let options = ["-o", "/dev/null", "-e", &format!("trace={name}"), "-e", &inject];
                let output = behind(&bed, act, &options).output().unwrap();
                let killed = output.status.code().is_none();
                were_limited += usize::from(killed && !bed.cgroup_limits().is_empty());
                let at = format!("{act}: killed at {name} {when}");
                let control = bed.control();
                if act == "prepare" {
                    if when % 2 == 0 {
                        // The engine gives up, and starts the container again, which asks once more.
                        control.prepare(bed.key()).unwrap_or_else(|e| panic!("{at}: {e}"));
                        let expected = BTreeMap::from([(cgroup.name(), 4912)]);
                        assert_eq!(bed.cgroup_limits(), expected, "{at}");
                    }
                    bed.stop("small");
                }
                assert_eq!(control.tick(), None, "{at}: {:?}", control.devices());
                bed.assert_as_it_was(&control);
            }
        }
        assert!(were_limited > 0, "{act}: none was killed while a limit was set");
    }
}
