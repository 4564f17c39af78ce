//! The driver's libraries made known to the image's loader.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tranche_core::ldcache::{AbiFlags, CacheEntry, Sorted, read, write};

use crate::verbs::Image;
use crate::{Wrong, files};

const CACHE: &str = "/etc/ld.so.cache";
const MUSL: &str = "/etc/ld-musl-x86_64.path";
const PARTS: &str = "/etc/ld.so.conf.d";

/// Puts the libraries of `directories` into the cache, the path file and the configuration.
pub(crate) fn update(image: &Image<'_>, directories: &[OsString]) -> Result<(), Wrong> {
    // As the tools that this stands for did: by the image's own program, if it has one.
    let ldconfig = image.at("/sbin/ldconfig");
    if ldconfig.exists() {
        let _ = Command::new(ldconfig)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
    let mut found: Vec<(OsString, PathBuf)> = Vec::new();
    for directory in directories {
        let Ok(entries) = fs::read_dir(image.at(directory)) else {
            continue;
        };
        for entry in entries.flatten() {
            found.push((entry.file_name(), Path::new(directory).join(entry.file_name())));
        }
    }
    cache(image, &found)?;
    path_file(image, directories)?;
    if !image.read_only && image.at(PARTS).is_dir() {
        let text: Vec<String> = directories.iter().map(|d| format!("{}\n", d.display())).collect();
        files::write(
            &image.at("/etc/ld.so.conf.d/00-tranche.conf"),
            text.concat().as_bytes(),
            image.naive,
        )?;
    }
    Ok(())
}

fn cache(image: &Image<'_>, found: &[(OsString, PathBuf)]) -> Result<(), Wrong> {
    let now = files::read(&image.at(CACHE), image.naive).unwrap_or_default();
    let old = read(&now).unwrap_or_default();
    let added: Vec<CacheEntry<'_>> = found
        .iter()
        .filter(|(name, _)| name.to_string_lossy().contains(".so"))
        .map(|(name, path)| CacheEntry::new(name, path, AbiFlags::X86_64))
        .collect();
    let merged = Sorted::new(&added).then(Sorted::new(&old.entries));
    let bytes = write(&merged, old.endian).map_err(|e| e.to_string())?;
    put(image, CACHE, &bytes)
}

fn path_file(image: &Image<'_>, directories: &[OsString]) -> Result<(), Wrong> {
    let mut text = files::read(&image.at(MUSL), image.naive).unwrap_or_default();
    for directory in directories {
        text.extend_from_slice(directory.as_encoded_bytes());
        text.push(b'\n');
    }
    if image.read_only {
        return put(image, MUSL, &text);
    }
    // The cache is written through a link, this one is replaced: both are found in the field.
    files::replace(&image.at(MUSL), &text, image.naive)
}

fn put(image: &Image<'_>, path: impl AsRef<OsStr>, bytes: &[u8]) -> Result<(), Wrong> {
    let path = image.at(path);
    if image.read_only {
        if !path.exists() {
            return Ok(());
        }
        return files::cover(&path, bytes, image.naive);
    }
    files::write(&path, bytes, image.naive)
}
