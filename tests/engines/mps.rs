//! Shares under MPS with real engines: the broker starts the daemon for the first container, keeps its limits, and puts
//! the device back after the last one. The daemon and the GPU are fakes; everything else is real.

use crate::shares::place;
use crate::support::fake_mps::FakeMps;
use crate::support::{engines, fake_host, session, skip};
use engines::{Bed, Engine};
use serde_json::{Value, json};
use session::{Session, session};
use std::fs;

/// Two unequal shares of GPU 1; the device is put back a second after the last claim.
const POLICY: &str = "\
version: v1
sharing:
  mps:
    grace: 1
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: mid, compute: 20%, memory: 4Gi, priority: below-normal}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// What each script begins with: the specification, and a broker.
const BEGIN: &str = r#"
step generate tranche cdi generate $place --cdi-version 0.5 --hook-path "$oci" --output /etc/cdi/nvidia.yaml
broker() {
    "$program" broker $place --spec-dir /run/cdi < /dev/null > "$bed/broker.log" 2>&1 &
    broker=$!
    await test -S /run/tranche/broker.sock
}
pipe=/run/tranche/mps/1
work=/run/tranche/mps-daemon/1
host=$bed/host
# The number that the daemon wrote, if that process lives.
daemon() { pid=$(cat $work/nvidia-cuda-mps-control.pid 2> /dev/null) && ! is_over "$pid" && echo "$pid"; }
gone() { ! daemon; }
faults() { printf '{"record": "%s/record", "faults": %s}' "$host" "$1" > "$host/fake-mps.new"; mv "$host/fake-mps.new" "$host/fake-mps.json"; }
"#;

/// What each script ends with. The daemon outlives its broker, and must not outlive the test.
const END: &str = r#"
podman rm --all --force --time 0 > /dev/null 2>&1
faults '{}'
step broker-log cat "$bed/broker.log"
[ -z "$broker" ] || kill "$broker"
wait
pid=$(daemon) && kill -9 "$pid"
"#;

struct Ran {
    session: Session,
    fake: FakeMps,
    bed: Bed,
}

/// Runs a script, with the broker and the driver's programs of a machine with two GPUs.
fn run(engine: Engine, name: &str, images: usize, script: &str) -> Option<Ran> {
    let test = format!("mps::{name} {engine:?}");
    if let Some(reason) = engine.missing() {
        skip::not_run(&test, &reason);
        return None;
    }
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&test, &missing.why);
        return None;
    }
    let fake = FakeMps::install(&host.root);
    host.nvml(|config| config["record"] = fake.record().to_str().unwrap().into())
        .unwrap();
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    let place = place(&bed).join(" ");
    let program = env!("CARGO_BIN_EXE_tranche");
    let script = format!("place='{place}'\nprogram='{program}'\n{BEGIN}{script}{END}");
    let session = session(&bed, engine, images, &script);
    session.ok("generate");
    Some(Ran { session, fake, bed })
}

/// The fields of a line of `tranche status --json` about the daemon.
fn daemon_of(status: &str) -> Value {
    let status: Value = serde_json::from_str(status).unwrap();
    status["daemons"][0].clone()
}

#[test]
fn unequal_shares_run_at_once_with_one_daemon_and_the_last_stop_puts_the_device_back() {
    let script = r#"
broker
step small start small "$1" --device nvidia.com/gpu=1.small
step first daemon
step big start big "$2" --device nvidia.com/gpu=1.big
step second daemon
step env-small podman exec small /bin/cat /proc/1/environ
step env-big podman exec big /bin/cat /proc/1/environ
step pipe podman exec big /bin/ls /tmp/nvidia-mps
step status tranche status
step stop-big podman rm --force --time 0 big
sleep 2
step still daemon
step stop-small podman rm --force --time 0 small
await gone
await test ! -e $pipe/control
await test ! -e /run/tranche/control/1.json
step left ls -A /run/tranche/control
step directory stat -c %a $pipe
step after tranche status
"#;
    let name = "unequal_shares_run_at_once_with_one_daemon_and_the_last_stop_puts_the_device_back";
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let Some(Ran {
            session,
            fake,
            bed: _bed,
        }) = run(engine, name, 2, script)
        else {
            return;
        };
        for step in ["small", "big", "stop-big", "stop-small", "after"] {
            session.ok(step);
        }
        let daemon = session.ok("first");
        assert_eq!(daemon.lines().count(), 1, "{daemon}");
        assert_eq!(session.ok("second"), daemon, "both talk to one daemon");
        assert_eq!(session.ok("still"), daemon, "one container is left");
        let environment = |step: &str, wanted: &[&str]| {
            let env = session.ok(step).replace('\0', "\n");
            for variable in wanted {
                assert!(env.contains(variable), "{engine:?}: {step}: {variable} in {env}");
            }
        };
        environment(
            "env-small",
            &[
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20\n",
                "=2048M\n",
                "NVIDIA_GPU_MEMORY_LIMIT=2048\n",
            ],
        );
        environment(
            "env-big",
            &[
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60\n",
                "=8192M\n",
                "NVIDIA_GPU_MEMORY_LIMIT=8192\n",
            ],
        );
        assert!(session.ok("pipe").lines().any(|entry| entry == "control"));
        assert!(session.ok("status").contains("nvidia.com/gpu=1.big "), "{engine:?}");

        // The exact commands: the mode first, then the daemon, its limits for the claim that is held, and the larger
        // limits before the larger container starts. At the end the daemon is asked to end, and the mode is put back.
        let lines = fake.lines();
        let at = |line: &str| {
            let found = lines.iter().position(|one| one.starts_with(line));
            found.unwrap_or_else(|| panic!("{engine:?}: no {line} in {lines:#?}"))
        };
        let uuid = fake.events()[at("start")]["environment"]["CUDA_VISIBLE_DEVICES"]
            .as_str()
            .unwrap()
            .to_owned();
        let memory = |mib: u32| format!("command set_default_device_pinned_mem_limit 0 {mib}M");
        let compute = |percent: u32| format!("command set_default_active_thread_percentage {percent}");
        let order = [
            at("compute mode 3"),
            at("start -f"),
            at(&memory(2048)),
            at(&memory(8192)),
            at("command quit"),
            at("compute mode 0"),
        ];
        assert!(order.is_sorted(), "{engine:?}: {order:?} in {lines:#?}");
        assert!(at(&compute(20)) < at(&compute(60)), "{lines:#?}");
        assert_eq!(
            lines.iter().filter(|line| line.starts_with("start")).count(),
            1,
            "{lines:#?}"
        );
        let start = &fake.events()[at("start")];
        assert_eq!(start["uid"], 0);
        let set: Vec<&String> = start["environment"].as_object().unwrap().keys().collect();
        assert!(uuid.starts_with("GPU-"), "{uuid}");
        // The server is found by the last one.
        let expected = [
            "CUDA_MPS_LOG_DIRECTORY",
            "CUDA_MPS_PIPE_DIRECTORY",
            "CUDA_VISIBLE_DEVICES",
            "PATH",
        ];
        assert_eq!(set, expected, "nothing else is in the daemon's environment");
        assert_eq!(session.ok("left"), "", "nothing is recorded as changed");
        assert_eq!(
            session.ok("directory").trim(),
            "755",
            "the directory stays, because the specification mounts it"
        );
    }
}

#[test]
fn a_start_without_a_broker_is_refused_with_the_command_that_starts_it() {
    let script = r#"
broker=
refuse none start none "$1" --device nvidia.com/gpu=1.big
step after tranche status --json
"#;
    let name = "a_start_without_a_broker_is_refused_with_the_command_that_starts_it";
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let Some(Ran { session, bed: _bed, .. }) = run(engine, name, 1, script) else {
            return;
        };
        let line = session.refused("none");
        assert!(
            line.contains("broker") && line.contains("tranche-broker.socket") && line.contains("tranche broker"),
            "{engine:?}: {line}"
        );
        let status: Value = serde_json::from_str(session.ok("after")).unwrap();
        assert_eq!(status["claims"], json!([]), "{engine:?}: nothing is held");
    }
}

#[test]
fn a_daemon_that_fails_leads_to_no_container_without_limits() {
    let script = r#"
broker
for fault in refuse hung dies; do
    faults "{\"start\": \"$fault\"}"
    refuse "$fault" start "$fault" "$1" --device nvidia.com/gpu=1.big
    podman rm --force --time 0 "$fault" > /dev/null 2>&1
done
faults '{"commands": {"set_default_device_pinned_mem_limit": "refuse"}}'
refuse limits start limits "$1" --device nvidia.com/gpu=1.big
podman rm --force --time 0 limits > /dev/null 2>&1
faults '{"commands": {"*": "garbage"}}'
refuse garbage start garbage "$1" --device nvidia.com/gpu=1.big
podman rm --force --time 0 garbage > /dev/null 2>&1
faults '{}'
await gone
step idle tranche status --json
faults '{"start": "slow:700"}'
step slow start slow "$1" --device nvidia.com/gpu=1.big
step running daemon
"#;
    let name = "a_daemon_that_fails_leads_to_no_container_without_limits";
    let Some(Ran {
        session,
        fake,
        bed: _bed,
    }) = run(Engine::PodmanRunc, name, 1, script)
    else {
        return;
    };
    for fault in ["refuse", "hung", "dies", "limits", "garbage"] {
        let line = session.refused(fault);
        assert!(line.contains("gpu 1") && line.contains("MPS"), "{fault}: {line}");
    }
    let status: Value = serde_json::from_str(session.ok("idle")).unwrap();
    assert_eq!(
        status["claims"],
        json!([]),
        "a container that did not start holds nothing"
    );
    session.ok("slow");
    assert_eq!(session.ok("running").lines().count(), 1);
    let lines = fake.lines();
    let modes: Vec<&String> = lines.iter().filter(|line| line.starts_with("compute mode")).collect();
    assert!(modes.len() >= 2, "{modes:?}");
}

#[test]
fn a_daemon_that_is_killed_is_started_again_with_the_same_limits() {
    let script = r#"
broker
step big start big "$1" --device nvidia.com/gpu=1.big
old=$(daemon)
kill -9 "$old"
again() { new=$(daemon) && [ "$new" != "$old" ] && [ -S $pipe/control ]; }
await again
reported() { tranche status --json | grep -q '"restarts": *1'; }
await reported
step status tranche status --json
step small start small "$2" --device nvidia.com/gpu=1.small
# The broker is killed: the daemon stays, and the next broker finds it.
before=$(daemon)
kill -9 "$broker"
wait "$broker" 2> /dev/null
broker
step adopted start adopted "$3" --device nvidia.com/gpu=1.mid
step same test "$(daemon)" = "$before"
"#;
    let name = "a_daemon_that_is_killed_is_started_again_with_the_same_limits";
    let Some(Ran {
        session,
        fake,
        bed: _bed,
    }) = run(Engine::PodmanCrun, name, 3, script)
    else {
        return;
    };
    for step in ["big", "small", "adopted", "same"] {
        session.ok(step);
    }
    let daemon = daemon_of(session.ok("status"));
    assert_eq!(
        (&daemon["state"], &daemon["restarts"]),
        (&json!("running"), &json!(1)),
        "{daemon}"
    );
    let lines = fake.lines();
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("start")).count(),
        2,
        "{lines:#?}"
    );
}

#[test]
fn a_tenant_changes_nothing_in_the_directory_of_the_daemon_s_socket() {
    let script = r#"
broker
step bad start bad "$1" --device nvidia.com/gpu=1.small
before=$(daemon)
step names podman exec bad /bin/ls -A /tmp/nvidia-mps
for what in 'rm -f /tmp/nvidia-mps/control' 'mv /tmp/nvidia-mps/control /tmp/nvidia-mps/other' \
    'echo mine > /tmp/nvidia-mps/mine' 'ln -s /etc/shadow /tmp/nvidia-mps/log' 'chmod 0 /tmp/nvidia-mps/control'; do
    if podman exec bad /bin/sh -c "$what"; then echo "done: $what"; fi
done > "$bed/done.txt" 2> /dev/null
step done cat "$bed/done.txt"
step after podman exec bad /bin/ls -A /tmp/nvidia-mps
step neighbour start neighbour "$2" --device nvidia.com/gpu=1.big
step same test "$(daemon)" = "$before"
"#;
    let name = "a_tenant_changes_nothing_in_the_directory_of_the_daemon_s_socket";
    let Some(Ran { session, bed: _bed, .. }) = run(Engine::PodmanCrun, name, 2, script) else {
        return;
    };
    for step in ["bad", "neighbour", "same"] {
        session.ok(step);
    }
    assert_eq!(session.ok("names").trim(), "control");
    assert_eq!(session.ok("done").trim(), "", "the tenant could do it");
    assert_eq!(session.ok("after").trim(), "control");
}
