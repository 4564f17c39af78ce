//! The few commands of bpf(2) that a filter of devices and probes need.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::ffi::{CStr, c_int, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `enum bpf_cmd` (linux/bpf.h)
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Command {
    MakeMap = 0,
    SetElement = 2,
    Load = 5,
    Attach = 8,
    Detach = 9,
    OpenById = 13,
    Information = 15,
    Query = 16,
    Link = 28,
}

const PROG_TYPE_KPROBE: u32 = 2;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
/// `BPF_TRACE_UPROBE_MULTI`, since Linux 6.6.
const ATTACH_UPROBES: u32 = 48;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_RINGBUF: u32 = 27;
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// Beside the programs of others: all must allow.
const ALLOW_MULTI: u32 = 1 << 1;

/// The most programs of a cgroup (`BPF_CGROUP_MAX_PROGS`).
const MOST_PROGRAMS: usize = 64;

/// `BPF_OBJ_NAME_LEN`
const NAME_LENGTH: usize = 16;

/// An instruction (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    /// The register that is written in the lower four bits, and the one that is read in the upper ones: on machines
    /// whose bytes have the least significant first, which are all that NVIDIA's driver runs on.
    pub(crate) registers: u8,
    pub(crate) offset: i16,
    pub(crate) value: i32,
}

/// The part of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_LENGTH],
    interface: u32,
    attach_kind: u32,
}

/// For `BPF_MAP_CREATE`.
#[repr(C)]
struct MakeMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
}

/// For `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct SetElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// For `BPF_LINK_CREATE` with probes of functions.
#[repr(C)]
struct Link {
    program: u32,
    target: u32,
    attach_kind: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    reference_counters: u64,
    cookies: u64,
    count: u32,
    probe_flags: u32,
    process: u32,
    padding: u32,
}

/// For `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// For `BPF_PROG_QUERY`.
#[repr(C)]
struct Query {
    target: u32,
    kind: u32,
    flags: u32,
    attached_flags: u32,
    ids: u64,
    count: u32,
    padding: u32,
}

/// For `BPF_PROG_GET_FD_BY_ID`.
#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// For `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct Information {
    object: u32,
    length: u32,
    information: u64,
}

/// The beginning of `struct bpf_prog_info`, up to the name. The kernel fills as much as there is room for.
#[repr(C)]
struct ProgramInformation {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_length: u32,
    translated_length: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    user: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; NAME_LENGTH],
}

/// A program in the kernel. It is unloaded when nobody has it open, and no cgroup has it.
#[derive(Debug)]
pub(crate) struct DeviceProgram(OwnedFd);

impl DeviceProgram {
    /// Gives the kernel a program that decides about devices. The name has at most 15 letters, digits and underscores.
    ///
    /// # Errors
    /// Returns the kernel's error, as the functions below.
    pub(crate) fn load(instructions: &[Instruction], name: &str) -> io::Result<Self> {
        load(PROG_TYPE_CGROUP_DEVICE, 0, instructions, name).map(Self)
    }

    /// The programs that decide about devices for a cgroup of version 2, without those of the cgroups above it.
    pub(crate) fn of_cgroup(cgroup: BorrowedFd<'_>) -> io::Result<Vec<Self>> {
        let mut ids = [0_u32; MOST_PROGRAMS];
        let mut attributes = Query {
            target: cgroup.as_raw_fd() as u32,
            kind: ATTACH_CGROUP_DEVICE,
            flags: 0,
            attached_flags: 0,
            ids: ids.as_mut_ptr() as u64,
            count: MOST_PROGRAMS as u32,
            padding: 0,
        };
        // SAFETY: the pointer is to so many numbers.
        unsafe { bpf(Command::Query, &mut attributes)? };
        let found = ids.iter().take(attributes.count as usize);
        let programs = found.map(|id| Self::open(*id)).filter(|opened| {
            // It was removed meanwhile.
            !matches!(opened, Err(e) if e.raw_os_error() == Some(libc::ENOENT))
        });
        programs.collect()
    }

    fn open(id: u32) -> io::Result<Self> {
        let mut attributes = ById { id, next: 0, flags: 0 };
        // SAFETY: only numbers.
        let opened = unsafe { bpf(Command::OpenById, &mut attributes)? };
        // SAFETY: the kernel has just opened the descriptor for this process.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(opened) }))
    }

    /// Its name, and the digest that the kernel makes of its instructions.
    pub(crate) fn name_and_tag(&self) -> io::Result<(String, [u8; 8])> {
        // SAFETY: zeros are a value of the structure, which has numbers alone.
        let mut information: ProgramInformation = unsafe { std::mem::zeroed() };
        let mut attributes = Information {
            object: self.0.as_raw_fd() as u32,
            length: size_of::<ProgramInformation>() as u32,
            information: (&raw mut information) as u64,
        };
        // SAFETY: the pointer is to a structure of this length.
        unsafe { bpf(Command::Information, &mut attributes)? };
        let name = information.name.iter().take_while(|byte| **byte != 0);
        Ok((name.map(|byte| char::from(*byte)).collect(), information.tag))
    }

    /// Lets it decide for a cgroup of version 2 and those below it, beside the programs that decide already.
    pub(crate) fn attach(&self, cgroup: BorrowedFd<'_>) -> io::Result<()> {
        self.change(Command::Attach, cgroup, ALLOW_MULTI)
    }

    /// Lets it decide no more.
    pub(crate) fn detach(&self, cgroup: BorrowedFd<'_>) -> io::Result<()> {
        self.change(Command::Detach, cgroup, 0)
    }

    fn change(&self, command: Command, cgroup: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
        let mut attributes = Attach {
            target: cgroup.as_raw_fd() as u32,
            program: self.0.as_raw_fd() as u32,
            kind: ATTACH_CGROUP_DEVICE,
            flags,
        };
        // SAFETY: only numbers.
        unsafe { bpf(command, &mut attributes) }.map(drop)
    }
}

fn load(kind: u32, attach_kind: u32, instructions: &[Instruction], name: &str) -> io::Result<OwnedFd> {
    // No function of the kernel is called that asks for a licence.
    let license = c"Apache-2.0";
    let mut attributes = Load {
        kind,
        instructions: instructions.len() as u32,
        program: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; NAME_LENGTH],
        interface: 0,
        attach_kind,
    };
    let room = attributes.name.iter_mut().take(NAME_LENGTH - 1);
    room.zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: the pointers are to the instructions, of which there are so many, and to a C string.
    let opened = unsafe { bpf(Command::Load, &mut attributes)? };
    // SAFETY: the kernel has just opened the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// A buffer into which programs write, of so many bytes: a power of two, and whole pages. See [`super::ring`].
///
/// # Errors
/// Returns the kernel's error, as the functions below.
pub(super) fn make_ring(bytes: u32) -> io::Result<OwnedFd> {
    make_map(MakeMap {
        kind: MAP_TYPE_RINGBUF,
        key_size: 0,
        value_size: 0,
        entries: bytes,
    })
}

fn make_map(mut attributes: MakeMap) -> io::Result<OwnedFd> {
    // SAFETY: only numbers.
    let opened = unsafe { bpf(Command::MakeMap, &mut attributes)? };
    // SAFETY: the kernel has just opened the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Marks that programs make, each a number of 32 bits. At first they are 0.
#[derive(Debug)]
pub(crate) struct Marks(OwnedFd);

impl Marks {
    /// Makes so many.
    ///
    /// # Errors
    /// Returns the kernel's error, as the functions below.
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        make_map(MakeMap {
            kind: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 4,
            entries: count,
        })
        .map(Self)
    }

    /// Makes a mark 0.
    pub(crate) fn clear(&self, mark: u32) -> io::Result<()> {
        let value = 0_u32;
        let mut attributes = SetElement {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const mark) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: the pointers are to a key and to a value of this map, which outlive the call.
        unsafe { bpf(Command::SetElement, &mut attributes) }.map(drop)
    }
}

impl AsFd for Marks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A program that runs whenever a probed function is entered.
#[derive(Debug)]
pub(crate) struct ProbeProgram(OwnedFd);

impl ProbeProgram {
    /// Gives it to the kernel.
    pub(crate) fn load(instructions: &[Instruction], name: &str) -> io::Result<Self> {
        load(PROG_TYPE_KPROBE, ATTACH_UPROBES, instructions, name).map(Self)
    }

    /// Probes functions of the file `path`, by their offsets in it, in all threads of one process, those that it makes
    /// later too. The program gets `cookie`.
    pub(crate) fn probe(&self, path: &CStr, offsets: &[u64], cookie: u64, process: i32) -> io::Result<ProcessProbes> {
        let cookies = vec![cookie; offsets.len()];
        let mut attributes = Link {
            program: self.0.as_raw_fd() as u32,
            target: 0,
            attach_kind: ATTACH_UPROBES,
            flags: 0,
            path: path.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            reference_counters: 0,
            cookies: cookies.as_ptr() as u64,
            count: offsets.len() as u32,
            probe_flags: 0,
            process: process.cast_unsigned(),
            padding: 0,
        };
        // SAFETY: the pointers are to a C string and to two lists, each of so many numbers.
        let opened = unsafe { bpf(Command::Link, &mut attributes)? };
        // SAFETY: the kernel has just opened the descriptor for this process.
        let link = unsafe { OwnedFd::from_raw_fd(opened) };
        Ok(ProcessProbes { _link: link })
    }
}

/// The probes of a process. They are there until this is dropped, for which the kernel waits for all processors.
#[derive(Debug)]
pub(crate) struct ProcessProbes {
    _link: OwnedFd,
}

/// # Safety
/// `T` must be the part of `union bpf_attr` for this command, with pointers to what it says.
unsafe fn bpf<T>(command: Command, attributes: &mut T) -> io::Result<c_int> {
    let size = size_of::<T>() as c_uint;
    // SAFETY: by this function's contract. What follows the part in the union is zero for the kernel.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as c_int, &raw mut *attributes, size) };
    Ok(Errno::result(result)? as c_int)
}
