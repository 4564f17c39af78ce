//! What must be running or set on the host for shares, as commands that an administrator can run.

use super::out;
use crate::derive::Sharing;
use crate::policy::{Interval, MpsUsers};
use crate::share::{Need, Share, SplitDevice};

/// The text before the commands.
pub(super) const RUN_AS_ROOT: &str = "run these commands as root, because tranche does not run them yet";

/// Prints the commands that must be run before the shares of a device work, if there are any.
pub(super) fn note(sharing: &Sharing, split: &SplitDevice) {
    let needs = split.needs(&sharing.state_dir);
    let commands: Vec<String> = needs.iter().flat_map(commands).collect();
    if !commands.is_empty() {
        out::note(format_args!("{}: {RUN_AS_ROOT}: {}", split.device, commands.join("; ")));
    }
}

/// The commands that do it.
pub(super) fn commands(need: &Need) -> Vec<String> {
    let named = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "this device".to_owned());
    match need {
        Need::ExclusiveProcess { uuid } => vec![format!("nvidia-smi -i {} -c EXCLUSIVE_PROCESS", named(uuid))],
        Need::MpsDaemon {
            uuid,
            pipe,
            users,
            memory,
            compute,
        } => {
            let (device, pipe) = (named(uuid), format!("CUDA_MPS_PIPE_DIRECTORY={pipe}"));
            let many = match users {
                MpsUsers::Many => " -multiuser-server",
                MpsUsers::One => "",
            };
            let start = format!("CUDA_VISIBLE_DEVICES={device} {pipe} nvidia-cuda-mps-control -d{many}");
            let memory = memory.map(|memory| format!("set_default_device_pinned_mem_limit {device} {}M", memory.mib()));
            let compute = compute.map(|percent| format!("set_default_active_thread_percentage {percent}"));
            let defaults = memory.into_iter().chain(compute);
            let defaults = defaults.map(|command| format!("echo {command} | {pipe} nvidia-cuda-mps-control"));
            std::iter::once(start).chain(defaults).collect()
        }
        Need::TimeSlice { gpu, interval } => {
            let number = match interval {
                Interval::Default => 0,
                Interval::Short => 1,
                Interval::Medium => 2,
                Interval::Long => 3,
            };
            vec![format!("nvidia-smi compute-policy -i {gpu} --set-timeslice={number}")]
        }
    }
}

/// What the defaults of an MPS daemon cost, in one sentence; `None` if every share is as large as they are.
pub(super) fn cost_of_defaults(need: &Need, split: &SplitDevice) -> Option<String> {
    let Need::MpsDaemon { memory, compute, .. } = need else {
        return None;
    };
    let smaller = |share: &Share| share.memory < *memory || share.compute.map(|compute| compute.get()) < *compute;
    if !split.shares.iter().any(smaller) {
        return None;
    }
    let memory = memory.map(|memory| memory.to_string());
    let compute = compute.map(|percent| format!("{percent}% of compute"));
    let limits: Vec<String> = memory.into_iter().chain(compute).collect();
    Some(format!(
        "a process that is started by exec has these defaults as its limits, and not those of its share: {}",
        limits.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::HostPath;

    fn plan(sharing: &str) -> crate::share::Plan {
        let text = format!("version: v1\nsharing:\n  {sharing}");
        let policy = crate::policy::read::parse("c.yaml", &text).unwrap().policy;
        crate::share::plan(&policy, &crate::sim::open("t4x2").unwrap()).unwrap()
    }

    /// The commands and the cost for GPU 0.
    fn of_gpu_0(sharing: &str) -> (Vec<String>, Option<String>) {
        let plan = plan(sharing);
        let needs = plan.devices[0].needs(&HostPath::new("/run/tranche").unwrap());
        let cost = needs.iter().find_map(|need| cost_of_defaults(need, &plan.devices[0]));
        (needs.iter().flat_map(commands).collect(), cost)
    }

    #[test]
    fn a_daemon_is_started_with_the_limits_of_the_largest_claim() {
        let mps = "mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
        let (commands, cost) = of_gpu_0(&mps.replace("mps:\n", "mps:\n    failRequestsGreaterThanOne: false\n"));
        let uuid = plan(mps).devices[0].uuid.clone().unwrap();
        let pipe = "CUDA_MPS_PIPE_DIRECTORY=/run/tranche/mps/0";
        assert_eq!(commands[0], format!("nvidia-smi -i {uuid} -c EXCLUSIVE_PROCESS"));
        let start = format!("CUDA_VISIBLE_DEVICES={uuid} {pipe} nvidia-cuda-mps-control -d -multiuser-server");
        assert_eq!(commands[1], start);
        let memory = plan(mps).devices[0].shares[0].memory.unwrap().mib() * 4;
        let expected =
            format!("echo set_default_device_pinned_mem_limit {uuid} {memory}M | {pipe} nvidia-cuda-mps-control");
        assert_eq!(commands[2], expected);
        let expected = format!("echo set_default_active_thread_percentage 100 | {pipe} nvidia-cuda-mps-control");
        assert_eq!(commands[3..], [expected]);
        let cost = cost.unwrap();
        assert!(
            cost.contains("started by exec") && cost.ends_with("and 100% of compute"),
            "{cost}"
        );
        let one_each = mps.replace("mps:\n", "mps:\n    failRequestsGreaterThanOne: true\n");
        assert_eq!(
            of_gpu_0(&one_each).1,
            None,
            "every share is as large as the largest claim"
        );
    }

    #[test]
    fn the_length_of_a_turn_is_a_number() {
        let turns = "timeSlicing:\n    interval: long\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";
        assert_eq!(of_gpu_0(turns).0, ["nvidia-smi compute-policy -i 0 --set-timeslice=3"]);
        assert_eq!(
            of_gpu_0(&turns.replace("interval: long", "interval: default")).0,
            [""; 0]
        );
    }
}
