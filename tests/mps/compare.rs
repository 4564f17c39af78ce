//! The table: situations per branch, equal, explained.

use crate::bed::Bed;
use crate::on_purpose::{ON_PURPOSE, SITUATIONS};
use crate::support::{nvidia_packages as packages, skip};
use crate::{commands, situations};
use std::collections::{BTreeMap, BTreeSet};
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

/// How often both programs are tried at most. Some of what the real one does is left to chance: two of its threads, or
/// two of its clients, notice an end at the same time.
const MOST_RUNS: usize = 4;

/// What both programs did in each situation, in all runs: the real one first.
type Seen = BTreeMap<String, [BTreeSet<Vec<String>>; 2]>;

/// Runs both programs once, beside each other.
fn run_both(branch: u32, beds: &[Bed; 2], seen: &mut Seen) {
    let both = std::thread::scope(|scope| {
        beds.each_ref()
            .map(|bed| scope.spawn(|| transcript(bed)))
            .map(|thread| thread.join().unwrap())
    });
    if let Some(directory) = std::env::var_os("TRANCHE_TEST_TRANSCRIPTS").map(PathBuf::from) {
        fs::create_dir_all(&directory).unwrap();
        for (name, transcript) in ["real", "fake"].iter().zip(&both) {
            fs::write(directory.join(format!("{branch}.{name}")), transcript.text()).unwrap();
        }
    }
    for (program, transcript) in both.into_iter().enumerate() {
        for (situation, lines) in transcript.0 {
            seen.entry(situation).or_default()[program].insert(lines);
        }
    }
}

/// The situations in which the two programs were never seen to do the same.
fn different(seen: &Seen) -> Vec<&str> {
    let different = seen.iter().filter(|(_, [real, fake])| real.is_disjoint(fake));
    different.map(|(situation, _)| situation.as_str()).collect()
}

/// Runs both programs of a branch, and compares. A situation is equal if they once did the same in it.
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
    let is_explained = |situation: &str| SITUATIONS.iter().any(|(name, _)| *name == situation);
    let mut seen = Seen::new();
    let mut runs = 0;
    while runs == 0 || (runs < MOST_RUNS && !different(&seen).into_iter().all(is_explained)) {
        run_both(branch, &beds, &mut seen);
        runs += 1;
    }
    let (explained, unexplained): (Vec<&str>, Vec<&str>) = different(&seen).into_iter().partition(|s| is_explained(s));
    let report = format!(
        "MPS {branch}: {} situations, {} equal, {} explained, in {:.1} s and {runs} runs ({})\n",
        seen.len(),
        seen.len() - explained.len() - unexplained.len(),
        explained.len(),
        begin.elapsed().as_secs_f64(),
        package.version
    );
    // Past the harness's capture, as skips are.
    let _ = std::io::stderr().write_all(report.as_bytes());
    let mut said = String::new();
    for situation in unexplained {
        let [real, fake] = &seen[situation];
        let _ = writeln!(said, "{situation}\n  real {real:#?}\n  fake {fake:#?}");
    }
    assert!(said.is_empty(), "not explained, of {branch}, in {runs} runs:\n{said}");
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
