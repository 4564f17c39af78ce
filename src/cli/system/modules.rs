//! Loading the driver's kernel modules.

use std::path::Path;
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;
use tranche_core::text::one_line;

/// The modules whose devices containers use, the one that the others need first.
const MODULES: [&str; 3] = ["nvidia", "nvidia-uvm", "nvidia-modeset"];

/// Loads the driver's modules, which lie below `driver_root` if it is not `/`. With `dry_run`, only returns the
/// commands, also on a machine without modprobe.
///
/// # Errors
/// Returns an error if modprobe is not found, or if it fails.
pub(super) fn load(driver_root: Option<&Path>, dry_run: bool) -> Result<Vec<String>> {
    let program = ["/sbin/modprobe", "/usr/sbin/modprobe", "/bin/modprobe"].map(Path::new);
    let installed = program.into_iter().find(|path| path.exists());
    let program = match (installed, dry_run) {
        (Some(path), _) => path,
        (None, true) => Path::new("/sbin/modprobe"),
        (None, false) => {
            return Err(Error::failed("modprobe", "not found in /sbin, /usr/sbin or /bin")
                .hint("load the driver's modules another way"));
        }
    };
    let root = driver_root.filter(|root| *root != Path::new("/"));
    let mut commands = Vec::new();
    for module in MODULES {
        let mut modprobe = Program::new(program);
        if let Some(root) = root {
            modprobe.arg("-d").arg(root);
        }
        modprobe.arg(module);
        let root = root.map(|root| format!("-d {} ", root.display())).unwrap_or_default();
        let line = format!("{} {root}{module}", program.display());
        if !dry_run {
            let output = modprobe.output().about(&line, "cannot be started")?;
            if !output.status.success() {
                let said = one_line(&String::from_utf8_lossy(&output.stderr));
                let why = if said.is_empty() { "it printed nothing" } else { &said };
                return Err(Error::failed(line, format!("{}: {why}", output.status)));
            }
        }
        commands.push(line);
    }
    Ok(commands)
}
