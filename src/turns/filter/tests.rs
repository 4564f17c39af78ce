use super::*;
use crate::fake_turns::FakeTurns;
use crate::own_mounts::with_own_mounts;
use crate::rights::become_broker;
use crate::skip::not_run;
use crate::sys::bpf::Instruction;
use crate::test_cgroup::TestCgroup;
use nix::mount::{MsFlags, mount};

/// `/dev/zero`, which every program may open and this test takes away from one.
const ZERO: DeviceNumber = DeviceNumber { major: 1, minor: 5 };
/// `/dev/full`
const FULL: DeviceNumber = DeviceNumber { major: 1, minor: 7 };
const REFUSED: &str = "error 1";

/// What the program returns for a device: a small part of the kernel's interpreter.
fn run(program: &[Instruction], kind: u32, device: DeviceNumber) -> i64 {
    // What is done is in the upper half of the first word: here reading and writing.
    let context = [6 << 16 | kind, device.major, device.minor];
    let mut registers = [0_i64; 11];
    let mut at = 0_usize;
    loop {
        let Instruction {
            code,
            registers: names,
            offset,
            value,
        } = program[at];
        let (to, from) = (usize::from(names & 0xf), names >> 4);
        at += 1;
        match code {
            0x61 => {
                assert_eq!(from, 1, "the context is in r1");
                registers[to] = i64::from(context[offset as usize / 4]);
            }
            0x54 => registers[to] = i64::from(registers[to] as u32 & value as u32),
            0x55 if registers[to] != i64::from(value) => at += offset as usize,
            0x55 => {}
            0xb7 => registers[to] = i64::from(value),
            0x95 => return registers[0],
            other => panic!("instruction {other:#x}"),
        }
    }
}

#[test]
fn the_program_refuses_exactly_the_devices() {
    let (character, block) = (2, 1);
    let gpus = [0, 1, 255].map(|minor| DeviceNumber { major: 195, minor });
    for closed in [&gpus[..0], &gpus[..1], &gpus] {
        let program = program::closing(closed);
        for device in gpus.into_iter().chain([ZERO, DeviceNumber { major: 0, minor: 195 }]) {
            let expected = i64::from(!closed.contains(&device));
            assert_eq!(run(&program, character, device), expected, "{device} of {closed:?}");
            assert_eq!(run(&program, block, device), 1, "another kind of {device}");
        }
    }
}

#[test]
fn the_instructions_are_those_of_the_kernel() {
    let bytes: Vec<String> = program::closing(&[DeviceNumber { major: 195, minor: 3 }])
        .iter()
        .map(|i| format!("{:02x}{:02x}{:04x}{:08x}", i.code, i.registers, i.offset, i.value))
        .collect();
    let expected = [
        "6112000000000000", // r2 = *(u32 *)(r1 + 0)
        "540200000000ffff", // w2 &= 0xffff
        "6113000400000000", // r3 = *(u32 *)(r1 + 4)
        "6114000800000000", // r4 = *(u32 *)(r1 + 8)
        "5502000400000002", // if r2 != 2 goto +4
        "55030003000000c3", // if r3 != 195 goto +3
        "5504000200000003", // if r4 != 3 goto +2
        "b700000000000000", // r0 = 0
        "9500000000000000", // exit
        "b700000000000001", // r0 = 1
        "9500000000000000", // exit
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn a_line_of_the_list_is_about_its_devices() {
    for (line, zero, full) in [
        ("c 1:5 rwm", true, false),
        ("c 1:* rw", true, true),
        ("a *:* rwm", true, true),
        ("c *:5 r", true, false),
        ("b 1:5 rwm", false, false),
        ("c 11:5 rwm", false, false),
        ("", false, false),
        ("c", false, false),
        ("c *:* m", false, false),
    ] {
        assert_eq!((allows(line, ZERO), allows(line, FULL)), (zero, full), "{line}");
    }
}

#[test]
fn what_is_no_cgroup_has_no_rules() {
    let top = tempfile::tempdir().unwrap();
    assert!(matches!(DeviceFilter::of(top.path()), Err(FilterError::NoRules(_))));
    assert!(matches!(
        DeviceFilter::of(&top.path().join("none")),
        Err(FilterError::Refused { .. })
    ));
}

#[test]
fn a_process_cannot_open_a_closed_device_on_version_1() {
    let test = "filter::a_process_cannot_open_a_closed_device_on_version_1";
    let cgroup = match TestCgroup::of_controller("devices", "filter") {
        Ok(cgroup) => cgroup,
        Err(reason) => return not_run(test, &reason),
    };
    // As an engine does it: nothing is allowed but a list.
    for (file, entry) in [("deny", "a"), ("allow", "c 1:5 rw"), ("allow", "c 1:7 rw")] {
        if let Err(e) = fs::write(cgroup.0.join(format!("devices.{file}")), entry) {
            return not_run(test, &format!("devices.{file}: {e}"));
        }
    }
    a_device_is_closed_and_opened(&cgroup);
}

#[test]
fn a_process_cannot_open_a_closed_device_on_version_2() {
    let test = "filter::a_process_cannot_open_a_closed_device_on_version_2";
    let closed = with_own_mounts(|| {
        // A machine with cgroups of version 1 can have both.
        if !Path::new("/sys/fs/cgroup/cgroup.procs").exists()
            && let Err(e) = mount(
                None::<&str>,
                "/sys/fs/cgroup",
                Some("cgroup2"),
                MsFlags::empty(),
                None::<&str>,
            )
        {
            return not_run(test, &format!("cgroups of version 2 cannot be mounted: {e}"));
        }
        let cgroup = match TestCgroup::version_2("filter") {
            Ok(cgroup) => cgroup,
            Err(reason) => return not_run(test, &reason),
        };
        // The engine's own filter, which stays as it is.
        let directory = File::open(&cgroup.0).unwrap();
        let random = DeviceNumber { major: 1, minor: 9 };
        let of_engine = DeviceProgram::load(&program::closing(&[random]), "engine").unwrap();
        of_engine.attach(directory.as_fd()).unwrap();
        // The kernel does not ask for less than the broker's unit leaves.
        become_broker();
        a_device_is_closed_and_opened(&cgroup);
        let left = DeviceProgram::of_cgroup(directory.as_fd()).unwrap();
        let names: Vec<String> = left.iter().map(|program| program.name_and_tag().unwrap().0).collect();
        assert_eq!(names, ["engine"]);
    });
    closed.unwrap();
}

fn a_device_is_closed_and_opened(cgroup: &TestCgroup) {
    let fake = FakeTurns::new(20, None, &[]);
    let mut client = fake.client(0);
    cgroup.add(client.pid().cast_unsigned());
    let mut open = |path: &str| client.ask(&format!("open {path}"));
    let filter = DeviceFilter::of(&cgroup.0).unwrap();
    assert_eq!(open("/dev/zero"), "opened");
    assert!(!filter.is_closed(&[ZERO]).unwrap());
    filter.close(&[ZERO]).unwrap();
    assert_eq!(
        (open("/dev/zero").as_str(), open("/dev/full").as_str()),
        (REFUSED, "opened")
    );
    assert!(filter.is_closed(&[ZERO]).unwrap());
    // A later process of tranche finds it.
    let later = DeviceFilter::of(&cgroup.0).unwrap();
    assert!(later.is_closed(&[ZERO]).unwrap());
    later.close(&[ZERO]).unwrap();
    later.open(&[ZERO]).unwrap();
    assert_eq!(open("/dev/zero"), "opened");
    assert!(!filter.is_closed(&[ZERO]).unwrap());
    // Opening what is open changes nothing.
    filter.open(&[ZERO]).unwrap();
    assert_eq!(open("/dev/full"), "opened");
    filter.close(&[ZERO, FULL]).unwrap();
    assert_eq!(
        (open("/dev/zero").as_str(), open("/dev/full").as_str()),
        (REFUSED, REFUSED)
    );
    filter.open(&[ZERO, FULL]).unwrap();
    assert_eq!(
        (open("/dev/zero").as_str(), open("/dev/full").as_str()),
        ("opened", "opened")
    );
}
