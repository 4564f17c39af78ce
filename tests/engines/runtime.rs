//! podman with `tranche-runtime` in the place of crun and runc, and with the precreate hook: containers that request
//! nothing are as without it.

use std::fs;

use serde_json::json;
use tranche_plan::policy::RuntimeSettings;

use crate::support::engines::{Bed, Engine, run_podman, run_podman_in};
use crate::support::session::session;
use crate::support::skip;

/// A file that only the owner's choice of a low-level runtime is read from.
fn host(engine: Engine) -> String {
    let settings = RuntimeSettings {
        runtimes: vec![engine.runtime().to_owned()],
        ..RuntimeSettings::default()
    };
    json!({"runtime": settings}).to_string()
}

fn bed(engine: Engine) -> Bed {
    let mut bed = Bed::new();
    bed.with_our_runtime(engine);
    fs::write(bed.at("host.json"), host(engine)).unwrap();
    let before = format!(
        "mkdir -p /run/tranche && cp {} /run/tranche/",
        bed.at("host.json").display()
    );
    bed.around(&before, "");
    bed
}

#[test]
fn a_container_without_a_request_runs_as_before() {
    for engine in Engine::ALL {
        if let Some(why) = engine.missing() {
            skip::not_run("runtime::a_container_without_a_request_runs_as_before", &why);
            continue;
        }
        let bed = bed(engine);
        let output = run_podman(
            &bed,
            engine,
            &[],
            &bed.specs(),
            &["sh", "-c", "echo in; echo err >&2; exit 23"],
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(23), &b"in\n"[..]),
            "{engine:?}: {said}"
        );
        assert!(said.contains("err\n"), "{engine:?}: {said}");
        // The error of the low-level runtime reaches the user.
        let output = run_podman(&bed, engine, &[], &bed.specs(), &["/no/such/program"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{engine:?}: {said}");
        assert!(said.contains("/no/such/program"), "{engine:?}: {said}");
    }
}

#[test]
fn podman_s_other_commands_work() {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        if let Some(why) = engine.missing() {
            skip::not_run("runtime::podman_s_other_commands_work", &why);
            continue;
        }
        let bed = bed(engine);
        let script = "
            step run podman run -d --name c --network=none $limits --rootfs $1 sleep 1000
            step exec podman exec -e A=5 c sh -c 'echo $A'
            step inspect podman inspect --format '{{.State.Status}}' c
            step kill podman kill c
            step wait podman wait c
            step again podman start c
            step remove podman rm -f --time 0 c
        ";
        let session = session(&bed, engine, 1, script);
        for step in ["run", "kill", "wait", "again", "remove"] {
            session.ok(step);
        }
        assert_eq!(session.ok("exec"), "5\n");
        assert_eq!(session.ok("inspect"), "running\n");
    }
}

/// Why a start failed is shown by the engine, and the container is not left half-made.
#[test]
fn a_refused_container_is_one_line_of_the_engine() {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        if let Some(why) = engine.missing() {
            skip::not_run("runtime::a_refused_container_is_one_line_of_the_engine", &why);
            continue;
        }
        let bed = bed(engine);
        let image = bed.image(engine);
        let options = ["--env=NVIDIA_VISIBLE_DEVICES=no-such-device"];
        let output = run_podman_in(&bed, engine, &image, &[], &bed.specs(), &options, &["true"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{engine:?}: {said}");
        assert!(said.contains("tranche"), "{engine:?}: {said}");
    }
}

/// podman alone has this stage.
#[test]
fn the_precreate_hook_lets_a_container_without_a_request_pass() {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        if let Some(why) = engine.missing() {
            skip::not_run(
                "runtime::the_precreate_hook_lets_a_container_without_a_request_pass",
                &why,
            );
            continue;
        }
        let bed = Bed::new();
        crate::support::programs::install(env!("CARGO_BIN_EXE_tranche-runtime"), bed.at("tranche-runtime"));
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/hooks/precreate/tranche.json")).unwrap();
        let path = bed.at("tranche-runtime").display().to_string();
        fs::create_dir(bed.at("hooks.d")).unwrap();
        fs::write(
            bed.at("hooks.d/tranche.json"),
            text.replace("/usr/bin/tranche-runtime", &path),
        )
        .unwrap();
        let run = |environment: &str| {
            let script = format!(
                "step run podman --hooks-dir $bed/hooks.d run --rm --network=none $limits --env={environment} --rootfs $1 \
                 sh -c 'echo in'"
            );
            session(&bed, engine, 1, &script)
        };
        assert_eq!(run("A=1").ok("run"), "in\n");
        let _ = fs::remove_dir_all(bed.at("steps"));
        // The hook is called: a request for a device that does not exist fails.
        let refused = run("NVIDIA_VISIBLE_DEVICES=no-such-device");
        assert_ne!(refused.step("run").code, 0, "{}", refused.step("run").text);
    }
}
