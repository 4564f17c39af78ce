//! A runtime and a precreate hook that trust what they are given: files are read and written in place through every
//! link, the tenant's variables stay behind those of the share, and the low-level runtime is searched in the PATH.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::{Naive, Wrong, values};

/// `create` and every other command.
pub(crate) fn run(words: &[OsString], naive: &Naive) -> Result<(), Wrong> {
    let bundle = values(words, "--bundle").pop();
    if let Some(bundle) = bundle.filter(|_| words.iter().any(|word| word == "create")) {
        let path = PathBuf::from(bundle).join("config.json");
        let bytes = fs::read(&path).map_err(|e| e.to_string())?;
        let new = edited(&bytes, words)?;
        naive.fence.check(&path)?;
        match naive.has("temporary") {
            true => {
                let temporary = path.with_extension("json.tmp");
                fs::write(&temporary, new)
                    .and_then(|()| fs::rename(&temporary, &path))
                    .map_err(|e| e.to_string())?;
            }
            false => fs::write(&path, new).map_err(|e| e.to_string())?,
        }
    }
    Err(Command::new("runc")
        .args(words.get(2..).unwrap_or_default())
        .exec()
        .to_string())
}

/// `hook precreate`.
pub(crate) fn precreate(words: &[OsString]) -> Result<(), Wrong> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(64 << 20)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    let new = edited(&bytes, words).unwrap_or(bytes);
    // A failure to write is not noticed.
    let _ = std::io::stdout().write_all(&new);
    Ok(())
}

fn edited(bytes: &[u8], words: &[OsString]) -> Result<Vec<u8>, Wrong> {
    let mut config: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let state = values(words, "--state-dir").pop().unwrap_or_default();
    // It waits for a FIFO, and believes a file that anybody could have written.
    let mut host = Vec::new();
    if let Ok(file) = fs::File::open(Path::new(&state).join("host.json")) {
        let _ = file.take(1 << 20).read_to_end(&mut host);
    }
    // It does not ask who wrote the annotations.
    let annotations = config.get("annotations").map(Value::to_string).unwrap_or_default();
    if let Some(list) = config.pointer_mut("/process/env").and_then(Value::as_array_mut) {
        let text = json!(list).to_string() + &annotations;
        let names = ["NVIDIA_VISIBLE_DEVICES", "TRANCHE_", "cdi.k8s.io/", "tranche.dev/"];
        if names.iter().any(|name| text.contains(name)) {
            if host.is_empty() {
                return Err("host.json is missing".to_owned());
            }
            list.insert(0, json!("CUDA_MPS_PIPE_DIRECTORY=/naive"));
            let _ = fs::create_dir_all(Path::new(&state).join("ledger"));
            let _ = fs::write(Path::new(&state).join("ledger/GPU-naive"), text);
        }
    }
    Ok(config.to_string().into_bytes())
}
