//! Puts the child's answer together.

use super::other_version;
use crate::findings::Findings;
use tranche_core::types::PROGRAM_VERSION;
use tranche_driver_protocol::{DriverFacts, GpuFacts, GpuUsage, Line, NvmlStep};
use tranche_plan::inventory::{Degraded, WarningKind};

/// The child's answer.
#[derive(Debug, Default)]
pub(crate) struct NvmlReport {
    /// The driver; `None` if the child did not get that far.
    pub driver: Option<DriverFacts>,
    /// GPUs that answered, by index.
    pub gpus: Vec<GpuFacts>,
    /// What each GPU that answered does now, by index.
    pub usage: Vec<GpuUsage>,
    /// GPUs that did not answer, by index.
    pub lost: Vec<u32>,
    /// Whether every GPU was asked.
    pub complete: bool,
    /// The GPU at which the child hung or crashed.
    pub stuck_at: Option<u32>,
}

/// Reads the lines of the answer from what the pipe gives.
#[derive(Default)]
pub(super) struct Lines {
    /// The beginning of a line that is not complete.
    rest: Vec<u8>,
    /// What the child does now.
    pub(super) step: Option<NvmlStep>,
    /// Whether nothing follows.
    pub(super) done: bool,
    /// How many lines are not valid.
    pub(super) invalid: usize,
    pub(super) report: NvmlReport,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8], findings: &Findings) {
        self.rest.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(length) = self.rest[begin..].iter().position(|b| *b == b'\n') {
            let line = serde_json::from_slice(&self.rest[begin..begin + length]);
            begin += length + 1;
            match line {
                Ok(line) => self.line(line, findings),
                Err(_) => self.invalid += 1,
            }
        }
        self.rest.drain(..begin);
    }

    fn useless(&mut self, why: String, findings: &Findings) {
        findings.warn_of(WarningKind::Incomplete, "NVML", &why);
        findings.degrade(Degraded::Nvml { why });
        self.done = true;
    }

    fn line(&mut self, line: Line, findings: &Findings) {
        // Nothing of a program of another version is believed, and nothing follows the end.
        if self.done {
            return;
        }
        let report = &mut self.report;
        match line {
            Line::At(step) => self.step = Some(step),
            Line::Alive => {}
            Line::Hello(version) if version == PROGRAM_VERSION => {}
            Line::Hello(version) => self.useless(other_version(&version), findings),
            Line::Useless(why) => self.useless(why, findings),
            // It answers what was not asked.
            Line::Machine(_) => self.invalid += 1,
            Line::Driver(driver) => report.driver = Some(driver),
            Line::Gpu(gpu) => report.gpus.push(*gpu),
            Line::Usage(usage) => report.usage.push(*usage),
            Line::Lost { index, why } => {
                let text = format!("does not answer and is left out: {why}");
                findings.warn_of(WarningKind::Incomplete, format!("gpu {index}"), text);
                report.lost.push(index);
            }
            Line::Missing(name) => findings.absent(format!("{name}()"), ["libnvidia-ml.so.1"]),
            Line::Problem { object, text } => findings.warn(object, text),
            Line::End => {
                report.complete = true;
                self.done = true;
            }
        }
    }
}

/// Reads what a child might write, in pieces.
#[cfg(fuzzing)]
pub(crate) fn read_pieces(pieces: &[Vec<u8>]) {
    let mut lines = Lines::default();
    pieces.iter().for_each(|piece| lines.push(piece, &Findings::default()));
    assert!(!lines.rest.contains(&b'\n'), "a whole line was left");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_in_pieces() {
        let text = b"{\"at\":\"init\"}\nno json\n{\"driver\":{\"version\":\"550.1\",\"cuda\":12040,\"count\":1}}\n\
                     {\"at\":{\"gpu\":0}}\n{\"lost\":{\"index\":0,\"why\":\"gone\"}}\n\"end\"\n";
        for size in [1, 7, text.len()] {
            let mut lines = Lines::default();
            text.chunks(size).for_each(|c| lines.push(c, &Findings::default()));
            assert!(lines.done && lines.report.complete);
            assert_eq!(lines.invalid, 1);
            assert_eq!(lines.step, Some(NvmlStep::Gpu(0)));
            assert_eq!(lines.report.lost, [0]);
            assert_eq!(lines.report.driver.as_ref().unwrap().count, 1);
        }
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut lines = Lines::default();
            lines.push(&bytes, &Findings::default());
            prop_assert!(lines.report.gpus.is_empty());
        }
    }
}
