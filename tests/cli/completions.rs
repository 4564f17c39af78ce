//! What a shell offers for the command line of tranche. bash is asked, because it is everywhere.

use crate::support::{programs, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What bash offers for the last of `words`, in a directory that has the file `some-file`.
fn offered(script: &Path, top: &Path, words: &[&str]) -> Vec<String> {
    let list = words
        .iter()
        .map(|word| format!("'{word}'"))
        .collect::<Vec<_>>()
        .join(" ");
    let last = words.len() - 1;
    let text = format!(
        "source '{}'; COMP_WORDS=({list}); COMP_CWORD={last}; _tranche tranche \"${{COMP_WORDS[{last}]}}\" \
         \"${{COMP_WORDS[{}]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        last - 1
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
        "case \"$*\" in\n'cdi list') printf 'nvidia.com/gpu=0\\nnvidia.com/gpu=0.any\\n' ;;\n'claim list') \
         printf 'CLAIM  SHARES\\nnvidia.com/claim=train1  0.0, 0.1\\n' ;;\nesac",
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
            "(tranche claim list 2>/dev/null",
        ),
    ] {
        let text = fs::read_to_string(share.join(file)).unwrap();
        let is_left = |name: &str| text.contains(&format!("({name}")) || text.contains(&format!("{name}\\t"));
        let left = ["TRANCHE_DEVICES", "TRANCHE_CDI_NAMES", "TRANCHE_CLAIMS", "TRANCHE_HELD"];
        assert!(text.contains(part) && !left.into_iter().any(is_left), "{file}");
    }
}
