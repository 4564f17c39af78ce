//! Containers of root's podman in a user namespace: shares and devices by a CDI name and through our runtime.

use crate::shares::place;
use crate::support::{engines, fake_host, session, skip};
use engines::{Bed, Engine};
use session::{Session, session};
use std::fs;

/// GPU 0 by turns, in four equal parts.
const FOUR: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
";

const BEGIN: &str = r#"
map="--uidmap=0:100000:65536 --gidmap=0:100000:65536"
chown -R 100000:100000 "$1" "$2" "$3"
step generate tranche cdi refresh $place --cdi-version 0.5 --hook-path "$oci" --output-dir /etc/cdi
"#;

/// Runs a script under podman over `engine`'s runtime or, with `is_ours`, over our runtime in front of it.
fn run(test: &str, engine: Engine, is_ours: bool, script: &str, look: impl Fn(&Session)) {
    let test = format!("user_namespaces::{test}");
    if let Some(reason) = engine.missing() {
        return skip::not_run(&test, &reason);
    }
    let mut bed = Bed::new();
    if is_ours {
        bed.with_our_runtime(engine);
    }
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        return skip::not_run(&test, &missing.why);
    }
    // In a user namespace, a runtime mounts the host's node, by the path that it has in the container.
    let dev = bed.at("host/dev");
    bed.with_nodes(&dev);
    let runtime = format!("runtime: {{runtimes: [{}]}}\n", engine.runtime());
    fs::write(bed.at("policy.yaml"), [FOUR, &runtime].concat()).unwrap();
    fs::write(bed.specs().join("none-yet"), "").unwrap();
    let place = place(&bed).join(" ");
    let session = session(&bed, engine, 3, &format!("place='{place}'\n{BEGIN}{script}"));
    session.ok("generate");
    look(&session);
}

const SHARE_AND_DEVICE: &str = r#"
step share start share "$1" $map $share
step device start device "$2" $map $device
step nodes podman exec share ls /dev
step owner sh -c 'sed "s/  */ /g" /proc/$0/uid_map' "$(init_of share)"
step status tranche status
refuse whole start whole "$3" $map $whole
podman rm --force --time 0 share > /dev/null 2>&1
step then tranche status
"#;

fn has_share_and_device(session: &Session) {
    for step in ["share", "device"] {
        session.ok(step);
    }
    let nodes = session.ok("nodes");
    assert!(nodes.contains("nvidia0\n") && !nodes.contains("nvidia1\n"), "{nodes}");
    assert_eq!(session.ok("owner").trim(), "0 100000 65536");
    let status = session.ok("status");
    let id = &session.ok("share").trim()[..12];
    assert!(
        status.lines().any(|line| line.contains(id) && line.contains("0.0")),
        "{status}"
    );
    // What another container holds a part of is refused in a user namespace as elsewhere.
    assert_ne!(session.step("whole").code, 0);
    let then = session.ok("then");
    let holds = |line: &str| line.starts_with("nvidia.com/") && line.contains(id);
    assert!(!then.lines().any(holds), "{then}");
}

#[test]
fn a_cdi_name_gives_a_share_and_a_device_over_runc() {
    let script = format!(
        "share='--device nvidia.com/gpu=0.any' device='--device nvidia.com/gpu=1' whole='--device nvidia.com/gpu=0'\n\
         {SHARE_AND_DEVICE}"
    );
    run("runc", Engine::PodmanRunc, false, &script, has_share_and_device);
}

#[test]
fn a_request_gives_a_share_and_a_device_over_runc() {
    let script = format!(
        "share='-e NVIDIA_VISIBLE_DEVICES=0.any' device='-e NVIDIA_VISIBLE_DEVICES=1' whole='-e NVIDIA_VISIBLE_DEVICES=0'\n\
         {SHARE_AND_DEVICE}"
    );
    run("our runtime", Engine::PodmanRunc, true, &script, has_share_and_device);
}

/// Whether crun starts it or not is crun's matter. If it does not, it is said why, and nothing stays in the ledger.
#[test]
fn where_crun_starts_no_hook_the_runtime_that_does_is_named() {
    let script = r#"
refuse share start share "$1" $map -e NVIDIA_VISIBLE_DEVICES=0.any
step then tranche status
"#;
    run("crun", Engine::PodmanCrun, true, script, |session| {
        let step = session.step("share");
        if step.code == 0 {
            return;
        }
        let why = "user namespace: its root, uid 100000 of the host, may not enter ";
        let hint = "crun starts no hook then; start the container with runc (podman --runtime runc)";
        assert!(step.text.contains(why) && step.text.contains(hint), "{}", step.text);
        assert!(!session.ok("then").contains("0.0"), "{}", session.ok("then"));
    });
}
