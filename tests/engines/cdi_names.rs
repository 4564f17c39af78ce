//! CDI names under docker, `ctr` and containerd's CRI: what works with the engine as it is installed, what after
//! `tranche runtime configure`, and whether doctor says the same.

use crate::requests::{Way, gpus, has_gpus, has_share, run_policy};
use crate::support::engines::Engine;
use crate::support::session::Session;
use crate::support::skip;
use serde_json::Value;
use tranche_plan::engines::{Engine as Program, FoundEngine};
use tranche_specs::installed::EngineDirs;

/// GPU 6 in two equal shares, GPU 7 in unequal ones by MPS; the others are given as a whole.
pub(super) const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [6], replicas: 2}
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [7]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: small, compute: 40%, memory: 4Gi}
";

/// The engine below `way`, with its installed version.
pub(super) fn installed(way: Way) -> FoundEngine {
    let engine = match way {
        Way::DockerCdi => Program::Docker,
        Way::PodmanRuntime => Program::Podman,
        _ => Program::Containerd,
    };
    let found = EngineDirs::default().installed();
    let found = found
        .into_iter()
        .find(|found| found.engine == engine && found.version.is_some());
    found.unwrap_or_else(|| panic!("{engine}: no version"))
}

/// What doctor says in `check` of what this word is about, by result.
pub(super) fn said(session: &Session, step: &str, check: &str, word: &str) -> Vec<(String, String)> {
    let text = session.ok(step);
    let json = &text[text.find('{').unwrap()..];
    let found: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {text}"));
    let checks = found["checks"].as_array().unwrap();
    let of_engine = checks.iter().filter(|entry| {
        let found = entry["found"].as_str().unwrap_or_default();
        entry["check"] == check && found.contains(word)
    });
    of_engine
        .map(|entry| [&entry["result"], &entry["found"]].map(|word| word.as_str().unwrap_or_default().to_owned()))
        .map(|[result, found]| (result, found))
        .collect()
}

/// Whether a CDI name works with the engine as its package configures it, and after `tranche runtime configure`.
fn expected(way: Way, found: &FoundEngine) -> (bool, bool) {
    let version = found.version.as_ref().unwrap().numbers();
    match way {
        // ctr takes CDI names from 2.0 on, and asks no configuration.
        Way::CtrCdi => (version >= [2, 0].as_slice(), version >= [2, 0].as_slice()),
        _ => (
            found.cdi().is_some() && !found.is_cdi_off_by_default(),
            found.cdi().is_some(),
        ),
    }
}

/// Why an engine refuses CDI device `name`; `None` if it starts the container without the device.
fn refusal(way: Way, reads_cdi: bool, name: &str) -> Option<String> {
    match way {
        // Off, or a field of the request that it does not know.
        Way::CriCdi => None,
        Way::CtrCdi => Some(format!("stat {name}: no such file or directory")),
        _ if reads_cdi => Some("could not select device driver \"cdi\"".to_owned()),
        _ => Some(format!("{name} is not an absolute path")),
    }
}

/// Fails unless the container of `step` did not get device `name`, for the reason that this engine has.
fn lacks(session: &Session, step: &str, way: Way, reads_cdi: bool, name: &str) {
    let tried = session.step(step);
    assert!(gpus(&tried.text).is_empty(), "{step}: {}", tried.text);
    match refusal(way, reads_cdi, name) {
        Some(why) => assert!(tried.code != 0 && tried.text.contains(&why), "{step}: {}", tried.text),
        None => assert_eq!(tried.code, 0, "{step}: {}", tried.text),
    }
}

fn check(way: Way, session: &Session) {
    let found = installed(way);
    let (as_installed, configured) = expected(way, &found);
    let what = match (as_installed, configured) {
        (true, _) => "CDI names work as it is installed",
        (false, true) => "CDI names work after tranche runtime configure",
        // It does not know the field of the request.
        (false, false) if way == Way::CriCdi => "a container starts without its devices",
        (false, false) => "CDI names are refused",
    };
    skip::seen(way.shown(), what);
    match as_installed {
        true => has_gpus(session, "installed", &[0]),
        false => lacks(session, "installed", way, configured, "nvidia.com/gpu=0"),
    }

    // What doctor says is what the engine does.
    if way != Way::CtrCdi {
        let versions = said(session, "doctor", "engines", found.engine.as_str());
        let files = said(session, "doctor", "configuration of engines", found.engine.as_str());
        let reads = versions
            .iter()
            .any(|(result, what)| result == "good" && what.contains(": reads CDI "));
        let is_off = files
            .iter()
            .any(|(_, what)| what.contains("CDI is off") || what.contains("enable_cdi"));
        assert_eq!(
            (reads, reads && !is_off),
            (configured, as_installed),
            "{versions:?} {files:?}"
        );
        let files = said(
            session,
            "doctor-configured",
            "configuration of engines",
            found.engine.as_str(),
        );
        assert_eq!(files, [], "nothing is wrong after configuring");
    }

    if !configured {
        lacks(session, "one", way, configured, "nvidia.com/gpu=0");
        lacks(session, "share", way, configured, "nvidia.com/gpu=6.0");
        assert!(session.ok("free").contains("no share is held\n"));
        return;
    }
    has_gpus(session, "one", &[0]);
    has_gpus(session, "two", &[0, 2]);
    has_gpus(session, "all", &[0, 1, 2, 3, 4, 5]);
    let unknown = session.step("unknown");
    assert!(
        unknown.code != 0 && unknown.text.contains("nvidia.com/gpu=99"),
        "{}",
        unknown.text
    );

    session.ok("share");
    session.ok("any");
    for (step, why) in [
        ("taken", "share 0"),
        ("third", "none of its 2 shares is free"),
        ("mps-taken", "share big"),
    ] {
        let refused = session.step(step);
        assert!(
            refused.code != 0 && refused.text.contains(why),
            "{step}: {}",
            refused.text
        );
    }
    let held = session.ok("held");
    assert!(
        held.contains("nvidia.com/gpu=6.0 ") && held.contains("nvidia.com/gpu=6  2 of 2  -\n"),
        "{held}"
    );
    session.ok("restart");
    assert!(
        session.ok("after-restart").contains("nvidia.com/gpu=6  2 of 2  -\n"),
        "{}",
        session.ok("after-restart")
    );
    assert_eq!(gpus(session.ok("again")), [6]);
    session.ok("mps");
    has_share("mps-init", session.ok("mps-init"), 60, 8192);
    assert_eq!(gpus(session.ok("mps-inside")), [7]);
    assert!(
        session.ok("mps-inside").contains("\ncontrol\n"),
        "{}",
        session.ok("mps-inside")
    );
    assert!(
        session.ok("free").contains("no share is held\n"),
        "{}",
        session.ok("free")
    );
}

fn run(way: Way) {
    let script = include_str!("cdi_names.sh");
    run_policy("cdi_names", way, Engine::PodmanRunc, POLICY, script, |session| {
        check(way, session)
    });
}

#[test]
fn of_docker() {
    run(Way::DockerCdi);
}

#[test]
fn of_ctr() {
    run(Way::CtrCdi);
}

#[test]
fn of_containerd_by_the_cri() {
    run(Way::CriCdi);
}
