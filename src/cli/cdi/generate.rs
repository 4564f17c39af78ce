//! `tranche cdi generate`: from a host to a specification.
//!
//! The options of `nvidia-ctk cdi generate`, with their other names and environment variables, mean the same here, so that
//! a script only changes the program's name; a list may be one value with commas, as there. One difference is meant: the kind of a mode other than `nvml` is that which
//! NVIDIA's runtime asks for (`nvidia.com/gds`), where NVIDIA's command line says `nvidia.com/gpu` for all.

use super::super::look::{self, LookArgs};
use super::super::out;
use super::super::place::{ConfigArgs, HostArgs, StateArgs};
use super::super::sharing;
use crate::cdi::encode::{Format, encode, file_of};
use crate::cdi::{LeftOut, Spec, build, write};
use crate::derive::{
    self, Derived, DeviceId, HookOptions, HookPart, Mode, NameStrategy, Options, capabilities_from_text,
};
use crate::error::{Error, Result};
use crate::types::{CdiKind, CdiVersion, HostPath};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    csv: CsvArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The file")]
struct FileArgs {
    /// The file to write; .yaml or .json is added where it has neither [default: stdout]
    // Not a path to clap, which refuses an empty one: it means stdout.
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH")]
    output: Option<OsString>,
    /// yaml or json [default: by the name of the file, else yaml]
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT")]
    format: Option<Format>,
    /// Write for engines that know no newer CDI than this (0.5 for podman 4.3); what needs more is left out
    #[arg(long, value_name = "VERSION", env = "TRANCHE_CDI_VERSION")]
    cdi_version: Option<CdiVersion>,
    /// Vendor of the devices [default: nvidia.com; management.nvidia.com for management]
    #[arg(long, alias = "cdi-vendor", env = "NVIDIA_CTK_CDI_GENERATE_VENDOR")]
    vendor: Option<String>,
    /// Class of the devices [default: gpu; for other modes the mode's own]
    #[arg(long, alias = "cdi-class", env = "NVIDIA_CTK_CDI_GENERATE_CLASS")]
    class: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What goes into it")]
struct WhatArgs {
    /// auto, nvml, management, gds, mofed, gdrcopy, nvswitch or imex
    #[arg(
        long,
        alias = "discovery-mode",
        default_value = "auto",
        env = "NVIDIA_CTK_CDI_GENERATE_MODE"
    )]
    mode: Mode,
    /// A device: 0, 0:1, GPU-…, MIG-…, all or none; may be repeated [default: all]
    #[arg(long = "device-id", value_name = "ID", value_delimiter = ',', aliases = ["device-ids", "device", "devices"], env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS")]
    device_ids: Vec<DeviceId>,
    /// How devices are named: index, uuid or type-index; may be repeated [default: index and uuid]
    #[arg(
        long = "device-name-strategy",
        value_delimiter = ',',
        value_name = "STRATEGY",
        env = "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES"
    )]
    device_name_strategies: Vec<NameStrategy>,
    /// Write no device `all`
    #[arg(long, env = "NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE", value_parser = clap::builder::BoolishValueParser::new(), num_args = 0..=1, default_missing_value = "true", default_value = "false", hide_default_value = true, require_equals = true, action = clap::ArgAction::Set)]
    no_all_device: bool,
    /// Which of the driver's files: all, or some of compute, utility, graphics, video, display, ngx, compat32
    #[arg(long, value_name = "LIST", default_value = "all")]
    driver_capabilities: String,
    /// A switch of NVIDIA's tool; those that mean something here are obeyed
    #[arg(
        long = "feature-flag",
        value_delimiter = ',',
        value_name = "FLAG",
        alias = "feature-flags",
        env = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS"
    )]
    feature_flags: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What an engine runs at each start")]
struct HookArgs {
    /// Write a specification that needs no program at run time; links become mounts, and a loader finds the libraries
    /// only in directories that it knows by itself
    #[arg(long, conflicts_with_all = ["hook_path", "enable_hooks", "disable_hooks"])]
    no_hooks: bool,
    /// The program [default: tranche-oci beside this program, else /usr/bin/tranche-oci]; for nvidia-cdi-hook or
    /// nvidia-ctk NVIDIA's own hooks are written
    #[arg(
        long,
        value_name = "FILE",
        visible_alias = "nvidia-cdi-hook-path",
        alias = "nvidia-ctk-path",
        env = "NVIDIA_CTK_CDI_HOOK_PATH"
    )]
    hook_path: Option<HostPath>,
    /// A part that the hook leaves out (create-symlinks, update-ldcache, enable-cuda-compat, …), or all
    #[arg(
        long = "disable-hook",
        value_delimiter = ',',
        value_name = "NAME",
        alias = "disable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS"
    )]
    disable_hooks: Vec<String>,
    /// A part that the hook does in spite of --disable-hook
    #[arg(
        long = "enable-hook",
        value_delimiter = ',',
        value_name = "NAME",
        alias = "enable-hooks",
        env = "NVIDIA_CTK_CDI_GENERATE_ENABLED_HOOKS"
    )]
    enable_hooks: Vec<HookPart>,
    /// The host's ldconfig, for NVIDIA's hook; ours needs none
    #[arg(long, value_name = "FILE", env = "NVIDIA_CTK_CDI_GENERATE_LDCONFIG_PATH")]
    ldconfig_path: Option<HostPath>,
}

/// Options of Tegra, read so that a script that gives them for other machines works.
#[derive(Debug, clap::Args)]
struct CsvArgs {
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

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    with_nvidia_s_environment(&mut args)?;
    let mut options = options(&args)?;
    let inventory = look::inventory(&args.host, &args.look)?;
    if matches!(options.mode, Mode::Auto | Mode::Nvml) {
        options.sharing = sharing::of(&inventory, &args.config, &args.state)?;
    }
    let derived = derive::derive(&inventory, &options)?;
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let output = PathBuf::from(std::mem::take(&mut args.file.output).unwrap_or_default());
    let derived_kind = derived.kind.clone();
    let by_kind = derived.by_kind();
    if output.as_os_str().is_empty() {
        let by_coherence = |kind: &CdiKind| coherence(&derived_kind, kind).is_some();
        if let Some(renamed) = by_kind.iter().skip(1).find(|d| !by_coherence(&d.kind)) {
            let what = format!("shares of {} need a specification of their own", renamed.kind);
            return Err(Error::usage("stdout", what).hint("give --output FILE: each kind gets a file beside it"));
        }
        for derived in &by_kind {
            let (spec, comments) = specification(derived, &args.file)?;
            let format = args.file.format.unwrap_or(Format::Yaml);
            out::result(&encode(&spec, format, &comments)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let by_name = Format::of_path(&output);
    let format = args.file.format.or(by_name).unwrap_or(Format::Yaml);
    let (path, real) = file_of(&output, format);
    if real != format {
        let (name, wanted) = (path.display(), format.extension());
        out::note(format_args!(
            "{name}: its name says {}, not {wanted}: that is what is written",
            real.extension()
        ));
    }
    // All are made before the first is written: a failure leaves the files of before, not half of each.
    let mut files = Vec::new();
    for (number, derived) in by_kind.iter().enumerate() {
        let (spec, comments) = specification(derived, &args.file).map_err(|error| match number {
            0 => error,
            _ if coherence(&derived_kind, &derived.kind).is_some() => {
                error.hint("leave enable-coherent-annotations out, or write for engines with CDI 0.6")
            }
            _ => error.hint("leave rename and renameByDefault out of the policy, or write for engines with CDI 0.6"),
        })?;
        let path = if number == 0 {
            path.clone()
        } else {
            beside(&path, &derived_kind, &derived.kind)
        };
        files.push((path, encode(&spec, real, &comments)?, spec));
    }
    if let Some(sharing) = &options.sharing
        && args.host.root.is_none()
        && args.host.inventory.is_none()
    {
        sharing::make_pipe_directories(sharing)?;
    }
    for (path, text, spec) in &files {
        write::write(path, text)?;
        let (name, devices) = (path.display(), spec.devices.len());
        out::note(format_args!(
            "{name}: {devices} devices of {}, CDI {}",
            spec.kind, spec.version
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The specification of one kind, and the comments at its head.
fn specification(derived: &Derived, file: &FileArgs) -> Result<(Spec, Vec<String>)> {
    let (spec, left_out) = build(derived, file.cdi_version)?;
    let left_out = LeftOut::comments(&left_out);
    for line in &left_out {
        out::note(line);
    }
    let mut comments = vec![format!("Made by tranche {}", env!("CARGO_PKG_VERSION"))];
    comments.extend(left_out);
    Ok((spec, comments))
}

/// The file for another kind, beside that of the first: `nvidia.yaml` and `nvidia-gpu.shared.yaml`, or, as NVIDIA's tool
/// names it, `nvidia.coherent.yaml`.
fn beside(path: &Path, first: &CdiKind, kind: &CdiKind) -> PathBuf {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    path.with_file_name(match coherence(first, kind) {
        Some(word) => format!("{stem}.{word}.{extension}"),
        None => format!("{stem}-{}.{extension}", kind.class()),
    })
}

/// What `kind` says of its devices' memory, if it is the first's with that word at its end.
fn coherence<'a>(first: &CdiKind, kind: &'a CdiKind) -> Option<&'a str> {
    let word = kind.class().strip_prefix(first.class())?.strip_prefix('.')?;
    matches!(word, "coherent" | "noncoherent").then_some(word)
}

fn options(args: &Args) -> Result<Options> {
    let mut options = Options {
        mode: args.what.mode,
        vendor: args.file.vendor.clone(),
        class: args.file.class.clone(),
        devices: args.what.device_ids.clone(),
        all_device: !args.what.no_all_device,
        hook: hook(&args.hooks)?,
        capabilities: capabilities_from_text(&args.what.driver_capabilities)?,
        ..Options::default()
    };
    if !args.what.device_name_strategies.is_empty() {
        options.names.clone_from(&args.what.device_name_strategies);
    }
    for flag in &args.what.feature_flags {
        match flag.as_str() {
            "no-additional-gids-for-device-nodes" => options.additional_gids = false,
            "disable-ipc-discoverer" => options.sockets = false,
            "enable-coherent-annotations" => options.split_by_coherence = true,
            // About parts of NVIDIA's tool that do not exist here.
            "disable-nvsandboxutils" | "disable-nvsandbox-utils" | "disable-multiple-csv-devices" => {}
            other => out::note(format_args!("feature flag {other}: means nothing here, ignored")),
        }
    }
    Ok(options)
}

fn hook(args: &HookArgs) -> Result<Option<HookOptions>> {
    if args.no_hooks {
        return Ok(None);
    }
    let mut disabled = BTreeSet::new();
    for name in &args.disable_hooks {
        if name == "all" {
            disabled.extend(HookPart::ALL.iter().map(|(part, _)| *part));
        } else {
            disabled.insert(name.parse()?);
        }
    }
    disabled.retain(|part| !args.enable_hooks.contains(part));
    let mut hook = match &args.hook_path {
        Some(path) => HookOptions::at(path.clone()),
        None => hook_beside_us().map_or_else(HookOptions::default, HookOptions::at),
    };
    hook.disabled = disabled;
    hook.ldconfig.clone_from(&args.ldconfig_path);
    Ok(Some(hook))
}

/// The `tranche-oci` that came with this program: in a build, or where somebody unpacked the two.
pub(in crate::cli) fn hook_beside_us() -> Option<HostPath> {
    let path = std::env::current_exe().ok()?.with_file_name("tranche-oci");
    path.is_file().then(|| HostPath::new(&path).ok()).flatten()
}

/// Takes for the places what NVIDIA's tool takes, where nobody says otherwise.
fn with_nvidia_s_environment(args: &mut Args) -> Result<()> {
    let said = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let host = &mut args.host;
    if host.inventory.is_none() && host.root.is_none() {
        if host.driver_root.is_none() {
            host.driver_root = said("NVIDIA_CTK_DRIVER_ROOT").map(PathBuf::from);
        }
        if host.dev_root.is_none() {
            host.dev_root = said("NVIDIA_CTK_DEV_ROOT").map(PathBuf::from);
        }
    }
    for (name, paths) in [
        (
            "NVIDIA_CTK_CDI_GENERATE_LIBRARY_SEARCH_PATHS",
            &mut args.look.library_search_paths,
        ),
        (
            "NVIDIA_CTK_CDI_GENERATE_CONFIG_SEARCH_PATHS",
            &mut args.look.config_search_paths,
        ),
    ] {
        if let Some(list) = said(name)
            && paths.is_empty()
        {
            for dir in super::between_commas(&list) {
                paths.push(HostPath::new(dir)?);
            }
        }
    }
    Ok(())
}
