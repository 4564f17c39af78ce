use super::*;
use crate::intake::tests::{Scene, gpu, uptime};

fn root() -> Viewer {
    Viewer { uid: 0, sees_all: true }
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
    // Without a user, nobody is named.
    let nobody = page(&scene.database, scene.top.path(), &Viewer::NOBODY).unwrap();
    assert!(!nobody.contains("&lt;b&gt;x") && !nobody.contains("40000"), "{nobody}");
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
    assert_eq!(text.matches("<rect class=\"used\"").count(), 1000);
}
