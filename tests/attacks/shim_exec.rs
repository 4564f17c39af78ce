//! A further process of a container with a share, whose environment names other limits.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::shim::{EXECUTED, Shim, json_of};
use crate::shim_ended::twin;
use crate::support::init::Init;
use crate::support::scene;
use crate::trial::Attack;

/// Makes the container of the bundle one that holds a share by MPS.
fn enter(shim: &Shim, init: &Init) {
    let bundle = shim.at("bundle");
    let state = json!({"ociVersion": "1.0.2", "id": "ID", "status": "creating", "bundle": bundle, "pid": init.pid()});
    let mut hook = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
    hook.args([
        "hook",
        "claim",
        "--device=GPU-11111111",
        "--label=gpu 0",
        "--share=0",
        "--size=mps:7000:30",
        "--of=10",
    ]);
    hook.arg("--state-dir").arg(shim.at("state"));
    scene::run(hook, state.to_string().as_bytes()).silent();
}

fn limits(process: &Value) -> Vec<String> {
    let entries = process["env"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let is_limit = |entry: &&str| {
        ["CUDA_MPS_", "NVIDIA_GPU_MEMORY_", "CUDA_VISIBLE_"]
            .iter()
            .any(|name| entry.starts_with(name))
    };
    let mut all: Vec<String> = entries.filter(is_limit).map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
fn variables_of_the_process() {
    if !crate::owns_machine("shim_exec::variables_of_the_process") {
        return;
    }
    Attack::new(
        "shim_exec::variables_of_the_process",
        "exec into a container with a share sets the variables of the share: in other values, twice, without a value",
    )
    .naive_passes("it holds no share for the container")
    .run_one_way(|trial| {
        twin(trial);
        if !trial.subject.is_real() {
            return;
        }
        for entries in [
            &["A=1"][..],
            &["CUDA_MPS_PIPE_DIRECTORY=/evil", "A=1", "CUDA_MPS_PIPE_DIRECTORY=/evil"],
            &[
                "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
                "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=80G",
            ],
            &[
                "CUDA_MPS_PIPE_DIRECTORY",
                "CUDA_MPS_PIPE_DIRECTORY=",
                "CUDA_MPS_UNKNOWN=1",
            ],
            &[
                "CUDA_VISIBLE_DEVICES=1",
                "NVIDIA_GPU_MEMORY_LIMIT=0",
                "CUDA_MPS_PIPE_DIRECTORY=/evil\u{0}",
            ],
        ] {
            let shim = Shim::new();
            let init = Init::new();
            // Its own claim ends with it, because nobody enters that one.
            shim.create();
            enter(&shim, &init);
            let share = limits(&json_of(&shim.config()).unwrap()["process"]);
            let process = json!({"args": ["sh"], "env": entries, "cwd": "/"});
            fs::write(shim.at("process.json"), process.to_string()).unwrap();
            let mut ended = shim.run(&["exec", "--process", "process.json", "ID"]);
            let now = limits(&json_of(&shim.at("process.json")).unwrap_or_default());
            if share.is_empty() || now != share || ended.code != EXECUTED {
                ended.wrong.push(format!(
                    "{now:?} in place of {share:?}: {} {}",
                    ended.code, ended.stderr
                ));
            }
            trial.record(&entries.join(" "), &ended);
        }
    });
}
