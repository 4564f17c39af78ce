//! The file of a run.

use super::gpu::{Cheats, results, run};
use crate::results::Results;
use tranche_core::error::{Kind, line};

#[test]
fn a_file_is_read_as_it_was_written() {
    let written = results(Cheats::default());
    let text = written.text().unwrap();
    assert!(text.ends_with("}\n") && text.len() < 200_000, "{}", text.len());
    let read = Results::read("a.json", &text).unwrap();
    assert_eq!(read, written);
    assert_eq!(read.text().unwrap(), text);
}

#[test]
fn a_file_of_another_version_or_of_another_kind_is_refused_in_one_line() {
    let text = results(Cheats::default()).text().unwrap();
    let newer = text.replace("\"version\": 1,", "\"version\": 2, \"news\": true,");
    let error = Results::read("a.json", &newer).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(
        line(&error).starts_with("a.json: results of version 2, expected 1; measure again"),
        "{}",
        line(&error)
    );
    for (bad, words) in [
        (String::new(), "not a file of results of tranche bench"),
        ("[]".to_owned(), "not a file of results"),
        ("{\"version\": 1}".to_owned(), "missing field"),
        ("{\"version\": -1}".to_owned(), "invalid value"),
        (text.replace("\"seed\"", "\"seeds\""), "unknown field `seeds`"),
        (text.replace("\"hog-dram\"", "\"hog\\u001b[31m\""), "hog"),
        (
            text.replace("\"mps-80-20\"", "\"mps-80-30\""),
            "way of sharing \"mps-80-30\": unknown",
        ),
        (" ".repeat(17 << 20), "has more than 16777216 bytes"),
    ] {
        let error = line(&Results::read("a.json", &bad).unwrap_err());
        assert!(error.starts_with("a.json: ") && error.contains(words), "{error}");
        assert!(!error.contains(['\n', '\u{1b}']), "{error}");
    }
}

#[test]
fn the_name_of_the_file_is_harmless() {
    let mut results = results(Cheats::default());
    for (product, driver, name) in [
        ("NVIDIA H200", "570.124.06", "NVIDIA-H200-570.124.06.json"),
        (
            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "535.1",
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-535.1.json",
        ),
        ("../../etc/passwd", "1", "etc-passwd-1.json"),
        ("..", "..", "unknown.json"),
        (".hidden", "/\0\n", "hidden.json"),
        ("a\u{202e}b\u{1b}[31m", "$(x)", "a-b-31m-x.json"),
        (&"x".repeat(500), "1", &format!("{}.json", "x".repeat(100))),
    ] {
        results.host.product = product.to_owned();
        results.host.driver = driver.to_owned();
        assert_eq!(results.file_name(), name, "{product:?}");
    }
}

#[test]
fn nothing_in_a_file_acts_on_a_terminal() {
    let mut run = run(Cheats::default());
    run.host.machine = "rack\u{1b}]0;x\u{7} \u{202e}1".into();
    run.leftovers = vec!["\u{9b}2J".into()];
    let text = Results::new(run).text().unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'));
    assert_eq!(Results::read("a", &text).unwrap().leftovers, ["\u{9b}2J"]);
}
