//! The options of `tranche runtime configure` and `unconfigure`, with the names of `nvidia-ctk runtime configure`.

use super::program;
use crate::out;
use crate::place::StateArgs;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tranche_core::error::Error;
use tranche_core::types::HostPath;
use tranche_inspect::engine_config::check::is_program;
use tranche_inspect::engine_config::{RuntimeName, Settings};
use tranche_plan::engines::Engine;

/// The directory with tranche's hook for podman, which no other program reads.
pub(super) const HOOKS_DIR: &str = "/usr/share/tranche/hooks.d";

/// Which engine, and which of its files.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineFileArgs {
    /// The engine: docker, containerd, crio or podman
    #[arg(long, value_name = "ENGINE", default_value = "docker")]
    pub(super) runtime: Engine,
    /// The engine's main configuration file [default: the file that the engine reads]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// The drop-in file for the runtime; an empty value changes the main file instead [default: 99-tranche in the
    /// directory of drop-ins beside the main file; not for docker, and not for containerd's configuration version
    /// 2]
    // Not a path to clap, which refuses an empty one.
    #[arg(long, value_name = "FILE")]
    pub(super) drop_in_config: Option<OsString>,
    /// Print the changes as a diff, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

impl EngineFileArgs {
    /// The files that `engine` reads by default.
    pub(super) fn of(engine: Engine, state_dir: &Path) -> Self {
        Self {
            runtime: engine,
            config: None,
            drop_in_config: None,
            dry_run: false,
            state: StateArgs {
                state_dir: state_dir.to_owned(),
            },
        }
    }
}

/// The options of `tranche runtime configure`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigureArgs {
    #[command(flatten)]
    pub(super) file: EngineFileArgs,
    /// The name of the runtime, as in docker run --runtime NAME [default: tranche]
    #[arg(long, value_name = "NAME", visible_alias = "nvidia-runtime-name")]
    runtime_name: Option<RuntimeName>,
    /// The program of the runtime, an absolute path [default: tranche-runtime in the directory of this program]
    #[arg(long, value_name = "FILE", visible_alias = "nvidia-runtime-path")]
    runtime_path: Option<PathBuf>,
    /// Use this runtime for containers that name no runtime
    #[arg(long, visible_alias = "nvidia-set-as-default")]
    set_as_default: bool,
    /// Whether to turn CDI on, for engines in which it can be off [default: true]
    #[arg(
        long = "cdi.enabled",
        aliases = ["cdi.enable", "enable-cdi"],
        value_name = "BOOL",
        value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    cdi: Option<bool>,
    /// Where the options of the present runtime are read: file, or command for what the engine prints
    #[arg(long, value_name = "SOURCE", default_value = "file", value_parser = ["file", "command"])]
    config_source: String,
    /// The engine's program, which checks the changed configuration [default: found in PATH]
    // NVIDIA's option can be empty, too.
    #[arg(long, value_name = "FILE")]
    executable_path: Option<OsString>,
    /// How the engine is configured: config-file, the only way that is supported
    #[arg(long, value_name = "MODE", default_value = "config-file", hide = true)]
    config_mode: String,
    #[arg(long, hide = true)]
    oci_hook_path: Option<PathBuf>,
    #[arg(long, hide = true)]
    nvidia_runtime_hook_path: Option<PathBuf>,
}

impl ConfigureArgs {
    /// The engine's program, if one is given.
    pub(super) fn program(&self) -> Option<&Path> {
        let path = self.executable_path.as_deref().filter(|path| !path.is_empty());
        path.map(Path::new)
    }

    /// Whether the present options come from what the engine prints.
    pub(super) fn asks_engine(&self) -> bool {
        self.config_source == "command" && matches!(self.file.runtime, Engine::Containerd | Engine::Crio)
    }

    /// Checks what can be wrong before any file is read.
    ///
    /// # Errors
    /// Returns a usage error for a mode or an option that the engine does not have.
    pub(super) fn check(&self, is_nvidia: bool) -> Result<()> {
        let engine = self.file.runtime;
        match &*self.config_mode {
            "config-file" | "config" | "" => {}
            "oci-hook" | "hook" => {
                let what = "is not supported: a prestart hook runs too late to set devices and environment";
                bail!(Error::usage(format!("--config-mode {}", self.config_mode), what).hint("leave the option out"));
            }
            other => out::note(format_args!("--config-mode {other}: unknown, ignored")),
        }
        if self.config_source == "command" && !self.asks_engine() {
            out::note(format_args!(
                "--config-source command: {engine} prints no configuration; its file is read"
            ));
        }
        if is_nvidia && engine == Engine::Crio && self.cdi == Some(true) {
            out::note("--cdi.enabled: ignored, because CDI is always on in CRI-O");
        }
        if let Some(program) = self.program()
            && !is_program(program)
        {
            let object = format!("--executable-path {}", program.display());
            bail!(Error::usage(object, "is not an executable file"));
        }
        Ok(())
    }

    /// What the configuration shall contain.
    ///
    /// # Errors
    /// Returns an error if the program of the runtime is missing.
    pub(super) fn settings(&self, is_nvidia: bool) -> Result<Settings> {
        let engine = self.file.runtime;
        let name = match &self.runtime_name {
            Some(name) => name.clone(),
            None => if is_nvidia { "nvidia" } else { "tranche" }.parse()?,
        };
        Ok(Settings {
            name,
            path: program::path(self.runtime_path.as_deref(), engine, is_nvidia)?,
            is_default: self.set_as_default,
            cdi: self.cdi.unwrap_or(!is_nvidia),
            annotations: (!is_nvidia).then_some("tranche.dev/"),
            hooks_dir: match engine {
                Engine::Podman => Some(HostPath::new(HOOKS_DIR)?),
                _ => None,
            },
        })
    }
}
