//! The driver's application profile that keeps EGL and Vulkan to the GPUs of a container.
//!
//! These libraries enumerate every GPU of the kernel module, also those without a node in the container, and fail at
//! the first that cannot be opened. A profile for all programs names the GPUs of the container.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::place::Current;
use super::report::HookReport;
use tranche_core::oci::{Bundle, Config};
use tranche_core::root::Permissions;
use tranche_core::types::Minor;

/// The directory of the profile in the container. The driver reads every file of this directory (driver README,
/// "Application Profiles Search Path").
pub(crate) const DIRECTORY: &str = "/etc/nvidia/nvidia-application-profiles-rc.d";
/// The name of the file that NVIDIA's hook writes, so that each hook replaces the other's file.
pub(crate) const FILE: &str = "10-container.conf";
/// The profile has less than 200 bytes.
const MAX_FILE: u64 = 4096;
/// Only root in the container may change the profile.
const NEW: Permissions = Permissions::new_file(0o444);

/// Writes the profile of the container's GPUs. A failure is reported and does not fail the start, because GPUs work
/// without the profile.
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

/// The profile for the GPUs with these device minors (`/dev/nvidiaN`), if there are any.
///
/// The driver takes a mask of 64 bits. Larger minors are left out and returned, to be reported.
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
