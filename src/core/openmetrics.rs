//! The text format of metrics: OpenMetrics 1.0 (github.com/prometheus/OpenMetrics, specification/OpenMetrics.md),
//! written so that readers of Prometheus' older text format (0.0.4) accept it too.

/// The last line of a text.
pub const END: &str = "# EOF\n";

/// The type of the content, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Its name. It ends with its unit, if it has one.
    pub name: &'static str,
    /// Its type.
    pub kind: FamilyKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one line.
    pub help: &'static str,
}

/// The type of a family. node_exporter reads the older text format of Prometheus, which has no `info` and no `stateset`
/// and refuses a file with them, so there are only these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only goes up; the name of its sample ends with `_total`.
    Counter,
    /// How many values were at most as large as each of some limits.
    Histogram,
}

/// Units that a name can end with (OpenMetrics 1.0, "Units and Base Units").
const UNITS: [&str; 3] = ["bytes", "ratio", "seconds"];

impl Family {
    /// The unit at the end of the name; `None` for a number of things.
    pub fn unit(&self) -> Option<&'static str> {
        unit(self.name)
    }

    /// The lines before its samples.
    pub fn head(&self) -> String {
        head(self.name, self.kind, self.help)
    }
}

/// The unit at the end of the name of a family.
fn unit(name: &str) -> Option<&'static str> {
    let is_unit = |unit: &&str| name.strip_suffix(*unit).is_some_and(|rest| rest.ends_with('_'));
    UNITS.into_iter().find(is_unit)
}

impl FamilyKind {
    /// The word for it in the text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The lines before the samples of a family with this name, which may be that of another program.
pub fn head(name: &str, kind: FamilyKind, help: &str) -> String {
    let unit = unit(name).map(|unit| format!("# UNIT {name} {unit}\n"));
    let help = escaped(help);
    format!(
        "# TYPE {name} {}\n{}# HELP {name} {help}\n",
        kind.as_str(),
        unit.unwrap_or_default()
    )
}

/// The labels of a sample, with their braces; nothing if there are none.
pub fn labels<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let pair = |(label, value)| format!("{label}=\"{}\"", escaped(value));
    let pairs: Vec<String> = labels.into_iter().map(pair).collect();
    match pairs.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", pairs.join(",")),
    }
}

/// Escapes the three characters that have a meaning in a label's value and in a help text.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}
