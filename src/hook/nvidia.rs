//! The hooks of NVIDIA's `nvidia-cdi-hook` (1.18 to 1.20), by its names and arguments, so that a spec that its generator
//! wrote runs with ours.
//!
//! | verb | options |
//! |---|---|
//! | `create-symlinks` | `--link TARGET::LINK` … |
//! | `update-ldcache` | `--folder DIR` …, `--ldconfig-path` (not used: no program is run) |
//! | `enable-cuda-compat` | `--host-driver-version`, `--host-cuda-version`, `--cuda-compat-container-root` |
//! | `disable-device-node-modification`, `update-application-profile` | |
//! | `chmod` | `--path PATH` …, `--mode OCTAL` |
//! | `apply-cuda-memory-limits` | any; not supported yet: fails if the container sets a limit |
//! | `create-soname-symlinks` | any; nothing is done: `update-ldcache` serves these names |
//! | `noop` | any |
//!
//! All take `--container-spec FILE`, a state in a file instead of on standard input, and our own `--state-dir DIR`, where
//! messages are kept for `tranche status`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::cuda_compat::{self, Host};
use super::prepare::Request;
use super::report::Report;
use super::{application_profile, chmod, container, driver_params, ldcache, links, options};
use crate::error::{Context, Error, Result};
use crate::oci::{Bundle, State};

/// The verbs.
pub(super) const VERBS: [&str; 9] = [
    "create-symlinks",
    "update-ldcache",
    "enable-cuda-compat",
    "disable-device-node-modification",
    "update-application-profile",
    "chmod",
    "apply-cuda-memory-limits",
    "create-soname-symlinks",
    "noop",
];

const OPTIONS: [&str; 10] = [
    "container-spec",
    "link",
    "folder",
    "ldconfig-path",
    "host-driver-version",
    "host-cuda-version",
    "cuda-compat-container-root",
    "path",
    "mode",
    "state-dir",
];

/// What the tenant of a limit says, in its environment.
const LIMITS: [&str; 2] = ["NVIDIA_GPU_MEMORY_LIMIT=", "NVIDIA_GPU_MEMORY_REQUEST="];

/// Runs `verb`, one of [`VERBS`].
pub(super) fn run(verb: &str, arguments: Vec<OsString>, state: &mut dyn Read, report: &mut Report<'_>) -> Result<()> {
    if matches!(verb, "noop" | "create-soname-symlinks") {
        return Ok(());
    }
    // Options of a verb that does nothing with them yet need not be known.
    let arguments = if verb == "apply-cuda-memory-limits" {
        Vec::new()
    } else {
        arguments
    };
    let options = Options(options::parse(arguments, &OPTIONS, report)?);
    let request = options.request()?;
    let host = Host {
        driver: options.version("host-driver-version", report),
        cuda: options.version("host-cuda-version", report),
    };
    let mode = options.last("mode").map(chmod::mode).transpose()?;
    let state = options.state(state)?;
    report.about(&state);
    let Some(bundle) = container::open(&state, report)? else {
        return Ok(());
    };
    match verb {
        "create-symlinks" => links::make(&request.links, &bundle, report).map(drop),
        "update-ldcache" => ldcache::update(
            &ldcache::Work {
                compat: ldcache::recorded_compat(&bundle, report),
                directories: &request.ldcache_dirs,
                links: &[],
                in_place: &[],
                libraries: &[],
            },
            &bundle,
            report,
        ),
        "enable-cuda-compat" => {
            let directory = options.last("cuda-compat-container-root");
            let directory = directory.map_or(Path::new(cuda_compat::DIRECTORY), Path::new);
            let used = cuda_compat::find(directory, &host, &bundle, report);
            ldcache::record_compat(used.then_some(directory), &bundle, report);
            Ok(())
        }
        "disable-device-node-modification" => {
            driver_params::turn_off(&bundle, report);
            Ok(())
        }
        "update-application-profile" => {
            application_profile::write(&bundle, report);
            Ok(())
        }
        "chmod" => {
            let mode = mode.ok_or_else(|| Error::usage("chmod", "--mode is missing"))?;
            chmod::change(options.all("path").map(Path::new), mode, &bundle, report);
            Ok(())
        }
        _ if !bundle.is_configured => {
            report.note(verb, "a limit in the container's environment is not looked for");
            Ok(())
        }
        _ => no_limits(&bundle),
    }
}

/// A container whose limit is not kept takes memory that another was promised: it does not start.
fn no_limits(bundle: &Bundle) -> Result<()> {
    let environment = &bundle.config.environment;
    match environment
        .iter()
        .find(|entry| LIMITS.iter().any(|limit| entry.starts_with(limit)))
    {
        None => Ok(()),
        Some(entry) => Err(
            Error::failed(entry, "limits of GPU memory by cgroup are not supported yet")
                .hint("take it out of the container's environment"),
        ),
    }
}

struct Options(Vec<(&'static str, OsString)>);

impl Options {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a OsStr> {
        self.0
            .iter()
            .filter(move |(option, _)| *option == name)
            .map(|(_, value)| value.as_os_str())
    }

    fn last<'a>(&'a self, name: &'a str) -> Option<&'a OsStr> {
        self.all(name).last()
    }

    /// Links and directories under the names that `prepare` has for them.
    fn request(&self) -> Result<Request> {
        let mut request = Request::default();
        for (option, value) in &self.0 {
            match *option {
                "link" => request.take("link", value.clone())?,
                "folder" => request.take("ldcache-dir", value.clone())?,
                _ => {}
            }
        }
        request.with_each_link_once()
    }

    /// A version, or nothing for none; one that is no version is as none, as the rules have it for an unknown host.
    fn version<T: std::str::FromStr>(&self, name: &str, report: &mut Report<'_>) -> Option<T> {
        let text = self.last(name).filter(|text| !text.is_empty())?.to_string_lossy();
        let version = text.parse().ok();
        if version.is_none() {
            report.note(format!("--{name} {text}"), "not a version, ignored");
        }
        version
    }

    fn state(&self, standard_input: &mut dyn Read) -> Result<State> {
        match self
            .last("container-spec")
            .filter(|path| !path.is_empty() && *path != "-")
        {
            None => State::read(standard_input),
            Some(path) => {
                let path = PathBuf::from(path);
                State::read(File::open(&path).about(path.display(), "cannot open")?)
            }
        }
    }
}
