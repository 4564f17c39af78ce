//! Commands that ask the broker for layouts: without one, killed, and beside a broker of another version.

use crate::bed::Bed;
use crate::support::until;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread;

#[test]
fn without_a_broker_the_command_does_all_of_it() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
    assert!(bed.offers("0:6"));
    let said = bed.tranche(&[
        "mig",
        "apply",
        "--yes",
        "--layout",
        "0:3g.20gb@4",
        "--layout",
        "1:2g.10gb@0",
    ]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("nvidia.com/gpu=0:1 is no device any more"),
        "{said:?}"
    );
    assert_eq!(
        (bed.layout(0).as_str(), bed.layout(1).as_str()),
        ("3g.20gb@4", "2g.10gb@0")
    );
    assert!(bed.offers("0:0") && bed.offers("1:0") && !bed.offers("0:6"));
    bed.lose_instances();
    let said = bed.tranche(&["mig", "restore"]);
    assert_eq!((said.code, bed.layout(1).as_str()), (Some(0), "2g.10gb@0"), "{said:?}");
    // A broker goes on with it.
    bed.start();
    bed.apply("1:1g.5gb@6");
    assert_eq!(bed.tranche(&["mig", "undo", "--yes"]).code, Some(0));
    assert_eq!(bed.layout(1), "2g.10gb@0");
}

/// The client of a request is killed as soon as the request is on its way.
#[test]
fn a_killed_client_leaves_nothing_undone() {
    let bed = Bed::new("dgx-a100-mig");
    bed.apply("0:1g.5gb@0");
    std::fs::write(
        bed.at("state/mig-restore.json"),
        json!({"version": 1, "failed": [{"gpu": bed.uuid(0), "reason": "x"}]}).to_string(),
    )
    .unwrap();
    assert!(bed.offers("0:0") && !bed.offers("0:1"));
    drop(bed.send(&json!({"command": "mig", "layouts": ["0:1g.5gb@0,1g.5gb@1"]})));
    until("the specifications are up to date", || bed.offers("0:1"));
    until("doctor forgets what the boot could not make", || {
        !bed.at("state/mig-restore.json").exists()
    });
    assert_eq!(bed.layout(0), "1g.5gb@0,1g.5gb@1");
}

/// What a broker of an earlier version answers to each command.
fn earlier_broker(bed: &Bed, answer: fn(&Value) -> Value) -> thread::JoinHandle<()> {
    let listener = UnixListener::bind(bed.at("state/broker.sock")).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let answer = answer(&serde_json::from_str(&line).unwrap());
        stream.write_all(format!("{answer}\n").as_bytes()).unwrap();
    })
}

#[test]
fn beside_an_earlier_broker_nothing_is_lost() {
    let mut bed = Bed::new("dgx-a100-mig");
    bed.apply("0:1g.5gb@0");
    bed.end(nix::sys::signal::Signal::SIGTERM);
    // What it changed, by another hand.
    let broker = earlier_broker(&bed, |request| {
        assert_eq!(
            request["layouts"][0].as_str().unwrap().split_once(':').unwrap().1,
            "1g.5gb@0,1g.5gb@1"
        );
        json!({"version": 1, "ok": {"changed": ["GPU-x"]}})
    });
    std::fs::remove_file(bed.at("cdi/tranche.yaml")).unwrap();
    let said = bed.tranche(&["mig", "apply", "--yes", "--layout", "0:1g.5gb@0,1g.5gb@1"]);
    broker.join().unwrap();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(bed.offers("0:0"), "the client has the specifications written");
    std::fs::remove_file(bed.at("state/broker.sock")).unwrap();
    let broker = earlier_broker(&bed, |request| {
        assert_eq!(request["command"], "mig-restore");
        json!({"version": 1, "error": {"kind": "usage", "object": "command mig-restore", "what": "unknown", "hint": null}})
    });
    let said = bed.tranche(&["mig", "restore"]);
    broker.join().unwrap();
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(2), "tranche: command mig-restore: unknown\n"),
        "{said:?}"
    );
}

#[test]
fn of_two_commands_without_a_broker_one_is_made_whole() {
    let bed = Bed::without_broker("dgx-a100-mig");
    assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
    let layouts = ["1g.5gb@0,2g.10gb@4", "3g.20gb@0,3g.20gb@4"];
    let said = bed.apply_at_once(layouts);
    assert!(said.iter().any(|one| one.code == Some(0)), "{said:?}");
    let refused = said.iter().filter(|one| one.code != Some(0));
    for one in refused {
        // The other one is seen by its lock, by what it has changed, or as the holder of the devices that it changes.
        let known = [
            "try again",
            "look at the plan again",
            "program tranche mig stands in the way",
        ];
        let is_known = known.iter().any(|known| one.err.contains(known));
        assert!(one.code == Some(1) && is_known, "{said:?}");
    }
    assert!(layouts.contains(&bed.layout(0).as_str()), "{}", bed.layout(0));
}
