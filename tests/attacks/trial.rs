//! One attack: an idea in one line, tried in variations on our program, and once on two programs that must fail.
//!
//! On the program that does nothing, a *twin* must fail: the same image without what is hostile in it, which must be
//! served. On the naive program each twin must succeed, and a variation must be caught. So an attack that could not
//! notice anything fails the suite, and so does one whose scene does not work.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::actors::Actor;
use crate::stage::{Ended, Stage};
use crate::subject::Subject;
use crate::support::{old_kernel, own_mounts};

/// An attack: not a row of a matrix, but an idea.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attack {
    name: &'static str,
    idea: &'static str,
    /// Why the naive program is not caught, if that is so.
    naive_passes: Option<&'static str>,
    /// A fault of the naive program: with it, it must be caught, and without it, it must not.
    fault: Option<&'static str>,
}

/// An attack that is going on.
pub(crate) struct Trial {
    pub(crate) subject: Subject,
    /// How paths are resolved, for messages.
    pub(crate) how: &'static str,
    variations: usize,
    /// After so many of them the hook ended with success: it did its work another way, or left it with a line.
    served: usize,
    twins: usize,
    escaped: Vec<String>,
    longest: Duration,
}

/// What ends a trial of one of the programs that must fail, with what was seen.
struct Caught(String);

impl Attack {
    /// An attack with the name of its test, and its idea in one line.
    pub(crate) const fn new(name: &'static str, idea: &'static str) -> Attack {
        Attack {
            name,
            idea,
            naive_passes: None,
            fault: None,
        }
    }

    /// The naive program is not caught, because of this.
    pub(crate) const fn naive_passes(mut self, why: &'static str) -> Attack {
        self.naive_passes = Some(why);
        self
    }

    /// This fault must be caught. For attacks on images without harm, on which the naive program does well otherwise.
    pub(crate) const fn fault(mut self, fault: &'static str) -> Attack {
        self.fault = Some(fault);
        self
    }

    /// Tries it with each way of resolving paths, at the same time: the kernel's `openat2` and, in a thread that has
    /// lost it, the walk of `O_PATH` handles. Then on the programs that must fail.
    pub(crate) fn run(self, body: impl Fn(&mut Trial) + Sync) {
        if !self.can_run() {
            return;
        }
        let mut all = Trial::of(Subject::Real, "with openat2");
        let walked = std::thread::scope(|threads| {
            let walk = threads.spawn(|| {
                old_kernel::lose_openat2();
                let mut trial = Trial::of(Subject::Real, "without openat2");
                body(&mut trial);
                trial
            });
            body(&mut all);
            walk.join()
        });
        all.add(walked.unwrap_or_else(|panic| resume_unwind(panic)));
        self.finish(all, &body);
    }

    /// As [`Self::run`], where no path of an image is resolved, or a run takes long.
    pub(crate) fn run_one_way(self, body: impl Fn(&mut Trial)) {
        if !self.can_run() {
            return;
        }
        let mut trial = Trial::of(Subject::Real, "one way");
        body(&mut trial);
        self.finish(trial, &body);
    }

    /// Whether it can be tried; says so if not. The naive program mounts, and serves no image where it may not. From
    /// then on, the test has mounts of its own, because mounts are compared before and after each run.
    fn can_run(&self) -> bool {
        let can = crate::can_mount(self.name);
        if can {
            own_mounts::enter();
        }
        can
    }

    fn finish(self, real: Trial, body: &dyn Fn(&mut Trial)) {
        assert!(
            real.variations > 0 && real.twins > 0,
            "{}: nothing was tried",
            self.name
        );
        let mut wrong = real.escaped.clone();
        if caught(Subject::Nothing, body).is_none() {
            wrong.push("a program that does nothing looks safe".to_owned());
        }
        // Only with the fault that the attack is about, so that it is not caught for another reason.
        // The naive program wins a race now and then, so one that must be caught is tried again.
        let tries = if self.naive_passes.is_none() { 10 } else { 1 };
        let naive = (0..tries).find_map(|_| caught(Subject::Naive(self.fault.into_iter().collect()), body));
        match (self.naive_passes, &naive) {
            (None, None) => wrong.push("the naive program looks safe".to_owned()),
            (Some(_), Some(by)) => wrong.push(format!("the naive program is declared not to be caught, and is: {by}")),
            _ => {}
        }
        if let Some(fault) = self.fault
            && let Some(by) = caught(Subject::Naive(Vec::new()), body)
        {
            wrong.push(format!("the naive program without the fault {fault} is caught: {by}"));
        }
        let by = naive.unwrap_or_else(|| format!("NOT CAUGHT: {}", self.naive_passes.unwrap_or("a mistake")));
        self.say(&real, &by);
        assert!(wrong.is_empty(), "{}:\n{}", self.name, wrong.join("\n"));
    }

    /// Says what was tried, past the harness's capture. Where `TRANCHE_TEST_ATTACKS` names a file a line goes there
    /// too: `make test` makes its table of them.
    fn say(self, real: &Trial, naive: &str) {
        let line = format!(
            "attack {}: {} variations, {} escaped ({} starts served, the slowest took {} ms)\n    idea: {}\n    naive: {naive:.160}\n",
            self.name,
            real.variations,
            real.escaped.len(),
            real.served,
            real.longest.as_millis(),
            self.idea,
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(file) = std::env::var_os("TRANCHE_TEST_ATTACKS") {
            let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
            let passes = self.naive_passes.unwrap_or("-");
            let (tried, escaped) = (real.variations, real.escaped.len());
            let actor = Actor::of(self.name).name();
            let row = format!("{}\t{tried}\t{escaped}\t{passes}\t{}\t{actor}\n", self.name, self.idea);
            file.write_all(row.as_bytes()).unwrap();
        }
    }
}

/// What `subject` is caught with, if it is.
fn caught(subject: Subject, body: &dyn Fn(&mut Trial)) -> Option<String> {
    subject.clone().make_current();
    let ended = catch_unwind(AssertUnwindSafe(|| body(&mut Trial::of(subject, "with openat2"))));
    Subject::Real.make_current();
    match ended {
        Ok(()) => None,
        Err(panic) => match panic.downcast::<Caught>() {
            Ok(caught) => Some(caught.0),
            Err(other) => resume_unwind(other),
        },
    }
}

impl Trial {
    fn of(subject: Subject, how: &'static str) -> Trial {
        Trial {
            subject,
            how,
            variations: 0,
            served: 0,
            twins: 0,
            escaped: Vec::new(),
            longest: Duration::ZERO,
        }
    }

    fn add(&mut self, other: Trial) {
        self.variations += other.variations;
        self.served += other.served;
        self.twins += other.twins;
        self.escaped.extend(other.escaped);
        self.longest = self.longest.max(other.longest);
    }

    /// Runs the hook on a hostile scene and records what it achieved.
    pub(crate) fn attack(&mut self, name: &str, stage: &Stage) -> Ended {
        self.attack_and(name, stage, |_| Vec::new())
    }

    /// As [`Self::attack`], with more that may be wrong.
    pub(crate) fn attack_and(&mut self, name: &str, stage: &Stage, more: impl FnOnce(&Ended) -> Vec<String>) -> Ended {
        let mut ended = stage.run_and_compare();
        ended.wrong.extend(more(&ended));
        self.record(name, &ended);
        ended
    }

    /// Records a variation that was run.
    pub(crate) fn record(&mut self, name: &str, ended: &Ended) {
        self.variations += 1;
        self.served += usize::from(ended.code == 0);
        self.longest = self.longest.max(ended.took);
        if ended.wrong.is_empty() {
            return;
        }
        let line = format!("{name}, {}: {}", self.how, ended.wrong.join("; "));
        if !self.subject.is_real() {
            resume_unwind(Box::new(Caught(line)));
        }
        // At once, past the harness's capture: the test goes on, and may be stopped before its end.
        let _ = writeln!(std::io::stderr(), "escaped: {line:.2000}");
        self.escaped.push(line);
    }

    /// Runs the hook on a harmless scene, which must be served.
    pub(crate) fn twin(&mut self, stage: &Stage) {
        self.twin_and(stage, |_| Vec::new());
    }

    /// As [`Self::twin`], with more that may be wrong.
    pub(crate) fn twin_and(&mut self, stage: &Stage, more: impl FnOnce(&Ended) -> Vec<String>) {
        let mut ended = stage.run_and_compare();
        if !self.subject.is_real() {
            // Whether it does its work is asked here; how, by the attacks.
            ended.wrong.clear();
        }
        if ended.code != 0 {
            ended.wrong.push(format!("exit code {}: {}", ended.code, ended.stderr));
        }
        ended.wrong.extend(crate::control::missing(stage, &ended));
        ended.wrong.extend(more(&ended));
        self.record_twin(stage.verb.name, &ended.wrong);
    }

    /// Records a harmless scene that was run.
    pub(crate) fn record_twin(&mut self, name: &str, wrong: &[String]) {
        self.twins += 1;
        if wrong.is_empty() {
            return;
        }
        let line = format!("harmless twin of {name}, {}: {}", self.how, wrong.join("; "));
        match self.subject {
            Subject::Nothing => resume_unwind(Box::new(Caught(line))),
            Subject::Naive(_) => panic!("the naive program does not even serve this: {line}"),
            Subject::Real => {
                let _ = writeln!(std::io::stderr(), "not served: {line:.2000}");
                self.escaped.push(line);
            }
        }
    }
}
