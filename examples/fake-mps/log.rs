//! The daemon's log. Its lines go as records through the pipe `log`, as those of real servers do, and a thread writes
//! them to standard output, or to a file after `-d`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What each record begins with, with who writes in the lowest bits: 0 is the daemon.
const MAGIC: u32 = 0xabcd_e000;

/// Who writes, by these bits.
const WRITERS: [&str; 4] = ["Control", "Server", "Client", "Other"];

/// The numbers before the text: the magic number, the process, year, month, day, day of the week, hour, minute, second,
/// millisecond, and the length of the text in two of them.
const HEADER: usize = 12;

/// Where the length is.
const LENGTH: usize = 10;

/// The longest text that the reader has room for. The real daemon does not check it, and ends by SIGSEGV.
const MOST: u32 = 1 << 16;

pub(crate) struct Log {
    pipe: File,
}

impl Log {
    /// What is at `path` at the very start: a pipe that somebody reads, or a file. The real daemon follows a link here,
    /// and writes its records into what it finds.
    pub(crate) fn left(path: &Path) -> Option<File> {
        let mut options = File::options();
        options.write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()
    }

    /// Starts the thread that reads the pipe at `path` into `target`. Records go to `left`, or to the pipe.
    pub(crate) fn open(path: &Path, left: Option<File>, mut target: Box<dyn Write + Send>) -> std::io::Result<Self> {
        let mut reader = File::options().read(true).write(true).open(path)?;
        let pipe = match left {
            Some(left) => left,
            None => File::options().write(true).open(path)?,
        };
        std::thread::spawn(move || {
            while let Some(line) = record(&mut reader) {
                let _ = target.write_all(line.as_bytes());
                let _ = target.flush();
            }
        });
        Ok(Self { pipe })
    }

    pub(crate) fn line(&mut self, text: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (year, month, day) = date(now.as_secs() / 86_400);
        let of_day = now.as_secs() % 86_400;
        let number = |number: u64| u32::try_from(number).unwrap_or(0);
        let length = u32::try_from(text.len()).unwrap_or(MOST).min(MOST);
        let header: [u32; HEADER] = [
            MAGIC,
            std::process::id(),
            year,
            month,
            day,
            0,
            number(of_day / 3600),
            number(of_day / 60 % 60),
            number(of_day % 60),
            now.subsec_millis(),
            length,
            0,
        ];
        let mut bytes: Vec<u8> = header.iter().flat_map(|number| number.to_ne_bytes()).collect();
        bytes.extend_from_slice(&text.as_bytes()[..length as usize]);
        let _ = self.pipe.write_all(&bytes);
    }
}

/// The next line of the log.
fn record(pipe: &mut File) -> Option<String> {
    let mut header = [0; HEADER * 4];
    pipe.read_exact(&mut header).ok()?;
    let number = |at: usize| {
        u32::from_ne_bytes([
            header[at * 4],
            header[at * 4 + 1],
            header[at * 4 + 2],
            header[at * 4 + 3],
        ])
    };
    if number(LENGTH) > MOST {
        std::process::abort();
    }
    let mut text = vec![0; number(LENGTH) as usize];
    pipe.read_exact(&mut text).ok()?;
    let [year, month, day] = [2, 3, 4].map(number);
    let [hour, minute, second, millisecond] = [6, 7, 8, 9].map(number);
    let pid = number(1);
    let text = String::from_utf8_lossy(&text);
    let writer = WRITERS[(number(0) & 3) as usize];
    Some(format!(
        "[{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millisecond:03} {writer} {pid:>5}] {text}\n"
    ))
}

/// The date of a day after 1970-01-01, in the Gregorian calendar.
fn date(mut days: u64) -> (u32, u32, u32) {
    let is_leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let number = |number: u64| u32::try_from(number).unwrap_or(0);
    (number(year), month, number(days) + 1)
}
