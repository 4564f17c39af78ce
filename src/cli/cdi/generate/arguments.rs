//! The options of `tranche cdi generate`. [`super::nvidia`] adds the names that they have in NVIDIA's tool.

use super::nvidia::CsvArgs;
use crate::place::TmpfilesArgs;
use crate::sharing::SharingArgs;
use std::ffi::OsString;
use tranche_core::types::{CdiVersion, HostPath};
use tranche_plan::cdi::encode::Format;
use tranche_plan::derive::{DeviceChoice, Mode, NameStrategy};

/// The options of `tranche cdi generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    // First, because options without a heading of their own would get that of the options before them.
    #[command(flatten)]
    pub(super) at: SharingArgs,
    #[command(flatten)]
    pub(super) file: FileArgs,
    #[command(flatten)]
    pub(super) what: WhatArgs,
    #[command(flatten)]
    pub(super) hooks: HookArgs,
    #[command(flatten)]
    csv: CsvArgs,
    #[command(flatten)]
    pub(super) tmpfiles: TmpfilesArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The file")]
pub(super) struct FileArgs {
    /// The file to write; .yaml or .json is added to a name that has neither [default: stdout]
    // Not a path to clap, which refuses an empty one: it means stdout.
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<OsString>,
    /// Accept that the host could not be examined completely (NVML did not answer, a GPU is lost, libraries are
    /// missing), and write what was found, also over an existing file. Without this option such a file is kept, and
    /// the exit code is 1
    #[arg(long, env = "TRANCHE_DEGRADED")]
    pub(super) degraded: bool,
    /// yaml or json [default: as the file's name says, else yaml]
    #[arg(long)]
    pub(super) format: Option<Format>,
    /// The newest CDI version that the engine supports (0.5 for podman 4.3); content that needs a newer one is left
    /// out
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    pub(super) cdi_version: Option<CdiVersion>,
    /// The vendor of the devices [default: nvidia.com; management.nvidia.com in mode management]
    #[arg(long)]
    pub(super) vendor: Option<String>,
    /// The class of the devices [default: gpu, or the class of the mode]
    #[arg(long)]
    pub(super) class: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What goes into it")]
pub(super) struct WhatArgs {
    /// Which devices to write: auto or nvml (GPUs and MIG devices), management, gds, mofed, gdrcopy, nvswitch or imex
    #[arg(long, default_value = "auto")]
    pub(super) mode: Mode,
    /// Write only this device: 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0, all or none; may be repeated
    /// [default: all]
    #[arg(long = "device-id", value_name = "ID", value_delimiter = ',')]
    pub(super) device_ids: Vec<DeviceChoice>,
    /// How devices are named: index, uuid or type-index; may be repeated [default: index and uuid]
    #[arg(long = "device-name-strategy", value_delimiter = ',', value_name = "STRATEGY")]
    pub(super) device_name_strategies: Vec<NameStrategy>,
    /// Do not write the device `all`
    // NVIDIA's tool takes a value too, and its variable has one: true, false, 1, 0, yes, no.
    #[arg(
        long,
        value_name = "BOOL",
        action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value = "false",
        hide_default_value = true
    )]
    pub(super) no_all_device: bool,
    /// Include only the driver's files for these capabilities: all, or a list of compute, utility, graphics, video,
    /// display, ngx, compat32
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(super) driver_capabilities: String,
    /// A feature flag of nvidia-ctk; a flag that tranche does not know is ignored with a message. May be repeated
    #[arg(long = "feature-flag", value_delimiter = ',', value_name = "FLAG")]
    pub(super) feature_flags: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The hook that an engine runs at each start")]
pub(super) struct HookArgs {
    /// Write a specification without hooks: mounts replace links, and the image's loader finds the driver's libraries
    /// only in its default directories
    #[arg(long, conflicts_with_all = ["hook_path", "enable_hooks", "disable_hooks"])]
    pub(super) no_hooks: bool,
    /// The hook program [default: tranche-oci in the directory of this program, else /usr/bin/tranche-oci]. For a
    /// program called nvidia-cdi-hook or nvidia-ctk, NVIDIA's hooks are written. A name without a directory is
    /// searched in PATH
    #[arg(long, value_name = "FILE", visible_alias = "nvidia-cdi-hook-path")]
    pub(super) hook_path: Option<OsString>,
    /// Leave out this part of the hook's work: create-symlinks, update-ldcache, enable-cuda-compat, …, or all; may be
    /// repeated
    #[arg(long = "disable-hook", value_delimiter = ',', value_name = "NAME")]
    pub(super) disable_hooks: Vec<String>,
    /// Do this part of the hook's work in spite of --disable-hook; chmod is done only if it is named here
    #[arg(long = "enable-hook", value_delimiter = ',', value_name = "NAME")]
    pub(super) enable_hooks: Vec<String>,
    /// The host's ldconfig, for NVIDIA's hook; tranche's hook does not need it
    #[arg(long, value_name = "FILE")]
    pub(super) ldconfig_path: Option<HostPath>,
}
