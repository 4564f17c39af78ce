//! Which program an engine runs, and which parts of its work it does.

use super::arguments::HookArgs;
use crate::derive::{HookOptions, HookPart};
use crate::error::Result;
use crate::types::HostPath;
use std::collections::BTreeSet;

/// The hook that was asked for; `None` for a specification without one.
///
/// # Errors
/// A part that does not exist.
pub(super) fn options(args: &HookArgs) -> Result<Option<HookOptions>> {
    if args.no_hooks {
        return Ok(None);
    }
    let mut disabled = BTreeSet::new();
    for name in &args.disable_hooks {
        if name == "all" {
            disabled.extend(HookPart::ALL.iter().map(|(part, _)| *part));
        } else {
            disabled.insert(name.parse()?);
        }
    }
    disabled.retain(|part| !args.enable_hooks.contains(part));
    let mut hook = match &args.hook_path {
        Some(path) => HookOptions::at(path.clone()),
        None => hook_beside_us().map_or_else(HookOptions::default, HookOptions::at),
    };
    hook.disabled = disabled;
    hook.ldconfig.clone_from(&args.ldconfig_path);
    Ok(Some(hook))
}

/// The `tranche-oci` that came with this program: in a build, or where somebody unpacked the two.
pub(in crate::cli) fn hook_beside_us() -> Option<HostPath> {
    let path = std::env::current_exe().ok()?.with_file_name("tranche-oci");
    path.is_file().then(|| HostPath::new(&path).ok()).flatten()
}
