//! The option of the driver's module that leaves device nodes alone, in a file for modprobe (modprobe.d(5)).

use crate::replace;
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_plan::access::OPTION;

/// The file. Later names win where two files give one option.
const FILE: &str = "etc/modprobe.d/tranche-device-nodes.conf";

/// Where else modprobe reads files.
const DIRECTORIES: [&str; 5] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
    "lib/modprobe.d",
];

/// Its text. Debian's packages of the driver call the module `nvidia-current`; an option for a module that does not
/// exist has no effect.
const TEXT: &str = "\
# Written by `tranche system protect`, and removed by `tranche system unprotect`: NVIDIA's libraries and tools neither make
# device nodes nor change their modes. tranche-device-nodes.service makes them.
options nvidia NVreg_ModifyDeviceFiles=0
options nvidia-current NVreg_ModifyDeviceFiles=0
";

/// The option below the directory that is `/`.
#[derive(Debug)]
pub struct ModuleOption<'r> {
    root: &'r Path,
}

impl<'r> ModuleOption<'r> {
    /// The option on the machine whose `/` is `root`.
    pub fn below(root: &'r Path) -> Self {
        Self { root }
    }

    /// The file that gives it.
    pub fn file(&self) -> PathBuf {
        self.root.join(FILE)
    }

    /// Whether the file exists.
    pub fn is_installed(&self) -> bool {
        self.file().symlink_metadata().is_ok()
    }

    /// Writes the file: the whole of it, or nothing.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn install(&self) -> Result<()> {
        replace::write(&self.file(), TEXT)
    }

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        replace::remove(&self.file())
    }

    /// Refuses other files that give the option another value: one of the two would count, and nobody sees which.
    ///
    /// # Errors
    /// Returns an error that names the file and the line.
    pub fn check_others(&self) -> Result<()> {
        let own = self.file();
        let files = DIRECTORIES
            .iter()
            .flat_map(|dir| fs::read_dir(self.root.join(dir)).ok())
            .flatten();
        let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| *file != own && file.extension().is_some_and(|extension| extension == "conf"));
        files.sort();
        for file in files {
            // One that cannot be read is not read by modprobe either.
            let text = fs::read_to_string(&file).unwrap_or_default();
            let gives = |line: &str| {
                let mut words = line.split_ascii_whitespace();
                let assigned = words.next() == Some("options");
                assigned
                    && words.any(|word| {
                        word.strip_prefix(OPTION)
                            .is_some_and(|rest| rest.starts_with('=') && rest != "=0")
                    })
            };
            if let Some(at) = text.lines().position(gives) {
                let what = format!("gives the option {OPTION} another value than 0");
                let place = format!("{}:{}", file.display(), at + 1);
                return Err(Error::failed(place, what).hint("remove it there"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_file_that_modprobe_reads() {
        let top = tempfile::tempdir().unwrap();
        let option = ModuleOption::below(top.path());
        assert!(!option.is_installed());
        option.install().unwrap();
        option.install().unwrap();
        let files: Vec<_> = fs::read_dir(top.path().join("etc/modprobe.d")).unwrap().collect();
        assert_eq!(files.len(), 1);
        let text = fs::read_to_string(option.file()).unwrap();
        let options: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            options,
            [
                "options nvidia NVreg_ModifyDeviceFiles=0",
                "options nvidia-current NVreg_ModifyDeviceFiles=0"
            ]
        );
        option.check_others().unwrap();
        option.remove().unwrap();
        option.remove().unwrap();
        assert!(!option.is_installed());
    }

    #[test]
    fn another_value_elsewhere_is_refused() {
        let top = tempfile::tempdir().unwrap();
        let option = ModuleOption::below(top.path());
        let other = top.path().join("usr/lib/modprobe.d/nvidia.conf");
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        for text in [
            "options nvidia NVreg_ModifyDeviceFiles=0\n",
            "# options nvidia NVreg_ModifyDeviceFiles=1\n",
        ] {
            fs::write(&other, text).unwrap();
            option.check_others().unwrap();
        }
        fs::write(
            &other,
            "# x\noptions nvidia NVreg_DeviceFileMode=0660 NVreg_ModifyDeviceFiles=1\n",
        )
        .unwrap();
        let error = option.check_others().unwrap_err().to_string();
        assert!(
            error.contains("nvidia.conf:2: gives the option NVreg_ModifyDeviceFiles"),
            "{error}"
        );
    }
}
