//! Whether the programs that engines start can be executed.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::text::some;

/// A program that exists and that no engine can execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableProgram {
    /// Its path.
    pub path: PathBuf,
    /// What names it: `/etc/cdi/nvidia.yaml`.
    pub named_by: Vec<String>,
    /// Why.
    pub why: Unusable,
}

/// Why a program cannot be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// Its mode does not let anybody.
    Mode(u32),
    /// It is on a file system that forbids programs, which is mounted here.
    NoExec(PathBuf),
}

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let mut mounts: BTreeMap<&Path, Vec<&UnusableProgram>> = BTreeMap::new();
    let mut found = Vec::new();
    for program in &subject.unusable_programs {
        match &program.why {
            Unusable::NoExec(mount) => mounts.entry(mount).or_default().push(program),
            Unusable::Mode(mode) => {
                let path = program.path.display();
                found.push(Diagnosis::wrong(
                    Finding::ProgramNotExecutable,
                    format!(
                        "{path} has mode {mode:04o}, and {} executes it",
                        some(&program.named_by)
                    ),
                    WHY,
                    Fix::command(format!("chmod 0755 {path}")),
                ));
            }
        }
    }
    found.extend(mounts.into_iter().map(|(mount, programs)| {
        let mount = mount.display();
        let programs: Vec<String> = programs.iter().map(|one| one.path.display().to_string()).collect();
        Diagnosis::wrong(
            Finding::ProgramNotExecutable,
            format!("{mount} is mounted with noexec, and has {}", some(&programs)),
            WHY,
            Fix::by_hand(format!(
                "install it elsewhere, such as in /usr/bin, or run mount -o remount,exec {mount} and take noexec out of \
                 /etc/fstab"
            )),
        )
    }));
    match found.is_empty() {
        true => vec![Diagnosis::good(
            "each hook and each runtime that exists can be executed",
        )],
        false => found,
    }
}

const WHY: &str = "engines refuse every container that needs it: permission denied";
