//! What a client asks for: one JSON object in a line. docs/broker.md describes the fields.
//!
//! Unknown fields are ignored, because a client may be newer. Unknown commands are refused.

use crate::broker::VERSION;
use crate::claim_spec::ClaimRequest;
use crate::error::{Error, Kind, Result};
use crate::ledger::ContainerName;
use crate::types::{DeviceKey, Promise, ShareName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::str::FromStr;

/// The most bytes of a container's id: containerd allows 76 (containerd, pkg/identifiers), the others use 64.
const LONGEST_ID: usize = 128;
/// The most bytes of the path of a bundle (PATH_MAX of the kernel).
const LONGEST_PATH: usize = 4096;

/// What a client asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum BrokerRequest {
    /// Make a device ready for the claims that the ledger has on it.
    Prepare(DeviceKey),
    /// End the MPS clients of a container.
    Drain(ContainerName),
    /// Start or stop the MPS daemon of a device.
    Mps(MpsAction, DeviceKey),
    /// Show the devices that are changed.
    MpsStatus,
    /// A container of a rootless engine takes something.
    Enter(EnterRequest),
    /// A container of a rootless engine has ended.
    Leave(ContainerName),
    /// Reserve shares under a name.
    Claim(Box<ClaimRequest>),
    /// Release what the user holds.
    Release {
        /// A claim, a share, or a container.
        what: String,
        /// Also if a container uses it.
        force: bool,
    },
    /// What the user holds.
    List,
    /// What the user holds, after status.json was brought up to date.
    Status,
}

/// What to do with an MPS daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MpsAction {
    /// Start it, and keep it until it is stopped.
    Start,
    /// Stop it; with `force` also if shares are held.
    Stop {
        /// Whether containers may lose the device.
        force: bool,
    },
    /// Stop it and start it.
    Restart,
}

/// What a container of a rootless engine takes.
#[derive(Debug, PartialEq)]
pub(crate) struct EnterRequest {
    pub(crate) device: DeviceKey,
    pub(crate) subject: EnterSubject,
    /// What its specification says that it was promised.
    pub(crate) size: Option<Promise>,
    pub(crate) container: ContainerName,
    /// The container's init, by the pid namespace of the process that asks.
    pub(crate) pid: u32,
}

/// Which part of a device.
#[derive(Debug, PartialEq)]
pub(crate) enum EnterSubject {
    /// The share of this name.
    Share(ShareName),
    /// Any free one of equal replicas.
    Any,
    /// The whole device.
    Whole,
    /// The claim of this name.
    Claim(String),
}

/// Whether a broker of version `own` answers requests of `version`: its own, and the one before.
pub fn speaks(version: u64, own: u64) -> bool {
    version >= 1 && (version == own || Some(version) == own.checked_sub(1))
}

/// Parses a line, without its end.
///
/// # Errors
/// Returns a usage error if the line is not a request that this broker answers.
pub(crate) fn parse(line: &[u8]) -> Result<BrokerRequest> {
    parse_as(line, VERSION)
}

fn parse_as(line: &[u8], own: u64) -> Result<BrokerRequest> {
    let value: Value = serde_json::from_slice(line).map_err(|e| wrong("is not JSON").from_source(e))?;
    let Some(fields) = value.as_object() else {
        return Err(wrong("is not a JSON object"));
    };
    match fields.get("version").and_then(Value::as_u64) {
        Some(version) if speaks(version, own) => {}
        Some(version) => {
            let before = if own > 1 {
                format!(" and {}", own - 1)
            } else {
                String::new()
            };
            let what =
                format!("it speaks version {own}{before} of its protocol, and the request has version {version}");
            return Err(Error::failed("broker", what).hint("restart the broker, so that it is the installed version"));
        }
        None => return Err(wrong("has no field version with a number")),
    }
    let Some(command) = fields.get("command").and_then(Value::as_str) else {
        return Err(wrong("has no field command with a text"));
    };
    read(command.to_owned(), value)
}

fn read(command: String, value: Value) -> Result<BrokerRequest> {
    Ok(match command.as_str() {
        "prepare" => BrokerRequest::Prepare(fields::<OfDevice>(value)?.device),
        "drain" => BrokerRequest::Drain(fields::<OfContainer>(value)?.container.checked()?),
        "mps" => fields::<MpsFields>(value)?.request()?,
        "enter" => BrokerRequest::Enter(fields::<EnterFields>(value)?.request()?),
        "leave" => BrokerRequest::Leave(fields::<OfContainer>(value)?.container.checked()?),
        "claim" => BrokerRequest::Claim(Box::new(fields::<ClaimFields>(value)?.request()?)),
        "release" => {
            let ReleaseFields { what, force } = fields(value)?;
            BrokerRequest::Release { what, force }
        }
        "list" => BrokerRequest::List,
        "status" => BrokerRequest::Status,
        _ => {
            const KNOWN: [&str; 9] = [
                "prepare", "drain", "mps", "enter", "leave", "claim", "release", "list", "status",
            ];
            return Err(Error::usage(format!("command {command}"), "unknown")
                .hint(format!("expected one of {}", KNOWN.join(", "))));
        }
    })
}

fn wrong(what: impl Display) -> Error {
    Error::new(Kind::Usage, "request", what)
}

fn fields<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|e| wrong("has a wrong field").from_source(e))
}

/// The value of a field that is text in a form of its own.
fn parsed<T: FromStr>(field: &str, text: &str) -> Result<T>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    text.parse()
        .map_err(|e| wrong(format_args!("has a wrong field {field}")).from_source(e))
}

fn maybe<T: FromStr>(field: &str, text: Option<String>) -> Result<Option<T>>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    text.map(|text| parsed(field, &text)).transpose()
}

#[derive(Deserialize)]
struct OfDevice {
    device: DeviceKey,
}

#[derive(Deserialize)]
struct OfContainer {
    container: ContainerFields,
}

#[derive(Deserialize)]
struct ContainerFields {
    id: String,
    bundle: String,
}

impl ContainerFields {
    fn checked(self) -> Result<ContainerName> {
        let Self { id, bundle } = self;
        // As runc's rule for ids (libcontainer, validateID): nothing that a table or a command line would have to quote.
        let is_plain = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte));
        match (id.len(), bundle.len()) {
            (1..=LONGEST_ID, 1..=LONGEST_PATH) if is_plain => Ok(ContainerName { bundle, id }),
            (1..=LONGEST_ID, 1..=LONGEST_PATH) => Err(wrong(
                "has a container whose id has other characters than letters, digits and _+-.",
            )),
            _ => Err(wrong("has a container whose id or bundle is empty or too long")),
        }
    }
}

#[derive(Deserialize)]
struct MpsFields {
    action: String,
    device: Option<DeviceKey>,
    #[serde(default)]
    force: bool,
}

impl MpsFields {
    fn request(self) -> Result<BrokerRequest> {
        let action = match self.action.as_str() {
            "start" => MpsAction::Start,
            "stop" => MpsAction::Stop { force: self.force },
            "restart" => MpsAction::Restart,
            "status" => return Ok(BrokerRequest::MpsStatus),
            other => {
                let known = ["start", "stop", "restart", "status"];
                return Err(Error::unknown(format!("action {other}"), &known));
            }
        };
        let device = self.device.ok_or_else(|| wrong("has no field device"))?;
        Ok(BrokerRequest::Mps(action, device))
    }
}

#[derive(Deserialize)]
struct EnterFields {
    device: DeviceKey,
    share: Option<String>,
    #[serde(default)]
    whole: bool,
    claim: Option<String>,
    size: Option<String>,
    container: ContainerFields,
    pid: u32,
}

impl EnterFields {
    fn request(self) -> Result<EnterRequest> {
        let subject = match (self.share, self.whole, self.claim) {
            (Some(name), false, None) if name == ShareName::ANY => EnterSubject::Any,
            (Some(name), false, None) => EnterSubject::Share(parsed("share", &name)?),
            (None, true, None) => EnterSubject::Whole,
            (None, false, Some(name)) => EnterSubject::Claim(name),
            _ => return Err(wrong("needs one of share, whole and claim")),
        };
        Ok(EnterRequest {
            device: self.device,
            subject,
            size: maybe("size", self.size)?,
            container: self.container.checked()?,
            pid: self.pid,
        })
    }
}

#[derive(Deserialize)]
struct ClaimFields {
    name: String,
    memory: Option<String>,
    compute: Option<String>,
    shares: Option<u32>,
    #[serde(default)]
    share: Vec<String>,
    device: Option<String>,
    #[serde(default)]
    once: bool,
    #[serde(default)]
    for_root: bool,
    ttl: Option<u64>,
    cdi_version: Option<String>,
}

impl ClaimFields {
    fn request(self) -> Result<ClaimRequest> {
        let names = self.share.iter().map(|name| parsed("share", name));
        Ok(ClaimRequest {
            memory: maybe("memory", self.memory)?,
            compute: maybe("compute", self.compute)?,
            shares: self.shares,
            names: names.collect::<Result<_>>()?,
            device: maybe("device", self.device)?,
            once: self.once,
            for_root: self.for_root,
            ttl: self.ttl,
            cdi_version: maybe("cdi_version", self.cdi_version)?,
            name: self.name,
        })
    }
}

#[derive(Deserialize)]
struct ReleaseFields {
    what: String,
    #[serde(default)]
    force: bool,
}

#[cfg(test)]
mod tests;
