//! Whether tranche can write what it has to write.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::text::some;

/// A directory that tranche writes to, on a file system that takes no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoom {
    /// The directory.
    pub directory: PathBuf,
    /// Where the file system is mounted.
    pub at: PathBuf,
    /// What it lacks.
    pub lack: Lack,
}

/// What a file system lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// It is mounted read-only.
    ReadOnly,
    /// It has only this many free bytes.
    Bytes(u64),
    /// It can have no more files.
    Files,
}

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(without) = &subject.without_room else {
        return vec![Diagnosis::skipped("another machine is examined")];
    };
    let mut mounts: BTreeMap<&Path, Vec<&NoRoom>> = BTreeMap::new();
    for one in without {
        mounts.entry(&one.at).or_default().push(one);
    }
    let found: Vec<Diagnosis> = mounts.into_values().filter_map(|all| wrong(&all)).collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("there is room for specifications and for the state")],
        false => found,
    }
}

fn wrong(all: &[&NoRoom]) -> Option<Diagnosis> {
    let NoRoom { at, lack, .. } = all.first()?;
    let at = at.display();
    let directories: Vec<String> = all.iter().map(|one| one.directory.display().to_string()).collect();
    let (what, fix) = match lack {
        Lack::ReadOnly => (
            "is mounted read-only".to_owned(),
            Fix::command(format!("mount -o remount,rw {at}")),
        ),
        Lack::Bytes(bytes) => (
            format!("has {bytes} free bytes"),
            Fix::by_hand(format!(
                "free some (du -xh {at} shows what takes it), or make a tmpfs larger: mount -o remount,size=SIZE {at}"
            )),
        ),
        Lack::Files => (
            "can have no more files".to_owned(),
            Fix::by_hand(format!("remove some (du -x --inodes {at} shows where they are)")),
        ),
    };
    Some(Diagnosis::wrong(
        Finding::NoRoom,
        format!("{at} {what}, and tranche writes to {}", some(&directories)),
        "claims and refreshes fail, so no container with a share starts, and specifications stay as they are",
        fix,
    ))
}
