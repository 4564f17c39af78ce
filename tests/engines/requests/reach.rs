//! What an image reaches under real engines, and what only the person who starts the container does.

use super::*;

/// `$1` is a directory with the files of an image.
const IMAGES: &str = r#"
files=$1
at=/var/run/nvidia-container-devices/cdi/nvidia.com/claim/train1
claim() {
    tranche claim create $place --spec-dir /run/cdi --name train1 --share small --device 7
}
step made claim
image volume:1 "VOLUME $at" 'ENV NVIDIA_VISIBLE_DEVICES=void'
image source:1 "VOLUME /dev/null:$at" 'ENV NVIDIA_VISIBLE_DEVICES=void'
image claim:1 'ENV NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=train1'
step volume box localhost/volume:1 sh -c "$look"
step source box localhost/source:1 sh -c "$look"
step claim box localhost/claim:1 sh -c "$look"
step unused tranche claim show train1
step null box --volume "/dev/null:$at" localhost/claim:1 sh -c "$look"

cat > /run/cdi/vendor.yaml << 'END'
cdiVersion: 0.5.0
kind: vendor.com/thing
devices:
- name: every
  containerEdits: {deviceNodes: [{path: /dev/other, type: c, major: 195, minor: 7}]}
- name: free
  containerEdits: {deviceNodes: [{path: /dev/other, type: c, major: 195, minor: 6}]}
END
image foreign:1 'ENV NVIDIA_VISIBLE_DEVICES=vendor.com/thing=every'
image free:1 'ENV NVIDIA_VISIBLE_DEVICES=vendor.com/thing=free'
step foreign box localhost/foreign:1 ls -l /dev/other
step free box localhost/free:1 ls -l /dev/other

image waits:1 'ENV NVIDIA_VISIBLE_DEVICES=7.big' 'ENV TRANCHE_WAIT=167h'
step holder start holder NVIDIA_VISIBLE_DEVICES=7.big -- sleep 1000
step waits box localhost/waits:1 true
step holder-gone remove holder
"#;

fn look(way: Way) {
    run("reach", way, Engine::PodmanCrun, IMAGES, |session| {
        session.ok("made");
        for step in ["volume", "source"] {
            // docker 20.10 refuses no VOLUME, and no engine takes a source from one.
            let tried = session.step(step);
            assert!(
                gpus(&tried.text).is_empty() && !tried.text.contains("CUDA_MPS"),
                "{step}: {}",
                tried.text
            );
        }
        let claim = session.step("claim");
        assert!(
            claim.code != 0 && claim.text.contains("claimsFromEnvironment: never"),
            "{}",
            claim.text
        );
        assert!(session.ok("unused").contains("train1"), "{}", session.ok("unused"));
        has_share("null", session.ok("null"), 20, 2048);
        let foreign = session.step("foreign");
        assert!(
            foreign.code != 0 && foreign.text.contains("gpu 7, which is split by the policy"),
            "{}",
            foreign.text
        );
        assert!(session.ok("free").contains("195,"), "{}", session.ok("free"));
        session.ok("holder");
        let waits = session.step("waits");
        assert!(waits.code != 0 && waits.text.contains("share big"), "{}", waits.text);
    });
}

#[test]
fn an_image_of_podman_takes_no_claim_no_device_of_another_program_and_no_time() {
    look(Way::PodmanRuntime);
}

#[test]
fn an_image_of_docker_takes_no_claim_no_device_of_another_program_and_no_time() {
    look(Way::DockerRuntime);
}

/// `podman kill` cannot end such a start, and conmon outlives the client.
#[test]
fn a_start_under_podman_stops_waiting_when_its_client_is_killed() {
    let script = r#"
queued() {
    [ "$(ls /run/tranche/ledger/queue | wc -l)" -eq "$1" ]
}
step holder start holder NVIDIA_VISIBLE_DEVICES=7.big -- sleep 1000
"$bed/podman" run --network=none --name waiter $limits --annotation tranche.dev/wait=1h \
    --env NVIDIA_VISIBLE_DEVICES=7.big localhost/bb:1 sleep 1000 > "$bed/waiter.log" 2>&1 &
client=$!
await queued 1
kill -KILL "$client"
wait "$client"
await queued 0
step holder-gone remove holder
step state podman inspect --format '{{.State.Status}} {{.State.Pid}}' waiter
step status tranche status
"#;
    run(
        "killed_client",
        Way::PodmanRuntime,
        Engine::PodmanCrun,
        script,
        |session| {
            session.ok("holder-gone");
            let state = session.ok("state");
            assert!(
                !state.contains("running") && state.trim_end().ends_with(" 0"),
                "{state}"
            );
            assert!(
                session.ok("status").contains("no share is held\n"),
                "{}",
                session.ok("status")
            );
        },
    );
}
