//! The table of known faults: data.
//!
//! A row is about versions that somebody has seen to have the fault, or that the authors of a correction name. Where
//! only one version was seen, the row has that one. Rows of programs are about numbers of the authors.

pub(super) const DRIVER: &str = "driver";
pub(super) const CONTAINERD: &str = "containerd";
pub(super) const CRUN: &str = "crun";
pub(super) const RUNC: &str = "runc";
pub(super) const TOOLKIT: &str = "nvidia-ctk";

/// A fault that is known.
#[derive(Debug)]
pub(super) struct KnownFault {
    /// The program that has it.
    pub(super) program: &'static str,
    /// Its versions: from the first one on, and before the second one. Sorted.
    pub(super) versions: &'static [(&'static [u32], &'static [u32])],
    /// The machines that have it.
    pub(super) on: Machines,
    /// What goes wrong.
    pub(super) what: &'static str,
    /// What that means.
    pub(super) why: &'static str,
    /// What to do.
    pub(super) fix: &'static str,
    /// Who says so.
    pub(super) source: &'static str,
}

/// The machines that have a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machines {
    /// All.
    All,
    /// Those with processors of ARM.
    Arm,
    /// Those with a GPU whose persistence mode is off.
    WithoutPersistence,
}

/// Every row.
pub(super) const FAULTS: &[KnownFault] = &[
    KnownFault {
        program: DRIVER,
        versions: &[(&[565], &[566])],
        on: Machines::WithoutPersistence,
        what: "cuda-checkpoint resumes a process without persistence mode with \"operation not permitted\", and ends it",
        why: "people who suspend GPU work lose it",
        fix: "turn persistence mode on (nvidia-smi -pm 1)",
        source: "NVIDIA/cuda-checkpoint#25",
    },
    KnownFault {
        program: DRIVER,
        versions: &[(&[575], &[576])],
        on: Machines::All,
        what: "while one process of a job with NCCL is suspended, suspending the next one hangs",
        why: "such a job can be neither suspended nor resumed",
        fix: "suspend no job whose processes use NCCL together",
        source: "NVIDIA/cuda-checkpoint#30",
    },
    KnownFault {
        program: DRIVER,
        versions: &[(&[550], &[595])],
        on: Machines::Arm,
        what: "cuda-checkpoint is not supported on ARM, and answers 801",
        why: "GPU work on this machine cannot be suspended",
        fix: "update the driver to 595 or later",
        source: "NVIDIA/cuda-checkpoint#51, nvcf#730",
    },
    KnownFault {
        program: DRIVER,
        versions: &[(&[580, 95, 5], &[580, 95, 6])],
        on: Machines::All,
        what: "a process that is resumed while too little memory is free fails with error 304 ever after",
        why: "only ending it helps, also when memory has become free",
        fix: "resume a process when its memory is free, and never before",
        source: "NVIDIA/cuda-checkpoint#44",
    },
    KnownFault {
        program: DRIVER,
        versions: &[(&[595, 71, 5], &[595, 71, 6])],
        on: Machines::All,
        what: "if a process that CRIU restored is killed, the whole host hangs after half a minute",
        why: "one user can stop the machine for all",
        fix: "suspend such a process again before it is ended, or let nobody restore GPU work",
        source: "NVIDIA/cuda-checkpoint#53",
    },
    KnownFault {
        program: DRIVER,
        versions: &[(&[610, 57], &[610, 58])],
        on: Machines::All,
        what: "a process that has imported memory of another one, as NCCL does, cannot be restored: invalid argument",
        why: "a job of several processes that is suspended is lost",
        fix: "suspend no job whose processes use NCCL together",
        source: "NVIDIA/nccl#2350",
    },
    KnownFault {
        program: CONTAINERD,
        versions: &[
            (&[1, 7], &[1, 7, 33]),
            (&[2, 0], &[2, 0, 10]),
            (&[2, 1], &[2, 1, 9]),
            (&[2, 2], &[2, 2, 5]),
            (&[2, 3], &[2, 3, 2]),
        ],
        on: Machines::All,
        what: "an image that is a checkpoint brings annotations for CDI devices",
        why: "a user who chooses the image gets GPUs that nobody granted",
        fix: "update containerd",
        source: "CVE-2026-53492",
    },
    KnownFault {
        program: CRUN,
        versions: &[(&[], &[1, 28])],
        on: Machines::All,
        what: "an image whose /dev is a link redirects what is set up there",
        why: "device nodes may be made, or covered, outside the container's /dev",
        fix: "update crun to 1.28 or later",
        source: "CVE-2026-47766",
    },
    KnownFault {
        program: RUNC,
        versions: &[(&[], &[1, 3, 6]), (&[1, 4], &[1, 4, 3])],
        on: Machines::All,
        what: "an image whose /dev is a link redirects what is set up there",
        why: "device nodes may be made, or covered, outside the container's /dev",
        fix: "update runc to 1.3.6, 1.4.3 or later",
        source: "CVE-2026-41579",
    },
    KnownFault {
        program: TOOLKIT,
        versions: &[(&[], &[1, 17, 8])],
        on: Machines::All,
        what: "the hook of NVIDIA's toolkit takes variables of the image, such as LD_PRELOAD",
        why: "an image can run its own code as root on the host",
        fix: "update nvidia-container-toolkit to 1.19.1 or later, or remove it",
        source: "CVE-2025-23266",
    },
    KnownFault {
        program: TOOLKIT,
        versions: &[(&[1, 17, 8], &[1, 19, 1])],
        on: Machines::All,
        what: "the hooks of NVIDIA's toolkit can be led out of the container by a race",
        why: "an image can make links and files on the host",
        fix: "update nvidia-container-toolkit to 1.19.1 or later, or remove it",
        source: "CVE-2026-24260",
    },
];
