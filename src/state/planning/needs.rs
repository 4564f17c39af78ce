//! What must be running or set on the host for shares, as commands that an administrator can run.

use tranche_plan::derive::Sharing;
use tranche_plan::share::{Need, Share, SplitDevice};

/// The text before the commands.
pub const RUN_AS_ROOT: &str = "run these commands as root";

/// The commands that must be run before the shares of a device work, in one line; `None` without any.
pub fn note(sharing: &Sharing, split: &SplitDevice) -> Option<String> {
    let needs = split.needs(&sharing.state_dir);
    let commands = by_operator(split, &needs);
    (!commands.is_empty()).then(|| format!("{}: {RUN_AS_ROOT}: {}", split.device, commands.join("; ")))
}

/// The commands that the operator runs for `needs` of a device; empty if the broker does all of it.
pub fn by_operator(split: &SplitDevice, needs: &[Need]) -> Vec<String> {
    match split.method.is_managed() {
        true => Vec::new(),
        false => needs.iter().flat_map(commands).collect(),
    }
}

/// What the broker does for `needs` of a device, in one sentence; `None` if it does nothing.
pub fn by_broker(split: &SplitDevice, needs: &[Need]) -> Option<String> {
    let does = |need: &Need| match need {
        Need::ExclusiveProcess { .. } => "sets the compute mode EXCLUSIVE_PROCESS".to_owned(),
        Need::MpsDaemon { pipe, .. } => format!("runs an MPS daemon in {pipe}"),
        Need::CgroupLimit => "limits the memory of the cgroup of each container".to_owned(),
        Need::TimeSlice { .. } => "sets the length of a turn".to_owned(),
        Need::Turns { .. } => "gives the device to one holder after another".to_owned(),
    };
    let does: Vec<String> = needs.iter().map(does).collect();
    let has_work = split.method.is_managed() && !does.is_empty();
    has_work.then(|| format!("while a share is held, the broker {}", listed(&does)))
}

/// `a`, `a and b`, or `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [begin @ .., last] if !begin.is_empty() => format!("{} and {last}", begin.join(", ")),
        parts => parts.concat(),
    }
}

/// The commands that do it.
fn commands(need: &Need) -> Vec<String> {
    let named = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "this device".to_owned());
    match need {
        Need::ExclusiveProcess { uuid } => vec![format!("nvidia-smi -i {} -c EXCLUSIVE_PROCESS", named(uuid))],
        Need::MpsDaemon {
            uuid,
            pipe,
            many_users,
            memory,
            compute,
        } => {
            let (device, pipe) = (named(uuid), format!("CUDA_MPS_PIPE_DIRECTORY={pipe}"));
            let many = if *many_users { " -multiuser-server" } else { "" };
            let start = format!("CUDA_VISIBLE_DEVICES={device} {pipe} nvidia-cuda-mps-control -d{many}");
            let memory = memory.map(|memory| format!("set_default_device_pinned_mem_limit 0 {}M", memory.mib()));
            let compute = compute.map(|percent| format!("set_default_active_thread_percentage {}", percent.get()));
            let defaults = memory.into_iter().chain(compute);
            let defaults = defaults.map(|command| format!("echo {command} | {pipe} nvidia-cuda-mps-control"));
            std::iter::once(start).chain(defaults).collect()
        }
        // The broker does these, also where the operator runs the MPS daemons.
        Need::CgroupLimit | Need::TimeSlice { .. } | Need::Turns { .. } => Vec::new(),
    }
}

/// What the defaults of an MPS daemon cost, in one sentence; `None` if every share is as large as they are.
pub fn cost_of_defaults(needs: &[Need], split: &SplitDevice) -> Option<String> {
    let (memory, compute) = needs.iter().find_map(|need| match need {
        Need::MpsDaemon { memory, compute, .. } => Some((memory, compute)),
        _ => None,
    })?;
    // A process that is started by exec is in the cgroup of its container.
    let memory = memory.filter(|_| !needs.contains(&Need::CgroupLimit));
    let smaller = |share: &Share| (memory.is_some() && share.memory < memory) || share.compute < *compute;
    if !split.shares.distinct().iter().any(smaller) {
        return None;
    }
    let memory = memory.map(|memory| memory.to_string());
    let compute = compute.map(|percent| format!("{percent} of compute"));
    let limits: Vec<String> = memory.into_iter().chain(compute).collect();
    let limits = limits.join(" and ");
    Some(match split.method.is_managed() {
        true => format!(
            "a process that is started by exec has the limits of the largest claim that is held on the device, and not \
             those of its share: at most {limits}"
        ),
        false => format!(
            "a process that is started by exec has these defaults as its limits, and not those of its share: {limits}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::types::HostPath;

    fn plan(sharing: &str) -> tranche_plan::share::Plan {
        let text = format!("version: v1\nsharing:\n  {sharing}");
        let policy = tranche_plan::policy::read::parse("c.yaml", &text).unwrap().policy;
        tranche_plan::share::plan(&policy, &tranche_plan::sim::open("t4x2").unwrap()).unwrap()
    }

    /// The commands and the cost for GPU 0.
    fn of_gpu_0(sharing: &str) -> (Vec<String>, Option<String>) {
        let plan = plan(sharing);
        let needs = plan.devices[0].needs(&HostPath::new("/run/tranche").unwrap());
        let cost = cost_of_defaults(&needs, &plan.devices[0]);
        (by_operator(&plan.devices[0], &needs), cost)
    }

    #[test]
    fn a_daemon_is_started_with_the_limits_of_the_largest_claim() {
        let mps =
            "mps:\n    daemon: external\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
        let (commands, cost) = of_gpu_0(&mps.replace("mps:\n", "mps:\n    failRequestsGreaterThanOne: false\n"));
        let uuid = plan(mps).devices[0].uuid.clone().unwrap();
        let pipe = "CUDA_MPS_PIPE_DIRECTORY=/run/tranche/mps/0";
        assert_eq!(commands[0], format!("nvidia-smi -i {uuid} -c EXCLUSIVE_PROCESS"));
        let start = format!("CUDA_VISIBLE_DEVICES={uuid} {pipe} nvidia-cuda-mps-control -d -multiuser-server");
        assert_eq!(commands[1], start);
        let memory = plan(mps).devices[0].shares.first().unwrap().memory.unwrap().mib() * 4;
        let expected = format!("echo set_default_device_pinned_mem_limit 0 {memory}M | {pipe} nvidia-cuda-mps-control");
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
    fn what_the_broker_does_is_no_command_of_the_operator() {
        let managed = "mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
        let (commands, cost) = of_gpu_0(managed);
        assert_eq!(commands, [""; 0]);
        let cost = cost.unwrap();
        assert!(cost.contains("the largest claim that is held"), "{cost}");
        let by_broker = |sharing: &str| {
            let plan = plan(sharing);
            by_broker(
                &plan.devices[0],
                &plan.devices[0].needs(&HostPath::new("/run/tranche").unwrap()),
            )
        };
        assert_eq!(
            by_broker(managed).unwrap(),
            "while a share is held, the broker sets the compute mode EXCLUSIVE_PROCESS and runs an MPS daemon in \
             /run/tranche/mps/0"
        );
        assert_eq!(
            by_broker(&managed.replace("mps:\n", "mps:\n    daemon: external\n")),
            None
        );
    }

    #[test]
    fn the_broker_sets_the_length_of_a_turn() {
        let turns = "timeSlicing:\n    interval: long\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";
        for (sharing, expected) in [
            (
                turns.to_owned(),
                Some("while a share is held, the broker sets the length of a turn"),
            ),
            (turns.replace("interval: long", "interval: default"), None),
        ] {
            assert_eq!(of_gpu_0(&sharing).0, [""; 0]);
            let plan = plan(&sharing);
            let needs = plan.devices[0].needs(&HostPath::new("/run/tranche").unwrap());
            assert_eq!(by_broker(&plan.devices[0], &needs).as_deref(), expected);
        }
    }
}
