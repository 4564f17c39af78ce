use super::*;
use crate::intake::tests::{Scene, gpu, uptime};
use std::collections::BTreeSet;

fn root() -> Viewer {
    Viewer::of(0)
}

#[test]
fn names_are_escaped_and_others_are_not_named() {
    let mut scene = Scene::new();
    let now = uptime();
    scene.take_as(now - 100, &gpu(0), 1, 40_000, "<b>x</b>");
    scene.take_as(now - 90, &gpu(0), 2, 50_000, "secret");
    scene.look();
    let of_root = page(&scene.database, scene.top.path(), &root()).unwrap();
    assert!(!of_root.contains("<b>") && of_root.contains("&lt;b&gt;x"), "{of_root}");
    assert!(of_root.contains("secret"), "{of_root}");
    let own = page(&scene.database, scene.top.path(), &Viewer::of(40_000)).unwrap();
    assert!(own.contains("&lt;b&gt;x") && own.contains("another user"), "{own}");
    assert!(!own.contains("secret") && !own.contains("50000"), "{own}");
    // Where the reader has no user, each user has a pseudonym.
    let anybody = || page(&scene.database, scene.top.path(), &Viewer::anybody(scene.top.path())).unwrap();
    let hidden = anybody();
    for secret in ["&lt;b&gt;x", "40000", "50000", "secret", "another user"] {
        assert!(!hidden.contains(secret), "{secret}: {hidden}");
    }
    let pseudonyms: BTreeSet<&str> = hidden
        .match_indices("user-")
        .map(|(at, _)| &hidden[at..at + 11])
        .collect();
    assert_eq!(pseudonyms.len(), 2, "{hidden}");
    assert_eq!(hidden, anybody(), "they stay the same");
    // The policy may name users, but not what they run.
    std::fs::write(scene.top.path().join("events/names-are-shown"), "").unwrap();
    let shown = anybody();
    assert!(shown.contains("uid 40000") && shown.contains("uid 50000"), "{shown}");
    assert!(!shown.contains("&lt;b&gt;x") && !shown.contains("secret"), "{shown}");
    for forbidden in ["style=", "onclick", "http://", "https://"] {
        assert!(!of_root.contains(forbidden), "{forbidden}: {of_root}");
    }
}

/// A thousand claims: the time is printed, and not judged here.
#[test]
fn a_thousand_claims_are_one_page() {
    let mut scene = Scene::new();
    let now = uptime();
    scene.take(now - 100, &gpu(0), 0, 1000);
    scene.look();
    for share in 1..1000 {
        let copy = "INSERT INTO holds (boot, device, part, uid, who, joined, used, began)
                    SELECT boot, device, 'share ' || ?1, 1000 + ?1 % 7, who, 0, 1, began FROM holds WHERE id = 1";
        scene.database.execute(copy, [share]).unwrap();
    }
    let start = std::time::Instant::now();
    let text = page(&scene.database, scene.top.path(), &root()).unwrap();
    println!("1,000 claims: {} bytes in {:?}", text.len(), start.elapsed());
    assert_eq!(text.matches("<rect class=\"used\" x=").count(), 1000);
}
