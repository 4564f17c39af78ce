//! The hooks that prepare an image.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Naive, Wrong, files, loader, state, values};

const COMPAT: &str = "/usr/local/cuda/compat";

/// The root directory of a container, as a path.
pub(crate) struct Image<'n> {
    root: PathBuf,
    pub(crate) read_only: bool,
    config: Value,
    pub(crate) naive: &'n Naive,
}

impl<'n> Image<'n> {
    fn open(naive: &'n Naive) -> Result<Image<'n>, Wrong> {
        let state = state()?;
        let bundle = Path::new(state["bundle"].as_str().ok_or("state: no bundle")?);
        let file = bundle.join("config.json");
        let bytes = fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let config: Value = serde_json::from_slice(&bytes).map_err(|e| format!("config.json: {e}"))?;
        Ok(Image {
            root: bundle.join(config["root"]["path"].as_str().ok_or("config.json: no root")?),
            read_only: config["root"]["readonly"] == true,
            config,
            naive,
        })
    }

    /// The path as text, behind that of the root.
    pub(crate) fn at(&self, path: impl AsRef<OsStr>) -> PathBuf {
        let path = path.as_ref().as_bytes();
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        self.root.join(OsStr::from_bytes(path.get(start..).unwrap_or_default()))
    }
}

pub(crate) fn run(verb: &str, arguments: &[OsString], naive: &Naive) -> Result<(), Wrong> {
    let image = Image::open(naive)?;
    let option = |name: &str| values(arguments, name);
    match verb {
        "prepare" => {
            let new = links(&image, &option("--link"))?;
            let mut directories = option("--ldcache-dir");
            if image.at(COMPAT).is_dir() {
                directories.insert(0, COMPAT.into());
            }
            loader::update(&image, &directories).inspect_err(|_| undo(&new, naive))?;
            by_path(&image, &option("--by-path"))?;
            params(&image)?;
            profile(&image)
        }
        "create-symlinks" => links(&image, &option("--link")).map(drop),
        "update-ldcache" => loader::update(&image, &option("--folder")),
        "enable-cuda-compat" => {
            let directory = option("--cuda-compat-container-root").pop().unwrap_or(COMPAT.into());
            let entries = fs::read_dir(image.at(&directory)).into_iter().flatten().flatten();
            let names: Vec<String> = entries.map(|entry| entry.file_name().display().to_string()).collect();
            for name in &names {
                eprintln!("tranche-oci: hook enable-cuda-compat: {name} is used");
                files::read(&image.at(Path::new(&directory).join(name)), naive)?;
            }
            let text = format!("{}\n", directory.display());
            files::write(
                &image.at("/etc/ld.so.conf.d/00-compat-tranche.conf"),
                text.as_bytes(),
                naive,
            )
        }
        "disable-device-node-modification" => params(&image),
        "update-application-profile" => profile(&image),
        "chmod" => {
            let mode = option("--mode").pop().unwrap_or_default();
            let mode = u32::from_str_radix(&mode.to_string_lossy(), 8).map_err(|e| e.to_string())?;
            for path in option("--path") {
                let path = image.at(path);
                naive.fence.check(&path)?;
                let done = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
                done.map_err(|e| format!("{}: {e}", path.display()))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn links(image: &Image<'_>, links: &[OsString]) -> Result<Vec<PathBuf>, Wrong> {
    let mut new = Vec::new();
    if image.read_only {
        return Ok(new);
    }
    for link in links {
        let bytes = link.as_bytes();
        let Some(at) = bytes.windows(2).position(|two| two == b"::") else {
            return Err(format!("--link {}: not TARGET::LINK", link.display()));
        };
        let place = image.at(OsStr::from_bytes(&bytes[at + 2..]));
        let done = files::link(Path::new(OsStr::from_bytes(&bytes[..at])), &place, image.naive);
        done.inspect_err(|_| undo(&new, image.naive))?;
        new.push(place);
    }
    Ok(new)
}

fn undo(new: &[PathBuf], naive: &Naive) {
    if naive.has("undo") {
        return;
    }
    for link in new
        .iter()
        .filter(|link| naive.fence.holds(link.parent().unwrap_or(link)))
    {
        let _ = fs::remove_file(link);
    }
}

fn by_path(image: &Image<'_>, links: &[OsString]) -> Result<(), Wrong> {
    let devices = image.config["linux"]["devices"].as_array().cloned().unwrap_or_default();
    for link in links {
        let text = link.display().to_string();
        let Some((name, node)) = text.split_once("::") else {
            continue;
        };
        if !devices.iter().any(|device| device["path"] == node) || image.read_only {
            continue;
        }
        let Some(file) = Path::new(node).file_name() else {
            continue;
        };
        let target = Path::new("..").join(file);
        files::link(&target, &image.at(format!("/dev/dri/by-path/{name}")), image.naive)?;
    }
    Ok(())
}

fn params(image: &Image<'_>) -> Result<(), Wrong> {
    let path = image.at("/proc/driver/nvidia/params");
    let Ok(bytes) = files::read(&path, image.naive) else {
        return Ok(());
    };
    let text = String::from_utf8_lossy(&bytes).replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0");
    files::cover(&path, text.as_bytes(), image.naive)
}

fn profile(image: &Image<'_>) -> Result<(), Wrong> {
    if image.read_only {
        return Ok(());
    }
    let text = b"{\"profiles\":[{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",0x1]}]}";
    let path = image.at("/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf");
    files::write(&path, text, image.naive)
}
