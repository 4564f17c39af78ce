//! The arguments of the claim hooks: see the table in [`super`].

use crate::error::{Error, Result};
use crate::hook::report::Report;
use crate::ledger::{DeviceKey, Part, STATE_DIR};
use crate::types::ShareName;
use lexopt::Arg;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What a spec asks of the hook.
#[derive(Debug)]
pub(super) struct Request {
    /// The device; a release without one is of all.
    pub(super) device: Option<DeviceKey>,
    pub(super) label: String,
    /// What is claimed; a release needs to say it of a claim made beforehand alone.
    pub(super) what: Option<What>,
    pub(super) siblings: Siblings,
    pub(super) alone: bool,
    pub(super) nodes: Vec<PathBuf>,
    pub(super) daemon: Option<PathBuf>,
    pub(super) state_dir: PathBuf,
    pub(super) spec_file: Option<PathBuf>,
}

/// What is claimed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Part(Part),
    /// Any free one of equal replicas.
    Any,
    Claim(String),
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
        let mut whats: Vec<What> = Vec::new();
        let mut label = None;
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
                Arg::Long("share") => whats.push(match text(&mut parser)?.as_str() {
                    ShareName::ANY => What::Any,
                    name => What::Part(Part::share(name.parse()?)),
                }),
                Arg::Long("whole") => whats.push(What::Part(Part::Whole)),
                Arg::Long("claim") => whats.push(What::Claim(text(&mut parser)?)),
                Arg::Long("of") => siblings = siblings_of(&text(&mut parser)?),
                Arg::Long("alone") => alone = true,
                Arg::Long("node") => nodes.push(absolute(&parser.value().map_err(usage)?)?),
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
            (what, None) => what,
            _ => return Err(one_of()),
        };
        if what == Some(What::Any) && siblings.replicas == 0 {
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
            "--device", "GPU-1", "--label", "gpu 0", "--share", "a", "--of", "a,b", "--alone",
        ])
        .unwrap();
        assert_eq!(r.what().unwrap(), &What::Part(Part::share("a".parse().unwrap())));
        let joined = parse(&["--device=GPU-1", "--label=gpu 0", "--share=a", "--of=a,b", "--alone"]).unwrap();
        assert_eq!(format!("{joined:?}"), format!("{r:?}"));
        assert!(parse(&["--device", "GPU-1"]).unwrap().what().is_err());
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
            &["--device", "GPU-1", "--whole", "--share", "a"],
            &["--device", "GPU-1", "--share", "a.b"],
            &["--device", "GPU-1", "--share", "any"],
            &["--device", "GPU-1", "--share", "any", "--of", "a,b"],
            &["--device", "GPU-1", "--whole", "--state-dir", "rel"],
            &["--device", "GPU-1", "--whole", "--later"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
