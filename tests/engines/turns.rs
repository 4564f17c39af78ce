//! Turns under real engines: two containers have a whole GPU one after the other. The GPU and its library are fakes,
//! and everything else is real: the containers, their cgroups and the broker.

use crate::requests::Way;
use crate::shares::place;
use crate::support::engines::{Bed, Engine};
use crate::support::fake_turns::{POLICY, PROTECTED};
use crate::support::session::session;
use crate::support::test_cgroup::TestCgroup;
use crate::support::{cuda_client, fake_host, fake_library, fake_turns, programs, skip};
use serde_json::json;
use std::fs;
use tranche_turns::wishes::{HostLibrary, Wishes};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04";

/// The GPU has 64 MiB, and each container takes 40.
const SCRIPT: &str = r#"
"$program" broker $place --spec-dir /run/cdi < /dev/null > "$bed/broker.log" 2>&1 &
broker=$!
await test -S /run/tranche/broker.sock
keepers=
begin() {
    mkfifo "$bed/out/$1.words"
    : > "$bed/out/$1.lines"
    sleep 1000 > "$bed/out/$1.words" &
    keepers="$keepers $!"
    name=$1
    options="--env NVIDIA_VISIBLE_DEVICES=0.any --volume $bed/meeting:$bed/meeting --volume $config:${library%/*}/cuda.json:ro"
    start_ "$1" /bin/sh -c "/bin/client $library 0 < /out/$1.words > /out/$1.lines 2>&1"
}
# The share of the container that has the GPU, and no change is on the way.
has_it() {
    record=$(cat /run/tranche/turns/*.json) || return 1
    case $record in *'"change":null'*) ;; *) return 1 ;; esac
    [ "$(echo "$record" | sed 's/.*"resident":"\([^"]*\)".*/\1/' | cut -d' ' -f3)" = "$1" ]
}
says() { [ "$(wc -l < "$bed/out/$1.lines")" -ge "$2" ]; }
# ask STEP NAME LINE WORDS…: what it says as its line of this number.
tell() {
    step=$1 name=$2 line=$3
    shift 3
    echo "$@" > "$bed/out/$name.words"
    await says "$name" "$line"
    step "$step" sed -n "${line}p" "$bed/out/$name.lines"
}
step begin-a begin ann
await has_it 0
await says ann 1
tell take-a ann 2 take 41943040
step begin-b begin bob
await has_it 1
await says bob 1
tell take-b bob 2 take 41943040
tell closed-a ann 3 open /dev/nvidia0
tell open-b bob 3 open /dev/nvidia0
step status tranche status
# A call wakes it. So does one of a thread that was made while it was suspended.
tell call-a ann 4 call
await has_it 0
tell check-a ann 5 check
tell closed-b bob 4 open /dev/nvidia0
tell thread-b bob 5 thread
await has_it 1
tell check-b bob 6 check
step remove remove bob
tell call-again ann 6 call
tell check-again ann 7 check
step after tranche status
engine_down > /dev/null 2>&1
trap - EXIT
kill "$broker" $keepers
wait
step log cat "$bed/broker.log"
"#;

fn two_have_a_gpu_by_turns(way: Way, engine: Engine) {
    let test = format!(
        "turns::two_containers_have_a_whole_gpu_by_turns {way:?} {}",
        engine.runtime()
    );
    let probe = format!("look-turns-{way:?}-{}", engine.runtime());
    let cgroup = || TestCgroup::of_controller("devices", &probe).err();
    if let Some(reason) = engine.missing().or(way.missing()).or_else(cgroup) {
        return skip::not_run(&test, &reason);
    }
    let mut bed = Bed::new();
    let host = fake_host::build("h200-in-vm", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        return skip::not_run(&test, &missing.why);
    }
    fake_turns::install(&host, &host.path(LIBRARY), &bed.at("meeting"), 64);
    let config = host.path(LIBRARY).with_file_name("cuda.json");
    host.nvml(|config| config["gpus"][0]["utilization"] = json!({"gpu": 0, "memory": 0}))
        .unwrap();
    fs::write(host.path("/proc/driver/nvidia/params"), PROTECTED).unwrap();
    if let Err(why) = HostLibrary::at(&host.path(LIBRARY)).and_then(|library| Wishes::new(library, 1)) {
        return skip::not_run(&test, &why.to_string());
    }
    let runtime = format!("runtime: {{runtimes: [{}]}}\n", engine.runtime());
    fs::write(bed.at("policy.yaml"), [POLICY, &runtime].concat()).unwrap();
    fs::create_dir(bed.at("runtime")).unwrap();
    let own = bed.at("runtime/tranche-runtime");
    programs::install(env!("CARGO_BIN_EXE_tranche-runtime"), &own);
    if way == Way::PodmanRuntime {
        bed.with_our_runtime(engine);
    }
    // The image gets a loader, and the program that is suspended.
    let image = bed.at("client");
    fs::create_dir(&image).unwrap();
    cuda_client::image(&image).unwrap();
    let client = fake_library::build("fake-cuda-client")
        .unwrap()
        .join("fake-cuda-client");
    fs::copy(client, image.join("bin/client")).unwrap();
    fs::copy(
        "/lib/x86_64-linux-gnu/libgcc_s.so.1",
        image.join("lib/x86_64-linux-gnu/libgcc_s.so.1"),
    )
    .unwrap();
    let (words, variables) = way.script();
    let script = format!(
        "place='{}'\nprogram='{}'\nlibrary={LIBRARY}\nconfig={}\n{variables}\n{}{words}\
         cp -a \"{}/.\" \"$1/\"\ntrap engine_down EXIT\nengine_up \"$1\"\n{SCRIPT}",
        place(&bed).join(" "),
        env!("CARGO_BIN_EXE_tranche"),
        config.display(),
        include_str!("requests/verbs.sh"),
        image.display(),
    );
    let session = session(&bed, engine, 1, &script);
    let log = session.step("log").text.clone();
    for (step, line) in [
        ("take-a", "taken"),
        ("take-b", "taken"),
        // Without a driver, an open that the kernel allows ends with ENXIO.
        ("closed-a", "error 1"),
        ("open-b", "error 6"),
        ("call-a", "called"),
        ("check-a", "good"),
        ("closed-b", "error 1"),
        ("thread-b", "threaded"),
        ("check-b", "good"),
        ("call-again", "called"),
        ("check-again", "good"),
    ] {
        assert_eq!(session.ok(step).trim(), line, "{way:?} {step}: {log}");
    }
    let status = session.ok("status");
    let state = |share: &str, words: &str| {
        let line = status.lines().find(|line| line.contains(&format!("  {share}  ")));
        assert!(line.is_some_and(|line| line.contains(words)), "{share}: {status}");
    };
    state("0.0", "away");
    state("0.1", "has the device");
}

#[test]
fn two_containers_of_podman_have_a_whole_gpu_by_turns() {
    two_have_a_gpu_by_turns(Way::PodmanRuntime, Engine::PodmanCrun);
    two_have_a_gpu_by_turns(Way::PodmanRuntime, Engine::PodmanRunc);
}

#[test]
fn two_containers_of_docker_have_a_whole_gpu_by_turns() {
    two_have_a_gpu_by_turns(Way::DockerRuntime, Engine::PodmanRunc);
}
