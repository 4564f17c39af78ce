//! The configuration file of NVIDIA's container toolkit (`config.toml`), in which an owner has set how its runtime
//! works.
//!
//! The keys and their defaults are those of `nvidia-ctk config default` of version 1.19. Unknown keys are ignored, as
//! NVIDIA's programs do, and reported.

mod value;

use std::path::{Path, PathBuf};
use toml_edit::{Document, TableLike};
use tranche_core::call::NvidiaHook;
use tranche_core::error::{Error, Result};
use tranche_plan::inventory::DriverCapability;
use tranche_plan::policy::read::{self, is_runtime, is_variable, mode_without_effect};
use tranche_plan::policy::{AcceptEnvironment, CudaCompatMode, RuntimeMode, RuntimeSettings};
use value::{TomlValue, place};

/// Where NVIDIA's programs read it. Unlike those, tranche ignores `$XDG_CONFIG_HOME`: the user who starts a program as
/// root must not choose its configuration.
pub const DEFAULT_FILE: &str = "/etc/nvidia-container-runtime/config.toml";

/// Settings, and what in their file has no effect here.
#[derive(Debug)]
pub struct ReadSettings {
    /// The settings.
    pub settings: RuntimeSettings,
    /// One line each.
    pub warnings: Vec<String>,
}

/// Reads the file at `path`.
///
/// # Errors
/// Returns an error if the file cannot be read, is not valid TOML, or has a value of the wrong type. The error names
/// the key.
pub fn read(path: &Path) -> Result<ReadSettings> {
    if let Err(error) = path.metadata() {
        return Err(Error::failed(path.display(), "cannot be read").from_source(error));
    }
    parse(&path.display().to_string(), &read::text(path)?)
}

/// The tables of the file, and the table of the program that reads it.
const TABLES: [&str; 11] = [
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-container-runtime.modes",
    "nvidia-container-runtime.modes.cdi",
    "nvidia-container-runtime.modes.csv",
    "nvidia-container-runtime.modes.jit-cdi",
    "nvidia-container-runtime.modes.legacy",
    "nvidia-container-runtime-hook",
    "nvidia-ctk",
    "features",
    "experimental",
];

fn parse(file: &str, text: &str) -> Result<ReadSettings> {
    let document = Document::parse(text).map_err(|error| {
        let at = place(text, error.span().unwrap_or_default().start);
        Error::usage(at.of(file), format!("this is not valid TOML: {}", error.message()))
    })?;
    let mut reader = TomlReader {
        file,
        text,
        read: ReadSettings {
            settings: RuntimeSettings::default(),
            warnings: Vec::new(),
        },
    };
    reader.table("", document.as_table())?;
    let ReadSettings { settings, mut warnings } = reader.read;
    warnings.extend(mode_without_effect(file, settings.mode));
    Ok(ReadSettings { settings, warnings })
}

struct TomlReader<'a> {
    file: &'a str,
    text: &'a str,
    read: ReadSettings,
}

impl TomlReader<'_> {
    fn table(&mut self, above: &str, table: &dyn TableLike) -> Result<()> {
        for (key, item) in table.iter() {
            let name = match above {
                "" => key.to_owned(),
                _ => format!("{above}.{key}"),
            };
            let value = TomlValue {
                file: self.file,
                text: self.text,
                name: &name,
                item,
            };
            match TABLES.contains(&name.as_str()) {
                true => self.table(&name, value.table()?)?,
                false => self.key(value)?,
            }
        }
        Ok(())
    }

    fn key(&mut self, value: TomlValue<'_>) -> Result<()> {
        let settings = &mut self.read.settings;
        let cli = &mut settings.nvidia_cli;
        let ignored = match value.name {
            "disable-require" => set(&mut settings.disable_require, value.bool()?),
            "swarm-resource" => set(&mut settings.swarm_resource, value.words(is_variable)?),
            "accept-nvidia-visible-devices-envvar-when-unprivileged" => {
                let accept = match value.bool()? {
                    true => AcceptEnvironment::Always,
                    false => AcceptEnvironment::Privileged,
                };
                set(&mut settings.accept_environment, accept)
            }
            "accept-nvidia-visible-devices-as-volume-mounts" => set(&mut settings.accept_volume_mounts, value.bool()?),
            "supported-driver-capabilities" => match value.text()? {
                "all" => false,
                _ => {
                    let words = value.words(|_| Ok(()))?;
                    let parsed = words.iter().map(|word| word.parse::<DriverCapability>());
                    let parsed = parsed.collect::<Result<_>>().map_err(|error| value.wrong(error))?;
                    set(&mut settings.supported_capabilities, parsed)
                }
            },
            "nvidia-container-cli.root" => set(&mut settings.driver_root, value.directory()?),
            "nvidia-container-cli.path" => set(&mut cli.path, value.some_text()?.map(PathBuf::from)),
            "nvidia-container-cli.environment" => set(&mut cli.environment, value.list(|_| Ok(()))?),
            "nvidia-container-cli.debug" => set(&mut cli.debug, value.some_text()?),
            "nvidia-container-cli.ldcache" => set(&mut cli.ldcache, value.some_text()?),
            "nvidia-container-cli.load-kmods" => set(&mut cli.load_kmods, value.bool()?),
            "nvidia-container-cli.no-pivot" => set(&mut cli.no_pivot, value.bool()?),
            "nvidia-container-cli.no-cgroups" => set(&mut cli.no_cgroups, value.bool()?),
            "nvidia-container-cli.user" => set(&mut cli.user, value.some_text()?),
            "nvidia-container-cli.ldconfig" => set(&mut cli.ldconfig, value.some_text()?),
            "nvidia-container-runtime.debug" => {
                let log = value.some_text()?.filter(|log| log != "/dev/null");
                set(&mut settings.log, log.map(PathBuf::from))
            }
            "nvidia-container-runtime.log-level" => !matches!(value.text()?, "" | "info"),
            "nvidia-container-runtime.runtimes" => set(&mut settings.runtimes, value.not_empty(is_runtime)?),
            "nvidia-container-runtime.mode" => {
                let mode = value.word::<RuntimeMode>("auto, cdi, jit-cdi, legacy or csv")?;
                set(&mut settings.mode, mode)
            }
            "nvidia-container-runtime.modes.cdi.spec-dirs" => {
                let dirs = value.not_empty(is_absolute)?.into_iter();
                set(&mut settings.spec_dirs, dirs.map(PathBuf::from).collect())
            }
            "nvidia-container-runtime.modes.cdi.default-kind" => {
                let kind = value.text()?.parse().map_err(|error| value.wrong(error))?;
                set(&mut settings.default_kind, kind)
            }
            "nvidia-container-runtime.modes.cdi.annotation-prefixes" => {
                set(&mut settings.annotation_prefixes, value.list(is_not_empty)?)
            }
            "nvidia-container-runtime.modes.csv.mount-spec-path" => {
                value.text()? != "/etc/nvidia-container-runtime/host-files-for-container.d"
            }
            "nvidia-container-runtime.modes.csv.compat-container-root" => !value.text()?.is_empty(),
            "nvidia-container-runtime.modes.jit-cdi.nvcdi-feature-flags" => {
                let flags = value.list(|_| Ok(()))?;
                let (known, unknown): (Vec<_>, Vec<_>) = flags.iter().partition(|flag| *flag == NO_GIDS);
                settings.additional_gids &= known.is_empty();
                !unknown.is_empty()
            }
            "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks" => {
                let names = value.list(|_| Ok(()))?;
                let known = names.iter().filter_map(|name| NvidiaHook::written(name).ok());
                settings.disabled_hooks.extend(known);
                if names.iter().any(|name| name == "all") {
                    settings.disabled_hooks.extend(NvidiaHook::WRITTEN);
                }
                names
                    .iter()
                    .any(|name| name != "all" && NvidiaHook::written(name).is_err())
            }
            "nvidia-container-runtime.modes.legacy.cuda-compat-mode" => {
                let mode = value.word::<CudaCompatMode>("ldconfig, mount, hook or disabled")?;
                set(&mut cli.cuda_compat_mode, mode)
            }
            "nvidia-container-runtime-hook.skip-mode-detection" => {
                set(&mut settings.skip_mode_detection, value.bool()?)
            }
            // Where NVIDIA's programs find one another.
            "nvidia-container-runtime-hook.path" | "nvidia-ctk.path" => value.text().map(|_| false)?,
            "features.disable-cuda-compat-lib-hook" => {
                let disabled = value.bool()?.then_some(NvidiaHook::EnableCudaCompat);
                settings.disabled_hooks.extend(disabled);
                false
            }
            "features.no-additional-gids-for-device-nodes" => {
                settings.additional_gids &= !value.bool()?;
                false
            }
            "features.disable-imex-channel-creation" => set(&mut cli.no_create_imex_channels, value.bool()?),
            "features.ignore-imex-channel-requests" => set(&mut settings.ignore_imex_channel_requests, value.bool()?),
            // tranche keeps every field that it does not know.
            "features.allow-unknown-oci-spec-fields" => value.bool().map(|_| false)?,
            "features.allow-cuda-compat-libs-from-container" | "features.allow-ldconfig-from-container" => {
                value.bool()?
            }
            _ => {
                let warning = format!("{}: \"{}\" is unknown and has no effect", value.place(), value.name);
                self.read.warnings.push(warning);
                return Ok(());
            }
        };
        if ignored {
            let warning = format!("{}: {} has no effect on tranche", value.place(), value.name);
            self.read.warnings.push(warning);
        }
        Ok(())
    }
}

const NO_GIDS: &str = "no-additional-gids-for-device-nodes";

/// Sets a field. Returns whether the value has no effect, which is false.
fn set<T>(field: &mut T, value: T) -> bool {
    *field = value;
    false
}

fn is_absolute(path: &str) -> Result<(), &'static str> {
    match path.starts_with('/') {
        true => Ok(()),
        false => Err("is not an absolute path"),
    }
}

fn is_not_empty(text: &str) -> Result<(), &'static str> {
    match text.is_empty() {
        true => Err("is empty"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
