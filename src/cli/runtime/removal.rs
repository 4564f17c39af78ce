//! What a removal of tranche takes back in the files of engines.

use super::arguments::EngineFileArgs;
use super::files::Files;
use super::result;
use crate::out;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Kind, Result, parts};
use tranche_core::text::some;
use tranche_inspect::doctor::gather::replaceable;
use tranche_inspect::engine_config::by_hand::by_hand;
use tranche_inspect::engine_config::document::Syntax;
use tranche_inspect::engine_config::elsewhere::FilesElsewhere;
use tranche_inspect::engine_config::install::{Target, is_changed};
use tranche_inspect::engine_config::view::EngineView;
use tranche_plan::engines::Engine;

/// Takes back what tranche wrote into the files of all engines, and says so. Returns what is left: files that cannot be
/// changed, with what a person does without tranche, and files that name tranche's runtime and are not tranche's. With
/// `dry_run`, nothing is changed.
pub(crate) fn take_back(state_dir: &Path, dry_run: bool) -> Vec<Error> {
    let mut left = Vec::new();
    let mut elsewhere = FilesElsewhere::read(state_dir).unwrap_or_else(|error| {
        left.push(error);
        FilesElsewhere::default()
    });
    let mut is_shorter = false;
    for engine in Engine::ALL.iter().copied() {
        let mut paths: Vec<PathBuf> = match Files::new(&EngineFileArgs::of(engine, state_dir), false) {
            Ok(files) => files.changeable().map(Path::to_owned).collect(),
            Err(error) => {
                left.push(Error::new(Kind::Found, engine, "cannot be checked").from_source(error));
                continue;
            }
        };
        // The last first: a main file must not import one that is gone, and was changed after it.
        let more: Vec<PathBuf> = elsewhere.of(engine).rev().map(Path::to_owned).collect();
        paths.extend(
            more.into_iter()
                .filter(|path| !paths.contains(path))
                .collect::<Vec<_>>(),
        );
        let mut is_undone = false;
        for path in paths {
            let before = view(engine, &path);
            if is_changed(&path) {
                match undo(engine, &path, dry_run) {
                    Ok(()) => is_undone = true,
                    Err(error) => {
                        left.push(error);
                        continue;
                    }
                }
            }
            if !dry_run {
                is_shorter |= elsewhere.remove(engine, &path);
            }
            left.extend(named_by_others(engine, &path, before, dry_run));
        }
        if is_undone && !dry_run {
            out::note(format_args!("{engine}: the runtime is removed; {}", engine.restart()));
        }
    }
    if is_shorter {
        left.extend(elsewhere.write(state_dir).err());
    }
    left
}

/// Takes back what tranche wrote into one file. Root writes no file that another user could replace meanwhile, because
/// that user would choose which file is written, and with what.
fn undo(engine: Engine, path: &Path, dry_run: bool) -> Result<()> {
    let by_hand = |what: &str| {
        let hint = format!("{}; {}", by_hand(path), engine.restart());
        Error::new(Kind::Found, engine, format!("{}: {what}", path.display())).hint(hint)
    };
    let me = nix::unistd::geteuid().as_raw();
    if let Some(found) = replaceable(Path::new("/"), path, Some(me)) {
        let what = "still has what tranche wrote, and is not changed because a user can replace";
        return Err(by_hand(&format!("{what} {}", found.part.display())));
    }
    let refused = |error: Error| by_hand(&format!("still has what tranche wrote: {}", reason(&error, path)));
    let Some(change) = Target::read(path, Syntax::of(engine), "")
        .and_then(Target::undo)
        .map_err(refused)?
    else {
        return Ok(());
    };
    if dry_run {
        out::note(format_args!("{}: would be restored", path.display()));
        return Ok(());
    }
    change.install().map_err(refused)?;
    out::note(result::undone(&change));
    Ok(())
}

/// Why a file cannot be changed, without what its owner could do with the help of tranche.
fn reason(error: &Error, path: &Path) -> String {
    let (object, what, _) = parts(error);
    match Path::new(object) == path {
        true => what,
        false => format!("{object}: {what}"),
    }
}

fn view(engine: Engine, path: &Path) -> Option<EngineView> {
    let document = Target::read(path, Syntax::of(engine), "").ok()?.document;
    EngineView::of(engine, &document).ok()
}

/// The settings that still name the runtime, because a person or another program has written them.
fn named_by_others(engine: Engine, path: &Path, before: Option<EngineView>, dry_run: bool) -> Option<Error> {
    let before = before?;
    let ours: BTreeSet<&str> = before.of_tranche().map(|(name, _)| name).collect();
    let now = view(engine, path).filter(|_| !(dry_run && is_changed(path)))?;
    let mut named: Vec<String> = now
        .of_tranche()
        .map(|(name, _)| format!("the runtime {name}"))
        .collect();
    let default = now.default_runtime.as_deref().filter(|name| ours.contains(name));
    named.extend(default.map(|name| format!("the default runtime {name}")));
    if named.is_empty() {
        return None;
    }
    let what = format!(
        "{}: has {}, whose program goes, and tranche did not write it",
        path.display(),
        some(&named)
    );
    let hint = format!("remove it by hand; {}", engine.restart());
    Some(Error::new(Kind::Found, engine, what).hint(hint))
}
