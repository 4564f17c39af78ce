//! What the broker does for a user it does as the user: processes that are not the user's are neither held nor ended,
//! whatever the user's processes become and wherever they go.

use crate::limits::{refresh, scene};
use crate::scene::{BOB, GPU_0, Scene, container};
use crate::support::changing::{BECOME, Canary, Program, STUBBORN, becomes_root, maps, setuid_program};
use crate::support::test_cgroup::TestCgroup;
use crate::support::{skip, until};
use serde_json::{Value, json};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Everything of users is ended after a second, and killed a second later.
pub(crate) const RULES: &str = "    default: {maxShares: 10, maxHold: 1s, atLimit: end, grace: 1s}\n";

pub(crate) fn enter(scene: &Scene, id: &str, pid: u32) -> Result<Value, String> {
    let fields = json!({"device": GPU_0, "share": "any", "container": container(id), "pid": pid});
    scene.ask(BOB, "enter", fields)
}

/// Why each claim of the user cannot be ended, as the user sees it.
fn not_ended(scene: &Scene) -> Vec<String> {
    let list = scene.ask(BOB, "list", json!({})).unwrap();
    let claims = list["claims"].as_array().unwrap();
    let why = |claim: &Value| Some(claim["cannot_be_ended"].as_str()?.to_owned());
    claims.iter().filter_map(why).collect()
}

#[test]
fn no_user_registers_a_process_whose_namespace_has_the_user_s_number() {
    let test = "no_user_registers_a_process_whose_namespace_has_the_user_s_number";
    let Some(scene) = scene(test, RULES) else { return };
    for (name, map) in maps() {
        let mut canary = Canary::in_namespace(scene.at("").as_path(), name, &map);
        let refused = enter(&scene, name, canary.program.pid());
        // As long as it takes to end it, if it were held.
        sleep(Duration::from_secs(13));
        assert!(canary.is_untouched(), "{name}: it was signalled for the user");
        let refused = refused.unwrap_err();
        assert!(refused.contains(&format!("does not belong to user {BOB}")), "{refused}");
    }
    // What the kernel lets the user signal is the user's, whatever its number is.
    let mut own = Program::in_namespace(BOB, &format!("print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1"));
    fs::write(format!("/proc/{}/uid_map", own.pid()), "0 200000 1000\n").unwrap();
    own.go_on();
    enter(&scene, "own", own.pid()).unwrap();
}

#[test]
fn another_user_s_process_in_the_cgroup_of_a_claim_is_shown_and_neither_signalled_nor_frozen() {
    let test = "another_user_s_process_in_the_cgroup_of_a_claim_is_shown_and_neither_signalled_nor_frozen";
    for version in [1, 2] {
        let cgroup = match version {
            1 => TestCgroup::new("acts-1"),
            _ => TestCgroup::version_2("acts-2"),
        };
        let cgroup = match cgroup {
            Ok(cgroup) => cgroup,
            Err(why) => return skip::not_run(&format!("broker::{test}"), &why),
        };
        let Some(mut scene) = scene(test, RULES) else { return };
        let top = scene.at("");
        let [a, b] = maps().map(|(name, map)| Canary::in_namespace(&top, name, &map));
        let mut canaries = vec![a, b, Canary::of_user(&top, "root", 0)];
        let mut own = [Program::new(BOB, STUBBORN), Program::new(BOB, STUBBORN)];
        cgroup.add(own[0].pid());
        enter(&scene, "c", own[0].pid()).unwrap();
        assert!(scene.claims()[0].process.as_ref().unwrap().cgroup.is_some());
        cgroup.add(own[1].pid());
        canaries.iter().for_each(|canary| cgroup.add(canary.program.pid()));
        assert!(own.iter_mut().all(Program::is_killed));
        until(
            "the user sees why it is still held",
            || matches!(&not_ended(&scene)[..], [why] if why.contains("is not the user's to end")),
        );
        refresh(&scene);
        let status = scene.tranche(0, &["status", "--no-gpu"]);
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.contains("cannot be ended: process"), "{status}");
        // Two more looks.
        sleep(Duration::from_secs(11));
        assert!(canaries.iter_mut().all(Canary::is_untouched));
        if version == 2 {
            let freeze = fs::read_to_string(cgroup.0.join("cgroup.freeze")).unwrap();
            assert_eq!(freeze, "0\n");
        }
        assert!(!scene.at("state/frozen.json").exists());
        // The claim gets nothing new, and ends with what is in its cgroup.
        let other = Program::new(BOB, STUBBORN);
        let again = enter(&scene, "c", other.pid());
        assert!(again.is_err(), "{again:?}");
        drop(canaries);
        until("nothing is held", || scene.seen(BOB).is_empty());
        until("nothing is said any more", || {
            !scene.at("state/not-ended.json").exists()
        });
        scene.stop(nix::sys::signal::Signal::SIGTERM);
    }
}

#[test]
fn a_program_that_becomes_root_s_at_sigterm_is_not_killed_and_its_claim_says_so() {
    let test = "a_program_that_becomes_root_s_at_sigterm_is_not_killed_and_its_claim_says_so";
    let Some(scene) = scene(test, RULES) else { return };
    let mut program = Program::new(BOB, &becomes_root(&setuid_program(&scene.at(""))));
    enter(&scene, "c", program.pid()).unwrap();
    let is_root = || {
        let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
        status.contains("Uid:\t0\t0\t0\t0")
    };
    until("it has become root's", is_root);
    until("the user sees why it is still held", || {
        let expected = format!("process {} (sleep), of user 0, is not the user's to end", program.pid());
        not_ended(&scene) == [expected]
    });
    // Two more looks.
    sleep(Duration::from_secs(11));
    assert!(program.lives(), "it was killed for the user");
    drop(program);
    until("nothing is held", || scene.seen(BOB).is_empty());
}

#[test]
fn a_program_that_becomes_one_of_the_user_s_subordinate_uids_is_ended() {
    let test = "a_program_that_becomes_one_of_the_user_s_subordinate_uids_is_ended";
    let Some(scene) = scene(test, RULES) else { return };
    let script = format!("$SIG{{TERM}} = 'IGNORE'; print 1; <STDIN>; {BECOME} print 2; sleep 1000 while 1");
    let mut program = Program::in_namespace(BOB, &script);
    enter(&scene, "c", program.pid()).unwrap();
    // As newuidmap(1) does it for the user.
    fs::write(format!("/proc/{}/uid_map", program.pid()), "0 200000 1000\n").unwrap();
    program.go_on();
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    assert!(status.contains("Uid:\t200000\t200000\t200000"), "{status}");
    assert!(program.is_killed());
    until("nothing is held", || scene.seen(BOB).is_empty());
}

#[test]
fn a_worker_far_below_the_cgroup_of_a_claim_is_ended() {
    let test = "a_worker_far_below_the_cgroup_of_a_claim_is_ended";
    for version in [1, 2] {
        let cgroup = match version {
            1 => TestCgroup::new("deep-1"),
            _ => TestCgroup::version_2("deep-2"),
        };
        let cgroup = match cgroup {
            Ok(cgroup) => cgroup,
            Err(why) => return skip::not_run(&format!("broker::{test}"), &why),
        };
        let Some(scene) = scene(test, RULES) else { return };
        let mut own = [Program::new(BOB, STUBBORN), Program::new(BOB, STUBBORN)];
        cgroup.add(own[0].pid());
        enter(&scene, "c", own[0].pid()).unwrap();
        let deepest = (0..20).fold(cgroup.0.clone(), |path, _| path.join("x"));
        fs::create_dir_all(&deepest).unwrap();
        fs::write(deepest.join("cgroup.procs"), own[1].pid().to_string()).unwrap();
        assert!(own.iter_mut().all(Program::is_killed));
        for directory in deepest.ancestors().take_while(|path| *path != cgroup.0) {
            until("it is empty", || fs::remove_dir(directory).is_ok());
        }
        until("nothing is held", || scene.seen(BOB).is_empty());
    }
}
