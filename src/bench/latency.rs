//! Figures of a user's own program, read from its output.

use crate::statistics::percentile;
use regex::{Regex, RegexBuilder};
use tranche_core::error::{Context, Error, Result};

/// The longest line that is looked at, in bytes.
const LONGEST_LINE: usize = 4096;

/// How a figure is found in a line: `latency_ms=12.3`, anywhere in it, or a pattern with one group.
#[derive(Debug, Clone)]
pub struct FigureRule(Regex);

impl FigureRule {
    /// The rule for the latency of a request in milliseconds: a person's pattern, or else `latency_ms=NUMBER`.
    ///
    /// # Errors
    /// Returns a usage error if the pattern is not a regular expression with exactly one group.
    pub fn latency(pattern: Option<&str>) -> Result<Self> {
        Self::new(pattern.unwrap_or(r"\blatency_ms=([0-9.eE+-]+)"))
    }

    /// The rule for the work in a second: a person's pattern, or else `rate=NUMBER`.
    ///
    /// # Errors
    /// As [`FigureRule::latency`].
    pub fn rate(pattern: Option<&str>) -> Result<Self> {
        Self::new(pattern.unwrap_or(r"\brate=([0-9.eE+-]+)"))
    }

    fn new(pattern: &str) -> Result<Self> {
        let name = format!("pattern \"{pattern}\"");
        let regex = RegexBuilder::new(pattern).size_limit(1 << 20).build();
        let regex = regex.about(&name, "not a regular expression")?;
        match regex.captures_len() {
            2 => Ok(Self(regex)),
            more => {
                let what = format!("has {} groups, expected one around the number", more.saturating_sub(1));
                Err(Error::usage(name, what).hint("write (?:…) for a group that is not the number"))
            }
        }
    }

    /// The figure of a line; `None` if the line has none. A number below zero is no figure.
    pub fn figure(&self, line: &str) -> Option<f64> {
        let line = (line.len() <= LONGEST_LINE).then_some(line)?;
        let number: f64 = self.0.captures(line)?.get(1)?.as_str().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    }
}

/// The figure that stands for all latencies of a run, in milliseconds: the 99th percentile; of fewer than a hundred,
/// the largest. `None` if there is no figure.
pub fn latency_of_run(figures: &[f64]) -> Option<f64> {
    let mut all: Vec<u64> = figures.iter().map(|figure| (figure * 1e6) as u64).collect();
    all.sort_unstable();
    Some(percentile(&all, 99)? as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::error::line;

    #[test]
    fn a_figure_is_found_by_its_name_or_by_a_pattern() {
        let usual = FigureRule::latency(None).unwrap();
        for (line, figure) in [
            ("latency_ms=12.3", Some(12.3)),
            ("step 7 latency_ms=4 ok", Some(4.0)),
            ("{\"latency_ms=1e1\"}", Some(10.0)),
            ("my_latency_ms=4", None),
            ("latency_ms=-4", None),
            ("latency_ms=1.2.3", None),
            ("latency_ms=", None),
            ("latency_ms=1e999", None),
            ("", None),
        ] {
            assert_eq!(usual.figure(line), figure, "{line}");
        }
        assert_eq!(usual.figure(&format!("{}latency_ms=1", " ".repeat(5000))), None);
        let own = FigureRule::latency(Some(r"p99: +(\d+(?:\.\d+)?) ms")).unwrap();
        assert_eq!(own.figure("p99:  17.5 ms"), Some(17.5));
        assert_eq!(FigureRule::rate(None).unwrap().figure("rate=99.5"), Some(99.5));
    }

    #[test]
    fn a_pattern_without_one_group_is_refused_in_one_line() {
        for (pattern, words) in [
            ("p99", "has 0 groups"),
            ("(a)(b)", "has 2 groups, expected one"),
            ("(", "not a regular expression"),
            (r"(\w{200}){200}", "not a regular expression"),
        ] {
            let error = line(&FigureRule::latency(Some(pattern)).unwrap_err());
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_run_counts_by_its_slow_requests() {
        assert_eq!(latency_of_run(&[]), None);
        assert_eq!(latency_of_run(&[3.0, 9.0, 1.0]), Some(9.0));
        let many: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(latency_of_run(&many), Some(990.0));
    }
}
