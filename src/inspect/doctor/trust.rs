//! Whether root alone can write what root's engines trust.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tranche_core::text::some;

/// What root's engines do with a file or a directory that they trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trusted {
    /// They run the hooks that it names as root.
    Specification,
    /// They execute it as root.
    Program,
    /// It decides who gets which GPU.
    Policy,
    /// It says what they execute.
    EngineFile,
}

/// Something that root's engines trust, and that a user other than root can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaceable {
    /// What is trusted: an absolute path, as it is written where it is named.
    pub path: PathBuf,
    /// The part of the way to it that the user can change: a directory, a link, or the file itself.
    pub part: PathBuf,
    /// Who can.
    pub by: OtherWriter,
    /// The last link on the way to that part.
    pub link: Option<PathBuf>,
}

/// Who can change a file or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherWriter {
    /// Its owner, by the number of the user.
    Owner(u32),
    /// Those whom its mode lets.
    Mode(u32),
}

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(replaceable) = &subject.replaceable else {
        return vec![Diagnosis::skipped("the owners of files are not shown here")];
    };
    // One directory that others can write is one cause, whatever is in it.
    let mut parts: BTreeMap<&Path, Vec<&(Trusted, Replaceable)>> = BTreeMap::new();
    for one in replaceable {
        parts.entry(one.1.part.as_path()).or_default().push(one);
    }
    let found: Vec<Diagnosis> = parts.into_values().filter_map(|all| wrong(subject, &all)).collect();
    match found.is_empty() {
        true => vec![Diagnosis::good(
            "root alone can write specifications, the policy, and the programs and the files of engines",
        )],
        false => found,
    }
}

fn wrong(subject: &DoctorSubject, all: &[&(Trusted, Replaceable)]) -> Option<Diagnosis> {
    let (trusted, first) = all.first()?;
    let part = first.part.display();
    let can = match first.by {
        OtherWriter::Owner(user) => format!("belongs to user {user}, who"),
        OtherWriter::Mode(mode) => format!("has mode {mode:04o}, so a user other than root"),
    };
    let paths: BTreeSet<String> = all.iter().map(|(_, one)| one.path.display().to_string()).collect();
    let paths: Vec<String> = paths.into_iter().collect();
    let what = match paths.as_slice() {
        [only] if *only == part.to_string() => "can change it".to_owned(),
        paths => format!("can replace {}", some(paths)),
    };
    let kinds: BTreeSet<Trusted> = all.iter().map(|(trusted, _)| *trusted).collect();
    let why: Vec<&str> = kinds.into_iter().map(why).collect();
    Some(Diagnosis::wrong(
        Finding::OthersCanWrite,
        format!("{part} {can} {what}"),
        why.join("; "),
        fix(subject, *trusted, first),
    ))
}

fn why(trusted: Trusted) -> &'static str {
    match trusted {
        Trusted::Specification => "engines run as root the hooks that a specification names",
        Trusted::Program => "engines run it as root at every start of a container",
        Trusted::Policy => "root's refresh applies each change of it, and it decides who gets which GPU",
        Trusted::EngineFile => "the engine runs as root what its configuration and its hooks name",
    }
}

/// What gives it back to root. What was in it until now is not made safe by that.
fn fix(subject: &DoctorSubject, trusted: Trusted, found: &Replaceable) -> Fix {
    let Replaceable { path, part, by, link } = found;
    let (shown, at) = (path.display(), part.display());
    match (link, by) {
        (Some(link), _) if link == path => Fix::by_hand(format!(
            "read what it says, then put it in the place of the link: cp --remove-destination \"$(readlink -f {shown})\" {shown}"
        )),
        (Some(link), _) => Fix::by_hand(format!(
            "put a directory of root's in the place of the link {}, with the files that are wanted",
            link.display()
        )),
        (None, _) if trusted == Trusted::Program && part != path => {
            Fix::by_hand(format!("install {shown} where root alone can write, such as /usr/bin"))
        }
        // What does not exist can be made by anybody.
        (None, OtherWriter::Mode(mode)) if mode & 0o1000 != 0 => {
            Fix::by_hand(format!("make {shown} as root, or keep it elsewhere"))
        }
        (None, OtherWriter::Owner(user)) if subject.is_home(*user, part) => Fix::by_hand(format!(
            "keep it in a directory of root's, such as /etc/tranche, and not in {at}, which is a user's own"
        )),
        (None, OtherWriter::Owner(_)) => Fix::command(format!("chown root: {at} && chmod go-w {at}")),
        (None, OtherWriter::Mode(_)) => Fix::command(format!("chmod go-w {at}")),
    }
}

impl DoctorSubject {
    /// Whether `path` is in the home of a user of the machine's own list (passwd(5)).
    fn is_home(&self, user: u32, path: &Path) -> bool {
        let users = std::fs::read_to_string(self.at("/etc/passwd")).unwrap_or_default();
        let mut homes = users.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_user = fields.get(2)?.parse() == Ok(user);
            fields.get(5).filter(|_| is_user).map(|home| self.at(home))
        });
        path.starts_with(self.at("/home")) || homes.any(|home| home != self.root && path.starts_with(home))
    }
}
