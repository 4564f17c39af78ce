//! `tranche-oci hook claim`: a container takes its share when it is made.

use super::options::{OnUnknown, ValueKind, default_state_dir, host_path, push_state_dir, read, wrong};
use super::{BoundPath, Program, verb_and_options};
use crate::error::{Error, Result};
use crate::types::{Bounds, DeviceKey, HostPath, Part, Promise, Subject, WaitTime};
use std::ffi::OsString;
use std::fmt;

/// A call of `hook claim`. The table of options is in the documentation of `hook::claim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimCall {
    /// The device.
    pub device: DeviceKey,
    /// Its name in messages.
    pub label: String,
    /// What is claimed.
    pub subject: Subject,
    /// The name under which an engine was asked for it: for people.
    pub asked_as: Option<String>,
    /// The shares that the device has.
    pub siblings: Siblings,
    /// The most that may be promised of the device to all holders together; `None`: 100 % of compute, and memory
    /// without a bound.
    pub bounds: Option<Bounds>,
    /// The container may hold nothing else of this device.
    pub alone: bool,
    /// The device nodes of the share. With them, the container may have no node of another device.
    pub nodes: Vec<BoundPath>,
    /// The pipe directory of the MPS daemon that must be running.
    pub daemon: Option<HostPath>,
    /// The broker changes the device for its claims, and must have done so before the container starts.
    pub prepare: bool,
    /// How long the hook waits for what others hold.
    pub wait: WaitTime,
    /// Where the ledger is.
    pub state_dir: HostPath,
}

/// The shares that a device has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Siblings {
    /// So many equal replicas, whose names are their numbers.
    Replicas(u32),
    /// Shares with these names; empty where nothing is known of them.
    Named(Vec<String>),
}

impl Siblings {
    /// Their names, in the order of the policy. A damaged specification may say more replicas than memory has room for.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        let named = match self {
            Siblings::Replicas(_) => &[][..],
            Siblings::Named(names) => names,
        };
        let numbers = (0..self.replicas()).map(|number| number.to_string());
        numbers.chain(named.iter().cloned())
    }

    /// How many equal replicas the device has; 0 where its shares have names that a person gave.
    pub fn replicas(&self) -> u32 {
        match self {
            Siblings::Replicas(replicas) => *replicas,
            Siblings::Named(_) => 0,
        }
    }

    fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(replicas) => Siblings::Replicas(replicas),
            Err(_) => {
                let names = text.split(',').filter(|name| !name.is_empty());
                Siblings::Named(names.map(str::to_owned).collect())
            }
        }
    }
}

impl fmt::Display for Siblings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Siblings::Replicas(replicas) => write!(f, "{replicas}"),
            Siblings::Named(names) => f.write_str(&names.join(",")),
        }
    }
}

impl ClaimCall {
    /// The hook's name.
    pub const VERB: &str = "claim";

    /// Seconds that the hook waits for the broker, in addition to the time for its own work. A driver without
    /// persistence mode takes many seconds until a daemon can use the device.
    pub const PREPARING: u32 = 40;

    pub(super) const OPTIONS: &[(&str, ValueKind)] = &[
        ("device", ValueKind::Text),
        ("label", ValueKind::Text),
        ("share", ValueKind::Text),
        ("whole", ValueKind::Flag),
        ("claim", ValueKind::Text),
        ("size", ValueKind::Text),
        ("as", ValueKind::Text),
        ("of", ValueKind::Text),
        ("capacity", ValueKind::Text),
        ("alone", ValueKind::Flag),
        ("node", ValueKind::Bound),
        ("daemon", ValueKind::Host),
        ("prepare", ValueKind::Flag),
        ("wait", ValueKind::Text),
        ("state-dir", ValueKind::Host),
        // Of a release, whose options these are as well.
        ("spec-file", ValueKind::Host),
    ];

    /// A claim on `subject` of `device`, with nothing else said about it.
    pub fn of(device: DeviceKey, label: String, subject: Subject) -> Self {
        Self {
            device,
            label,
            subject,
            asked_as: None,
            siblings: Siblings::Named(Vec::new()),
            bounds: None,
            alone: false,
            nodes: Vec::new(),
            daemon: None,
            prepare: false,
            wait: WaitTime::default(),
            state_dir: default_state_dir(),
        }
    }

    /// The whole command line. An option and its value are one argument, because engines parse the hooks of all shares
    /// under all their names at each start of a container.
    pub fn write(&self) -> Vec<String> {
        let mut options = vec![format!("--device={}", self.device), format!("--label={}", self.label)];
        let size = match &self.subject {
            Subject::Part(part, size) => {
                let share = part.suffix().map(|share| format!("--share={share}"));
                // The size of the whole device is the whole.
                let size = share.as_ref().map(|_| size);
                options.push(share.unwrap_or_else(|| "--whole".to_owned()));
                size
            }
            Subject::Claim(name, size) => {
                options.push(format!("--claim={name}"));
                size.as_ref()
            }
        };
        options.extend(size.map(|size| format!("--size={size}")));
        options.extend(self.asked_as.as_ref().map(|name| format!("--as={name}")));
        if self.siblings != Siblings::Named(Vec::new()) {
            options.push(format!("--of={}", self.siblings));
        }
        options.extend(self.bounds.map(|bounds| format!("--capacity={bounds}")));
        options.extend(self.alone.then(|| "--alone".to_owned()));
        options.extend(self.nodes.iter().map(|node| format!("--node={node}")));
        options.extend(self.daemon.as_ref().map(|directory| format!("--daemon={directory}")));
        options.extend(self.prepare.then(|| "--prepare".to_owned()));
        if self.wait != WaitTime::default() {
            options.push(format!("--wait={}", self.wait));
        }
        push_state_dir(&mut options, &self.state_dir);
        Program::Tranche.command(Self::VERB, options)
    }

    /// The claim that a hook with these arguments makes; `None` for any other hook, and for a claim that this version
    /// cannot read. Options that are unknown here are skipped: they do not change which share it is about.
    pub fn of_hook(args: &[String]) -> Option<Self> {
        let (program, verb, options) = verb_and_options(args)?;
        let is_claim = program == Program::Tranche && verb == Self::VERB;
        let options = options.iter().map(OsString::from).collect();
        is_claim.then(|| Self::parse(options, &mut |_| Ok(())).ok()).flatten()
    }

    /// Parses the arguments after the verb.
    ///
    /// # Errors
    /// Returns a usage error for a known option without a value or with an invalid one and for a claim without a
    /// device, a subject or a size that it needs, and the errors of `unknown`.
    pub fn parse(arguments: Vec<OsString>, unknown: OnUnknown<'_>) -> Result<Self> {
        let (mut device, mut label, mut size) = (None, None, None);
        let mut subjects = Vec::new();
        let mut asked_as = None;
        let mut siblings = Siblings::Named(Vec::new());
        let mut bounds = None;
        let mut alone = false;
        let mut nodes = Vec::new();
        let mut daemon = None;
        let mut prepare = false;
        let mut wait = WaitTime::default();
        let mut state_dir = default_state_dir();
        read(arguments, Self::OPTIONS, unknown, |name, value, _| {
            match name {
                "device" => device = Some(value.parse()?),
                "label" => label = Some(value),
                "share" | "whole" | "claim" => subjects.push((name, value)),
                "size" => size = Some(value.parse()?),
                "as" => asked_as = Some(value),
                "of" => siblings = Siblings::parse(&value),
                "capacity" => bounds = Some(value.parse()?),
                "alone" => alone = true,
                "node" => {
                    let node = BoundPath::parse(&value);
                    nodes.push(node.ok_or_else(|| wrong(name, &value, "is not an absolute path"))?);
                }
                "daemon" => daemon = Some(host_path(name, &value)?),
                "prepare" => prepare = true,
                "wait" => wait = value.parse()?,
                "state-dir" => state_dir = host_path(name, &value)?,
                _ => drop(host_path(name, &value)?),
            }
            Ok(())
        })?;
        let device: DeviceKey = device.ok_or_else(|| Error::usage("arguments", "--device is missing"))?;
        let [(option, name)] = &subjects[..] else {
            let what = "one of --share, --whole and --claim is needed, once";
            return Err(Error::usage("arguments", what));
        };
        let subject = subject(option, name, size)?;
        if matches!(subject, Subject::Part(Part::Any, _)) && siblings.replicas() == 0 {
            let what = "--share any needs --of with the number of replicas";
            return Err(Error::usage("arguments", what));
        }
        Ok(Self {
            label: label.unwrap_or_else(|| device.to_string()),
            device,
            subject,
            asked_as,
            siblings,
            bounds,
            alone,
            nodes,
            daemon,
            prepare,
            wait,
            state_dir,
        })
    }
}

/// # Errors
/// Returns a usage error for a share without a size: the ledger could not say what fits beside it.
fn subject(option: &str, name: &str, size: Option<Promise>) -> Result<Subject> {
    match (option, size) {
        ("whole", _) => Ok(Subject::WHOLE),
        ("claim", size) => Ok(Subject::Claim(name.to_owned(), size)),
        (_, Some(size @ (Promise::Slices { .. } | Promise::Turns { .. } | Promise::Mps { .. }))) => {
            Part::of_share(name).map(|part| Subject::Part(part, size))
        }
        (_, Some(Promise::Whole) | None) => {
            let error = Error::usage("arguments", "--share needs --size, like 1/10 or mps:7000:30");
            Err(error.hint("write the specification again with this tranche"))
        }
    }
}
