//! Tables for people: columns of text, no lines, nothing broken across lines.

use comfy_table::{ContentArrangement, presets};

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

    /// Adds a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().collect::<Vec<_>>());
    }

    /// The table, a line a row.
    pub(super) fn text(&self) -> String {
        self.0.lines().map(|l| format!("{}\n", l.trim_end())).collect()
    }
}
