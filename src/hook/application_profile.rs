//! The driver's application profile that keeps EGL and Vulkan to the GPUs of a container.
//!
//! These libraries enumerate every GPU that the kernel module knows, not only those whose nodes are there, and then
//! fail on the first that cannot be opened. A profile for all programs names the ones that may be seen.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::place::Current;
use super::report::HookReport;
use crate::oci::{Bundle, Config};
use crate::root::Permissions;
use crate::types::Minor;

/// Where it lies in the container. The driver reads every file of this directory (driver README, "Application Profiles
/// Search Path").
pub(crate) const DIRECTORY: &str = "/etc/nvidia/nvidia-application-profiles-rc.d";
/// The name that NVIDIA's hook gives it, so that the two replace and do not contradict each other.
pub(crate) const FILE: &str = "10-container.conf";
/// The profile has less than 200 bytes.
const MAX_FILE: u64 = 4096;
/// Programs of the container must not change the profile, though root in the container may.
const NEW: Permissions = Permissions::new_file(0o444);

/// Writes the profile of the GPUs that the container has. What cannot be done is a line: a GPU that works without a
/// profile must not fail to start for want of it.
pub(super) fn write(bundle: &Bundle, report: &mut HookReport<'_>) {
    let (text, beyond) = text(minors(&bundle.config));
    if let Some(Minor(first)) = beyond.first() {
        let what = format!("no place for /dev/nvidia{first} and {} more", beyond.len() - 1);
        report.note("application profile", what);
    }
    let Some(text) = text else { return };
    if bundle.config.read_only {
        report.note("application profile", "not written: the root is read-only");
    } else if let Err(error) = write_file(bundle, text.as_bytes(), report) {
        report.note("application profile", format_args!("not written: {error}"));
    }
}

fn write_file(bundle: &Bundle, bytes: &[u8], report: &mut HookReport<'_>) -> io::Result<()> {
    let path = Path::new(DIRECTORY);
    let directory = bundle.root.make_directory(path)?;
    let name = OsStr::new(FILE);
    let now = match Current::in_directory(bundle, (&directory, path), name, MAX_FILE, report) {
        // Such a file is not a profile that tranche or NVIDIA's hook wrote, and is replaced.
        Err(e) if e.kind() == ErrorKind::FileTooLarge => Current::default(),
        now => now?,
    };
    now.replace(&directory, name, bytes, NEW)
}

/// The minors of the GPUs of a container.
fn minors(config: &Config) -> impl Iterator<Item = Minor> {
    let minor = |path: &Path| {
        let digits = path.as_os_str().as_bytes().strip_prefix(b"/dev/nvidia")?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        str::from_utf8(digits)
            .ok()?
            .parse()
            .ok()
            .filter(|_| is_number)
            .map(Minor)
    };
    config.nodes().filter_map(minor)
}

/// A profile that shows GPUs of these device minors (`/dev/nvidiaN`). Nothing without one.
///
/// The driver takes a mask of 64 bits; minors beyond that are left out of it and returned, to be told.
pub(crate) fn text(minors: impl IntoIterator<Item = Minor>) -> (Option<String>, Vec<Minor>) {
    let (shown, beyond): (Vec<_>, Vec<_>) = minors.into_iter().partition(|minor| minor.0 < u64::BITS);
    let mask = shown.iter().fold(0_u64, |mask, minor| mask | 1 << minor.0);
    // Nearly JSON: the driver's own notation has hexadecimal numbers.
    let text = format!(
        "{{\"profiles\":[{{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",{mask:#x}]}}],\
         \"rules\":[{{\"pattern\":[],\"profile\":\"_container_\"}}]}}"
    );
    ((mask != 0).then_some(text), beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_for_each_minor() {
        let (text, beyond) = text([0, 3, 63, 3].map(Minor));
        assert_eq!(
            text.as_deref(),
            Some(
                "{\"profiles\":[{\"name\":\"_container_\",\"settings\":[\"EGLVisibleDGPUDevices\",\
                 0x8000000000000009]}],\"rules\":[{\"pattern\":[],\"profile\":\"_container_\"}]}"
            )
        );
        assert!(beyond.is_empty());
    }

    #[test]
    fn what_the_mask_cannot_hold_is_told() {
        assert_eq!(text([]), (None, vec![]));
        assert_eq!(text([64, 128].map(Minor)), (None, vec![Minor(64), Minor(128)]));
        let (some, beyond) = text([1, 64].map(Minor));
        assert!(some.unwrap().contains("\"EGLVisibleDGPUDevices\",0x2]"));
        assert_eq!(beyond, [Minor(64)]);
    }
}
