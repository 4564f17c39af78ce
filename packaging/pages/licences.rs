//! The licences of the crates that are compiled into the programs of a package, with the texts that their authors ask
//! to be passed on.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What `cargo metadata` prints, as far as it is needed here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

#[derive(Deserialize)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

/// How the names of files with a licence begin, in small letters.
const LICENCE_FILES: [&str; 5] = ["license", "licence", "copying", "copyright", "unlicense"];

/// The largest file that is taken for a licence.
const MOST_LICENCE: u64 = 256 << 10;

const HEADER: &str = "\
The programs of this package contain the following crates, the standard library of Rust (MIT OR Apache-2.0), and, where
they are linked statically, the C library: glibc (LGPL-2.1-or-later) or musl (MIT).
";

/// Describes the crates `names`, each as `name@version`, that `metadata` has (the JSON of `cargo metadata`): their
/// licences, and each text of a licence once, below the crates that it comes with.
///
/// # Errors
/// Returns an error if the metadata cannot be parsed, lacks a crate, or a crate states no licence.
pub(super) fn list(metadata: &[u8], names: &[&str]) -> Result<String> {
    let metadata: Metadata = serde_json::from_slice(metadata).context("standard input is not cargo metadata")?;
    let known: BTreeMap<String, &Crate> = metadata
        .packages
        .iter()
        .map(|package| (format!("{}@{}", package.name, package.version), package))
        .collect();
    let mut text = format!("{HEADER}\n");
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        let package = known
            .get(*name)
            .with_context(|| format!("{name}: not in the metadata"))?;
        let licence = package.license.as_deref();
        let licence = licence.with_context(|| format!("{name}: states no licence"))?;
        let source = package.repository.as_deref().unwrap_or("crates.io");
        writeln!(text, "{name}: {licence} <{source}>")?;
        for licence in texts_of(&package.manifest_path)? {
            texts.entry(licence).or_default().push(name);
        }
    }
    // The order of the first crate, which does not depend on the bytes of a text.
    let mut texts: Vec<_> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort_unstable();
    for (of, licence) in texts {
        let line = "-".repeat(80);
        writeln!(text, "\n{line}\n{}\n{line}\n\n{}", of.join(", "), licence.trim_end())?;
    }
    Ok(text)
}

/// The licences beside a manifest, in the order of their names.
fn texts_of(manifest: &Path) -> Result<Vec<String>> {
    let directory = manifest.parent().context("a manifest without a directory")?;
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        name.is_some_and(|name| LICENCE_FILES.iter().any(|start| name.starts_with(start)))
            && path
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.len() <= MOST_LICENCE)
    };
    let files = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> = files
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_licence)
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&text).replace('\r', ""))
    };
    files.iter().map(read).collect()
}
