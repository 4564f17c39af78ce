//! What a person sees while a run goes on.

use crate::cell::{Agenda, clock};

/// The line for the cell with this number, counted from 0, `seconds` after its beginning: `cell 3 of 12, mps-50-50
/// beside hog-dram: 0:41 left`. What is left is the time of the whole run; it never rises while the cells take as long
/// as they should.
pub fn progress(agenda: &Agenda, cell: usize, seconds: u32) -> String {
    let Some(now) = agenda.cells.get(cell) else {
        return "all cells are measured".to_owned();
    };
    let after = agenda.seconds_from(cell + 1);
    let left = agenda.seconds_from(cell).saturating_sub(seconds).max(after);
    let (number, count) = (cell + 1, agenda.cells.len());
    format!("cell {number} of {count}, {now}: {} left", clock(u64::from(left)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Length;
    use crate::way::Way;

    #[test]
    fn the_line_says_where_the_run_is_and_for_how_long_it_goes_on() {
        let agenda = Agenda::new(&["mps-50-50".parse().unwrap()], Length::SHORT);
        let neighbours: Vec<String> = agenda.cells.iter().map(ToString::to_string).collect();
        assert_eq!(neighbours.len(), 22, "{neighbours:?}");
        assert_eq!(
            progress(&agenda, 6, 3),
            "cell 7 of 22, mps-50-50 beside hog-dram at 10 %: 3:25 left"
        );
        let last = agenda.cells.len() - 1;
        assert!(
            progress(&agenda, last, 2).ends_with(": 0:11 left"),
            "{}",
            progress(&agenda, last, 2)
        );
        assert!(progress(&agenda, last, 99).ends_with(": 0:00 left"));
        assert_eq!(progress(&agenda, last + 1, 0), "all cells are measured");
    }

    #[test]
    fn what_is_left_never_rises() {
        let agenda = Agenda::new(&Way::ALL, Length::SHORT);
        let mut before = u64::MAX;
        for cell in 0..agenda.cells.len() {
            for second in 0..40 {
                let line = progress(&agenda, cell, second);
                let left = line.rsplit_once(": ").unwrap().1.trim_end_matches(" left");
                let left = left
                    .split(':')
                    .fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap());
                assert!(left <= before, "{line}");
                before = left;
            }
        }
        assert_eq!(clock(3723), "1:02:03");
    }
}
