//! Whether the driver or a program of an engine has a fault that is known: a table, with its sources.

mod table;

use super::{Diagnosis, DoctorSubject, Finding};
use table::{FAULTS, KnownFault, Machines};

/// The programs whose versions the table needs, beside those of engines.
pub(super) const PROGRAMS: [&str; 3] = [table::CRUN, table::RUNC, table::TOOLKIT];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let found = FAULTS.iter().filter_map(|fault| {
        let version = subject
            .versions_of(fault.program)
            .into_iter()
            .find(|version| fault.has(version))?;
        subject.is_one_of(fault.on).then(|| result(fault, &version))
    });
    let found: Vec<Diagnosis> = found.collect();
    match found.is_empty() {
        true => vec![Diagnosis::good(
            "none is known of the driver and of the programs that were found",
        )],
        false => found,
    }
}

/// The result for a fault. The numbers are those of the authors: a distribution may have the correction under an older
/// one.
fn result(fault: &KnownFault, version: &[u32]) -> Diagnosis {
    let numbers: Vec<String> = version.iter().map(ToString::to_string).collect();
    let is_of_driver = fault.program == table::DRIVER;
    let shown = match is_of_driver {
        true => subject_of_driver(&numbers),
        false => format!("{} {}", fault.program, numbers.join(".")),
    };
    let fix = match is_of_driver {
        true => fault.fix.to_owned(),
        false => format!("{}, if the distribution has not corrected the older version", fault.fix),
    };
    Diagnosis::advice(
        Finding::KnownFault,
        format!("{shown}: {} ({})", fault.what, fault.source),
        fault.why,
        fix,
    )
}

fn subject_of_driver(numbers: &[String]) -> String {
    // The last number of a driver has two digits: 595.71.05.
    let numbers: Vec<String> = numbers.iter().map(|number| format!("{number:0>2}")).collect();
    format!("driver {}", numbers.join("."))
}

impl KnownFault {
    /// Whether a version has it.
    fn has(&self, version: &[u32]) -> bool {
        let mut ranges = self.versions.iter();
        ranges.any(|(since, before)| *since <= version && version < *before)
    }
}

impl DoctorSubject {
    fn is_one_of(&self, machines: Machines) -> bool {
        match machines {
            Machines::All => true,
            Machines::Arm => self.architecture == Some("aarch64"),
            Machines::WithoutPersistence => self.inventory.gpus.iter().any(|gpu| gpu.persistence == Some(false)),
        }
    }

    /// The versions of a program that was found, or of the driver.
    fn versions_of(&self, program: &str) -> Vec<Vec<u32>> {
        if program == table::DRIVER {
            let driver = self.inventory.driver.as_ref().map(|driver| driver.version.to_string());
            let numbers = driver.and_then(|text| text.split('.').map(|part| part.parse().ok()).collect());
            return numbers.into_iter().collect();
        }
        let engines = self.engines.iter().filter(|found| found.engine.as_str() == program);
        let engines = engines.filter_map(|found| found.version.as_ref());
        let others = self.other_programs.iter().filter(|(name, _)| *name == program);
        let versions = engines.chain(others.filter_map(|(_, version)| version.as_ref()));
        versions.map(|version| version.numbers().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_matches_its_own_versions_and_none_beside_them() {
        for fault in FAULTS {
            for (since, before) in fault.versions {
                assert!(since < before, "{}", fault.source);
                assert!(fault.has(since), "{}: {since:?}", fault.source);
                assert!(fault.has(&[since, &[0][..]].concat()), "{}: {since:?}", fault.source);
                assert!(!fault.has(before), "{}: {before:?}", fault.source);
            }
            let (first, _) = fault.versions[0];
            assert!(
                first.is_empty() || !fault.has(&[first[0] - 1, 999]),
                "{}: before {first:?}",
                fault.source
            );
            let (_, last) = fault.versions.last().unwrap();
            assert!(!fault.has(&[last[0] + 1]), "{}: after {last:?}", fault.source);
        }
    }

    #[test]
    fn each_row_says_what_where_it_is_said_and_what_to_do() {
        for fault in FAULTS {
            for text in [fault.what, fault.why, fault.fix, fault.source] {
                assert!(text.split(' ').count() > 1 || text.contains(['#', '-']), "{text}");
            }
            let is_source = |word: &str| word.contains('#') || word.starts_with("CVE-");
            assert!(fault.source.split([',', ' ']).any(is_source), "{}", fault.source);
        }
    }
}
