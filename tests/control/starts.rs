//! A daemon is started for the first claim, follows the claims, and is gone after the last one.

use crate::bed::{Bed, Client, UNEQUAL, container, planned};
use crate::support::rights;
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tranche_broker::control::{Control, MachineControl};
use tranche_state::controlled::DaemonState;

#[test]
fn the_first_claim_starts_a_daemon_and_the_last_one_leaves_the_machine_as_it_was() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    let uuid = bed.uuid();
    assert_eq!(control.tick(), None);
    bed.start(&control, "small");
    let expected = [
        "compute mode 3".to_owned(),
        "start -f -multiuser-server".to_owned(),
        "command get_default_active_thread_percentage".to_owned(),
        "command set_default_device_pinned_mem_limit 0 4912M".to_owned(),
        "command set_default_active_thread_percentage 20".to_owned(),
        "command get_server_list".to_owned(),
        "command get_default_active_thread_percentage".to_owned(),
        "command get_default_device_pinned_mem_limit 0".to_owned(),
    ];
    assert_eq!(bed.fake.lines(), expected);
    let start = &bed.fake.events()[1];
    let environment = json!({
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": bed.state().join("mps-daemon/0"),
        "CUDA_MPS_LOG_DIRECTORY": bed.state().join("mps-log/0"),
    });
    let mut of_daemon = start["environment"].clone();
    // The server is found there.
    let path = of_daemon.as_object_mut().unwrap().remove("PATH").unwrap();
    let programs = bed.host.root.join("usr/bin");
    assert!(
        path.as_str()
            .unwrap()
            .split(':')
            .any(|place| Path::new(place) == programs),
        "{path}"
    );
    assert_eq!(of_daemon, environment);
    assert_eq!(start["uid"], nix::unistd::getuid().as_raw());
    assert_eq!(start["session"], start["pid"], "a session of its own");
    assert_eq!(bed.mode(), Some(3));
    assert!(
        fs::metadata(bed.pipe().join("control"))
            .unwrap()
            .file_type()
            .is_socket()
    );
    let mode = |path: &str| fs::metadata(bed.state().join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("mps"), mode("mps/0")), (0o755, 0o755));
    assert_eq!((mode("mps-daemon"), mode("mps-daemon/0")), (0o710, 0o700));
    assert_eq!((mode("mps-log/0"), mode("control")), (0o700, 0o700));

    let device = bed.device(&control);
    assert_eq!(device.device, "nvidia.com/gpu=0");
    assert_eq!(device.compute_mode_before.as_deref(), Some("default"));
    let daemon = device.daemon.unwrap();
    assert_eq!((daemon.state, daemon.restarts), (DaemonState::Running, 0));
    assert_eq!((daemon.memory_mib, daemon.compute_percent), (Some(4912), Some(20)));
    assert_eq!(u64::from(daemon.pid.unwrap()), start["pid"].as_u64().unwrap());

    bed.stop("small");
    assert_eq!(control.tick(), None);
    assert_eq!(
        bed.fake.lines()[expected.len()..],
        ["command quit -t 1", "compute mode 0"]
    );
    bed.assert_as_it_was(&control);
}

/// The broker waits for signals that it blocks, and a daemon that inherited that could only be killed.
#[test]
fn a_daemon_inherits_no_signals_and_no_files_of_the_broker() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    let leaked = fs::File::open("/proc/self/mounts").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let blocked = SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]);
    blocked.thread_block().unwrap();
    bed.start(&control, "small");
    blocked.thread_unblock().unwrap();
    let pid = bed.device(&control).daemon.unwrap().pid.unwrap();
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let status = file("status");
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    // The fake is a program of Rust, which ignores SIGPIPE by itself.
    assert_eq!(
        (set("SigBlk:"), set("SigIgn:")),
        (0, 1 << (Signal::SIGPIPE as i32 - 1)),
        "{status}"
    );
    let stat = file("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(
        (fields[3], fields[4]),
        (pid.to_string().as_str(), "0"),
        "a session without a terminal"
    );
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let leads = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!leads.ends_with("mounts"), "{}", leads.display());
    }
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    bed.stop("small");
    control.tick();
}

#[test]
fn limits_follow_the_largest_claim_and_running_servers_are_set_too() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let client = Client::attach(&bed);
    let server = client.server();
    bed.fake.forget();
    bed.start(&control, "big");
    let set = |mib: u32, percent: u32| {
        [
            format!("command set_default_device_pinned_mem_limit 0 {mib}M"),
            format!("command set_default_active_thread_percentage {percent}"),
            "command get_server_list".to_owned(),
            format!("command set_device_pinned_mem_limit {server} 0 {mib}M"),
            format!("command get_device_pinned_mem_limit {server} 0"),
            format!("command set_active_thread_percentage {server} {percent}"),
            "command get_default_active_thread_percentage".to_owned(),
            "command get_default_device_pinned_mem_limit 0".to_owned(),
        ]
    };
    assert_eq!(bed.fake.lines(), set(19651, 80));
    assert!(Client::attach(&bed).limits.contains("percentage 80.0"));
    let pid = bed.pid(&control);
    bed.fake.forget();
    // A claim that is within the limits asks nothing: the daemon answered a moment ago.
    control.prepare(bed.key()).unwrap();
    assert_eq!(bed.fake.lines(), Vec::<String>::new());
    bed.stop("big");
    assert!(control.tick().is_some());
    // Where its last answer is long ago, on a busy machine, it is asked whether it still gives one.
    let (mut lines, wanted) = (bed.fake.lines(), set(4912, 20));
    let asked: Vec<String> = lines.drain(..lines.len().saturating_sub(wanted.len())).collect();
    assert!(asked.iter().all(|line| line.starts_with("command get_")), "{asked:?}");
    assert_eq!(lines, wanted);
    let daemon = bed.device(&control).daemon.unwrap();
    assert_eq!(
        (daemon.memory_mib, daemon.compute_percent, daemon.pid),
        (Some(4912), Some(20), Some(pid))
    );
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_device_whose_daemon_the_operator_runs_is_left_alone() {
    let bed = Bed::new(UNEQUAL);
    let external = UNEQUAL.replace("grace: 0", "daemon: external");
    bed.change(|facts| facts.plan = planned(&facts.inventory, &external).into());
    let control = bed.control();
    bed.start(&control, "small");
    let refused = control.start(bed.key()).unwrap_err().to_string();
    assert!(
        refused.contains("is not shared by MPS with a daemon that tranche manages"),
        "{refused}"
    );
    assert_eq!(bed.fake.lines(), Vec::<String>::new());
    bed.assert_as_it_was(&control);
}

#[test]
fn a_process_that_uses_the_device_is_not_cut_off() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    let me = std::process::id();
    bed.host
        .nvml(|config| config["gpus"][0]["processes"] = json!([{"pid": me, "kind": "compute"}]))
        .unwrap();
    let refused = bed.refused(&control, "small");
    let expected = format!("gpu 0: it is used without a claim by process {me} (");
    assert!(refused.starts_with(&expected), "{refused}");
    assert_eq!(bed.fake.lines(), Vec::<String>::new());
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

/// Ends the clients of a container. A busy machine may not do it in time at once.
fn drained(control: &Control, share: &str) -> usize {
    let mut tries = (0..20).map(|_| control.end_clients(&container(share)));
    tries.find_map(Result::ok).expect("the daemon answers in time")
}

#[test]
fn the_clients_of_a_container_are_ended_before_it_is_killed_and_no_others() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "big");
    let (mut own, other) = (Client::attach(&bed), Client::attach(&bed));
    bed.claim_by("small", own.pid());
    control.prepare(bed.key()).unwrap();
    bed.fake.forget();
    assert_eq!(drained(&control, "small"), 1);
    let server = own.server();
    let expected = [
        "command get_server_list".to_owned(),
        format!("command get_client_list {server}"),
        format!("command terminate_client {server} {}", own.pid()),
    ];
    assert_eq!(bed.fake.lines(), expected);
    assert_eq!(own.end(), "terminated");
    // What has no client is drained already.
    assert_eq!(drained(&control, "small"), 0);
    assert_eq!(drained(&control, "unknown"), 0);
    drop(other);
}

#[test]
fn the_clients_of_a_container_are_all_processes_of_its_pid_namespace() {
    if !rights::owns_machine("control::starts::the_clients_of_a_container_are_all_processes_of_its_pid_namespace") {
        return;
    }
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "big");
    let other = Client::attach(&bed);
    let program = bed.fake.program("nvidia-cuda-mps-control");
    // Two clients below the init of a pid namespace.
    let script = format!(
        "sleep 600 | {0} client > /dev/null & sleep 600 | {0} client > /dev/null & wait",
        program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "sh", "-c", &script]);
    command
        .env("CUDA_MPS_PIPE_DIRECTORY", bed.pipe())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut unshare = command.spawn().unwrap();
    let server = other.server();
    let clients = || {
        let ask = format!("echo get_client_list {server} | {}", program.display());
        let mut sh = Command::new("sh");
        let output = sh
            .args(["-c", &ask])
            .env("CUDA_MPS_PIPE_DIRECTORY", bed.pipe())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    while clients() < 3 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let init: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    bed.claim_by("small", init);
    assert_eq!(drained(&control, "small"), 2);
    assert_eq!(clients(), 1);
    drop(other);
    unshare.kill().unwrap();
    unshare.wait().unwrap();
}
