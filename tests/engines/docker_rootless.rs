//! docker of a user, as the distribution starts it: `dockerd-rootless.sh` over rootlesskit, for a user whom `useradd`
//! made.

use crate::cdi_names::{POLICY, installed, said};
use crate::requests::{Way, has_gpus};
use crate::support::engines::{Bed, Engine, find};
use crate::support::session::{Session, session};
use crate::support::{fake_host, programs, skip};
use std::fs;
use tranche_plan::engines::Engine as Program;

/// Where Debian's package has it.
const STARTER: &str = "/usr/share/docker.io/contrib/dockerd-rootless.sh";

fn missing() -> Option<String> {
    if let Some(reason) = Engine::PodmanRunc.missing() {
        return Some(reason);
    }
    let needed = [
        "docker",
        "dockerd",
        "rootlesskit",
        "slirp4netns",
        "newuidmap",
        "useradd",
    ];
    let absent: Vec<&str> = needed.into_iter().filter(|program| find(program).is_none()).collect();
    if !absent.is_empty() {
        return Some(format!("not installed: {}", absent.join(", ")));
    }
    let has_starter = fs::exists(STARTER).unwrap_or_default();
    (!has_starter).then(|| format!("not installed: {STARTER}"))
}

/// Fails unless `step` was refused for this reason.
fn is_refused(session: &Session, step: &str, why: &str) {
    let tried = session.step(step);
    assert!(tried.code != 0 && tried.text.contains(why), "{step}: {}", tried.text);
}

/// Where docker reads specifications, and which of them.
struct Reads {
    cdi: bool,
    is_off: bool,
    /// dockerd sees the directories of specifications, and not links to them.
    directories: bool,
}

impl Reads {
    fn here() -> Self {
        let docker = installed(Way::DockerCdi);
        Reads {
            cdi: docker.cdi().is_some(),
            is_off: docker.is_cdi_off_by_default(),
            directories: fs::read_to_string(STARTER)
                .unwrap()
                .contains("mount_directory /var/run/cdi\n"),
        }
    }

    /// Fails unless a whole device came by its CDI name, or was refused for the reason that this docker has.
    fn check(&self, session: &Session, step: &str, is_off: bool) {
        match (self.cdi, is_off, self.directories) {
            (false, _, _) => is_refused(session, step, "nvidia.com/gpu=1 is not an absolute path"),
            (true, true, _) => is_refused(session, step, "could not select device driver \"cdi\""),
            (true, false, false) => is_refused(session, step, "unresolvable CDI devices nvidia.com/gpu=1"),
            (true, false, true) => has_gpus(session, step, &[1]),
        }
    }
}

#[test]
fn docker_of_a_user_gives_devices_and_shares() {
    let test = "docker_rootless::docker_of_a_user_gives_devices_and_shares";
    if let Some(reason) = missing() {
        skip::not_run(test, &reason);
        return;
    }
    let mut bed = Bed::new();
    let host = fake_host::build("hgx-h200", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(test, &missing.why);
        return;
    }
    // A user's engine takes a node only by the path that it has in the container.
    bed.with_nodes(&host.path("/dev"));
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    fs::create_dir(bed.at("runtime")).unwrap();
    crate::support::installed::command_line(&bed.at(""));
    programs::install(env!("CARGO_BIN_EXE_tranche-runtime"), bed.at("runtime/tranche-runtime"));
    let reads = Reads::here();
    let root = host.root.display();
    let script = format!(
        "place='--driver-root={root} --dev-root=/ --proc-root={root}/proc --sys-root={root}/sys --config={}'\n\
         reads_cdi={}\n{}",
        bed.at("policy.yaml").display(),
        if reads.cdi { "yes" } else { "no" },
        include_str!("docker_rootless.sh"),
    );
    let session = session(&bed, Engine::PodmanRunc, 1, &script);

    session.ok("refresh");
    has_gpus(&session, "plain", &[]);
    reads.check(&session, "installed", reads.is_off);
    let files = said(&session, "doctor", "configuration of engines", Program::Docker.as_str());
    let is_off = files.iter().any(|(_, what)| what.contains("CDI is off by default"));
    assert_eq!(is_off, reads.is_off, "{files:?}");
    for check in ["host.json", "rootless engines"] {
        let said = said(&session, "doctor", check, "");
        assert!(
            said.iter().all(|(result, _)| result == "good") && said.len() == 1,
            "{said:?}"
        );
    }
    session.ok("configure");
    reads.check(&session, "configured", false);

    // The runtime gives whole devices, and says where shares come from.
    has_gpus(&session, "runtime", &[1]);
    has_gpus(&session, "gpus", &[0]);
    for step in ["runtime-share", "runtime-mps"] {
        let why = "in a user's own engine, this runtime reserves no shares; ask for the share by its CDI name";
        is_refused(&session, step, why);
    }
    is_refused(&session, "runtime-unknown", "device 99: not found");
    let messages = session.ok("messages");
    assert!(messages.contains("device 99: not found"), "{messages}");
    assert!(!messages.contains("remark of delete"), "{messages}");

    let what = match (reads.cdi, reads.is_off, reads.directories) {
        (false, ..) => "whole devices come by the runtime",
        (true, false, true) => "CDI names work as it is installed",
        (true, ..) => "CDI names work after tranche runtime configure, with cdi-spec-dirs",
    };
    skip::seen("docker of a user", what);
    assert!(session.ok("free").contains("no share is held\n"));
    if reads.cdi {
        shares(&session);
    }
}

/// Devices and shares by their CDI names.
fn shares(session: &Session) {
    has_gpus(session, "linked", &[1]);
    is_refused(session, "unknown", "unresolvable CDI devices nvidia.com/gpu=99");
    session.ok("share");
    is_refused(session, "taken", "gpu 6 share 0: ");
    has_gpus(session, "any", &[6]);
    session.ok("restart");
    for step in ["held", "after-restart"] {
        let held = session.ok(step);
        assert!(
            held.contains("nvidia.com/gpu=6.0 ") && held.contains("nvidia.com/gpu=6  1 of 2  1\n"),
            "{held}"
        );
    }
    is_refused(
        session,
        "mps",
        "shares under MPS are for containers of engines that run as root",
    );
    session.ok("remove");
}
