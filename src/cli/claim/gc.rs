//! `tranche claim gc`: releases claims that have ended, and removes specifications without a claim.

use super::PlaceArgs;
use crate::out;
use crate::place::SpecDirArgs;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_broker::serve::thaw_left;
use tranche_core::claims::{Claims, Collected};
use tranche_core::error::{Error, line};
use tranche_core::ledger::Claim;
use tranche_core::ledger::process::Machine;
use tranche_core::text::shown;
use tranche_state::claim_spec;
use tranche_state::held::root_only;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: PlaceArgs,
    #[command(flatten)]
    specs: SpecDirArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let at = &args.at;
    let state_dir = &at.state.state_dir;
    root_only::check(state_dir)?;
    let thawed = thaw_left(state_dir);
    let claims = Claims::open(state_dir)?;
    // Locked to the end: `claim create` writes a specification before its claim, and holds the lock meanwhile.
    let locked = claims.lock()?;
    let Collected { ended, problems } = locked.collect()?;
    let mut problems: Vec<Error> = problems.into_iter().map(Error::from).collect();
    let is_whole = problems.is_empty();
    problems.extend(thawed.err());
    let mut removed = Vec::new();
    if is_whole {
        let books = locked.books()?;
        let claims: Vec<&Claim> = books.claims().collect();
        for dir in directories(&args.specs, &claims) {
            let swept = claim_spec::sweep(&dir, &claims, state_dir)?;
            removed.extend(swept.removed);
            problems.extend(swept.left);
        }
        problems.extend(claims.iter().filter_map(|claim| without_spec(claim)));
        let machine = locked.claims().machine();
        problems.extend(claims.iter().filter_map(|claim| without_end(claim, machine)));
        problems.extend(books.damaged.into_iter().map(|book| book.error));
    }
    // Nothing is printed before: a terminal that was stopped would keep every container with a share from starting.
    drop(locked);
    if !is_whole {
        out::note("no specification was removed, because part of the ledger could not be read");
    }
    if at.json {
        let problems: Vec<String> = problems.iter().map(|error| line(error)).collect();
        out::json(&serde_json::json!({ "returned": ended, "removed": removed, "problems": problems }))?;
    } else {
        out::note(format_args!(
            "{} released, {} removed",
            tranche_core::text::counted(ended, "claim"),
            tranche_core::text::counted(removed.len(), "specification")
        ));
    }
    Ok(out::complain_all(&problems))
}

/// The directories with specifications of claims: those that engines read, and those of the files that claims name.
fn directories(specs: &SpecDirArgs, claims: &[&Claim]) -> BTreeSet<PathBuf> {
    let said = claims
        .iter()
        .filter_map(|claim| Path::new(claim.spec_file.as_ref()?).parent());
    let dirs = specs.dirs().into_iter().chain(said.map(Path::to_owned));
    // One directory under two paths is looked at once.
    dirs.map(|dir| std::fs::canonicalize(&dir).unwrap_or(dir)).collect()
}

/// Reports a claim of which nobody sees when its container ends.
fn without_end(claim: &Claim, machine: &Machine) -> Option<Error> {
    let process = claim
        .process
        .as_ref()
        .filter(|process| machine.cannot_see_the_end_of(process))?;
    let cgroup = process
        .cgroup
        .as_ref()
        .map_or_else(String::new, |cgroup| format!(" {}", shown(&cgroup.path)));
    let error = Error::failed(
        claim.who(),
        format!("its cgroup{cgroup} has so many others below it that its end cannot be seen, and its claim stays"),
    );
    Some(error.hint("remove those cgroups, or give tranche claim release --force when the container has ended"))
}

/// Reports a claim whose specification another program has removed, so that no container can use the claim.
fn without_spec(claim: &Claim) -> Option<Error> {
    let file = claim.spec_file.as_ref()?;
    let is_gone = matches!(std::fs::symlink_metadata(file), Err(e) if e.kind() == std::io::ErrorKind::NotFound);
    let name = claim.name.as_ref()?;
    is_gone.then(|| {
        Error::failed(
            format!("claim {name}"),
            format!("its specification {file} was removed, so no container can use it"),
        )
        .hint(format!("tranche claim release {name}"))
    })
}
