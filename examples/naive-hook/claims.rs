//! A ledger of files: the name of a share, and in it the container that has it. Without a lock.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::{Naive, Wrong, state, values};

pub(crate) fn run(verb: &str, arguments: &[OsString], naive: &Naive) -> Result<(), Wrong> {
    let state = state()?;
    let id = state["id"].as_str().ok_or("state: no id")?;
    let directory = values(arguments, "--state-dir").pop().ok_or("--state-dir is missing")?;
    let ledger = Path::new(&directory).join("ledger");
    naive.fence.check(&ledger)?;
    fs::create_dir_all(&ledger).map_err(|e| format!("{}: {e}", ledger.display()))?;
    let about = |e: std::io::Error| format!("{id}: {e}");
    if verb == "release" {
        for entry in fs::read_dir(&ledger).map_err(about)?.flatten() {
            if fs::read(entry.path()).is_ok_and(|bytes| bytes == id.as_bytes()) {
                fs::remove_file(entry.path()).map_err(about)?;
            }
        }
        for file in values(arguments, "--spec-file") {
            naive.fence.check(Path::new(&file))?;
            fs::remove_file(file).map_err(about)?;
        }
        return Ok(());
    }
    if state["bundle"].is_string() && !values(arguments, "--node").is_empty() {
        let config = Path::new(state["bundle"].as_str().unwrap_or_default()).join("config.json");
        fs::read(config).map_err(about)?;
    }
    let share = values(arguments, "--share").pop().unwrap_or_default();
    let place = ledger.join(&share);
    // It reads first who holds the share, and writes the new holder later, without a lock.
    let holder = fs::read_to_string(&place).unwrap_or_default();
    if !holder.is_empty() && holder != id {
        return Err(format!("share {} is held by {holder}", share.display()));
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    fs::write(&place, id).map_err(about)?;
    // A note for each container, by its name.
    let note = ledger.join(id);
    naive.fence.check(&note)?;
    fs::write(note, "").map_err(about)
}
