//! The program that closes devices (`BPF_PROG_TYPE_CGROUP_DEVICE`; the kernel's "BPF and XDP Reference Guide").

use super::DeviceNumber;
use crate::sys::bpf::Instruction;

/// By which a later process of tranche finds it.
pub(super) const NAME: &str = "tranche_turns";

/// Offsets in `struct bpf_cgroup_dev_ctx`.
const ACCESS_AND_KIND: i16 = 0;
const MAJOR: i16 = 4;
const MINOR: i16 = 8;

/// `BPF_DEVCG_DEV_CHAR`
const CHARACTER: i32 = 2;

/// The instructions that refuse these devices, whatever is done with them, and allow all others.
///
/// ```text
/// r2 = kind; r3 = major; r4 = minor
/// if kind is not a character device: allow
/// for each device: if major and minor are its own: refuse
/// allow
/// ```
pub(super) fn closing(devices: &[DeviceNumber]) -> Vec<Instruction> {
    // A device is two comparisons and two instructions that return.
    let after_all = 4 * devices.len() as i16;
    let mut program = vec![
        load(2, ACCESS_AND_KIND),
        and(2, 0xffff),
        load(3, MAJOR),
        load(4, MINOR),
        skip_unless(2, CHARACTER, after_all),
    ];
    for device in devices {
        program.extend([
            skip_unless(3, device.major.cast_signed(), 3),
            skip_unless(4, device.minor.cast_signed(), 2),
            set(0, 0),
            exit(),
        ]);
    }
    program.extend([set(0, 1), exit()]);
    program
}

/// `rN = *(u32 *)(r1 + offset)`: BPF_LDX | BPF_W | BPF_MEM
fn load(register: u8, offset: i16) -> Instruction {
    instruction(0x61, register | 1 << 4, offset, 0)
}

/// `wN &= value`: BPF_ALU | BPF_AND | BPF_K
fn and(register: u8, value: i32) -> Instruction {
    instruction(0x54, register, 0, value)
}

/// `if rN != value: skip so many`: BPF_JMP | BPF_JNE | BPF_K. The numbers of devices have at most 20 bits, so they are
/// the same as 64 bits with a sign.
fn skip_unless(register: u8, value: i32, count: i16) -> Instruction {
    instruction(0x55, register, count, value)
}

/// `rN = value`: BPF_ALU64 | BPF_MOV | BPF_K
fn set(register: u8, value: i32) -> Instruction {
    instruction(0xb7, register, 0, value)
}

/// Returns r0: BPF_JMP | BPF_EXIT
fn exit() -> Instruction {
    instruction(0x95, 0, 0, 0)
}

fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction {
        code,
        registers,
        offset,
        value,
    }
}
