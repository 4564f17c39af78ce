//! Whether the order of GPUs is certain without NVML.
//!
//! NVML does not guarantee an order (nvml.h, `nvmlDeviceGetIndex`: "no guarantees of consistency between reboots"). In
//! fact it counts in bus order (`nvmlDeviceDiscoverGpus`: the enumeration depends on "where they are inserted in bus
//! order"), and skips GPUs that are excluded (`nvmlGetExcludedDeviceCount` counts them separately) or that it cannot
//! start. The kernel module numbers GPUs in the order in which it probed them: these numbers are the minors. So an
//! index counts as known only if no GPU may be skipped and the orders of addresses and of minors are the same. Then
//! every rule that NVML could follow gives the same number.

use super::proc::Information;

/// Why the indices of these GPUs are not certain. `None` if each index is the place in this list, which has every GPU
/// of the kernel module, sorted by PCI address.
pub(crate) fn why_unknown(gpus: &[Information]) -> Option<String> {
    for (place, gpu) in (0..).zip(gpus) {
        let Some(pci) = gpu.pci else {
            return Some("the address of one GPU is not known".to_owned());
        };
        if gpu.excluded {
            return Some(format!("{pci} is excluded"));
        }
        if gpu.uuid.is_none() {
            return Some(format!("{pci} has no UUID yet, so it may not work"));
        }
        if gpu.minor.is_none_or(|minor| minor.0 != place) {
            return Some(format!(
                "the minor number of {pci} is not its place by address, {place}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::types::Minor;

    fn gpus(minors: &[u32]) -> Vec<Information> {
        let information = |(place, minor): (usize, &u32)| Information {
            uuid: Some("GPU-00000000-aaaa".parse().unwrap()),
            pci: Some(format!("0000:0{place}:00.0").parse().unwrap()),
            minor: Some(Minor(*minor)),
            ..Information::default()
        };
        minors.iter().enumerate().map(information).collect()
    }

    #[test]
    fn an_index_is_known_where_both_orders_agree_and_nothing_is_left_out() {
        assert_eq!(why_unknown(&[]), None);
        assert_eq!(why_unknown(&gpus(&[0, 1, 2])), None);
        // A gap shows that a GPU went away; another order, that the GPUs were probed in it.
        for minors in [&[1][..], &[0, 2], &[1, 0], &[0, 1, 3]] {
            let why = why_unknown(&gpus(minors)).unwrap();
            assert!(why.contains("minor number"), "{why}");
        }
        let broken = |change: fn(&mut Information)| {
            let mut gpus = gpus(&[0, 1]);
            change(&mut gpus[1]);
            why_unknown(&gpus).unwrap()
        };
        assert!(broken(|gpu| gpu.excluded = true).contains("0000:01:00.0 is excluded"));
        assert!(broken(|gpu| gpu.uuid = None).contains("no UUID"));
        assert!(broken(|gpu| gpu.minor = None).contains("minor number"));
        assert!(broken(|gpu| gpu.pci = None).contains("address"));
    }
}
