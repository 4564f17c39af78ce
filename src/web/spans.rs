//! The times in which something was held, of all boots, on the clock of the wall.

use nix::time::{ClockId, clock_gettime};
use rusqlite::{Connection, params};
use tranche_core::ledger::events::this_boot;

/// A time in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Window {
    /// The last `seconds` before now.
    pub(crate) fn last(seconds: u64) -> Self {
        let to = tranche_core::ledger::clock().cast_signed();
        let from = to.saturating_sub_unsigned(seconds).max(0);
        Self { from, to }
    }
}

/// A boot that has a part in a window, whose bounds are in seconds since that boot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootWindow {
    pub(crate) boot: i64,
    /// When it was, in seconds since 1970.
    pub(crate) zero: i64,
    pub(crate) from: i64,
    /// What has no end in this boot is held until then.
    pub(crate) to: i64,
}

/// Seconds since boot.
pub(crate) fn uptime() -> i64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec())
}

/// The boots in `window`.
pub(crate) fn boots(database: &Connection, window: Window) -> rusqlite::Result<Vec<BootWindow>> {
    let mut boots = database.prepare_cached("SELECT id, boot, zero, last FROM boots")?;
    let this = this_boot();
    let uptime = uptime();
    let rows = boots.query_map([], |row| {
        let (id, name, zero, last): (_, String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        // What is open in this boot is held now, by the clock as it is set now.
        let (zero, last) = if name == this {
            (window.to - uptime, uptime)
        } else {
            (zero, last)
        };
        Ok(BootWindow {
            boot: id,
            zero,
            from: (window.from - zero).max(0),
            to: (window.to - zero).min(last),
        })
    })?;
    let here = rows.filter(|boot| boot.as_ref().map_or(true, |boot| boot.from < boot.to));
    here.collect()
}

/// Calls `each` with the user, the device, the beginning and the end of each time in which something was held, within
/// the window of `boot`, in seconds since 1970.
pub(crate) fn each_hold(
    database: &Connection,
    boot: BootWindow,
    mut each: impl FnMut(u32, i64, i64, i64),
) -> rusqlite::Result<()> {
    let BootWindow { boot, zero, from, to } = boot;
    let closed = "SELECT uid, device, began, ended FROM holds
                  WHERE boot = ?1 AND ended IS NOT NULL AND ended > ?2 AND began < ?3";
    let open = "SELECT uid, device, began, ?3 FROM holds WHERE boot = ?1 AND ended IS NULL AND ?2 < ?3 AND began < ?3";
    for question in [closed, open] {
        let mut found = database.prepare_cached(question)?;
        let mut rows = found.query(params![boot, from, to])?;
        while let Some(row) = rows.next()? {
            let (began, ended): (i64, i64) = (row.get(2)?, row.get(3)?);
            each(row.get(0)?, row.get(1)?, began.max(from) + zero, ended.min(to) + zero);
        }
    }
    Ok(())
}

/// How many seconds are in at least one of `spans`, each with its beginning and its end.
pub(crate) fn covered(mut spans: Vec<(i64, i64)>) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut until) = (0, i64::MIN);
    for (from, to) in spans {
        sum += (to - from.max(until)).max(0);
        until = until.max(to);
    }
    sum.cast_unsigned()
}
