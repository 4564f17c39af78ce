//! A strict reader of OpenMetrics text (OpenMetrics 1.0), for the part of it that tranche writes: gauges and counters.

use std::collections::{BTreeMap, BTreeSet};

/// The value of each series, by its name and labels as they are written.
pub type Series = BTreeMap<String, f64>;

#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: Option<String>,
    unit: Option<String>,
    help: Option<String>,
    samples: usize,
}

/// Reads a whole text.
///
/// # Errors
/// Returns the first line that breaks a rule, and the rule.
pub fn read(text: &str) -> Result<Series, String> {
    let body = text
        .strip_suffix("# EOF\n")
        .ok_or("the text does not end with # EOF and a line feed")?;
    if !body.is_empty() && !body.ends_with('\n') {
        return Err("the line before # EOF does not end".to_owned());
    }
    let mut series = Series::new();
    let mut finished = BTreeSet::new();
    let mut family = Family::default();
    for line in body.lines() {
        let wrong = |rule: &str| Err(format!("{line:?}: {rule}"));
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(keyword), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
                return wrong("a comment that is not TYPE, UNIT or HELP with a name and a value");
            };
            if family.name != name {
                end(&family)?;
                if !finished.insert(name.to_owned()) {
                    return wrong("a family in two places");
                }
                if !is_name(name) {
                    return wrong("not a name");
                }
                family = Family {
                    name: name.to_owned(),
                    ..Family::default()
                };
            }
            if family.samples > 0 {
                return wrong("metadata after a sample of its family");
            }
            let slot = match keyword {
                "TYPE" if ["gauge", "counter"].contains(&value) => &mut family.kind,
                "UNIT" if name.ends_with(&format!("_{value}")) => &mut family.unit,
                "HELP" if unescaped(value).is_some() => &mut family.help,
                _ => return wrong("an unknown keyword, type or unit, or a wrong escape"),
            };
            if slot.replace(value.to_owned()).is_some() {
                return wrong("metadata twice");
            }
            continue;
        }
        let (name, value) = sample(line).ok_or_else(|| format!("{line:?}: not a sample"))?;
        let base = name.split('{').next().unwrap_or_default();
        let suffix = match family.kind.as_deref() {
            Some("counter") => "_total",
            Some(_) => "",
            None => return wrong("a sample without a TYPE before it"),
        };
        if base != format!("{}{suffix}", family.name) {
            return wrong("a sample of another family, or without the suffix of its type");
        }
        if !value.is_finite() || (suffix == "_total" && value < 0.0) {
            return wrong("not a finite number, or a negative counter");
        }
        family.samples += 1;
        if series.insert(name, value).is_some() {
            return wrong("a series twice");
        }
    }
    end(&family)?;
    Ok(series)
}

fn end(family: &Family) -> Result<(), String> {
    let ends_with_unit = ["bytes", "seconds", "ratio"]
        .iter()
        .any(|unit| family.name.ends_with(&format!("_{unit}")));
    match family {
        Family { name, .. } if name.is_empty() => Ok(()),
        Family { name, samples: 0, .. } => Err(format!("{name}: no samples")),
        Family { name, help: None, .. } => Err(format!("{name}: no HELP")),
        Family { name, unit: None, .. } if ends_with_unit => Err(format!("{name}: no UNIT")),
        _ => Ok(()),
    }
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The text with its escapes undone; `None` for a wrong escape.
fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            },
            '"' | '\n' => return None,
            other => other,
        });
    }
    Some(plain)
}

/// A sample: `name{label="value",…} number`.
fn sample(line: &str) -> Option<(String, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let Some((name, labels)) = series.split_once('{') else {
        return is_name(series).then_some((series.to_owned(), value.parse().ok()?));
    };
    let mut rest = labels.strip_suffix('}')?;
    let mut seen = BTreeSet::new();
    while !rest.is_empty() {
        let (label, behind) = rest.split_once("=\"")?;
        if !is_name(label) || !seen.insert(label) {
            return None;
        }
        // The first quote that is not escaped ends the value.
        let mut is_escaped = false;
        let end = behind.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        })?;
        unescaped(&behind[..end])?;
        rest = &behind[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some("") => return None,
            Some(more) => more,
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    (is_name(name) && !seen.is_empty()).then_some((series.to_owned(), value.parse().ok()?))
}

#[test]
fn the_reader_accepts_good_text_and_nothing_else() {
    let good = "# TYPE a_bytes gauge\n# UNIT a_bytes bytes\n# HELP a_bytes x \\\\ \\n y\n\
                a_bytes{b=\"1\",c=\"\\\"\"} 2.5\na_bytes{b=\"2\",c=\"\"} 3\n\
                # TYPE n counter\n# HELP n x\nn_total 7\n# EOF\n";
    let series = read(good).unwrap();
    assert_eq!((series.len(), series["n_total"]), (3, 7.0));
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF\nn_total 8\n"),
        ("gauge", "info"),
        ("UNIT a_bytes bytes", "UNIT a_bytes seconds"),
        ("# UNIT a_bytes bytes\n", ""),
        ("# HELP n x\n", ""),
        ("n_total 7", "n 7"),
        ("n_total 7", "n_total -7"),
        ("n_total 7", "n_total seven"),
        ("n_total 7", "n_total 7\nn_total 7"),
        ("b=\"2\",c=\"\"", "b=\"1\",c=\"\\\"\""),
        ("b=\"2\",", "c=\"2\","),
        ("\\\"\"}", "\"\"}"),
        ("\\n y", "\\m y"),
        ("n_total 7\n", "n_total 7\na_bytes{b=\"3\",c=\"\"} 3\n"),
        ("n_total 7\n", "n_total 7\n# TYPE a_bytes gauge\n"),
        ("n_total 7\n", "n_total 7\n\n"),
        ("# TYPE n counter\n", ""),
    ] {
        assert!(good.contains(from), "{from:?}");
        let bad = good.replacen(from, to, 1);
        assert!(read(&bad).is_err(), "{bad}");
    }
}
