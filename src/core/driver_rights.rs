//! What a process that loads a library of NVIDIA, or becomes a program that does, gives up first.
//!
//! As root, the library makes what it does not find: it executes `nvidia-modprobe`, which makes `/dev/nvidiactl` with
//! mode 0666 and loads the driver's modules, also on a machine that keeps its GPUs for virtual machines. Asking a
//! machine must not change it. Its nodes are made by `tranche system create-device-nodes` alone.

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use nix::sys::prctl::set_no_new_privs;
use std::io;

/// What makes a device node, and what loads a module.
const GIVEN_UP: [Capability; 2] = [Capability::CAP_MKNOD, Capability::CAP_SYS_MODULE];

/// Gives up for this process, and for every program that it executes, the right to make device nodes and to load
/// modules: `nvidia-modprobe` is setuid, so that a program of any user can execute it as root.
///
/// With no_new_privs, a program that root executes has at most the capabilities that its caller has (capabilities(7)),
/// so the bounding set needs no change, which would need a capability.
///
/// # Errors
/// Returns the kernel's error. The library must not be loaded then.
pub fn give_up() -> io::Result<()> {
    set_no_new_privs()?;
    keep(|capability| !GIVEN_UP.contains(&capability)).map_err(io::Error::other)
}

/// Gives up every capability but `CAP_SYS_PTRACE`, for this process and for every program that it executes: the driver
/// lets a process suspend the work of another one that it may trace (ptrace(2)).
///
/// # Errors
/// As [`give_up`].
pub fn keep_trace_alone() -> io::Result<()> {
    set_no_new_privs()?;
    keep(|capability| capability == Capability::CAP_SYS_PTRACE).map_err(io::Error::other)
}

fn keep(is_kept: impl Fn(Capability) -> bool) -> Result<(), CapsError> {
    // The ambient set, which older kernels lack, loses what the inheritable set loses.
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        let mut left = caps::read(None, set)?;
        let before = left.len();
        left.retain(|capability| is_kept(*capability));
        if left.len() != before {
            caps::set(None, set, &left)?;
        }
    }
    Ok(())
}
