//! The length of a turn, which `nvidia-smi compute-policy` sets: NVML has no function for it.

use std::path::Path;
use std::time::Duration;
use tranche_core::types::GpuUuid;
use tranche_core::types::Interval;
use tranche_host::program::{ProgramError, text_of};

/// nvidia-smi starts the driver, which takes seconds without persistence mode.
const PATIENCE: Duration = Duration::from_secs(20);

/// The number of an interval (`nvidia-smi compute-policy --help`).
fn number(interval: Interval) -> u8 {
    match interval {
        Interval::Default => 0,
        Interval::Short => 1,
        Interval::Medium => 2,
        Interval::Long => 3,
    }
}

/// Sets the length of a turn of a GPU. It lasts until the driver is unloaded.
///
/// # Errors
/// Returns why nvidia-smi did not do it.
pub(super) fn set(smi: &Path, gpu: &GpuUuid, interval: Interval) -> Result<(), ProgramError> {
    let set = format!("--set-timeslice={}", number(interval));
    text_of(smi, &["compute-policy", "-i", gpu.as_str(), &set], &[], "", PATIENCE).map(drop)
}

/// The length of a turn of a GPU; `None` if nvidia-smi does not say it in a known form.
pub(super) fn read(smi: &Path, gpu: &GpuUuid) -> Option<Interval> {
    match text_of(
        smi,
        &["compute-policy", "-i", gpu.as_str(), "--list"],
        &[],
        "",
        PATIENCE,
    ) {
        Ok(text) => parse(&text),
        Err(error) => {
            tracing::warn!("nvidia-smi compute-policy --list: {error}");
            None
        }
    }
}

/// The table has a line with the words `Timeslice` and the length.
fn parse(text: &str) -> Option<Interval> {
    let mut lines = text.lines().map(|line| line.split(|c: char| !c.is_ascii_alphabetic()));
    let words = lines.find_map(|mut words| {
        words.find(|word| word.eq_ignore_ascii_case("timeslice"))?;
        words.find(|word| !word.is_empty())
    })?;
    match words.to_ascii_lowercase().as_str() {
        "default" => Some(Interval::Default),
        "short" => Some(Interval::Short),
        "medium" => Some(Interval::Medium),
        "long" => Some(Interval::Long),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_and_other_text_is_not() {
        let table =
            |value: &str| format!("| GPU     Name       Value   |\n|====|\n|   0     Timeslice  {value} |\n+----+\n");
        assert_eq!(parse(&table("Medium")), Some(Interval::Medium));
        assert_eq!(parse(&table("Default")), Some(Interval::Default));
        for other in [table("Endless"), table(""), String::new(), "Timeslice".to_owned()] {
            assert_eq!(parse(&other), None, "{other}");
        }
    }
}
