//! Shares under real engines: who holds what, who is refused, and what is left when somebody is killed.

use crate::support::{engines, fake_host, session, skip};
use std::os::fd::OwnedFd;
use std::path::Path;

use engines::{Bed, Engine};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use session::{Session, session};

/// Runtimes differ in which hooks they run after a failure, so each test runs under both.
const ENGINES: [Engine; 2] = [Engine::PodmanCrun, Engine::PodmanRunc];

/// GPU 0 by turns, in two shares; GPU 1 by MPS, in unequal ones.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      devices: [0]
      shares: [{name: a}, {name: b}]
  mps:
    daemon: external
    resources:
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: mid, compute: 20%, memory: 4Gi}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// Runs a script under each engine, with the specs of a fake host with two GPUs under [`POLICY`].
pub(super) fn each_engine(name: &str, images: usize, script: &str, look: impl Fn(Engine, &Session)) {
    for engine in ENGINES {
        only(engine, name, images, script, |session| look(engine, session));
    }
}

/// The same under one engine.
fn only(engine: Engine, name: &str, images: usize, script: &str, look: impl Fn(&Session)) {
    let test = format!("shares::{name} {engine:?}");
    if let Some(reason) = engine.missing() {
        skip::not_run(&test, &reason);
        return;
    }
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&test, &missing.why);
        return;
    }
    std::fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    let _daemon = listening(&bed.at("daemon"));
    drop(bound(&bed.at("ended")));
    // Made in the session: there `/run/tranche` is its own, where the pipe directories of MPS come to lie.
    std::fs::write(bed.specs().join("none-yet"), "").unwrap();
    let place = place(&bed);
    let script = format!(
        "rm /etc/cdi/none-yet\nplace='{}'\n\
         step generate tranche cdi refresh $place --cdi-version 0.5 --hook-path \"$oci\" --output-dir /etc/cdi\n{script}",
        place.join(" ")
    );
    let session = session(&bed, engine, images, &script);
    session.ok("generate");
    look(&session);
}

/// What clients of an MPS daemon connect to. A script binds it over `control` in a pipe directory, which is its own.
pub(super) fn listening(path: &Path) -> OwnedFd {
    let daemon = bound(path);
    listen(&daemon, 100).unwrap();
    daemon
}

/// The same when its daemon has ended.
fn bound(path: &Path) -> OwnedFd {
    let daemon = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&daemon, &SocketAddrUnix::new(path).unwrap()).unwrap();
    daemon
}

/// Where the fake host and its policy are, as options of every verb.
pub(super) fn place(bed: &Bed) -> Vec<String> {
    let host = bed.at("host");
    let mut place: Vec<String> = [
        ("driver-root", ""),
        ("dev-root", ""),
        ("proc-root", "/proc"),
        ("sys-root", "/sys"),
    ]
    .map(|(name, below)| format!("--{name}={}{below}", host.display()))
    .to_vec();
    place.push(format!("--config={}", bed.at("policy.yaml").display()));
    place
}

#[test]
fn a_share_is_held_by_one_container() {
    let script = r#"
step one start one "$1" --device nvidia.com/gpu=0.a
step two start two "$2" --device nvidia.com/gpu=0.b
step ps podman ps --no-trunc=false --format '{{.ID}} {{.Names}}'
step status tranche status
refuse third start third "$3" --device nvidia.com/gpu=0.a
refuse whole start whole "$3" --device nvidia.com/gpu=0
step unsplit podman run --rm --network=none $limits --device nvidia.com/gpu=none --rootfs "$3" /bin/true
step restart podman restart --time 0 one
step after-restart tranche status --json
refuse still start still "$3" --device nvidia.com/gpu=0.a
step stop podman stop --time 0 one
step after-stop tranche status
step fourth start fourth "$3" --device nvidia.com/gpu=0.a
podman rm --force --time 0 two fourth > /dev/null 2>&1
step empty tranche status
step all start all "$1" --device nvidia.com/gpu=0
refuse part start part "$2" --device nvidia.com/gpu=0.b
step remove podman rm --force --time 0 all
step after-remove start after "$2" --device nvidia.com/gpu=0.b
"#;
    each_engine("a_share_is_held_by_one_container", 3, script, |engine, session| {
        let one = session.ok("one").trim()[..12].to_owned();
        session.ok("two");
        assert!(session.ok("ps").contains(&one), "the id as podman shows it");
        let status = session.ok("status");
        let held: Vec<&str> = status.lines().filter(|l| l.contains(" held ")).collect();
        assert_eq!(held.len(), 2, "{status}");
        assert!(
            held[0].starts_with("nvidia.com/gpu=0.a ") && held[0].contains(&format!("one ({one})")),
            "{status}"
        );
        assert!(status.contains("nvidia.com/gpu=0  2 of 2  -\n"), "{status}");
        let since = held[0].rsplit("  ").next().unwrap();
        let line = session.refused("third");
        assert!(
            session.step("third").text.contains("container third ("),
            "its name, as podman knows it"
        );
        let expected = format!("gpu 0 share a: container {one} holds share a since {since}; no share of it is free");
        assert!(line.contains(&expected), "{engine:?}: {line}\nexpected {expected}");
        let line = session.refused("whole");
        assert!(
            line.contains("gpu 0 the whole device: container") && line.contains("holds share"),
            "{line}"
        );
        session.ok("unsplit");
        session.ok("restart");
        assert!(session.ok("after-restart").contains(&one), "{engine:?}");
        assert!(session.refused("still").contains(&one));
        session.ok("stop");
        assert!(!session.ok("after-stop").contains("nvidia.com/gpu=0.a "), "{engine:?}");
        session.ok("fourth");
        assert!(session.ok("empty").contains("no share is held\n"), "{engine:?}");
        let all = session.ok("all").trim()[..12].to_owned();
        let line = session.refused("part");
        assert!(
            line.contains(&format!("container {all} holds the whole device since")),
            "{line}"
        );
        session.ok("remove");
        session.ok("after-remove");
    });
}

#[test]
fn what_is_killed_is_put_right_by_who_looks_next() {
    let script = r#"
step one start one "$1" --device nvidia.com/gpu=0.a
kill -9 "$(init_of one)"
step init-is-gone await start two "$2" --device nvidia.com/gpu=0.a
# Without conmon nobody cleans up, and no poststop runs.
init=$(init_of two)
kill -9 "$(podman inspect --format '{{.State.ConmonPid}}' two)"
step lives tranche status
kill -9 "$init"
await is_over "$init"
step gone tranche status
step three start three "$3" --device nvidia.com/gpu=0.a
step gc tranche claim gc --spec-dir /etc/cdi
step books sh -c 'cat /run/tranche/ledger/*.claims'
podman rm --force --time 0 three > /dev/null 2>&1
"#;
    each_engine(
        "what_is_killed_is_put_right_by_who_looks_next",
        3,
        script,
        |engine, session| {
            session.ok("one");
            session.ok("init-is-gone");
            assert!(
                session.ok("lives").contains("nvidia.com/gpu=0.a "),
                "{engine:?}: conmon's end ends nothing"
            );
            assert!(session.ok("gone").contains("no share is held\n"), "{engine:?}");
            session.ok("three");
            session.ok("gc");
            assert_eq!(session.ok("books").matches("\theld\t").count(), 1, "{engine:?}");
        },
    );
}

#[test]
fn a_container_that_fails_to_start_holds_nothing() {
    let script = r#"
step no-program podman run --rm --network=none $limits --device nvidia.com/gpu=0.a --rootfs "$1" /bin/no-such-program
step after-program tranche status
refuse two-parts podman run --name both --network=none $limits --device nvidia.com/gpu=0.a --device nvidia.com/gpu=0 --rootfs "$1" /bin/true
step after-parts tranche status
step then start then "$2" --device nvidia.com/gpu=0.a
"#;
    each_engine(
        "a_container_that_fails_to_start_holds_nothing",
        2,
        script,
        |engine, session| {
            assert_ne!(session.step("no-program").code, 0);
            assert!(session.ok("after-program").contains("no share is held\n"), "{engine:?}");
            assert!(session.refused("two-parts").contains("the whole device"), "{engine:?}");
            assert!(session.ok("after-parts").contains("no share is held\n"), "{engine:?}");
            session.ok("then");
        },
    );
}

#[test]
fn an_mps_share_needs_its_daemon_and_no_other_device() {
    let script = r#"
refuse none start none "$1" --device nvidia.com/gpu=1.big
control=/run/tranche/mps/1/control
touch "$control"
mount --bind "$bed/daemon" "$control"
step big start big "$1" --device nvidia.com/gpu=1.big
step env podman exec big /bin/cat /proc/1/environ
step pipe podman exec big /bin/ls /tmp/nvidia-mps
step programs podman exec big /bin/sh -c 'ls /usr/bin | grep mps'
refuse two-shares start two "$2" --device nvidia.com/gpu=1.mid --device nvidia.com/gpu=1.small
refuse two-devices start three "$2" --device nvidia.com/gpu=1.mid --device nvidia.com/gpu=0.a
step claim tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 --name both --shares 2 --of 1 --once
step claimed podman run --rm --network=none $limits --device nvidia.com/claim=both --rootfs "$2" /bin/env
step after tranche status
umount "$control"
mount --bind "$bed/ended" "$control"
refuse dead start four "$2" --device nvidia.com/gpu=1.mid
podman rm --force --time 0 big > /dev/null 2>&1
"#;
    each_engine(
        "an_mps_share_needs_its_daemon_and_no_other_device",
        2,
        script,
        |engine, session| {
            let line = session.refused("none");
            assert!(
                line.contains("its MPS daemon was not found") && line.contains("tranche plan"),
                "{engine:?}: {line}"
            );
            session.ok("big");
            let env = session.ok("env").replace('\0', "\n");
            for set in [
                "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps\n",
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60\n",
                "=8192M\n",
                "NVIDIA_GPU_MEMORY_LIMIT=8192\n",
                "CUDA_MPS_CLIENT_PRIORITY=0\n",
                "CUDA_VISIBLE_DEVICES=GPU-",
            ] {
                assert!(env.contains(set), "{engine:?}: {set} in {env}");
            }
            assert!(session.ok("pipe").contains("control"));
            assert_eq!(session.step("programs").text, "", "no program that commands the daemon");
            let command = "tranche claim create --name NAME --shares 2 --of 1";
            let line = session.refused("two-shares");
            assert!(
                line.contains("holds share mid of this device already") && line.contains(command),
                "{line}"
            );
            let line = session.refused("two-devices");
            assert!(
                line.contains("/dev/nvidia0: is another device") && line.contains("a container of its own"),
                "{line}"
            );
            assert!(session.ok("claim").starts_with("nvidia.com/claim=both\n"));
            let env = session.ok("claimed");
            assert!(
                env.contains("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40\n")
                    && env.contains("NVIDIA_GPU_MEMORY_LIMIT=6144\n"),
                "{env}"
            );
            let after = session.ok("after");
            assert!(
                after.contains("nvidia.com/gpu=1.big ") && !after.contains("claim=both"),
                "{engine:?}: {after}"
            );
            assert!(
                session.refused("dead").contains("its MPS daemon is not running"),
                "{engine:?}"
            );
        },
    );
}

#[test]
fn a_claim_outlasts_its_containers_until_it_is_released() {
    let script = r#"
create() { tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 "$@"; }
run() { podman run --network=none $limits "$@"; }
step create create --name train1 --shares 1 --of 0
step again create --name train1 --shares 1 --of 0
step reserved tranche status
refuse taken start taken "$1" --device nvidia.com/gpu=0.a
step no-program run --rm --device nvidia.com/claim=train1 --rootfs "$1" /bin/nosuch
step after-no-program tranche claim list
step use start one "$1" --device nvidia.com/claim=train1
refuse used-twice start two "$2" --device nvidia.com/claim=train1
step in-use tranche claim release train1
step list tranche claim list
step restart podman restart --time 0 one
step restarted tranche claim list
podman rm --force --time 0 one > /dev/null 2>&1
step next run --rm --device nvidia.com/claim=train1 --rootfs "$2" /bin/true
step waits tranche claim show train1
step release tranche claim release train1
step released ls /etc/cdi
step gone run --rm --device nvidia.com/claim=train1 --rootfs "$2" /bin/true
"#;
    each_engine(
        "a_claim_outlasts_its_containers_until_it_is_released",
        2,
        script,
        |engine, session| {
            assert!(session.ok("create").starts_with("nvidia.com/claim=train1\n"));
            let again = session.step("again");
            assert_eq!((again.code, again.text.contains("exists already")), (2, true));
            let reserved = session.ok("reserved");
            assert!(
                reserved.contains("reserved") && reserved.contains("nvidia.com/claim=train1 "),
                "{reserved}"
            );
            let line = session.refused("taken");
            assert!(
                line.contains("claim train1 holds share a since") && line.ends_with("free: b"),
                "{line}"
            );
            assert_ne!(session.step("no-program").code, 0);
            let list = session.ok("after-no-program");
            assert!(
                list.contains("train1") && list.contains("reserved"),
                "{engine:?}: {list}"
            );
            let one = session.ok("use").trim()[..12].to_owned();
            let line = session.refused("used-twice");
            assert!(line.contains("claim train1 (container"), "{line}");
            let in_use = session.step("in-use");
            let says = format!("container one ({one}), which is running; stop that container, or give --force");
            assert!(in_use.code == 1 && in_use.text.contains(&says), "{}", in_use.text);
            let holder = format!("one ({one})");
            assert!(
                session.ok("list").contains(&holder),
                "{engine:?}: {}",
                session.ok("list")
            );
            session.ok("restart");
            assert!(
                session.ok("restarted").contains(&holder),
                "{engine:?}: {}",
                session.ok("restarted")
            );
            session.ok("next");
            assert!(session.ok("waits").contains("reserved"), "{engine:?}");
            session.ok("release");
            assert_eq!(session.ok("released"), "tranche.yaml\n", "{engine:?}");
            assert_ne!(session.step("gone").code, 0);
        },
    );
}

#[test]
fn a_claim_with_once_goes_with_its_container_and_one_with_a_ttl_with_its_time() {
    let script = r#"
create() { tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 "$@"; }
run() { podman run --network=none $limits "$@"; }
step once create --name once --once --shares 1 --of 0
step use-once run --rm --device nvidia.com/claim=once --rootfs "$1" /bin/true
step after-once tranche claim list
step after-once-files ls /etc/cdi
step fails create --name fails --once --shares 1 --of 0
step no-program run --rm --device nvidia.com/claim=fails --rootfs "$1" /bin/nosuch
step after-fails tranche claim list
step late create --name late --ttl 5 --shares 1 --of 0
step killed create --name killed --once --shares 1 --of 0
step full create --name third --shares 1 --of 0
start killed "$2" --device nvidia.com/claim=killed > /dev/null
init=$(init_of killed)
kill -9 "$(podman inspect --format '{{.State.ConmonPid}}' killed)"
kill -9 "$init"
await is_over "$init"
ended() { ! tranche claim list | grep -q late; }
await ended
step gc tranche claim gc --spec-dir /etc/cdi
step after-gc ls /etc/cdi
step unnamed create --name 'a/b' --shares 1
"#;
    each_engine(
        "a_claim_with_once_goes_with_its_container_and_one_with_a_ttl_with_its_time",
        2,
        script,
        |engine, session| {
            session.ok("once");
            session.ok("use-once");
            assert!(!session.ok("after-once").contains("once"), "{engine:?}");
            assert_eq!(session.ok("after-once-files"), "tranche.yaml\n", "{engine:?}");
            session.ok("fails");
            assert_ne!(session.step("no-program").code, 0);
            let list = session.ok("after-fails");
            assert!(!list.contains("fails"), "{engine:?}: {list}");
            session.ok("late");
            session.ok("killed");
            let full = session.step("full");
            assert!(
                full.code == 1 && full.text.contains("gpu 0 has 0 of 2 shares free"),
                "{}",
                full.text
            );
            session.ok("gc");
            assert_eq!(session.ok("after-gc"), "tranche.yaml\n", "{engine:?}");
            let unnamed = session.step("unnamed");
            assert_eq!(unnamed.code, 2, "{}", unnamed.text);
        },
    );
}

#[test]
fn a_share_that_vanished_from_the_policy_is_still_held() {
    let script = r#"
step one start one "$1" --device nvidia.com/gpu=0.a
sed 's/{name: a}, {name: b}/{name: c}, {name: d}/' "$bed/policy.yaml" > "$bed/new.yaml"
new=$(echo "$place" | sed 's/policy.yaml/new.yaml/')
step generate tranche cdi refresh $new --cdi-version 0.5 --hook-path "$oci" --output-dir /etc/cdi
step status tranche status
step old start old "$2" --device nvidia.com/gpu=0.a
step new start two "$2" --device nvidia.com/gpu=0.c
refuse whole start whole "$3" --device nvidia.com/gpu=0
podman rm --force --time 0 one two > /dev/null 2>&1
step free start free "$3" --device nvidia.com/gpu=0
"#;
    each_engine(
        "a_share_that_vanished_from_the_policy_is_still_held",
        3,
        script,
        |engine, session| {
            session.ok("one");
            session.ok("generate");
            assert!(session.ok("status").contains("1 of an earlier policy"), "{engine:?}");
            assert_ne!(session.step("old").code, 0, "there is no such device any more");
            session.ok("new");
            assert!(session.refused("whole").contains("holds share a since"), "{engine:?}");
            session.ok("free");
        },
    );
}

#[test]
fn a_share_is_held_while_its_cgroup_has_a_process() {
    // With the host's pid namespace nothing ends the other processes of a container when its init is killed.
    let script = r#"
two_processes() { name=$1 image=$2; shift 2
    podman run --detach --name "$name" --pid=host --network=none $limits "$@" --rootfs "$image" \
        /bin/sh -c '/bin/sleep 1000 & exec /bin/sleep 1000'; }
# Kills the init and the monitor of a container.
behead() {
    init=$(init_of "$1") || return 1
    kill -9 "$(podman inspect --format '{{.State.ConmonPid}}' "$1")" "$init" || return 1
    await is_over "$init"
}
# The same for a container of two processes: $other is the one that is left.
orphan() {
    init=$(init_of "$1") && await grep -q . "/proc/$init/task/$init/children" || return 1
    other=$(tr -d ' ' < "/proc/$init/task/$init/children")
    behead "$1" && ! is_over "$other"
}
step one two_processes one "$1" --device nvidia.com/gpu=0.a
step record sh -c 'cat /run/tranche/ledger/*.claims'
step orphan orphan one
step lives tranche status
refuse second start second "$2" --device nvidia.com/gpu=0.a
step gc tranche claim gc --spec-dir /etc/cdi
step still tranche status
kill -9 "$other"
await is_over "$other"
step third start third "$2" --device nvidia.com/gpu=0.a
case $podman_runtime in *crun)
    # Without a cgroup of its own it is in the engine's, which always has processes: that is no reason to hold a share.
    step no-cgroup start no-cgroup "$3" --cgroups=disabled --device nvidia.com/gpu=0.b
    refuse no-cgroup-lives start never "$4" --device nvidia.com/gpu=0.b
    step no-cgroup-ends behead no-cgroup
    step after start after "$4" --device nvidia.com/gpu=0.b ;;
esac
"#;
    for engine in ENGINES {
        let script = format!("podman_runtime={}\n{script}", engine.runtime());
        only(
            engine,
            "a_share_is_held_while_its_cgroup_has_a_process",
            4,
            &script,
            |session| {
                let one = session.ok("one").trim()[..12].to_owned();
                let record = session.ok("record");
                assert!(
                    record.contains("/sys/fs/cgroup/") && record.contains("libpod-"),
                    "{engine:?}: {record}"
                );
                session.ok("orphan");
                assert!(session.ok("lives").contains(&one), "{engine:?}");
                assert!(session.refused("second").contains(&one), "{engine:?}");
                session.ok("gc");
                assert!(
                    session.ok("still").contains(&one),
                    "{engine:?}: gc takes nothing from who lives"
                );
                session.ok("third");
                if engine == Engine::PodmanCrun {
                    let one = session.ok("no-cgroup").trim()[..12].to_owned();
                    assert!(session.refused("no-cgroup-lives").contains(&one));
                    session.ok("no-cgroup-ends");
                    session.ok("after");
                }
            },
        );
    }
}
