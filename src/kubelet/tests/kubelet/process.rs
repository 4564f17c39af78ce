//! The program itself.

use crate::bed::{Bed, GPU, program, until};
use crate::offers::{replicas, whole};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

#[test]
fn without_a_broker_one_line_says_what_is_missing_and_nothing_is_offered_until_it_is_there() {
    let mut bed = Bed::asleep(vec![whole("GPU-0")]);
    bed.kubelet.start();
    let process = bed.process();
    process.wait_log("broker.sock: not found; install the package tranche on this node");
    assert_eq!(bed.sockets(), ["kubelet.sock"]);
    bed.broker.listen();
    bed.wait_allocatable(1);
    process.wait_log("nvidia.com/gpu: registered with the kubelet");
    let log = process.log();
    let missing = log
        .iter()
        .filter(|line| line.starts_with(" WARN") && line.contains("broker.sock"));
    assert_eq!(missing.count(), 1, "{log:#?}");
}

#[test]
fn a_signal_ends_it_and_removes_its_sockets() {
    for signal in ["TERM", "INT"] {
        let bed = Bed::new(vec![whole("GPU-0")]);
        let mut process = bed.process();
        bed.wait_allocatable(1);
        assert_eq!(bed.sockets(), ["kubelet.sock", "tranche-nvidia.com_gpu.sock"]);
        process.signal(signal);
        assert_eq!(process.ended().code(), Some(0));
        assert_eq!(bed.sockets(), ["kubelet.sock"]);
        bed.wait_allocatable(0);
    }
}

#[test]
fn it_is_registered_again_after_a_restart_of_the_kubelet_and_with_the_reason_in_its_log() {
    let mut bed = Bed::new((0..8).map(|gpu| replicas(&format!("GPU-{gpu}"), 10)).collect());
    let process = bed.process();
    bed.wait_allocatable(80);
    for _ in 0..3 {
        bed.kubelet.stop();
        bed.kubelet.start();
        bed.wait_allocatable(80);
    }
    process.wait_log("80 devices, all healthy");
    until("each registration has its line", || {
        process
            .log()
            .iter()
            .filter(|line| line.contains("registered with the kubelet"))
            .count()
            >= 4
    });
    eprintln!("memory with 8 GPUs of 10 shares: {} KiB", process.memory());
    drop(process);
    bed.wait_allocatable(0);
    assert!(bed.socket(GPU).exists(), "it was killed");
}

#[test]
fn a_service_manager_gets_a_message_when_there_is_something_to_offer() {
    let mut bed = Bed::asleep(vec![whole("GPU-0")]);
    let path = bed.at("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    bed.broker.listen();
    let process = bed.process_with(&[], &[("NOTIFY_SOCKET", path.as_path())]);
    let mut bytes = [0; 64];
    until("the manager has a message", || manager.recv(&mut bytes).is_ok());
    assert!(bytes.starts_with(b"READY=1"));
    // While it is stopped it says nothing more: what it offers came before the message.
    process.signal("STOP");
    process.wait_log("nvidia.com/gpu: 1 device, all healthy");
    process.signal("CONT");
    // The kubelet starts afterwards.
    bed.kubelet.start();
    bed.wait_allocatable(1);
}

#[test]
fn a_service_manager_does_not_wait_for_a_broker_that_is_away() {
    let bed = Bed::asleep(Vec::new());
    let path = bed.at("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let _process = bed.process_with(&[], &[("NOTIFY_SOCKET", path.as_path())]);
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    manager.recv(&mut [0; 64]).unwrap();
}

#[test]
fn the_command_line_ends_with_the_exit_code_of_its_kind() {
    let run = |args: &[&str]| program().args(args).output().unwrap();
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--placement policy|packed|spread|distributed")
    );
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert!(version.starts_with("tranche-kubelet "), "{version}");
    let wrong = run(&["--what"]);
    assert_eq!(wrong.status.code(), Some(2));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
}
