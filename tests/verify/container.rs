//! `tranche verify` in containers of podman, with a fake CUDA library that finds its way there as the real one does.

use crate::support::fake_host::fake_library::CUDA;
use crate::support::{engines, fake_host, glibc_image, programs, session, skip};
use crate::verify_program;
use engines::{Bed, Engine, find};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde_json::{Value, json};
use session::{Session, session};
use std::fs;

/// GPU 1 by MPS, in unequal shares; GPU 0 by turns.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// The words of scripts for docker.
const DOCKER: &str = include_str!("../engines/requests/docker.sh");

const GPU_1: &str = "GPU-a1b03828-f799-fc30-d8ce-9f496f164106";

/// What the fake library says in containers of GPU 1.
fn cuda() -> Value {
    json!({
        "version": 12040,
        "gpus": [{"uuid": GPU_1, "name": "Tesla T4", "sms": 40, "memory_mib": 15109}],
        "daemon": {"percent": 80, "memory_mib": 12288}
    })
}

/// Runs a script of steps with the shares of a fake host. In it `$1` and `$2` are images with glibc and the fake
/// library's answers, and `verify CONTAINER` is the command.
fn with_shares(name: &str, script: &str, look: impl Fn(Engine, &Session)) {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        with_shares_of(engine, name, script, &look);
    }
}

/// As [`with_shares`], for one engine.
fn with_shares_of(engine: Engine, name: &str, script: &str, look: impl Fn(Engine, &Session)) {
    let test = format!("container::{name} {engine:?}");
    if let Some(reason) = engine.missing().or_else(glibc_image::missing) {
        skip::not_run(&test, &reason);
        return;
    }
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&test, &missing.why);
        return;
    }
    // The driver of this host is too old to say it.
    host.nvml(|config| (0..2).for_each(|gpu| config["gpus"][gpu]["cores"] = 2560.into()))
        .unwrap();
    CUDA.install(&host.path("/usr/lib/x86_64-linux-gnu/libcuda.so.555.58.02"), &[])
        .unwrap();
    let glibc = bed.at("glibc");
    fs::create_dir(&glibc).unwrap();
    glibc_image::glibc(&glibc);
    // The fake library is written in Rust, which needs this one.
    let unwinder = "lib/x86_64-linux-gnu/libgcc_s.so.1";
    fs::copy(format!("/{unwinder}"), glibc.join(unwinder)).unwrap();
    fs::write(glibc.join("fake-cuda.json"), cuda().to_string()).unwrap();
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    programs::install(verify_program::path(), bed.at("tranche-verify"));
    programs::install(verify_program::load(), glibc.join("bin/tranche-load"));
    let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&daemon, &SocketAddrUnix::new(bed.at("daemon")).unwrap()).unwrap();
    listen(&daemon, 100).unwrap();
    // Made in the session: there `/run/tranche` is its own.
    fs::write(bed.specs().join("none-yet"), "").unwrap();
    let host = bed.at("host");
    let place = [
        ("driver-root", ""),
        ("dev-root", ""),
        ("proc-root", "/proc"),
        ("sys-root", "/sys"),
    ]
    .map(|(name, below)| format!("--{name}={}{below}", host.display()));
    let script = format!(
        "rm /etc/cdi/none-yet\nplace='{}'\n\
             for image in \"$1\" \"$2\"; do cp -a \"$bed/glibc/.\" \"$image/\"; chroot \"$image\" /sbin/ldconfig; done\n\
             verify() {{ tranche verify \"$@\" --engine \"$bed/podman\" --program \"$bed/tranche-verify\" $place; }}\n\
             step generate tranche cdi generate $place --config \"$bed/policy.yaml\" --cdi-version 0.5 \
             --hook-path \"$oci\" --output /etc/cdi/nvidia.yaml\n\
             control=/run/tranche/mps/1/control\ntouch $control\nmount --bind \"$bed/daemon\" $control\n{script}",
        place.join(" ")
    );
    let session = session(&bed, engine, 3, &script);
    session.ok("generate");
    look(engine, &session);
}

#[test]
fn a_share_is_as_promised_and_one_without_its_limits_is_not() {
    let script = r#"
step big start big "$1" --device nvidia.com/gpu=1.big
step as-promised verify big
step json verify big --json --largest-allocation
# A user of the image leaves MPS.
step escape podman run --detach --name escape --network=none $limits --device nvidia.com/gpu=1.small --rootfs "$2" \
    /bin/env CUDA_MPS_PIPE_DIRECTORY=/nowhere /bin/sleep 1000
step escaped verify escape
step left podman exec big /bin/ls /tmp /run
step turn podman rm --force --time 0 escape
# From now on it is known which plan the share is of.
rm /etc/cdi/nvidia.yaml
step refresh tranche cdi refresh $place --config "$bed/policy.yaml" --cdi-version 0.5 --hook-path "$oci" \
    --output-dir /etc/cdi
step measured verify big
"#;
    with_shares(
        "a_share_is_as_promised_and_one_without_its_limits_is_not",
        script,
        |engine, session| {
            session.ok("big");
            let lines: Vec<&str> = session.ok("as-promised").lines().collect();
            let uuid = &GPU_1[4..];
            let cdi = "nvidia.com/gpu=1.big";
            assert!(
                lines[0].starts_with("container big (") && lines[0].ends_with(&format!("): {cdi}")),
                "{lines:?}"
            );
            let by_exec = "a process that the engine starts by exec gets something else:";
            let expected = [
                format!("{cdi} device: promised {GPU_1}; CUDA gives {uuid}; as promised"),
                format!("{cdi} memory: promised 8192 MiB; CUDA gives 8192 MiB free of 15109 MiB; as promised"),
                format!("{cdi} compute: promised 24 SMs (60%); CUDA gives 24 SMs; as promised"),
                format!("{cdi} mps: promised a client of its MPS daemon; CUDA gives a client of MPS; as promised"),
                // Without the environment of the share, the defaults of the daemon are the limits.
                format!("{by_exec} {uuid}: 32 SMs, 12288 MiB free of 15109 MiB, under MPS"),
            ];
            assert_eq!(lines[1..], expected, "{engine:?}");
            session.ok("refresh");
            let measured = session.ok("measured");
            let line = "\ngpu 1: not measured here: tranche bench has no such way of sharing\n";
            assert!(measured.contains(line), "{measured}");

            let result: Value = serde_json::from_str(session.ok("json")).unwrap();
            let checks = result["checks"].as_array().unwrap();
            assert_eq!(checks.len(), 4);
            assert!(
                checks
                    .iter()
                    .all(|check| check["verdict"] == "as-promised" && check["cdi"] == cdi),
                "{checks:?}"
            );
            assert_eq!(result["container"]["name"], "big");
            assert_eq!(result["program"], "copied to /tmp");
            let pid = &result["container"]["pid"];
            assert_eq!(result["environment_of_init"], format!("/proc/{pid}/environ"));
            assert_eq!(result["not_asked"], json!([]));
            let init = &result["init"]["devices"][0];
            assert_eq!(init["largest_allocation"], 8192_u64 << 20);
            assert_eq!(result["init"]["environment"]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "60");
            assert_eq!(result["exec"]["environment"], json!({}));

            session.ok("escape");
            let escaped = session.step("escaped");
            assert_eq!(escaped.code, 4, "{}", escaped.text);
            let small = "nvidia.com/gpu=1.small";
            for line in [
                format!(
                    "{small} memory: promised 2048 MiB; CUDA gives 15109 MiB free of 15109 MiB; MORE THAN PROMISED: no limit \
                     is in effect\n"
                ),
                format!(
                    "{small} compute: promised 8 SMs (20%); CUDA gives 40 SMs; MORE THAN PROMISED: no limit is in effect\n"
                ),
                format!(
                    "{small} mps: promised a client of its MPS daemon; CUDA gives no MPS; MORE THAN PROMISED: no limit is in \
                     effect; no daemon can be reached in /nowhere: No such file or directory"
                ),
            ] {
                assert!(escaped.text.contains(&line), "{engine:?}: {line} in {}", escaped.text);
            }
            assert!(!session.ok("left").contains("tranche-verify"), "{}", session.ok("left"));
        },
    );
}

#[test]
fn what_has_no_claim_or_cannot_be_asked_is_reported() {
    let script = r#"
step plain start plain "$1"
step no-cuda verify plain
step read-only start read-only "$2" --read-only --device nvidia.com/gpu=0.1
step in-read-only verify read-only
ln -s busybox "$1/bin/rm"
step noexec start noexec "$1" --tmpfs /tmp:noexec
step in-noexec verify noexec
step left podman exec noexec /bin/ls /tmp
step user podman run --detach --name user --network=none $limits --user 1234 --device nvidia.com/gpu=0.0 \
    --env CUDA_VISIBLE_DEVICES= --rootfs "$1" /bin/sleep 1000
step hidden verify user
step bare start bare "$3"
step no-glibc verify bare
step stop podman stop --time 0 plain
step stopped verify plain
step unknown verify nobody
step mounted start mounted "$1" --device nvidia.com/gpu=none --volume "$bed/tranche-verify:/bin/tranche-verify:ro"
step at verify mounted --at /bin/tranche-verify --json
"#;
    with_shares(
        "what_has_no_claim_or_cannot_be_asked_is_reported",
        script,
        |engine, session| {
            let said = |name: &str| (session.step(name).code, session.step(name).text.clone());
            session.ok("plain");
            let (code, text) = said("no-cuda");
            assert_eq!(code, 1, "{text}");
            assert!(
                text.contains(": holds no share\ncuda: not asked: libcuda.so.1: cannot open"),
                "{text}"
            );

            session.ok("read-only");
            let (code, text) = said("in-read-only");
            assert_eq!(code, 4, "{text}");
            // The fake library has GPU 1 in every container, and this one has a share of GPU 0.
            assert!(
                text.contains("nvidia.com/gpu=0.1 device: promised GPU-da1435d3"),
                "{engine:?}: {text}"
            );
            assert!(text.contains("; LESS\n"), "{text}");

            session.ok("user");
            let (code, text) = said("hidden");
            assert_eq!(code, 4, "{text}");
            assert!(
                text.contains("cuda: promised a device; LESS: cuInit returned CUDA_ERROR_NO_DEVICE (100)"),
                "{text}"
            );

            for (container, step, why) in [
                ("noexec", "in-noexec", "ermission denied"),
                ("bare", "no-glibc", "is left in the container: "),
            ] {
                session.ok(container);
                let (code, text) = said(step);
                assert_eq!((code, text.lines().count()), (1, 1), "{text}");
                for part in ["tranche-verify cannot be run there: ", why, "give --at PATH"] {
                    assert!(text.contains(part), "{engine:?}: {part} in {text}");
                }
            }
            assert_eq!(session.ok("left"), "", "the program that did not start");
            assert_eq!(
                said("stopped"),
                (1, "tranche: container plain: does not run; start it first\n".to_owned())
            );
            let (code, text) = said("unknown");
            assert!(
                code == 1 && text.starts_with("tranche: container nobody: not found; "),
                "{text}"
            );

            session.ok("mounted");
            let result: Value = serde_json::from_str(session.ok("at")).unwrap();
            assert_eq!(result["program"], "mounted at /bin/tranche-verify");
            assert_eq!(result["checks"][0]["verdict"], "not-promised");
            assert_eq!(result["checks"][0]["cdi"], Value::Null);
        },
    );
}

/// The events of a process of `tranche-load`; people read another line.
fn events(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_program_that_bench_starts_measures_a_share_in_a_container() {
    let script = loads(
        r#"contain() {
    share=$1 image=$2
    shift 2
    podman run --rm --interactive --network=none $limits --device "nvidia.com/gpu=1.$share" --rootfs "$image" "$@"
}"#,
    );
    let name = "the_program_that_bench_starts_measures_a_share_in_a_container";
    with_shares(name, &script, |engine, session| {
        are_measured(&format!("{engine:?}"), session)
    });
}

#[test]
fn the_program_that_bench_starts_measures_a_share_in_a_container_of_docker() {
    let name = "the_program_that_bench_starts_measures_a_share_in_a_container_of_docker";
    let absent: Vec<&str> = ["docker", "dockerd", "containerd"]
        .into_iter()
        .filter(|name| find(name).is_none())
        .collect();
    if !absent.is_empty() {
        skip::not_run(
            &format!("container::{name}"),
            &format!("not installed: {}", absent.join(", ")),
        );
        return;
    }
    let script = loads(&format!(
        r#"configure= runtime='--runtime tranche'
{DOCKER}
mkdir "$bed/runtime"
cp '{runtime}' "$bed/runtime/tranche-runtime"
rm /etc/cdi/nvidia.yaml
step refresh tranche cdi refresh $place --config "$bed/policy.yaml" --cdi-version 0.5 --hook-path "$oci" --output-dir /etc/cdi
trap engine_down EXIT
engine_up "$1"
contain() {{
    share=$1
    shift 2
    docker run --rm --interactive --network=none $runtime --env "NVIDIA_VISIBLE_DEVICES=1.$share" bb:1 "$@"
}}"#,
        runtime = env!("CARGO_BIN_EXE_tranche-runtime"),
    ));
    with_shares_of(Engine::PodmanRunc, name, &script, |_, session| {
        session.ok("refresh");
        session.ok("configure");
        are_measured("docker", session);
    });
}

/// A script in which `tranche-load` measures two shares in containers that `contain SHARE IMAGE COMMAND…` starts.
fn loads(contain: &str) -> String {
    let model = json!({"state": "/tmp/gpu", "l2_mib": 4, "bandwidth_gb_s": 400});
    let mut cuda = cuda();
    cuda["gpus"][0]["model"] = model;
    format!(
        r#"
for image in "$1" "$2"; do echo '{cuda}' > "$image/fake-cuda.json"; done
{contain}
# load NAME IMAGE SHARE SECONDS ROLE OPTION…: told when to end by the clock that containers have too.
load() {{
    name=$1 image=$2 share=$3 seconds=$4
    shift 4
    read -r uptime _ < /proc/uptime
    begin=${{uptime%.*}}000000000
    mkfifo "$bed/$name"
    # The end of the input would end it.
    exec 3<> "$bed/$name"
    for at in 0 100 200; do [ "$1" != serve ] || echo "at ${{at}}000000" >&3; done
    echo "start $begin $((begin + seconds * 1000000000))" >&3
    step "$name" contain "$share" "$image" /bin/tranche-load "$@" --deadline 60 < "$bed/$name" 3>&-
    exec 3>&-
}}
load probe "$1" big 1 probe
load serve "$1" big 20 serve --fma 1000
load greedy "$2" small 1 greedy
"#
    )
}

/// Fails unless the steps of [`loads`] have found what the shares promise.
fn are_measured(engine: &str, session: &Session) {
    let found = |step: &str, event: &str| {
        let events = events(session.ok(step));
        let of = events.iter().filter(|one| one["event"] == event);
        of.cloned().collect::<Vec<_>>()
    };
    // 60 % of 40 multiprocessors.
    assert_eq!(found("probe", "ready")[0]["sms"], 24, "{engine}");
    assert_eq!(
        found("probe", "probed")[0]["sms"].as_array().unwrap().len(),
        24,
        "{engine}"
    );
    assert_eq!(found("serve", "served").len(), 3, "{engine}: {}", session.ok("serve"));
    let got = found("greedy", "allocated").last().unwrap()["bytes"].as_u64().unwrap();
    assert!(got > 1 << 30 && got <= 2 << 30, "{engine}: {got}");
    for step in ["probe", "serve", "greedy"] {
        assert_eq!(found(step, "end").len(), 1, "{engine}: {step}");
    }
}
