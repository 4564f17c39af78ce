//! What a host has lost since it was examined before.

use super::{Driver, DriverFile, FileKind, Inventory};
use std::collections::BTreeSet;

impl Inventory {
    /// The names of the driver's files that `earlier` had and this inventory lacks, sorted. Optional ones are left out:
    /// their packages and daemons come and go. Another version of the driver may have other files, and so may another
    /// machine, so nothing is lost if the version changed or if both have no GPU in common.
    pub fn lost_since(&self, earlier: &Self) -> Vec<String> {
        let (Some(now), Some(then)) = (&self.driver, &earlier.driver) else {
            return Vec::new();
        };
        let is_same_machine = self
            .gpus
            .iter()
            .any(|gpu| earlier.gpus.iter().any(|old| old.uuid == gpu.uuid));
        if now.version != then.version || !is_same_machine {
            return Vec::new();
        }
        let (now, then) = (names(now), names(then));
        then.difference(&now).map(|name| (*name).to_owned()).collect()
    }
}

/// The names of the files that stay as long as the driver does: that by which a loader asks for a library, else the
/// file's own. A file that moved to another directory is not lost.
fn names(driver: &Driver) -> BTreeSet<&str> {
    driver.files.iter().filter_map(name).collect()
}

fn name(file: &DriverFile) -> Option<&str> {
    match &file.kind {
        _ if file.is_optional() => None,
        FileKind::Library {
            soname: Some(soname), ..
        } => Some(soname),
        _ => file.host.as_path().file_name()?.to_str(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_is_lost_only_within_one_version_of_the_driver() {
        let good = crate::sim::open("t4x2").unwrap();
        let mut less = good.clone();
        let files = &mut less.driver.as_mut().unwrap().files;
        files.retain(|file| !file.host.as_str().contains("libcuda.so"));
        let lost = less.lost_since(&good);
        assert!(lost.len() == 1 && lost[0] == "libcuda.so.1", "{lost:?}");
        assert_eq!(good.lost_since(&less), [""; 0]);
        less.driver.as_mut().unwrap().version = "999.1".parse().unwrap();
        assert_eq!(less.lost_since(&good), [""; 0]);
        let mut moved = good.clone();
        for file in &mut moved.driver.as_mut().unwrap().files {
            file.host = format!("/opt{}", file.host.as_str()).parse().unwrap();
        }
        assert_eq!(moved.lost_since(&good), [""; 0]);
    }
}
