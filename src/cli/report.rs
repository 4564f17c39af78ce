//! `tranche report`: for how long devices were held, used and waited for.

use super::out;
use super::past::PastArgs;
use super::table::Table;
use anyhow::{Result, bail};
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_protocol::{HistoryAnswer, HistoryRequest, Report, ReportBy, ReportRow};

/// Show for how many hours users, groups or devices held, used and waited for devices
///
/// Users see their own row, and that of all others together. Two parts of one device that are held at the same time
/// count once. Busy time is known where the policy limits idle time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a row for each: user, group (that of the account) or device
    #[arg(long, value_name = "SUBJECT", default_value = "user")]
    by: ReportBy,
    /// Print comma-separated values, in seconds
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Print JSON; docs/reference/history.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    past: PastArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let seconds = args.past.seconds();
    let HistoryAnswer::Report(report) = args.past.ask(&HistoryRequest::Report { by: args.by, seconds })? else {
        bail!(Error::failed("tranche-web", "has answered another question"));
    };
    match (args.json, args.csv) {
        (true, _) => out::json(&report)?,
        (_, true) => out::document(&csv(&report))?,
        _ => out::result(&text(&report, args.by))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What stands in the place of a name in the row of all others.
const OTHERS: &str = "all others";

fn name(row: &ReportRow) -> &str {
    row.name.as_deref().unwrap_or(OTHERS)
}

fn text(report: &Report, by: ReportBy) -> String {
    let hours = |seconds: u64| format!("{}.{} h", seconds / 3600, seconds % 3600 / 360);
    let mut table = Table::with_header(&[&by.as_str().to_uppercase(), "HELD", "BUSY", "WAITED"]);
    for row in &report.rows {
        let busy = row.busy_seconds.map_or_else(|| "-".to_owned(), hours);
        table.row([
            name(row).to_owned(),
            hours(row.held_seconds),
            busy,
            hours(row.waited_seconds),
        ]);
    }
    table.text()
}

fn csv(report: &Report) -> String {
    let mut text = String::from("name,held_seconds,busy_seconds,waited_seconds\n");
    for row in &report.rows {
        // RFC 4180: a quotation mark is doubled. A name that a spreadsheet would compute gets an apostrophe.
        let name = name(row).replace('"', "\"\"");
        let plain = if name.starts_with(['=', '+', '-', '@']) {
            "'"
        } else {
            ""
        };
        let busy = row.busy_seconds.map(|seconds| seconds.to_string()).unwrap_or_default();
        text.push_str(&format!(
            "\"{plain}{name}\",{},{busy},{}\n",
            row.held_seconds, row.waited_seconds
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_text_and_csv() {
        let row = |name: Option<&str>, busy_seconds| ReportRow {
            name: name.map(str::to_owned),
            held_seconds: 5_400,
            busy_seconds,
            waited_seconds: 359,
        };
        let rows = vec![row(Some("=ann\",\u{1b}[31m"), Some(3_600)), row(None, None)];
        let report = Report { from: 0, to: 1, rows };
        let expected = "\"'=ann\"\",\u{1b}[31m\",5400,3600,359\n\"all others\",5400,,359\n";
        assert_eq!(csv(&report).split_once('\n').unwrap().1, expected);
        let text = text(&report, ReportBy::User);
        assert!(text.contains("1.5 h") && !text.contains('\u{1b}'), "{text}");
        assert!(text.starts_with("USER") && text.contains("all others"), "{text}");
    }
}
