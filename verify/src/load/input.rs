//! The input: lines before the run, and its end at any time.

use crate::arguments::parse_number;
use crate::failure::Failure;
use inside::sys::records::Records;
use inside::sys::{clock, input};

/// The most requests of a run, and the most pieces of work.
pub(crate) const MOST: usize = 200_000;

const MILLISECOND: u64 = 1_000_000;

/// Standard input.
pub(crate) struct Input {
    buffer: [u8; 4096],
    used: usize,
    /// How much of the buffer was taken.
    taken: usize,
    line: u32,
}

/// When a run begins and ends.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self {
            buffer: [0; 4096],
            used: 0,
            taken: 0,
            line: 0,
        }
    }

    /// Reads the lines up to `start`, which is the last one. `schedule` takes the offsets of requests; without it, a
    /// line with one is wrong.
    pub(crate) fn start(&mut self, mut schedule: Option<&mut Records<u64>>) -> Result<Times, Failure> {
        loop {
            let (line, length) = self.next_line()?;
            let number = self.line;
            let wrong = |why| Failure::Line { number, why };
            let mut words = line.get(..length).unwrap_or_default().split(|byte| *byte == b' ');
            let name = words.next();
            let numbers = (words.next(), words.next(), words.next());
            match (name, numbers) {
                (Some(b"at"), (Some(offset), None, None)) => {
                    let offset = parse_number(offset).ok_or(wrong("at takes an offset in nanoseconds"))?;
                    let schedule = schedule.as_mut().ok_or(wrong("only serve takes at"))?;
                    if schedule.all().last().is_some_and(|last| *last > offset) {
                        return Err(wrong("the offset is before the one in the line above"));
                    }
                    if !schedule.push(offset) {
                        return Err(wrong("too many at lines: at most 200000 are taken"));
                    }
                }
                (Some(b"start"), (Some(begin), Some(end), None)) => {
                    let times = parse_number(begin).zip(parse_number(end));
                    let times = times.map(|(begin, end)| Times { begin, end });
                    let times = times.filter(|times| times.begin < times.end);
                    return times.ok_or(wrong("start takes two times in nanoseconds, the earlier one first"));
                }
                _ => return Err(wrong("neither at OFFSET nor start BEGIN END")),
            }
        }
    }

    /// The next line, and its length.
    fn next_line(&mut self) -> Result<([u8; 64], usize), Failure> {
        let (mut line, mut length) = ([0; 64], 0);
        self.line = self.line.saturating_add(1);
        loop {
            if self.taken == self.used {
                self.used = input::read(&mut self.buffer);
                self.taken = 0;
                if self.used == 0 {
                    return Err(Failure::InputEnded);
                }
            }
            let Some(byte) = self.buffer.get(self.taken).copied() else {
                return Err(Failure::InputEnded);
            };
            self.taken += 1;
            if byte == b'\n' {
                return Ok((line, length));
            }
            let number = self.line;
            let place = line.get_mut(length);
            *place.ok_or(Failure::Line {
                number,
                why: "longer than any line that is taken",
            })? = byte;
            length += 1;
        }
    }

    /// Fails if the input has ended, or has more lines: nothing may follow `start`.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        self.look_for(0)
    }

    fn look_for(&mut self, milliseconds: i32) -> Result<(), Failure> {
        let has_more = self.taken < self.used;
        if !has_more && !input::is_readable(milliseconds) {
            return Ok(());
        }
        match has_more || input::read(&mut self.buffer) > 0 {
            true => Err(Failure::Line {
                number: self.line.saturating_add(1),
                why: "no line is expected here",
            }),
            false => Err(Failure::InputEnded),
        }
    }

    /// Waits until this time, and looks at the input meanwhile.
    pub(crate) fn wait_until(&mut self, time: u64) -> Result<(), Failure> {
        loop {
            let left = time.saturating_sub(clock::now()) / MILLISECOND;
            // The kernel may be late by a part of a millisecond: the rest is slept exactly.
            let milliseconds = i32::try_from(left.saturating_sub(1)).unwrap_or(i32::MAX);
            self.look_for(milliseconds)?;
            if left <= 1 {
                clock::sleep_until(time);
                return Ok(());
            }
        }
    }
}
