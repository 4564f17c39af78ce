//! The parts of a `config.json` in which a container asks for something. They borrow from its bytes.
//!
//! A part is parsed when it is needed, so that a value of another type elsewhere is no obstacle. Go writes an empty
//! list as `null`, and every key may be missing.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::MOUNTS;
use super::environment::Environment;
use crate::CallingEngine;
use crate::clean::is_nvidia_hook;
use tranche_core::error::{Context, Result};
use tranche_core::oci::Word;
use tranche_plan::engines::Engine;
use tranche_plan::policy::RuntimeSettings;

/// A `config.json` whose keys were found.
#[derive(Deserialize)]
pub(super) struct ConfigView<'a> {
    #[serde(borrow, default)]
    process: Option<RequestProcess<'a>>,
    #[serde(borrow, default)]
    annotations: Option<BTreeMap<Word<'a>, &'a RawValue>>,
    #[serde(borrow, default)]
    mounts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    hooks: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RequestProcess<'a> {
    #[serde(borrow, default)]
    env: Option<Vec<Word<'a>>>,
    #[serde(borrow, default)]
    capabilities: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CapabilitiesJson<'a> {
    #[serde(borrow, default)]
    bounding: Option<Vec<Word<'a>>>,
}

#[derive(Deserialize)]
struct HooksJson<'a> {
    #[serde(borrow, default)]
    prestart: Option<Vec<HookJson<'a>>>,
}

#[derive(Deserialize)]
struct HookJson<'a> {
    #[serde(borrow)]
    path: Word<'a>,
}

/// A mount, as far as it may be a request.
#[derive(Deserialize)]
pub(super) struct RequestMount<'a> {
    #[serde(borrow, default)]
    pub(super) destination: Option<Word<'a>>,
    #[serde(borrow, default)]
    pub(super) source: Option<Word<'a>>,
}

impl<'a> ConfigView<'a> {
    pub(super) fn parse(config: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(config).about("config.json", "does not parse")
    }

    /// The variables that may ask for something.
    pub(super) fn environment(&self, settings: &RuntimeSettings, caller: CallingEngine) -> Environment<'_> {
        let entries = self.process.iter().flat_map(|process| &process.env).flatten();
        let by_gpus = caller == CallingEngine::Known(Engine::Docker) && self.has_nvidia_hook();
        Environment::of(entries.map(Word::as_str), settings, by_gpus)
    }

    /// Whether NVIDIA's prestart hook is configured. No image can write a hook. Hooks that do not parse are no
    /// obstacle: the runtime behind refuses them.
    fn has_nvidia_hook(&self) -> bool {
        let hooks = self
            .hooks
            .and_then(|raw| serde_json::from_str::<HooksJson<'_>>(raw.get()).ok());
        let hooks = hooks.and_then(|hooks| hooks.prestart).unwrap_or_default();
        hooks.iter().any(|hook| is_nvidia_hook(hook.path.as_str()))
    }

    /// Whether the container is privileged: its bounding set has CAP_SYS_ADMIN. NVIDIA's tools ask the same, so that
    /// users other than root in a privileged container may use what only such a container gets.
    pub(super) fn is_privileged(&self) -> Result<bool> {
        let Some(raw) = self.process.as_ref().and_then(|process| process.capabilities) else {
            return Ok(false);
        };
        let about = "process.capabilities does not parse";
        let capabilities: Option<CapabilitiesJson<'_>> = serde_json::from_str(raw.get()).about("config.json", about)?;
        let bounding = capabilities
            .and_then(|capabilities| capabilities.bounding)
            .unwrap_or_default();
        Ok(bounding.iter().any(|name| name.as_str() == "CAP_SYS_ADMIN"))
    }

    /// The annotations whose keys begin with one of the `prefixes`, by key. Those without a value are left out.
    pub(super) fn annotations<'p>(
        &self,
        prefixes: impl Iterator<Item = &'p String> + Clone,
    ) -> Result<Vec<(&str, Word<'a>)>> {
        let mut found = Vec::new();
        for (key, raw) in self.annotations.iter().flatten() {
            let key = key.as_str();
            if prefixes.clone().any(|prefix| key.starts_with(prefix)) {
                found.extend(text(key, raw)?.map(|value| (key, value)));
            }
        }
        Ok(found)
    }

    /// The keys of all annotations.
    pub(super) fn annotation_keys(&self) -> impl Iterator<Item = &str> {
        self.annotations.iter().flat_map(|all| all.keys()).map(Word::as_str)
    }

    /// Leaves every annotation out from now on.
    pub(super) fn without_annotations(&mut self) {
        self.annotations = None;
    }

    /// The value of one annotation; `None` if it is missing.
    pub(super) fn annotation(&self, key: &str) -> Result<Option<Word<'a>>> {
        let raw = self.annotations.as_ref().and_then(|all| all.get(key));
        raw.map_or(Ok(None), |raw| text(key, raw))
    }

    /// Whether a mount may be a request, by a look at the bytes: an escape may be of any character.
    pub(super) fn may_have_mount_requests(&self) -> bool {
        let directory = MOUNTS.rsplit('/').next().unwrap_or(MOUNTS);
        self.mounts
            .is_some_and(|raw| raw.get().contains(directory) || raw.get().contains('\\'))
    }

    /// The mounts, in their order.
    pub(super) fn mounts(&self) -> Result<Vec<RequestMount<'a>>> {
        let Some(raw) = self.mounts else {
            return Ok(Vec::new());
        };
        let mounts: Option<Vec<RequestMount<'a>>> =
            serde_json::from_str(raw.get()).about("config.json", "mounts does not parse")?;
        Ok(mounts.unwrap_or_default())
    }
}

fn text<'a>(key: &str, raw: &'a RawValue) -> Result<Option<Word<'a>>> {
    serde_json::from_str(raw.get()).about(format!("annotation {key}"), "is not a text")
}
