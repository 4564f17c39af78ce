//! The engines, in one table.
//!
//! What tranche knows of an engine is a row in `engines/table.rs`. How its configuration is read and changed is one
//! file in `engine_config`, and what its images can make it ask for is in `inject/calling_engine.rs`.

mod table;

pub use table::{DropIns, EngineFacts};

use tranche_core::types::{CdiVersion, EngineVersion};

tranche_core::types::words! {
    /// A program that starts containers: users choose it, update it and configure it.
    pub enum Engine: "engine" {
        /// podman
        Podman = "podman",
        /// dockerd
        Docker = "docker",
        /// containerd with its CRI plugin
        Containerd = "containerd",
        /// CRI-O
        Crio = "crio",
    }
}

impl Engine {
    /// Its row of the table.
    pub fn facts(self) -> &'static EngineFacts {
        match self {
            Self::Podman => &table::PODMAN,
            Self::Docker => &table::DOCKER,
            Self::Containerd => &table::CONTAINERD,
            Self::Crio => &table::CRIO,
        }
    }

    /// What a person does so that the engine uses its new configuration.
    pub fn restart(self) -> String {
        match self.facts().unit {
            Some(unit) => format!("run systemctl restart {unit} to apply it"),
            None => format!("{} applies it to the next container", self.facts().title),
        }
    }

    /// All engines, for a sentence.
    pub fn all_titles() -> String {
        let titles: Vec<&str> = Self::ALL.iter().map(|engine| engine.facts().title).collect();
        let (last, first) = titles.split_last().unwrap_or((&"", &[]));
        format!("{} and {last}", first.join(", "))
    }
}

/// An engine that is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEngine {
    /// Which one.
    pub engine: Engine,
    /// Its version; `None` if it did not print one.
    pub version: Option<EngineVersion>,
}

impl FoundEngine {
    /// Its version as people write it.
    pub fn shown(&self) -> String {
        shown(self.engine.as_str(), self.version.as_ref())
    }

    /// The newest CDI version that it reads. `None` if it has no CDI, or if its version is unknown.
    pub fn cdi(&self) -> Option<CdiVersion> {
        let version = self.version.as_ref()?.numbers();
        let mut rows = self.engine.facts().cdi.iter();
        rows.find(|(since, _)| version >= *since).map(|(_, cdi)| *cdi)
    }

    /// Whether it is older than version 2, in which containerd has its present form.
    pub fn is_before_2(&self) -> bool {
        self.version
            .as_ref()
            .is_some_and(|version| version.numbers() < [2].as_slice())
    }

    /// Whether it reads CDI, and only if its configuration turns that on.
    pub fn is_cdi_off_by_default(&self) -> bool {
        let on_since = self.engine.facts().cdi_is_on_since;
        self.cdi().is_some()
            && self
                .version
                .as_ref()
                .is_some_and(|version| version.numbers() < on_since)
    }
}

/// A program and its version, as people write them: `crun 1.8.1`.
pub fn shown(program: &str, version: Option<&EngineVersion>) -> String {
    match version {
        Some(version) => format!("{program} {version}"),
        None => format!("{program} (unknown version)"),
    }
}

/// The engine in `engines` that reads the oldest CDI version, and that version. Engines without CDI do not count: they
/// read no specification. `None` if there is no engine whose version is known.
pub fn oldest(engines: &[FoundEngine]) -> Option<(&FoundEngine, CdiVersion)> {
    let reading = engines.iter().filter_map(|engine| Some((engine, engine.cdi()?)));
    reading.min_by_key(|(_, reads)| *reads)
}

/// The version of the oldest podman in `engines`. `None` if there is no podman, or if the version of one is not known.
pub fn oldest_podman(engines: &[FoundEngine]) -> Option<&EngineVersion> {
    let podmans = engines.iter().filter(|engine| engine.engine == Engine::Podman);
    let versions: Option<Vec<&EngineVersion>> = podmans.map(|engine| engine.version.as_ref()).collect();
    versions?.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(name: &str, version: &str) -> FoundEngine {
        FoundEngine {
            engine: name.parse().unwrap(),
            version: Some(version.parse().unwrap()),
        }
    }

    #[test]
    fn an_engine_reads_what_its_library_reads() {
        let reads = [
            (engine("podman", "3.4.4"), None),
            (engine("podman", "4.1.1"), Some("0.4.0")),
            (engine("podman", "4.3.1"), Some("0.5.0")),
            // 0.7, with additional groups, comes later: a file with them is refused as a whole.
            (engine("podman", "4.6.2"), Some("0.5.0")),
            (engine("podman", "4.9.4"), Some("0.6.0")),
            (engine("podman", "5.4.2"), Some("0.8.0")),
            (engine("podman", "6.0"), Some("1.1.0")),
            (engine("docker", "20.10.24"), None),
            (engine("docker", "26.1.5"), Some("0.6.0")),
            (engine("docker", "28.2"), Some("1.0.0")),
            (engine("containerd", "1.6.20"), None),
            (engine("containerd", "1.7.24"), Some("0.6.0")),
            (engine("containerd", "2.0.1"), Some("0.8.0")),
            (engine("crio", "1.33.4"), Some("0.8.0")),
        ];
        for (engine, cdi) in reads {
            let cdi: Option<CdiVersion> = cdi.map(|version| version.parse().unwrap());
            assert_eq!(engine.cdi(), cdi, "{}", engine.shown());
        }
        let unknown = FoundEngine {
            engine: Engine::Podman,
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
                    engine: Engine::Podman,
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

    #[test]
    fn cdi_is_off_in_some_versions() {
        for (engine, is_off) in [
            (engine("docker", "20.10.24"), false),
            (engine("docker", "25.0"), true),
            (engine("docker", "28.1.1"), true),
            (engine("docker", "28.2"), false),
            (engine("containerd", "1.6.20"), false),
            (engine("containerd", "1.7.24"), true),
            (engine("containerd", "2.0.1"), false),
            (engine("podman", "4.3.1"), false),
        ] {
            assert_eq!(engine.is_cdi_off_by_default(), is_off, "{}", engine.shown());
        }
    }
}
