//! Tables for people: columns of text without rules.

use crate::window;
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use tranche_core::text::shown;

/// The width that every terminal has.
const WIDTH: u16 = 80;

/// A table with a header.
pub(super) struct Table(comfy_table::Table);

impl Table {
    /// An empty one.
    pub(super) fn with_header(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        // Cells are never broken: a UUID in two lines cannot be copied.
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self(table)
    }

    /// `rows` of what something is and what its value is, as text without a header.
    pub(super) fn of_values<const N: usize>(rows: [(&str, String); N]) -> String {
        let width = rows.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        let row = |(what, value): (&str, String)| format!("{what:<width$}  {}\n", shown(&value));
        rows.into_iter().map(row).collect()
    }

    /// An empty one that is at most 80 columns wide: long cells continue below, at a space. The first column, which has
    /// the names that people copy, is never broken.
    pub(super) fn narrow(header: &[&str]) -> Self {
        let Self(mut table) = Self::with_header(header);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(WIDTH);
        if let Some(first) = table.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
        Self(table)
    }

    /// Adds a row. What a terminal would act on in a cell is escaped: names in it may come from an image.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|cell| shown(&cell).into_owned());
        self.0.add_row(cells.collect::<Vec<_>>());
    }

    /// The table, a line a row. On a terminal that is narrower, cells continue below, at a space.
    pub(super) fn text(&self) -> String {
        match window::width() {
            Some(columns) => self.within(columns),
            None => lines(&self.0),
        }
    }

    fn within(&self, columns: usize) -> String {
        let whole = lines(&self.0);
        if whole.lines().all(|line| line.chars().count() <= columns) {
            return whole;
        }
        let mut table = self.0.clone();
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
        let words: Vec<u16> = (0..table.column_count()).map(|at| longest_word(&table, at)).collect();
        for (column, word) in table.column_iter_mut().zip(words) {
            // The padding is a part of a column.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word + 2)));
        }
        lines(&table)
    }
}

/// The characters of the longest word in a column.
fn longest_word(table: &comfy_table::Table, column: usize) -> u16 {
    let header = table.header().and_then(|row| row.cell_iter().nth(column));
    let cells = table.row_iter().filter_map(|row| row.cell_iter().nth(column));
    let words = header.into_iter().chain(cells).map(comfy_table::Cell::content);
    let longest = words
        .flat_map(|text| text.split(' ').map(|word| word.chars().count()).max())
        .max();
    u16::try_from(longest.unwrap_or(0)).unwrap_or(u16::MAX - 2)
}

fn lines(table: &comfy_table::Table) -> String {
    table.lines().map(|l| format!("{}\n", l.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_window_breaks_cells_at_spaces_only() {
        let mut table = Table::with_header(&["NAME", "HOLDER", "SINCE"]);
        let row = [
            "nvidia.com/gpu=0.any",
            "train (5cfb655a8685)",
            "2026-11-22 15:09:11 UTC",
        ];
        table.row(row.map(str::to_owned));
        let narrow = table.within(60);
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        for word in row.iter().flat_map(|cell| cell.split(' ')) {
            assert!(narrow.contains(word), "{word}: {narrow}");
        }
        assert_eq!(table.within(200), table.text());
        assert_eq!(table.text().lines().count(), 2);
    }
}
