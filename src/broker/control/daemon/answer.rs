//! The answers of the control program, as text. Their form is not documented, and an error is a line of text too. So an
//! answer that is not known to be a result counts as an error.

use std::fmt;
use tranche_core::text::shown;

/// An answer that is not among those that are known of the command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{answer}\" was answered, and {expected} was expected")]
pub(in crate::control) struct Unexpected {
    answer: String,
    expected: String,
}

impl Unexpected {
    pub(super) fn other(answer: &str, expected: &str) -> Self {
        let answer: String = shown(answer.trim()).chars().take(100).collect();
        Self {
            answer,
            expected: expected.to_owned(),
        }
    }
}

/// A percentage: `50.0`, or `50`.
pub(super) fn percentage(answer: &str) -> Result<f64, Unexpected> {
    let text = answer.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percentage = text
        .parse()
        .ok()
        .filter(|percentage| is_number && (0.0..=100.0).contains(percentage));
    percentage.ok_or_else(|| Unexpected::other(answer, "a percentage"))
}

/// What a daemon gives to clients that have no limits of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::control) struct Defaults {
    /// Compute, in percent.
    pub(in crate::control) percentage: f64,
    /// Memory; `None` if it is not limited.
    pub(in crate::control) memory: Option<Size>,
}

/// The answers of two commands: a percentage, and a size or nothing.
pub(super) fn defaults(answer: &str) -> Result<Defaults, Unexpected> {
    let (first, rest) = answer.trim().split_once('\n').unwrap_or((answer, ""));
    Ok(Defaults {
        percentage: percentage(first)?,
        memory: size(rest)?,
    })
}

/// Nothing, or the percentage that was set.
pub(super) fn accepted_percentage(answer: &str) -> Result<(), Unexpected> {
    match answer.trim() {
        "" => Ok(()),
        text => percentage(text).map(drop),
    }
}

/// A size of memory, with the unit in which the daemon gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control) struct Size {
    number: u64,
    mib: u64,
}

impl Size {
    /// Whether the daemon may mean this number of MiB. It rounds down to whole units: in NVIDIA's documentation of the
    /// GPU Operator it answers `3G` although the limit is not a whole number of GiB.
    pub(in crate::control) fn may_be(self, mib: u64) -> bool {
        mib / self.mib == self.number
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, if self.mib == 1 { 'M' } else { 'G' })
    }
}

/// A size: `14336M` or `14G`; `None` if the device has no limit.
pub(super) fn size(answer: &str) -> Result<Option<Size>, Unexpected> {
    let text = answer.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let parse = || {
        let (digits, mib) = match text.strip_suffix('M') {
            Some(digits) => (digits, 1),
            None => (text.strip_suffix('G')?, 1024),
        };
        let number = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())??;
        Some(Size { number, mib })
    };
    parse().map(Some).ok_or_else(|| Unexpected::other(answer, "a size"))
}

/// Nothing, or the size that was set.
pub(super) fn accepted_size(answer: &str) -> Result<(), Unexpected> {
    size(answer).map(drop)
}

/// Numbers of processes, one a line.
pub(super) fn pids(answer: &str) -> Result<Vec<u32>, Unexpected> {
    let pid = |line: &str| line.trim().parse::<u32>().ok().filter(|pid| *pid > 0);
    let lines = answer.lines().filter(|line| !line.trim().is_empty());
    let pids: Option<Vec<u32>> = lines.map(pid).collect();
    pids.ok_or_else(|| Unexpected::other(answer, "numbers of processes"))
}

/// What the end of each client answers: 0, or nothing before 580; any other number is an error of the driver.
pub(super) fn terminated(answer: &str) -> Result<(), Unexpected> {
    let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines.all(|line| line == "0") {
        true => Ok(()),
        false => Err(Unexpected::other(answer, "0")),
    }
}

/// Nothing.
pub(super) fn nothing(answer: &str) -> Result<(), Unexpected> {
    match answer.trim() {
        "" => Ok(()),
        _ => Err(Unexpected::other(answer, "nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_errors_are_not() {
        assert_eq!(percentage("40.0\n"), Ok(40.0));
        assert_eq!(percentage("100"), Ok(100.0));
        assert_eq!(pids("12\n345\n\n"), Ok(vec![12, 345]));
        assert_eq!(pids(""), Ok(Vec::new()));
        assert_eq!(size("\n"), Ok(None));
        for bad in [
            "",
            "101",
            "-1",
            "NaN",
            "inf",
            "1e1",
            "Invalid command",
            "50.0\n60.0",
            "50 %",
        ] {
            assert!(percentage(bad).is_err(), "{bad}");
        }
        for bad in ["0", "-1", "12 13", "Server 5 not found", "12x", "4294967296"] {
            assert!(pids(bad).is_err(), "{bad}");
        }
        for bad in ["M", "1", "1T", "+1M", "1.5G", "1M\n2M", "no limit"] {
            assert!(size(bad).is_err() && accepted_size(bad).is_err(), "{bad}");
        }
        assert!(nothing(" \n").is_ok() && accepted_percentage("").is_ok() && accepted_percentage("40.0").is_ok());
        assert!(nothing("40.0").is_err() && accepted_percentage("Failed").is_err());
    }

    /// As 580.159.04 answers with a client, without one and without a server.
    #[test]
    fn a_client_that_was_ended_is_a_zero() {
        assert!(terminated("0\n").is_ok() && terminated("0\n0\n").is_ok() && terminated("").is_ok());
        for bad in ["201", "0\n201", "Server 4711 not found\nServer 4711 not found!\n1"] {
            assert!(terminated(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_defaults_are_two_lines() {
        let of = |answer: &str| {
            defaults(answer).map(|defaults| (defaults.percentage, defaults.memory.map(|m| m.to_string())))
        };
        assert_eq!(of("33.0\n14G\n"), Ok((33.0, Some("14G".to_owned()))));
        assert_eq!(of("100.0\n"), Ok((100.0, None)));
        assert!(of("100.0\nUnknown command \"x\"").is_err() && of("").is_err());
    }

    #[test]
    fn a_size_in_whole_gib_is_any_that_it_may_be() {
        let size = |text: &str| size(text).unwrap().unwrap();
        assert!(size("6G").may_be(7001) && size("7001M").may_be(7001) && size("7G").may_be(7168));
        assert!(!size("7G").may_be(7001) && !size("5G").may_be(7001) && !size("7000M").may_be(7001));
    }

    #[test]
    fn an_answer_is_quoted_in_one_line() {
        let error = percentage("a\nb\u{1b}[2J").unwrap_err().to_string();
        assert!(
            error.starts_with("\"a\\nb") && !error.contains('\u{1b}') && !error.contains('\n'),
            "{error}"
        );
    }
}
