//! `nvidia-container-runtime-hook`, the prestart hook that docker before 29.2 adds for `--gpus`.
//!
//! A prestart hook runs too late to set an environment variable or a device in the container's configuration. If tranche's
//! runtime created the container, it has done the work and removed this hook. Otherwise, the hook executes NVIDIA's
//! `nvidia-container-cli`, which changes the container that was created already. The hook never succeeds without one of both.

use std::ffi::OsString;
use std::io::{Write, stdin, stdout};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::arguments::{Action, RuntimeArguments};
use super::edit::EditedFile;
use super::host::OwnerSettings;
use super::report::RuntimeReport;
use super::{low_level, state_dir};
use crate::error::{Context, Error, Kind, Result};
use crate::inject::CallingEngine;
use crate::inject::request::{self, ImexRequest, MigAccess, Request, WantedDevice};
use crate::oci::State;
use crate::policy::{CudaCompatMode, NvidiaCli, RuntimeMode, RuntimeSettings};
use crate::types::PROGRAM_VERSION;

/// What makes tranche do the work.
const CONFIGURE: &str = "run tranche runtime configure --runtime docker --set-as-default, and restart docker";

/// The program of NVIDIA's libnvidia-container.
const CLI: &str = "nvidia-container-cli";

/// Runs the hook and returns the exit code; does not return if `nvidia-container-cli` is executed.
pub(super) fn run(words: Vec<OsString>, lines: &mut dyn Write) -> u8 {
    let (state_dir, words) = state_dir(words);
    let mut words = words.iter().filter_map(|word| word.to_str());
    // NVIDIA's hook has these options. Its log and the file of its settings are not needed here.
    let command = loop {
        match words.next() {
            Some("-config" | "--config") => drop(words.next()),
            Some("-version" | "--version") => {
                // A reader that closed the pipe does not want the version.
                let _ = writeln!(stdout(), "tranche-runtime {PROGRAM_VERSION}");
                return 0;
            }
            Some(option) if option.starts_with('-') => {}
            command => break command,
        }
    };
    let name = format!("nvidia-container-runtime-hook {}", command.unwrap_or_default());
    let mut arguments = RuntimeArguments {
        name: Some(name.trim_end().to_owned()),
        ..RuntimeArguments::default()
    };
    let done = match command {
        Some("prestart") => State::read(stdin()).inspect(|state| {
            arguments.action = Action::End { id: state.id.clone() };
        }),
        Some("poststart" | "poststop") => return 0,
        Some(other) => Err(Error::usage(other, "unknown command of this hook").hint("expected prestart")),
        None => Err(Error::usage("command line", "a command is missing").hint("expected prestart")),
    };
    let report = RuntimeReport::new(&arguments, &state_dir, lines);
    match done.and_then(|state| prestart(&state, &state_dir, &report)) {
        Ok(()) => 0,
        Err(error) => {
            report.failure(&error);
            error.kind().exit_code()
        }
    }
}

/// The part of config.json that decides whether tranche's runtime created the container, and where its root is.
#[derive(Deserialize)]
struct HookedConfig {
    root: Option<Root>,
    hooks: Option<std::collections::HashMap<String, Option<Vec<ConfiguredHook>>>>,
    process: Option<HookedProcess>,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Deserialize)]
struct ConfiguredHook {
    args: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct HookedProcess {
    env: Option<Vec<String>>,
}

impl HookedConfig {
    /// Whether the container has a hook of tranche's.
    fn has_our_hooks(&self) -> bool {
        let hooks = self.hooks.iter().flat_map(|hooks| hooks.values().flatten().flatten());
        let mut args = hooks.filter_map(|hook| hook.args.as_deref());
        args.any(|args| matches!(args, [program, hook, ..] if program == "tranche-oci" && hook == "hook"))
    }

    /// The value of a variable.
    fn variable(&self, name: &str) -> Option<&str> {
        let env = self.process.as_ref()?.env.as_ref()?;
        // The last one counts, as for the request.
        let mut values = env.iter().rev().filter_map(|entry| entry.split_once('='));
        values.find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

fn prestart(state: &State, state_dir: &Path, report: &RuntimeReport<'_>) -> Result<()> {
    let bytes = EditedFile::config(Some(&state.bundle), None)?.read()?;
    let config: HookedConfig = serde_json::from_slice(&bytes).about("config.json", "does not parse")?;
    if config.has_our_hooks() {
        return Ok(());
    }
    let settings = OwnerSettings::read(state_dir).or_default(report);
    let asked = request::of(&bytes, &settings, CallingEngine::of(None, &state.bundle, &state.id))?;
    for note in asked.notes {
        report.remark(&Error::failed("request", note));
    }
    match asked.request {
        Some(request) => Err(by_cli(state, &config, &settings, &request)?),
        None => Ok(()),
    }
}

/// Executes `nvidia-container-cli`. Returns only if that fails.
fn by_cli(state: &State, config: &HookedConfig, settings: &RuntimeSettings, request: &Request) -> Result<Error> {
    if !matches!(settings.mode, RuntimeMode::Auto | RuntimeMode::Legacy) && !settings.skip_mode_detection {
        return Err(Error::failed("docker --gpus", "needs a container runtime that adds GPUs").hint(CONFIGURE));
    }
    let cli = &settings.nvidia_cli;
    let Some(program) = low_level::installed(&cli.path.as_ref().map_or(CLI.into(), |path| path.display().to_string()))
    else {
        return Err(Error::failed(CLI, "not found").hint(CONFIGURE));
    };
    let pid = state
        .pid
        .ok_or_else(|| Error::failed("container state", "has no pid"))?;
    let root = config
        .root
        .as_ref()
        .ok_or_else(|| Error::failed("config.json", "has no root.path"))?;
    let mut words = options(cli);
    words.extend(configure(request, |name| config.variable(name).map(str::to_owned))?);
    words.push(format!("--pid={pid}"));
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.push(state.bundle.join(&root.path).into());
    Ok(low_level::become_program(&program, &words, &cli.environment))
}

/// The options of the program as a whole, its command, and the options of the command that do not depend on the request.
fn options(cli: &NvidiaCli) -> Vec<String> {
    let mut words = Vec::new();
    let mut flag = |is_set: bool, word: &str| words.extend(is_set.then(|| word.to_owned()));
    flag(cli.load_kmods, "--load-kmods");
    flag(cli.no_create_imex_channels, "--no-create-imex-channels");
    flag(cli.no_pivot, "--no-pivot");
    let values = [("debug", &cli.debug), ("ldcache", &cli.ldcache), ("user", &cli.user)];
    let value = |(name, value): (&str, &Option<String>)| value.as_ref().map(|value| format!("--{name}={value}"));
    words.extend(values.into_iter().filter_map(value));
    words.push("configure".to_owned());
    let compat = match cli.cuda_compat_mode {
        CudaCompatMode::Ldconfig => Some("ldconfig"),
        CudaCompatMode::Mount => Some("mount"),
        CudaCompatMode::Hook | CudaCompatMode::Disabled => Some("disabled"),
    };
    words.extend(compat.map(|mode| format!("--cuda-compat-mode={mode}")));
    words.push(match &cli.ldconfig {
        Some(path) => format!("--ldconfig={path}"),
        // Debian wraps the program in a script, which libnvidia-container cannot execute.
        None if Path::new("/sbin/ldconfig.real").exists() => "--ldconfig=@/sbin/ldconfig.real".to_owned(),
        None => "--ldconfig=@/sbin/ldconfig".to_owned(),
    });
    words.extend(cli.no_cgroups.then(|| "--no-cgroups".to_owned()));
    words
}

/// The options for what the container requests. `variable` gives the value of a variable of the container.
fn configure(request: &Request, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
    let only_by_tranche =
        |what: &str| Error::new(Kind::Failed, what, format!("cannot be given to a container by {CLI}")).hint(CONFIGURE);
    if request.size.is_some() {
        return Err(only_by_tranche("a part of a device by its size"));
    }
    let device = |device: &WantedDevice| match device {
        WantedDevice::All => Ok("all".to_owned()),
        WantedDevice::Device(selector) => Ok(selector.to_string()),
        WantedDevice::Share { device, .. } => Err(only_by_tranche(&format!("a share of device {device}"))),
        WantedDevice::Cdi(name) => Err(only_by_tranche(&name.to_string())),
    };
    let devices: Vec<String> = request.devices.iter().map(device).collect::<Result<_>>()?;
    let access = |access: &Option<MigAccess>| match access {
        None => Vec::new(),
        Some(MigAccess::All) => vec!["all".to_owned()],
        Some(MigAccess::Devices(devices)) => devices.iter().map(ToString::to_string).collect(),
    };
    let channels = match &request.imex {
        ImexRequest::All => vec!["all".to_owned()],
        ImexRequest::Channels(channels) => channels.iter().map(ToString::to_string).collect(),
    };
    let lists = [
        ("device", devices),
        ("mig-config", access(&request.mig_config)),
        ("mig-monitor", access(&request.mig_monitor)),
        ("imex-channel", channels),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let mut words: Vec<String> = lists
        .map(|(name, list)| format!("--{name}={}", list.join(",")))
        .collect();
    words.extend(request.capabilities.iter().map(|capability| format!("--{capability}")));
    let required = request.requirements.iter().filter(|_| request.requirements_bind);
    let required = required.filter_map(|requirement| variable(&requirement.variable));
    words.extend(required.map(|text| format!("--require={text}")));
    Ok(words)
}
