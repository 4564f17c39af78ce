//! Reading wishes, with file, line and column in every error.

use super::wishes::{Latency, Trust, Wishes, Workload, WorkloadKind};
use crate::policy::Placed;
use crate::policy::read::{Document, Filler};
use crate::yaml::TextOrigin;
use tranche_core::error::{Error, Result};
use tranche_core::types::{MemorySize, Percent, ShareName};

/// The keys at the top.
#[derive(serde::Deserialize)]
#[serde(rename = "the wishes", rename_all = "camelCase")]
struct Top {
    version: Option<Placed<String>>,
    trust: Option<Placed<String>>,
    #[serde(default)]
    wishes: Vec<Placed<Fields>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "a wish", rename_all = "camelCase")]
struct Fields {
    name: Option<Placed<String>>,
    kind: Placed<String>,
    count: Option<Placed<u32>>,
    memory: Option<Placed<String>>,
    compute: Option<Placed<String>>,
    latency: Option<Placed<String>>,
    whole_gpu: Option<bool>,
    tenant: Option<Placed<String>>,
}

/// Reads wishes from text; `file` is its name in messages.
///
/// # Errors
/// Returns a usage error with line and column for text that is not valid YAML, an unknown key, an impossible value, and
/// two wishes that contradict each other.
pub fn read(file: &str, text: &str) -> Result<Wishes> {
    let document = Document {
        file,
        origin: TextOrigin::File,
    };
    let root = document.parse(text)?;
    let top: Top = Filler::of(&document, &root, "the wishes").fill()?;
    if let Some(version) = top.version.filter(|version| version.value != "v1") {
        let what = format!("version: \"{}\" is unknown", version.value);
        return Err(Error::usage(version.place.of(file), what).hint("write version: v1"));
    }
    if top.wishes.is_empty() {
        return Err(Error::usage(file, "has no wish").hint("write wishes: [{kind: notebook, count: 4, memory: 8Gi}]"));
    }
    let workloads = top.wishes.into_iter().enumerate();
    let wishes = Wishes {
        trust: word(file, top.trust)?.unwrap_or(Trust::Team),
        workloads: workloads
            .map(|(at, one)| workload(file, at, one))
            .collect::<Result<_>>()?,
        file: file.to_owned(),
    };
    wishes.check()?;
    Ok(wishes)
}

fn workload(file: &str, at: usize, Placed { place, value }: Placed<Fields>) -> Result<Workload> {
    let kind: WorkloadKind = in_place(file, &value.kind)?;
    let name = match &value.name {
        Some(name) => in_place(file, name)?,
        None => format!("{kind}{}", at + 1).parse::<ShareName>()?,
    };
    let memory: Option<MemorySize> = word(file, value.memory)?;
    let compute: Option<Percent> = word(file, value.compute)?;
    if let Some(count) = value.count.as_ref().filter(|count| count.value == 0) {
        let what = format!("{name}: count: 0 wishes for nothing");
        return Err(Error::usage(count.place.of(file), what).hint("write at least 1, or remove the wish"));
    }
    Ok(Workload {
        place,
        kind,
        count: value.count.map_or(1, |count| count.value),
        memory,
        compute,
        latency: word(file, value.latency)?.unwrap_or(Latency::Usual),
        whole_gpu: value.whole_gpu.unwrap_or(false),
        tenant: value.tenant.map(|tenant| tenant.value),
        name,
    })
}

fn word<T: std::str::FromStr<Err = Error>>(file: &str, text: Option<Placed<String>>) -> Result<Option<T>> {
    text.map(|text| in_place(file, &text)).transpose()
}

fn in_place<T: std::str::FromStr<Err = Error>>(file: &str, text: &Placed<String>) -> Result<T> {
    let value = text.value.parse();
    value.map_err(|error: Error| Error::usage(text.place.of(file), error))
}
