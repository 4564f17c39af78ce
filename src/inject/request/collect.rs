//! Puts a request together from the places in which a container asks.

use std::collections::BTreeSet;

use super::devices::WantedDevices;
use super::environment::Environment;
use super::mounts::MountRequests;
use super::size::OwnRequest;
use super::view::ConfigView;
use super::visible::VisibleDevices;
use super::{
    Asked, ImexRequest, LEGACY, LONGEST_SHOWN, MOUNTS, MigAccess, Request, RequestSource, WantedDevice, WantedSize,
};
use super::{annotations, capabilities, extras, scan, size};
use crate::CallingEngine;
use crate::require::Requirement;
use tranche_core::error::{Error, Result, line};
use tranche_core::text::{cut, is_true};
use tranche_core::types::Selection;
use tranche_plan::derive::Mode;
use tranche_plan::inventory::DriverCapability;
use tranche_plan::policy::{AcceptEnvironment, RuntimeMode, RuntimeSettings};

/// Finds what a container asks for in its `config.json`. The bytes of a configuration that cannot ask for anything are
/// not parsed, so that it may be invalid: the runtime behind finds that out.
///
/// # Errors
/// Returns an error if the configuration does not parse, or has a value of another type where a container asks; a usage
/// error for a request that is invalid or contradicts itself.
pub fn of(config: &[u8], settings: &RuntimeSettings, caller: CallingEngine) -> Result<Asked> {
    match scan::may_ask(config, settings) {
        true => parsed(config, settings, caller),
        false => Ok(Asked::default()),
    }
}

/// The sources of all mounts of `config`.
///
/// # Errors
/// Returns an error if the configuration or its mounts do not parse.
pub(crate) fn mount_sources(config: &[u8]) -> Result<Vec<String>> {
    let mounts = ConfigView::parse(config)?.mounts()?;
    let sources = mounts.into_iter().filter_map(|mount| mount.source);
    Ok(sources.map(|source| source.as_str().to_owned()).collect())
}

/// What [`of`] does for a configuration that may ask for something.
pub(crate) fn parsed(config: &[u8], settings: &RuntimeSettings, caller: CallingEngine) -> Result<Asked> {
    let mut view = ConfigView::parse(config)?;
    let caller = caller.with_annotations(view.annotation_keys());
    let refused = annotations::refuse(&mut view, settings, caller)?;
    let accepts_environment = match settings.accept_environment {
        AcceptEnvironment::Always => true,
        AcceptEnvironment::Privileged => view.is_privileged()?,
        AcceptEnvironment::Never => false,
    };
    let mut asking = Asking {
        environment: view.environment(settings, caller),
        view: &view,
        settings,
        accepts_environment,
        refused: Vec::new(),
        notes: refused.into_iter().collect(),
    };
    let request = asking.request()?;
    asking.note_refused();
    Ok(Asked {
        request,
        notes: asking.notes,
    })
}

/// A configuration while it is read.
struct Asking<'a> {
    view: &'a ConfigView<'a>,
    environment: Environment<'a>,
    settings: &'a RuntimeSettings,
    /// Whether the environment may ask.
    accepts_environment: bool,
    /// Variables that ask and may not, with their values.
    refused: Vec<String>,
    notes: Vec<String>,
}

/// Devices that are named in one place.
struct NamedDevices {
    wanted: WantedDevices,
    source: RequestSource,
    /// The place, for messages.
    by: String,
}

impl<'a> Asking<'a> {
    fn request(&mut self) -> Result<Option<Request>> {
        let accepts_mounts = self.settings.accept_volume_mounts;
        let mounts = match accepts_mounts || self.view.may_have_mount_requests() {
            true => MountRequests::of(&self.view.mounts()?, accepts_mounts)?,
            false => MountRequests::default(),
        };
        let by_person = self.by_person(&mounts)?;
        let person = by_person.as_ref().map(|named| named.by.as_str());
        let mut own = OwnRequest::of(self.view, &self.environment, self.accepts_environment, person)?;
        self.notes.append(&mut own.notes);
        let mut named = match (by_person, &own.asked_by) {
            (Some(named), _) => named,
            (None, Some((RequestSource::Annotation, by))) => self.behind(by)?,
            (None, _) => self.by_environment()?,
        };
        self.refused.append(&mut own.refused);
        let mut source = None;
        let mut sized = None;
        if let Some((place, by)) = own.asked_by {
            let device = size::device(&mut named.wanted, &named.by, &by, self.settings)?;
            sized = Some(WantedSize { device, ..own.size });
            source = Some(place);
        }
        if !named.wanted.is_nothing() {
            source = Some(named.source);
        }
        let select = self.select(own.select, &named.wanted, sized.as_ref())?;
        let Some(source) = source else {
            if let Some(by) = own.waits_by {
                self.notes
                    .push(format!("{by} has no effect, because the container asks for no device"));
            }
            return Ok(None);
        };
        let is_of_specification = named
            .wanted
            .devices
            .iter()
            .any(|device| matches!(device, WantedDevice::Cdi(_)));
        Ok(Some(Request {
            devices: named.wanted.devices,
            driver_only: named.wanted.driver_only,
            size: sized,
            select,
            wait: own.wait,
            capabilities: self.capabilities()?,
            modes: self.modes(),
            imex: self.imex(&mounts)?,
            mig_config: self.mig(extras::MIG_CONFIG)?,
            mig_monitor: self.mig(extras::MIG_MONITOR)?,
            requirements: self.requirements()?,
            requirements_bind: self.accepts_environment,
            source,
            is_privileged: is_of_specification && self.view.is_privileged()?,
            request_mounts: mounts.destinations,
        }))
    }

    /// The conditions on devices that are not named.
    fn select(
        &self,
        select: Option<(Selection, String)>,
        wanted: &WantedDevices,
        size: Option<&WantedSize>,
    ) -> Result<Selection> {
        let Some((select, by)) = select else {
            return Ok(Selection::default());
        };
        let is_free_to_choose = size.is_some_and(|size| size.device.is_none());
        match is_free_to_choose || wanted.devices.iter().any(WantedDevice::is_any) {
            true => Ok(select),
            false => Err(Error::usage(
                by,
                "chooses a device, but the container asks for none that may be chosen",
            )
            .hint("ask for any, or for an amount of any device")),
        }
    }

    /// The devices that annotations name, or else mounts; `None` if neither names any. An empty list is not a place,
    /// and one with `void` is.
    fn by_person(&mut self, mounts: &MountRequests) -> Result<Option<NamedDevices>> {
        let annotations = self.view.annotations(self.settings.annotation_prefixes.iter())?;
        let reads_annotations = !matches!(self.settings.mode, RuntimeMode::Legacy | RuntimeMode::Csv);
        let by_annotation: Vec<(&str, &str)> = annotations
            .iter()
            .flat_map(|(key, value)| list(value.as_str()).map(|name| (*key, name)))
            .collect();
        if let Some((key, _)) = by_annotation.first() {
            let by = format!("annotation {key}");
            if reads_annotations {
                let names = by_annotation.iter().map(|(_, name)| *name);
                return self.place(RequestSource::Annotation, by, names).map(Some);
            }
            self.notes
                .push(format!("{by} has no effect in this mode of the runtime"));
        }
        if mounts.devices.is_empty() {
            return Ok(None);
        }
        let names = mounts.devices.iter().map(String::as_str);
        let by = format!("a mount below {MOUNTS}");
        self.place(RequestSource::Volume, by, names).map(Some)
    }

    /// The devices that the environment names, if it may.
    fn by_environment(&mut self) -> Result<NamedDevices> {
        let VisibleDevices { by, names, note } = self.visible_devices();
        if self.accepts_environment || self.environment.is_by_gpus(&by) {
            self.notes.extend(note);
            return self.place(RequestSource::Environment, by, names);
        }
        if !names.is_empty() && !names.contains(&"void") {
            self.refused.push(format!("{by}={}", names.join(",")));
        }
        self.place(RequestSource::Environment, by, [])
    }

    /// The devices that the environment names for a size that the annotation `sized_by` asks for: those of `--gpus`,
    /// and no others, because an image must not choose the device.
    fn behind(&mut self, sized_by: &str) -> Result<NamedDevices> {
        let VisibleDevices { by, names, .. } = self.visible_devices();
        if !self.accepts_environment || self.environment.is_by_gpus(&by) {
            return self.by_environment();
        }
        // Images of CUDA ask for all.
        let asks = !names.contains(&"void") && names.iter().any(|name| *name != "all");
        if asks {
            let prefix = self.settings.annotation_prefixes.first().map_or("", String::as_str);
            let value = names.join(",");
            self.notes.push(format!(
                "{} is ignored, because {sized_by} asks for a size, and an image can set the variable; name the device by an \
                 annotation {prefix}…, too",
                cut(&format!("{by}={value}"), LONGEST_SHOWN)
            ));
        }
        self.place(RequestSource::Environment, by, [])
    }

    fn visible_devices(&self) -> VisibleDevices<'a> {
        VisibleDevices::of(&self.environment, self.settings)
    }

    fn capabilities(&mut self) -> Result<BTreeSet<DriverCapability>> {
        let accepted = self.accepts_environment || self.environment.is_by_gpus(capabilities::VARIABLE);
        let named = capabilities::capabilities(&self.environment, self.settings, accepted)?;
        self.refused.extend(named.refused);
        Ok(named.capabilities)
    }

    fn place<'n>(
        &self,
        source: RequestSource,
        by: String,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<NamedDevices> {
        Ok(NamedDevices {
            wanted: WantedDevices::of(&by, names, self.settings)?,
            source,
            by,
        })
    }

    /// What is added to the devices. NVIDIA's device plugin asks for it by the environment of a container whose devices
    /// it mounts; an image can do the same.
    fn modes(&mut self) -> Vec<Mode> {
        let (variables, modes): (Vec<&str>, Vec<Mode>) = extras::modes(&self.environment).unzip();
        if self.accepts_environment {
            return modes;
        }
        self.refused
            .extend(variables.into_iter().map(|variable| format!("{variable}=enabled")));
        Vec::new()
    }

    fn imex(&mut self, mounts: &MountRequests) -> Result<ImexRequest> {
        let variable = extras::IMEX;
        let text = self.environment.get(variable).unwrap_or_default();
        let by_environment = list(text).next().is_some();
        if self.settings.ignore_imex_channel_requests {
            if by_environment || !mounts.channels.is_empty() {
                self.notes
                    .push("IMEX channels are asked for and ignored, as it is configured here".to_owned());
            }
            return Ok(ImexRequest::default());
        }
        if !mounts.channels.is_empty() {
            return extras::imex("a mount for IMEX", mounts.channels.iter().map(String::as_str));
        }
        if by_environment && !self.accepts_environment {
            self.refused.push(format!("{variable}={text}"));
            return Ok(ImexRequest::default());
        }
        let asked = extras::imex(variable, list(text))?;
        if asked == ImexRequest::All {
            // By NVIDIA's rules: only a mount may ask for all channels.
            self.notes.push(format!(
                "{variable}=all has no effect; name the channels, such as {variable}=0"
            ));
            return Ok(ImexRequest::default());
        }
        Ok(asked)
    }

    fn mig(&mut self, variable: &str) -> Result<Option<MigAccess>> {
        let names: Vec<&str> = self.environment.get(variable).into_iter().flat_map(list).collect();
        if names.is_empty() || names.iter().any(|name| matches!(*name, "void" | "none")) {
            return Ok(None);
        }
        if !self.accepts_environment {
            self.refused.push(format!("{variable}={}", names.join(",")));
            return Ok(None);
        }
        extras::mig(variable, &names, self.view.is_privileged()?).map(Some)
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>> {
        if self.settings.disable_require || self.environment.get("NVIDIA_DISABLE_REQUIRE").is_some_and(is_true) {
            return Ok(Vec::new());
        }
        let mut requirements = Vec::new();
        for (variable, text) in self.environment.requirements() {
            match Requirement::parse(variable, text) {
                Err(error) if !self.accepts_environment => self.notes.push(line(&error)),
                parsed => requirements.push(parsed?),
            }
        }
        if let Some(version) = self.environment.get(LEGACY).filter(|_| self.environment.is_legacy()) {
            match Requirement::of_cuda_version(version) {
                Some(requirement) => requirements.push(requirement),
                None => self.notes.push(format!(
                    "{LEGACY}={version} is not a version, so it is not compared with the driver's"
                )),
            }
        }
        Ok(requirements)
    }

    /// Notes what the environment asks for and may not.
    fn note_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        let (who, rule) = match self.settings.accept_environment {
            AcceptEnvironment::Privileged => ("only a privileged container", "privileged"),
            AcceptEnvironment::Always => ("every container", "always"),
            AcceptEnvironment::Never => ("no container", "never"),
        };
        let refused: Vec<String> = self.refused.iter().map(|what| cut(what, LONGEST_SHOWN)).collect();
        let what = refused.join(" and ");
        self.notes.push(format!(
            "ignored: {what}, because {who} may ask by its environment (acceptEnvironment: {rule})"
        ));
    }
}

/// The names of a list with commas.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}
