//! What an event changes in the database.

use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashSet;
use tranche_core::ledger::events::{Event, EventKind};
use tranche_core::ledger::{Claim, ClaimState};

/// The row of the boot `id`. With a new boot, everything of the others has ended when they were last heard of.
pub(super) fn boot(database: &Connection, id: &str) -> rusqlite::Result<i64> {
    let known = database
        .query_row("SELECT id FROM boots WHERE boot = ?1", [id], |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return Ok(known);
    }
    // Nobody waits any more, and of nobody it is known for how long.
    database.execute("DELETE FROM waits WHERE ended IS NULL", [])?;
    for table in ["holds", "outages"] {
        let end = format!("ended = max(began, (SELECT last FROM boots WHERE id = {table}.boot))");
        database.execute(&format!("UPDATE {table} SET {end} WHERE ended IS NULL"), [])?;
    }
    database.execute("INSERT INTO boots (boot, zero, last) VALUES (?1, 0, 0)", [id])?;
    Ok(database.last_insert_rowid())
}

/// Records an event of `boot`. `listed` are the rows that the list of all claims has named of which this event is a
/// part.
pub(super) fn event(
    database: &Connection,
    boot: i64,
    event: &Event,
    listed: &mut HashSet<i64>,
) -> rusqlite::Result<()> {
    let now = event.uptime.cast_signed();
    let zero = event.clock.cast_signed() - now;
    database
        .prepare_cached("UPDATE boots SET zero = ?2, last = max(last, ?3) WHERE id = ?1")?
        .execute(params![boot, zero, now])?;
    let Some(claim) = &event.claim else {
        return checked(database, boot, now, event.value, listed);
    };
    let at = Place {
        database,
        boot,
        device: device(database, &claim.device.to_string())?,
        now,
    };
    match event.kind {
        EventKind::Began => {
            at.end_all(claim)?;
            at.begin(claim, now)?;
        }
        EventKind::Changed => {
            let limited = at.end(claim)?;
            let row = at.begin(claim, now)?;
            if limited == Some(true) {
                at.limit(row)?;
            }
        }
        EventKind::Ended => {
            if at.end(claim)?.is_none() {
                // Its beginning was lost.
                let row = at.begin(claim, began(claim, now))?;
                at.end_row(row)?;
            }
        }
        EventKind::Holds => {
            let row = match at.open(claim)? {
                Some((row, _)) => row,
                None => at.begin(claim, began(claim, now))?,
            };
            listed.insert(row);
        }
        EventKind::Overdue => {
            if let Some((row, _)) = at.open(claim)? {
                at.limit(row)?;
            }
        }
        EventKind::Waits => at.note_wait(claim.uid)?,
        EventKind::Served | EventKind::Left => at.end_wait(event, claim.uid)?,
        EventKind::Busy => at.note_busy(event, claim.uid)?,
        EventKind::Drained => at.note_outage(true)?,
        EventKind::Undrained => at.note_outage(false)?,
        // They change nothing of what is held.
        EventKind::Suspended | EventKind::Resumed | EventKind::Lost | EventKind::Checked => {}
    }
    Ok(())
}

/// The end of a list: what it has not named has ended, if the whole list was read.
fn checked(database: &Connection, boot: i64, now: i64, count: u64, listed: &mut HashSet<i64>) -> rusqlite::Result<()> {
    let listed = std::mem::take(listed);
    if listed.len() as u64 != count {
        return Ok(());
    }
    let mut open = database.prepare_cached("SELECT id FROM holds WHERE boot = ?1 AND ended IS NULL")?;
    let open: Vec<i64> = open
        .query_map([boot], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for gone in open.into_iter().filter(|row| !listed.contains(row)) {
        end_row(database, gone, now)?;
    }
    Ok(())
}

/// When a claim began whose beginning was lost, in seconds since boot.
fn began(claim: &Claim, now: i64) -> i64 {
    claim.since_boot.map_or(now, u64::cast_signed).min(now)
}

fn device(database: &Connection, name: &str) -> rusqlite::Result<i64> {
    let mut known = database.prepare_cached("SELECT id FROM devices WHERE name = ?1")?;
    if let Some(id) = known.query_row([name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    database.execute("INSERT INTO devices (name) VALUES (?1)", [name])?;
    Ok(database.last_insert_rowid())
}

fn end_row(database: &Connection, row: i64, now: i64) -> rusqlite::Result<()> {
    let mut end = database.prepare_cached("UPDATE holds SET ended = max(began, ?2) WHERE id = ?1")?;
    end.execute([row, now]).map(drop)
}

/// Where and when something happened.
struct Place<'d> {
    database: &'d Connection,
    boot: i64,
    device: i64,
    now: i64,
}

impl Place<'_> {
    /// The row of what `claim` holds, and whether its time was over.
    fn open(&self, claim: &Claim) -> rusqlite::Result<Option<(i64, bool)>> {
        let mut found = self.database.prepare_cached(
            "SELECT id, limited FROM holds WHERE ended IS NULL AND boot = ?1 AND device = ?2 AND part = ?3
             AND uid = ?4 AND name IS ?5 AND since IS ?6 AND joined = ?7 AND (joined = 0 OR who = ?8)",
        )?;
        let since = claim.since_boot.map(u64::cast_signed);
        let key = params![
            self.boot,
            self.device,
            claim.part.to_string(),
            claim.uid,
            claim.name,
            since,
            claim.joined,
            claim.who(),
        ];
        found.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    /// Ends what holds the part of `claim`, the end of which was lost.
    fn end_all(&self, claim: &Claim) -> rusqlite::Result<()> {
        if claim.joined {
            return Ok(());
        }
        let mut end = self.database.prepare_cached(
            "UPDATE holds SET ended = max(began, ?4) WHERE ended IS NULL AND boot = ?1 AND device = ?2 AND part = ?3",
        )?;
        end.execute(params![self.boot, self.device, claim.part.to_string(), self.now])
            .map(drop)
    }

    fn begin(&self, claim: &Claim, began: i64) -> rusqlite::Result<i64> {
        let mut insert = self.database.prepare_cached(
            "INSERT INTO holds (boot, device, part, uid, name, who, joined, since, used, began)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        insert.insert(params![
            self.boot,
            self.device,
            claim.part.to_string(),
            claim.uid,
            claim.name,
            claim.who(),
            claim.joined,
            claim.since_boot.map(u64::cast_signed),
            claim.state == ClaimState::Held,
            began,
        ])
    }

    /// Ends what `claim` holds. Returns whether its time was over; `None` if nothing of it is known.
    fn end(&self, claim: &Claim) -> rusqlite::Result<Option<bool>> {
        let open = self.open(claim)?;
        if let Some((row, _)) = open {
            self.end_row(row)?;
        }
        Ok(open.map(|(_, limited)| limited))
    }

    fn end_row(&self, row: i64) -> rusqlite::Result<()> {
        end_row(self.database, row, self.now)
    }

    fn limit(&self, row: i64) -> rusqlite::Result<()> {
        let mut limit = self
            .database
            .prepare_cached("UPDATE holds SET limited = 1 WHERE id = ?1")?;
        limit.execute([row]).map(drop)
    }

    fn note_wait(&self, uid: u32) -> rusqlite::Result<()> {
        let mut insert = self.database.prepare_cached(
            "INSERT INTO waits (boot, began, uid, device, seconds, served) VALUES (?1, ?2, ?3, ?4, 0, 0)",
        )?;
        insert.execute(params![self.boot, self.now, uid, self.device]).map(drop)
    }

    /// Ends the wait of the user for the device that began then, or else the nearest one. Of a process that was killed
    /// it is only known when it began. One whose beginning was lost counts too.
    fn end_wait(&self, event: &Event, uid: u32) -> rusqlite::Result<()> {
        let seconds = event.value.cast_signed();
        let began = self.now - seconds;
        let mut open = self.database.prepare_cached(
            "SELECT rowid, uid FROM waits WHERE ended IS NULL AND boot = ?1 AND device = ?2
             AND (uid = ?3 OR abs(began - ?4) <= 1)
             ORDER BY abs(began - ?4) > 1, uid != ?3, abs(began - ?4) LIMIT 1",
        )?;
        let open: Option<(i64, u32)> = open
            .query_row(params![self.boot, self.device, uid, began], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let mut put = self.database.prepare_cached(
            "INSERT OR REPLACE INTO waits (rowid, boot, began, ended, uid, device, seconds, served)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?;
        put.execute(params![
            open.map(|(row, _)| row),
            self.boot,
            began,
            self.now,
            open.map_or(uid, |(_, uid)| uid),
            self.device,
            seconds,
            event.kind == EventKind::Served,
        ])
        .map(drop)
    }

    fn note_busy(&self, event: &Event, uid: u32) -> rusqlite::Result<()> {
        let mut insert = self
            .database
            .prepare_cached("INSERT INTO busy (boot, at, uid, device, seconds) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        insert
            .execute(params![
                self.boot,
                self.now,
                uid,
                self.device,
                event.value.cast_signed()
            ])
            .map(drop)
    }

    fn note_outage(&self, is_out: bool) -> rusqlite::Result<()> {
        let end = "UPDATE outages SET ended = ?3 WHERE boot = ?1 AND device = ?2 AND ended IS NULL";
        self.database.execute(end, [self.boot, self.device, self.now])?;
        if is_out {
            let begin = "INSERT INTO outages (boot, device, began) VALUES (?1, ?2, ?3)";
            self.database.execute(begin, [self.boot, self.device, self.now])?;
        }
        Ok(())
    }
}
