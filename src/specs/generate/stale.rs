//! Whether a specification that tranche wrote is older than the host and the policy that it was made from.

use super::leftover;
use crate::digests;
use tranche_core::error::{Result, line};
use tranche_host::examine::{self, HostOptions};
use tranche_plan::cdi::Problem;
use tranche_plan::cdi::header::{SpecOrigin, made_by};
use tranche_plan::cdi::registry::Loaded;
use tranche_plan::digest::Digest;
use tranche_plan::inventory::Inventory;
use tranche_plan::share::{self, Plan};
use tranche_state::planning::{self, PolicyOptions};

/// What the comparison found.
#[derive(Debug, Default)]
pub struct Staleness {
    /// Specifications that are stale.
    pub problems: Vec<Problem>,
    /// Specifications that could not be compared, and why.
    pub notes: Vec<String>,
}

/// Compares each of `files` that has a digest with the host and the `policy`. The host is examined only if there is
/// such a file.
///
/// # Errors
/// Returns an error if a host, an inventory or a policy was named and cannot be read. For what was not named there is
/// only a note.
pub fn find<'a>(
    files: impl Iterator<Item = &'a Loaded>,
    host: &HostOptions,
    policy: &PolicyOptions,
) -> Result<Staleness> {
    let files: Vec<&Loaded> = files.collect();
    if !files
        .iter()
        .any(|file| SpecOrigin::from_comments(&file.comments).is_some())
    {
        return Ok(Staleness::default());
    }
    match examine::quietly(host) {
        Ok(inventory) => {
            let plan = planning::policy(policy).and_then(|read| match read {
                Some(read) => share::plan(&read.policy, &inventory),
                None => Ok(Plan::default()),
            });
            let (digest, why) = match plan.and_then(|plan| digests::of_plan(&plan)) {
                Ok(policy) => (Some(policy), None),
                Err(error) if policy.file.is_some() => return Err(error),
                Err(error) => (None, Some(line(&error))),
            };
            let mut found = compare(files, &inventory, host, digest)?;
            why.into_iter().for_each(|why| found.note(why));
            Ok(found)
        }
        Err(error) if host.is_here() => {
            let mut found = Staleness::default();
            found.note(line(&error));
            Ok(found)
        }
        Err(error) => Err(error),
    }
}

/// As [`find`], with the inventory of the host, how it was made, and the digest of the plan of its policy; `None` if
/// the policy cannot be read or applied, and then only the host is compared.
///
/// # Errors
/// Returns an error if the inventory has no digest.
pub fn compare<'a>(
    files: impl IntoIterator<Item = &'a Loaded>,
    inventory: &Inventory,
    host: &HostOptions,
    policy: Option<Digest>,
) -> Result<Staleness> {
    let mut found = Staleness::default();
    let mut compared = Vec::new();
    for file in files {
        match SpecOrigin::from_comments(&file.comments) {
            Some(origin) if file.comments.first() == Some(&made_by()) => compared.push((file, origin)),
            Some(_) => found.skip(
                file,
                "another version of tranche wrote it; tranche cdi generate writes it again",
            ),
            None => {}
        }
    }
    if compared.is_empty() {
        return Ok(found);
    }
    if let Some(missing) = examine::missing(&inventory.degraded) {
        found.note(format_args!("the host was not examined completely: {missing}"));
        return Ok(found);
    }
    let (digest, options) = (digests::of_host(inventory)?, host.choices().join(" "));
    for (file, origin) in compared {
        if host.inventory.is_none() && origin.options != options {
            let why = match origin.options.as_str() {
                "" => format!("it was generated without {options}"),
                old => format!("it was generated with {old}; give validate the same options"),
            };
            found.skip(file, &why);
        } else if origin.host != digest {
            let what = "the driver, the GPUs, the MIG layout or the device nodes have changed since it was written";
            found.stale(file, what, "");
        } else if origin.policy.is_some_and(|old| policy.is_some_and(|now| now != old)) {
            let what = "the policy is not the one that it was written with";
            found.stale(file, what, ", or give validate the same --config");
        }
    }
    Ok(found)
}

impl Staleness {
    fn stale(&mut self, file: &Loaded, what: &str, or: &str) {
        let again = match file.is_refreshed() {
            true => "run tranche cdi refresh".to_owned(),
            false => format!(
                "run tranche cdi generate again, with --output {} and the options of the first time",
                leftover::output_of(file).display()
            ),
        };
        let what = format!("stale: {what}; {again}{or}");
        self.problems.push(Problem::new(&file.path, None, what));
    }

    fn skip(&mut self, file: &Loaded, why: &str) {
        let line = format!("{}: not checked whether it is stale: {why}", file.path.display());
        self.notes.push(line);
    }

    fn note(&mut self, why: impl std::fmt::Display) {
        self.notes
            .push(format!("not checked whether specifications are stale: {why}"));
    }
}
