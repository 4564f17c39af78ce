//! `tranche verify`: asks CUDA in a running container what it gives, and compares that with what the container's claims
//! promise.
//!
//! The program `tranche-verify` is copied into the container by the container's engine, and runs there twice: with the
//! environment of the container's init, which is what is compared, and with the environment that the engine gives to what
//! it starts by exec. Engines leave out what CDI adds there.

mod command;
mod compare;
mod copied;
mod engine;
mod init;
mod report;

use super::look::{self, LookArgs};
use super::out;
use super::place::{HostArgs, SpecDirArgs, StateArgs};
use crate::claims::Claims;
use crate::error::{Error, Kind};
use crate::examine;
use crate::held::specs::Specs;
use crate::held::{View, root_only};
use crate::ledger::Claim;
use crate::types::HostPath;
use anyhow::Result;
use compare::{Check, PromiseVerdict, Promised};
use copied::Copied;
use engine::{Container, ContainerEngine};
use report::CudaReport;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Ask CUDA in a running container what it gives, and compare that with what the container's share promises
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 as promised, 4 something is not as promised, 1 CUDA could not be asked.")]
pub(super) struct Args {
    /// The container, by its name or id
    container: String,
    /// The engine that has it: podman, docker, nerdctl, or the path of one [default: the one that knows the container]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<PathBuf>,
    /// Also allocate the largest block of memory that CUDA gives, for a moment
    #[arg(long)]
    largest_allocation: bool,
    /// Run the tranche-verify that is mounted at PATH in the container, instead of copying it there
    #[arg(long, value_name = "PATH")]
    at: Option<String>,
    /// The file of tranche-verify on this host [default: the one that was installed with tranche]
    #[arg(long, value_name = "FILE", env = "TRANCHE_VERIFY")]
    program: Option<PathBuf>,
    /// Give up if CUDA does not answer for this long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = look::seconds)]
    deadline: Duration,
    /// Print JSON; docs/shares.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    specs: SpecDirArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
}

/// The result, as `--json` prints it. docs/shares.md documents the fields.
#[derive(Debug, Serialize)]
struct Verified {
    container: Container,
    checks: Vec<Check>,
    /// Where the environment of the container's init was read; `null` if it could not be read.
    environment_of_init: Option<String>,
    /// How the program came into the container.
    program: String,
    /// What CUDA says to a process with the environment of the init.
    init: CudaReport,
    /// What CUDA says to a process that the engine starts by exec; `null` if that could not be asked.
    exec: Option<CudaReport>,
    /// What could not be asked, and why.
    not_asked: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (engine, container) = ContainerEngine::with(&args.container, args.engine.as_deref())?;
    let mut not_asked = Vec::new();
    let claims = claims_of(&container, args, &mut not_asked)?;
    let promised = promised(&claims, args, &mut not_asked)?;

    let (environment, source) = init::environment(&container, &claims);
    if source.is_none() {
        not_asked.push("environment of the container's init: it cannot be read from here".to_owned());
    }
    let program = match &args.at {
        Some(path) => Copied::mounted(&engine, &container, path),
        None => Copied::into(&engine, &container, args.program.as_deref())?,
    };
    let init = program.ask(&environment, args.largest_allocation, args.deadline)?;
    let exec = match program.ask(&[], false, args.deadline) {
        Ok(report) => Some(report),
        Err(error) => {
            not_asked.push(format!("a process that the engine starts by exec: {error}"));
            None
        }
    };
    let how = program.how.clone();
    not_asked.extend(program.remove().err());

    let checks = compare::checks(&promised, &init);
    let verified = Verified {
        container,
        checks,
        environment_of_init: source,
        program: how,
        init,
        exec,
        not_asked,
    };
    out::either(args.json, &verified, || verified.text(&promised))?;
    Ok(verified.exit_code())
}

/// The claims that the container holds. Only root can read the ledger.
fn claims_of(container: &Container, args: &Args, not_asked: &mut Vec<String>) -> Result<Vec<Claim>> {
    if let Err(error) = root_only::check(&args.state.state_dir) {
        not_asked.push(format!("the claims of the container: {error}"));
        return Ok(Vec::new());
    }
    let Some(claims) = Claims::existing(&args.state.state_dir)? else {
        return Ok(Vec::new());
    };
    let books = claims.books()?;
    for damaged in &books.damaged {
        not_asked.push(format!("a part of the ledger: {}", damaged.error));
    }
    let all = books.books.into_iter().flat_map(|book| book.claims);
    // A user's own engine may give any id to its container.
    let is_its = |claim: &Claim| claim.holder.container().is_some_and(|name| name.id == container.id);
    Ok(all.filter(is_its).collect())
}

/// What the claims promise, with what the host says about their devices.
fn promised(claims: &[Claim], args: &Args, not_asked: &mut Vec<String>) -> Result<Vec<Promised>> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let inventory = match examine::quietly(&args.host.options(&args.look)) {
        Ok(inventory) => Some(inventory),
        Err(error) => {
            not_asked.push(format!("the devices of the host: {error}"));
            None
        }
    };
    let view = View::new(Specs::read(&args.specs.dirs(), &args.state.state_dir), 0);
    let promised = |claim: &Claim| Promised::new(view.specs.name(claim), claim, inventory.as_ref());
    Ok(claims.iter().map(promised).collect())
}

impl Verified {
    fn text(&self, promised: &[Promised]) -> String {
        let mut lines = vec![format!(
            "container {}: {}",
            self.container.shown(),
            match promised {
                [] => "holds no share".to_owned(),
                promised => promised
                    .iter()
                    .map(|one| one.cdi.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        )];
        lines.extend(self.checks.iter().map(ToString::to_string));
        if let Some(exec) = &self.exec {
            lines.extend(exec.differences(&self.init));
        }
        lines.extend(self.not_asked.iter().map(|line| format!("not asked: {line}")));
        lines.push(String::new());
        lines.join("\n")
    }

    /// 4 for what is not as promised, and 1 if CUDA did not answer in a container that nothing is promised to.
    fn exit_code(&self) -> ExitCode {
        let is_wrong =
            |check: &Check| matches!(check.verdict, PromiseVerdict::Less { .. } | PromiseVerdict::More { .. });
        if self.checks.iter().any(is_wrong) {
            return out::code(Kind::Found);
        }
        match &self.init.error {
            Some(_) => out::code(Kind::Failed),
            None => ExitCode::SUCCESS,
        }
    }
}

/// The file of tranche-verify: beside this program in a build or an unpacked archive, or where it is installed.
fn installed_program() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().unwrap_or_default();
    let directory = own.parent().unwrap_or(&own);
    let places = [
        directory.join("tranche-verify"),
        directory.join("../libexec/tranche/tranche-verify"),
    ];
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.ok_or_else(|| {
        let there = HostPath::new(&places[1]).map_or_else(|_| places[1].display().to_string(), |path| path.to_string());
        Error::failed("tranche-verify", format!("not found beside tranche, nor as {there}"))
            .hint("install it with make install, which needs a C compiler, or give --program FILE")
    })
}
