//! How specifications are refreshed.

use crate::generate;
use crate::installed::EngineDirs;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::call::Program;
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::{CdiVersion, HostPath};
use tranche_host::SILENCE;
use tranche_plan::derive::HookOptions;
use tranche_state::planning::own_hook;
use tranche_state::planning::{PlanOptions, pipe_directories};

/// How specifications are refreshed, once or again and again.
#[derive(Debug, Clone)]
pub struct RefreshOptions {
    /// The host, its policy, and the directory of `host.json` and the ledger.
    pub at: PlanOptions,
    /// The directory for the specifications.
    pub output_dir: PathBuf,
    /// NVIDIA's configuration file, whose settings of the runtime apply if the policy has no section `runtime`; `None`
    /// for the default one, if it exists.
    pub nvidia_config: Option<PathBuf>,
    /// Whether to accept that the host could not be examined completely, and replace the files of the last refresh.
    pub degraded: bool,
    /// The newest CDI version that the engine supports; `None` for what the oldest installed engine reads.
    pub cdi_version: Option<CdiVersion>,
    /// Where engines are looked for.
    pub engines: EngineDirs,
    /// The hook program: an absolute path, or a name that is searched in `PATH`; `None` for the one that was installed
    /// with this program.
    pub hook_path: Option<OsString>,
    /// The directory in which the links to device nodes are made, such as `/dev/char`; `None` to make none.
    pub char_links: Option<PathBuf>,
    /// How long to wait for another refresh.
    pub lock_timeout: Duration,
    /// The directory of systemd-tmpfiles, which makes the directories of MPS daemons at boot.
    pub tmpfiles_dir: PathBuf,
}

/// The usual directory for specifications that are made anew after each boot.
pub const OUTPUT_DIR: &str = "/var/run/cdi";

impl Default for RefreshOptions {
    /// This machine and the usual directories.
    fn default() -> Self {
        Self {
            at: PlanOptions::default(),
            output_dir: OUTPUT_DIR.into(),
            nvidia_config: None,
            degraded: false,
            cdi_version: None,
            engines: EngineDirs::default(),
            hook_path: None,
            char_links: None,
            lock_timeout: Duration::from_secs(120),
            tmpfiles_dir: pipe_directories::DIRECTORY.into(),
        }
    }
}

/// Where the files of a refresh are, as absolute paths.
#[derive(Debug, Clone)]
pub(super) struct RefreshPlace {
    /// The directory of `host.json`.
    pub(super) state_dir: PathBuf,
    /// The directory of the specifications.
    pub(super) output_dir: PathBuf,
}

impl RefreshOptions {
    /// Where the files of a refresh are.
    ///
    /// # Errors
    /// Returns an error if a path has no absolute form.
    pub(super) fn place(&self) -> Result<RefreshPlace> {
        Ok(RefreshPlace {
            state_dir: PathBuf::from(HostPath::absolute(&self.at.state_dir)?.as_str()),
            output_dir: absolute(&self.output_dir)?,
        })
    }

    /// The hook of the specifications.
    ///
    /// # Errors
    /// Returns an error for NVIDIA's program, which cannot claim a share.
    pub(super) fn hook(&self) -> Result<HookOptions> {
        let Some(given) = &self.hook_path else {
            return Ok(own_hook().map_or_else(HookOptions::default, HookOptions::at));
        };
        let path = generate::program(given, self.at.host.is_here())?;
        if Program::at(&path) != Program::Tranche {
            let error = Error::usage(
                format!("--hook-path {path}"),
                "is NVIDIA's hook, which does not support shares",
            );
            return Err(error.hint("give the path of tranche-oci, or use tranche cdi generate"));
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
                arguments.push(format!("--{name}={}", absolute(path)?.display()));
            }
            Ok(())
        };
        path("output-dir", Some(&self.output_dir))?;
        path("state-dir", Some(&self.at.state_dir))?;
        path("config", self.at.policy.file.as_deref())?;
        path("nvidia-config", self.nvidia_config.as_deref())?;
        let tmpfiles_dir = Some(self.tmpfiles_dir.as_path());
        path(
            "tmpfiles-dir",
            tmpfiles_dir.filter(|dir| *dir != Path::new(pipe_directories::DIRECTORY)),
        )?;
        path("root", self.at.host.roots.root.as_deref())?;
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
            ("config-key", self.at.policy.key.clone()),
            ("cdi-version", self.cdi_version.map(|version| version.to_string())),
            ("inventory", self.at.host.inventory.clone()),
        ];
        let others = others
            .into_iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value?)));
        arguments.extend(others);
        arguments.extend(self.at.host.choices());
        let deadline = self.at.host.discovery.deadline;
        if deadline != SILENCE {
            arguments.push(format!("--nvml-deadline={}", deadline.as_secs_f64()));
        }
        Ok(arguments)
    }
}

/// The absolute form of `path`.
///
/// # Errors
/// Returns an error if it has none.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).about(path.display(), "has no absolute path")
}
