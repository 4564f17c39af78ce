//! The program is killed again and again while claims are made.

use crate::scene::Scene;
use crate::support::until::until;
use std::thread::sleep;
use std::time::Duration;

/// How many claims are made, and how often it is killed.
const ROUNDS: u64 = 12;

#[test]
fn each_claim_is_in_the_history_once_however_often_the_program_is_killed() {
    let mut scene = Scene::new();
    for round in 0..ROUNDS {
        let mut web = scene.web_command().spawn().unwrap();
        scene.claim(&format!("c{round}"));
        // At its start, while it makes the database, while it reads and afterwards.
        sleep(Duration::from_millis(round * 3));
        web.kill().unwrap();
        web.wait().unwrap();
        scene.release(&format!("c{round}"));
    }
    scene.start();
    until("all spans", || scene.spans().len() as u64 >= ROUNDS);
    let spans = scene.spans();
    assert_eq!(spans.len() as u64, ROUNDS, "{spans:?}");
    assert!(spans.iter().all(|span| span["to"].is_u64()), "{spans:?}");
    let mut names: Vec<String> = spans.iter().map(|span| span["who"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len() as u64, ROUNDS, "{names:?}");
}
