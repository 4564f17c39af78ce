//! The database: its form, and what happens to one that is damaged or newer.
//!
//! Times are in seconds since the boot of their row, because no clock that jumps moves them. A boot has the second
//! since 1970 at which it was, by the clock of its last event: a machine that gets its time from the network has the
//! right one then, and all of its rows with it.

use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Context, Error, Result};

/// The name of the file in the directory of the program.
pub const FILE: &str = "history.sqlite";

/// The number of the form that this program writes.
const FORMAT: i64 = 1;

/// The first version of SQLite that does not damage a database when the write-ahead log is reset
/// (sqlite.org/wal.html, "The WAL-Reset Bug": fixed in 3.51.3).
pub const LEAST_SQLITE: i32 = 3_051_003;

/// What belongs to the file, and what is moved along with a damaged one.
const FILES: [&str; 3] = ["", "-shm", "-wal"];

const TABLES: &str = "
CREATE TABLE boots (id INTEGER PRIMARY KEY, boot TEXT NOT NULL UNIQUE, zero INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE devices (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE holds (
    id INTEGER PRIMARY KEY, boot INTEGER NOT NULL, device INTEGER NOT NULL, part TEXT NOT NULL, uid INTEGER NOT NULL,
    name TEXT, who TEXT NOT NULL, joined INTEGER NOT NULL, since INTEGER, used INTEGER NOT NULL,
    limited INTEGER NOT NULL DEFAULT 0, began INTEGER NOT NULL, ended INTEGER
);
CREATE INDEX holds_ended ON holds (boot, ended, began, uid, device) WHERE ended IS NOT NULL;
CREATE INDEX holds_open ON holds (boot, device, part) WHERE ended IS NULL;
CREATE TABLE waits (boot INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER, uid INTEGER NOT NULL,
    device INTEGER NOT NULL, seconds INTEGER NOT NULL, served INTEGER NOT NULL);
CREATE INDEX waits_ended ON waits (boot, ended);
CREATE TABLE busy (boot INTEGER NOT NULL, at INTEGER NOT NULL, uid INTEGER NOT NULL, device INTEGER NOT NULL,
    seconds INTEGER NOT NULL);
CREATE INDEX busy_at ON busy (boot, at);
CREATE TABLE outages (boot INTEGER NOT NULL, device INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER);
CREATE TABLE files (head TEXT PRIMARY KEY, boot INTEGER, place INTEGER NOT NULL);
";

/// An error of SQLite as one about `path`.
pub(crate) fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> Error + '_ {
    move |error| Error::failed(path.display(), error.to_string())
}

/// Opens the database in `dir`, and makes it if it is missing. One that is damaged is set aside, which is reported in
/// one line, and a new one is made.
///
/// # Errors
/// Returns an error if a newer version wrote it, if another process uses it, or if it cannot be made.
pub fn open(dir: &Path) -> Result<Connection> {
    let path = dir.join(FILE);
    match open_checked(&path) {
        Err(OpenError::Damaged(why)) => {
            let aside = set_aside(&path)?;
            tracing::warn!(
                "{}: is damaged ({why}), and is now {}; a new history begins",
                path.display(),
                aside.display()
            );
            open_checked(&path).map_err(Error::from)
        }
        opened => opened.map_err(Error::from),
    }
}

enum OpenError {
    Damaged(String),
    Other(Error),
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Damaged(why) => Error::failed("history", why),
            OpenError::Other(error) => error,
        }
    }
}

fn open_checked(path: &Path) -> std::result::Result<Connection, OpenError> {
    let judge = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => OpenError::Damaged(error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            OpenError::Other(Error::failed(path.display(), "is used by another tranche-web"))
        }
        _ => OpenError::Other(failed(path)(error)),
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(judge)?;
    // One writer, which is also the only reader: nobody else opens the file while it runs.
    database.busy_timeout(Duration::from_millis(200)).map_err(judge)?;
    database
        .pragma_update(None, "locking_mode", "EXCLUSIVE")
        .map_err(judge)?;
    database
        .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
        .map_err(judge)?;
    // The loss of power may cost the last seconds, which are read again from the event files, and never the database.
    database.pragma_update(None, "synchronous", "NORMAL").map_err(judge)?;
    // Ordinary questions do not see a damaged page.
    let found: String = database
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(judge)?;
    if found != "ok" {
        return Err(OpenError::Damaged(found));
    }
    let format: i64 = database
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(judge)?;
    match format {
        FORMAT => {}
        0 => {
            let make = format!("BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {FORMAT}; COMMIT;");
            database.execute_batch(&make).map_err(judge)?;
        }
        newer => {
            let what = format!("has form {newer}, and this program writes {FORMAT}");
            let error = Error::failed(path.display(), what);
            return Err(OpenError::Other(
                error.hint("a newer tranche wrote it; use that one, or remove it"),
            ));
        }
    }
    // Takes the lock now, so that a second program fails at its start.
    database.execute_batch("BEGIN IMMEDIATE; COMMIT;").map_err(judge)?;
    Ok(database)
}

/// Gives the file and its journal other names. Returns that of the file.
fn set_aside(path: &Path) -> Result<PathBuf> {
    let with = |end: &str| PathBuf::from(format!("{}{end}", path.display()));
    for end in FILES {
        let (from, to) = (with(end), with(&format!(".damaged{end}")));
        match std::fs::rename(&from, &to) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            moved => moved.about(from.display(), "cannot be set aside")?,
        }
    }
    Ok(with(".damaged"))
}

/// Removes what ended more than `keep` before `now` (seconds since 1970). Returns how many rows that were.
///
/// # Errors
/// Returns the error of SQLite.
pub fn forget(database: &Connection, now: u64, keep: Duration) -> rusqlite::Result<usize> {
    let before = i64::try_from(now.saturating_sub(keep.as_secs())).unwrap_or(0);
    let mut removed = 0;
    for (table, time) in [
        ("holds", "ended"),
        ("waits", "ended"),
        ("busy", "at"),
        ("outages", "ended"),
    ] {
        let old = format!("DELETE FROM {table} WHERE {time} < ?1 - (SELECT zero FROM boots WHERE id = {table}.boot)");
        removed += database.execute(&old, [before])?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
