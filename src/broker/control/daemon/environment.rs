//! Where a daemon finds the driver's programs and libraries. It executes its server by name, along `PATH`, and the
//! server loads `libcuda.so.1`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tranche_core::types::PROGRAM_DIRS;

/// The variables of a daemon that say where the driver's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::control) struct DaemonEnvironment {
    path: OsString,
    libraries: Option<PathBuf>,
}

impl DaemonEnvironment {
    /// For the programs `control` and `server` and the directory of the driver's libraries. The directories of
    /// packages come after those of the programs.
    pub(in crate::control) fn of(control: &Path, server: Option<&Path>, libraries: Option<&Path>) -> Self {
        let own = [server, Some(control)].into_iter().flatten().filter_map(Path::parent);
        let known = PROGRAM_DIRS.iter().map(Path::new);
        let mut path = OsString::new();
        let mut taken: Vec<&Path> = Vec::new();
        for dir in own.chain(known) {
            // A colon would divide the name.
            if taken.contains(&dir) || dir.as_os_str().as_encoded_bytes().contains(&b':') {
                continue;
            }
            if !path.is_empty() {
                path.push(":");
            }
            path.push(dir);
            taken.push(dir);
        }
        Self {
            path,
            libraries: libraries.map(Path::to_owned),
        }
    }

    /// `PATH`, and `LD_LIBRARY_PATH` for libraries that the loader does not find by itself.
    pub(in crate::control) fn search(&self) -> Vec<(&'static str, OsString)> {
        let libraries = self.libraries.as_ref();
        let libraries = libraries.map(|dir| ("LD_LIBRARY_PATH", dir.clone().into_os_string()));
        std::iter::once(("PATH", self.path.clone())).chain(libraries).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_found_beside_the_control_program_or_in_sbin() {
        let path = |control: &str, server: Option<&str>| {
            let environment = DaemonEnvironment::of(Path::new(control), server.map(Path::new), None);
            environment.search()[0].1.to_str().unwrap().to_owned()
        };
        let rest = PROGRAM_DIRS.join(":");
        assert_eq!(
            path("/usr/bin/c", Some("/usr/sbin/s")),
            "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/sbin:/bin"
        );
        assert_eq!(path("/driver/usr/bin/c", None), format!("/driver/usr/bin:{rest}"));
        assert_eq!(path("/a:b/c", None), rest);
        let environment = DaemonEnvironment::of(Path::new("/d/bin/c"), None, Some(Path::new("/d/lib64")));
        assert_eq!(environment.search()[1], ("LD_LIBRARY_PATH", "/d/lib64".into()));
    }
}
