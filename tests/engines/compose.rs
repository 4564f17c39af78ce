//! docker compose, and services of a swarm: the forms in which people write a GPU there.

use crate::requests::{Way, gpus, has_gpus, has_share, policy, run_policy};
use crate::support::engines::{Engine, find};
use crate::support::session::Session;
use crate::support::skip;

/// One file for each form. compose gives what a container prints as it is with `run`.
const COMPOSE: &str = r#"
compose=docker-compose
docker compose version > /dev/null 2>&1 && compose='docker compose'
# form NAME: the service of standard input.
form() {
    mkdir "$bed/$1"
    {
        printf 'version: "3.8"\nservices:\n  look:\n    image: bb:1\n    command: ["/bin/sh", "/look.sh"]\n    volumes: ["%s:/look.sh:ro"]\n' "$bed/look.sh"
        sed 's/^/    /'
    } > "$bed/$1/compose.yaml"
    step "$1" $compose --file "$bed/$1/compose.yaml" run --rm -T look
}
echo "$look" > "$bed/look.sh"
step version $compose version
form nothing < /dev/null
form count << 'END'
deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
END
form ids << 'END'
deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["2", "4"], capabilities: [gpu]}]}}}
END
form cdi << 'END'
deploy: {resources: {reservations: {devices: [{driver: cdi, device_ids: ["nvidia.com/gpu=3"], capabilities: [gpu]}]}}}
END
form share << 'END'
runtime: tranche
environment: {NVIDIA_VISIBLE_DEVICES: "7.big"}
END
form gpus << 'END'
gpus: all
END
form device << 'END'
devices: ["nvidia.com/gpu=5"]
END
"#;

/// The first two numbers of compose's version, which it prints first.
fn compose_version(session: &Session) -> (u32, u32) {
    let text = session.ok("version");
    let word = text.split_whitespace().map(|word| word.trim_matches(['v', ',']));
    let mut numbers = word.filter_map(|word| {
        let (first, rest) = word.split_once('.')?;
        Some((first.parse().ok()?, rest.split('.').next()?.parse().ok()?))
    });
    numbers.next().unwrap_or_else(|| panic!("no version in {text}"))
}

#[test]
fn each_form_of_a_compose_file_gives_its_devices_or_is_refused() {
    let test = "compose";
    if find("docker-compose").is_none()
        && !std::path::Path::new("/usr/libexec/docker/cli-plugins/docker-compose").exists()
    {
        skip::not_run(test, "not installed: docker-compose");
        return;
    }
    let policy = policy("runc", "");
    run_policy(
        test,
        Way::DockerDefault,
        Engine::PodmanRunc,
        &policy,
        COMPOSE,
        |session| {
            let compose = compose_version(session);
            has_gpus(session, "nothing", &[]);
            has_gpus(session, "count", &[0, 1]);
            has_gpus(session, "ids", &[2, 4]);
            has_share("share", session.ok("share"), 60, 8192);
            let reads_cdi = crate::cdi_names::installed(Way::DockerCdi).cdi().is_some();
            let no_path =
                "device information while adding custom device \"nvidia.com/gpu=5\": no such file or directory";
            for (step, works, expected, why) in [
                ("cdi", reads_cdi, vec![3], "could not select device driver \"cdi\""),
                ("device", reads_cdi && compose >= (2, 30), vec![5], no_path),
                (
                    "gpus",
                    compose >= (2, 30),
                    vec![0, 1, 2, 3, 4, 5, 6],
                    "Unsupported config option for services.look: 'gpus'",
                ),
            ] {
                let tried = session.step(step);
                if works {
                    assert_eq!(gpus(session.ok(step)), expected, "{step}: {}", tried.text);
                } else if step == "gpus" && compose >= (2, 0) {
                    // It ignores a key that it does not know.
                    assert!(gpus(session.ok(step)).is_empty(), "{step}: {}", tried.text);
                } else {
                    assert!(tried.code != 0 && tried.text.contains(why), "{step}: {}", tried.text);
                }
            }
        },
    );
}

/// A service of a swarm: docker says which device it assigned by a variable, and names no device itself.
const SWARM: &str = r#"
uuid=$(tranche cdi list --spec-dir /run/cdi | sed -n 's,^nvidia.com/gpu=\(GPU-[0-9a-f-]*\)\( .*\)*$,\1,p' | sed -n 2p)
daemon_down
resources="--node-generic-resource GPU=$uuid"
daemon_up
step init docker swarm init --advertise-addr 127.0.0.1 --listen-addr 127.0.0.1
# service NAME OPTION…: until it has ended.
service() {
    name=$1
    shift
    docker service create --detach --no-resolve-image --restart-condition none --name "$name" "$@" bb:1 sh -c "$look" || return
    await ended "$name"
    docker service logs --raw "$name"
}
ended() {
    docker service ps --format '{{.CurrentState}}' "$1" | grep -q '^\(Complete\|Failed\|Rejected\)'
}
step with service with --generic-resource GPU=1 --env NVIDIA_VISIBLE_DEVICES=all
step without service without
step node tranche cdi inspect --spec-dir /run/cdi "nvidia.com/gpu=$uuid"
docker swarm leave --force > /dev/null 2>&1
"#;

#[test]
fn a_service_of_a_swarm_gets_the_device_that_it_was_assigned() {
    let policy = policy("runc", ", swarmResource: [DOCKER_RESOURCE_GPU]");
    run_policy(
        "swarm",
        Way::DockerDefault,
        Engine::PodmanRunc,
        &policy,
        SWARM,
        |session| {
            session.ok("init");
            let with = gpus(session.ok("with"));
            assert_eq!(with.len(), 1, "{}", session.ok("with"));
            assert!(
                session.ok("node").contains(&format!("/dev/nvidia{}", with[0])),
                "{}",
                session.ok("node")
            );
            has_gpus(session, "without", &[]);
        },
    );
}
