//! Whether the annotations of a container may ask. With some engines, an image or the author of a pod writes them.

use super::view::ConfigView;
use super::{LONGEST_SHOWN, MOUNTS, OWN_ANNOTATIONS};
use crate::CallingEngine;
use tranche_core::error::Result;
use tranche_core::text::{cut, some};
use tranche_plan::policy::{AcceptAnnotations, RuntimeSettings};

/// Takes the annotations of a container of `caller` out of `view`, if they may not ask. Returns the line about them;
/// `None` if nothing is refused. An annotation without a value asks for nothing.
///
/// # Errors
/// Returns an error if the value of a refused annotation is not a text.
pub(super) fn refuse(
    view: &mut ConfigView<'_>,
    settings: &RuntimeSettings,
    caller: CallingEngine,
) -> Result<Option<String>> {
    let why = match settings.accept_annotations {
        Some(AcceptAnnotations::Always) => None,
        Some(AcceptAnnotations::Never) => Some("the policy says runtime.acceptAnnotations: never".to_owned()),
        None => {
            let doubt = caller.doubt(settings.oldest_podman.as_ref());
            doubt.map(|doubt| format!("{doubt} (runtime.acceptAnnotations: always accepts them)"))
        }
    };
    let Some(why) = why else { return Ok(None) };
    let own = [OWN_ANNOTATIONS.to_owned()];
    let prefixes = settings.annotation_prefixes.iter().chain(&own);
    let asking = view.annotations(prefixes)?;
    let keys: Vec<String> = asking
        .iter()
        .filter(|(_, value)| !value.as_str().trim().is_empty())
        .map(|(key, _)| cut(key, LONGEST_SHOWN))
        .collect();
    let line = (!keys.is_empty()).then(|| {
        let form = caller.safe_form();
        format!(
            "ignored: annotation {}, because {why}; ask by {form}, or by a mount of /dev/null at {MOUNTS}/NAME, which no \
             image can write",
            some(&keys)
        )
    });
    view.without_annotations();
    Ok(line)
}
