//! Nothing that a user's engine says is shown or matched as a name: not to root, and not in place of another user's.

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper, container};
use serde_json::{Value, json};
use std::process::Output;

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Root's table of who holds what.
fn rows(scene: &Scene) -> Vec<String> {
    let output = scene.tranche(0, &["status", "--no-gpu"]);
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn enter(scene: &Scene, init: &Sleeper, share: &str, asked_as: &str, id: &str) -> Result<Value, String> {
    let request =
        json!({"device": GPU_0, "share": share, "as": asked_as, "container": container(id), "pid": init.pid()});
    scene.ask(ANN, "enter", request)
}

#[test]
fn a_user_forges_no_row_and_no_name_of_root() {
    let Some(scene) = Scene::new("a_user_forges_no_row_and_no_name_of_root") else {
        return;
    };
    for (name, share) in [("payroll", "3"), ("train", "4")] {
        let created = scene.tranche_of_root(&["claim", "create", "--name", name, "--device=0", "--share", share]);
        assert!(created.status.success(), "{}", err(&created));
    }
    let (one, two) = (Sleeper::new(ANN), Sleeper::new(ANN));
    enter(&scene, &one, "5", "nvidia.com/claim=payroll", "payroll").unwrap();
    enter(&scene, &two, "6", &"nvidia.com/gpu=0.3".repeat(800), "train").unwrap();
    let table = rows(&scene);
    let with = |text: &str| table.iter().filter(|row| row.contains(text)).count();
    // No specification names the device here, so its key does.
    let share = |number: u32| format!("{GPU_0}.{number} ");
    for name in ["nvidia.com/claim=payroll", &share(3), &share(4), &share(5), &share(6)] {
        assert_eq!(with(name), 1, "{name}: {table:#?}");
    }
    assert_eq!(
        (with("nvidia.com/gpu=0.3"), with("65534.payroll"), with("65534.train")),
        (0, 1, 1),
        "{table:#?}"
    );
    assert!(table.iter().all(|row| row.chars().count() < 200), "{table:#?}");
    // Each of these names is root's, and the second time nothing has it.
    for (name, of) in [
        ("payroll", "nvidia.com/claim=payroll"),
        (share(4).trim(), "nvidia.com/claim=train"),
    ] {
        let released = scene.tranche(0, &["claim", "release", name]);
        assert!(
            released.status.success() && err(&released).contains(&format!("released {of}")),
            "{}",
            err(&released)
        );
        let again = scene.tranche(0, &["claim", "release", name]);
        assert!(
            err(&again).contains("not found among claims, held devices and containers"),
            "{}",
            err(&again)
        );
        assert!(
            err(&again).contains(&format!("{GPU_0}.5 by container 65534.payroll since")),
            "{}",
            err(&again)
        );
    }
    for name in ["train", "65534.payrol", "65534.train"] {
        let refused = scene.tranche(0, &["claim", "release", name]);
        assert_eq!(
            refused.status.code(),
            Some(if name == "train" { 2 } else { 1 }),
            "{}",
            err(&refused)
        );
    }
    for name in ["65534.payrol", "65534.train"] {
        let released = scene.tranche(0, &["claim", "release", "--force", name]);
        assert!(released.status.success(), "{}", err(&released));
    }
    assert!(scene.claims().is_empty());
}

#[test]
fn an_id_that_a_table_would_have_to_quote_is_refused() {
    let Some(scene) = Scene::new("an_id_that_a_table_would_have_to_quote_is_refused") else {
        return;
    };
    let init = Sleeper::new(ANN);
    for id in [
        "a/b",
        "a b",
        "\u{1b}[2J",
        "é",
        "a\nb",
        "../x",
        "a,b",
        "a=b",
        &"i".repeat(129),
    ] {
        let line = enter(&scene, &init, "5", "x", id).unwrap_err();
        assert!(line.contains("request: has a wrong field: the id "), "{id:?}: {line}");
    }
    enter(&scene, &init, "5", "x", &"i".repeat(128)).unwrap();
    assert!(rows(&scene).iter().all(|row| row.chars().count() < 200));
}

#[test]
fn root_releases_all_that_a_user_holds() {
    let Some(scene) = Scene::new("root_releases_all_that_a_user_holds") else {
        return;
    };
    let take = || {
        for uid in [ANN, 200_001, BOB] {
            scene.claim(uid, "one").unwrap();
        }
    };
    let files = [
        ("/etc/passwd", "root:x:0:0::/:/bin/sh\nann:x:65534:65534::/:/bin/sh\n"),
        ("/etc/subuid", "ann:200000:65536\n"),
    ];
    let release = |user: &str| {
        let mut command = scene.with_files(&files);
        command
            .arg(scene.at("tranche"))
            .args(["claim", "release", "--user", user]);
        command.arg(scene.option("state-dir", "state")).output().unwrap()
    };
    // Also where nothing was ever held.
    let unknown = release("nobody-has-this-name");
    assert!(
        err(&unknown).contains("user nobody-has-this-name: not found"),
        "{}",
        err(&unknown)
    );
    take();
    let released = release("ann");
    assert!(released.status.success(), "{}", err(&released));
    assert_eq!(scene.names(), ["65533.one"]);
    let again = release("ann");
    assert!(err(&again).contains("user 65534: holds nothing"), "{}", err(&again));
    scene.claim(ANN, "one").unwrap();
    scene.claim(200_001, "one").unwrap();
    assert!(release("200001").status.success(), "exactly this uid");
    assert_eq!(scene.names(), ["65533.one", "65534.one"]);
    assert!(release("65533").status.success());
    let of_bob = scene.tranche(BOB, &["claim", "release", "--user", "65534"]);
    assert!(
        err(&of_bob).contains("--user: only root can release"),
        "{}",
        err(&of_bob)
    );
    // A container that runs is released by force alone, and nothing else of the user before it.
    let init = Sleeper::new(ANN);
    enter(&scene, &init, "5", "x", "runs").unwrap();
    let refused = release("65534");
    assert!(
        err(&refused).contains("is running; stop that container, or give --force"),
        "{}",
        err(&refused)
    );
    assert_eq!(scene.claims().len(), 2);
    assert!(
        scene
            .tranche(0, &["claim", "release", "--force", "--user=65534"])
            .status
            .success()
    );
    assert!(scene.claims().is_empty());
}
