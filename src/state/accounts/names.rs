//! Accounts by their names: from `/etc/passwd`, and those that are not in it by NSS.
//!
//! NSS is asked by a program of its own, with a deadline: it loads libraries that ask daemons and networks, and one of
//! them that hangs or fails must not do so in the broker.

use super::{Stamp, lock};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tranche_core::bounded;
use tranche_core::execute::Program;
use tranche_host::program;

/// How long NSS may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// For how long an answer of NSS is taken again.
const ANSWER_LASTS: Duration = Duration::from_secs(60);

/// For how long NSS is not asked again for a name that it did not answer for.
const FAILURE_LASTS: Duration = Duration::from_secs(10);

/// The most names of which the answers are kept.
const MOST_NAMES: usize = 4096;

/// The most bytes of `/etc/passwd`.
const MOST_PASSWD: u64 = 16 << 20;

/// The most bytes that NSS may say about one account.
const MOST_ANSWER: usize = 64 << 10;

/// The most bytes of a name. useradd(8) allows 32, and directories have longer ones.
const LONGEST_NAME: usize = 256;

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The uid of its account.
    Uid(u32),
    /// There is no such account.
    NoAccount,
    /// It was not asked for, or NSS did not answer.
    Unknown,
}

/// What NSS says about a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nss {
    /// Its line.
    Found(String),
    /// It has no such name.
    NotFound,
    /// It did not answer.
    Unknown,
}

/// Accounts by name. A number is the name of the account that has it as its uid.
#[derive(Debug)]
pub(super) struct Names {
    passwd: PathBuf,
    getent: Vec<PathBuf>,
    file: Mutex<(Option<Stamp>, PasswdFile)>,
    answers: Mutex<HashMap<String, (Instant, Answer)>>,
}

#[derive(Debug, Default)]
struct PasswdFile {
    by_name: HashMap<String, u32>,
    uids: HashSet<u32>,
}

impl Names {
    pub(super) fn new(passwd: PathBuf, getent: Vec<PathBuf>) -> Self {
        Self {
            passwd,
            getent,
            file: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// The account `name`, as far as it is known without asking NSS.
    pub(super) fn already_known(&self, name: &str) -> Answer {
        if let Some(uid) = self.in_file(name) {
            return Answer::Uid(uid);
        }
        let mut answers = lock(&self.answers);
        let lasts = |answer: Answer| match answer {
            Answer::Unknown => FAILURE_LASTS,
            Answer::Uid(_) | Answer::NoAccount => ANSWER_LASTS,
        };
        answers.retain(|_, (at, answer)| at.elapsed() < lasts(*answer));
        answers.get(name).map_or(Answer::Unknown, |(_, answer)| *answer)
    }

    /// The account `name`. Asks NSS if that is needed.
    pub(super) fn ask(&self, name: &str) -> Answer {
        let known = self.already_known(name);
        if known != Answer::Unknown || lock(&self.answers).contains_key(name) {
            return known;
        }
        // Not locked meanwhile: a name that takes long holds up no other one.
        let answer = self.by_nss(name);
        let mut answers = lock(&self.answers);
        if answers.len() >= MOST_NAMES {
            answers.clear();
        }
        answers.insert(name.to_owned(), (Instant::now(), answer));
        answer
    }

    fn in_file(&self, name: &str) -> Option<u32> {
        let mut file = lock(&self.file);
        let stamp = Stamp::of(&self.passwd);
        if file.0 != Some(stamp) {
            // Without the file, NSS knows its accounts, too.
            *file = (Some(stamp), PasswdFile::read(&self.passwd).unwrap_or_default());
        }
        match tranche_core::types::decimal(name) {
            Some(uid) => file.1.uids.contains(&uid).then_some(uid),
            None => file.1.by_name.get(name).copied(),
        }
    }

    fn by_nss(&self, name: &str) -> Answer {
        match self.nss("passwd", name) {
            Nss::Found(line) => uid_of(&line).map_or(Answer::Unknown, Answer::Uid),
            Nss::NotFound => Answer::NoAccount,
            Nss::Unknown => Answer::Unknown,
        }
    }

    /// The line of `key` in a database of NSS.
    pub(super) fn nss(&self, database: &str, key: &str) -> Nss {
        // A name that getent would take for an option, and one that no database of lines can have.
        if key.is_empty() || key.len() > LONGEST_NAME || key.starts_with('-') || key.contains([':', '\n', '\0']) {
            return Nss::NotFound;
        }
        let unknown = |why: &str| {
            tracing::warn!("{why}, so {key:?} of {database} is not known");
            Nss::Unknown
        };
        let Some(getent) = self.getent.iter().find(|program| program.is_file()) else {
            return unknown("getent was not found");
        };
        let mut command = Program::new(getent);
        command.args([database, key]);
        let ran = match program::run(command, "", PATIENCE, MOST_ANSWER) {
            Ok(ran) => ran,
            Err(error) => return unknown(&format!("{}: {error}", getent.display())),
        };
        match ran.status.code() {
            Some(0) => Nss::Found(String::from_utf8_lossy(&ran.stdout).into_owned()),
            // getent(1): "One or more supplied key could not be found in the database."
            Some(2) => Nss::NotFound,
            _ => unknown(&format!("{}: {}", getent.display(), ran.status)),
        }
    }
}

impl PasswdFile {
    fn read(path: &Path) -> Option<Self> {
        let bytes = bounded::read(bounded::regular_file(path).ok()?, MOST_PASSWD).ok()?;
        let mut file = Self::default();
        for line in String::from_utf8_lossy(&bytes).lines() {
            if let (Some((name, _)), Some(uid)) = (line.split_once(':'), uid_of(line)) {
                // The first line of a name counts, as for getpwnam(3).
                file.by_name.entry(name.to_owned()).or_insert(uid);
                file.uids.insert(uid);
            }
        }
        Some(file)
    }
}

/// The uid in the first line of passwd(5) in `text`.
fn uid_of(text: &str) -> Option<u32> {
    let uid = text.lines().next()?.split(':').nth(2)?;
    tranche_core::types::decimal(uid)
}
