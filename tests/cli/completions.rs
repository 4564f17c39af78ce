//! What a shell offers for the command line of tranche. bash is asked, because it is everywhere.

use crate::support::{programs, skip};
use crate::tranche;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What bash offers for the last of `words`, in a directory that has the file `some-file`.
fn offered(script: &Path, top: &Path, words: &[&str]) -> Vec<String> {
    let line = words.join(" ");
    let text = format!(
        "source '{}'; COMP_WORDBREAKS=' =:'; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _tranche_joined tranche; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\"",
        script.display(),
    );
    let output = Command::new("/bin/bash")
        .args(["--norc", "-c", &text])
        .current_dir(top)
        .env("PATH", format!("{}:/usr/bin:/bin", top.join("bin").display()))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    said.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_shell_offers_words_and_names_and_files_only_where_a_file_is_meant() {
    let Some(pages) = option_env!("CARGO_BIN_EXE_tranche-pages") else {
        skip::not_run("completions::a_shell_offers_words", "not built with the feature pages");
        return;
    };
    let top = tempfile::tempdir().unwrap();
    let share = top.path().join("share");
    let made = Command::new(pages).arg("commands").arg(&share).status().unwrap();
    assert!(made.success());
    let script = share.join("bash-completion/completions/tranche");
    fs::write(top.path().join("some-file"), "").unwrap();
    // What is asked for the names.
    programs::script(
        top.path().join("bin/tranche"),
        "case \"$*\" in\n'cdi list') printf 'nvidia.com/gpu=0\\nnvidia.com/gpu=0.any\\n' ;;\n'complete-names devices') \
         printf '0\\n0.any\\n0:1\\n' ;;\n'complete-names claims') printf 'train1\\n' ;;\n'complete-names layouts') printf \
         '0:3g.20gb\\n0:empty\\n' ;;\n'complete-names inventories') printf 'sim:t4x2\\nsim:gb200\\n' ;;\nesac",
    );
    let offers = |words: &[&str]| offered(&script, top.path(), words);
    for (words, expected) in [
        (
            &["tranche", "cdi", "generate", "--format", ""][..],
            &["yaml", "json"][..],
        ),
        (&["tranche", "cdi", "generate", "--mode", "g"], &["gds", "gdrcopy"]),
        (
            &["tranche", "runtime", "configure", "--runtime", ""],
            &["docker", "containerd", "crio", "podman"],
        ),
        (&["tranche", "cdi", "generate", "--device-id", ""], &["0", "0.any"]),
        (&["tranche", "run", "--share", "0."], &["0.any"]),
        (&["tranche", "mps", "start", "0"], &["0", "0.any"]),
        (&["tranche", "claim", "show", ""], &["train1"]),
        (&["tranche", "claim", "release", ""], &["train1", "0.any"]),
        (
            &["tranche", "cdi", "inspect", "nvidia.com/"],
            &["nvidia.com/gpu=0", "nvidia.com/gpu=0.any"],
        ),
        // bash replaces what is behind its last `:` or `=`.
        (&["tranche", "cdi", "inspect", "nvidia.com/gpu=0."], &["0.any"]),
        (&["tranche", "mps", "start", "0:"], &["1"]),
        (&["tranche", "mig", "plan", "--layout", "0:3"], &["3g.20gb"]),
        (&["tranche", "mig", "apply", "--layout=0:e"], &["empty"]),
        (&["tranche", "list", "--inventory", "sim:t"], &["t4x2"]),
        (&["tranche", "list", "--inventory", "s"], &["sim:t4x2", "sim:gb200"]),
        (&["tranche", "cdi", "generate", "--output", "some"], &["some-file"]),
        (&["tranche", "policy", "check", "--config", "some"], &["some-file"]),
    ] {
        let found = offers(words);
        assert!(
            expected.iter().all(|word| found.contains(&(*word).to_owned())),
            "{words:?}: {found:?}"
        );
        let is_file = expected.contains(&"some-file");
        assert!(
            is_file || !found.contains(&"some-file".to_owned()),
            "{words:?}: {found:?}"
        );
    }
    assert!(offers(&["tranche", "cdi", "generate", "--cdi-version", "1."]).contains(&"1.0.0".to_owned()));
    for words in [
        &["tranche", "claim", "create", "--share", ""][..],
        &["tranche", "status", "--gpu-timeout", ""],
    ] {
        assert!(!offers(words).contains(&"some-file".to_owned()), "{words:?}");
    }
    let options = offers(&["tranche", "-"]);
    assert!(
        options.contains(&"-q".to_owned()) && !options.contains(&"-c".to_owned()),
        "{options:?}"
    );
    for (file, part) in [
        ("zsh/site-functions/_tranche", "_tranche_devices() { compadd -- "),
        (
            "fish/vendor_completions.d/tranche.fish",
            "(tranche complete-names claims 2>/dev/null",
        ),
    ] {
        let text = fs::read_to_string(share.join(file)).unwrap();
        let is_left = |name: &str| text.contains(&format!("({name}")) || text.contains(&format!("{name}\\t"));
        let left = [
            "TRANCHE_DEVICES",
            "TRANCHE_CDI_NAMES",
            "TRANCHE_CLAIMS",
            "TRANCHE_HELD",
            "TRANCHE_LAYOUTS",
        ];
        assert!(text.contains(part) && !left.into_iter().any(is_left), "{file}");
    }
}

#[test]
fn names_are_those_of_the_last_refresh_and_a_user_gets_them_too() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name).display().to_string();
    let (state, output) = (
        format!("--state-dir={}", at("state")),
        format!("--output-dir={}", at("cdi")),
    );
    let inventory = "--inventory=sim:dgx-a100-mig";
    let said = tranche(&["cdi", "refresh", inventory, &state, &output]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let before = fs::read_dir(at("state")).unwrap().count();
    let names = |kind: &str| {
        let said = tranche(&["complete-names", kind, &state]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
        said.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |kind: &str, name: &str| assert!(names(kind).contains(&name.to_owned()), "{kind}: {:?}", names(kind));
    has("devices", "1:0");
    has("devices", "7");
    has("layouts", "7:3g.20gb");
    has("layouts", "7:off");
    has("inventories", "sim:gb200");
    assert_eq!(names("claims"), [""; 0]);
    assert_eq!(
        fs::read_dir(at("state")).unwrap().count(),
        before,
        "a look leaves no lock"
    );
    // A machine of which nothing is known has no names, and no message in the middle of a command line.
    let unknown = tranche(&["complete-names", "devices", "--state-dir=/nonexistent"]);
    assert_eq!(
        (unknown.code, unknown.out.as_str(), unknown.err.as_str()),
        (Some(0), "", "")
    );
    if !nix::unistd::geteuid().is_root() {
        skip::not_run(
            "completions::a_user_gets_them_too",
            "not root: cannot become another user",
        );
        return;
    }
    let mut command = crate::program(&["complete-names", "devices", &state]);
    fs::set_permissions(top.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    match command.output() {
        Ok(output) => assert!(String::from_utf8_lossy(&output.stdout).contains("1:0\n"), "{output:?}"),
        Err(error) => skip::not_run("completions::a_user_gets_them_too", &format!("the program: {error}")),
    }
}

/// The file of each shell is one that the shell reads.
#[test]
fn installed_shells_read_their_files() {
    let Some(pages) = option_env!("CARGO_BIN_EXE_tranche-pages") else {
        skip::not_run(
            "completions::installed_shells_read_their_files",
            "not built with the feature pages",
        );
        return;
    };
    let top = tempfile::tempdir().unwrap();
    assert!(
        Command::new(pages)
            .arg("commands")
            .arg(top.path())
            .status()
            .unwrap()
            .success()
    );
    for (shell, file) in [
        ("bash", "bash-completion/completions/tranche"),
        ("zsh", "zsh/site-functions/_tranche"),
        ("fish", "fish/vendor_completions.d/tranche.fish"),
    ] {
        match Command::new(shell).arg("-n").arg(top.path().join(file)).output() {
            Ok(output) => assert!(
                output.status.success() && output.stderr.is_empty(),
                "{shell}: {output:?}"
            ),
            Err(error) => skip::not_run(
                "completions::installed_shells_read_their_files",
                &format!("{shell}: {error}"),
            ),
        }
    }
}
