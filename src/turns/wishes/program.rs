//! The program that runs when a probed function is entered.

use crate::sys::bpf::Instruction;

/// By which people find it (`bpftool prog`).
pub(super) const NAME: &str = "tranche_wishes";

/// Functions of the kernel for programs (linux/bpf.h).
const MAP_LOOKUP_ELEM: i32 = 1;
const RINGBUF_OUTPUT: i32 = 130;
const GET_ATTACH_COOKIE: i32 = 174;

/// How many marks there are: a power of two.
pub(super) const MARKS: u32 = 4096;

/// The mark of a process with this number.
pub(super) fn mark(number: u64) -> u32 {
    number as u32 & (MARKS - 1)
}

/// The instructions that write the number of the probed process into a ring, at its first call alone: a process that
/// calls often must not take the room of the others. Takes the descriptors of both.
///
/// ```text
/// *(u64 *)(r10 - 8) = number = bpf_get_attach_cookie(r1)
/// *(u32 *)(r10 - 12) = number & (MARKS - 1)
/// mark = bpf_map_lookup_elem(marks, r10 - 12)
/// if mark is null or *mark is not 0: return 0
/// *mark = 1
/// bpf_ringbuf_output(ring, r10 - 8, 8, 0)
/// return 0
/// ```
pub(super) fn telling(marks: i32, ring: i32) -> Vec<Instruction> {
    let instruction = |code, to: u8, from: u8, offset, value| Instruction {
        code,
        registers: to | from << 4,
        offset,
        value,
    };
    vec![
        instruction(0x85, 0, 0, 0, GET_ATTACH_COOKIE),       // call
        instruction(0x7b, 10, 0, -8, 0),                     // *(u64 *)(r10 - 8) = r0
        instruction(0x57, 0, 0, 0, MARKS.cast_signed() - 1), // r0 &= MARKS - 1
        instruction(0x63, 10, 0, -12, 0),                    // *(u32 *)(r10 - 12) = r0
        instruction(0x18, 1, 1, 0, marks),                   // r1 = the map with this descriptor, 64 bits
        instruction(0x00, 0, 0, 0, 0),
        instruction(0xbf, 2, 10, 0, 0),  // r2 = r10
        instruction(0x07, 2, 0, 0, -12), // r2 += -12
        instruction(0x85, 0, 0, 0, MAP_LOOKUP_ELEM),
        instruction(0x15, 0, 0, 10, 0), // if r0 == 0 goto +10
        instruction(0x61, 1, 0, 0, 0),  // r1 = *(u32 *)(r0 + 0)
        instruction(0x55, 1, 0, 8, 0),  // if r1 != 0 goto +8
        instruction(0x62, 0, 0, 0, 1),  // *(u32 *)(r0 + 0) = 1
        instruction(0x18, 1, 1, 0, ring),
        instruction(0x00, 0, 0, 0, 0),
        instruction(0xbf, 2, 10, 0, 0),
        instruction(0x07, 2, 0, 0, -8),
        instruction(0xb7, 3, 0, 0, 8), // r3 = 8
        instruction(0xb7, 4, 0, 0, 0), // r4 = 0
        instruction(0x85, 0, 0, 0, RINGBUF_OUTPUT),
        instruction(0xb7, 0, 0, 0, 0), // r0 = 0
        instruction(0x95, 0, 0, 0, 0), // exit
    ]
}
