//! What writes a specification and host.json again, and what has to be corrected first.
//!
//! A command that would change nothing is no fix. So whatever keeps a refresh from writing is named instead of it.

use super::modules::is_without_nvidia;
use super::{DoctorSubject, Finding, Fix};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_plan::cdi::ProblemKind;
use tranche_plan::cdi::header::is_by_tranche;
use tranche_plan::cdi::registry::Loaded;
use tranche_plan::derive::{self, Options};

/// The command that writes specifications and host.json.
const REFRESH: [&str; 2] = ["cdi", "refresh"];

impl DoctorSubject {
    /// The refresh that corrects a result, or what has to be done before it.
    pub(super) fn refresh(&self) -> Fix {
        match self.obstacle() {
            None => Fix::safe(&REFRESH),
            Some(finding) => Fix::by_hand(format!(
                "correct the result {finding} first; then run tranche cdi refresh"
            )),
        }
    }

    /// What writes the specification in `file` again, if it is one of a refresh; `None` for any other.
    pub(super) fn rewrites(&self, file: &Path) -> Option<Fix> {
        if !self.is_refreshed(file) {
            return None;
        }
        let parent = file.parent()?;
        let output = self.spec_dirs.last()?;
        if is_same(parent, output) {
            return Some(self.refresh());
        }
        let shown = file.display();
        // A refresh writes to one directory, and leaves what an earlier one wrote to another.
        let mut others = self.registry.files().iter();
        let is_left_over =
            others.any(|other| other.is_refreshed() && other.path.parent().is_some_and(|dir| is_same(dir, output)));
        Some(match is_left_over {
            true => Fix::command(format!("rm {shown}")),
            false => Fix::command(format!("rm {shown} && tranche cdi refresh")),
        })
    }

    /// What keeps a refresh from writing complete specifications: the result that says so.
    fn obstacle(&self) -> Option<Finding> {
        let policy = &self.policy;
        let mut problems = self.registry.problems.iter();
        if self.without_room.as_ref().is_some_and(|without| !without.is_empty()) {
            return Some(Finding::NoRoom);
        }
        if is_without_nvidia(self) {
            return Some(Finding::ModuleNotLoaded);
        }
        if matches!(self.state, Some(Err(_))) {
            return Some(Finding::StateUnsafe);
        }
        if policy.invalid.is_some() {
            return Some(Finding::PolicyInvalid);
        }
        if policy.unfit.is_some() {
            return Some(Finding::PolicyUnfit);
        }
        // Devices of another program's file are left out; a file of tranche cdi generate ends the refresh.
        let is_generated = |file: &&Loaded| !file.is_refreshed() && is_by_tranche(&file.comments);
        let generated: Vec<&Loaded> = self.registry.files().iter().filter(is_generated).collect();
        let is_of_generated = |path: &Path| {
            let is_output = |dir: &Path| self.spec_dirs.last().is_some_and(|output| is_same(dir, output));
            path.parent().is_some_and(is_output) && generated.iter().any(|file| file.path.parent() == path.parent())
        };
        if problems.any(|problem| matches!(problem.kind, ProblemKind::Conflict) && is_of_generated(&problem.path)) {
            return Some(Finding::SpecConflict);
        }
        // A first refresh writes what there is; a later one keeps the complete specifications of an earlier one.
        let has_written = self.registry.files().iter().any(Loaded::is_refreshed);
        let missing = derive::missing_from(&self.inventory, &[], &Options::default().capabilities);
        missing
            .first()
            .filter(|_| has_written)
            .map(|degraded| super::driver::finding(self, degraded))
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> PathBuf { fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) };
    real(one) == real(other)
}
