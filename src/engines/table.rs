//! The rows of `cdi-versions.txt`.

use crate::types::{CdiVersion, EngineVersion};

const TEXT: &str = include_str!("cdi-versions.txt");

/// Since which version an engine reads a CDI version.
pub(super) struct TableRow {
    pub(super) engine: &'static str,
    pub(super) since: EngineVersion,
    pub(super) cdi: CdiVersion,
}

/// The rows: the newest version of each engine comes first. An invalid line is skipped, and a test fails on one.
pub(super) fn rows() -> impl Iterator<Item = TableRow> {
    lines().filter_map(row)
}

fn lines() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter(|line| !line.starts_with('#'))
}

fn row(line: &'static str) -> Option<TableRow> {
    let mut words = line.split_whitespace();
    let (engine, since, cdi) = (words.next()?, words.next()?, words.next()?);
    Some(TableRow {
        engine,
        since: since.parse().ok()?,
        cdi: cdi.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_row_and_the_newest_is_first() {
        assert_eq!(rows().count(), lines().count());
        let rows: Vec<TableRow> = rows().collect();
        for pair in rows.windows(2) {
            let [one, next] = pair else { continue };
            let is_ordered = one.engine != next.engine || (one.since > next.since && one.cdi > next.cdi);
            assert!(is_ordered, "{} {:?}", next.engine, next.since);
        }
        // A second block of rows of an engine would never be read to its end.
        let mut names: Vec<&str> = rows.iter().map(|row| row.engine).collect();
        names.dedup();
        assert_eq!(names, ["podman", "docker", "containerd", "crio"]);
    }
}
