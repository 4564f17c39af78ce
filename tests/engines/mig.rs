//! Shares of instances of MIG that were just made, with a real engine: no further command is needed.

use crate::shares::place;
use crate::support::fake_mps::FakeMps;
use crate::support::{engines, fake_host, session, skip};
use engines::{Bed, Engine};
use fake_host::Host;
use serde_json::Value;
use session::session;
use std::fs;
use std::path::Path;

/// Two shares of each instance of 3 slices under MPS, and four of each one of 2 slices by turns.
const POLICY: &str = "\
version: v1
sharing:
  mps:
    grace: 1
    resources:
    - {name: nvidia.com/mig-3g.20gb, replicas: 2}
  timeSlicing:
    resources:
    - {name: nvidia.com/mig-2g.10gb, replicas: 4}
";

const SHARES: &str = r#"
"$program" broker $place --spec-dir /run/cdi < /dev/null > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock
step refresh tranche cdi refresh $place --output-dir /etc/cdi
step apply tranche mig apply $place --yes --layout 0:2g.10gb@0,3g.20gb@4
step status tranche mig status $place --json
step turns start turns "$1" --device nvidia.com/gpu=0:0.0
step mps start mps "$2" --device nvidia.com/gpu=0:1.0
for name in turns mps; do
    step env-$name podman exec $name /bin/cat /proc/1/environ
    step caps-$name podman exec $name /bin/ls /dev/nvidia-caps
done
step held tranche status
# The instance belongs to them while they run.
step in-the-way tranche mig apply $place --yes --layout 0:7g.40gb
step after tranche mig status $place --json
pid=$(cat /run/tranche/mps-daemon/*/nvidia-cuda-mps-control.pid 2> /dev/null)
podman rm --all --force --time 0 > /dev/null 2>&1
step broker-log cat "$bed/broker.log"
kill "$broker"
wait
[ -z "$pid" ] || kill -9 $pid
"#;

/// In each round a container and a layout without its instance begin at once, or one of them a little earlier.
const RACE: &str = r#"
"$program" broker $place --spec-dir /run/cdi < /dev/null > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock
step refresh tranche cdi refresh $place --output-dir /etc/cdi
round=0
for pause in '3 0' '0.3 0' '0.15 0' '0.05 0' '0 0' '0 0.1' '0 0.3' '0 3'; do
    round=$((round + 1))
    step base-$round tranche mig apply $place --yes --layout 0:2g.10gb@0,3g.20gb@4
    (sleep ${pause% *}; step start-$round start c$round "$1" --device nvidia.com/gpu=0:0.0) &
    starting=$!
    (sleep ${pause#* }; step apply-$round tranche mig apply $place --yes --layout 0:7g.40gb)
    wait $starting
    step after-$round tranche mig status $place --json
    step caps-$round podman exec c$round /bin/ls /dev/nvidia-caps
    podman rm --all --force --time 0 > /dev/null 2>&1
    shift
done
step broker-log cat "$bed/broker.log"
kill "$broker"
wait
"#;

/// A bed with a host whose GPUs have MIG, and the policy. `None`, and a line of what was not run, where that cannot be.
fn scene(test: &str, engine: Engine) -> Option<(Bed, Host)> {
    if let Some(reason) = engine.missing() {
        skip::not_run(test, &reason);
        return None;
    }
    let bed = Bed::new();
    let host = fake_host::build("dgx-a100-mig", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(test, &missing.why);
        return None;
    }
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    Some((bed, host))
}

/// `steps` with the place of the host and this build's program.
fn script(bed: &Bed, steps: &str) -> String {
    let place = place(bed).join(" ");
    format!("place='{place}'\nprogram='{}'\n{steps}", env!("CARGO_BIN_EXE_tranche"))
}

#[test]
fn a_container_that_starts_during_an_apply_keeps_its_instance_or_is_refused() {
    let engine = Engine::PodmanCrun;
    let test = "mig::a_container_that_starts_during_an_apply_keeps_its_instance_or_is_refused";
    let Some((bed, _host)) = scene(test, engine) else {
        return;
    };
    let session = session(&bed, engine, 8, &script(&bed, RACE));
    let mut started = 0;
    for round in 1..=8 {
        session.ok(&format!("base-{round}"));
        let [start, apply] = ["start", "apply"].map(|step| session.step(&format!("{step}-{round}")));
        let after = session.ok(&format!("after-{round}"));
        if start.code == 0 {
            started += 1;
            assert_eq!(apply.code, 1, "round {round}: {apply:?}");
            assert!(
                apply.text.contains("in the way of the layout"),
                "round {round}: {apply:?}"
            );
            assert!(after.contains("\"2g.10gb@0,3g.20gb@4\""), "round {round}: {after}");
            // The nodes are those of the instance that exists.
            session.ok(&format!("caps-{round}"));
        } else {
            assert_eq!(apply.code, 0, "round {round}: {start:?} {apply:?}");
            assert!(after.contains("\"7g.40gb@0\""), "round {round}: {after}");
        }
    }
    assert!((1..8).contains(&started), "{started} of 8 have started");
}

#[test]
fn a_container_starts_with_a_share_of_an_instance_that_was_just_made() {
    let name = "a_container_starts_with_a_share_of_an_instance_that_was_just_made";
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let Some((bed, host)) = scene(&format!("mig::{name} {engine:?}"), engine) else {
            continue;
        };
        let fake = FakeMps::install(&host.root);
        host.nvml(|config| config["record"] = fake.record().to_str().unwrap().into())
            .unwrap();
        let session = session(&bed, engine, 2, &script(&bed, SHARES));
        for step in ["apply", "turns", "mps"] {
            session.ok(step);
        }
        let text = session.ok("status");
        let status: Value = serde_json::from_str(&text[text.find("\n[").unwrap()..]).unwrap();
        let instances = status[0]["instances"].as_array().unwrap().clone();
        let uuid = instances[1]["devices"][0]["uuid"].as_str().unwrap();
        let env = session.ok("env-mps").replace('\0', "\n");
        for variable in [
            format!("CUDA_VISIBLE_DEVICES={uuid}\n"),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n".to_owned(),
            "NVIDIA_GPU_MEMORY_LIMIT=9984\n".to_owned(),
        ] {
            assert!(env.contains(&variable), "{engine:?}: {variable} in {env}");
        }
        assert!(!session.ok("env-turns").contains("CUDA_MPS"), "{engine:?}");
        for (step, instance) in [("caps-turns", &instances[0]), ("caps-mps", &instances[1])] {
            let of = format!(
                "proc/driver/nvidia/capabilities/gpu0/mig/gi{}",
                instance["gpu_instance"]
            );
            let caps = ["access", "ci0/access"].map(|file| cap(&host.root.join(&of).join(file)));
            let seen: Vec<&str> = session.ok(step).lines().collect();
            assert_eq!(seen, caps, "{engine:?}: {step}");
        }
        let held = session.ok("held");
        assert!(held.contains("nvidia.com/gpu=0:1  1 of 2 "), "{engine:?}: {held}");
        assert!(held.contains("nvidia.com/gpu=0:0  1 of 4 "), "{engine:?}: {held}");
        // What they hold is not destroyed.
        let in_the_way = session.step("in-the-way");
        assert_eq!(in_the_way.code, 1, "{engine:?}: {in_the_way:?}");
        assert!(
            in_the_way.text.contains("stand in the way of the layout"),
            "{in_the_way:?}"
        );
        assert_eq!(session.ok("after").matches("\"2g.10gb@0,3g.20gb@4\"").count(), 1);
    }
}

/// The device node of a capability, by the driver's file about it.
fn cap(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let minor = text
        .lines()
        .find_map(|line| line.strip_prefix("DeviceFileMinor: "))
        .unwrap();
    format!("nvidia-cap{minor}")
}
