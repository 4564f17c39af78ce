//! A table of a simulation in docs/maintaining/simulations.md.

use std::fs;
use std::path::Path;

/// Writes the table of the simulation `name` into the page of simulations below `docs`, between its marks.
pub(crate) fn write_table(docs: &Path, name: &str, table: &str) {
    const END: &str = "<!-- end of simulation -->";
    let page = docs.join("maintaining/simulations.md");
    let begin = format!("<!-- simulation of {name}: written by make bench -->\n");
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(&begin).expect("the page has no mark for the table");
    let (_, after) = rest.split_once(END).expect("the page has no mark after the table");
    fs::write(page, format!("{before}{begin}{table}{END}{after}")).unwrap();
}
