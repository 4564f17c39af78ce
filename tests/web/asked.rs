//! What root and users see.

use crate::scene::Scene;
use crate::support::rights::owns_machine;
use crate::support::until::until;
use std::fs;
use std::os::unix::net::UnixStream;

/// A user without an account.
const ANN: u32 = 61_001;

#[test]
fn claims_become_a_history_which_others_see_without_names() {
    if !owns_machine("web::claims_become_a_history_which_others_see_without_names") {
        return;
    }
    let mut scene = Scene::new();
    scene.start();
    scene.claim("train");
    scene.claim("eval");
    scene.release("train");
    until("two spans", || {
        let spans = scene.spans();
        spans.len() == 2 && spans.iter().filter(|span| span["to"].is_null()).count() == 1
    });
    let who: Vec<String> = scene.spans().iter().map(|span| span["who"].to_string()).collect();
    assert!(who.iter().any(|who| who == "\"root: claim train\""), "{who:?}");
    let of_ann = scene.json_as(ANN, &["history"]).to_string();
    assert!(of_ann.contains("\"who\":null") && !of_ann.contains("train"), "{of_ann}");
    for by in ["user", "group"] {
        let by = format!("--by={by}");
        let root = scene.json_as(0, &["report", &by]);
        assert_eq!(root["rows"][0]["name"], "root", "{root}");
        let ann = scene.json_as(ANN, &["report", &by]);
        assert!(ann["rows"][0]["name"].is_null(), "{ann}");
        assert!(ann["rows"][0]["held_seconds"].is_u64(), "{ann}");
    }
    let csv = scene.tranche_as(0, &["report", "--by=device", "--csv", "--since=1d"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert_eq!(csv.lines().count(), 2, "{csv}");
    assert!(csv.lines().nth(1).unwrap().starts_with("\"GPU-"), "{csv}");
    let text = String::from_utf8(scene.tranche_as(0, &["history", "--since=1d"]).stdout).unwrap();
    assert!(text.contains("root: claim eval") && text.contains('-'), "{text}");
}

#[test]
fn what_cannot_be_answered_is_one_line() {
    let mut scene = Scene::new();
    let nobody = scene.tranche_as(0, &["report"]);
    assert_eq!(nobody.status.code(), Some(3));
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(
        said.contains("tranche-web does not listen there") && said.lines().count() == 1,
        "{said}"
    );
    scene.start();
    for line in [&b"\n"[..], b"{\"command\":\"drop\"}\n", &[b'x'; 10_000], b"\xFF\xFE\n"] {
        let answer = scene.answer(line);
        assert!(answer.starts_with("{\"error\":") || answer.is_empty(), "{answer}");
    }
    // Many that say nothing do not keep the next one from an answer.
    let silent: Vec<UnixStream> = (0..50)
        .map(|_| UnixStream::connect(scene.at("socket")).unwrap())
        .collect();
    scene.json_as(0, &["report"]);
    drop(silent);
    let second = scene.web_command().output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(
        said.trim_end().ends_with("is used by another tranche-web") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(second.status.code(), Some(1));
    // The socket is still that of the first one.
    scene.json_as(0, &["report"]);
}

#[test]
fn a_damaged_database_is_set_aside_and_what_is_left_of_the_events_is_read() {
    let mut scene = Scene::new();
    scene.claim("train");
    fs::write(
        scene.at("data/history.sqlite"),
        "not a database, but something that is longer than a header of one",
    )
    .unwrap();
    scene.start();
    until("the claim", || scene.spans().len() == 1);
    assert!(
        fs::read_to_string(scene.at("data/history.sqlite.damaged"))
            .unwrap()
            .starts_with("not a")
    );
}

/// A newer tranche wrote the database, or the events: each is one line, and nothing of it is lost.
#[test]
fn what_a_newer_version_wrote_is_left_to_it() {
    let mut scene = Scene::new();
    scene.start();
    scene.kill();
    let database = scene.at("data/history.sqlite");
    let mut bytes = fs::read(&database).unwrap();
    // The form of the content (sqlite.org/fileformat.html, "Database Header Format").
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    fs::write(&database, &bytes).unwrap();
    // What the killed one had not yet taken into the file.
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(scene.at(&format!("data/history.sqlite{end}")));
    }
    let refused = scene.web_command().output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("has form 99, and this program writes 1; a newer tranche wrote it") && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(fs::read(&database).unwrap(), bytes);

    fs::remove_file(&database).unwrap();
    scene.claim("train");
    let log = scene.at("state/events/log");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.replacen("tranche-events 1 ", "tranche-events 2 ", 1)).unwrap();
    let journal = scene.at("journal");
    scene.start_logging(&journal);
    let said = || fs::read_to_string(&journal).unwrap();
    until("it says so", || {
        said().contains("has form 2, of a newer tranche, and is not read")
    });
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(said().lines().count(), 1, "{}", said());
    assert!(scene.spans().is_empty());
}
