//! `tranche cdi generate`: from a host to a specification.
//!
//! The options of `nvidia-ctk cdi generate`, with their other names and environment variables, mean the same
//! here, so that a script only changes the program's name; a list may be one value with commas, as there. One difference is
//! intended: for a mode other than `nvml`, the kind is the one that NVIDIA's runtime requests (`nvidia.com/gds`), while
//! NVIDIA's command line writes `nvidia.com/gpu` for every mode.

mod arguments;
mod hints;
mod hook;
mod options;
mod outcome;
mod variables;

pub(super) use arguments::Args;
pub(in crate::cli) use hook::hook_beside_us;
pub(super) use variables::take_nvidia_variables;

use super::super::earlier;
use super::super::look;
use super::super::out;
use super::super::place::StateArgs;
use super::super::sharing;
use super::leftover;
use crate::cdi::encode::{Format, encode, file_of};
use crate::cdi::header::{self, Origin};
use crate::cdi::{LeftOut, Spec, build, write};
use crate::derive::{self, Mode, Sharing};
use crate::edits::Derived;
use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::share::Plan;
use crate::text::some;
use crate::types::CdiKind;
use arguments::FileArgs;
use outcome::Outcome;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(super) fn run(mut args: Args) -> Result<ExitCode> {
    take_nvidia_variables(&mut args.host, &mut args.look)?;
    let mut options = options::options(&args)?;
    args.look.take_feature_flags(&args.what.feature_flags);
    let inventory = look::inventory(&args.host, &args.look)?;
    let outcome = Outcome::of(&inventory, options.mode, args.file.degraded);
    if args.host.is_here()
        && let Some(hook) = &options.hook
    {
        hook::warn_if_missing(hook);
    }
    let mut origin = Origin {
        host: inventory.digest()?,
        policy: None,
        options: look::choices(&args.host, &args.look),
    };
    // Only these modes have shares.
    if matches!(options.mode, Mode::Auto | Mode::Nvml) {
        options.sharing = sharing::of(&inventory, &args.config, &args.state)?;
        let plan = options.sharing.as_ref().map(|s| &s.plan);
        origin.policy = Some(plan.unwrap_or(&Plan::default()).digest()?);
        options.sharing = with_held(options.sharing, &inventory, &args.state)?;
    }
    let derived = derive::derive(&inventory, &options).map_err(|error| outcome.of_failure(error))?;
    if derived.kind.crashes_engines() {
        let what = "engines crash when they read a vendor or a class of one letter";
        return Err(Error::usage(&derived.kind, what).hint("choose a longer one with --vendor or --class"));
    }
    for warning in &derived.warnings {
        tracing::warn!("{}: {}", warning.object, warning.text);
    }
    let output = PathBuf::from(std::mem::take(&mut args.file.output).unwrap_or_default());
    let derived_kind = derived.kind.clone();
    let by_kind = derived.by_kind();
    if output.as_os_str().is_empty() {
        let by_coherence = |kind: &CdiKind| coherence(&derived_kind, kind).is_some();
        if let Some(renamed) = by_kind.iter().skip(1).find(|d| !by_coherence(&d.kind)) {
            let what = format!("shares of {} need a specification of their own", renamed.kind);
            return Err(Error::usage("stdout", what)
                .hint("give --output FILE; each further kind is then written to a file beside it"));
        }
        for derived in &by_kind {
            let (spec, comments) = specification(derived, &args.file, &origin)?;
            let format = args.file.format.unwrap_or(Format::Yaml);
            out::document(&encode(&spec, format, &comments)?)?;
        }
        return Ok(outcome.exit_code());
    }
    let by_name = Format::of_path(&output);
    let format = args.file.format.or(by_name).unwrap_or(Format::Yaml);
    let (path, real) = file_of(&output, format);
    if real != format {
        let (name, wanted) = (path.display(), format.extension());
        out::note(format_args!(
            "{name}: written as {}, as its name says, and not as {wanted}",
            real.extension()
        ));
    }
    // All are made before the first is written, so that a failure leaves all existing files as they are.
    let mut files = Vec::new();
    for (number, derived) in by_kind.iter().enumerate() {
        let (spec, comments) = specification(derived, &args.file, &origin).map_err(|error| match number {
            0 => error,
            _ if coherence(&derived_kind, &derived.kind).is_some() => {
                error.hint("leave enable-coherent-annotations out, or give --cdi-version 0.6")
            }
            _ => error.hint("leave rename and renameByDefault out of the policy, or give --cdi-version 0.6"),
        })?;
        let mut comments = comments;
        let path = if number == 0 {
            path.clone()
        } else {
            comments.insert(1, leftover::mark(&path));
            beside(&path, &derived_kind, &derived.kind)
        };
        files.push((path, encode(&spec, real, &comments)?, spec));
    }
    outcome.may_write(files.iter().map(|(path, ..)| path.as_path()))?;
    if let Some(sharing) = &options.sharing
        && args.host.is_here()
    {
        sharing::make_pipe_directories(sharing)?;
    }
    for (path, text, spec) in &files {
        let missing = hints::missing_directory(path);
        write::write(path, text)?;
        if let Some(directory) = missing {
            out::note(format_args!(
                "{}: created, because it did not exist",
                directory.display()
            ));
        }
        let (name, devices) = (path.display(), spec.devices.len());
        out::note(format_args!(
            "{name}: {devices} devices of {}, CDI {}",
            spec.kind, spec.version
        ));
    }
    for (path, _, spec) in &files {
        if let Some(conflict) = hints::conflict(path, spec) {
            tracing::warn!("{conflict}");
        }
    }
    // A file that this run does not write may be left out because its devices do not answer now.
    if !outcome.is_complete() {
        return Ok(outcome.exit_code());
    }
    let written: Vec<&Path> = files.iter().map(|(path, ..)| path.as_path()).collect();
    let name = |spec: &Spec| {
        let kind: CdiKind = spec.kind.parse().ok()?;
        Some(beside(&path, &derived_kind, &kind))
    };
    for file in leftover::remove(&path, &written, name)? {
        out::note(format_args!(
            "{}: removed, because an earlier run wrote it and the policy has no such shares any more",
            file.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// `sharing` with the devices that it does not split and of which something is held under an earlier policy. Says what is
/// held, and what that changes in the specification.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
fn with_held(sharing: Option<Sharing>, inventory: &Inventory, state: &StateArgs) -> Result<Option<Sharing>> {
    let earlier = earlier::earlier(inventory, sharing.as_ref().map(|s| &s.plan), state)?;
    earlier.report();
    if earlier.held.is_empty() {
        return Ok(sharing);
    }
    let sharing = match sharing {
        Some(sharing) => sharing,
        None => Sharing {
            plan: Plan::default(),
            held: BTreeSet::new(),
            state_dir: state.dir()?,
        },
    };
    let sharing = Sharing {
        held: earlier.held,
        ..sharing
    };
    let claimed = derive::claimed_since_held(inventory, &sharing);
    if !claimed.is_empty() {
        out::note(format_args!(
            "{}: its names still claim the whole device, and `all` does not contain it, because a part of it is held or may \
             be held; run tranche cdi generate again when that claim has ended",
            some(&claimed)
        ));
    }
    Ok(Some(sharing))
}

/// The specification of one kind, and the comments at its head.
fn specification(derived: &Derived, file: &FileArgs, origin: &Origin) -> Result<(Spec, Vec<String>)> {
    let (spec, left_out) = build(derived, file.cdi_version)?;
    for line in LeftOut::lines(&left_out, &spec.kind) {
        out::note(line);
    }
    if file.cdi_version.is_none()
        && let Some(hint) = hints::for_old_engines(derived, &spec)
    {
        out::note(hint);
    }
    let mut comments = vec![header::made_by()];
    comments.extend(origin.comments());
    comments.extend(LeftOut::comments(&left_out));
    Ok((spec, comments))
}

/// The file for another kind, beside that of the first: `nvidia.yaml` and `nvidia-gpu.shared.yaml`, or, as NVIDIA's tool
/// names it, `nvidia.coherent.yaml`.
fn beside(path: &Path, first: &CdiKind, kind: &CdiKind) -> PathBuf {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    path.with_file_name(match coherence(first, kind) {
        Some(word) => format!("{stem}.{word}.{extension}"),
        None => format!("{stem}-{}.{extension}", kind.class()),
    })
}

/// What `kind` says of its devices' memory, if it is the first's with that word at its end.
fn coherence<'a>(first: &CdiKind, kind: &'a CdiKind) -> Option<&'a str> {
    let word = kind.class().strip_prefix(first.class())?.strip_prefix('.')?;
    matches!(word, "coherent" | "noncoherent").then_some(word)
}
