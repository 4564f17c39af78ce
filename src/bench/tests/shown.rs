//! The report and the picture of a run.

use super::gpu::{Cheats, run};
use crate::picture::picture;
use crate::results::Results;
use crate::terminal::report;
use std::path::Path;
use tranche_driver_protocol::Slowed;

/// Compares with the file that is kept.
fn kept(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let is_kept = tranche_test_support::bless::is_expected(&path, text);
    assert!(is_kept, "{} differs (make bless):\n{text}", path.display());
}

/// A run with something of everything.
fn sample() -> Results {
    let mut run = run(Cheats::default());
    for (at, (cell, measured)) in run.cells.iter_mut().enumerate() {
        match (cell.way.to_string().as_str(), cell.neighbour.to_string().as_str()) {
            ("mps-80-20", "hog-pcie") => *measured = Err("no memory left on the device".to_owned()),
            ("ts2", "hog-dram") => {
                for one in measured.as_mut().unwrap() {
                    one.clocks.throttled.insert(Slowed::Power);
                }
            }
            _ => assert!(at < 100),
        }
    }
    Results::new(run)
}

#[test]
fn the_report_is_the_one_that_is_kept() {
    let report = report(&sample());
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    kept("sample.txt", &report);
}

#[test]
fn the_picture_is_the_one_that_is_kept() {
    kept("sample.svg", &picture(&sample()));
}

#[test]
fn hostile_names_are_only_text() {
    let mut run = run(Cheats::default());
    let name = "</text><script>alert(1)</script>\" onload='x' & \u{1b}[2J\u{202e}";
    run.host.product = name.into();
    run.host.driver = name.into();
    run.cells[3].1 = Err(name.into());
    run.refused[0].why = name.into();
    run.leftovers = vec![format!("{name}{}", "long ".repeat(100))];
    let results = Results::new(run);
    let picture = picture(&results);
    assert!(!picture.contains("<script") && !picture.contains(['\u{1b}', '\u{202e}']));
    assert!(
        picture
            .contains("&lt;/text&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&#39;x&#39; &amp; \\u{1b}[2J")
    );
    assert_eq!(picture.matches('<').count(), picture.matches('>').count());
    let report = report(&results);
    assert!(
        report.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
        "{report}"
    );
}

#[test]
fn a_run_without_figures_is_shown_as_well() {
    let mut run = run(Cheats::default());
    run.cells
        .iter_mut()
        .for_each(|(_, measured)| *measured = Err("interrupted".into()));
    let results = Results::new(run);
    assert!(
        report(&results).contains("f  solo: failed: interrupted\n"),
        "{}",
        report(&results)
    );
    assert!(picture(&results).ends_with("</svg>\n"));
}
