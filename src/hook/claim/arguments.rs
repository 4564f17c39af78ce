//! The arguments of the claim hooks: see the table in [`super`].

use crate::error::{Error, Result};
use crate::hook::report::Report;
use crate::ledger::{Bounds, Part, Promise, STATE_DIR, Share};
use crate::types::{DeviceKey, ShareName};
use lexopt::Arg;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What a spec asks of the hook.
#[derive(Debug)]
pub(super) struct Request {
    /// The device; a release without one is of all.
    pub(super) device: Option<DeviceKey>,
    pub(super) label: String,
    /// Its name for engines, with that of the share.
    pub(super) asked_as: Option<String>,
    /// The most that may be promised of it.
    pub(super) bounds: Bounds,
    /// What is claimed; a release needs to say it of a claim made beforehand alone.
    pub(super) what: Option<What>,
    pub(super) siblings: Siblings,
    pub(super) alone: bool,
    pub(super) nodes: Vec<OwnNode>,
    pub(super) daemon: Option<PathBuf>,
    pub(super) state_dir: PathBuf,
    pub(super) spec_file: Option<PathBuf>,
}

/// A device node of the share.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OwnNode {
    /// In the container.
    pub(super) container: PathBuf,
    /// On the host.
    pub(super) host: PathBuf,
}

impl OwnNode {
    fn parse(text: &str) -> Result<Self> {
        let (container, host) = text.split_once(':').unwrap_or((text, text));
        Ok(Self {
            container: absolute(OsStr::new(container))?,
            host: absolute(OsStr::new(host))?,
        })
    }
}

/// What is claimed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Part(Part),
    /// Any free one of equal replicas, each of this size.
    Any(Promise),
    Claim {
        name: String,
        /// What the specification says that it was promised.
        promise: Option<Promise>,
    },
}

/// The shares that a device has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Siblings {
    replicas: u32,
    names: Vec<String>,
}

impl Siblings {
    pub(super) fn is_empty(&self) -> bool {
        self.replicas == 0 && self.names.is_empty()
    }

    /// How many equal replicas the device has; 0 where its shares have names that a person gave.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.replicas)
            .map(|n| n.to_string())
            .chain(self.names.iter().cloned())
    }
}

impl Request {
    /// What is claimed.
    ///
    /// # Errors
    /// Nothing is.
    pub(super) fn what(&self) -> Result<&What> {
        self.what.as_ref().ok_or_else(one_of)
    }

    /// The device that a claim is about.
    ///
    /// # Errors
    /// None is named.
    pub(super) fn device(&self) -> Result<&DeviceKey> {
        self.device
            .as_ref()
            .ok_or_else(|| Error::usage("arguments", "--device is missing"))
    }

    /// The command that does what somebody meant who gave a container two shares of this device.
    pub(super) fn several_as_one(&self) -> String {
        let device = self.label.trim_start_matches("gpu ");
        format!("tranche claim create --name NAME --shares 2 --of {device} gives several as one")
    }

    /// Parses the arguments; what is ignored is a line in `report`.
    ///
    /// # Errors
    /// A value that makes no sense; more than one thing to claim; a claim made beforehand without its device.
    pub(super) fn parse(arguments: Vec<OsString>, report: &mut Report<'_>) -> Result<Self> {
        let mut device: Option<DeviceKey> = None;
        let mut whats: Vec<Named> = Vec::new();
        let mut size: Option<Promise> = None;
        let mut bounds = Bounds::default();
        let mut label = None;
        let mut asked_as = None;
        let mut siblings = Siblings::default();
        let mut alone = false;
        let mut nodes = Vec::new();
        let mut daemon = None;
        let mut state_dir = PathBuf::from(STATE_DIR);
        let mut spec_file = None;
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(usage)? {
            match argument {
                Arg::Long("device") => device = Some(text(&mut parser)?.parse()?),
                Arg::Long("label") => label = Some(text(&mut parser)?),
                Arg::Long("as") => asked_as = Some(text(&mut parser)?),
                Arg::Long("share") => whats.push(match text(&mut parser)?.as_str() {
                    ShareName::ANY => Named::Any,
                    name => Named::Share(name.parse()?),
                }),
                Arg::Long("whole") => whats.push(Named::Whole),
                Arg::Long("claim") => whats.push(Named::Claim(text(&mut parser)?)),
                Arg::Long("size") => size = Some(text(&mut parser)?.parse()?),
                Arg::Long("capacity") => bounds = text(&mut parser)?.parse()?,
                Arg::Long("of") => siblings = siblings_of(&text(&mut parser)?),
                Arg::Long("alone") => alone = true,
                Arg::Long("node") => nodes.push(OwnNode::parse(&text(&mut parser)?)?),
                Arg::Long("daemon") => daemon = Some(absolute(&parser.value().map_err(usage)?)?),
                Arg::Long("state-dir") => state_dir = absolute(&parser.value().map_err(usage)?)?,
                Arg::Long("spec-file") => spec_file = Some(absolute(&parser.value().map_err(usage)?)?),
                // A claim hook that ignores what it does not know would promise what it does not keep.
                Arg::Long(name) => return Err(Error::usage(format!("--{name}"), "unknown option of a claim")),
                Arg::Short(letter) => return Err(Error::usage(format!("-{letter}"), "unknown option of a claim")),
                Arg::Value(value) => report.note(value.to_string_lossy(), "unexpected argument, ignored"),
            }
        }
        let mut whats = whats.into_iter();
        let what = match (whats.next(), whats.next()) {
            (what, None) => what.map(|what| what.with(size)).transpose()?,
            _ => return Err(one_of()),
        };
        if matches!(what, Some(What::Any(_))) && siblings.replicas == 0 {
            return Err(Error::usage(
                "arguments",
                "--share any needs --of with the number of replicas",
            ));
        }
        // A release of all that a container holds knows no claim by name: whose spec it would remove is then left open.
        if device.is_none() && what.is_some() {
            return Err(Error::usage("arguments", "--device is missing"));
        }
        let label = label
            .or_else(|| device.as_ref().map(DeviceKey::to_string))
            .unwrap_or_default();
        Ok(Self {
            device,
            label,
            asked_as,
            bounds,
            what,
            siblings,
            alone,
            nodes,
            daemon,
            state_dir,
            spec_file,
        })
    }
}

/// What is claimed, before its size is known.
enum Named {
    Share(ShareName),
    Any,
    Whole,
    Claim(String),
}

impl Named {
    /// # Errors
    /// A share without a size: the ledger could not say what fits beside it.
    fn with(self, size: Option<Promise>) -> Result<What> {
        match (self, size) {
            (Named::Share(name), Some(promise @ (Promise::Turns { .. } | Promise::Mps { .. }))) => {
                Ok(What::Part(Part::Shares(vec![Share { name, promise }])))
            }
            (Named::Any, Some(promise @ (Promise::Turns { .. } | Promise::Mps { .. }))) => Ok(What::Any(promise)),
            (Named::Share(_) | Named::Any, _) => Err(Error::usage(
                "arguments",
                "--share needs --size, like 1/10 or mps:7000:30",
            )
            .hint("write the specification anew with this tranche")),
            (Named::Whole, _) => Ok(What::Part(Part::Whole)),
            (Named::Claim(name), promise) => Ok(What::Claim { name, promise }),
        }
    }
}

fn one_of() -> Error {
    Error::usage("arguments", "one of --share, --whole and --claim is needed, once")
}

fn siblings_of(text: &str) -> Siblings {
    match text.parse() {
        Ok(replicas) => Siblings {
            replicas,
            names: Vec::new(),
        },
        Err(_) => Siblings {
            replicas: 0,
            names: text.split(',').map(str::to_owned).collect(),
        },
    }
}

fn text(parser: &mut lexopt::Parser) -> Result<String> {
    let value = parser.value().map_err(usage)?;
    value
        .into_string()
        .map_err(|v| Error::usage(v.display(), "is not valid UTF-8"))
}

fn absolute(value: &OsStr) -> Result<PathBuf> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(Error::usage(path.display(), "is not an absolute path"))
    }
}

fn usage(error: lexopt::Error) -> Error {
    Error::usage("arguments", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Request> {
        let mut lines = Vec::new();
        Request::parse(
            arguments.iter().map(OsString::from).collect(),
            &mut Report::new("hook", None, &mut lines),
        )
    }

    #[test]
    fn the_arguments_of_a_spec() {
        let r = parse(&[
            "--device",
            "GPU-11111111",
            "--label",
            "gpu 0",
            "--share",
            "a",
            "--size",
            "1/2",
            "--of",
            "a,b",
            "--alone",
        ])
        .unwrap();
        let share = Part::share("a".parse().unwrap(), "1/2".parse().unwrap());
        assert_eq!(r.what().unwrap(), &What::Part(share));
        let joined = parse(&[
            "--device=GPU-11111111",
            "--label=gpu 0",
            "--share=a",
            "--size=1/2",
            "--of=a,b",
            "--alone",
        ])
        .unwrap();
        assert_eq!(format!("{joined:?}"), format!("{r:?}"));
        assert!(parse(&["--device", "GPU-11111111"]).unwrap().what().is_err());
        assert!(parse(&[]).unwrap().device().is_err());
        assert_eq!(r.siblings.names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(r.alone);
        assert_eq!(siblings_of("3").names().collect::<Vec<_>>(), ["0", "1", "2"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in [
            &["--share", "a"][..],
            &["--claim", "a", "--spec-file", "/a"],
            &["--device", "../x", "--whole"],
            &["--device", "GPU-11111111", "--whole", "--share", "a", "--size", "1/2"],
            &["--device", "GPU-11111111", "--share", "a.b", "--size", "1/2"],
            &["--device", "GPU-11111111", "--share", "any", "--size", "1/2"],
            &[
                "--device",
                "GPU-11111111",
                "--share",
                "any",
                "--size",
                "1/2",
                "--of",
                "a,b",
            ],
            &["--device", "GPU-11111111", "--share", "any", "--of", "2"],
            &["--device", "GPU-11111111", "--share", "a"],
            &["--device", "GPU-11111111", "--share", "a", "--size", "whole"],
            &["--device", "GPU-11111111", "--share", "a", "--size", "1/0"],
            &["--device", "GPU-11111111", "--whole", "--capacity", "1"],
            &["--device", "GPU-11111111", "--whole", "--state-dir", "rel"],
            &["--device", "GPU-11111111", "--whole", "--later"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
