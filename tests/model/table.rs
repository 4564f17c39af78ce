//! What was done, in numbers.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) lives: u64,
    pub(crate) steps: u64,
    pub(crate) looks: u64,
}

impl Table {
    pub(crate) fn count(&mut self, row: &'static str, result: &'static str) {
        *self.rows.entry((row, result)).or_default() += 1;
    }

    pub(crate) fn number(&self, row: &str, result: &str) -> u64 {
        let rows = self.rows.iter().filter(|((r, s), _)| *r == row && *s == result);
        rows.map(|(_, number)| number).sum()
    }

    pub(crate) fn add(&mut self, other: &Table) {
        for ((row, result), number) in &other.rows {
            *self.rows.entry((row, result)).or_default() += number;
        }
        self.lives += other.lives;
        self.steps += other.steps;
        self.looks += other.looks;
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((row, result), number) in &self.rows {
            rows.entry(row).or_default().push(format!("{result} {number}"));
        }
        for (row, results) in rows {
            writeln!(f, "  {row:42} {}", results.join(", "))?;
        }
        write!(
            f,
            "  {} machines, {} operations, looked at {} times",
            self.lives, self.steps, self.looks
        )
    }
}
