//! A user with subordinate uids (`/etc/subuid`), who becomes each of them: the quota and the connections are one
//! user's.

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper, answer, container};
use crate::support::skip;
use serde_json::json;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Accounts of the broker's machine. Bob has none, and carol is known to no file.
const PASSWD: &str = "root:x:0:0::/:/bin/sh\nann:x:65534:65534::/:/bin/sh\ndan:x:65532:65532::/:/bin/sh\n";

const SUBUID: &str =
    "ann:200000:65536\nann:300000:10\ndan:300000:10\n65533:400000:10\ncarol:500000:10\nroot:600000:10\n";

/// One turn of GPU 0 for each of four, and at most three for an account.
const FOUR: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
  quota: {shares: 3}
";

fn scene(test: &str, policy: Option<&str>) -> Option<Scene> {
    let mut scene = Scene::without_broker(test)?;
    if let Some(policy) = policy {
        std::fs::write(scene.at("policy.yaml"), policy).unwrap();
    }
    scene.start_with(&[("/etc/passwd", PASSWD), ("/etc/subuid", SUBUID)]);
    Some(scene)
}

/// Lets each of `uids` claim, enter any share and enter the whole device, in turn and in several ways. Returns how many
/// shares they then hold, where a whole device is one, and how often they tried. The processes live as long as the last
/// value.
fn take_all(scene: &Scene, uids: impl Iterator<Item = u32>) -> (usize, usize, Vec<Sleeper>) {
    let mut inits = Vec::new();
    let mut tried = 0;
    for uid in uids {
        let init = Sleeper::new(uid);
        let enter = |id: &str, what: &str| {
            let mut request = json!({"device": GPU_0, "container": container(id), "pid": init.pid()});
            request[what] = if what == "whole" { json!(true) } else { json!("any") };
            // Most are refused: what was granted is counted below.
            let _ = scene.ask(uid, "enter", request);
        };
        let _ = scene.claim(uid, "one");
        enter("a", "share");
        enter("b", "whole");
        let _ = scene.ask(uid, "claim", json!({"name": "two", "device": "0", "shares": 2}));
        tried += 4;
        inits.push((uid, init));
    }
    let is_theirs = |uid: u32| inits.iter().any(|(of, _)| *of == uid);
    let theirs = scene.claims().into_iter().filter(|claim| is_theirs(claim.uid));
    let held = theirs.map(|claim| claim.part.shares().len().max(1)).sum();
    println!("{tried} requests of {} uids", inits.len());
    (held, tried, inits.into_iter().map(|(_, init)| init).collect())
}

#[test]
fn subordinate_uids_hold_one_quota_together_with_their_owner() {
    let Some(scene) = scene("subordinate_uids_hold_one_quota_together_with_their_owner", None) else {
        return;
    };
    let uids = [ANN].into_iter().chain((0..12).map(|n| 200_000 + 5000 * n));
    let (held, tried, _inits) = take_all(&scene, uids);
    assert_eq!((held, tried), (3, 52));
    let line = scene.claim(210_000, "more").unwrap_err();
    let says = "user 210000 (counted with user 65534): may hold 3 shares, holds 3 and asks for 1 more";
    assert!(line.contains(says), "{line}");
    scene.claim(BOB, "one").unwrap();
    scene.claim(265_536, "beyond-the-range").unwrap();
    // Owners who cannot be told apart, who have no account, or who are root.
    let shared = [300_000, 400_000, 500_000, 600_000, 300_001, 500_001];
    let (held, _, _inits) = take_all(&scene, shared.into_iter());
    assert_eq!(held, 3);
    let line = scene.claim(600_001, "more").unwrap_err();
    assert!(
        line.contains("counted with the subordinate uids without a known owner"),
        "{line}"
    );
    // Each still releases and sees its own alone.
    assert_eq!(scene.seen(250_000), [""; 0]);
    scene.ask(ANN, "release", json!({"what": "one"})).unwrap();
    scene.claim(210_000, "more").unwrap();
    assert_eq!(scene.seen(210_000), ["210000.more"]);
}

#[test]
fn users_together_leave_a_share_to_root() {
    let Some(scene) = scene("users_together_leave_a_share_to_root", Some(FOUR)) else {
        return;
    };
    // No range has these uids, so each counts for itself.
    let (held, _, _inits) = take_all(&scene, 700_000..700_010);
    assert_eq!(held, 3);
    let line = scene.claim(700_011, "more").unwrap_err();
    assert!(
        line.contains("users other than root: may hold 3 shares together, hold 3, and this one asks for 1 more"),
        "{line}"
    );
    let created = scene.tranche_of_root(&["claim", "create", "--name=mine", "--shares=1", "--device=0"]);
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
}

#[test]
fn a_whole_device_counts_as_all_its_shares_for_users_together() {
    let Some(scene) = scene("a_whole_device_counts_as_all_its_shares_for_users_together", Some(FOUR)) else {
        return;
    };
    let init = Sleeper::new(BOB);
    let request = json!({"device": GPU_0, "whole": true, "container": container("c"), "pid": init.pid()});
    let line = scene.ask(BOB, "enter", request.clone()).unwrap_err();
    assert!(line.contains("hold 0, and this one asks for 4 more"), "{line}");
    let more = FOUR.replace("{shares: 3}", "{shares: 3, all: 4}");
    std::fs::write(scene.at("policy.yaml"), more).unwrap();
    scene.ask(BOB, "enter", request).unwrap();
}

#[test]
fn slow_connections_of_subordinate_uids_hold_up_nobody() {
    let Some(scene) = scene("slow_connections_of_subordinate_uids_hold_up_nobody", None) else {
        return;
    };
    let of_several: Vec<u32> = (300_000..300_010)
        .chain(400_000..400_010)
        .chain(600_000..600_006)
        .collect();
    for uids in [(200_000..200_026).collect(), of_several] {
        let eight = |uid: &u32| std::iter::repeat_n(*uid, 8).collect::<Vec<_>>();
        let silent: Vec<_> = uids.iter().flat_map(eight).map(|uid| scene.connect(uid)).collect();
        assert_eq!(silent.len(), 208);
        for (uid, name) in [(BOB, "train"), (0, "roots")] {
            scene.claim(uid, name).unwrap();
            scene.ask(uid, "release", json!({"what": name})).unwrap();
        }
        drop(silent);
    }
}

/// What a broken directory service costs: those whose owner only it knows share a quota, and nobody else notices.
#[test]
fn without_nss_nobody_has_more_than_a_quota() {
    for (script, what) in [("exec sleep 1000", "hangs"), ("exit 1", "fails")] {
        let test = "without_nss_nobody_has_more_than_a_quota";
        let Some(mut scene) = Scene::without_broker(test) else {
            return;
        };
        let script = format!("#!/bin/sh\n{script}\n");
        scene.start_with(&[
            ("/etc/passwd", PASSWD),
            ("/etc/subuid", SUBUID),
            ("/usr/bin/getent", &script),
        ]);
        let (unknown, _, _inits) = take_all(&scene, 500_000..500_005);
        let (known, _, _inits) = take_all(&scene, [ANN, 200_001].into_iter());
        assert_eq!((unknown, known), (3, 3), "{what}");
        scene.claim(BOB, "one").unwrap();
    }
}

/// The same by the programs that a user has: newuidmap(1) makes a user namespace with all of the user's uids.
#[test]
fn a_user_who_becomes_all_uids_of_a_namespace_holds_one_quota() {
    let test = "a_user_who_becomes_all_uids_of_a_namespace_holds_one_quota";
    let Some(scene) = scene(test, None) else { return };
    for (name, text) in [("subid", "ann:200000:65536\n"), ("passwd", PASSWD)] {
        std::fs::write(scene.at(name), text).unwrap();
    }
    let claim = format!(
        "{} claim create --shares=1 --device=0 {}",
        scene.at("tranche").display(),
        scene.option("state-dir", "state")
    );
    // The user's own part is the script behind `unshare --user`.
    let script = format!(
        "mount --bind {0}/subid /etc/subuid && mount --bind {0}/subid /etc/subgid && mount --bind {0}/passwd /etc/passwd || exit 9
         exec setpriv --reuid={ANN} --regid={ANN} --clear-groups unshare --user --map-auto --map-root-user sh -c '
             echo mapped
             for n in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
                 setpriv --reuid=$n --clear-groups {claim} --name=n$n && echo taken
             done'",
        scene.at(".").display()
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if !out.contains("mapped") {
        return skip::not_run(&format!("broker::{test}"), "no user namespace with all uids of a user");
    }
    assert_eq!(
        out.matches("taken").count(),
        3,
        "{out}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(scene.claims().len(), 3);
    println!("20 uids asked for a share each");
}

/// The line for a refused client arrives, however long after the refusal the client writes its request.
#[test]
fn a_client_that_is_refused_gets_a_line() {
    let Some(scene) = Scene::new("a_client_that_is_refused_gets_a_line") else {
        return;
    };
    let silent: Vec<_> = (0..8).map(|_| scene.connect(BOB)).collect();
    let mut refused = 0;
    for pause in [0, 5, 20, 50].repeat(5) {
        use std::io::Write;
        let mut stream = scene.connect(BOB);
        std::thread::sleep(std::time::Duration::from_millis(pause));
        stream.write_all(b"{\"version\":1,\"command\":\"list\"}\n").unwrap();
        // A silent client loses its place after two seconds: on a slow machine this one may be served.
        if let Err(line) = answer(&mut stream) {
            assert!(line.contains("there are too many requests at once"), "{line}");
            refused += 1;
        }
    }
    assert!(refused > 0);
    drop(silent);
}

#[test]
fn reservations_of_subordinate_uids_are_their_user_s() {
    let policy = format!("{FOUR}  dedicated: {{devices: [1]}}\n  calendar: {{open: 2}}\n");
    let Some(scene) = scene("reservations_of_subordinate_uids_are_their_user_s", Some(&policy)) else {
        return;
    };
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600;
    let reserve = |uid: u32, hour: u64| {
        let from = begin + hour * 3600;
        let request = json!({"what": "1", "from": from, "until": from + 1800, "reason": null, "zone": "UTC",
                             "offsets": [0, 0]});
        scene.ask(uid, "reserve-time", request)
    };
    for (uid, hour) in [(200_000, 0), (200_001, 3)] {
        let made = reserve(uid, hour).unwrap();
        assert_eq!((&made["uid"], &made["who"]), (&json!(ANN), &json!("ann")), "{made}");
    }
    for uid in [ANN, 200_002] {
        let line = reserve(uid, 6).unwrap_err();
        assert!(line.contains("you have 2 reservations that are not over"), "{line}");
    }
    // Of two users, and of nobody whom a file knows.
    for uid in [300_000, 500_000] {
        let line = reserve(uid, 6).unwrap_err();
        assert!(line.contains("whose user is not known"), "{line}");
    }
    scene.ask(ANN, "cancel-time", json!({"id": 1})).unwrap();
    scene.ask(200_003, "cancel-time", json!({"id": 2})).unwrap();
    assert!(reserve(BOB, 6).is_ok());
}
