//! Shares in containers of a user's own engine, which get them from the broker.

use crate::shares::place;
use crate::support::{engines, fake_host, session, skip};
use engines::{Bed, Engine};
use session::session;
use std::fs;

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
    - {name: nvidia.com/gpu, devices: [1], replicas: 2}
";

/// `user` is podman of a user without any privilege, and `begin NAME IMAGE DEVICE` starts a container of his that
/// sleeps.
const SCRIPT: &str = r#"
rm /etc/cdi/none-yet
"$bed/tranche" broker $place --spec-dir /run/cdi > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock
step generate tranche cdi refresh $place --cdi-version 0.5 --hook-path "$oci" --output-dir /etc/cdi
# Where hooks keep their messages for this user, as a session of systemd has it.
mkdir -p /run/user/65534
chown 65534:65534 /run/user/65534
chmod 700 /run/user/65534
as_user() {
    setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" PODMAN_IGNORE_CGROUPSV1_WARNING=1 HOME="$bed/nobody" \
        XDG_RUNTIME_DIR=/run/user/65534 "$@"
}
user() {
    as_user podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none --root "$bed/nobody/store" \
        --runroot "$bed/nobody/runroot" --runtime "$runtime" "$@"
}
options=
begin() {
    # shellcheck disable=SC2086 # options are meant to be split
    user run --detach --name "$1" --network=none $cgroups $limits $options --device "nvidia.com/$3" --rootfs "$2" /bin/sleep 1000
}
step one begin one "$first" gpu=0.a
step status tranche status --json --no-gpu
step same begin same "$second" gpu=0.a
as_user "$bed/tranche" status --no-gpu > "$bed/steps/said.text" 2>&1; echo 0 > "$bed/steps/said.code"
step mps begin mps "$second" gpu=1.any
as_user "$bed/tranche" status --messages --no-gpu > "$bed/steps/all-said.text" 2>&1; echo 0 > "$bed/steps/all-said.code"
step root start root "$third" --device nvidia.com/gpu=0.a
step inside user exec one /bin/ls /dev/nvidia0
step end user rm --force --time 0 one
step after tranche status --json --no-gpu
step again begin again "$second" gpu=0.a
step end-again user rm --force --time 0 again
step claim-then as_user "$bed/tranche" claim create --name kept --shares 1 --device 0
step use begin use "$first" claim=65534.kept
step used tranche status --json --no-gpu
user rm --force --all --time 0 > /dev/null 2>&1
as_user "$bed/tranche" claim release kept > /dev/null
# A start waits, and its client is killed.
sed 's/^sharing:/&\n  wait: 10m/' "$bed/policy.yaml" > "$bed/waiting.yaml"
waiting=$(echo "$place" | sed 's/policy.yaml/waiting.yaml/')
step generate-waiting tranche cdi refresh $waiting --cdi-version 0.5 --hook-path "$oci" --output-dir /etc/cdi
step holds begin holds "$first" gpu=0.a
client() {
    # shellcheck disable=SC2086 # options are meant to be split
    exec setpriv --reuid=65534 --regid=65534 --clear-groups env -i PATH="$PATH" PODMAN_IGNORE_CGROUPSV1_WARNING=1 \
        HOME="$bed/nobody" XDG_RUNTIME_DIR=/run/user/65534 podman --storage-driver vfs --cgroup-manager cgroupfs \
        --events-backend none --root "$bed/nobody/store" --runroot "$bed/nobody/runroot" --runtime "$runtime" \
        run --name waits --network=none $cgroups $limits --device nvidia.com/gpu=0.a --rootfs "$second" /bin/sleep 1000
}
client > /dev/null 2>&1 &
client=$!
await test -e /run/tranche/waiting.json
step waiting cat /run/tranche/waiting.json
kill -9 "$client"; wait "$client" 2> /dev/null
await test ! -e /run/tranche/waiting.json
user rm --force --all --time 0 > /dev/null 2>&1
step left tranche status --json --no-gpu
# With more ids, the user has the own one inside, too.
end_pause() {
    [ ! -e /run/user/65534/libpod/tmp/pause.pid ] || kill -9 "$(cat /run/user/65534/libpod/tmp/pause.pid)"
    rm -f /run/user/65534/libpod/tmp/pause.pid
}
end_pause
echo 65534:200000:65536 > "$bed/ids"
mount --bind "$bed/ids" /etc/subuid
mount --bind "$bed/ids" /etc/subgid
options=--userns=keep-id
step keep begin keep "$second" gpu=0.b
step keep-map user exec keep /bin/cat /proc/self/uid_map
step keep-uid user exec keep /bin/id -u
step keep-node user exec keep /bin/ls /dev/nvidia0
step kept tranche status --json --no-gpu
user rm --force --all --time 0 > /dev/null 2>&1
options=
end_pause
umount /etc/subuid /etc/subgid
kill -9 "$broker"; wait "$broker" 2> /dev/null
step without begin without "$second" gpu=0.b
user rm --force --all --time 0 > /dev/null 2>&1
end_pause
"#;

#[test]
fn a_container_of_a_users_engine_holds_a_share_until_it_is_removed() {
    for engine in [Engine::RootlessCrun, Engine::RootlessRunc] {
        let test = format!("rootless_shares::a_container_of_a_users_engine_holds_a_share {engine:?}");
        if let Some(reason) = engine.missing() {
            skip::not_run(&test, &reason);
            continue;
        }
        let mut bed = Bed::new();
        let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&test, &missing.why);
            continue;
        }
        fs::write(bed.at("policy.yaml"), POLICY).unwrap();
        fs::write(bed.specs().join("none-yet"), "").unwrap();
        crate::support::installed::command_line(&bed.at(""));
        let dev = bed.at("host/dev");
        bed.with_nodes(&dev);
        let images = [engine, engine, Engine::PodmanCrun].map(|engine| bed.image(engine).display().to_string());
        for directory in ["nobody", "nobody/store", "nobody/runroot"] {
            fs::create_dir(bed.at(directory)).unwrap();
        }
        engines::own(&bed.at("nobody"));
        // A rootless engine takes its nodes from /dev alone.
        let place: Vec<String> = place(&bed)
            .into_iter()
            .map(|option| match option.starts_with("--dev-root") {
                true => "--dev-root=/".to_owned(),
                false => option,
            })
            .collect();
        let cgroups = if engine == Engine::RootlessCrun {
            "--cgroups=disabled"
        } else {
            ""
        };
        let [first, second, third] = &images;
        let script = format!(
            "place='{}'\nruntime={}\ncgroups='{cgroups}'\nfirst={first}\nsecond={second}\nthird={third}\n{SCRIPT}",
            place.join(" "),
            bed.runtime(engine).display(),
        );
        let session = session(&bed, Engine::PodmanCrun, 0, &script);
        session.ok("generate");
        // podman may say something about its machine before.
        let id_of = |step: &str| session.ok(step).lines().next_back().unwrap()[..12].to_owned();
        let id = id_of("one");
        let held = |step: &str| {
            let status: serde_json::Value = serde_json::from_str(session.ok(step)).unwrap();
            let claims = status["claims"].as_array().unwrap().iter();
            let held = claims.map(|claim| {
                let id = claim["container"]["id"].as_str().unwrap_or_default();
                (
                    claim["cdi"].as_str().unwrap().to_owned(),
                    claim["uid"].clone(),
                    id.chars().take(12).collect::<String>(),
                )
            });
            held.collect::<Vec<_>>()
        };
        let uid = serde_json::json!(65534);
        assert_eq!(held("status"), [("nvidia.com/gpu=0.a".to_owned(), uid.clone(), id)]);
        assert!(session.ok("inside").contains("/dev/nvidia0"));
        for refused in ["same", "mps", "root"] {
            assert_ne!(
                session.step(refused).code,
                0,
                "{engine:?} {refused}: {}",
                session.step(refused).text
            );
        }
        let said = session.ok("said");
        assert!(said.contains("failure of claim: gpu 0 share a: container "), "{said}");
        let all = session.ok("all-said");
        assert!(
            all.contains("shares under MPS are for containers of engines that run as root"),
            "{all}"
        );
        session.ok("end");
        assert_eq!(held("after"), []);
        session.ok("again");
        session.ok("end-again");
        assert!(session.ok("claim-then").contains("nvidia.com/claim=65534.kept"));
        let id = id_of("use");
        assert_eq!(
            held("used"),
            [("nvidia.com/claim=65534.kept".to_owned(), uid.clone(), id)]
        );
        session.ok("holds");
        assert!(
            session.ok("waiting").contains("gpu 0 share a"),
            "{}",
            session.ok("waiting")
        );
        assert_eq!(held("left"), []);
        let id = id_of("keep");
        assert_eq!(session.ok("keep-uid").trim(), "65534");
        assert!(session.ok("keep-map").lines().count() > 1);
        assert!(session.ok("keep-node").contains("/dev/nvidia0"));
        assert_eq!(held("kept"), [("nvidia.com/gpu=0.b".to_owned(), uid, id)]);
        assert_ne!(session.step("without").code, 0, "without a broker there is no share");
    }
}
