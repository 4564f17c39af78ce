//! From the event files into the database.
//!
//! How far a file was read is recorded in the transaction that records its events, so each line counts once, whatever
//! is lost: after a crash both are as they were, and the lines are read again.

mod apply;

use crate::database::failed;
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::events::{self, EventLine, this_boot};

/// The most bytes of a line; the rest of a longer one is skipped, and it is not an event.
const MOST_LINE: usize = 64 << 10;

/// The most bytes of the first line of a file.
const MOST_HEAD: u64 = 256;

/// How many lines are recorded at once. In between, questions are answered.
const AT_ONCE: usize = 20_000;

/// Reads event files into a database.
#[derive(Debug)]
pub struct Intake {
    /// The directory with the event files.
    directory: PathBuf,
    /// The rows that the list which is being read has named so far.
    listed: HashSet<i64>,
    /// Of which files it was said that a newer version wrote them.
    newer: HashSet<String>,
}

/// What one look brought.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Events that were recorded.
    pub events: usize,
    /// Lines that are not events: half ones, and those of a kind that this version does not know.
    pub unknown: usize,
    /// Whether there may be more.
    pub is_more: bool,
}

impl Intake {
    /// Of the event files of the machine whose state is in `state_dir`.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join(events::DIRECTORY),
            listed: HashSet::new(),
            newer: HashSet::new(),
        }
    }

    /// Records what was written since the last look, at most some thousand lines of it. Half a line at the end of a
    /// file is left for the next look.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the database takes nothing, for lack of room for example. Then
    /// nothing of this look is recorded, and the next one does it.
    pub fn look(&mut self, database: &mut Connection) -> Result<Taken> {
        let path = database.path().map(PathBuf::from).unwrap_or_default();
        let about = failed(&path);
        let files = self.open()?;
        let mut taken = Taken::default();
        let transaction = database.transaction().map_err(&about)?;
        forget_files(&transaction, &files).map_err(&about)?;
        // The oldest first.
        for file in files.into_iter().rev() {
            self.read(&transaction, file, &mut taken, &about)?;
            if taken.is_more {
                break;
            }
        }
        transaction.commit().map_err(&about)?;
        Ok(taken)
    }

    /// The files that have their first line, the newest first: opened in this order, none is missed when they get
    /// other names meanwhile.
    fn open(&self) -> Result<Vec<EventFile>> {
        let mut files: Vec<EventFile> = Vec::new();
        for name in events::FILES {
            let path = self.directory.join(name);
            let file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.about(path.display(), "cannot be read")?,
            };
            let mut lines = BufReader::new(file);
            let mut head = String::new();
            let first = lines.by_ref().take(MOST_HEAD).read_line(&mut head);
            // One that is not text has no event.
            if first.is_ok() && head.ends_with('\n') && files.iter().all(|known| known.head != head) {
                files.push(EventFile { path, lines, head });
            }
        }
        Ok(files)
    }

    fn read(
        &mut self,
        database: &Connection,
        file: EventFile,
        taken: &mut Taken,
        about: &dyn Fn(rusqlite::Error) -> Error,
    ) -> Result<()> {
        let EventFile { path, mut lines, head } = file;
        let known: Option<(Option<i64>, i64)> = database
            .query_row("SELECT boot, place FROM files WHERE head = ?1", [&head], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(about)?;
        let (mut boot, place) = known.unwrap_or((None, 0));
        let mut place = place.cast_unsigned();
        lines
            .seek(SeekFrom::Start(place))
            .about(path.display(), "cannot be read")?;
        let mut line = Vec::new();
        while taken.events + taken.unknown < AT_ONCE {
            line.clear();
            let read = lines
                .read_until(b'\n', &mut line)
                .about(path.display(), "cannot be read")?;
            if line.pop() != Some(b'\n') {
                break;
            }
            place += read as u64;
            let text = std::str::from_utf8(&line).ok().filter(|line| line.len() <= MOST_LINE);
            match text.map_or(EventLine::Unknown, events::parse) {
                EventLine::Boot(id) => boot = Some(apply::boot(database, &id).map_err(about)?),
                EventLine::Event(event) => {
                    let boot = match boot {
                        Some(boot) => boot,
                        // A file without its first line is of this boot, because the files end with it.
                        None => *boot.insert(apply::boot(database, &this_boot()).map_err(about)?),
                    };
                    apply::event(database, boot, &event, &mut self.listed).map_err(about)?;
                    taken.events += 1;
                }
                EventLine::Newer(form) => {
                    if self.newer.insert(head.clone()) {
                        tracing::warn!(
                            "{}: has form {form}, of a newer tranche, and is not read",
                            path.display()
                        );
                    }
                    return Ok(());
                }
                EventLine::Unknown => taken.unknown += 1,
            }
        }
        taken.is_more |= taken.events + taken.unknown >= AT_ONCE;
        let row = params![head, boot, place.cast_signed()];
        database
            .execute(
                "INSERT OR REPLACE INTO files (head, boot, place) VALUES (?1, ?2, ?3)",
                row,
            )
            .map_err(about)?;
        Ok(())
    }
}

/// An event file, by its first line: another file may get its name, and its inode when it is gone.
#[derive(Debug)]
struct EventFile {
    path: PathBuf,
    lines: BufReader<File>,
    head: String,
}

/// Forgets how far files were read that are gone.
fn forget_files(database: &Connection, files: &[EventFile]) -> rusqlite::Result<()> {
    let mut known = database.prepare_cached("SELECT head FROM files")?;
    let known: Vec<String> = known
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for gone in known.iter().filter(|head| files.iter().all(|file| file.head != **head)) {
        database.execute("DELETE FROM files WHERE head = ?1", [gone])?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
