//! A container of a rootless engine takes something.

use super::{as_text, container};
use crate::ledger::ContainerName;
use crate::types::{DeviceKey, Part, Promise, WaitTime};
use serde::{Deserialize, Serialize};
use std::ops::Not;

/// What a container of a rootless engine takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "EnterFields", into = "EnterFields")]
pub struct EnterRequest {
    /// The device, by its key in the ledger.
    pub device: DeviceKey,
    /// Which part of it.
    pub subject: EnterSubject,
    /// What its specification says that it was promised.
    pub size: Option<Promise>,
    /// The container.
    pub container: ContainerName,
    /// The container's init, by the pid namespace of the process that asks.
    pub pid: u32,
    /// The user of the container as whom its process will run, if the hook knows it.
    pub user: Option<u32>,
    /// How long to wait for what others hold.
    pub wait: WaitTime,
}

/// What is taken: the name of it alone, because its size follows from the plan.
#[derive(Debug, Clone, PartialEq)]
pub enum EnterSubject {
    /// A part of the device.
    Part(Part),
    /// The claim of this name.
    Claim(String),
}

/// The fields as they are sent. One of `share`, `whole` and `claim` says which part.
#[derive(Serialize, Deserialize)]
struct EnterFields {
    device: DeviceKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<String>,
    #[serde(default, skip_serializing_if = "Not::not")]
    whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "as_text")]
    size: Option<Promise>,
    #[serde(deserialize_with = "container::within_limits")]
    container: ContainerName,
    pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    #[serde(default, skip_serializing_if = "WaitTime::is_zero")]
    wait: WaitTime,
}

impl From<EnterRequest> for EnterFields {
    fn from(request: EnterRequest) -> Self {
        let (share, whole, claim) = match request.subject {
            EnterSubject::Part(part) => (part.suffix().map(str::to_owned), part == Part::Whole, None),
            EnterSubject::Claim(name) => (None, false, Some(name)),
        };
        Self {
            device: request.device,
            share,
            whole,
            claim,
            size: request.size,
            container: request.container,
            pid: request.pid,
            user: request.user,
            wait: request.wait,
        }
    }
}

impl TryFrom<EnterFields> for EnterRequest {
    type Error = String;

    fn try_from(fields: EnterFields) -> Result<Self, String> {
        let subject = match (fields.share, fields.whole, fields.claim) {
            (Some(name), false, None) => EnterSubject::Part(Part::of_share(&name).map_err(|e| format!("share {e}"))?),
            (None, true, None) => EnterSubject::Part(Part::Whole),
            (None, false, Some(name)) => EnterSubject::Claim(name),
            _ => return Err("expected one of share, whole and claim".to_owned()),
        };
        Ok(Self {
            device: fields.device,
            subject,
            size: fields.size,
            container: fields.container,
            pid: fields.pid,
            user: fields.user,
            wait: fields.wait,
        })
    }
}
