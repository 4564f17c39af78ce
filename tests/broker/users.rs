//! Of two users, neither can use, free, rename, inspect or hold up the other's claim, lock the ledger, squat a name,
//! exceed the quota, or end the broker.

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper, answer, as_user, container};
use crate::support::until;
use rustix::fs::{Mode, OFlags, open};
use serde_json::json;
use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn a_claim_is_not_used_by_another_user() {
    let Some(scene) = Scene::new("a_claim_is_not_used_by_another_user") else {
        return;
    };
    scene.claim(ANN, "train").unwrap();
    let init = Sleeper::new(BOB);
    for name in ["train", "65534.train"] {
        let request = json!({"device": GPU_0, "claim": name, "container": container("c"), "pid": init.pid()});
        let line = scene.ask(BOB, "enter", request).unwrap_err();
        assert!(line.contains("not found; tranche claim list shows yours"), "{line}");
    }
    let init = Sleeper::new(ANN);
    let request = json!({"device": GPU_0, "claim": "train", "container": container("c"), "pid": init.pid()});
    scene.ask(ANN, "enter", request).unwrap();
    let claims = scene.claims();
    assert_eq!((claims.len(), claims[0].uid), (1, ANN));
    assert_eq!(claims[0].process.as_ref().unwrap().pid, init.pid());
}

/// The hooks of root's engine have no user but root, no matter who started the container.
#[test]
fn a_claim_is_not_used_by_an_engine_of_root_unless_its_owner_allowed_it() {
    let Some(scene) = Scene::new("a_claim_is_not_used_by_an_engine_of_root_unless_its_owner_allowed_it") else {
        return;
    };
    scene.claim(ANN, "own").unwrap();
    let lent = json!({"name": "lent", "device": "0", "shares": 1, "for_root": true});
    assert_eq!(scene.ask(ANN, "claim", lent).unwrap()["claim"]["for_root"], json!(true));
    let init = Sleeper::new(0);
    let state = scene.at("hook.state");
    let text = json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "bundle": "/b", "pid": init.pid()});
    fs::write(&state, text.to_string()).unwrap();
    let enter = |name: &str| {
        let hook = Command::new(env!("CARGO_BIN_EXE_tranche-oci"))
            .args(["hook", "claim", &format!("--device={GPU_0}"), "--claim", name])
            .arg(scene.option("state-dir", "state"))
            .stdin(fs::File::open(&state).unwrap())
            .output()
            .unwrap();
        (hook.status.success(), String::from_utf8(hook.stderr).unwrap())
    };
    let (entered, line) = enter("65534.own");
    assert!(!entered && line.lines().count() == 1, "{line}");
    assert!(line.contains("65534") && line.contains("--for-root"), "{line}");
    assert_eq!(enter("65534.lent"), (true, String::new()));
}

#[test]
fn a_claim_is_not_freed_by_another_user() {
    let Some(scene) = Scene::new("a_claim_is_not_freed_by_another_user") else {
        return;
    };
    scene.claim(ANN, "train").unwrap();
    let init = Sleeper::new(ANN);
    let request = json!({"device": GPU_0, "share": "any", "container": container("box-1"),
        "pid": init.pid()});
    scene.ask(ANN, "enter", request).unwrap();
    for what in [
        "train",
        "65534.train",
        "nvidia.com/claim=65534.train",
        "0.any",
        "nvidia.com/gpu=0.0",
        "box-1",
        "box-",
    ] {
        for force in [false, true] {
            let line = scene
                .ask(BOB, "release", json!({"what": what, "force": force}))
                .unwrap_err();
            assert!(line.contains("not found"), "{what}: {line}");
        }
    }
    scene
        .ask(BOB, "leave", json!({"container": container("box-1")}))
        .unwrap();
    drop(init);
    // Its init has ended, and still only its own user may say so.
    scene
        .ask(BOB, "leave", json!({"container": container("box-1")}))
        .unwrap();
    assert_eq!(scene.claims().len(), 2);
    scene
        .ask(ANN, "leave", json!({"container": container("box-1")}))
        .unwrap();
    scene.ask(ANN, "release", json!({"what": "train"})).unwrap();
    assert_eq!((scene.claims().len(), scene.specs()), (0, Vec::new()));
}

#[test]
fn a_name_is_neither_taken_from_another_user_nor_from_root() {
    let Some(scene) = Scene::new("a_name_is_neither_taken_from_another_user_nor_from_root") else {
        return;
    };
    let cdi = |uid, name| scene.claim(uid, name).map(|claimed| claimed["cdi"].clone());
    assert_eq!(cdi(ANN, "train").unwrap(), json!("nvidia.com/claim=65534.train"));
    assert_eq!(cdi(BOB, "train").unwrap(), json!("nvidia.com/claim=65533.train"));
    for name in ["65534.other", "65534.train", "0.x", "1.2"] {
        let line = cdi(BOB, name).unwrap_err();
        assert!(line.contains("not found"), "{line}");
    }
    for name in ["../../etc/x", "a/b", "", "start-0123456789abcdef\n"] {
        assert!(cdi(BOB, name).is_err(), "{name}");
    }
    let root = |name: &str| {
        let options = [
            "inventory=sim:t4x2".to_owned(),
            format!("config={}", scene.at("policy.yaml").display()),
        ];
        Command::new(scene.at("tranche"))
            .args(["claim", "create", "--shares=1", "--device=0", "--name", name])
            .args(options.map(|option| format!("--{option}")))
            .args([scene.option("state-dir", "state"), scene.option("spec-dir", "cdi")])
            .output()
            .unwrap()
    };
    let squatted = root("65534.squat");
    let line = String::from_utf8_lossy(&squatted.stderr).into_owned();
    assert!(line.contains("is a name for claims of users"), "{line}");
    assert!(root("train").status.success());
    assert_eq!(scene.names(), ["65533.train", "65534.train", "train"]);
    let spec = |name| format!("nvidia.com-claim_{name}.yaml");
    assert_eq!(scene.specs(), ["65533.train", "65534.train", "train"].map(spec));
}

#[test]
fn a_user_sees_nothing_of_the_claims_of_others() {
    let Some(scene) = Scene::new("a_user_sees_nothing_of_the_claims_of_others") else {
        return;
    };
    scene.claim(ANN, "secret").unwrap();
    let init = Sleeper::new(ANN);
    let request = json!({"device": GPU_0, "share": "3", "container": container("secret-box"), "pid": init.pid()});
    scene.ask(ANN, "enter", request).unwrap();
    assert_eq!(scene.seen(ANN), ["", "65534.secret"]);
    assert_eq!(scene.seen(BOB), [""; 0]);
    let of_bob = Sleeper::new(BOB);
    let enter = |share| json!({"device": GPU_0, "share": share, "container": container("b"), "pid": of_bob.pid()});
    let mut said = vec![
        scene.ask(BOB, "enter", enter("3")).unwrap_err(),
        scene
            .ask(BOB, "claim", json!({"name": "x", "device": "0", "share": ["3"]}))
            .unwrap_err(),
        scene
            .ask(BOB, "claim", json!({"name": "x", "device": "0", "shares": 10}))
            .unwrap_err(),
        scene.ask(BOB, "release", json!({"what": "3"})).unwrap_err(),
        scene.ask(BOB, "status", json!({})).unwrap().to_string(),
    ];
    assert!(said[0].contains("gpu 0 share 3: is held since"), "{}", said[0]);
    assert!(
        said[0].contains("; free: ") && said[1].contains("another user"),
        "{said:?}"
    );
    said.push(fs::read_to_string(scene.at("state/status.json")).unwrap());
    for text in said {
        for secret in ["secret", "65534", "/home/user", &init.pid().to_string()] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[test]
fn many_connections_of_one_user_hold_up_nobody() {
    let Some(scene) = Scene::new("many_connections_of_one_user_hold_up_nobody") else {
        return;
    };
    let silent: Vec<_> = (0..300).map(|_| scene.connect(BOB)).collect();
    let line = scene.ask(BOB, "list", json!({})).unwrap_err();
    assert!(line.contains("there are too many requests at once"), "{line}");
    scene.claim(ANN, "train").unwrap();
    scene.ask(0, "list", json!({})).unwrap();
    drop(silent);
    until("the broker has seen that they are gone", || {
        scene.ask(BOB, "list", json!({})).is_ok()
    });
    // Those who do not read their answers, after the broker did what they asked for.
    let unread: Vec<_> = (0..3)
        .map(|n| {
            let mut stream = scene.connect(BOB);
            let request =
                json!({"version": 1, "command": "claim", "name": format!("c{n}"), "device": "0", "shares": 1});
            stream.write_all(format!("{request}\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    scene.claim(ANN, "second").unwrap();
    for mut stream in unread {
        answer(&mut stream).unwrap();
    }
    assert_eq!(scene.names().len(), 5);
}

#[test]
fn the_ledger_is_not_locked_by_a_user() {
    let Some(scene) = Scene::new("the_ledger_is_not_locked_by_a_user") else {
        return;
    };
    scene.claim(ANN, "train").unwrap();
    for name in ["ledger", "ledger/lock", "ledger/queue", "broker.lock"] {
        let path = scene.at("state").join(name);
        let opened = as_user(BOB, || open(&path, OFlags::RDONLY, Mode::empty()));
        assert!(opened.is_err(), "{name}");
    }
}

#[test]
fn a_user_holds_no_more_than_the_quota_however_it_is_asked_for() {
    let Some(scene) = Scene::new("a_user_holds_no_more_than_the_quota_however_it_is_asked_for") else {
        return;
    };
    let line = scene
        .ask(BOB, "claim", json!({"name": "four", "device": "0", "shares": 4}))
        .unwrap_err();
    assert!(
        line.contains("user 65533: may hold 3 shares, holds 0 and asks for 4 more"),
        "{line}"
    );
    assert_eq!((scene.claims().len(), scene.specs()), (0, Vec::new()));
    scene.claim(BOB, "one").unwrap();
    let init = Sleeper::new(BOB);
    let enter = |id: &str, what: &str| {
        let mut request = json!({"device": GPU_0, "container": container(id), "pid": init.pid()});
        request[what] = if what == "whole" { json!(true) } else { json!("any") };
        scene.ask(BOB, "enter", request)
    };
    enter("a", "share").unwrap();
    enter("b", "share").unwrap();
    // The same container again is the same claim.
    enter("b", "share").unwrap();
    for (id, what) in [("c", "share"), ("c", "whole")] {
        let line = enter(id, what).unwrap_err();
        assert!(
            line.contains("may hold 3 shares, holds 3 and asks for 1 more"),
            "{line}"
        );
    }
    let line = scene.claim(BOB, "two").unwrap_err();
    assert!(
        line.contains("may hold 3 shares, holds 3 and asks for 1 more"),
        "{line}"
    );
    scene.claim(ANN, "one").unwrap();
    scene.ask(BOB, "release", json!({"what": "one"})).unwrap();
    enter("c", "share").unwrap();
    assert_eq!(scene.claims().len(), 4);
    assert!(
        scene
            .ask(BOB, "release", json!({"what": "c"}))
            .unwrap_err()
            .contains("which is running; stop that container")
    );
    scene.ask(BOB, "release", json!({"what": "c", "force": true})).unwrap();
    // Many at once are not more.
    thread::scope(|threads| {
        for n in 0..6 {
            let scene = &scene;
            threads.spawn(move || scene.claim(ANN, &format!("at-once-{n}")));
        }
    });
    assert_eq!(scene.claims().iter().filter(|claim| claim.uid == ANN).count(), 3);
}

#[test]
fn what_a_user_sends_does_not_end_the_broker_and_root_alone_changes_the_machine() {
    let test = "what_a_user_sends_does_not_end_the_broker_and_root_alone_changes_the_machine";
    let Some(mut scene) = Scene::new(test) else {
        return;
    };
    for (command, fields) in [
        ("prepare", json!({"device": GPU_0})),
        ("end-clients", json!({"container": container("c")})),
        ("mps", json!({"action": "stop", "device": GPU_0, "force": true})),
    ] {
        let line = scene.ask(BOB, command, fields).unwrap_err();
        assert_eq!(line, format!("{command}: only root may ask for this; "));
    }
    for bytes in [
        b"\n".to_vec(),
        b"\0\xff\xfe\n".to_vec(),
        vec![b'['; 16_000],
        [&vec![b'{'; 4000][..], b"\n"].concat(),
        vec![b' '; 1 << 20],
    ] {
        let mut stream = scene.connect(BOB);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = answer(&mut stream);
    }
    assert!(scene.runs());
    scene.claim(ANN, "train").unwrap();
}

/// A user whose places are all taken still gives back, and a command that finds no place tries again.
#[test]
fn a_user_gives_back_however_many_requests_there_are() {
    let Some(scene) = Scene::new("users::a_user_gives_back_however_many_requests_there_are") else {
        return;
    };
    scene.claim(BOB, "train").unwrap();
    // They say nothing, and are closed after two seconds.
    let full: Vec<UnixStream> = (0..8).map(|_| scene.connect(BOB)).collect();
    until("there is no place left", || {
        let refused = scene.ask(BOB, "list", json!({}));
        refused.is_err_and(|why| why.contains("too many requests at once"))
    });
    scene.ask(BOB, "release", json!({"what": "train"})).unwrap();
    assert!(scene.names().is_empty());
    let list = thread::scope(|threads| {
        let list = threads.spawn(|| scene.tranche(BOB, &["claim", "list"]));
        thread::sleep(Duration::from_millis(300));
        drop(full);
        list.join().unwrap()
    });
    assert!(list.status.success(), "{list:?}");
}

/// A user who opens connections without end, of which 500 are open at any time.
#[test]
fn what_a_user_gives_back_is_taken_among_500_connections_and_others_notice_nothing() {
    let test = "users::what_a_user_gives_back_is_taken_among_500_connections_and_others_notice_nothing";
    let Some(scene) = Scene::new(test) else { return };
    for name in ["a", "b", "c"] {
        scene.claim(BOB, name).unwrap();
    }
    let stop = AtomicBool::new(false);
    let opened = AtomicUsize::new(0);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut open = VecDeque::new();
            while !stop.load(Ordering::SeqCst) {
                open.push_back(scene.connect(BOB));
                if open.len() > 500 {
                    open.pop_front();
                }
                opened.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let flood = Ended(&stop);
        until("500 are open", || opened.load(Ordering::SeqCst) > 500);
        until("there is no place left", || {
            let refused = scene.ask(BOB, "list", json!({}));
            refused.is_err_and(|why| why.contains("too many requests at once"))
        });
        for name in ["a", "b"] {
            scene.ask(BOB, "release", json!({"what": name})).unwrap();
        }
        let release = scene.tranche(BOB, &["claim", "release", "c"]);
        assert!(release.status.success(), "{release:?}");
        scene.claim(ANN, "train").unwrap();
        let init = Sleeper::new(ANN);
        let start = json!({"device": GPU_0, "share": "any", "container": container("b"), "pid": init.pid()});
        scene.ask(ANN, "enter", start).unwrap();
        assert_eq!(scene.seen(ANN).len(), 2);
        scene.ask(ANN, "release", json!({"what": "train"})).unwrap();
        scene.ask(0, "list", json!({})).unwrap();
        drop(flood);
    });
    assert!(scene.names().is_empty());
}

/// Sets this when it is dropped, also by a failed assertion.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// `0.3` has the form of a claim of user 0, and is a share.
#[test]
fn a_user_releases_a_share_by_its_short_name() {
    let Some(scene) = Scene::new("users::a_user_releases_a_share_by_its_short_name") else {
        return;
    };
    let init = Sleeper::new(BOB);
    let request =
        json!({"device": GPU_0, "share": "3", "size": "1/10", "container": container("c"), "pid": init.pid()});
    scene.ask(BOB, "enter", request).unwrap();
    let release = |what: &str| scene.ask(BOB, "release", json!({"what": what, "force": true}));
    // What is another user's is not found, and the answer says no more.
    for what in ["65534.train", "0.4"] {
        let refused = release(what).unwrap_err();
        assert!(
            refused.contains("not found; tranche claim list shows yours"),
            "{refused}"
        );
    }
    release("0.3").unwrap();
    assert_eq!(scene.claims().len(), 0);
}
