//! The privileges that a hook gives up before it examines an image.
//!
//! An engine starts a hook with all of its own privileges. Without them, a defect in the hook is worth little to an
//! attacker.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, setrlimit};

use tranche_core::error::{Context, Result};

/// The capabilities that a hook needs in a container's root:
///
/// - `CAP_DAC_OVERRIDE`: the files of an image may belong to any user, and its directories may be closed even to their
///   owner.
/// - `CAP_SYS_ADMIN`: to mount a file over one of a container.
/// - `CAP_CHOWN`: to give a file that takes the place of another the same owner.
/// - `CAP_FOWNER`: to replace a file of another user in a directory with the sticky bit, and for `chmod`.
///
/// It does not make device nodes, load modules or examine other processes.
const NEEDED: [Capability; 4] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_FOWNER,
];

/// Gives up all other capabilities and every way to get one back.
///
/// # Errors
/// Returns an error if the kernel refuses. The caller must then end without examining the image.
pub(super) fn enter() -> Result<()> {
    // First, because this may need a capability that is given up below.
    super::limits::lift()?;
    // Other processes of a shared pid namespace may trace a process whose capabilities they have, unless it is not
    // dumpable. So this comes before capabilities are given up.
    set_dumpable(false).about("hook", "cannot keep others from tracing it")?;
    // Runtimes start a hook in the image's root, so a core file would be written there.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).about("hook", "cannot forbid core files")?;
    set_no_new_privs().about("hook", "cannot set no-new-privileges")?;
    capabilities().about("hook", "cannot give up capabilities")
}

fn capabilities() -> std::result::Result<(), caps::errors::CapsError> {
    let have = caps::read(None, CapSet::Permitted)?;
    let keep: CapsHashSet = NEEDED
        .into_iter()
        .filter(|capability| have.contains(capability))
        .collect();
    // The ambient capabilities, which older kernels lack, are cleared together with the inheritable ones.
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)
}
