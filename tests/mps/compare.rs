//! The table: situations per branch, equal, explained.

use crate::bed::Bed;
use crate::on_purpose::{ON_PURPOSE, SITUATIONS};
use crate::support::{nvidia_packages as packages, skip};
use crate::{commands, situations};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;
use tranche_core::mps::version::Version;

/// What one program did, by the name of the situation.
#[derive(Default)]
pub(crate) struct Transcript(BTreeMap<String, Vec<String>>);

impl Transcript {
    pub(crate) fn note(&mut self, situation: &str, lines: Vec<String>) {
        let before = self.0.insert(situation.to_owned(), lines);
        assert!(before.is_none(), "two situations are named {situation}");
    }

    /// All of it, for a person.
    fn text(&self) -> String {
        let entries = self.0.iter();
        let entries = entries.map(|(name, lines)| format!("{name}\n    {}\n", lines.join("\n    ")));
        entries.collect()
    }
}

fn transcript(bed: &Bed) -> Transcript {
    let mut transcript = Transcript::default();
    commands::run(bed, &mut transcript);
    situations::run(bed, &mut transcript);
    transcript
}

/// Runs both programs of a branch, and compares.
fn compare(branch: u32) {
    let test = format!("mps::the_fake_is_equal_to_the_real_daemon_of_{branch}");
    if !rustix::process::getuid().is_root() {
        return skip::not_run(&test, "other users' commands need root");
    }
    let package = match packages::unpacked("nvidia-cuda-mps", branch) {
        Ok(package) => package,
        Err(why) => return skip::not_run(&test, &why),
    };
    let version = Version::of_driver(branch).unwrap();
    assert_eq!(version.major, branch, "tranche_core::mps::version has no row for it");
    let begin = Instant::now();
    let beds = [Bed::real(version, &package), Bed::fake(version)];
    let [real, fake] = std::thread::scope(|scope| {
        beds.each_ref()
            .map(|bed| scope.spawn(|| transcript(bed)))
            .map(|thread| thread.join().unwrap())
    });
    if let Some(directory) = std::env::var_os("TRANCHE_TEST_TRANSCRIPTS").map(PathBuf::from) {
        fs::create_dir_all(&directory).unwrap();
        for (name, transcript) in [("real", &real), ("fake", &fake)] {
            fs::write(directory.join(format!("{branch}.{name}")), transcript.text()).unwrap();
        }
    }
    let mut equal = 0;
    let mut explained = 0;
    let mut unexplained = String::new();
    for (situation, lines) in &real.0 {
        let of_fake = fake.0.get(situation);
        if of_fake == Some(lines) {
            equal += 1;
        } else if SITUATIONS.iter().any(|(name, _)| name == situation) {
            explained += 1;
        } else {
            let _ = writeln!(unexplained, "{situation}\n  real {lines:#?}\n  fake {of_fake:#?}");
        }
    }
    let report = format!(
        "MPS {branch}: {} situations, {equal} equal, {explained} explained, in {:.1} s ({})\n",
        real.0.len(),
        begin.elapsed().as_secs_f64(),
        package.version
    );
    // Past the harness's capture, as skips are.
    let _ = std::io::stderr().write_all(report.as_bytes());
    assert!(unexplained.is_empty(), "not explained, of {branch}:\n{unexplained}");
    assert_eq!(real.0.len(), fake.0.len());
}

#[test]
fn the_fake_is_equal_to_the_real_daemon_of_470() {
    compare(470);
}

#[test]
fn the_fake_is_equal_to_the_real_daemon_of_535() {
    compare(535);
}

#[test]
fn the_fake_is_equal_to_the_real_daemon_of_550() {
    compare(550);
}

#[test]
fn the_fake_is_equal_to_the_real_daemon_of_555() {
    compare(555);
}

/// What a daemon of 580.159.04 answered on an H200, of which no package can be fetched: commands after `> `, and lines.
const RECORDED: &str = include_str!("580.txt");

#[test]
fn the_fake_answers_as_580_was_seen_to() {
    let bed = Bed::fake(Version::of_driver(580).unwrap());
    bed.clear();
    let _daemon = bed.start(&["-f"]).unwrap();
    let mut answers = 0;
    for entry in RECORDED.split("> ").skip(1) {
        let (command, answer) = entry.split_once('\n').unwrap();
        let ran = bed.say(command);
        assert_eq!(
            (ran.how.as_str(), ran.out.as_str(), ran.err.as_str()),
            ("exit 0", answer, ""),
            "{command}"
        );
        answers += 1;
    }
    assert_eq!(answers, RECORDED.lines().filter(|line| line.starts_with("> ")).count());
    let report = format!("MPS 580: {answers} situations, {answers} equal to a record of 580.159.04\n");
    let _ = std::io::stderr().write_all(report.as_bytes());
}

#[test]
fn what_differs_on_purpose_is_listed() {
    let mut text = "What the fake does otherwise on purpose:\n".to_owned();
    for (what, why) in ON_PURPOSE.iter().chain(&SITUATIONS) {
        let _ = writeln!(text, "  {what}: {why}");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}
