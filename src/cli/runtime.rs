//! `tranche runtime`: adds the runtime to an engine's configuration, and removes it.
//!
//! The options of `nvidia-ctk runtime configure` have the same meaning here. Under the name `nvidia-ctk`, the defaults
//! are NVIDIA's, too.

mod annotations;
mod arguments;
mod files;
mod program;
mod removal;
mod result;

use super::out;
use anyhow::Result;
use arguments::{ConfigureArgs, EngineFileArgs};
use files::Files;
pub(super) use removal::take_back;
use std::process::ExitCode;
use tranche_inspect::engine_config::check::{Candidate, Verdict, check};
use tranche_inspect::engine_config::elsewhere::FilesElsewhere;
use tranche_inspect::engine_config::install::FileChange;
use tranche_state::held::root_only;

/// The verbs of `tranche runtime`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Add tranche's runtime to the configuration of an engine, and turn CDI on
    Configure(Box<ConfigureArgs>),
    /// Remove tranche's runtime from the configuration of an engine, and restore the original files
    Unconfigure(EngineFileArgs),
}

/// Runs the verb.
///
/// # Errors
/// Returns the error of the verb.
pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Configure(args) => configure(args),
        Verb::Unconfigure(args) => unconfigure(args),
    }
}

fn configure(args: &ConfigureArgs) -> Result<ExitCode> {
    let is_nvidia = program::is_called_as_nvidia();
    args.check(is_nvidia)?;
    let settings = args.settings(is_nvidia)?;
    let engine = args.file.runtime;
    let files = Files::new(&args.file, is_nvidia)?;
    let read = files.read(args)?;
    let low_level = read.low_level_program(engine, &settings);
    let edited = read.edited(engine, &settings)?;
    if edited.changes.is_empty() {
        out::note(annotations::line(engine));
        out::note(format_args!("{engine}: nothing to change"));
        return Ok(ExitCode::SUCCESS);
    }
    let main = Candidate {
        path: &files.main,
        text: &edited.main,
    };
    let drop_in = files.drop_in.as_deref().zip(edited.drop_in.as_deref());
    let drop_in = drop_in.map(|(path, text)| Candidate { path, text });
    let name = settings.name.as_str();
    match check(engine, args.program(), &main, drop_in.as_ref(), name)? {
        Verdict::Accepted => {}
        Verdict::NotChecked(why) => {
            tracing::info!("{engine}: the changed configuration is not checked by the engine: {why}");
        }
        Verdict::RefusesPresent(why) => tracing::warn!("{engine}: {why}; the change is made nevertheless"),
    }
    if let Some(program) = low_level {
        out::note(format_args!(
            "{engine}: its present runtime is {program}; tranche runs runc or crun from PATH, unless runtime.runtimes in \
             {} names {program}",
            tranche_plan::policy::read::DEFAULT_FILE
        ));
    }
    if args.file.dry_run {
        result::show(&edited.changes, is_nvidia)?;
        return Ok(ExitCode::SUCCESS);
    }
    note_elsewhere(&args.file, &edited.changes, true)?;
    install(&edited.changes)?;
    for change in &edited.changes {
        let what = if change.before().is_some() {
            "changed"
        } else {
            "created"
        };
        out::note(format_args!("{}: {what}", change.path().display()));
    }
    out::note(annotations::line(engine));
    out::note(format_args!(
        "{engine}: runtime {name} is configured; {}",
        engine.restart()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Installs all changes. If one cannot be made, those before it are taken back.
fn install(changes: &[FileChange]) -> Result<()> {
    for (index, change) in changes.iter().enumerate() {
        if let Err(mut error) = change.install() {
            for done in changes.iter().take(index).rev() {
                if let Err(other) = done.revert() {
                    error = error.and_hint(other);
                }
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Notes for a removal of tranche which of these files are not where it looks for them anyway, or that they are no
/// longer changed. A user other than root has no such list: the removal of a package changes nothing in a home.
fn note_elsewhere(args: &EngineFileArgs, changes: &[FileChange], is_changed: bool) -> Result<()> {
    let (engine, state_dir) = (args.runtime, &args.state.state_dir);
    if root_only::check(state_dir).is_err() {
        return Ok(());
    }
    let usual = Files::new(&EngineFileArgs::of(engine, state_dir), false)?;
    let mut list = FilesElsewhere::read(state_dir)?;
    let mut is_other = false;
    for path in changes.iter().map(FileChange::path) {
        is_other |= match is_changed {
            true => usual.changeable().all(|usual| usual != path) && list.add(engine, path),
            false => list.remove(engine, path),
        };
    }
    if is_other {
        list.write(state_dir)?;
    }
    Ok(())
}

fn unconfigure(args: &EngineFileArgs) -> Result<ExitCode> {
    let engine = args.runtime;
    let files = Files::new(args, false)?;
    let changes = files.undone(engine)?;
    if changes.is_empty() {
        out::note(format_args!(
            "{engine}: nothing to remove: tranche has not changed {}",
            files.shown()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        result::show(&changes, false)?;
        return Ok(ExitCode::SUCCESS);
    }
    for change in &changes {
        change.install()?;
        out::note(result::undone(change));
    }
    note_elsewhere(args, &changes, false)?;
    out::note(format_args!("{engine}: the runtime is removed; {}", engine.restart()));
    Ok(ExitCode::SUCCESS)
}
