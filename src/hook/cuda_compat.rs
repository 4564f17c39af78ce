//! CUDA forward compatibility: whether an image's own `libcuda` goes before the host's.
//!
//! An image with a newer CUDA than the host's driver may have that CUDA's `libcuda` in `/usr/local/cuda/compat`, for
//! older drivers of data-centre GPUs. With another driver it breaks the container, so an ELF note in it lists the
//! drivers.

mod image;

pub(super) use image::{DIRECTORY, find};

use serde_json::{Map, Value};

use tranche_core::types::{CudaVersion, DriverVersion};

/// The section and the owner of that note, for [`tranche_core::elf::note`].
pub(crate) const NOTE_SECTION: &str = ".note.cuda.fwd_compatibility";
/// See [`NOTE_SECTION`].
pub(crate) const NOTE_OWNER: &str = "NVIDIA Corporation";

/// What the writer of the specification knew of the host. If both are unknown, no library of an image is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Host {
    /// The driver's version (`--host-driver-version`).
    pub(crate) driver: Option<DriverVersion>,
    /// The newest CUDA that the driver supports (`--host-cuda-version`; on Tegra, nothing else is known).
    pub(crate) cuda: Option<CudaVersion>,
}

/// The version in the name of a compatibility library: `575.57.08` of `libcuda.so.575.57.08`. `None` for any other
/// name, also for a link such as `libcuda.so.1`.
pub(crate) fn version_in_name(file: &str) -> Option<&str> {
    file.strip_prefix("libcuda.so.").filter(|version| version.contains('.'))
}

/// Whether the library whose file has this name, and this content of its note, goes before the host's.
///
/// With a note: the host's branch is in its list and the library is newer than the host's driver; or, if one of the two
/// driver versions is unknown, its CUDA is newer than the host's. Without a note, or with one that cannot be read: only
/// a library of a later branch, and only if the host is known by its driver alone. These are the rules of NVIDIA's hook
/// (nvidia-container-toolkit 1.20), so that a specification means the same with either.
pub(crate) fn is_used(file: &str, note: Option<&[u8]>, host: &Host) -> bool {
    let library: Option<DriverVersion> = version_in_name(file).and_then(|version| version.parse().ok());
    let versions = library.as_ref().zip(host.driver.as_ref());
    match (note.and_then(Note::parse), versions, host.cuda) {
        (Some(note), Some((library, driver)), _) => note.branches.contains(&driver.major()) && library > driver,
        (Some(note), None, Some(cuda)) => note.cuda.is_some_and(|own| own > cuda),
        (None, Some((library, driver)), None) => library.major() > driver.major(),
        // The version of the library or of the host is unknown, or the library does not say which CUDA it is.
        (Some(_), None, None) | (None, None, None) | (None, _, Some(_)) => false,
    }
}

/// The part of the note that decides.
struct Note {
    cuda: Option<CudaVersion>,
    branches: Vec<u32>,
}

impl Note {
    /// Reads JSON like `{"format":1,"CUDA version":"12.9","driver":[535,550],"device":[1,2]}` with zeros after it.
    /// Keys are taken in any case, because NVIDIA's reader does.
    fn parse(content: &[u8]) -> Option<Note> {
        let end = content.iter().rposition(|byte| *byte != 0)? + 1;
        let fields: Map<String, Value> = serde_json::from_slice(content.get(..end)?).ok()?;
        let field = |name: &str| {
            fields
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        let branch = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        Some(Note {
            cuda: field("CUDA version")
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok()),
            branches: field("driver")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(branch)
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &[u8] = b"{\"format\":1,\"CUDA version\":\"12.9\",\"driver\":[535,550,570],\"device\":[1,2]}\0\0";
    const ORIN: &[u8] = b"{\"format\":1,\"CUDA version\":\"13.2\"}\0";

    fn host(driver: &str, cuda: &str) -> Host {
        Host {
            driver: driver.parse().ok(),
            cuda: cuda.parse().ok(),
        }
    }

    #[test]
    fn a_note_lists_the_branches_that_it_serves() {
        let file = "libcuda.so.575.57.08";
        assert!(is_used(file, Some(NOTE), &host("550.54.15", "")));
        assert!(!is_used(file, Some(NOTE), &host("560.35.03", "")));
        // The driver's version decides where it is known, whatever the CUDA version says.
        assert!(is_used(file, Some(NOTE), &host("550.54.15", "13.0")));
        assert!(!is_used("libcuda.so.550.54.15", Some(NOTE), &host("550.54.15", "")));
        assert!(!is_used("libcuda.so.535.1.1", Some(NOTE), &host("550.54.15", "")));
        assert!(!is_used(file, Some(NOTE), &host("580.1.1", "")));
    }

    #[test]
    fn without_a_driver_version_the_cuda_version_decides() {
        assert!(is_used("libcuda.so.1.1", Some(ORIN), &host("", "13.1")));
        assert!(!is_used("libcuda.so.1.1", Some(ORIN), &host("", "13.2")));
        assert!(!is_used("libcuda.so.1.1", Some(ORIN), &host("", "13.10")));
        assert!(!is_used("libcuda.so.575.57.08", None, &host("", "12.0")));
        assert!(!is_used("libcuda.so.575.57.08", Some(NOTE), &host("", "")));
    }

    #[test]
    fn without_a_note_only_a_later_branch() {
        assert!(is_used("libcuda.so.333.88.99", None, &host("222.55.66", "")));
        assert!(is_used("libcuda.so.222.88.99", None, &host("99.55.66", "")));
        assert!(!is_used("libcuda.so.222.88.99", None, &host("222.55.66", "")));
        assert!(!is_used("libcuda.so.111.88.99", None, &host("222.55.66", "")));
        assert!(!is_used("libcuda.so.333.88.99", None, &host("222.55.66", "12.0")));
        assert!(!is_used("libcuda.so.333.88.99", None, &Host::default()));
    }

    #[test]
    fn a_note_that_is_no_json_counts_as_none() {
        for note in [b"".as_slice(), b"\0\0", b"{\"format\":1,}", b"[1]", &[b'['; 5000]] {
            assert!(is_used("libcuda.so.333.88.99", Some(note), &host("222.55.66", "")));
            assert!(!is_used("libcuda.so.111.88.99", Some(note), &host("222.55.66", "")));
        }
        let odd = b"{\"DRIVER\":[550,\"570\",-1,99999999999,1.5],\"cuda VERSION\":12}";
        assert!(is_used("libcuda.so.575.57.08", Some(odd), &host("550.54.15", "")));
        assert!(!is_used("libcuda.so.575.57.08", Some(odd), &host("570.1.1", "")));
    }

    #[test]
    fn the_version_is_in_the_name() {
        assert_eq!(version_in_name("libcuda.so.575.57.08"), Some("575.57.08"));
        for name in ["libcuda.so", "libcuda.so.1", "libcudart.so.12.1", "libcuda.so."] {
            assert_eq!(version_in_name(name), None, "{name}");
        }
    }
}
