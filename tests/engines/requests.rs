//! Containers that ask for GPUs by a variable, by an annotation, by a share and by a size, under every engine that runs
//! them through our runtime or our precreate hook, and what each of them sees inside.

mod reach;

use std::fs;
use std::process::Command;

use crate::shares::{listening, place};
use crate::support::engines::{Bed, Engine, find};
use crate::support::session::{Session, session};
use crate::support::{fake_host, skip};

/// GPU 7 of eight by MPS, in unequal shares. The others are given as a whole.
/// `keys` are further settings of the runtime.
pub(super) fn policy(low_level: &str, keys: &str) -> String {
    format!(
        "\
version: v1
runtime: {{runtimes: [{low_level}]{keys}}}
sharing:
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [7]
      shares:
      - {{name: big, compute: 60%, memory: 8Gi}}
      - {{name: mid, compute: 20%, memory: 4Gi}}
      - {{name: small, compute: 20%, memory: 2Gi}}
"
    )
}

/// How an engine comes to run our code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    PodmanRuntime,
    PodmanPrecreate,
    DockerRuntime,
    DockerDefault,
    Ctr,
    Cri,
    PodmanConfigured,
    /// By a CDI name, without our runtime.
    DockerCdi,
    CtrCdi,
    CriCdi,
}

impl Way {
    /// The words of the engine, and the variables that they need.
    pub(super) fn script(self) -> (&'static str, &'static str) {
        const PODMAN: &str = include_str!("requests/podman.sh");
        const DOCKER: &str = include_str!("requests/docker.sh");
        const CTR: &str = concat!(include_str!("requests/containerd.sh"), include_str!("requests/ctr.sh"));
        const CRI: &str = concat!(include_str!("requests/containerd.sh"), include_str!("requests/cri.sh"));
        match self {
            Way::PodmanRuntime => (PODMAN, "hooks="),
            Way::PodmanPrecreate => (PODMAN, "hooks=\"--hooks-dir $bed/hooks.d\""),
            Way::DockerRuntime => (DOCKER, "configure= runtime='--runtime tranche'"),
            Way::DockerDefault => (DOCKER, "configure=--set-as-default runtime="),
            Way::DockerCdi => (DOCKER, "configure=no runtime="),
            Way::Ctr => (CTR, "runtime=\"--runc-binary $bed/runtime/tranche-runtime\""),
            Way::CtrCdi => (CTR, "runtime="),
            Way::Cri => (CRI, "configure= handler=tranche"),
            Way::CriCdi => (CRI, "configure=no handler="),
            Way::PodmanConfigured => (include_str!("requests/configured.sh"), ""),
        }
    }

    /// The programs that it needs besides those of podman's tests.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Way::PodmanRuntime | Way::PodmanPrecreate | Way::PodmanConfigured => &[],
            Way::DockerRuntime | Way::DockerDefault | Way::DockerCdi => &["docker", "dockerd", "containerd"],
            Way::Ctr | Way::CtrCdi => &["ctr", "containerd"],
            Way::Cri | Way::CriCdi => &["ctr", "containerd", "python3"],
        }
    }

    /// How people call the engine.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Way::PodmanRuntime | Way::PodmanPrecreate | Way::PodmanConfigured => "podman",
            Way::DockerRuntime | Way::DockerDefault | Way::DockerCdi => "docker",
            Way::Ctr | Way::CtrCdi => "ctr",
            Way::Cri | Way::CriCdi => "containerd by the CRI",
        }
    }

    /// What it needs and is not here.
    pub(super) fn missing(self) -> Option<String> {
        let mut absent: Vec<&str> = self.programs().to_vec();
        absent.retain(|name| find(name).is_none());
        let has_grpc = || Command::new("/usr/bin/python3").args(["-c", "import grpc"]).output();
        if absent.is_empty() && self.programs().contains(&"python3") && !has_grpc().is_ok_and(|o| o.status.success()) {
            absent.push("grpc for Python");
        }
        (!absent.is_empty()).then(|| format!("not installed: {}", absent.join(", ")))
    }

    /// Whether `exec` gives a process the environment of the container's share. With a hook alone, tranche does not run
    /// then.
    fn edits_exec(self) -> bool {
        self != Way::PodmanPrecreate
    }

    /// The settings without which the annotations of all.sh have no effect: podman 4.3 copies annotations from images.
    fn keys(self) -> &'static str {
        match self {
            Way::PodmanRuntime | Way::PodmanPrecreate | Way::PodmanConfigured => ", acceptAnnotations: always",
            _ => "",
        }
    }

    /// Whether a container of it can have an annotation: docker has none before 24.0, and containerd gives the
    /// low-level runtime those that its configuration lists.
    fn has_annotations(self) -> bool {
        !matches!(self, Way::DockerRuntime | Way::DockerDefault | Way::Cri)
    }
}

/// Runs `script` in the words of `way`, over crun or runc. `look` gets what it gave.
fn run(test: &str, way: Way, engine: Engine, script: &str, look: impl Fn(&Session)) {
    let test = format!("requests::{test}");
    run_with(&test, way, engine, way.keys(), script, look);
}

/// As [`run`], with other settings of the runtime.
pub(super) fn run_with(test: &str, way: Way, engine: Engine, keys: &str, script: &str, look: impl Fn(&Session)) {
    run_policy(test, way, engine, &policy(engine.runtime(), keys), script, look);
}

/// As [`run`], with another policy.
pub(super) fn run_policy(test: &str, way: Way, engine: Engine, policy: &str, script: &str, look: impl Fn(&Session)) {
    let test = format!("{test} {way:?} {}", engine.runtime());
    if let Some(reason) = engine.missing().or(way.missing()) {
        skip::not_run(&test, &reason);
        return;
    }
    let mut bed = Bed::new();
    let host = fake_host::build("hgx-h200", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&test, &missing.why);
        return;
    }
    fs::write(bed.at("policy.yaml"), policy).unwrap();
    let _daemon = listening(&bed.at("daemon"));
    fs::create_dir(bed.at("runtime")).unwrap();
    let runtime = bed.at("runtime/tranche-runtime");
    crate::support::programs::install(env!("CARGO_BIN_EXE_tranche-runtime"), &runtime);
    match way {
        Way::PodmanRuntime => bed.with_our_runtime(engine),
        Way::PodmanPrecreate | Way::PodmanConfigured => {
            let hook =
                fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/hooks/precreate/tranche.json")).unwrap();
            let hook = hook.replace("/usr/bin/tranche-runtime", runtime.to_str().unwrap());
            fs::create_dir(bed.at("hooks.d")).unwrap();
            fs::write(bed.at("hooks.d/tranche.json"), hook).unwrap();
        }
        _ => {}
    }
    let (words, variables) = way.script();
    let whole = format!(
        "place='{}'\ncri='{}'\n{variables}\n{}{words}trap engine_down EXIT\nengine_up \"$1\"\n{script}",
        place(&bed).join(" "),
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engines/requests/cri.py"),
        include_str!("requests/verbs.sh"),
    );
    let session = session(&bed, engine, 1, &whole);
    session.ok("refresh");
    look(&session);
}

/// The GPUs whose nodes the text of a look lists.
pub(super) fn gpus(look: &str) -> Vec<u32> {
    let nodes = look.lines().filter_map(|line| line.strip_prefix("/dev/nvidia"));
    nodes.map(|number| number.parse().unwrap()).collect()
}

/// Fails unless `look` is that of a container with these GPUs as a whole.
pub(super) fn has_gpus(session: &Session, step: &str, expected: &[u32]) {
    let look = session.ok(step);
    assert_eq!(gpus(look), expected, "{step}: {look}");
    assert_eq!(look.contains("/libcuda.so.1\n"), !expected.is_empty(), "{step}: {look}");
    assert!(!look.contains("CUDA_MPS"), "{step}: {look}");
}

/// Fails unless `text` has the variables of a share with this part of GPU 7.
pub(super) fn has_share(step: &str, text: &str, percent: u32, memory: u32) {
    let text = &text.replace('\0', "\n");
    for line in [
        "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
        &format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}"),
        &format!("NVIDIA_GPU_MEMORY_LIMIT={memory}"),
    ] {
        assert_eq!(
            text.lines().filter(|other| *other == line).count(),
            1,
            "{step}: {line} in {text}"
        );
    }
    assert_eq!(
        text.lines().filter(|line| line.starts_with("CUDA_MPS_PIPE")).count(),
        1,
        "{step}: {text}"
    );
}

fn check(way: Way, session: &Session) {
    has_gpus(session, "nothing", &[]);
    assert!(!session.ok("nothing").contains("NVIDIA"), "{}", session.ok("nothing"));
    has_gpus(session, "one", &[0]);
    has_gpus(session, "two", &[0, 2]);
    has_gpus(session, "all", &[0, 1, 2, 3, 4, 5, 6]);
    if way.has_annotations() {
        has_gpus(session, "annotated", &[3]);
        has_share("size-annotated", session.ok("size-annotated"), 20, 4096);
    }
    let unknown = session.step("unknown");
    assert!(unknown.code != 0 && unknown.text.contains("99"), "{}", unknown.text);

    session.ok("share");
    has_share("share-init", session.ok("share-init"), 60, 8192);
    for step in ["share-exec", "restarted"] {
        let look = session.ok(step);
        if way.edits_exec() {
            has_share(step, look, 60, 8192);
        }
        assert_eq!(gpus(look), [7], "{step}: {look}");
        assert!(
            look.contains("\ncontrol\n") && look.contains("/libcuda.so.1\n"),
            "{step}: {look}"
        );
    }
    let taken = session.step("taken");
    assert!(taken.code != 0 && taken.text.contains("share big"), "{}", taken.text);
    assert!(
        session.ok("held").contains("nvidia.com/gpu=7.big "),
        "{}",
        session.ok("held")
    );
    session.ok("restart");
    session.ok("remove");
    assert!(
        session.ok("free").contains("no share is held\n"),
        "{}",
        session.ok("free")
    );

    session.ok("size");
    has_share("size-init", session.ok("size-init"), 20, 4096);

    session.ok("writer");
    assert!(
        session.ok("writing").contains("nvidia.com/gpu=7.mid "),
        "{}",
        session.ok("writing")
    );
    assert_ne!(session.step("early").code, 0, "{}", session.step("early").text);
    assert_eq!(session.ok("saved"), "/dev/nvidia7\n");
    assert!(
        session.ok("written").contains("no share is held\n"),
        "{}",
        session.ok("written")
    );
}

/// Both low-level runtimes below `way`.
fn both(way: Way) {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        run("all", way, engine, include_str!("requests/all.sh"), |session| {
            check(way, session)
        });
    }
}

#[test]
fn of_podman_with_the_runtime() {
    both(Way::PodmanRuntime);
}

#[test]
fn of_podman_with_the_precreate_hook() {
    both(Way::PodmanPrecreate);
}

#[test]
fn of_docker_with_the_runtime() {
    both(Way::DockerRuntime);
}

#[test]
fn of_docker_with_the_default_runtime() {
    both(Way::DockerDefault);
}

/// docker's own option. docker adds a prestart hook for it, which the runtime replaces, and which otherwise says what
/// to do.
#[test]
fn of_docker_by_gpus() {
    let script = r#"
options=
step all docker run --rm --network=none --gpus all bb:1 sh -c "$look"
step two docker run --rm --network=none --gpus 2 bb:1 sh -c "$look"
step first docker run --rm --network=none --gpus '"device=0"' bb:1 sh -c "$look"
step few docker run --rm --network=none --gpus '"device=2,4","capabilities=utility"' bb:1 sh -c "$look"
step share docker run --rm --network=none --gpus all -e NVIDIA_VISIBLE_DEVICES=7.big bb:1 sh -c "$look"
step stays docker run --detach --network=none --name stays --gpus '"device=1"' bb:1 sleep 1000
step exec docker exec stays sh -c "$look"
step restart docker restart --time 0 stays
step restarted docker exec stays sh -c "$look"
step missing docker run --rm --network=none --gpus '"device=99"' bb:1 true
step other docker run --rm --network=none --runtime runc --gpus all bb:1 true
"#;
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        run("of_docker_by_gpus", Way::DockerDefault, engine, script, |session| {
            has_gpus(session, "all", &[0, 1, 2, 3, 4, 5, 6]);
            has_gpus(session, "two", &[0, 1]);
            has_gpus(session, "first", &[0]);
            let few = session.ok("few");
            assert_eq!(gpus(few), [2, 4], "{few}");
            assert!(!few.contains("/libcuda.so.1\n"), "CUDA is no utility: {few}");
            has_gpus(session, "exec", &[1]);
            has_gpus(session, "restarted", &[1]);
            let missing = session.step("missing");
            assert!(
                missing.code != 0 && missing.text.contains("device 99: not found"),
                "{}",
                missing.text
            );
            let other = session.step("other");
            let says = "tranche runtime configure --runtime docker --set-as-default";
            assert!(other.code != 0 && other.text.contains(says), "{}", other.text);
            // docker's option wins over a variable: the last entry of the environment counts.
            has_gpus(session, "share", &[0, 1, 2, 3, 4, 5, 6]);
        });
    }
}

/// An image is built, and containers run, with the configuration that `tranche runtime configure` writes. podman build
/// and buildah read the shared directory of hooks, and refuse a hook of the stage precreate there.
#[test]
fn of_podman_that_is_configured() {
    run(
        "of_podman_that_is_configured",
        Way::PodmanConfigured,
        Engine::PodmanCrun,
        "",
        |session| {
            session.ok("configure");
            session.ok("shared-hooks");
            for user in ["root", "user"] {
                session.ok(&format!("build-{user}"));
                assert_eq!(session.ok(&format!("plain-{user}")), "built\n");
            }
            has_gpus(session, "gpu", &[0]);
            // The hook reserves the share, and the runtime behind it does not reserve it a second time.
            has_share("both", session.ok("both"), 60, 8192);
            assert!(
                session.ok("after").contains("no share is held\n"),
                "{}",
                session.ok("after")
            );
        },
    );
}

#[test]
fn of_containerd() {
    both(Way::Ctr);
}

/// As a kubelet asks containerd.
#[test]
fn of_containerd_by_the_cri() {
    both(Way::Cri);
}
