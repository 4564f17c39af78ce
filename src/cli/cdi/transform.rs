//! `tranche cdi transform`: rewrite the paths of a specification that was made for another place.

use super::super::out;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tranche_core::error::Error;
use tranche_core::types::Side;
use tranche_plan::cdi::encode::{Format, comments_of, encode, file_of};
use tranche_plan::cdi::header::SpecOrigin;
use tranche_plan::cdi::parse;
use tranche_plan::cdi::transform::root;
use tranche_state::replace;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Verb {
    /// Replace the directory at the beginning of the paths
    Root(RootArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RootArgs {
    /// The directory to replace
    #[arg(long, value_name = "DIR", default_value = "/")]
    from: String,
    /// The directory that replaces it
    #[arg(long, value_name = "DIR", default_value = "/")]
    to: String,
    /// Which paths to change: host or container
    #[arg(long, value_name = "SIDE", default_value = "host")]
    relative_to: Side,
    /// The file to read; - is stdin
    #[arg(long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// The file to write [default: stdout]
    // Not a path to clap, which refuses an empty one: it means stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<OsString>,
}

/// `tranche cdi transform root`.
pub(super) fn root_of(args: &RootArgs) -> Result<ExitCode> {
    for dir in [&args.from, &args.to] {
        if !dir.starts_with('/') {
            bail!(Error::usage(format!("\"{dir}\""), "path is not absolute"));
        }
    }
    let (name, text) = super::read_input(&args.input)?;
    let mut spec = parse::spec(&text).map_err(|refusal| {
        let object = refusal.at().map_or_else(|| name.clone(), |at| at.of(&name));
        Error::failed(object, refusal)
    })?;
    root(&mut spec, &args.from, &args.to, args.relative_to);
    let is_json = text.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    let format = if is_json { Format::Json } else { Format::Yaml };
    // They say which program made the file and what was left out of it. Its paths are no longer those of the host that
    // its digests are of.
    let mut comments = comments_of(&text);
    comments.retain(|line| !SpecOrigin::is_comment(line));
    match args.output.as_deref().filter(|o| !o.is_empty()) {
        None => out::document(&encode(&spec, format, &comments)?)?,
        Some(output) => {
            let (path, format) = file_of(Path::new(output), format);
            replace::write(&path, &encode(&spec, format, &comments)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
