//! How long a start may wait.

use std::fmt;
use std::time::Duration;

/// How long the start of a container may wait for a share: `0s`, `30s`, `1m30s`. At most seven days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitTime(Duration);

/// The longest time. A longer one is a mistake, and the time that it ends must not overflow a clock.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

impl WaitTime {
    /// An hour.
    pub const HOUR: Self = Self(Duration::from_secs(3600));

    /// So many seconds.
    pub const fn seconds(seconds: u32) -> Self {
        Self(Duration::from_secs(seconds as u64))
    }

    /// Whether nothing is waited for.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// The time.
    pub fn get(self) -> Duration {
        self.0
    }
}

super::parsed_type!(
    WaitTime,
    parse,
    "not a time to wait like 30s, 5m or 1h30m, of at most 7 days"
);

/// Reads whole numbers, each with a unit (`h`, `m`, `s`, `ms`), as Go writes durations. A number without a unit is in
/// seconds.
fn parse(text: &str) -> Option<WaitTime> {
    if let Some(seconds) = super::decimal(text) {
        return limited(Duration::from_secs(seconds));
    }
    let mut sum = Duration::ZERO;
    let mut rest = text;
    let mut before = u64::MAX;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit())?;
        let end = rest[number..].find(|c: char| c.is_ascii_digit());
        let end = end.map_or(rest.len(), |end| number + end);
        let milliseconds = match &rest[number..end] {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return None,
        };
        // The largest unit is first and each occurs once: `30s5m` is more likely a mistake than a time.
        if number == 0 || milliseconds >= before {
            return None;
        }
        before = milliseconds;
        let number: u64 = super::decimal(&rest[..number])?;
        sum = sum.checked_add(Duration::from_millis(number.checked_mul(milliseconds)?))?;
        rest = &rest[end..];
    }
    if text.is_empty() { None } else { limited(sum) }
}

fn limited(time: Duration) -> Option<WaitTime> {
    (time <= LONGEST).then_some(WaitTime(time))
}

impl fmt::Display for WaitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let units = [(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];
        let mut rest = milliseconds;
        let mut text = String::new();
        for (size, unit) in units {
            if rest >= size {
                text.push_str(&format!("{}{unit}", rest / size));
                rest %= size;
            }
        }
        f.pad(if text.is_empty() { "0s" } else { &text })
    }
}

super::serde_as_text!(WaitTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_as_people_write_it() {
        for (text, milliseconds, shown) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("30", 30_000, "30s"),
            ("30s", 30_000, "30s"),
            ("500ms", 500, "500ms"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("90s", 90_000, "1m30s"),
            ("1m500ms", 60_500, "1m500ms"),
            ("168h", 604_800_000, "168h"),
        ] {
            let time: WaitTime = text.parse().unwrap();
            assert_eq!(time.get(), Duration::from_millis(milliseconds), "{text}");
            assert_eq!(time.to_string(), shown);
            assert_eq!(shown.parse::<WaitTime>().unwrap(), time);
        }
        for bad in [
            "",
            "s",
            "-1s",
            "1.5s",
            "1d",
            "30s5m",
            "1m1m",
            "1 s",
            "169h",
            "604801",
            "99999999999999999999",
            "99999999999999999h",
            "5s3",
            "٣s",
        ] {
            assert!(bad.parse::<WaitTime>().is_err(), "{bad}");
        }
    }
}
