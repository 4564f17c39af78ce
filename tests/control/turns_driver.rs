//! Suspends and resumes real programs, with a fake of the driver's library that has their memory.

use crate::support::fake_library;
use crate::support::fake_turns::{FakeTurns, GPU, TurnsClient, driver_program};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tranche_broker::control::nvml::{Nvml, ResidentDriver};
use tranche_broker::control::turns_driver::{TurnsDriver, wait_for_earlier};
use tranche_core::process_identity::ProcessIdentity;
use tranche_driver_protocol::{CudaResult, TurnsFailure};
use tranche_plan::turns::change::CudaState;

const MIB: u64 = 1 << 20;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(200);

pub(crate) fn driver(fake: &FakeTurns) -> TurnsDriver {
    TurnsDriver::new(Some(driver_program()), fake.library())
}

pub(crate) fn identity(pid: i32) -> ProcessIdentity {
    ProcessIdentity::of(pid).unwrap().unwrap()
}

pub(crate) fn suspend(driver: &TurnsDriver, client: &TurnsClient) -> ProcessIdentity {
    let process = identity(client.pid());
    driver.lock(process, PATIENCE).unwrap();
    driver.checkpoint(process, PATIENCE).unwrap();
    process
}

pub(crate) fn resume(driver: &TurnsDriver, process: ProcessIdentity) {
    driver.restore(process, PATIENCE).unwrap();
    driver.unlock(process, PATIENCE).unwrap();
}

fn refused<T: std::fmt::Debug>(answer: Result<T, TurnsFailure>) -> CudaResult {
    match answer {
        Err(TurnsFailure::Refused { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_programs_have_the_whole_gpu_by_turns() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    assert_eq!(driver.version(), Ok(12080));
    let mut first = fake.client(15 * MIB);
    assert_eq!(fake.used(), 15 * MIB);
    let first_is = suspend(&driver, &first);
    assert_eq!(driver.state(first_is, PATIENCE), Ok(Some(CudaState::Checkpointed)));
    assert_eq!(fake.used(), 0, "the memory is in the program now");
    let mut second = fake.client(15 * MIB);
    for _ in 0..3 {
        let second_is = suspend(&driver, &second);
        resume(&driver, first_is);
        assert_eq!(
            (first.ask("check"), first.ask("call")),
            ("good".to_owned(), "called".to_owned())
        );
        suspend(&driver, &first);
        resume(&driver, second_is);
        assert_eq!(second.ask("check"), "good");
    }
    assert!(!fake.host_hangs());
}

#[test]
fn the_driver_shows_no_suspended_program() {
    let fake = FakeTurns::new(20, None, &[]);
    let place = tempfile::tempdir().unwrap();
    let library = place.path().join("libnvidia-ml.so.1");
    fake_library::NVML.install(&library, &[]).unwrap();
    let gpu = serde_json::json!({
        "uuid": GPU, "minor": 0, "pci": "00000000:01:00.0", "name": "Tesla T4", "memory_mib": 20,
        "architecture": "turing", "compute": "7.5", "turns": fake.meeting(),
    });
    let config = serde_json::json!({"driver": "570.86.10", "cuda": 12080, "gpus": [gpu]});
    std::fs::write(place.path().join("nvml.json"), config.to_string()).unwrap();
    let nvml = Nvml {
        driver: Arc::new(ResidentDriver::new(Some(driver_program()))),
        library,
        patience: PATIENCE,
    };
    let driver = driver(&fake);
    let client = fake.client(15 * MIB);
    let processes = || nvml.processes(&GPU.parse().unwrap()).unwrap();
    assert_eq!(processes(), [client.pid().cast_unsigned()]);
    let process = suspend(&driver, &client);
    assert_eq!(processes(), [] as [u32; 0]);
    resume(&driver, process);
    assert_eq!(processes(), [client.pid().cast_unsigned()]);
}

#[test]
fn a_call_waits_while_the_program_is_suspended() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let mut client = fake.client(MIB);
    let process = identity(client.pid());
    driver.lock(process, PATIENCE).unwrap();
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Locked)));
    client.tell("call");
    assert!(!client.says_something_in(SOON));
    driver.checkpoint(process, PATIENCE).unwrap();
    driver.restore(process, PATIENCE).unwrap();
    assert!(!client.says_something_in(SOON), "it is locked after a restore");
    driver.unlock(process, PATIENCE).unwrap();
    assert_eq!(client.read(), "called");
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Running)));
}

#[test]
fn a_step_out_of_order_is_refused() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let client = fake.client(MIB);
    let process = identity(client.pid());
    for answer in [
        driver.checkpoint(process, PATIENCE),
        driver.restore(process, PATIENCE),
        driver.unlock(process, PATIENCE),
    ] {
        assert_eq!(refused(answer), CudaResult::ILLEGAL_STATE);
    }
}

#[test]
fn a_restore_into_too_little_memory_fails_for_ever() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let first = fake.client(15 * MIB);
    let process = suspend(&driver, &first);
    let mut second = fake.client(15 * MIB);
    assert_eq!(refused(driver.restore(process, PATIENCE)), CudaResult::OUT_OF_MEMORY);
    second.end();
    assert_eq!(fake.used(), 0);
    assert_eq!(refused(driver.restore(process, PATIENCE)), CudaResult::OPERATING_SYSTEM);
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Checkpointed)));
}

#[test]
fn a_restore_without_its_device_fails_for_ever() {
    let top = tempfile::tempdir().unwrap();
    let node = top.path().join("nvidia0");
    std::fs::write(&node, "").unwrap();
    let fake = FakeTurns::new(20, Some(&node), &[]);
    let driver = driver(&fake);
    let client = fake.client(MIB);
    let process = suspend(&driver, &client);
    std::fs::remove_file(&node).unwrap();
    assert_eq!(refused(driver.restore(process, PATIENCE)), CudaResult::OPERATING_SYSTEM);
    std::fs::write(&node, "").unwrap();
    assert_eq!(refused(driver.restore(process, PATIENCE)), CudaResult::OPERATING_SYSTEM);
}

#[test]
fn a_lock_ends_with_its_timeout_while_a_call_is_made() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let mut client = fake.client(MIB);
    let process = identity(client.pid());
    assert_eq!(client.ask("busy"), "busy");
    let began = Instant::now();
    assert_eq!(refused(driver.lock(process, SOON)), CudaResult::NOT_READY);
    assert!(began.elapsed() >= SOON);
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Running)));
}

#[test]
fn a_lock_that_hangs_costs_its_deadline_and_no_other_program() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let hanging = fake.faulty_client(MIB, r#"{"checkpoint": "hang"}"#);
    let process = identity(hanging.pid());
    driver.lock(process, PATIENCE).unwrap();
    let before = driver.process().unwrap();
    let Err(TurnsFailure::NoAnswer(why)) = driver.checkpoint(process, Duration::from_secs(1)) else {
        panic!("it answered");
    };
    assert!(why.contains("gave no answer for 1 s and was ended"), "{why}");
    let other = fake.client(MIB);
    suspend(&driver, &other);
    assert_ne!(driver.process().unwrap(), before);
}

#[test]
fn work_that_cannot_be_had_back_is_said() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let client = fake.faulty_client(MIB, r#"{"checkpoint": "fail"}"#);
    let process = identity(client.pid());
    driver.lock(process, PATIENCE).unwrap();
    assert_eq!(refused(driver.checkpoint(process, PATIENCE)), CudaResult(999));
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Failed)));
}

#[test]
fn a_program_without_a_context_has_no_state() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let client = fake.client(0);
    assert_eq!(driver.state(identity(client.pid()), PATIENCE), Ok(None));
    let me = identity(std::process::id().cast_signed());
    assert_eq!(driver.state(me, PATIENCE), Ok(None));
}

#[test]
fn a_process_that_has_ended_is_not_taken_for_a_later_one() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let client = fake.client(MIB);
    let process = identity(client.pid());
    let earlier = ProcessIdentity {
        began: process.began - 1,
        ..process
    };
    assert_eq!(driver.lock(earlier, PATIENCE), Err(TurnsFailure::Ended(earlier)));
    assert_eq!(driver.state(process, PATIENCE), Ok(Some(CudaState::Running)));
}

#[test]
fn a_process_that_is_killed_while_it_is_suspended_has_ended() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let mut client = fake.client(MIB);
    let process = suspend(&driver, &client);
    client.kill();
    assert_eq!(driver.restore(process, PATIENCE), Err(TurnsFailure::Ended(process)));
    assert_eq!(fake.used(), 0);
    assert!(!fake.host_hangs(), "it was suspended");
}

#[test]
fn a_process_that_is_killed_after_a_restore_hangs_the_host() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let (mut orderly, mut killed) = (fake.client(MIB), fake.client(MIB));
    for client in [&orderly, &killed] {
        let process = suspend(&driver, client);
        resume(&driver, process);
    }
    orderly.end();
    let other = fake.client(MIB);
    driver.state(identity(other.pid()), PATIENCE).unwrap();
    assert!(!fake.host_hangs(), "it ended by itself");
    killed.kill();
    suspend(&driver, &other);
    assert!(fake.host_hangs());
}

#[test]
fn a_driver_without_the_functions_is_named() {
    let fake = FakeTurns::new(20, None, &["cuCheckpointProcessLock"]);
    let driver = driver(&fake);
    let client = fake.client(MIB);
    let error = driver.lock(identity(client.pid()), PATIENCE).unwrap_err();
    assert_eq!(error, TurnsFailure::Missing("cuCheckpointProcessLock".to_owned()));
    assert!(error.to_string().contains("turns need driver 570 or newer"), "{error}");
}

#[test]
fn a_library_that_cannot_be_used_is_named() {
    let top = tempfile::tempdir().unwrap();
    let library = top.path().join("libcuda.so.1");
    let driver = TurnsDriver::new(Some(driver_program()), library.clone());
    let missing = driver.version().unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
    std::fs::write(&library, "no library").unwrap();
    let broken = driver.version().unwrap_err().to_string();
    assert!(broken.starts_with("libcuda.so.1 cannot be loaded: "), "{broken}");
}

#[test]
fn it_has_the_right_to_trace_and_no_other() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let process = driver.process().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap();
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    let expected = match nix::unistd::geteuid().is_root() {
        // CAP_SYS_PTRACE
        true => format!("{:016x}", 1 << 19),
        false => "0".repeat(16),
    };
    assert_eq!(
        (field("CapEff:"), field("CapPrm:")),
        (expected.as_str(), expected.as_str())
    );
    assert_eq!(field("NoNewPrivs:"), "1");
}

#[test]
fn the_next_broker_waits_for_the_call_of_an_earlier_one() {
    let fake = FakeTurns::new(20, None, &[]);
    let driver = driver(&fake);
    let process = driver.process().unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(SOON);
            driver.let_go();
        });
        wait_for_earlier(process, PATIENCE).unwrap();
    });
    assert!(began.elapsed() >= SOON);
    assert_eq!(ProcessIdentity::of(process.pid).unwrap(), None);
    // One that does not end is killed.
    let stuck = driver.process().unwrap();
    wait_for_earlier(stuck, SOON).unwrap();
    crate::support::until::until("it is killed", || ProcessIdentity::of(stuck.pid).unwrap().is_none());
    assert_eq!(driver.version(), Ok(12080), "another one is started");
}
