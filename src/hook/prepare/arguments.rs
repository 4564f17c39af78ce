//! The arguments of `hook prepare`: see the table in its documentation.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::hook::options;
use crate::hook::report::Report;
use crate::ldcache::Flags;

/// What a spec asks of the hook.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) links: Vec<Link>,
    pub(crate) by_path: Vec<ByPath>,
    /// Container directories whose libraries belong into ld.so.cache.
    pub(crate) ldcache_dirs: Vec<PathBuf>,
    /// What is known of the driver's libraries.
    pub(crate) libraries: Vec<Library>,
    /// The version of the host's driver.
    pub(crate) driver_version: Option<String>,
    /// What is left out.
    skip: Vec<Part>,
}

/// A part of the work that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Keeping the driver from making device nodes.
    DeviceNodeModification,
    /// The application profile.
    ApplicationProfile,
}

impl Part {
    fn parse(name: &OsStr) -> Option<Part> {
        match name.to_str()? {
            "disable-device-node-modification" => Some(Part::DeviceNodeModification),
            "update-application-profile" => Some(Part::ApplicationProfile),
            _ => None,
        }
    }
}

const OPTIONS: [&str; 7] = [
    "link",
    "by-path",
    "ldcache-dir",
    "library",
    "driver-version",
    "skip",
    "state-dir",
];

/// One symbolic link to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// The link's text.
    pub(crate) target: OsString,
    /// Where it is, an absolute path of the container in normal form.
    pub(crate) at: PathBuf,
}

/// What the loader's cache has to say of one library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// Where it is, an absolute path of the container in normal form.
    pub(crate) at: PathBuf,
    /// The name that programs ask for. A library without one is found by its file's name.
    pub(crate) soname: Option<OsString>,
    /// Its ABI.
    pub(crate) flags: Flags,
}

/// One link below `/dev/dri/by-path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByPath {
    /// The link's name.
    pub(crate) name: OsString,
    /// The node that it stands for, directly below `/dev/dri`.
    pub(crate) node: PathBuf,
}

impl Request {
    /// Parses the arguments; what is ignored is a line in `report`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Usage`] for a value that makes no sense, or none.
    pub(super) fn parse(arguments: Vec<OsString>, report: &mut Report<'_>) -> Result<Request> {
        let mut request = Request::default();
        for (option, value) in options::parse(arguments, &OPTIONS, report)? {
            // NVIDIA may give these parts new names.
            if option == "skip" && Part::parse(&value).is_none() {
                report.note(format!("--skip {}", value.display()), "unknown, ignored");
                continue;
            }
            request.take(option, value)?;
        }
        request.with_each_link_once()
    }

    /// Whether a part of the work is to be left out.
    pub(super) fn skips(&self, part: Part) -> bool {
        self.skip.contains(&part)
    }

    /// Leaves out links that were given before.
    ///
    /// # Errors
    /// A usage error if two links have the same place and lead to different targets.
    pub(crate) fn with_each_link_once(mut self) -> Result<Request> {
        // Sorted by their places, because comparing each with each takes long where there are many. As text: for paths in
        // normal form that is the same as by their parts.
        let mut sorted: Vec<(usize, &Link)> = self.links.iter().enumerate().collect();
        sorted.sort_by(|(_, a), (_, b)| a.at.as_os_str().cmp(b.at.as_os_str()));
        let mut repeated = vec![false; sorted.len()];
        for ((_, first), (number, second)) in sorted.iter().zip(sorted.iter().skip(1)) {
            if first.at.as_os_str() != second.at.as_os_str() {
                continue;
            }
            if first.target != second.target {
                let value = [second.target.as_os_str(), second.at.as_os_str()].join(OsStr::new("::"));
                let what = format!("already a link to {}", first.target.display());
                return Err(bad("link", &value, what));
            }
            if let Some(repeated) = repeated.get_mut(*number) {
                *repeated = true;
            }
        }
        let mut repeated = repeated.into_iter();
        self.links.retain(|_| repeated.next() != Some(true));
        Ok(self)
    }

    /// Takes one option (without its dashes). A link may be there twice afterwards: see [`Self::with_each_link_once`].
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn take(&mut self, name: &str, value: OsString) -> Result<()> {
        let option = name;
        match name {
            "link" => {
                let (target, at) = pair(option, &value)?;
                let link = Link {
                    target,
                    at: absolute(option, &value, at)?,
                };
                self.links.push(link);
            }
            "by-path" => {
                let (name, node) = pair(option, &value)?;
                let node = absolute(option, &value, node)?;
                if node.parent() != Some(Path::new("/dev/dri")) {
                    return Err(bad(option, &value, "the node is not directly below /dev/dri"));
                }
                if !is_one_name(&name) {
                    return Err(bad(option, &value, "the name of the link is not one name"));
                }
                let link = ByPath { name, node };
                if !self.by_path.contains(&link) {
                    self.by_path.push(link);
                }
            }
            "ldcache-dir" => {
                let directory = absolute(option, &value, value.clone())?;
                if !self.ldcache_dirs.contains(&directory) {
                    self.ldcache_dirs.push(directory);
                }
            }
            "library" => self.libraries.extend(library(option, &value)?),
            "skip" => self.skip.extend(Part::parse(&value)),
            // Read by crate::hook, which keeps the messages there.
            "state-dir" => {}
            _ => {
                let version = value.to_str().filter(|v| !v.is_empty());
                let version = version.ok_or_else(|| bad(option, &value, "not a version"))?;
                if self.driver_version.as_deref().is_some_and(|other| other != version) {
                    return Err(bad(option, &value, "another version was given before"));
                }
                self.driver_version = Some(version.to_owned());
            }
        }
        Ok(())
    }
}

/// Cuts `A::B`; both must be there, and nothing after them.
fn pair(option: &str, value: &OsStr) -> Result<(OsString, OsString)> {
    let bytes = value.as_bytes();
    let wrong = || bad(option, value, "not of the form A::B");
    let (first, second) = cut(bytes).ok_or_else(wrong)?;
    if first.is_empty() || second.is_empty() || cut(second).is_some() {
        return Err(wrong());
    }
    Ok((OsString::from_vec(first.to_vec()), OsString::from_vec(second.to_vec())))
}

/// Reads `BITS::PATH` or `BITS::PATH::SONAME`. Gives nothing for a word size from which no ABI of this machine follows:
/// then the hook looks into the file.
fn library(option: &str, value: &OsStr) -> Result<Option<Library>> {
    let wrong = || bad(option, value, "not of the form 32::PATH or 64::PATH::SONAME");
    let (bits, rest) = cut(value.as_bytes()).ok_or_else(wrong)?;
    let (path, soname) = cut(rest).map_or((rest, None), |(path, soname)| (path, Some(soname)));
    let at = absolute(option, value, OsString::from_vec(path.to_vec()))?;
    let soname = soname.map(OsStr::from_bytes);
    if soname.is_some_and(|name| name.is_empty() || !is_one_name(name) || cut(name.as_bytes()).is_some()) {
        return Err(wrong());
    }
    let flags = match bits {
        b"64" => Flags::of_this_machine(true),
        b"32" => Flags::of_this_machine(false),
        _ => None,
    };
    Ok(flags.map(|flags| Library {
        at,
        soname: soname.map(OsStr::to_owned),
        flags,
    }))
}

/// What is before the first `::` and what is after it.
fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(2).position(|two| two == b"::")?;
    Some((bytes.get(..at)?, bytes.get(at + 2..)?))
}

/// A path of the container that says where it is by itself: absolute, without `.` and `..`, and not the root.
fn absolute(option: &str, value: &OsStr, path: OsString) -> Result<PathBuf> {
    let path = PathBuf::from(path);
    // By its text: Path's own components hide `.` and doubled slashes.
    let mut parts = path.as_os_str().as_bytes().split(|b| *b == b'/');
    let from_root = parts.next().is_some_and(<[u8]>::is_empty);
    if !from_root || !parts.all(|part| !matches!(part, b"" | b"." | b"..")) {
        return Err(bad(option, value, "not an absolute path in normal form"));
    }
    Ok(path)
}

fn is_one_name(name: &OsStr) -> bool {
    !matches!(name.as_bytes(), b"." | b"..") && !name.as_bytes().contains(&b'/')
}

fn bad(option: &str, value: &OsStr, what: impl std::fmt::Display) -> Error {
    Error::usage(format!("--{option} {}", value.display()), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> (Result<Request>, String) {
        let mut lines = Vec::new();
        let mut report = Report::new("hook", Some("prepare"), &mut lines);
        let request = Request::parse(arguments.iter().map(OsString::from).collect(), &mut report);
        (request, String::from_utf8(lines).unwrap())
    }

    #[test]
    fn the_arguments_of_a_spec() {
        let (request, lines) = parse(&[
            "--link",
            "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
            "--by-path=pci-0000:41:00.0-card::/dev/dri/card1",
            "--ldcache-dir",
            "/usr/lib/x86_64-linux-gnu",
            "--driver-version",
            "580.95.05",
            "--skip=update-application-profile",
            "--link",
            "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
        ]);
        let request = request.unwrap();
        assert_eq!(lines, "");
        let link = Link {
            target: "libcuda.so.1".into(),
            at: "/usr/lib/x86_64-linux-gnu/libcuda.so".into(),
        };
        assert_eq!(request.links, [link]);
        let by_path = ByPath {
            name: "pci-0000:41:00.0-card".into(),
            node: "/dev/dri/card1".into(),
        };
        assert_eq!(request.by_path, [by_path]);
        assert_eq!(request.ldcache_dirs, [PathBuf::from("/usr/lib/x86_64-linux-gnu")]);
        assert_eq!(request.driver_version.as_deref(), Some("580.95.05"));
        assert!(request.skips(Part::ApplicationProfile) && !request.skips(Part::DeviceNodeModification));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_is_said_of_libraries() {
        let (request, lines) = parse(&[
            "--library=64::/lib/libcuda.so.580::libcuda.so.1",
            "--library=32::/lib32/libplain.so.1",
            "--library=128::/lib/libfuture.so.1",
        ]);
        assert_eq!(lines, "");
        let library = |at: &str, soname: Option<&str>, flags| Library {
            at: at.into(),
            soname: soname.map(Into::into),
            flags,
        };
        assert_eq!(
            request.unwrap().libraries,
            [
                library("/lib/libcuda.so.580", Some("libcuda.so.1"), Flags::X86_64),
                library("/lib32/libplain.so.1", None, Flags::LIBC6),
            ]
        );
    }

    #[test]
    fn what_a_newer_spec_may_say_is_ignored_with_a_line_each() {
        let (request, lines) = parse(&[
            "--frobnicate",
            "x",
            "--mode=2",
            "-v",
            "--skip",
            "tea",
            "--link",
            "a::/b",
            "word",
        ]);
        assert_eq!(request.unwrap().links.len(), 1);
        assert_eq!(
            lines,
            "tranche-oci: hook prepare: --frobnicate: unknown option, ignored\n\
             tranche-oci: hook prepare: --mode: unknown option, ignored\n\
             tranche-oci: hook prepare: -v: unknown option, ignored\n\
             tranche-oci: hook prepare: word: unexpected argument, ignored\n\
             tranche-oci: hook prepare: --skip tea: unknown, ignored\n"
        );
    }

    #[test]
    fn a_value_that_makes_no_sense_is_a_usage_error() {
        for arguments in [
            &["--link"][..],
            &["--link", "a"],
            &["--link", "::/b"],
            &["--link", "a::"],
            &["--link", "a::/b::/c"],
            &["--link", "a::b"],
            &["--link", "a::/"],
            &["--link", "a::/x/../b"],
            &["--link", "a::/x/./b"],
            &["--link", "a::/x//b"],
            &["--link", "a::/x/"],
            &["--link", "a::/b", "--link", "c::/b"],
            &["--by-path", "x::/dev/nvidia0"],
            &["--by-path", "x::/dev/dri/sub/card0"],
            &["--by-path", "../x::/dev/dri/card0"],
            &["--by-path", "..::/dev/dri/card0"],
            &["--ldcache-dir", "lib"],
            &["--library", "/b"],
            &["--library", "64::b"],
            &["--library", "64::/b::"],
            &["--library", "64::/b::c/d"],
            &["--library", "64::/b::c::d"],
            &["--driver-version", ""],
            &["--driver-version", "1", "--driver-version", "2"],
        ] {
            let error = parse(arguments).0.unwrap_err();
            assert_eq!(error.kind().exit_code(), 2, "{arguments:?}");
        }
    }
}
