//! What is held and waited for now.

use crate::viewer::{Names, Viewer};
use rusqlite::{Connection, params};
use std::collections::HashMap;
use tranche_core::ledger::events::this_boot;

/// The most lines: those that began last.
const MOST: i64 = 5000;

/// Something that is held or waited for.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) device: String,
    /// Empty for a wait.
    pub(crate) part: String,
    /// Who; `None` where the viewer may not know it.
    pub(crate) who: Option<String>,
    /// Whether a container or a process uses it.
    pub(crate) is_used: bool,
    /// In seconds since 1970.
    pub(crate) since: u64,
}

/// What is held and waited for now.
#[derive(Debug)]
pub(crate) struct Now {
    pub(crate) holds: Vec<Entry>,
    pub(crate) waits: Vec<Entry>,
    /// The devices that are out of service.
    pub(crate) out: Vec<String>,
}

/// What `viewer` may see of it.
pub(crate) fn now(database: &Connection, viewer: &Viewer) -> rusqlite::Result<Now> {
    let names = Names::default();
    let mut users: HashMap<u32, Option<String>> = HashMap::new();
    let mut entries = |question: &str| -> rusqlite::Result<Vec<Entry>> {
        let mut found = database.prepare_cached(question)?;
        let mut rows = found.query(params![this_boot(), MOST])?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            let (uid, what): (u32, String) = (row.get(2)?, row.get(3)?);
            let name = users.entry(uid).or_insert_with(|| viewer.name_of(uid, &names)).clone();
            // What others run is not shown.
            let what = if viewer.sees(uid) { what } else { String::new() };
            entries.push(Entry {
                device: row.get(0)?,
                part: row.get(1)?,
                who: name.map(|name| format!("{name}{what}")),
                is_used: row.get(4)?,
                since: row.get::<_, i64>(5)?.max(0).cast_unsigned(),
            });
        }
        Ok(entries)
    };
    let holds = entries(
        "SELECT d.name, h.part, h.uid, ': ' || h.who, h.used, h.began + b.zero
         FROM holds h JOIN devices d ON d.id = h.device JOIN boots b ON b.id = h.boot
         WHERE b.boot = ?1 AND h.ended IS NULL ORDER BY d.name, h.began LIMIT ?2",
    )?;
    let waits = entries(
        "SELECT d.name, '', w.uid, '', 0, w.began + b.zero
         FROM waits w JOIN devices d ON d.id = w.device JOIN boots b ON b.id = w.boot
         WHERE b.boot = ?1 AND w.ended IS NULL ORDER BY w.began LIMIT ?2",
    )?;
    let mut out = database.prepare_cached(
        "SELECT DISTINCT d.name FROM outages o JOIN devices d ON d.id = o.device WHERE o.ended IS NULL ORDER BY 1",
    )?;
    let out = out.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(Now { holds, waits, out })
}
