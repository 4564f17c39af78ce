use super::super::ending::tests::TestPlace;
use super::*;
use crate::serve::hold::thaw_left;
use crate::test_cgroup::TestCgroup;
use crate::until::until;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

const BOB: u32 = 65_533;
const EVE: u32 = 65_532;

/// A cgroup of one of the versions; `None`, with a line, where this process cannot be several users in it.
fn cgroup(test: &str, version: u8) -> Option<TestCgroup> {
    let test = format!("serve::hold::rest::{test}");
    if !nix::unistd::geteuid().is_root() {
        println!("not run: {test}: not root");
        return None;
    }
    let name = format!("rest{version}-{}", test.len());
    let made = match version {
        2 => TestCgroup::version_2(&name),
        _ => TestCgroup::new(&name),
    };
    made.map_err(|why| println!("not run: {test}: {why}")).ok()
}

fn record(cgroup: &TestCgroup) -> Cgroup {
    Cgroup {
        path: cgroup.0.to_str().unwrap().to_owned(),
        inode: fs::metadata(&cgroup.0).unwrap().st_ino(),
        top: None,
    }
}

/// A process of `uid` that ignores SIGTERM.
fn stubborn(uid: u32) -> Child {
    script(uid, "$SIG{TERM} = 'IGNORE'; $| = 1; print 1; sleep 1000")
}

/// A process of `uid` that runs a script of perl, and has printed something.
fn script(uid: u32, script: &str) -> Child {
    let mut command = Command::new("perl");
    command.args(["-e", script]).uid(uid).gid(uid).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    child
}

fn is_killed(child: &mut Child) -> bool {
    child.wait().unwrap().signal() == Some(9)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn state_of(child: &Child) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    status
        .lines()
        .find(|line| line.starts_with("State:"))
        .unwrap()
        .to_owned()
}

#[test]
fn what_ignores_sigterm_is_killed_with_the_rest_of_its_cgroup_and_with_nobody_else_s() {
    for version in [1, 2] {
        let test = "what_ignores_sigterm_is_killed_with_the_rest_of_its_cgroup_and_with_nobody_else_s";
        let Some(cgroup) = cgroup(test, version) else { return };
        let place = TestPlace::new();
        let [mut init, mut left, mut other] = [BOB, BOB, EVE].map(stubborn);
        cgroup.add(init.id());
        let mut recorded = place.machine.process(init.id()).unwrap();
        recorded.cgroup = Some(record(&cgroup));
        cgroup.add(left.id());
        cgroup.add(other.id());
        let (mut ending, what) = place.ask(&recorded, BOB);
        assert_eq!(
            (what.as_deref(), ending.stuck()),
            (Some("asked to end, by SIGTERM"), None)
        );
        let grace = Duration::from_secs(10);
        assert_eq!(ending.go_on(grace, place.at(1009)), None);
        assert!(
            [&mut init, &mut left]
                .into_iter()
                .all(|one| one.try_wait().unwrap().is_none())
        );
        // Again and again, as long as it is there.
        for _ in 0..2 {
            assert_eq!(ending.go_on(grace, place.at(1010)), None);
            let why = ending.stuck().unwrap();
            let expected = format!("process {} (perl), of user {EVE}, is not the user's to end", other.id());
            assert_eq!(why, expected);
        }
        assert!(is_killed(&mut init) && is_killed(&mut left));
        assert!(other.try_wait().unwrap().is_none(), "it is another user's");
        // It is woken by the thaw, and sleeps again when it has had the processor.
        until("it runs", || state_of(&other).contains("sleeping"));
        end(other);
        // What outlives an init that has ended is ended without it.
        let mut left = stubborn(BOB);
        cgroup.add(left.id());
        let (mut ending, what) = place.ask(&recorded, BOB);
        assert_eq!(what.as_deref(), Some("asked to end, by SIGTERM"));
        let killed = ending.go_on(grace, place.at(1010));
        assert_eq!(
            killed.as_deref(),
            Some("killed, because it has not ended within the grace")
        );
        assert!(is_killed(&mut left));
        assert_eq!(
            fs::read_dir(place.state.path()).unwrap().count(),
            0,
            "nothing is said to be frozen"
        );
    }
}

#[test]
fn no_depth_and_no_number_of_cgroups_hides_a_process() {
    for version in [1, 2] {
        let Some(cgroup) = cgroup("no_depth_and_no_number_of_cgroups_hides_a_process", version) else {
            return;
        };
        let place = TestPlace::new();
        // Its path is longer than the kernel takes or gives at once (PATH_MAX), so it goes there step by step.
        let deep = format!(
            "chdir '{}' or die; for (1..500) {{ mkdir \"empty-$_\" or die }} \
             for (1..40) {{ my $name = 'x' x 200; mkdir $name or die; chdir $name or die; }} \
             open(my $f, '>', 'cgroup.procs') or die; print $f $$; close $f; \
             $) = $( = {BOB}; $< = $> = {BOB}; $SIG{{TERM}} = 'IGNORE'; $| = 1; print 1; sleep 1000",
            cgroup.0.display()
        );
        let mut hidden = script(0, &deep);
        kill(&record(&cgroup), BOB, place.state.path()).unwrap();
        assert!(is_killed(&mut hidden));
        let removed = || {
            let mut find = Command::new("find");
            find.arg(&cgroup.0)
                .args(["-mindepth", "1", "-depth", "-type", "d", "-delete"]);
            find.stderr(Stdio::null()).status().unwrap().success()
        };
        until("the cgroups are empty", removed);
    }
}

#[test]
fn what_starts_others_all_the_time_is_ended_and_two_thousand_are() {
    for version in [1, 2] {
        let test = "what_starts_others_all_the_time_is_ended_and_two_thousand_are";
        let Some(cgroup) = cgroup(test, version) else { return };
        let place = TestPlace::new();
        let enters = format!(
            "open(my $f, '>', '{}/cgroup.procs') or die; print $f $$; close $f; $) = $( = {BOB}; $< = $> = {BOB}; $| = 1;",
            cgroup.0.display()
        );
        // Each one starts another one and ends, so that a list of them is never true.
        let restless = format!(
            "{enters} print 1; while (1) {{ my $child = fork; exit if $child; select(undef, undef, undef, 0.0005) }}"
        );
        let many = format!("{enters} for (1..2000) {{ fork or (sleep(1000), exit) }} print 1; sleep 1000");
        let programs = match version {
            // A process that is never the same is out of reach there.
            1 => vec![script(0, &many)],
            _ => vec![script(0, &restless), script(0, &many)],
        };
        let begun = Instant::now();
        kill(&record(&cgroup), BOB, place.state.path()).unwrap();
        println!("version {version}: ended after {:?}", begun.elapsed());
        assert_eq!(fs::read_to_string(cgroup.0.join("cgroup.procs")).unwrap(), "");
        for mut program in programs {
            program.wait().unwrap();
        }
    }
}

#[test]
fn what_another_one_froze_stays_frozen_and_what_a_killed_broker_froze_does_not() {
    let test = "what_another_one_froze_stays_frozen_and_what_a_killed_broker_froze_does_not";
    let Some(cgroup) = cgroup(test, 2) else { return };
    let place = TestPlace::new();
    let state = place.state.path();
    let freeze = cgroup.0.join("cgroup.freeze");
    let is_frozen = || fs::read_to_string(&freeze).unwrap().trim_end() == "1";
    let (mut own, other) = (stubborn(BOB), stubborn(EVE));
    for child in [&own, &other] {
        cgroup.add(child.id());
    }
    fs::write(&freeze, "1").unwrap();
    let why = kill(&record(&cgroup), BOB, state).unwrap_err();
    assert!(why.contains("not the user's to end"), "{why}");
    assert!(is_killed(&mut own) && is_frozen());
    assert!(!state.join("frozen.json").exists());
    // As a broker leaves it that is killed before it has frozen, and after that; and a later cgroup of the name.
    let journal = |inode| {
        let text = format!(r#"{{"version":1,"path":"{}","inode":{inode}}}"#, cgroup.0.display());
        fs::write(state.join("frozen.json"), text).unwrap();
    };
    let inode = record(&cgroup).inode;
    for (inode, thaws) in [(inode + 1, false), (inode, true), (inode, true)] {
        journal(inode);
        thaw_left(state).unwrap();
        assert_eq!(is_frozen(), !thaws);
        assert!(!state.join("frozen.json").exists());
    }
    thaw_left(state).unwrap();
    // What cannot be read is not removed, and nothing is frozen as long as it is there.
    fs::write(state.join("frozen.json"), "{").unwrap();
    assert!(thaw_left(state).is_err() && state.join("frozen.json").exists());
    let mut own = stubborn(BOB);
    cgroup.add(own.id());
    kill(&record(&cgroup), BOB, state).unwrap_err();
    assert!(is_killed(&mut own) && !is_frozen() && state.join("frozen.json").exists());
    end(other);
}

/// A process of the user whose first thread is in another process's place: the kernel lists it in a cgroup above.
#[test]
fn a_threaded_cgroup_is_ended_as_well() {
    let Some(cgroup) = cgroup("a_threaded_cgroup_is_ended_as_well", 2) else {
        return;
    };
    let place = TestPlace::new();
    let inner = cgroup.0.join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("cgroup.type"), "threaded").unwrap();
    let mut own = stubborn(BOB);
    fs::write(inner.join("cgroup.procs"), own.id().to_string()).unwrap();
    let recorded = Cgroup {
        path: inner.to_str().unwrap().to_owned(),
        inode: fs::metadata(&inner).unwrap().st_ino(),
        top: None,
    };
    kill(&recorded, BOB, place.state.path()).unwrap();
    assert!(is_killed(&mut own));
    until("the cgroup is empty", || fs::remove_dir(&inner).is_ok());
}

#[test]
fn a_cgroup_that_was_removed_has_nobody_and_a_directory_is_none() {
    let Some(cgroup) = cgroup("a_cgroup_that_was_removed_has_nobody_and_a_directory_is_none", 2) else {
        return;
    };
    let recorded = record(&cgroup);
    drop(cgroup);
    let place = TestPlace::new();
    assert_eq!(kill(&recorded, BOB, place.state.path()), Ok(()));
    assert_eq!(terminate(&recorded, BOB), Ok(0));
    let directory = Cgroup {
        path: place.state.path().to_str().unwrap().to_owned(),
        inode: fs::metadata(place.state.path()).unwrap().st_ino(),
        top: None,
    };
    assert_eq!(terminate(&directory, BOB), Ok(0));
}

/// A process that waits in the kernel does not end by SIGKILL: the freezer of version 1 holds it there.
#[test]
fn what_waits_in_the_kernel_holds_nobody_up_and_is_said() {
    let test = "serve::hold::rest::what_waits_in_the_kernel_holds_nobody_up_and_is_said";
    let freezer = Path::new("/sys/fs/cgroup/freezer").join(format!("tranche-test-{}", std::process::id()));
    if !nix::unistd::geteuid().is_root() || fs::create_dir(&freezer).is_err() {
        println!("not run: {test}: no freezer of version 1");
        return;
    }
    let Some(cgroup) = cgroup("what_waits_in_the_kernel_holds_nobody_up_and_is_said", 2) else {
        return;
    };
    let place = TestPlace::new();
    let mut waits = stubborn(BOB);
    let mut other = stubborn(BOB);
    cgroup.add(waits.id());
    let mut recorded = place.machine.process(waits.id()).unwrap();
    recorded.cgroup = Some(record(&cgroup));
    cgroup.add(other.id());
    fs::write(freezer.join("cgroup.procs"), waits.id().to_string()).unwrap();
    fs::write(freezer.join("freezer.state"), "FROZEN").unwrap();
    until("it waits", || {
        fs::read_to_string(freezer.join("freezer.state")).unwrap() == "FROZEN\n"
    });
    let (mut ending, _) = place.ask(&recorded, BOB);
    let begun = Instant::now();
    assert_eq!(ending.go_on(Duration::from_secs(10), place.at(1010)), None);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let expected = format!("process {} has not ended after SIGKILL", waits.id());
    assert_eq!(ending.stuck(), Some(expected.as_str()));
    assert!(is_killed(&mut other) && waits.try_wait().unwrap().is_none());
    assert_eq!(fs::read_to_string(cgroup.0.join("cgroup.freeze")).unwrap(), "0\n");
    fs::write(freezer.join("freezer.state"), "THAWED").unwrap();
    assert!(is_killed(&mut waits));
    until("it is empty", || fs::remove_dir(&freezer).is_ok());
    assert_eq!(ending.go_on(Duration::from_secs(10), place.at(1015)), None);
    assert_eq!(ending.stuck(), None);
}

/// How long it takes to end a cgroup of 64 processes, beside kill(2) for each of them.
#[test]
fn an_end_as_the_user_takes_a_moment() {
    let Some(cgroup) = cgroup("an_end_as_the_user_takes_a_moment", 2) else {
        return;
    };
    let place = TestPlace::new();
    let mut times = [const { Vec::new() }; 2];
    for round in 0..10 {
        let mut children: Vec<Child> = (0..64).map(|_| sleeping()).collect();
        children.iter().for_each(|child| cgroup.add(child.id()));
        let begun = Instant::now();
        match round % 2 {
            0 => children.iter_mut().for_each(|child| child.kill().unwrap()),
            _ => kill(&record(&cgroup), BOB, place.state.path()).unwrap(),
        }
        children.iter_mut().for_each(|child| assert!(is_killed(child)));
        times[round % 2].push(begun.elapsed());
    }
    let [plain, as_user] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("64 processes: kill(2) {plain:?}, as the user and frozen {as_user:?}");
    assert!(as_user < plain + Duration::from_secs(1), "{as_user:?}");
}

fn sleeping() -> Child {
    Command::new("sleep")
        .arg("1000")
        .uid(BOB)
        .gid(BOB)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}
