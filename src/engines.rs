//! The engines and low-level runtimes that a machine has, and the newest CDI version that each engine reads.

pub mod installed;
mod table;

use crate::types::{CdiVersion, EngineVersion};

/// An engine or a low-level runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEngine {
    /// The name of its program: podman, docker, containerd, crio, crun, runc.
    pub name: &'static str,
    /// Its version; `None` if it did not print one.
    pub version: Option<EngineVersion>,
}

impl FoundEngine {
    /// Its version as people write it.
    pub fn shown(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.name),
            None => format!("{} (unknown version)", self.name),
        }
    }

    /// The newest CDI version that it reads (cdi-versions.txt). `None` if it has no CDI, or if its version is unknown.
    pub fn cdi(&self) -> Option<CdiVersion> {
        let version = self.version.as_ref()?.numbers();
        let mut rows = table::rows().filter(|row| row.engine == self.name);
        rows.find(|row| version >= row.since.numbers()).map(|row| row.cdi)
    }

    /// Whether it is an engine, and not a low-level runtime.
    pub fn is_engine(&self) -> bool {
        !matches!(self.name, "crun" | "runc")
    }
}

/// The engine in `engines` that reads the oldest CDI version, and that version. Engines without CDI do not count: they read
/// no specification. `None` if there is no engine whose version is known.
pub fn oldest(engines: &[FoundEngine]) -> Option<(&FoundEngine, CdiVersion)> {
    let reading = engines.iter().filter_map(|engine| Some((engine, engine.cdi()?)));
    reading.min_by_key(|(_, reads)| *reads)
}

/// The version of the oldest podman in `engines`. `None` if there is no podman, or if the version of one is not known.
pub fn oldest_podman(engines: &[FoundEngine]) -> Option<&EngineVersion> {
    let podmans = engines.iter().filter(|engine| engine.name == "podman");
    let versions: Option<Vec<&EngineVersion>> = podmans.map(|engine| engine.version.as_ref()).collect();
    versions?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &'static str, version: &str) -> FoundEngine {
        FoundEngine {
            name,
            version: Some(version.parse().unwrap()),
        }
    }

    #[test]
    fn an_engine_reads_what_its_library_reads() {
        let reads = [
            (engine("podman", "3.4.4"), None),
            (engine("podman", "4.1.1"), Some("0.4.0")),
            (engine("podman", "4.3.1"), Some("0.5.0")),
            (engine("podman", "5.4.2"), Some("0.8.0")),
            (engine("podman", "6.0"), Some("1.1.0")),
            (engine("docker", "20.10.24"), None),
            (engine("docker", "26.1.5"), Some("0.6.0")),
            (engine("docker", "28.2"), Some("1.0.0")),
            (engine("containerd", "1.6.20"), None),
            (engine("containerd", "1.7.24"), Some("0.6.0")),
            (engine("containerd", "2.0.1"), Some("0.8.0")),
            (engine("crio", "1.33.4"), Some("0.8.0")),
            (engine("runc", "1.1.5"), None),
        ];
        for (engine, cdi) in reads {
            let cdi: Option<CdiVersion> = cdi.map(|version| version.parse().unwrap());
            assert_eq!(engine.cdi(), cdi, "{}", engine.shown());
        }
        let unknown = FoundEngine {
            name: "podman",
            version: None,
        };
        assert_eq!(
            (unknown.cdi(), unknown.shown().as_str()),
            (None, "podman (unknown version)")
        );
    }

    #[test]
    fn the_oldest_podman_is_known_if_each_one_is() {
        let both = [
            engine("podman", "5.4.2"),
            engine("docker", "1.0"),
            engine("podman", "4.3.1"),
        ];
        assert_eq!(oldest_podman(&both), both[2].version.as_ref());
        let [new, docker, old] = both;
        assert_eq!(oldest_podman(&[docker]), None);
        assert_eq!(
            oldest_podman(&[
                new,
                old,
                FoundEngine {
                    name: "podman",
                    version: None
                }
            ]),
            None
        );
    }

    #[test]
    fn the_oldest_engine_is_the_one_that_reads_least() {
        let docker = engine("docker", "28.2");
        let podman = engine("podman", "4.3.1");
        let without = engine("containerd", "1.6.20");
        let all = [docker.clone(), without.clone(), podman.clone()];
        let (found, reads) = oldest(&all).unwrap();
        assert_eq!((found, reads), (&podman, CdiVersion::V0_5));
        assert_eq!(oldest(&[docker.clone(), without.clone()]).unwrap().0, &docker);
        assert_eq!(oldest(&[without]), None);
        assert_eq!(oldest(&[]), None);
    }
}
