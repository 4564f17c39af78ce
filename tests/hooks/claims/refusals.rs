//! The messages for a container that gets no share.

use super::*;

/// A claim of this part of a device by a container, and what the hook says if it is refused.
fn ask(scene: &Scene, arguments: &[&str], id: &str, init: &Init) -> Result<(), String> {
    let arguments = [&["--device=GPU-11111111", "--label=gpu 0"], arguments].concat();
    said(scene.with("claim", &arguments, "/b", id, init.pid()).output().unwrap())
}

#[test]
fn a_container_that_holds_something_of_the_device_is_told_how_it_gets_more() {
    let test = "a_container_that_holds_something_of_the_device_is_told_how_it_gets_more";
    let Some(scene) = Scene::new(test) else { return };
    let init = Init::new();
    let share = |name: &str, more: &str, id: &str| {
        let name = format!("--share={name}");
        ask(&scene, &[&name, "--size=1/10", "--of=10", more], id, &init)
    };
    share("0", "--alone", "one").unwrap();
    let line = share("1", "--alone", "one").unwrap_err();
    assert!(line.contains("its policy says failRequestsGreaterThanOne"), "{line}");
    let line = ask(&scene, &["--whole"], "one", &init).unwrap_err();
    assert!(
        line.contains("the whole device or shares of it, and not both"),
        "{line}"
    );
    fs::create_dir(scene.top.path().join("pipe")).unwrap();
    let _daemon = listening(&scene.top.path().join("pipe/control"));
    let daemon = format!("--daemon={}", scene.top.path().join("pipe").display());
    let line = ask(
        &scene,
        &["--share=1", "--size=1/10", "--of=10", "--alone", &daemon],
        "one",
        &init,
    )
    .unwrap_err();
    assert!(
        line.contains("tranche claim create --name NAME --shares 2 --of 0 gives several as one"),
        "{line}"
    );
    let other = |part: &[&str]| {
        let arguments = [&["--device=GPU-22222222", "--label=gpu 1"], part].concat();
        said(
            scene
                .with("claim", &arguments, "/b", "one", init.pid())
                .output()
                .unwrap(),
        )
    };
    other(&["--whole"]).unwrap();
    let line = other(&["--share=1", "--size=1/10", "--of=10", "--alone"]).unwrap_err();
    assert!(
        line.contains("the whole device or shares of it, and not both"),
        "{line}"
    );
}

#[test]
fn a_share_that_nobody_holds_and_that_does_not_fit_is_not_called_free() {
    let test = "a_share_that_nobody_holds_and_that_does_not_fit_is_not_called_free";
    let Some(scene) = Scene::new(test) else { return };
    let init = Init::new();
    for (capacity, says) in [
        ("--capacity=100:100", "no share of it is free"),
        ("--capacity=200:120", "free: 1\n"),
    ] {
        let share = ["--share=0", "--size=mps:60:60", "--of=2", capacity];
        ask(&scene, &share, "one", &init).unwrap();
        let line = ask(&scene, &share, "two", &init).unwrap_err();
        assert!(line.contains(says), "{line}");
    }
}

/// An option may be a limit of the claim, and a claim without its limit would get more than was meant.
#[test]
fn an_unknown_option_of_a_claim_is_refused_and_a_word_is_not() {
    let test = "an_unknown_option_of_a_claim_is_refused_and_a_word_is_not";
    let Some(scene) = Scene::new(test) else { return };
    let init = Init::new();
    let share = |more: &str| {
        let arguments = ["--device=GPU-11111111", "--share=0", "--size=1/10", "--of=10", more];
        let output = scene
            .with("claim", &arguments, "/b", "one", init.pid())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, line) = share("--most-watts=100");
    assert!(
        code == Some(2) && line.contains("--most-watts: unknown option of a claim"),
        "{line}"
    );
    assert!(!scene.file().exists());
    let (code, line) = share("word");
    assert!(code == Some(0) && line.contains("word"), "{line}");
    assert_eq!(scene.held(), [("0".to_owned(), "one".to_owned())]);
}
