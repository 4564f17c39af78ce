//! Whether layouts agree with the policy, whose layouts the next boot makes.

use tranche_core::error::{Error, Result};
use tranche_plan::mig::{GpuWish, Layout, MigGpu};
use tranche_plan::policy::Policy;
use tranche_protocol::PolicyCheck;

/// Refuses layouts that differ from those of the policy for the same GPU in what `check` says: the next boot would make
/// the policy's again.
///
/// # Errors
/// Returns the first difference.
pub fn check_policy(layouts: &[Layout], policy: &Policy, gpus: &[MigGpu], check: PolicyCheck) -> Result<()> {
    if check == PolicyCheck::Nothing {
        return Ok(());
    }
    for gpu in gpus {
        let Some((given, fixed)) = Layout::of(gpu, layouts).zip(Layout::of(gpu, &policy.mig_layouts)) else {
            continue;
        };
        let is_alike = match check {
            PolicyCheck::Modes => (given.wish == GpuWish::Off) == (fixed.wish == GpuWish::Off),
            _ => given.wish.is_alike(&fixed.wish),
        };
        if !is_alike {
            let what = format!(
                "the policy {} gives it {}, and not {}",
                policy.file, fixed.wish, given.wish
            );
            return Err(Error::failed(format!("gpu {}", gpu.index), what)
                .hint("change the policy, and then run tranche mig apply without --layout"));
        }
    }
    Ok(())
}
