//! Who held what when.

use crate::spans::{BootWindow, Window, boots};
use crate::viewer::{Names, Viewer};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;
use tranche_protocol::{Lane, Span, Timeline};

/// The most spans of an answer: more cannot be told apart on a screen. The oldest are left out.
const MOST_SPANS: usize = 20_000;

/// The timeline of the last `seconds`, as `viewer` may see it: names of users and of what they run are left out of
/// others' spans.
///
/// # Errors
/// Returns the error of SQLite.
pub fn timeline(database: &Connection, seconds: u64, viewer: &Viewer) -> rusqlite::Result<Timeline> {
    let window = Window::last(seconds);
    let names = Names::default();
    let mut users: BTreeMap<u32, Option<String>> = BTreeMap::new();
    let mut lanes: BTreeMap<(String, String), Vec<Span>> = BTreeMap::new();
    for boot in boots(database, window)? {
        let mut held = database.prepare_cached(
            "SELECT d.name, h.part, h.began, h.ended, h.uid, h.who, h.used, h.limited
             FROM holds h JOIN devices d ON d.id = h.device
             WHERE h.boot = ?1 AND (h.ended IS NULL OR h.ended > ?2) AND h.began < ?3
             ORDER BY h.began DESC LIMIT ?4",
        )?;
        let mut rows = held.query(params![boot.boot, boot.from, boot.to, MOST_SPANS as i64])?;
        while let Some(row) = rows.next()? {
            let uid: u32 = row.get(4)?;
            let who: String = row.get(5)?;
            let user = users.entry(uid).or_insert_with(|| viewer.name_of(uid, &names)).clone();
            let who = match viewer.sees(uid) {
                true => user.map(|user| format!("{user}: {who}")),
                false => user,
            };
            let span = span(row, boot, who, row.get(6)?, row.get(7)?)?;
            lanes.entry((row.get(0)?, row.get(1)?)).or_default().push(span);
        }
        let mut out = database.prepare_cached(
            "SELECT d.name, '', o.began, o.ended FROM outages o JOIN devices d ON d.id = o.device
             WHERE o.boot = ?1 AND (o.ended IS NULL OR o.ended > ?2) AND o.began < ?3",
        )?;
        let mut rows = out.query(params![boot.boot, boot.from, boot.to])?;
        while let Some(row) = rows.next()? {
            let span = span(row, boot, Some("out of service".to_owned()), false, false)?;
            lanes.entry((row.get(0)?, String::new())).or_default().push(span);
        }
    }
    let lane = |((device, part), mut spans): ((String, String), Vec<Span>)| {
        spans.sort_by_key(|span| span.from);
        Lane { device, part, spans }
    };
    Ok(Timeline {
        from: window.from.cast_unsigned(),
        to: window.to.cast_unsigned(),
        lanes: lanes.into_iter().map(lane).collect(),
    })
}

/// The span of a row whose third and fourth columns are its beginning and its end.
fn span(
    row: &Row<'_>,
    boot: BootWindow,
    who: Option<String>,
    is_used: bool,
    is_limited: bool,
) -> rusqlite::Result<Span> {
    let (began, ended): (i64, Option<i64>) = (row.get(2)?, row.get(3)?);
    let since_1970 = |time: i64| (time + boot.zero).max(0).cast_unsigned();
    Ok(Span {
        from: since_1970(began.max(boot.from)),
        to: ended.map(|ended| since_1970(ended.min(boot.to))),
        who,
        is_used,
        is_limited,
    })
}
