//! The options of `tranche cdi generate`: those of `nvidia-ctk cdi generate`, with their other names and their environment
//! variables, and our own.

use crate::cdi::encode::Format;
use crate::cli::look::LookArgs;
use crate::cli::place::{ConfigArgs, HostArgs, StateArgs};
use crate::derive::{DeviceChoice, Mode, NameStrategy};
use crate::types::{CdiVersion, HostPath};
use std::ffi::OsString;
use std::path::PathBuf;

/// Everything that may be asked of `tranche cdi generate`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct Args {
    #[command(flatten)]
    pub(super) host: HostArgs,
    #[command(flatten)]
    pub(super) look: LookArgs,
    #[command(flatten)]
    pub(super) file: FileArgs,
    #[command(flatten)]
    pub(super) what: WhatArgs,
    #[command(flatten)]
    pub(super) hooks: HookArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    csv: CsvArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The file")]
pub(super) struct FileArgs {
    /// The file to write; .yaml or .json is added where it has neither [default: stdout]
    // Not a path to clap, which refuses an empty one: it means stdout.
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH")]
    pub(super) output: Option<OsString>,
    /// Write what was found, also over an older file, if the host was not examined completely (NVML did not answer, a GPU
    /// is lost, libraries are missing). Without this option the older file is kept, and the exit code is 1
    #[arg(long, env = "TRANCHE_DEGRADED")]
    pub(super) degraded: bool,
    /// yaml or json [default: by the name of the file, else yaml]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT")]
    pub(super) format: Option<Format>,
    /// Write for engines that know no newer CDI than this (0.5 for podman 4.3); what needs more is left out
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    pub(super) cdi_version: Option<CdiVersion>,
    /// Vendor of the devices [default: nvidia.com; management.nvidia.com for management]
    #[arg(long, alias = "cdi-vendor", env = "NVIDIA_CTK_CDI_GENERATE_VENDOR")]
    pub(super) vendor: Option<String>,
    /// Class of the devices [default: gpu; for other modes the mode's own]
    #[arg(long, alias = "cdi-class", env = "NVIDIA_CTK_CDI_GENERATE_CLASS")]
    pub(super) class: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What goes into it")]
pub(super) struct WhatArgs {
    /// auto, nvml, management, gds, mofed, gdrcopy, nvswitch or imex
    #[arg(
        long,
        alias = "discovery-mode",
        default_value = "auto",
        env = "NVIDIA_CTK_CDI_GENERATE_MODE"
    )]
    pub(super) mode: Mode,
    /// A device: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0, all or none; may be repeated [default: all]
    #[arg(long = "device-id", value_name = "ID", value_delimiter = ',', aliases = ["device-ids", "device", "devices"], env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS")]
    pub(super) device_ids: Vec<DeviceChoice>,
    /// How devices are named: index, uuid or type-index; may be repeated [default: index and uuid]
    #[arg(
        long = "device-name-strategy",
        value_delimiter = ',',
        value_name = "STRATEGY",
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES"
    )]
    pub(super) device_name_strategies: Vec<NameStrategy>,
    /// Write no device `all`
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false", hide_default_value = true, require_equals = true, action = clap::ArgAction::Set)]
    pub(super) no_all_device: bool,
    /// Which of the driver's files: all, or some of compute, utility, graphics, video, display, ngx, compat32
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(super) driver_capabilities: String,
    /// A switch of NVIDIA's tool; those that mean something here are obeyed
    #[arg(
        long = "feature-flag",
        value_delimiter = ',',
        value_name = "FLAG",
        alias = "feature-flags",
        env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"
    )]
    pub(super) feature_flags: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What an engine runs at each start")]
pub(super) struct HookArgs {
    /// Write a specification that needs no program at run time; links become mounts, and a loader finds the libraries
    /// only in directories that it knows by itself
    #[arg(long, conflicts_with_all = ["hook_path", "enable_hooks", "disable_hooks"])]
    pub(super) no_hooks: bool,
    /// The program [default: tranche-oci beside this program, else /usr/bin/tranche-oci]; for nvidia-cdi-hook or
    /// nvidia-ctk NVIDIA's own hooks are written. A bare name is looked up in PATH
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "nvidia-cdi-hook-path",
        alias = "nvidia-ctk-path",
        env = "NVIDIA_CTK_CDI_HOOK_PATH"
    )]
    pub(super) hook_path: Option<OsString>,
    /// A part that the hook leaves out (create-symlinks, update-ldcache, enable-cuda-compat, …), or all
    #[arg(
        long = "disable-hook",
        value_delimiter = ',',
        value_name = "NAME",
        alias = "disable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS"
    )]
    pub(super) disable_hooks: Vec<String>,
    /// A part that the hook does in spite of --disable-hook; chmod is done only if named here
    #[arg(
        long = "enable-hook",
        value_delimiter = ',',
        value_name = "NAME",
        alias = "enable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS"
    )]
    pub(super) enable_hooks: Vec<String>,
    /// The host's ldconfig, for NVIDIA's hook; tranche's hook needs none
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH")]
    pub(super) ldconfig_path: Option<HostPath>,
}

/// Options of Tegra, read so that a script that gives them for other machines works.
#[derive(Debug, clap::Args)]
pub(super) struct CsvArgs {
    #[arg(long = "csv.file", hide = true, env = "NVIDIA_CTK_CDI_GENERATE_CSV_FILES")]
    _files: Vec<PathBuf>,
    #[arg(
        long = "csv.ignore-pattern",
        hide = true,
        env = "NVIDIA_CTK_CDI_GENERATE_CSV_IGNORE_PATTERNS"
    )]
    _ignore_patterns: Vec<String>,
    #[arg(
        long = "csv.compat-container-root",
        hide = true,
        env = "NVIDIA_CTK_CDI_GENERATE_CSV_CONTAINER_COMPAT_ROOT"
    )]
    _compat_container_root: Option<PathBuf>,
}
