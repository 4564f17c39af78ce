//! `tranche-kubelet`: see `--help`, and docs/explanation/architecture.md.

use std::io::Write;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tranche_core::error::{Context, Result, line};
use tranche_kubelet::args::{self, Asked};
use tranche_kubelet::{Settings, log, ready, run};

/// The version that a build has set, or that of the package.
const VERSION: &str = match option_env!("TRANCHE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Calls to the broker at one time: the plugin makes one after the other, and the driver prepares a claim meanwhile.
const BLOCKING_THREADS: usize = 4;

fn main() -> ExitCode {
    log::start();
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{}", line(&e));
            ExitCode::from(e.kind().exit_code())
        }
    }
}

fn start() -> Result<()> {
    let settings = match args::parse(std::env::args_os().skip(1))? {
        Asked::Help => return print(args::HELP),
        Asked::Version => return print(&format!("tranche-kubelet {VERSION}\n")),
        Asked::Ready(file) => return ready::check(&file),
        Asked::Serve(settings) => *settings,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .about("tranche-kubelet", "cannot start")?;
    let served = runtime.block_on(serve(settings));
    // A call to the broker may still wait, for seconds.
    runtime.shutdown_background();
    served
}

async fn serve(settings: Settings) -> Result<()> {
    let about = "the handler of signals";
    let mut terminate = signal(SignalKind::terminate()).about(about, "cannot be set")?;
    let mut interrupt = signal(SignalKind::interrupt()).about(about, "cannot be set")?;
    run(settings, async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
    .await
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .about("standard output", "cannot be written")
}
