//! The options of `tranche cdi refresh` and `tranche cdi watch`.

use super::super::generate;
use super::take_over::TakeOverArgs;
use crate::call::Program;
use crate::cli::engines::EngineArgs;
use crate::cli::look;
use crate::cli::pipe_directories::TmpfilesArgs;
use crate::cli::sharing::SharingArgs;
use crate::derive::HookOptions;
use crate::error::Error;
use crate::types::CdiVersion;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The options of `tranche cdi refresh`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    pub(super) how: RefreshArgs,
    #[command(flatten)]
    pub(super) take_over: TakeOverArgs,
    /// Do nothing if nothing has changed that the last refresh looked at: the driver, its files and nodes, the GPUs, the
    /// policy, specifications, engines. The driver's library is not asked then
    #[arg(long, help_heading = None)]
    pub(super) if_changed: bool,
    /// Say what would be written and removed, and change nothing
    #[arg(long, help_heading = None)]
    pub(super) dry_run: bool,
    /// Print JSON
    #[arg(long, help_heading = None)]
    pub(super) json: bool,
}

/// How specifications are refreshed, once or again and again.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::cli) struct RefreshArgs {
    // First, because options without a heading of their own would get that of the options before them.
    #[command(flatten)]
    pub(super) at: SharingArgs,
    /// The directory for the specifications; a plain one is called tranche.yaml, and one for renamed shares
    /// tranche-CLASS.yaml
    #[arg(long, value_name = "DIR", env = "TRANCHE_OUTPUT_DIR", default_value = "/var/run/cdi", help_heading = None)]
    pub(super) output_dir: PathBuf,
    /// NVIDIA's configuration file, whose settings of the runtime apply if the policy has no section `runtime`
    /// [default: /etc/nvidia-container-runtime/config.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "TRANCHE_NVIDIA_CONFIG", help_heading = None)]
    pub(super) nvidia_config: Option<PathBuf>,
    /// Accept that the host could not be examined completely (NVML did not answer, a GPU is lost, libraries are
    /// missing), and replace the files of the last refresh by what was found
    #[arg(long, env = "TRANCHE_DEGRADED", help_heading = None)]
    pub(super) degraded: bool,
    /// The newest CDI version that the engine supports (0.5 for podman 4.3); content that needs a newer one is left out
    /// [default: what the oldest installed engine reads, at least 0.5]
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION", help_heading = None)]
    pub(super) cdi_version: Option<CdiVersion>,
    #[command(flatten)]
    pub(super) engines: EngineArgs,
    /// The hook program [default: tranche-oci in the directory of this program, else /usr/bin/tranche-oci]
    #[arg(long, value_name = "FILE", help_heading = None)]
    pub(super) hook_path: Option<OsString>,
    /// Also make the links in /dev/char (or DIR), without which systemd takes the devices away from running containers at
    /// its next daemon-reload
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/dev/char",
        help_heading = None
    )]
    pub(super) char_links: Option<PathBuf>,
    /// Give up if another refresh runs for this long
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = look::seconds, help_heading = None)]
    pub(super) lock_timeout: Duration,
    #[command(flatten)]
    pub(super) tmpfiles: TmpfilesArgs,
}

/// Where the files of a refresh are, as absolute paths.
#[derive(Debug, Clone)]
pub(super) struct RefreshPlace {
    /// The directory of `host.json`.
    pub(super) state_dir: PathBuf,
    /// The directory of the specifications.
    pub(super) output_dir: PathBuf,
}

impl RefreshArgs {
    /// Where the files of a refresh are.
    ///
    /// # Errors
    /// Returns an error if a path has no absolute form.
    pub(super) fn place(&self) -> Result<RefreshPlace> {
        Ok(RefreshPlace {
            state_dir: PathBuf::from(self.at.state.dir()?.as_str()),
            output_dir: std::path::absolute(&self.output_dir)?,
        })
    }

    /// The policy file that counts, whether or not it exists.
    pub(super) fn policy_file(&self) -> PathBuf {
        let config = self.at.config.config.clone();
        config.unwrap_or_else(|| crate::policy::read::DEFAULT_FILE.into())
    }

    /// The hook of the specifications.
    ///
    /// # Errors
    /// Returns an error for NVIDIA's program, which cannot claim a share.
    pub(super) fn hook(&self) -> Result<HookOptions> {
        let Some(given) = &self.hook_path else {
            return Ok(generate::hook_beside_us().map_or_else(HookOptions::default, HookOptions::at));
        };
        let path = generate::program(given, self.at.host.is_here())?;
        if Program::at(&path) != Program::Tranche {
            let error = Error::usage(
                format!("--hook-path {path}"),
                "is NVIDIA's hook, which does not support shares",
            );
            bail!(error.hint("give the path of tranche-oci, or use tranche cdi generate"));
        }
        Ok(HookOptions::at(path))
    }

    /// The arguments by which the same refresh is repeated: all options in force but those of one time.
    ///
    /// # Errors
    /// Returns an error if a path has no absolute form.
    pub(super) fn recorded(&self) -> Result<Vec<String>> {
        let mut arguments = Vec::new();
        let mut path = |name: &str, path: Option<&Path>| -> Result<()> {
            if let Some(path) = path {
                arguments.push(format!("--{name}={}", std::path::absolute(path)?.display()));
            }
            Ok(())
        };
        path("output-dir", Some(&self.output_dir))?;
        path("state-dir", Some(&self.at.state.state_dir))?;
        path("config", self.at.config.config.as_deref())?;
        path("nvidia-config", self.nvidia_config.as_deref())?;
        path("tmpfiles-dir", self.tmpfiles.given())?;
        path("root", self.at.host.root.as_deref())?;
        for dir in &self.engines.engine_dirs {
            path("engine-dir", Some(dir))?;
        }
        path(
            "hook-path",
            self.hook_path.as_ref().map(Path::new).filter(|path| path.is_absolute()),
        )?;
        let bare_hook = self.hook_path.as_ref().filter(|path| !Path::new(path).is_absolute());
        let others = [
            ("hook-path", bare_hook.map(|name| name.to_string_lossy().into_owned())),
            ("config-key", self.at.config.config_key.clone()),
            ("cdi-version", self.cdi_version.map(|version| version.to_string())),
            ("inventory", self.at.host.inventory.clone()),
        ];
        let others = others
            .into_iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value?)));
        arguments.extend(others);
        arguments.extend(look::choices(&self.at.host, &self.at.look));
        if self.at.look.nvml_deadline != crate::host::SILENCE {
            arguments.push(format!("--nvml-deadline={}", self.at.look.nvml_deadline.as_secs_f64()));
        }
        Ok(arguments)
    }
}
