//! Asks CUDA in a running container what it gives, and compares that with what the container's claims promise.
//!
//! The program `tranche-verify` is copied into the container by the container's engine, and runs there twice: with the
//! environment of the container's init, which is what is compared, and with the environment that the engine gives to
//! what it starts by exec. Engines leave out what CDI adds there.

mod command;
mod compare;
mod copied;
mod engine;
mod init;
mod report;

use crate::measured;
use compare::{Check, PromiseVerdict, Promised};
use copied::Copied;
use engine::{Container, ContainerEngine};
use report::CudaReport;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use tranche_bench::kept::MeasuredHere;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::ledger::Claim;
use tranche_core::own_programs;
use tranche_host::examine::{self, HostOptions};
use tranche_plan::share::SplitDevice;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{View, root_only};

/// Which container is asked, and how.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The container, by its name or id.
    pub container: String,
    /// The engine that has it; `None` for the one that knows the container.
    pub engine: Option<PathBuf>,
    /// Whether to allocate the largest block of memory that CUDA gives, for a moment.
    pub largest_allocation: bool,
    /// The path in the container at which tranche-verify is mounted; `None` to copy it there.
    pub at: Option<String>,
    /// The file of tranche-verify on this host; `None` for the one that was installed.
    pub program: Option<PathBuf>,
    /// How long CUDA may be silent.
    pub deadline: Duration,
    /// The directory of the ledger.
    pub state_dir: PathBuf,
    /// The host, whose devices are compared with what CUDA says.
    pub host: HostOptions,
}

/// What was found. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// The names of what the container holds.
    #[serde(skip)]
    promised: Vec<String>,
    container: Container,
    checks: Vec<Check>,
    /// What `tranche bench` has measured on this machine of the devices that the container has shares of.
    measured_here: Vec<MeasuredHere>,
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

/// Asks CUDA in the container, and compares.
///
/// # Errors
/// Returns an error if the container is not found or does not run, if the ledger cannot be read, or if tranche-verify
/// cannot be run there.
pub fn verify(options: &VerifyOptions) -> Result<Verified> {
    let (engine, container) = ContainerEngine::with(&options.container, options.engine.as_deref())?;
    let mut not_asked = Vec::new();
    let claims = claims_of(&container, options, &mut not_asked)?;
    let view = View::new(DeviceNames::of_host(&options.state_dir), 0);
    let promised = promised(&claims, &view, options, &mut not_asked)?;
    let measured_here = measured_here(&claims, &view.devices, options);

    let (environment, source) = init::environment(&container, &claims);
    if source.is_none() {
        not_asked.push("environment of the container's init: it cannot be read from here".to_owned());
    }
    let program = match &options.at {
        Some(path) => Copied::mounted(&engine, &container, path),
        None => Copied::into(&engine, &container, options.program.as_deref())?,
    };
    let asked = program
        .ask(&environment, options.largest_allocation, options.deadline)
        .map(|init| (init, program.ask(&[], false, options.deadline)));
    not_asked.extend(program.remove().err());
    let (how, (init, exec)) = (program.how, asked?);
    let exec = match exec {
        Ok(report) => Some(report),
        Err(error) => {
            not_asked.push(format!("a process that the engine starts by exec: {error}"));
            None
        }
    };

    let checks = compare::checks(&promised, &init);
    Ok(Verified {
        promised: promised.into_iter().map(|one| one.cdi).collect(),
        container,
        checks,
        measured_here,
        environment_of_init: source,
        program: how,
        init,
        exec,
        not_asked,
    })
}

/// The claims that the container holds. Only root can read the ledger.
fn claims_of(container: &Container, options: &VerifyOptions, not_asked: &mut Vec<String>) -> Result<Vec<Claim>> {
    if let Err(error) = root_only::check(&options.state_dir) {
        not_asked.push(format!("the claims of the container: {error}"));
        return Ok(Vec::new());
    }
    let Some(claims) = Claims::existing(&options.state_dir)? else {
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
fn promised(
    claims: &[Claim],
    view: &View,
    options: &VerifyOptions,
    not_asked: &mut Vec<String>,
) -> Result<Vec<Promised>> {
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    let inventory = match examine::quietly(&options.host) {
        Ok(inventory) => Some(inventory),
        Err(error) => {
            not_asked.push(format!("the devices of the host: {error}"));
            None
        }
    };
    let promised = |claim: &Claim| Promised::new(view.devices.name(claim), claim, inventory.as_ref());
    Ok(claims.iter().map(promised).collect())
}

/// What was measured of the devices that the claims are of, in the plan that the container's share is of.
fn measured_here(claims: &[Claim], names: &DeviceNames, options: &VerifyOptions) -> Vec<MeasuredHere> {
    let is_held = |split: &&SplitDevice| claims.iter().any(|claim| claim.device == split.key);
    let devices: Vec<SplitDevice> = names.shared().iter().filter(is_held).cloned().collect();
    measured::here(&options.state_dir, &options.host, names.driver(), &devices)
}

impl Verified {
    /// The result for people, with a line for each question.
    pub fn text(&self) -> String {
        let mut lines = vec![format!(
            "container {}: {}",
            self.container.shown(),
            match &self.promised[..] {
                [] => "holds no share".to_owned(),
                promised => promised.join(", "),
            }
        )];
        lines.extend(self.checks.iter().map(ToString::to_string));
        let measured = self.measured_here.iter();
        lines.extend(measured.map(|one| format!("{}: {one}", one.device)));
        if let Some(exec) = &self.exec {
            lines.extend(exec.differences(&self.init));
        }
        lines.extend(self.not_asked.iter().map(|line| format!("not asked: {line}")));
        lines.push(String::new());
        lines.join("\n")
    }

    /// How a command that verifies ends: [`Kind::Found`] for what is not as promised, [`Kind::Failed`] if CUDA did not
    /// answer in a container that nothing is promised to; `None` if all is as promised.
    pub fn fault(&self) -> Option<Kind> {
        let is_wrong =
            |check: &Check| matches!(check.verdict, PromiseVerdict::Less { .. } | PromiseVerdict::More { .. });
        match self.checks.iter().any(is_wrong) {
            true => Some(Kind::Found),
            false => self.init.error.as_ref().map(|_| Kind::Failed),
        }
    }
}

/// The file of tranche-verify, which is not built everywhere.
fn installed_program() -> Result<PathBuf, Error> {
    own_programs::find("tranche-verify")
        .map_err(|error| error.hint("install it with make install, which needs a C compiler, or give --program FILE"))
}
