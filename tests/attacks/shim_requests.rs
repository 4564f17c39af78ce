//! What an image or a tenant asks for: variables that would raise a limit, names that lead elsewhere, and requests that
//! cost more than they should.

use std::fs;

use serde_json::json;

use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::{not_started, refused, twin};
use crate::trial::Attack;

/// The environment that asks for a share, with these entries around it.
fn beside(entries: &[&str]) -> serde_json::Value {
    let mut env = entries.to_vec();
    env.insert(entries.len() / 2, "NVIDIA_VISIBLE_DEVICES=0.any");
    env.push("PATH=/bin");
    asking(&env)
}

/// The limits that the container finds are those of the share alone, whatever was there before.
#[test]
fn variables_that_raise_a_limit() {
    Attack::new(
        "shim_requests::variables_that_raise_a_limit",
        "the image sets the variables of a share itself: more than once, odd in spelling, before and behind the request",
    )
    .run_one_way(|trial| {
        twin(trial);
        let usual = Shim::new();
        usual.create();
        // The pipe directory and the limits are of the share, and not of the scene.
        let share = usual.limits();
        for entries in [
            &["CUDA_MPS_PIPE_DIRECTORY=/evil", "CUDA_MPS_PIPE_DIRECTORY=/evil"][..],
            &["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=80G"],
            &["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"],
            &["CUDA_MPS_CLIENT_PRIORITY=0", "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING=1"],
            &["CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=GPU-evil"],
            &["NVIDIA_GPU_MEMORY_LIMIT=99999", "NVIDIA_GPU_MEMORY_UNKNOWN=1"],
            &["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100\u{0}", "CUDA_MPS_LOG_DIRECTORY=/etc"],
            &["=CUDA_MPS_PIPE_DIRECTORY=/evil", "==", "odd", ""],
        ] {
            let shim = Shim::new();
            shim.configure(&beside(entries));
            let mut ended = shim.create();
            let here = |entry: &String| entry.replace(&shim.at("").display().to_string(), &usual.at("").display().to_string());
            let limits: Vec<String> = shim.limits().iter().map(here).collect();
            if ended.code != EXECUTED || limits != share {
                ended.wrong.push(format!("{limits:?} in place of {share:?}: {}", ended.stderr));
            }
            trial.record(&entries.join(" "), &ended);
        }
        // A variable in an escape of JSON is the same variable.
        let shim = Shim::new();
        let text = beside(&["CUDA_MPS_PIPE_DIRECTORY=/evil"]).to_string();
        fs::write(shim.config(), text.replace("CUDA_MPS", "\\u0043UDA\\u005fMPS")).unwrap();
        let mut ended = shim.create();
        ended.wrong.extend((shim.limits().len() != share.len()).then(|| format!("{:?}", shim.limits())));
        trial.record("an escape", &ended);
    });
}

/// What the owner of the container wrote beside it counts, and not what the image says.
#[test]
fn an_environment_that_contradicts_an_annotation() {
    Attack::new(
        "shim_requests::an_environment_that_contradicts_an_annotation",
        "an annotation asks for a share, and the environment for more: other devices, more memory, all of it",
    )
    .run_one_way(|trial| {
        twin(trial);
        for (annotation, value, env) in [
            ("tranche.dev/shares", "1", &["TRANCHE_SHARES=4"][..]),
            (
                "tranche.dev/shares",
                "1",
                &["TRANCHE_SHARES=none\u{1b}[2J\u{202e}", "NVIDIA_VISIBLE_DEVICES=0"],
            ),
            ("tranche.dev/memory", "1Gi", &["TRANCHE_MEMORY=15Gi"]),
            (
                "tranche.dev/compute",
                "10",
                &["TRANCHE_COMPUTE=100", "TRANCHE_COMPUTE=99"],
            ),
            (
                "cdi.k8s.io/gpu",
                "nvidia.com/gpu=0.any",
                &["NVIDIA_VISIBLE_DEVICES=all"],
            ),
            (
                "cdi.k8s.io/gpu",
                "nvidia.com/gpu=0.any",
                &["NVIDIA_VISIBLE_DEVICES=0.any,1,0.3", "CUDA_VERSION=1"],
            ),
        ] {
            let shim = Shim::new();
            let mut config = asking(env);
            config["annotations"] = json!({annotation: value});
            shim.configure(&config);
            let mut ended = shim.create();
            let seen = shim.seen().unwrap_or_default();
            let second = seen.to_string().contains("/dev/nvidia1");
            let part = || ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PIPE_DIRECTORY="];
            let has = |wanted: &str| shim.limits().iter().any(|entry| entry.starts_with(wanted));
            if second || ended.code != EXECUTED || !part().into_iter().all(has) {
                ended
                    .wrong
                    .push(format!("{annotation}: {second} {:?} {}", shim.limits(), ended.stderr));
            }
            trial.record(&format!("{annotation} and {env:?}"), &ended);
        }
    });
}

/// Names are looked up, and never joined to a path.
#[test]
fn names_that_lead_elsewhere() {
    Attack::new(
        "shim_requests::names_that_lead_elsewhere",
        "the image asks for devices of other vendors, for paths, for other users' claims, and for names that move a cursor",
    )
    .run_one_way(|trial| {
        twin(trial);
        for name in [
            "evil.example/device=all", "../../etc/shadow", "nvidia.com/../../x=0", "nvidia.com/gpu=../../0", "/dev/sda",
            "0.../../x", "0.any\u{1b}[31m", "GPU-\u{202e}0", "nvidia.com/gpu=", "=", "0::18446744073709551616",
            "-1", "0:any:any", "99999999999999999999", "nvidia.com/claim=start-0000000000000000", "nvidia.com/claim=../x",
            "0.any\u{0}", "0x0", "Ⅷ",
        ] {
            let shim = Shim::new();
            shim.configure(&asking(&[&format!("NVIDIA_VISIBLE_DEVICES={name}")]));
            let before = fs::read(shim.config()).unwrap();
            let mut ended = shim.create();
            ended.wrong.extend(refused(&ended));
            if fs::read(shim.config()).unwrap() != before {
                ended.wrong.push("config.json was changed".to_owned());
            }
            if shim.subject.is_real() && !shim.held().is_empty() {
                ended.wrong.push(format!("something is held: {:?}", shim.held()));
            }
            trial.record(name, &ended);
        }
    });
}

/// How many times the processor time of a request of a megabyte that only has to be read one that has to be understood
/// may take. What compares each name with each other one takes hundreds of times as long.
const MOST_TIMES: u32 = 60;

/// A request is as large as an environment may be: it takes little more time than reading it, and no memory to speak
/// of, and what it leaves in the ledger and says is as large as that of any other request.
#[test]
fn requests_of_a_megabyte() {
    Attack::new(
        "shim_requests::requests_of_a_megabyte",
        "a variable of a megabyte: a hundred thousand names, the same share again and again, and one endless name",
    )
    .run_one_way(|trial| {
        twin(trial);
        let usual = Shim::new();
        usual.create();
        let most = usual.ledger_size() + 512;
        let limited = || {
            let mut shim = Shim::new();
            shim.wrapper = ["prlimit", "--cpu=60:60", "--as=268435456:268435456"]
                .map(Into::into)
                .to_vec();
            shim
        };
        // Measured here, because no time of another machine holds on this one.
        let read = limited();
        read.configure(&asking(&[
            "NVIDIA_VISIBLE_DEVICES=0.any",
            &format!("NVIDIA_X={}", "x,".repeat(1 << 19)),
        ]));
        let enough = read.create().processor * MOST_TIMES;
        let many = |name: &str| {
            format!(
                "NVIDIA_VISIBLE_DEVICES={}",
                vec![name; (1 << 20) / (name.len() + 1)].join(",")
            )
        };
        let numbers = |from: &str| (0..100_000).map(|n| format!("{from}{n}")).collect::<Vec<_>>().join(",");
        for (name, variable, starts) in [
            ("the same share", many("0.0"), true),
            ("any share", many("0.any"), true),
            ("the second GPU", many("1"), true),
            ("indices", format!("NVIDIA_VISIBLE_DEVICES={}", numbers("")), false),
            (
                "names of another vendor",
                format!("NVIDIA_VISIBLE_DEVICES={}", numbers("a.example/b=")),
                false,
            ),
            (
                "one name of a known vendor",
                format!("NVIDIA_VISIBLE_DEVICES=vendor.example/nic={}", "a".repeat(1 << 20)),
                false,
            ),
            ("shares", format!("NVIDIA_VISIBLE_DEVICES={}", numbers("0.")), false),
            (
                "one name",
                format!("NVIDIA_VISIBLE_DEVICES={}", "a".repeat(1 << 20)),
                false,
            ),
            (
                "commas",
                format!("NVIDIA_VISIBLE_DEVICES=0.0{}", ",".repeat(1 << 20)),
                true,
            ),
            ("memory", format!("TRANCHE_MEMORY={}", "9".repeat(1 << 20)), false),
            ("a wait", format!("TRANCHE_WAIT={}", "9".repeat(1 << 20)), false),
            (
                "a requirement",
                format!("NVIDIA_REQUIRE_CUDA={}", "cuda>=1 ".repeat(1 << 17)),
                true,
            ),
            (
                "another requirement",
                format!("NVIDIA_REQUIRE_CUDA={}", "cuda>=99,".repeat(1 << 17)),
                false,
            ),
            (
                "capabilities",
                format!("NVIDIA_DRIVER_CAPABILITIES={}", "x,".repeat(1 << 19)),
                false,
            ),
            (
                "channels",
                format!("NVIDIA_IMEX_CHANNELS={}", "1,".repeat(1 << 19)),
                false,
            ),
            ("other channels", format!("NVIDIA_IMEX_CHANNELS={}", numbers("")), false),
            (
                "one channel",
                format!("NVIDIA_IMEX_CHANNELS={}", "1".repeat(1 << 20)),
                false,
            ),
            (
                "variables",
                (0..40_000).map(|n| format!("NVIDIA_REQUIRE_{n}=cuda>=1\n")).collect(),
                true,
            ),
            (
                "the same variable",
                "NVIDIA_REQUIRE_CUDA=cuda>=1\n".repeat(40_000),
                true,
            ),
            (
                "MIG devices",
                format!("NVIDIA_MIG_CONFIG_DEVICES={}", numbers("")),
                false,
            ),
        ] {
            let shim = limited();
            let is_list = variable.starts_with("NVIDIA_VISIBLE");
            let mut env = vec!["NVIDIA_VISIBLE_DEVICES=0.any"];
            env.extend(variable.lines());
            shim.configure(&asking(&env[usize::from(is_list)..]));
            let mut ended = shim.create();
            let wrong = match starts {
                true if name == "the second GPU" => (ended.code != EXECUTED)
                    .then(|| ended.stderr.clone())
                    .into_iter()
                    .collect(),
                true => not_started(&shim, &ended),
                false => refused(&ended).into_iter().collect(),
            };
            ended.wrong.extend(wrong);
            if shim.subject.is_real() && ended.processor > enough {
                ended.wrong.push(format!(
                    "it takes {:?} of processor time, and {enough:?} is enough",
                    ended.processor
                ));
            }
            if shim.ledger_size() > most {
                ended.wrong.push(format!("the ledger has {} bytes", shim.ledger_size()));
            }
            let size = |config: serde_json::Value| config["hooks"].to_string().len();
            let hooks = shim.seen().map_or(0, size);
            ended
                .wrong
                .extend((hooks > 16 << 10).then(|| format!("hooks of {hooks} bytes")));
            trial.record(name, &ended);
        }
    });
}
