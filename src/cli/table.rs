//! Tables for people: columns of text without rules.

use comfy_table::{ColumnConstraint, ContentArrangement, presets};
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

    /// The table, a line a row.
    pub(super) fn text(&self) -> String {
        self.0.lines().map(|l| format!("{}\n", l.trim_end())).collect()
    }
}
