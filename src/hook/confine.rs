//! What a hook gives up before it looks at an image.
//!
//! An engine starts a hook with every privilege that it has itself. If there were a mistake in what follows, an attacker
//! should get little by it.

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, setrlimit};

use crate::error::{Context, Result};

/// What work in a container's root needs:
///
/// - `CAP_DAC_OVERRIDE`: the files of an image belong to whom the image says, and its directories may be closed even
///   to their owner; in a user namespace also to the namespace's root.
/// - `CAP_SYS_ADMIN`: to mount a file over one of a container.
/// - `CAP_CHOWN`: to give a file that takes the place of another the same owner.
/// - `CAP_FOWNER`: to replace a file of another user in a directory with the sticky bit, and for `chmod`.
///
/// It does not need to make device nodes, to load modules, or to look into other processes.
const NEEDED: [Capability; 4] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_FOWNER,
];

/// Gives up the other capabilities for good, and every way to get one back.
///
/// # Errors
/// If the kernel does not let us: then nothing was done yet, and nothing shall be.
pub(super) fn enter() -> Result<()> {
    // While the capability for it is still there.
    super::limits::lift()?;
    // With fewer capabilities than before, processes of a shared pid namespace could trace this one: a process that is not
    // dumpable is traced by nobody. First, because what follows makes the difference.
    set_dumpable(false).about("hook", "cannot keep others from tracing it")?;
    // Runtimes start a hook in the image's root, and that is where a core file would go.
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
    // Ambient ones, which older kernels do not have, go with the inheritable.
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)
}
