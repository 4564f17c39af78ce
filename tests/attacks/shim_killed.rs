//! The runtime is killed before any of its system calls: the configuration is the old one or the new one, and nothing
//! is held for a start that has ended.

use std::fs;
use std::process::Command;

use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::twin;
use crate::support::skip;
use crate::trial::Attack;

/// Calls that change files, or that say a result. Names that an architecture does not have are skipped with the mark.
const CHANGING: [&str; 12] = [
    "openat",
    "write",
    "renameat",
    "renameat2",
    "linkat",
    "unlinkat",
    "mkdirat",
    "fchmod",
    "fchown",
    "flock",
    "ftruncate",
    "execve",
];

/// More calls of one kind than a start makes.
const MOST: usize = 400;

#[test]
fn at_any_step() {
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "/bin/true"])
        .output();
    if !traced.is_ok_and(|output| output.status.success()) {
        return skip::not_run(
            "attacks::shim_killed::at_any_step",
            "strace is missing, or may not trace",
        );
    }
    Attack::new(
        "shim_killed::at_any_step",
        "the runtime is killed before any system call that changes something, while it prepares a start with a share",
    )
    .run_one_way(|trial| {
        twin(trial);
        for call in CHANGING {
            for when in 1..MOST {
                let mut shim = Shim::new();
                let (trace, inject) = (
                    format!("trace={call}"),
                    format!("inject={call}:signal=KILL:when={when}"),
                );
                let words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
                shim.wrapper = words.map(Into::into).to_vec();
                let old = fs::read_to_string(shim.config()).unwrap();
                let mut ended = shim.create();
                // A name that was given to the new file a moment before stays, and the low-level runtime is traced,
                // too.
                let dies = ended.code == -9;
                ended.wrong.retain(|wrong| {
                    !dies
                        || !["exit code", "executed", "was left"]
                            .iter()
                            .any(|word| wrong.contains(word))
                });
                let now = fs::read_to_string(shim.config()).unwrap();
                let is_new =
                    serde_json::from_str::<serde_json::Value>(&now).is_ok() && now.contains("CUDA_MPS_PIPE_DIRECTORY=");
                if now != old && !is_new {
                    ended
                        .wrong
                        .push(format!("config.json is neither old nor new: {now:.200}"));
                }
                shim.wrapper.clear();
                shim.configure(&asking(&["NVIDIA_VISIBLE_DEVICES=0.0,0.1,0.2,0.3"]));
                let after = shim.create();
                if after.code != EXECUTED || shim.limits().is_empty() {
                    ended
                        .wrong
                        .push(format!("the shares are not free afterwards: {}", after.stderr));
                }
                trial.record(&format!("{call} {when}"), &ended);
                if !dies {
                    break;
                }
            }
        }
    });
}
