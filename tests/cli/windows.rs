//! What a person sees in a window of 80 columns and 24 rows.

use crate::support::until::until;
use crate::support::{fake_host, skip, typist};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use tempfile::TempDir;

const TRANCHE: &str = env!("CARGO_BIN_EXE_tranche");

/// A state directory with more messages than a window has rows.
struct Messages {
    top: TempDir,
}

impl Messages {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for container in 0..20 {
            let state = format!(
                "{{\"ociVersion\":\"1.0.2\",\"id\":\"c{container}\",\"status\":\"created\",\"pid\":1,\"bundle\":\"/\"}}"
            );
            let mut hook = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
            hook.args([
                "hook",
                "prepare",
                "--link",
                "of some words that make a line longer than a window is wide",
            ]);
            hook.arg("--state-dir").arg(top.path().join("state"));
            hook.stdin(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null());
            let mut hook = hook.spawn().unwrap();
            hook.stdin.take().unwrap().write_all(state.as_bytes()).unwrap();
            hook.wait().unwrap();
        }
        Self { top }
    }

    fn status(&self, options: &str) -> String {
        let state = self.top.path().join("state");
        format!(
            "{TRANCHE} status --no-gpu --messages --state-dir={} {options}",
            state.display()
        )
    }
}

/// A window in which `line` runs.
struct Window {
    child: Child,
    shown: PathBuf,
}

impl Window {
    /// `None`, with the reason, where no program makes a terminal.
    fn open(test: &str, top: &Path, rows: u16, line: &str) -> Option<Self> {
        let shown = top.join("shown");
        let line = format!("stty rows {rows} cols 80; {line}");
        match typist::in_terminal(&line, &shown).spawn() {
            Ok(child) => Some(Self { child, shown }),
            Err(error) => {
                skip::not_run(&format!("windows::{test}"), &format!("script: {error}"));
                None
            }
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.shown).unwrap_or_default()
    }

    /// The pages so far, each without the escapes that place it.
    fn pages(&self) -> Vec<Vec<String>> {
        let text = self.text();
        let pages = text.split("\x1b[H").skip(1).filter(|page| page.contains("\x1b[J"));
        let lines = |page: &str| {
            let page = page.split("\x1b[J").next().unwrap();
            page.split("\r\n")
                .map(|line| line.replace("\x1b[K", "").trim_end_matches('\r').to_owned())
                .collect()
        };
        pages.map(lines).collect()
    }

    fn type_in(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// What was shown, once `line` has ended.
    fn end(mut self) -> String {
        until("the line has ended", || self.child.try_wait().unwrap().is_some());
        self.text().replace('\r', "")
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for_pages(window: &Window, number: usize) {
    until("pages", || window.pages().len() >= number);
}

#[test]
fn a_page_taller_than_the_window_shows_its_head_and_q_ends_it() {
    let bed = Messages::new();
    let test = "a_page_taller_than_the_window_shows_its_head_and_q_ends_it";
    let line = format!("{}; echo code=$?; stty -a", bed.status("--watch=0.3"));
    let Some(mut window) = Window::open(test, bed.top.path(), 24, &line) else {
        return;
    };
    wait_for_pages(&window, 2);
    assert!(
        !window.text().contains("\x1b[2J"),
        "a window that is erased before a page is blank for a while"
    );
    let pages = window.pages();
    for page in &pages {
        assert_eq!(page.len(), 24, "{page:?}");
        assert!(
            page[0].ends_with(" UTC") && page[2].starts_with("last failure, "),
            "{page:?}"
        );
        assert!(page[23].ends_with(" lines below the window; q ends"), "{page:?}");
        assert!(page.iter().all(|line| line.chars().count() <= 80), "{page:?}");
    }
    window.type_in("q");
    let shown = window.end();
    assert!(shown.contains("code=0\n"), "{shown}");
    let modes = shown.split("code=0").nth(1).unwrap();
    assert!(
        modes.contains(" icanon") && modes.contains(" echo "),
        "the terminal is as it was: {modes}"
    );
}

#[test]
fn ctrl_c_ends_a_page_and_leaves_the_terminal_as_it_was() {
    let bed = Messages::new();
    let test = "ctrl_c_ends_a_page_and_leaves_the_terminal_as_it_was";
    let line = format!("trap : INT; {}; echo code=$?; stty -a", bed.status("--watch=30"));
    let Some(mut window) = Window::open(test, bed.top.path(), 24, &line) else {
        return;
    };
    wait_for_pages(&window, 1);
    window.type_in("\x03");
    let shown = window.end();
    assert!(shown.contains("code=130\n"), "{shown}");
    let modes = shown.split("code=130").nth(1).unwrap();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
}

#[test]
fn a_window_that_gets_another_size_is_drawn_again() {
    let bed = Messages::new();
    let test = "a_window_that_gets_another_size_is_drawn_again";
    let resize = "(sleep 1; stty rows 10 cols 60 < /dev/tty) &";
    let line = format!("{resize} {}; echo code=$?", bed.status("--watch=60"));
    let Some(mut window) = Window::open(test, bed.top.path(), 24, &line) else {
        return;
    };
    wait_for_pages(&window, 2);
    let pages = window.pages();
    assert_eq!((pages[0].len(), pages[1].len()), (24, 10), "{pages:?}");
    assert!(pages[1].iter().all(|line| line.chars().count() <= 60), "{pages:?}");
    window.type_in("q");
    assert!(window.end().contains("code=0\n"));
}

#[test]
fn pages_fit_the_window_and_no_word_is_broken() {
    let bed = Messages::new();
    let test = "pages_fit_the_window_and_no_word_is_broken";
    let host = fake_host::build("dgx-a100-mig", &bed.top.path().join("host")).unwrap();
    let at = |name: &str| bed.top.path().join(name).display().to_string();
    let doctor = format!(
        "doctor --all --root={} --spec-dir={} --state-dir={}",
        host.root.display(),
        at("cdi"),
        at("doctor")
    );
    for command in [bed.status(""), format!("{TRANCHE} {doctor}")] {
        let piped = Command::new("sh").args(["-c", &command]).output().unwrap();
        let piped = String::from_utf8(piped.stdout).unwrap();
        assert!(piped.lines().any(|line| line.chars().count() > 80), "{piped}");
        let Some(window) = Window::open(test, bed.top.path(), 24, &command) else {
            return;
        };
        let shown = window.end();
        let shown = shown.lines().filter(|line| !line.starts_with("Script "));
        let shown: Vec<&str> = shown.collect();
        for line in &shown {
            let is_word = !line.trim().contains(' ');
            assert!(is_word || line.chars().count() <= 80, "{line}");
        }
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        // Ages and times go on.
        let count = |words: Vec<String>| words.iter().filter(|word| word.len() > 12).count();
        assert_eq!(count(words(&shown.join("\n"))), count(words(&piped)));
    }
}
