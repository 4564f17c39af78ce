//! A table of a simulation in a page of `docs`.

use std::fs;
use std::path::Path;

/// Writes the table into the page, between its marks.
pub(crate) fn write_table(page: &Path, table: &str) {
    const BEGIN: &str = "<!-- simulation: written by make bench -->\n";
    const END: &str = "<!-- end of simulation -->";
    let text = fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has no mark for the table");
    let (_, after) = rest.split_once(END).expect("the page has no mark after the table");
    fs::write(page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
}
