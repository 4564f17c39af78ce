//! What shares cost: a claim by itself, a claim in a container's start, and specifications of many shares.
//!
//! Machines are noisy: every round runs each program once, and medians of one run are set beside each other. What is
//! run is tranche-oci as it is shipped, beside an empty static program. Where valgrind is installed the instructions
//! are counted too: they are the same on any day.
//!
//! ```text
//! make bench                    # builds tranche-oci as it is shipped
//! make bench ROUNDS=100         # more rounds
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "support/crun.rs"]
mod crun;
use tranche_test_support as support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crun::{compile, hook, median, starts};
use serde_json::json;
use support::engines::{Bed, Engine};
use support::init::Init;
use support::{fake_host, programs, session};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Ask, Bounds, Change, ClaimState, ContainerName, HeldPart, Holder, Ledger};
use tranche_core::types::DeviceKey;

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(15);
    in_one_process(rounds * 100);
    specifications(rounds);
    let Some(oci) = std::env::var_os("TRANCHE_OCI_STATIC").map(PathBuf::from) else {
        println!("not run: benches/shares, hooks: TRANCHE_OCI_STATIC is not set: run `make bench`");
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        println!("not run: benches/shares, hooks: not root");
        return;
    }
    as_hooks(&oci, rounds * 20);
    among_a_thousand(&oci, rounds * 4);
    many_at_once(&oci);
    under_crun(&oci, rounds * 4);
    starts_at_once(&oci);
    under_podman(&oci, rounds);
}

fn line(what: &str, time: Duration, more: &str) {
    println!("{what:58} {:>10.1} us  {more}", time.as_secs_f64() * 1e6);
}

/// In memory where that is possible, as `/run` is.
fn place() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(place).unwrap()
}

/// The device whose shares are claimed.
const DEVICE: &str = "GPU-11111111";

/// What `holder`, whose init is `pid`, asks the ledger for: one of so many shares.
fn ask(machine: &Machine, pid: u32, of: usize, share: usize, holder: Holder) -> Ask {
    Ask {
        device: DEVICE.parse().unwrap(),
        part: HeldPart::share(share.to_string().parse().unwrap(), format!("1/{of}").parse().unwrap()),
        bounds: Bounds::default(),
        asked_as: None,
        name: None,
        holder,
        process: Some(machine.process(pid).unwrap()),
        state: ClaimState::Held,
        once: true,
        for_root: false,
        alone: false,
        uid: 0,
        ttl: None,
        spec_file: None,
    }
}

/// Ten shares, nine of them held: the ledger alone.
fn in_one_process(rounds: usize) {
    let dir = place();
    let device: DeviceKey = DEVICE.parse().unwrap();
    let machine = Machine::here().unwrap();
    let take = |share: usize| {
        let ask = Ask {
            name: Some(share.to_string()),
            ..ask(&machine, std::process::id(), 10, share, Holder::Person)
        };
        let ledger = Ledger::open(dir.path()).unwrap();
        let taken = ledger
            .lock()
            .unwrap()
            .change(&device, |book| Ok((book.take(&ask, &machine), Change::Made)));
        taken.unwrap().unwrap();
    };
    (0..9).for_each(take);
    let (mut claims, mut both) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let start = Instant::now();
        take(9);
        claims.push(start.elapsed());
        let ledger = Ledger::open(dir.path()).unwrap();
        let released = ledger.lock().unwrap().change(&device, |book| {
            let released = book.release_by_hand(|claim| claim.name.as_deref() == Some("9"), 0, true, &machine);
            Ok((released?.len(), Change::Made))
        });
        assert_eq!(released.unwrap(), 1);
        both.push(start.elapsed());
    }
    let both = median(both);
    let rate = format!("{:.0} a second", 1.0 / both.as_secs_f64());
    line("claim taken and given back, 9 of 10 shares held", both, &rate);
    line("  of that, the taking", median(claims), "");
}

/// The arguments of a claim hook of a device with ten shares, as a specification has them.
fn claim(share: usize, state_dir: &Path) -> Vec<String> {
    claim_of(10, share, state_dir)
}

/// The arguments of a claim hook of a device with `of` shares.
fn claim_of(of: usize, share: usize, state_dir: &Path) -> Vec<String> {
    let mut arguments = ["hook", "claim", "--device=GPU-11111111", "--label=gpu 0"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend([
        format!("--of={of}"),
        format!("--share={share}"),
        format!("--size=1/{of}"),
        format!("--state-dir={}", state_dir.display()),
    ]);
    arguments
}

/// The arguments of the one release hook of a specification.
fn release(state_dir: &Path) -> Vec<String> {
    ["hook", "release"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("--state-dir={}", state_dir.display())])
        .collect()
}

/// Containers that hold shares of one device, and the hook as an engine runs it for them.
struct Scene<'a> {
    oci: &'a Path,
    top: tempfile::TempDir,
}

impl Scene<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// `program`, the last of its words our own, for the container `id` whose init is `pid`.
    fn run(&self, program: &[&Path], arguments: &[String], id: &str, pid: u32) -> Command {
        let state = self.at(&format!("{id}.state"));
        let text = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "bundle": "/b", "pid": pid});
        fs::write(&state, text.to_string()).unwrap();
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(arguments).env_clear();
        command.stdin(File::open(&state).unwrap());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn hook(&self, arguments: &[String], id: &str, pid: u32) -> Command {
        self.run(&[self.oci], arguments, id, pid)
    }

    /// The instructions of one run of `program`.
    fn instructions(&self, program: &Path, arguments: &[String], pid: u32) -> String {
        let words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"].map(Path::new);
        let mut command = self.run(&[&words[..], &[program]].concat(), arguments, "c", pid);
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stderr(Stdio::piped());
        let text = command
            .output()
            .map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
        let text = text.unwrap_or_default();
        let counted = text.lines().find(|line| line.contains("Collected : "));
        let number = counted.and_then(|line| line.split_whitespace().last());
        number.unwrap_or("no valgrind, so no").to_owned()
    }
}

fn time(mut command: Command) -> Duration {
    let start = Instant::now();
    assert!(command.status().unwrap().success(), "{command:?}");
    start.elapsed()
}

/// A claim and a release by themselves, beside a program that does nothing.
fn as_hooks(oci: &Path, rounds: usize) {
    let scene = Scene { oci, top: place() };
    let (busy, absent) = (scene.at("busy"), scene.at("absent"));
    let empty = compile(scene.top.path(), "empty", "int main(void) { return 0; }\n");
    let others: Vec<Init> = (0..9).map(|_| Init::new()).collect();
    for (share, other) in others.iter().enumerate() {
        time(scene.hook(&claim(share, &busy), &format!("other-{share}"), other.pid()));
    }
    // Before anything is timed: a process that starts or ends takes time from the next one.
    let inits: Vec<Init> = (0..rounds).map(|_| Init::new()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let mut times = [const { Vec::new() }; 5];
    for (round, init) in inits.into_iter().enumerate() {
        let fresh = scene.at(&format!("fresh-{round}"));
        times[0].push(time(scene.run(&[&empty], &[], "c", init.pid())));
        times[1].push(time(scene.hook(&release(&absent), "c", init.pid())));
        times[2].push(time(scene.hook(&claim(9, &fresh), "c", init.pid())));
        times[3].push(time(scene.hook(&claim(9, &busy), "c", init.pid())));
        drop(init);
        times[4].push(time(scene.hook(&release(&busy), "c", 0)));
    }
    let init = Init::new();
    let mut counted = vec![
        scene.instructions(&empty, &[], init.pid()),
        scene.instructions(oci, &release(&absent), init.pid()),
        scene.instructions(oci, &claim(9, &scene.at("fresh")), init.pid()),
        scene.instructions(oci, &claim(9, &busy), init.pid()),
    ];
    drop(init);
    counted.push(scene.instructions(oci, &release(&busy), 0));
    let [empty, nothing, first, tenth, given_back] = times.map(median);
    for ((what, time), counted) in [
        ("an empty static program", empty),
        ("hook release with no ledger: nothing to do", nothing),
        ("hook claim, no other share held", first),
        ("hook claim, 9 of 10 shares held", tenth),
        ("hook release, 10 of 10 shares held", given_back),
    ]
    .into_iter()
    .zip(counted)
    {
        let over = |base| time.saturating_sub(base).as_secs_f64() * 1e6;
        let more = format!("{:.0} us over the empty one, {counted} instructions", over(empty));
        line(what, time, &more);
    }
    let claim = tenth.saturating_sub(nothing).as_secs_f64() * 1e6;
    println!("a claim beside 9 others, over a hook with nothing to do: {claim:.0} us");
}

/// The last share of a thousand, and one that is held, each by a container that runs.
fn among_a_thousand(oci: &Path, rounds: usize) {
    let scene = Scene { oci, top: place() };
    let state_dir = scene.at("state");
    let empty = compile(scene.top.path(), "empty", "int main(void) { return 0; }\n");
    let others: Vec<Init> = (0..999).map(|_| Init::new()).collect();
    let machine = Machine::here().unwrap();
    let device: DeviceKey = DEVICE.parse().unwrap();
    let ledger = Ledger::open(&state_dir).unwrap();
    let filled = ledger.lock().unwrap().change(&device, |book| {
        for (share, other) in others.iter().enumerate() {
            let id = format!("{share:064x}");
            let holder = Holder::Container(ContainerName {
                bundle: format!("/var/lib/containers/storage/overlay-containers/{id}/userdata"),
                id,
            });
            let ask = Ask {
                asked_as: Some(format!("nvidia.com/gpu=0.{share}")),
                ..ask(&machine, other.pid(), 1000, share, holder)
            };
            book.take(&ask, &machine).unwrap();
        }
        Ok(((), Change::Made))
    });
    filled.unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let init = Init::new();
        std::thread::sleep(Duration::from_millis(2));
        times[0].push(time(scene.run(&[&empty], &[], "c", init.pid())));
        times[1].push(time(scene.hook(&claim_of(1000, 999, &state_dir), "c", init.pid())));
        let start = Instant::now();
        let refused = scene.hook(&claim_of(1000, 500, &state_dir), "d", init.pid()).status();
        assert!(!refused.unwrap().success());
        times[2].push(start.elapsed());
        drop(init);
        time(scene.hook(&release(&state_dir), "c", 0));
    }
    let [empty, taken, refused] = times.map(median);
    let ratio = |time: Duration| {
        format!(
            "{:.2} times an empty static program",
            time.as_secs_f64() / empty.as_secs_f64()
        )
    };
    line("an empty static program", empty, "");
    line("hook claim, 999 of 1,000 shares held", taken, &ratio(taken));
    line(
        "hook claim of a held share, all held: refused",
        refused,
        &ratio(refused),
    );
}

/// A thousand processes for ten shares: how long until all have their answer. Most of that is what a thousand processes
/// take.
fn many_at_once(oci: &Path) {
    let scene = Scene { oci, top: place() };
    let empty = compile(scene.top.path(), "empty", "int main(void) { return 0; }\n");
    let init = Init::new();
    let at_once = |mut commands: Vec<Command>| {
        let start = Instant::now();
        let mut children: Vec<Child> = commands.iter_mut().map(|c| c.spawn().unwrap()).collect();
        let won = children.iter_mut().map(|c| c.wait().unwrap().success());
        let won = won.filter(|won| *won).count();
        (start.elapsed() / 1000, won)
    };
    let (mut nothing, mut claims) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let id = |n: usize| format!("c{n}");
        let commands = (0..1000).map(|n| scene.run(&[&empty], &[], &id(n), init.pid()));
        nothing.push(at_once(commands.collect()).0);
        let state_dir = scene.at(&format!("state-{round}"));
        let commands = (0..1000).map(|n| scene.hook(&claim(n % 10, &state_dir), &id(n), init.pid()));
        let (each, won) = at_once(commands.collect());
        assert_eq!(won, 10);
        claims.push(each);
    }
    line("1,000 empty programs at once, each", median(nothing), "");
    let each = median(claims);
    let rate = format!("{:.0} claims a second, 10 won", 1.0 / each.as_secs_f64());
    line("1,000 hooks at once for 10 shares, each", each, &rate);
}

/// crun alone, on a bundle of a static program: as it is, and with the hooks of a share.
fn under_crun(oci: &Path, rounds: usize) {
    let dir = place();
    let state_dir = dir.path().join("state");
    let hooks = json!({
        "createRuntime": hook(oci, &claim(0, &state_dir)),
        "poststop": hook(oci, &release(&state_dir)),
    });
    let (without, with) = match starts(&dir.path().join("bundle"), &[json!({}), hooks], rounds, || ()).as_deref() {
        Ok([without, with]) => (*without, *with),
        Ok(_) => return,
        Err(said) => return println!("not run: benches/shares, crun alone: {said}"),
    };
    line("crun run", without, "");
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    line(
        "crun run, with the hooks of a share",
        with,
        &format!("{ratio:.2} times the first"),
    );
}

/// How many containers are started at once, and of how many shares each wants any.
const AT_ONCE: usize = 200;

/// Containers that are started at once under crun, each for any share of one device: how many fail, and the time beside
/// that of the same starts with an empty program in the place of each hook.
fn starts_at_once(oci: &Path) {
    let dir = place();
    // It reads what crun gives it: otherwise crun sometimes finds its end too early, and fails.
    let source = "#include <unistd.h>\nint main(void) { char b[4096]; while (read(0, b, sizeof b) > 0); return 0; }\n";
    let empty = compile(dir.path(), "empty", source);
    let mut claim = claim_of(2 * AT_ONCE, 0, &dir.path().join("state"));
    claim.retain(|word| !word.starts_with("--share="));
    claim.push("--share=any".to_owned());
    let hooks = |program: &Path| {
        json!({
            "createRuntime": hook(program, &claim),
            "poststop": hook(program, &release(&dir.path().join("state"))),
        })
    };
    let kinds = [
        ("with an empty hook", hooks(&empty)),
        ("with the hooks of a share", hooks(oci)),
    ];
    let bundles: Vec<PathBuf> = (0..AT_ONCE).map(|n| dir.path().join(format!("bundle-{n}"))).collect();
    bundles.iter().for_each(|bundle| crun::root(bundle));
    let mut times = [const { Vec::new() }; 2];
    let mut failed = [0; 2];
    for _ in 0..5 {
        for (kind, (_, hooks)) in kinds.iter().enumerate() {
            let config = crun::config(hooks).to_string();
            bundles
                .iter()
                .for_each(|bundle| fs::write(bundle.join("config.json"), &config).unwrap());
            let start = Instant::now();
            let children: Vec<Child> = bundles
                .iter()
                .enumerate()
                .map(|(n, bundle)| crun::run(bundle, &format!("tranche-bench-{n}")).spawn().unwrap())
                .collect();
            let ended = children.into_iter().map(|child| child.wait_with_output().unwrap());
            let said: Vec<String> = ended
                .filter(|output| !output.status.success())
                .map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned())
                .collect();
            times[kind].push(start.elapsed());
            failed[kind] += said.len();
            if let Some(first) = said.first() {
                println!(
                    "{} of {AT_ONCE} failed {}, one with: {first}",
                    said.len(),
                    kinds[kind].0
                );
            }
        }
    }
    let [without, with] = times.map(median);
    for ((what, _), (time, failed)) in kinds.iter().zip([without, with].into_iter().zip(failed)) {
        let ratio = time.as_secs_f64() / without.as_secs_f64();
        let more = format!("{ratio:.2} times the first, {failed} of {} failed", 5 * AT_ONCE);
        line(&format!("{AT_ONCE} times crun run at once, {what}"), time, &more);
    }
}

/// GPU 0 in so many replicas, GPU 1 whole.
fn policy(file: &Path, replicas: usize) {
    let text = format!(
        "version: v1\nsharing:\n  timeSlicing:\n    resources: [{{name: nvidia.com/gpu, devices: [0], replicas: {replicas}}}]\n"
    );
    fs::write(file, text).unwrap();
}

const SIZES: [usize; 3] = [10, 100, 1000];

fn specifications(rounds: usize) {
    let dir = place();
    let file = dir.path().join("policy.yaml");
    let made = |arguments: &[&str]| {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..rounds {
            let start = Instant::now();
            let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
                .args([
                    "cdi",
                    "generate",
                    "--inventory=sim:t4x2",
                    "--hook-path=/usr/bin/tranche-oci",
                ])
                .args(arguments)
                .output()
                .unwrap();
            times.push(start.elapsed());
            assert!(output.status.success());
            bytes = output.stdout.len();
        }
        (median(times), bytes)
    };
    let (time, none) = made(&[]);
    line("cdi generate, no policy", time, &format!("{none} bytes"));
    for size in SIZES {
        policy(&file, size);
        let (time, bytes) = made(&[&format!("--config={}", file.display())]);
        let what = format!("cdi generate, {size} shares of one GPU");
        line(
            &what,
            time,
            &format!("{bytes} bytes, {} more than without them", bytes - none),
        );
    }
}

/// podman's start with specifications of so many shares.
fn under_podman(oci: &Path, rounds: usize) {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        if let Some(reason) = engine.missing() {
            println!("not run: benches/shares, {engine:?}: {reason}");
            continue;
        }
        let bed = Bed::new();
        programs::install(oci, bed.hook());
        fs::write(bed.specs().join("none-yet"), "").unwrap();
        let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            println!("not run: benches/shares, {engine:?}: {}", missing.why);
            continue;
        }
        fs::write(bed.at("policy-0.yaml"), "version: v1\n").unwrap();
        for size in SIZES {
            policy(&bed.at(&format!("policy-{size}.yaml")), size);
        }
        let host = bed.at("host").display().to_string();
        let script = format!(
            r#"
rm /etc/cdi/none-yet
for size in 0 10 100 1000; do
    tranche cdi generate --driver-root {host} --dev-root {host} --proc-root {host}/proc --sys-root {host}/sys --cdi-version 0.5 \
        --hook-path "$oci" --config "$bed/policy-$size.yaml" --output "$bed/spec-$size.yaml" || exit 1
done
# timed SIZE DEVICE: nanoseconds of a start, with a specification of so many shares.
timed() {{
    cp "$bed/spec-$1.yaml" /etc/cdi/nvidia.yaml
    before=$(date +%s%N)
    podman run --rm --network=none $limits --device "nvidia.com/gpu=$2" --rootfs "$image" /bin/true || exit 1
    echo $(($(date +%s%N) - before)) >> "$bed/times-$1-$2"
}}
image=$1
round=0
while [ $round -lt {rounds} ]; do
    for size in 0 10 100 1000; do
        timed $size 1
        [ $size = 0 ] || timed $size 0.any
    done
    round=$((round + 1))
done
"#
        );
        session::session(&bed, engine, 1, &script);
        let time = |size: usize, device: &str| {
            let text = fs::read_to_string(bed.at(&format!("times-{size}-{device}"))).unwrap();
            median(text.lines().map(|l| Duration::from_nanos(l.parse().unwrap())).collect())
        };
        let base = time(0, "1");
        for size in [0].into_iter().chain(SIZES) {
            for (device, what) in [("1", "a GPU that is not split"), ("0.any", "a share")] {
                if size > 0 || device == "1" {
                    let time = time(size, device);
                    let ratio = time.as_secs_f64() / base.as_secs_f64();
                    let what = format!("{engine:?} run, {what}, {size} shares in the spec");
                    line(&what, time, &format!("{ratio:.2} times the first"));
                }
            }
        }
        // The budget is 1.2: replicas beyond 32 have one name together.
        let ratio = time(1000, "0.any").as_secs_f64() / time(10, "0.any").as_secs_f64();
        println!("{engine:?} run, a share: with 1000 shares {ratio:.2} times what it takes with 10");
    }
}
