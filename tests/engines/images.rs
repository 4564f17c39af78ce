//! What an image can ask for under each engine, by its environment, its annotations and its labels, while the user asks
//! for nothing or for less. The table of SECURITY.md has one line for each engine.
//!
//! podman before 4.5.1, such as that of Debian 12, copies annotations of images into config.json.

use crate::cdi_names::installed;
use crate::requests::{Way, gpus, run_with};
use crate::support::engines::Engine;
use crate::support::session::Session;

/// An image that asks by annotations and labels, and one that asks by its environment, on top of that of the tests.
const BUILD: &str = r#"
asking="--annotation cdi.k8s.io/x=nvidia.com/gpu=7.any --annotation tranche.dev/memory=2Gi --annotation tranche.dev/wait=1s"
labels="--label cdi.k8s.io/x=nvidia.com/gpu=0 --label tranche.dev/memory=2Gi --label nerdctl/x=y"
mkdir "$bed/context"
printf 'FROM localhost/bb:1\n' > "$bed/context/annotated"
printf 'FROM localhost/bb:1\nENV NVIDIA_VISIBLE_DEVICES=all TRANCHE_MEMORY=2Gi NVIDIA_GDS=enabled\n' > "$bed/context/env"
build() {
    file=$1
    shift
    podman build --format oci --isolation chroot --network=host --pull=never --file "$bed/context/$file" --tag "localhost/$file:1" "$@" \
        "$bed/context"
}
"#;

fn no_gpu(session: &Session, step: &str) {
    let look = session.ok(step);
    assert!(gpus(look).is_empty(), "{step}: {look}");
    assert!(!look.contains("/libcuda.so.1\n"), "{step}: {look}");
}

/// The installed podman, if it copies annotations of images.
fn podman_that_copies() -> Option<String> {
    let podman = installed(Way::PodmanRuntime);
    let copies = podman.version.as_ref().unwrap().numbers() < [4, 5, 1].as_slice();
    copies.then(|| podman.shown())
}

/// The messages of tranche that a step shows.
fn messages(session: &Session, step: &str) -> Vec<String> {
    let lines = session.ok(step).lines();
    lines
        .filter(|line| line.contains("ignored: "))
        .map(str::to_owned)
        .collect()
}

/// Both low-level runtimes below podman, by the runtime and by the precreate hook.
fn podman(test: &str, keys: &str, script: &str, look: impl Fn(Way, &Session)) {
    for way in [Way::PodmanRuntime, Way::PodmanPrecreate] {
        for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
            let script = format!("{BUILD}{script}");
            run_with(&format!("images::{test}"), way, engine, keys, &script, |session| {
                look(way, session)
            });
        }
    }
}

const PODMAN: &str = r#"
step build build annotated $asking $labels
in_image() { podman $hooks run --rm --pull=never --network=none $limits "$@" localhost/annotated:1 sh -c "$look"; }
step image in_image
step status tranche status --messages
step other in_image --env NVIDIA_VISIBLE_DEVICES=2
step void in_image --env NVIDIA_VISIBLE_DEVICES=void
step taken-back in_image --annotation cdi.k8s.io/x= --annotation tranche.dev/memory= --annotation tranche.dev/wait=
step person podman $hooks run --rm --pull=never --network=none $limits --annotation cdi.k8s.io/y=nvidia.com/gpu=3 localhost/bb:1 sh -c "$look"
step form podman $hooks run --rm --pull=never --network=none $limits --volume /dev/null:/var/run/nvidia-container-devices/3 \
    localhost/annotated:1 sh -c "$look"
"#;

#[test]
fn the_annotations_of_an_image_have_no_effect_with_podman() {
    podman(
        "the_annotations_of_an_image",
        ", acceptVolumeMounts: true",
        PODMAN,
        |way, session| {
            session.ok("build");
            no_gpu(session, "image");
            let lines = messages(session, "status");
            if let Some(podman) = podman_that_copies() {
                assert_eq!(lines.len(), 1, "{way:?}: {}", session.ok("status"));
                for part in [
                    "annotation cdi.k8s.io/x, tranche.dev/memory, tranche.dev/wait,",
                    &format!("{podman} copies annotations from images"),
                    "runtime.acceptAnnotations: always",
                    "--device nvidia.com/gpu=NAME",
                ] {
                    assert!(lines[0].contains(part), "{part}: {}", lines[0]);
                }
                // Nothing tells a user's annotation from an image's.
                no_gpu(session, "person");
            } else {
                assert_eq!(lines.len(), 0, "{way:?}: {}", session.ok("status"));
                assert_eq!(gpus(session.ok("person")), [3]);
            }
            // They do not hide what the user asks for either.
            assert_eq!(gpus(session.ok("other")), [2], "{}", session.ok("other"));
            no_gpu(session, "void");
            no_gpu(session, "taken-back");
            // A form that no image can write.
            assert_eq!(gpus(session.ok("form")), [3], "{}", session.ok("form"));
        },
    );
}

/// This is what `acceptAnnotations: always` means with such a podman, and it shows that the image of the test above
/// asks.
#[test]
fn the_annotations_of_an_image_ask_where_the_owner_accepts_all() {
    let keys = ", acceptAnnotations: always, acceptEnvironment: never";
    podman("the_annotations_of_an_image_ask", keys, PODMAN, |_, session| {
        let look = session.ok("image");
        let expected: &[u32] = if podman_that_copies().is_some() { &[7] } else { &[] };
        assert_eq!(gpus(look), expected, "{look}");
        no_gpu(session, "taken-back");
        assert_eq!(gpus(session.ok("person")), [3]);
    });
}

#[test]
fn the_environment_of_an_image_has_no_effect_where_it_is_not_accepted() {
    let script = r#"
step build build env
in_image() { podman $hooks run --rm --pull=never --network=none $limits "$@" localhost/env:1 sh -c "$look"; }
step image in_image
step status tranche status --messages
step mounted in_image --volume /dev/null:/var/run/nvidia-container-devices/3
"#;
    let keys = ", acceptEnvironment: never, acceptVolumeMounts: true";
    podman("the_environment_of_an_image", keys, script, |_, session| {
        no_gpu(session, "image");
        let lines = messages(session, "status");
        assert_eq!(lines.len(), 1, "{}", session.ok("status"));
        let asked = "ignored: NVIDIA_VISIBLE_DEVICES=all and TRANCHE_MEMORY=2Gi, because no container may ask";
        assert!(lines[0].contains(asked), "{}", lines[0]);
        // The user's own request gets the device, and nothing of what the image adds.
        assert_eq!(gpus(session.ok("mounted")), [3], "{}", session.ok("mounted"));
    });
}

/// docker writes neither annotations nor labels of an image into config.json, and marks `--gpus` by a hook.
#[test]
fn labels_of_an_image_have_no_effect_with_docker_and_gpus_are_the_user_s() {
    let script = r#"
printf 'FROM bb:1\nLABEL cdi.k8s.io/x=nvidia.com/gpu=0 tranche.dev/memory=2Gi nerdctl/x=y\n' > "$bed/labels"
printf 'FROM bb:1\nENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=all NVIDIA_REQUIRE_CUDA=cuda>=99\n' > "$bed/env"
mkdir "$bed/empty"
for file in labels env; do
    step "build-$file" docker build --network=none --file "$bed/$file" --tag "$file:1" "$bed/empty"
done
in_image() {
    image=$1
    shift
    docker run --rm --network=none "$@" "$image:1" sh -c "$look"
}
step labels in_image labels
step quiet tranche status --messages
step env in_image env
step status tranche status --messages
step gpus in_image env --gpus '"device=2"'
step after tranche status --messages
"#;
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let keys = ", acceptEnvironment: never";
        run_with(
            "images::of_docker",
            Way::DockerDefault,
            engine,
            keys,
            script,
            |session| {
                no_gpu(session, "labels");
                assert_eq!(messages(session, "quiet"), [""; 0]);
                no_gpu(session, "env");
                let lines = messages(session, "status");
                assert!(
                    lines.len() == 1 && lines[0].contains("NVIDIA_VISIBLE_DEVICES=all"),
                    "{lines:?}"
                );
                // The image neither widens what the user asks for nor makes it fail.
                assert_eq!(gpus(session.ok("gpus")), [2], "{}", session.ok("gpus"));
                let after = session.ok("after");
                assert!(
                    after.contains("NVIDIA_REQUIRE_CUDA") && after.contains("NVIDIA_DRIVER_CAPABILITIES=all"),
                    "{after}"
                );
            },
        );
    }
}

/// ctr and its library copy nothing of an image but its environment, so that annotations are the user's.
#[test]
fn annotations_of_an_image_have_no_effect_with_ctr_and_those_of_the_user_have() {
    let script = r#"
podman() { "$bed/podman" "$@"; }
tar -C "$rootfs" -c . | podman import - localhost/bb:1 > /dev/null
step build build annotated $asking $labels
step save podman save --format oci-archive --output "$bed/annotated.tar" localhost/annotated:1
step import ctr image import "$bed/annotated.tar"
in_image() { ctr_run --rm "$@" localhost/annotated:1 "image$#" /bin/sh -c "$look"; }
step image in_image
step quiet tranche status --messages
step person in_image --annotation cdi.k8s.io/x=nvidia.com/gpu=3
"#;
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let script = format!("{BUILD}{script}");
        run_with(
            "images::of_ctr",
            Way::Ctr,
            engine,
            ", acceptEnvironment: never",
            &script,
            |session| {
                session.ok("build");
                session.ok("import");
                no_gpu(session, "image");
                assert_eq!(messages(session, "quiet"), [""; 0]);
                assert_eq!(gpus(session.ok("person")), [3], "{}", session.ok("person"));
            },
        );
    }
}
