//! The calls of tranche's claim hooks that are written in specifications: which device and share a name stands for, and
//! which state directory a specification belongs to.

use crate::cdi::{Device, Hook};
use crate::ledger::{Bounds, Promise, STATE_DIR};
use crate::types::{DeviceKey, ShareName};
use std::path::PathBuf;

/// Which of the two claim hooks is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Takes a share before a container starts.
    Claim,
    /// Gives it back after the container has ended.
    Release,
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    /// One share of a device.
    Share(ShareName),
    /// Any free one of a device's equal replicas.
    Any,
    /// The whole device.
    Whole,
    /// A claim that was made beforehand.
    Claim(String),
}

/// One call of a claim hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) verb: Verb,
    /// What it is about; `None` for the release of everything that a container holds.
    pub(super) subject: Option<Subject>,
    /// The device's key in the ledger.
    pub(super) device: Option<DeviceKey>,
    /// How much of the device the share is, or the claim was promised.
    pub(super) size: Option<Promise>,
    /// The most that may be promised of the device to all holders together.
    pub(super) bounds: Bounds,
    /// The shares that the device has, in the order of the policy.
    pub(super) siblings: Vec<String>,
    /// Where the ledger is.
    pub(super) state_dir: PathBuf,
    /// The specification of a claim that was made beforehand.
    pub(super) spec_file: Option<PathBuf>,
}

impl Call {
    /// The call that `hook` makes, if it is one of tranche's claim hooks. Options that are unknown here are skipped: they
    /// do not change which device and which state directory it is about.
    pub(super) fn of(hook: &Hook) -> Option<Self> {
        let mut args = hook.args.iter().map(String::as_str);
        let verb = match (args.next()?, args.next()?, args.next()?) {
            ("tranche-oci", "hook", "claim") => Verb::Claim,
            ("tranche-oci", "hook", "release") => Verb::Release,
            _ => return None,
        };
        let mut call = Call {
            verb,
            subject: None,
            device: None,
            size: None,
            bounds: Bounds::default(),
            siblings: Vec::new(),
            state_dir: PathBuf::from(STATE_DIR),
            spec_file: None,
        };
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (arg, None),
            };
            let mut value = || value.or_else(|| args.next()).unwrap_or_default();
            match name {
                "--whole" => call.subject = Some(Subject::Whole),
                "--share" => {
                    call.subject = match value() {
                        "any" => Some(Subject::Any),
                        name => Some(Subject::Share(name.parse().ok()?)),
                    }
                }
                "--claim" => call.subject = Some(Subject::Claim(value().to_owned())),
                "--device" => call.device = Some(value().parse().ok()?),
                "--size" => call.size = Some(value().parse().ok()?),
                "--capacity" => call.bounds = value().parse().ok()?,
                "--of" => call.siblings = siblings(value()),
                "--state-dir" => call.state_dir = PathBuf::from(value()),
                "--spec-file" => call.spec_file = Some(PathBuf::from(value())),
                _ => {}
            }
        }
        Some(call)
    }

    /// The claim hook of `device`, if it has one.
    pub(super) fn of_device(device: &Device) -> Option<Self> {
        let calls = device.edits.hooks.iter().filter_map(Call::of);
        calls.into_iter().find(|call| call.verb == Verb::Claim)
    }
}

/// `10` means the replicas 0 to 9; otherwise the names themselves.
fn siblings(text: &str) -> Vec<String> {
    /// More replicas than this are not believed of a specification that somebody else may have written.
    const MOST: u32 = 100_000;
    match text.parse::<u32>() {
        Ok(count) => (0..count.min(MOST)).map(|n| n.to_string()).collect(),
        Err(_) => text.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(args: &[&str]) -> Hook {
        Hook {
            hook_name: "createRuntime".into(),
            path: "/usr/bin/tranche-oci".into(),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            ..Hook::default()
        }
    }

    #[test]
    fn what_derive_writes_is_read() {
        let call = Call::of(&hook(&[
            "tranche-oci",
            "hook",
            "claim",
            "--device=GPU-11111111",
            "--label=gpu 0",
            "--share=3",
            "--size=mps:100:10",
            "--capacity=200:100",
            "--of=4",
            "--new=option",
            "--state-dir=/s",
        ]));
        let call = call.unwrap();
        assert_eq!(call.verb, Verb::Claim);
        assert_eq!(call.subject, Some(Subject::Share("3".parse().unwrap())));
        assert_eq!(call.device, Some("GPU-11111111".parse().unwrap()));
        assert_eq!(call.size, Some("mps:100:10".parse().unwrap()));
        assert_eq!(call.bounds, "200:100".parse().unwrap());
        assert_eq!(call.siblings, ["0", "1", "2", "3"]);
        assert_eq!(call.state_dir, PathBuf::from("/s"));
        let call = Call::of(&hook(&[
            "tranche-oci",
            "hook",
            "release",
            "--device=GPU-11111111",
            "--claim=train",
            "--spec-file",
            "/c/x.yaml",
        ]));
        let call = call.unwrap();
        assert_eq!(call.subject, Some(Subject::Claim("train".into())));
        assert_eq!(call.spec_file, Some("/c/x.yaml".into()));
        assert_eq!(call.state_dir, PathBuf::from(STATE_DIR));
    }

    #[test]
    fn other_hooks_are_not_calls() {
        assert_eq!(Call::of(&hook(&["nvidia-cdi-hook", "hook", "claim"])), None);
        assert_eq!(Call::of(&hook(&["tranche-oci", "hook", "prepare"])), None);
        assert_eq!(Call::of(&hook(&["tranche-oci", "hook"])), None);
        assert_eq!(
            Call::of(&hook(&["tranche-oci", "hook", "claim", "--device=../x"])),
            None
        );
    }
}
