//! `claim gc` removes the specifications of claims that are certainly gone, and no others.

use super::*;

/// Three claims, and the specification of one that is gone.
fn scene(test: &str) -> Option<Scene> {
    let scene = Scene::new(&format!("collected::{test}"))?;
    for name in ["one", "two"] {
        scene.create(&["--name", name, "--shares=1", "--of=0"]).run().ok();
    }
    scene.create(&["--name=gone", "--shares=1", "--of=0"]).run().ok();
    let spec = fs::read(scene.spec("gone")).unwrap();
    scene.tranche(&["claim", "release", "gone"]).run().ok();
    assert!(!scene.spec("gone").exists());
    fs::write(scene.spec("gone"), spec).unwrap();
    Some(scene)
}

fn specs(scene: &Scene) -> Vec<String> {
    let names = names_in(&scene.at("cdi")).into_iter();
    names
        .filter_map(|n| Some(n.strip_prefix("nvidia.com-claim_")?.strip_suffix(".yaml")?.to_owned()))
        .collect()
}

#[test]
fn a_specification_whose_claim_is_gone() {
    let Some(scene) = scene("a_specification_whose_claim_is_gone") else {
        return;
    };
    let said = scene.collect(&[]).run();
    assert!(
        said.err.contains("0 claims released, 1 specification removed"),
        "{}",
        said.err
    );
    said.ok();
    assert_eq!(specs(&scene), ["one", "two"]);
    let again = serde_json::from_str::<Value>(&scene.collect(&["--json"]).run().ok()).unwrap();
    assert_eq!(again, json!({"returned": 0, "removed": [], "problems": []}));
}

#[test]
fn nothing_is_removed_while_a_book_cannot_be_read() {
    let Some(scene) = scene("nothing_is_removed_while_a_book_cannot_be_read") else {
        return;
    };
    let before = specs(&scene);
    let book = names_in(&scene.at("state/ledger"))
        .into_iter()
        .find(|n| n.starts_with("GPU-"))
        .unwrap();
    let book = scene.at("state/ledger").join(book);
    let good = fs::read(&book).unwrap();
    fs::write(&book, "GPU memory is full\n").unwrap();
    let said = scene.collect(&[]).run();
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("no specification was removed"), "{}", said.err);
    assert_eq!(specs(&scene), before);
    let created = scene.create(&["--name=new", "--shares=1", "--of=0"]).run();
    assert_eq!(
        created.code,
        Some(1),
        "a claim of this name may be in it: {}",
        created.err
    );
    assert_eq!(specs(&scene), before);
    fs::write(&book, good).unwrap();
    scene.collect(&[]).run().ok();
    assert_eq!(specs(&scene), ["one", "two"]);
}

#[test]
fn specifications_of_another_state_directory_stay() {
    let Some(scene) = scene("specifications_of_another_state_directory_stay") else {
        return;
    };
    let before = specs(&scene);
    let directories = [scene.option("state-dir", "other"), scene.option("spec-dir", "cdi")];
    let mut words = vec![env!("CARGO_BIN_EXE_tranche").to_owned(), "claim".into(), "gc".into()];
    words.extend(directories);
    let said = Call { words, input: None }.run();
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_eq!(specs(&scene), before, "{}", said.err);
    let state = scene.at("state").display().to_string();
    assert!(
        said.err.contains(&format!("belongs to the ledger in {state}")),
        "{}",
        said.err
    );
    // The same directory by another path is not another.
    std::os::unix::fs::symlink(scene.at("state"), scene.at("link")).unwrap();
    let words = [
        "claim",
        "gc",
        &scene.option("state-dir", "link"),
        &scene.option("spec-dir", "cdi"),
    ];
    let words = std::iter::once(env!("CARGO_BIN_EXE_tranche"))
        .chain(words)
        .map(str::to_owned)
        .collect();
    Call { words, input: None }.run().ok();
    assert_eq!(specs(&scene), ["one", "two"]);
}

#[test]
fn files_that_do_not_say_whose_they_are_stay() {
    let Some(scene) = scene("files_that_do_not_say_whose_they_are_stay") else {
        return;
    };
    let text = fs::read_to_string(scene.spec("gone")).unwrap();
    fs::write(
        scene.spec("hand"),
        text.replace("Made by tranche", "Made by hand").replace("gone", "hand"),
    )
    .unwrap();
    fs::write(scene.spec("broken"), "?").unwrap();
    fs::write(scene.spec("renamed"), &text).unwrap();
    fs::write(scene.at("target"), &text).unwrap();
    fs::remove_file(scene.spec("gone")).unwrap();
    std::os::unix::fs::symlink(scene.at("target"), scene.spec("gone")).unwrap();
    let before = specs(&scene);
    let said = scene.collect(&[]).run();
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert_eq!(specs(&scene), before);
    assert!(scene.at("target").exists());
    for name in ["hand", "broken", "renamed", "gone"] {
        let line = format!("{}: left alone, because", scene.spec(name).display());
        assert!(said.err.contains(&line), "{name}: {}", said.err);
    }
}

/// So a claim takes as long to make with hundreds of others as with none.
#[test]
fn the_file_of_a_claim_that_exists_stays_and_is_not_read() {
    let Some(scene) = scene("the_file_of_a_claim_that_exists_stays_and_is_not_read") else {
        return;
    };
    fs::write(scene.spec("one"), "?").unwrap();
    scene.collect(&[]).run().ok();
    assert_eq!(specs(&scene), ["one", "two"]);
}

#[test]
fn a_specification_elsewhere_is_found_by_its_claim() {
    let Some(scene) = Scene::new("collected::a_specification_elsewhere_is_found_by_its_claim") else {
        return;
    };
    let elsewhere = scene.option("spec-dir", "elsewhere");
    scene
        .at_host(&["claim", "create", &elsewhere, "--name=one", "--shares=1", "--of=0"])
        .run()
        .ok();
    let file = scene.at("elsewhere/nvidia.com-claim_one.yaml");
    assert!(file.exists());
    fs::write(scene.at("elsewhere/.tranche.left.tmp"), "half").unwrap();
    scene.collect(&[]).run().ok();
    assert_eq!(names_in(&scene.at("elsewhere")), ["nvidia.com-claim_one.yaml"]);
    // An earlier claim of the same name left a copy in the first directory.
    fs::copy(&file, scene.spec("one")).unwrap();
    scene.collect(&[]).run().ok();
    assert!(file.exists() && !scene.spec("one").exists());
    scene.tranche(&["claim", "release", "one"]).run().ok();
    assert!(!file.exists(), "the claim knows where its specification is");
}

#[test]
fn a_claim_whose_specification_somebody_removed_is_reported() {
    let Some(scene) = scene("a_claim_whose_specification_somebody_removed_is_reported") else {
        return;
    };
    fs::remove_file(scene.spec("one")).unwrap();
    let line = scene.collect(&[]).run();
    assert_eq!(line.code, Some(1));
    assert!(
        line.err.contains("claim one: its specification") && line.err.contains("tranche claim release one"),
        "{line:?}"
    );
    scene.tranche(&["claim", "release", "one"]).run().ok();
    scene.collect(&[]).run().ok();
}

/// One file that cannot be removed keeps nobody from a claim, and `gc` names it.
#[test]
fn a_specification_that_cannot_be_removed_is_named_and_keeps_nobody_from_a_claim() {
    let test = "a_specification_that_cannot_be_removed_is_named_and_keeps_nobody_from_a_claim";
    let Some(scene) = Scene::new(test) else { return };
    if !rights::can_mount(&format!("claim_verbs::collected::{test}")) {
        return;
    }
    scene.create(&["--name=one", "--shares=1", "--of=0"]).run().ok();
    let text = fs::read(scene.spec("one")).unwrap();
    scene.tranche(&["claim", "release", "one"]).run().ok();
    fs::write(scene.spec("one"), text).unwrap();
    // What is mounted cannot be removed.
    let left = scene.spec("one").display().to_string();
    let mounted = format!("mount --bind {left} {left} && exec \"$@\"");
    let within = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-c",
        &mounted,
        "sh",
    ];
    let environment = ["env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
    let within = [&environment[..], &within[..]].concat();
    scene
        .create(&["--name=two", "--shares=1", "--of=0"])
        .run_behind(&within)
        .ok();
    let said = scene.collect(&[]).run_behind(&within);
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains(&format!("{left}: cannot be removed")), "{}", said.err);
    assert_eq!(scene.claims(), ["two"]);
    scene.collect(&[]).run().ok();
    assert!(!scene.spec("one").exists());
}
