//! The options that `nvidia-ctk` takes before its command, for scripts that only change the program's name.

use anyhow::Result;
use clap::builder::BoolishValueParser;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;
use tranche_core::error::Error;

/// Options of the program as a whole.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct GlobalArgs {
    /// Print errors only
    #[arg(short, long, global = true, display_order = 901, env = "NVIDIA_CTK_QUIET", hide_env = true, value_parser = BoolishValueParser::new())]
    quiet: bool,
    /// Same as -vv
    #[arg(short, long, global = true, display_order = 902, env = "NVIDIA_CTK_DEBUG", hide_env = true, value_parser = BoolishValueParser::new())]
    debug: bool,
    /// NVIDIA's configuration file: accepted before the command, and not read
    // An id of its own: verbs have an option of this name, which is the policy.
    #[arg(
        id = "config_of_nvidia",
        short = 'c',
        long = "config",
        value_name = "FILE",
        hide = true
    )]
    config: Option<PathBuf>,
}

impl GlobalArgs {
    /// How much is said on stderr, with `-v` given that many times. Quiet wins, as it does in NVIDIA's tool.
    pub(super) fn level(&self, verbose: u8) -> LevelFilter {
        match (self.quiet, self.debug, verbose) {
            (true, _, _) => LevelFilter::ERROR,
            (_, true, _) | (_, _, 2..) => LevelFilter::DEBUG,
            (_, _, 1) => LevelFilter::INFO,
            _ => LevelFilter::WARN,
        }
    }

    /// Warns that NVIDIA's configuration is not read. The one key in it that concerns generation is the driver's root.
    ///
    /// # Errors
    /// A file that is not named like NVIDIA's: it is a policy, which has its place after the command, and a policy that
    /// is not read would be taken for one that is in force.
    pub(super) fn look_at_config(&self) -> Result<()> {
        let Some(file) = &self.config else { return Ok(()) };
        let shown = file.display();
        if file.extension().is_some_and(|extension| extension == "toml") {
            tracing::warn!(
                "{shown}: NVIDIA's configuration is not read; if it sets nvidia-container-cli.root, give --driver-root"
            );
            return Ok(());
        }
        Err(Error::usage(
            format!("--config {shown}"),
            "before the command, this option means NVIDIA's config.toml, and this file is not called *.toml",
        )
        .hint("give a policy after the command: tranche cdi generate --config FILE")
        .into())
    }
}
