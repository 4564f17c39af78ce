//! buildah: what `buildah run` and a step of a build get of a GPU.

use crate::cdi_names::POLICY;
use crate::requests::{Way, has_gpus, run_policy};
use crate::support::engines::{Engine, find};
use crate::support::session::Session;
use crate::support::skip;
use std::path::Path;

/// `box NAME OPTION…` is `buildah run` with these options, in a container of that name.
const WORDS: &str = r#"
mkdir "$bed/context"
tar -C "$1" -cf "$bed/context/root.tar" .
printf 'FROM scratch\nADD root.tar /\n' > "$bed/context/Containerfile"
printf 'FROM localhost/bb\nENV NVIDIA_VISIBLE_DEVICES=1\nRUN %s\n' "$look" > "$bed/context/Look"
step version buildah --version
step build buildah build --tag bb "$bed/context"
box() {
    name=$1
    shift
    # shellcheck disable=SC2086 # options are meant to be split
    buildah from --name "$name" $limits localhost/bb > /dev/null
    buildah run --network none --volume "$bed/out:/out" "$@" "$name" -- /bin/sh -c "$command"
}
command=$look
"#;

const RUNTIME: &str = r#"
ours="--runtime $bed/runtime/crun"
step plain box plain $ours
step runtime box runtime $ours --env NVIDIA_VISIBLE_DEVICES=1
step unknown box unknown $ours --env NVIDIA_VISIBLE_DEVICES=99
step built buildah build --network none $limits $ours --no-cache --file "$bed/context/Look" "$bed/context"
command='echo > /out/up; until [ -e /out/end ]; do sleep 0.1; done'
box share $ours --env NVIDIA_VISIBLE_DEVICES=6.0 &
share=$!
await test -e "$bed/out/up"
step held tranche status
command=true
step taken box taken $ours --env NVIDIA_VISIBLE_DEVICES=6.0
touch "$bed/out/end"
wait "$share"
step free tranche status
"#;

const CDI: &str = r#"
# buildah 1.39 does not look in /run/cdi.
cp /run/cdi/tranche.yaml /etc/cdi/
step crun box crun --runtime crun --device nvidia.com/gpu=1
step runc box runc --runtime runc --device nvidia.com/gpu=1
step built buildah build --network none $limits --no-cache --device nvidia.com/gpu=1 --file "$bed/context/Look" "$bed/context"
"#;

fn run(test: &str, script: &str, look: impl Fn(&Session)) {
    let test = format!("buildah::{test}");
    if find("buildah").is_none() {
        skip::not_run(&test, "not installed: buildah");
        return;
    }
    let script = format!("{WORDS}{script}");
    run_policy(
        &test,
        Way::PodmanRuntime,
        Engine::PodmanCrun,
        POLICY,
        &script,
        |session| {
            session.ok("build");
            look(session);
        },
    );
}

#[test]
fn the_runtime_gives_devices_and_shares_to_steps_of_a_build() {
    run("the_runtime", RUNTIME, |session| {
        has_gpus(session, "plain", &[]);
        for step in ["runtime", "built"] {
            // A build prints its steps, too.
            let text = session.ok(step);
            assert!(
                text.contains("\n/dev/nvidia1\n") || text.starts_with("/dev/nvidia1\n"),
                "{text}"
            );
            assert!(
                !text.contains("/dev/nvidia0\n") && text.contains("/libcuda.so.1\n"),
                "{text}"
            );
        }
        let unknown = session.step("unknown");
        assert!(
            unknown.code != 0 && unknown.text.contains("device 99: not found"),
            "{}",
            unknown.text
        );
        let held = session.ok("held");
        assert!(
            held.contains("nvidia.com/gpu=6.0 ") && held.contains("nvidia.com/gpu=6  1 of 2  1\n"),
            "{held}"
        );
        let taken = session.step("taken");
        assert!(
            taken.code != 0
                && taken
                    .text
                    .contains("share 0: no device can give it now; gpu 6 has 1 of 2 shares free"),
            "{}",
            taken.text
        );
        assert!(
            session.ok("free").contains("no share is held\n"),
            "{}",
            session.ok("free")
        );
    });
}

/// The reason is the program's: it writes a rule for the device without access, which cgroup v1 and runc refuse.
#[test]
fn a_cdi_name_is_refused_with_cgroups_of_version_1() {
    let test = "a_cdi_name_is_refused_with_cgroups_of_version_1";
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        skip::not_run(&format!("buildah::{test}"), "this machine has cgroups of version 2");
        return;
    }
    run(test, CDI, |session| {
        let version = session.ok("version").split_whitespace().nth(2).unwrap();
        let minor = version.split('.').nth(1).unwrap();
        let reasons = match minor.parse::<u32>().unwrap() {
            ..36 => [
                "unknown flag: --device",
                "unknown flag: --device",
                "stat nvidia.com/gpu=1: no such file or directory",
            ],
            _ => [
                "`devices.allow`: Invalid argument",
                "field cannot be empty",
                "`devices.allow`: Invalid argument",
            ],
        };
        for (step, why) in ["crun", "runc", "built"].into_iter().zip(reasons) {
            let tried = session.step(step);
            assert!(tried.code != 0 && tried.text.contains(why), "{step}: {}", tried.text);
        }
    });
}
