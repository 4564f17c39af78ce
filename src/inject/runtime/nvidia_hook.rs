//! `nvidia-container-runtime-hook`, the prestart hook that docker before 29.2 adds for `--gpus`.
//!
//! A prestart hook runs too late to set an environment variable or a device in the container's configuration. If
//! tranche's runtime created the container, it has done the work and removed this hook. Otherwise, the hook executes
//! NVIDIA's `nvidia-container-cli`, which changes the container that was created already. The hook never succeeds
//! without one of both.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Write, stdin, stdout};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::arguments::{Action, RuntimeArguments};
use super::edit::EditedFile;
use super::host::OwnerSettings;
use super::report::RuntimeReport;
use super::{low_level, state_dir};
use crate::CallingEngine;
use crate::request::{self, ImexRequest, MigAccess, Request, WantedDevice};
use tranche_core::error::{Context, Error, Kind, Result};
use tranche_core::oci::State;
use tranche_core::personality::nvidia_version;
use tranche_core::text::is_true;
use tranche_core::types::{DevicePart, Part};
use tranche_plan::policy::{CudaCompatMode, RuntimeMode, RuntimeSettings};

/// What makes tranche do the work.
const CONFIGURE: &str = "run tranche runtime configure --runtime docker --set-as-default, and restart docker";

/// The program of NVIDIA's libnvidia-container.
const CLI: &str = "nvidia-container-cli";

/// The help of the hook.
const USAGE: &str = "\
nvidia-container-runtime-hook: the hook that docker before 29.2 adds for --gpus, which tranche runs

  nvidia-container-runtime-hook [-debug] prestart   give the GPUs to the container whose state is read from standard input
  nvidia-container-runtime-hook poststart|poststop  do nothing
  nvidia-container-runtime-hook -version            print the version of NVIDIA's program that this one stands for, and its own
";

/// Where `-debug` sends the messages of `nvidia-container-cli`.
const DEBUG: &str = "/dev/stderr";

/// Runs the hook and returns the exit code; does not return if `nvidia-container-cli` is executed.
pub(super) fn run(words: Vec<OsString>, lines: &mut dyn Write) -> u8 {
    let (state_dir, words) = state_dir(words);
    let asked = HookArguments::parse(words.iter().filter_map(|word| word.to_str()));
    if asked.version {
        // A reader that closed the pipe does not want the version.
        let _ = stdout().write_all(nvidia_version("NVIDIA Container Runtime Hook", "tranche-runtime").as_bytes());
        return 0;
    }
    if asked.help {
        let _ = stdout().write_all(USAGE.as_bytes());
        return 0;
    }
    let name = format!("nvidia-container-runtime-hook {}", asked.command.unwrap_or_default());
    let mut arguments = RuntimeArguments {
        name: Some(name.trim_end().to_owned()),
        ..RuntimeArguments::default()
    };
    let done = match asked.command {
        _ if asked.unknown.is_some() => {
            let option = asked.unknown.unwrap_or_default();
            Err(Error::usage(option, "unknown option of this hook").hint("expected -config, -debug or -version"))
        }
        Some("prestart") => State::read(stdin()).inspect(|state| {
            arguments.action = Action::End { id: state.id.clone() };
        }),
        Some("poststart" | "poststop") => return 0,
        Some(other) => Err(Error::usage(other, "unknown command of this hook").hint("expected prestart")),
        None => Err(Error::usage("command line", "a command is missing").hint("expected prestart")),
    };
    let report = RuntimeReport::new(&arguments, &state_dir, lines);
    match done.and_then(|state| prestart(&state, &state_dir, asked.debug, &report)) {
        Ok(()) => 0,
        Err(error) => {
            report.failure(&error);
            error.kind().exit_code()
        }
    }
}

/// The arguments of NVIDIA's hook, which Go's `flag` package parses: one dash or two, and the first word without a dash
/// is the command.
#[derive(Default)]
struct HookArguments<'a> {
    command: Option<&'a str>,
    debug: bool,
    version: bool,
    help: bool,
    /// An option that NVIDIA's hook does not have.
    unknown: Option<&'a str>,
}

impl<'a> HookArguments<'a> {
    fn parse(mut words: impl Iterator<Item = &'a str>) -> Self {
        let mut asked = Self::default();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix('-') else {
                asked.command = Some(word);
                break;
            };
            let option = option.strip_prefix('-').unwrap_or(option);
            let (option, value) = option.split_once('=').map_or((option, None), |(o, v)| (o, Some(v)));
            let is_set = value.is_none_or(is_true);
            match option {
                "debug" => asked.debug = is_set,
                "version" => asked.version = is_set,
                "help" | "h" => asked.help = true,
                // The file of its settings: `tranche cdi refresh` has read it.
                "config" => drop(value.or_else(|| words.next())),
                _ => asked.unknown = Some(word),
            }
        }
        asked
    }
}

/// The part of config.json that decides whether tranche's runtime created the container, and where its root is.
#[derive(Deserialize)]
struct HookedConfig {
    root: Option<Root>,
    hooks: Option<std::collections::HashMap<String, Option<Vec<ConfiguredHook>>>>,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Deserialize)]
struct ConfiguredHook {
    args: Option<Vec<String>>,
}

impl HookedConfig {
    /// Whether the container has a hook of tranche's.
    fn has_our_hooks(&self) -> bool {
        let hooks = self.hooks.iter().flat_map(|hooks| hooks.values().flatten().flatten());
        let mut args = hooks.filter_map(|hook| hook.args.as_deref());
        args.any(|args| matches!(args, [program, hook, ..] if program == "tranche-oci" && hook == "hook"))
    }
}

fn prestart(state: &State, state_dir: &Path, debug: bool, report: &RuntimeReport<'_>) -> Result<()> {
    let bytes = EditedFile::config(Some(&state.bundle), None)?.read()?;
    let config: HookedConfig = serde_json::from_slice(&bytes).about("config.json", "does not parse")?;
    if config.has_our_hooks() {
        return Ok(());
    }
    let settings = OwnerSettings::read(state_dir).or_default(report);
    let asked = request::of(
        &bytes,
        &as_for_cli(&settings),
        CallingEngine::of(None, &state.bundle, &state.id),
    )?;
    for note in asked.notes {
        report.remark(&Error::failed("request", note));
    }
    match asked.request {
        Some(request) => Err(by_cli(state, &config, &settings, &request, debug)?),
        None => Ok(()),
    }
}

/// The settings with which a request is read for `nvidia-container-cli`: it does not support CDI names, so a name
/// without a vendor stays as it is, as in the mode `cdi`.
fn as_for_cli(settings: &RuntimeSettings) -> RuntimeSettings {
    let mode = match settings.mode {
        RuntimeMode::Cdi => RuntimeMode::Auto,
        mode => mode,
    };
    RuntimeSettings {
        mode,
        ..settings.clone()
    }
}

/// Executes `nvidia-container-cli`. Returns only if that fails.
fn by_cli(
    state: &State,
    config: &HookedConfig,
    settings: &RuntimeSettings,
    request: &Request,
    debug: bool,
) -> Result<Error> {
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
    let mut words = options(settings, debug);
    words.extend(configure(request)?);
    words.push(format!("--pid={pid}"));
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.push(state.bundle.join(&root.path).into());
    Ok(low_level::become_program(&program, &words, &cli.environment))
}

/// The options of the program as a whole, its command, and the options of the command that do not depend on the
/// request.
fn options(settings: &RuntimeSettings, debug: bool) -> Vec<String> {
    let cli = &settings.nvidia_cli;
    let root = settings.driver_root.as_ref().map(|root| root.as_path().display());
    let mut words: Vec<String> = root.map(|root| format!("--root={root}")).into_iter().collect();
    let mut flag = |is_set: bool, word: &str| words.extend(is_set.then(|| word.to_owned()));
    flag(cli.load_kmods, "--load-kmods");
    flag(cli.no_create_imex_channels, "--no-create-imex-channels");
    flag(cli.no_pivot, "--no-pivot");
    let debug = if debug { Some(DEBUG) } else { cli.debug.as_deref() };
    let values = [
        ("debug", debug),
        ("ldcache", cli.ldcache.as_deref()),
        ("user", cli.user.as_deref()),
    ];
    let value = |(name, value): (&str, Option<&str>)| value.map(|value| format!("--{name}={value}"));
    words.extend(values.into_iter().filter_map(value));
    words.push("configure".to_owned());
    words.push(match cli.cuda_compat_mode {
        CudaCompatMode::Ldconfig => "--cuda-compat-mode=ldconfig".to_owned(),
        CudaCompatMode::Mount => "--cuda-compat-mode=mount".to_owned(),
        CudaCompatMode::Hook | CudaCompatMode::Disabled => "--cuda-compat-mode=disabled".to_owned(),
    });
    let ldconfig = cli.ldconfig.as_deref().unwrap_or("@/sbin/ldconfig");
    words.push(format!(
        "--ldconfig={}",
        real_ldconfig(ldconfig, |path| Path::new(path).exists())
    ));
    words.extend(cli.no_cgroups.then(|| "--no-cgroups".to_owned()));
    words
}

/// The ldconfig to execute for a configured one. Debian wraps the host's (`@`) in a script, which libnvidia-container
/// cannot execute; the program is beside it under another name.
fn real_ldconfig(configured: &str, exists: impl Fn(&str) -> bool) -> String {
    let Some(path) = configured.strip_prefix('@') else {
        return configured.to_owned();
    };
    let script = path.strip_suffix(".real").unwrap_or(path);
    let real = format!("{script}.real");
    if exists(&real) {
        format!("@{real}")
    } else {
        format!("@{script}")
    }
}

/// The options for what the container requests.
fn configure(request: &Request) -> Result<Vec<String>> {
    let only_by_tranche =
        |what: &str| Error::new(Kind::Failed, what, format!("cannot be given to a container by {CLI}")).hint(CONFIGURE);
    if request.size.is_some() {
        return Err(only_by_tranche("a part of a device by its size"));
    }
    let device = |device: &WantedDevice| match device {
        WantedDevice::All => Ok("all".to_owned()),
        WantedDevice::Part(DevicePart { device, part }) => match part {
            Part::Whole => Ok(device.to_string()),
            Part::Any | Part::Share(_) => Err(only_by_tranche(&format!("a share of device {device}"))),
        },
        WantedDevice::Any => Err(only_by_tranche("any device")),
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
    // By name: a set in the order of the driver's documentation has another order.
    let capabilities: BTreeSet<&str> = request.capabilities.iter().map(|one| one.as_str()).collect();
    words.extend(capabilities.iter().map(|capability| format!("--{capability}")));
    let required = request.requirements.iter().filter(|_| request.requirements_bind);
    words.extend(required.map(|requirement| format!("--require={}", requirement.text)));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_debian_is_not_executed() {
        let debian = |path: &str| path == "/sbin/ldconfig.real";
        for configured in ["@/sbin/ldconfig", "@/sbin/ldconfig.real"] {
            assert_eq!(real_ldconfig(configured, debian), "@/sbin/ldconfig.real");
            assert_eq!(real_ldconfig(configured, |_| false), "@/sbin/ldconfig");
        }
        // The image's own.
        assert_eq!(real_ldconfig("/sbin/ldconfig", debian), "/sbin/ldconfig");
    }
}
