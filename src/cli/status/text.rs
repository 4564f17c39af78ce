//! The page of `tranche status` for people.

use crate::table::Table;
use tranche_bench::kept::MeasuredHere;
use tranche_core::ledger::utc;
use tranche_core::text::{shown, some};
use tranche_inspect::observed::{DaemonRow, DeviceUsage, OutageRow, Status, WaiterRow};
use tranche_state::held::user_wait::UserWait;
use tranche_state::held::{or_dash, span};

/// The whole page. `now` is in seconds since 1970. With `all_messages`, it has those about containers that are gone.
pub(super) fn of(status: &Status<'_>, sees_ledger: bool, now: u64, all_messages: bool) -> String {
    let mut text = super::messages::last_failure(&status.messages, now);
    if let Some(written) = status.written {
        let age = span(now.saturating_sub(written));
        text.push_str(&format!(
            "written by the broker {age} ago; who holds what is shown to root\n\n"
        ));
    }
    if !status.devices.is_empty() {
        let mut table = Table::with_header(&["DEVICE", "HELD", "FREE"]);
        for device in status.devices {
            table.row([device.device.clone(), device.held_text(), device.free_text()]);
        }
        text.push_str(&table.text());
        text.push('\n');
    }
    out_of_service(&mut text, status.out_of_service);
    claims(&mut text, status, sees_ledger);
    if let Some(gpus) = status.gpus {
        usage(&mut text, gpus);
    }
    waiters(&mut text, status.waiters, now);
    user_waits(&mut text, status.user_waits);
    daemons(&mut text, status.daemons, now);
    let not_held: Vec<String> = status.not_held.iter().filter_map(MeasuredHere::not_held).collect();
    text.extend(not_held.iter().map(|line| format!("\n{}\n", shown(line))));
    if !status.deviations.is_empty() {
        text.push_str("\nnot as expected:\n");
    }
    for one in status.deviations {
        text.push_str(&format!("  {}\n", shown(&one.line())));
    }
    text.push_str(&super::messages::text(&status.messages, all_messages));
    text
}

fn out_of_service(text: &mut String, outages: &[OutageRow]) {
    if outages.is_empty() {
        return;
    }
    let mut table = Table::with_header(&["OUT OF SERVICE", "FROM", "REASON"]);
    for outage in outages {
        let reason = or_dash(outage.reason.as_ref().map(|reason| shown(reason).into_owned()));
        table.row([outage.device.clone(), utc(outage.from), reason]);
    }
    text.push_str(&table.text());
    text.push('\n');
}

fn claims(text: &mut String, status: &Status<'_>, sees_ledger: bool) {
    let with_usage = status.gpus.is_some_and(|gpus| !gpus.is_empty());
    let used = ["MEMORY", "BUSY"];
    let used = if with_usage { &used[..] } else { &[] };
    if !status.claims.is_empty() {
        let header = [&["NAME", "SHARES", "HOLDER", "STATE", "UID", "SINCE"][..], used].concat();
        let mut table = Table::with_header(&header);
        for claim in status.claims {
            let mut row = vec![
                claim.cdi.clone(),
                claim.shares(),
                claim.holder(),
                claim.state_words(),
                claim.uid.to_string(),
                utc(claim.since),
            ];
            if with_usage {
                let usage = claim.usage.as_ref();
                let memory = usage.and_then(|usage| usage.memory_mib);
                let busy = usage.and_then(|usage| usage.busy_percent);
                row.push(or_dash(memory.map(|mib| format!("{mib} MiB"))));
                row.push(or_dash(busy.map(|percent| format!("{percent}%"))));
            }
            table.row(row);
        }
        text.push_str(&table.text());
    } else if !sees_ledger && status.written.is_some() {
        // The devices above say what is held.
    } else if status.problems.is_empty() || status.is_ledger_readable {
        text.push_str("no share is held\n");
    } else if sees_ledger {
        text.push_str("the ledger could not be read completely; the part that could be read records no claim\n");
    }
}

fn usage(text: &mut String, gpus: &[DeviceUsage]) {
    if gpus.is_empty() {
        return;
    }
    let mut table = Table::with_header(&["DEVICE", "MEMORY USED", "BUSY", "PROCESSES", "COMPUTE MODE"]);
    for gpu in gpus {
        table.row([
            gpu.device.clone(),
            or_dash(gpu.memory()),
            or_dash(gpu.busy_percent.map(|percent| format!("{percent}%"))),
            or_dash(gpu.processes),
            or_dash(gpu.mode()),
        ]);
    }
    text.push('\n');
    text.push_str(&table.text());
    for gpu in gpus.iter().filter(|gpu| gpu.uses_system_memory) {
        let line = format!(
            "{}: has no memory of its own; a share of its memory is one of RAM",
            gpu.device
        );
        text.push_str(&format!("{line}\n"));
    }
    for gpu in gpus.iter().filter(|gpu| gpu.hides_mps_clients) {
        let line = format!(
            "{}: this driver reports the memory of MPS clients as that of their server",
            gpu.device
        );
        text.push_str(&format!("{line}\n"));
    }
}

fn waiters(text: &mut String, waiters: &[WaiterRow], now: u64) {
    if waiters.is_empty() {
        return;
    }
    let mut table = Table::with_header(&["WAITS FOR", "FOR", "PROCESS"]);
    for waiter in waiters {
        let wants = waiter.wants.iter().flatten().map(|wanted| match &wanted.shares[..] {
            [] => wanted.device.clone(),
            shares => format!("{} ({})", wanted.device, some(shares)),
        });
        let wants: Vec<String> = wants.collect();
        let process = match &waiter.command {
            Some(command) => format!("{} ({command})", waiter.pid),
            None => waiter.pid.to_string(),
        };
        let wants = if wants.is_empty() {
            "unknown".to_owned()
        } else {
            some(&wants)
        };
        table.row([wants, span(now.saturating_sub(waiter.since)), process]);
    }
    text.push_str("\nin the order in which they are served:\n");
    text.push_str(&table.text());
}

fn user_waits(text: &mut String, waits: &[UserWait]) {
    if waits.is_empty() {
        return;
    }
    let mut table = Table::with_header(&["USER WAITS FOR", "FOR", "USER", "AHEAD"]);
    for wait in waits {
        let ahead = wait.ahead.to_string();
        table.row([
            shown(&wait.what).to_string(),
            span(wait.waited),
            wait.uid.to_string(),
            ahead,
        ]);
    }
    text.push_str("\nusers, who are served after root, in the order as it is now:\n");
    text.push_str(&table.text());
}

fn daemons(text: &mut String, daemons: &[DaemonRow], now: u64) {
    if daemons.is_empty() {
        return;
    }
    let mut table = Table::with_header(&["MPS DAEMON OF", "STATE", "FOR", "RESTARTS"]);
    for daemon in daemons {
        table.row([
            daemon.device.clone(),
            daemon.state().to_owned(),
            or_dash(daemon.since.map(|since| span(now.saturating_sub(since)))),
            daemon.restarts.to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&table.text());
}
