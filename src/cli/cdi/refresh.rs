//! `tranche cdi refresh` and `tranche cdi watch`: bring the specifications of this host and `host.json` up to date.

use crate::place::{EngineArgs, TmpfilesArgs};
use crate::sharing::SharingArgs;
use crate::{look, out};
use anyhow::{Result, bail};
use serde::Serialize;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tranche_core::error::{Error, Kind};
use tranche_core::types::{CdiVersion, WaitTime};
use tranche_specs::refresh::{self, Refresh, RefreshOptions};
use tranche_state::planning::PlanOptions;
use tranche_state::stop;

/// The options of `tranche cdi refresh`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    how: RefreshArgs,
    /// Do nothing if nothing has changed that the last refresh looked at: the driver, its files and nodes, the GPUs,
    /// the policy, specifications, engines. The driver's library is not asked then
    #[arg(long, help_heading = None)]
    if_changed: bool,
    /// Say what would be written and removed, and change nothing
    #[arg(long, help_heading = None)]
    dry_run: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    json: bool,
}

/// How specifications are refreshed, once or again and again.
#[derive(Debug, Clone, clap::Args)]
struct RefreshArgs {
    // First, because options without a heading of their own would get that of the options before them.
    #[command(flatten)]
    at: SharingArgs,
    /// The directory for the specifications; a plain one is called tranche.yaml, and one for renamed shares
    /// tranche-CLASS.yaml
    #[arg(long, value_name = "DIR", env = "TRANCHE_OUTPUT_DIR", default_value = refresh::OUTPUT_DIR, help_heading = None)]
    output_dir: PathBuf,
    /// NVIDIA's configuration file, whose settings of the runtime apply if the policy has no section `runtime`
    /// [default: /etc/nvidia-container-runtime/config.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "TRANCHE_NVIDIA_CONFIG", help_heading = None)]
    nvidia_config: Option<PathBuf>,
    /// Accept that the host could not be examined completely (NVML did not answer, a GPU is lost, libraries are
    /// missing), and replace the files of the last refresh by what was found
    #[arg(long, env = "TRANCHE_DEGRADED", help_heading = None)]
    degraded: bool,
    /// The newest CDI version that the engine supports (0.5 for podman 4.3); content that needs a newer one is left
    /// out [default: what the oldest installed engine reads, at least 0.5]
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION", help_heading = None)]
    cdi_version: Option<CdiVersion>,
    #[command(flatten)]
    engines: EngineArgs,
    /// The hook program [default: tranche-oci in the directory of this program, else /usr/bin/tranche-oci]
    #[arg(long, value_name = "FILE", help_heading = None)]
    hook_path: Option<OsString>,
    /// Also make the links in /dev/char (or DIR), without which systemd takes the devices away from running containers
    /// at its next daemon-reload
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/dev/char",
        help_heading = None
    )]
    char_links: Option<PathBuf>,
    /// Give up if another refresh runs for this long
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = look::seconds, help_heading = None)]
    lock_timeout: Duration,
    #[command(flatten)]
    tmpfiles: TmpfilesArgs,
}

impl RefreshArgs {
    /// The result must not depend on who runs the command: the runtime does, too.
    fn options(self) -> RefreshOptions {
        let at = self.at.options();
        RefreshOptions {
            at: PlanOptions {
                host: at.host.without_environment(),
                ..at
            },
            output_dir: self.output_dir,
            nvidia_config: self.nvidia_config,
            degraded: self.degraded,
            cdi_version: self.cdi_version,
            engines: self.engines.options(),
            hook_path: self.hook_path,
            char_links: self.char_links,
            lock_timeout: self.lock_timeout,
            tmpfiles_dir: self.tmpfiles.tmpfiles_dir,
        }
    }
}

/// The options of `tranche cdi watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    how: RefreshArgs,
    /// How often to look for changes in /proc and /sys, of which the kernel sends no event: the driver's module, GPUs
    /// that come or go
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = None)]
    interval: WaitTime,
}

/// How often `--if-changed` looks again, because something changed while it worked.
const MOST_LOOKS: usize = 3;

pub(super) fn run(args: Args) -> Result<ExitCode> {
    let options = args.how.options();
    let refresh = Refresh::begin(&options, args.dry_run)?;
    if !args.if_changed {
        return run_once(&refresh, args.json);
    }
    let mut code = ExitCode::SUCCESS;
    for look in 0..MOST_LOOKS {
        match refresh.change()? {
            None if look == 0 => unchanged(&refresh.host_file(), args.json)?,
            None => break,
            Some(why) => {
                tracing::info!("{why}");
                code = run_once(&refresh, args.json)?;
            }
        }
        if args.dry_run {
            break;
        }
    }
    Ok(code)
}

/// What `--if-changed` prints as JSON if there was nothing to do.
#[derive(Serialize)]
struct Unchanged<'a> {
    changed: bool,
    host_file: &'a Path,
}

fn unchanged(host_file: &Path, is_json: bool) -> Result<()> {
    match is_json {
        true => out::json(&Unchanged {
            changed: false,
            host_file,
        })?,
        false => out::note(format_args!("{}: nothing has changed", host_file.display())),
    }
    Ok(())
}

/// Refreshes, prints what was done, and returns the exit code.
fn run_once(refresh: &Refresh<'_>, is_json: bool) -> Result<ExitCode> {
    let refreshed = out::with_notes(|notes| refresh.run(notes))?;
    match is_json {
        true => out::json(&refreshed.report)?,
        false => out::note(refreshed.report.line()),
    }
    let code = look::exit_code(refreshed.missing());
    match refreshed.wrong_policy() {
        None => Ok(code),
        Some(wrong) => {
            out::note(format_args!("tranche: {wrong}"));
            Ok(out::code(Kind::Failed))
        }
    }
}

pub(super) fn watch(args: WatchArgs) -> Result<ExitCode> {
    let interval = args.interval.get();
    if interval.is_zero() {
        bail!(Error::usage("--interval", "is zero").hint("give a time such as 10s"));
    }
    let stop = stop::signals("watch")?;
    refresh::watch(args.how.options(), interval, stop.as_fd(), |line| out::note(line))?;
    Ok(ExitCode::SUCCESS)
}
