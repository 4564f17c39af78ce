//! The container that a hook works for.

use super::report::HookReport;
use tranche_core::error::Result;
use tranche_core::oci::{Bundle, Reached, State};

/// Opens the container of `state`. In a user namespace, the bundle or its config.json may not be accessible; then the
/// list of mounts is used instead, and `report` says so. `None` if the container's root is not certain: then nothing
/// must be done.
///
/// # Errors
/// Returns the errors of [`Bundle::find`].
pub(super) fn open(state: &State, report: &mut HookReport<'_>) -> Result<Option<Bundle>> {
    let shown = state.bundle.display();
    match Bundle::find(state)? {
        Reached::Bundle(bundle) => {
            if !bundle.is_configured {
                let what = "this user namespace may not open the bundle; its root directory is treated as read-only";
                report.note(shown, what);
            }
            Ok(Some(*bundle))
        }
        Reached::Nothing(why) => {
            let what = format!("this user namespace may not open the bundle, so nothing is done: {why}");
            report.note(shown, what);
            Ok(None)
        }
    }
}
