//! What was held, used and waited for.

use crate::spans::{Window, boots, covered, each_hold};
use crate::viewer::{Names, Viewer};
use rusqlite::{Connection, params};
use std::collections::HashMap;
use tranche_protocol::{Report, ReportBy, ReportRow};

/// Whom a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    User(u32),
    Group(u32),
    Device(i64),
    /// All users or groups whose rows the viewer may not see.
    Others,
}

/// Whose time on which device is added up: of [`Subject::Others`] that of each user alone.
type HeldBy = (Subject, Option<u32>, i64);

#[derive(Debug, Default)]
struct Sums {
    held: u64,
    busy: Option<u64>,
    waited: u64,
}

/// The report about the last `seconds`, as `viewer` may see it. A group is that of a user's account.
///
/// # Errors
/// Returns the error of SQLite.
pub fn report(database: &Connection, by: ReportBy, seconds: u64, viewer: &Viewer) -> rusqlite::Result<Report> {
    let window = Window::last(seconds);
    let mut names = Names::default();
    let own_group = names.group_of(viewer.uid);
    let mut subject = |uid: u32, device: i64| match by {
        ReportBy::Device => Subject::Device(device),
        ReportBy::User if viewer.tells_apart(uid) => Subject::User(uid),
        ReportBy::User => Subject::Others,
        ReportBy::Group => match names.group_of(uid) {
            group if viewer.sees_all || group == own_group => Subject::Group(group),
            _ => Subject::Others,
        },
    };
    let mut held: HashMap<HeldBy, Vec<(i64, i64)>> = HashMap::new();
    let mut sums: HashMap<Subject, Sums> = HashMap::new();
    for boot in boots(database, window)? {
        each_hold(database, boot, |uid, device, from, to| {
            let subject = subject(uid, device);
            let alone = matches!(subject, Subject::Others).then_some(uid);
            held.entry((subject, alone, device)).or_default().push((from, to));
        })?;
        let bounds = params![boot.boot, boot.from, boot.to];
        let mut waits = database
            .prepare_cached("SELECT uid, device, seconds FROM waits WHERE boot = ?1 AND ended > ?2 AND ended <= ?3")?;
        let mut rows = waits.query(bounds)?;
        while let Some(row) = rows.next()? {
            let waited = row.get::<_, i64>(2)?.cast_unsigned();
            sums.entry(subject(row.get(0)?, row.get(1)?)).or_default().waited += waited;
        }
        let mut busy = database
            .prepare_cached("SELECT uid, device, seconds FROM busy WHERE boot = ?1 AND at > ?2 AND at <= ?3")?;
        let mut rows = busy.query(bounds)?;
        while let Some(row) = rows.next()? {
            let sum = sums.entry(subject(row.get(0)?, row.get(1)?)).or_default();
            *sum.busy.get_or_insert(0) += row.get::<_, i64>(2)?.cast_unsigned();
        }
    }
    for ((subject, ..), spans) in held {
        sums.entry(subject).or_default().held += covered(spans);
    }
    let mut rows = Vec::with_capacity(sums.len());
    for (subject, sums) in sums {
        rows.push(ReportRow {
            name: match subject {
                Subject::User(uid) => viewer.name_of(uid, &names),
                Subject::Group(group) => Some(names.group(group)),
                Subject::Device(device) => {
                    let name = "SELECT name FROM devices WHERE id = ?1";
                    Some(database.query_row(name, [device], |row| row.get(0))?)
                }
                Subject::Others => None,
            },
            held_seconds: sums.held,
            busy_seconds: sums.busy,
            waited_seconds: sums.waited,
        });
    }
    rows.sort_by(|a, b| b.held_seconds.cmp(&a.held_seconds).then_with(|| a.name.cmp(&b.name)));
    Ok(Report {
        from: window.from.cast_unsigned(),
        to: window.to.cast_unsigned(),
        rows,
    })
}

#[cfg(test)]
mod tests;
