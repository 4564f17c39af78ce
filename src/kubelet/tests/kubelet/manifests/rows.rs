//! What becomes of each manifest. The documentation has the same table.

use super::machines::{
    A100, A100_TURNS, BOTH, BOTH_NVIDIA, EXTENDED, EXTENDED_MIXED, EXTENDED_MPS, HALF_BALANCED, MIXED, MPS, Machine,
    SCATTERED, TURNS, TWELVE, TWELVE_NVIDIA, WHOLE, WHOLE_NVIDIA,
};

/// A manifest on a node.
pub(super) struct Row {
    pub(super) file: &'static str,
    pub(super) machine: Machine,
    pub(super) expected: Expected,
}

/// What becomes of it.
pub(super) enum Expected {
    /// What its containers have: devices with the limits of each process.
    Works(&'static [&'static str]),
    /// What the event at the pod says.
    Refused(&'static str),
    /// The first pod that waits, and why, for the documentation.
    Pending { pod: &'static str, why: &'static str },
}

use Expected::{Pending, Refused, Works};

const fn row(file: &'static str, machine: Machine, expected: Expected) -> Row {
    Row {
        file,
        machine,
        expected,
    }
}

/// Each GPU has what the four requests of one claim ask for.
const FOUR_OF_EACH: &[&str] = &[
    "four-0/a: gpu-1-mig-1g-5gb-9-0 whole",
    "four-0/b: gpu-1-mig-1g-5gb-13-0 whole",
    "four-0/c: gpu-1-mig-2g-10gb-3-0 whole",
    "four-0/d: gpu-1-mig-3g-20gb-2-0 whole",
    "four-1/a: gpu-3-mig-1g-5gb-9-0 whole",
    "four-1/b: gpu-3-mig-1g-5gb-13-0 whole",
    "four-1/c: gpu-3-mig-2g-10gb-3-0 whole",
    "four-1/d: gpu-3-mig-3g-20gb-2-0 whole",
    "four-2/a: gpu-4-mig-1g-5gb-9-0 whole",
    "four-2/b: gpu-4-mig-1g-5gb-13-0 whole",
    "four-2/c: gpu-4-mig-2g-10gb-3-0 whole",
    "four-2/d: gpu-4-mig-3g-20gb-2-0 whole",
    "four-3/a: gpu-6-mig-1g-5gb-9-0 whole",
    "four-3/b: gpu-6-mig-1g-5gb-13-0 whole",
    "four-3/c: gpu-6-mig-2g-10gb-3-0 whole",
    "four-3/d: gpu-6-mig-3g-20gb-2-0 whole",
];

pub(super) const ROWS: &[Row] = &[
    row(
        "gpu-test1",
        WHOLE,
        Works(&["a/work: gpu-0 whole", "b/work: gpu-1 whole"]),
    ),
    row(
        "gpu-test1",
        WHOLE_NVIDIA,
        Works(&["a/work: gpu-0 whole", "b/work: gpu-1 whole"]),
    ),
    row(
        "gpu-test1",
        MPS,
        Works(&["a/work: gpu-0 mps:14377:10", "b/work: gpu-0 mps:14377:10"]),
    ),
    row(
        "gpu-test2",
        WHOLE,
        Works(&["pair/first: gpu-0 whole", "pair/second: gpu-0 whole"]),
    ),
    row(
        "gpu-test3",
        WHOLE,
        Works(&["a/work: gpu-0 whole", "b/work: gpu-0 whole"]),
    ),
    row("gpu-test4", HALF_BALANCED, Works(FOUR_OF_EACH)),
    row(
        "gpu-test4",
        SCATTERED,
        Pending {
            pod: "four-0",
            why: "no GPU has all of them",
        },
    ),
    row(
        "gpu-test5",
        WHOLE,
        Refused(
            "device gpu-0: has turns of the length default under the policy of this node, and the claim asks for long; set sharing.timeSlicing.interval in the policy of the node, or leave the interval out",
        ),
    ),
    row(
        "gpu-test5",
        BOTH,
        Refused(
            "device gpu-2: has turns of the length default under the policy of this node, and the claim asks for long; set sharing.timeSlicing.interval in the policy of the node, or leave the interval out",
        ),
    ),
    row(
        "gpu-test5-selected",
        BOTH,
        Works(&[
            "many/turns-0: gpu-0 1/10",
            "many/turns-1: gpu-0 1/10",
            "many/mps-0: gpu-1 mps:10240:10",
            "many/mps-1: gpu-1 mps:10240:10",
        ]),
    ),
    row(
        "gpu-test5-selected",
        BOTH_NVIDIA,
        Works(&[
            "many/turns-0: gpu-0 1/10",
            "many/turns-1: gpu-0 1/10",
            "many/mps-0: gpu-1 mps:10240:10",
            "many/mps-1: gpu-1 mps:10240:10",
        ]),
    ),
    row(
        "gpu-test6",
        A100,
        Refused(
            "device gpu-4: has turns of the length default under the policy of this node, and the claim asks for long; set sharing.timeSlicing.interval in the policy of the node, or leave the interval out",
        ),
    ),
    row(
        "gpu-test6",
        A100_TURNS,
        Works(&[
            "even-0/work: gpu-4 1/10",
            "even-1/work: gpu-4 1/10",
            "even-2/work: gpu-4 1/10",
            "even-3/work: gpu-4 1/10",
        ]),
    ),
    row(
        "gpu-test6",
        WHOLE,
        Pending {
            pod: "even-0",
            why: "it asks for an A100",
        },
    ),
    row(
        "gpu-test7",
        WHOLE,
        Works(&["pair/first: gpu-0 whole", "pair/second: gpu-1 whole"]),
    ),
    row("gpu-test8", WHOLE, Works(&["large/work: gpu-0 whole + gpu-1 whole"])),
    row("gpu-test8", MIXED, Works(&["large/work: gpu-1 whole + gpu-2 whole"])),
    row(
        "gpu-test8",
        MPS,
        Refused(
            "request gpu: gives a container two parts of gpu-0, and a container with an MPS share can have nothing else; ask for more of one device by capacity.requests, for whole GPUs by the class gpu.tranche.dev, or give each container a request of its own",
        ),
    ),
    row(
        "gpu-test-mps",
        MPS,
        Works(&["pair/first: gpu-0 mps:10240:10", "pair/second: gpu-0 mps:10240:10"]),
    ),
    row(
        "gpu-test-mps",
        WHOLE,
        Refused(
            "device gpu-0: is not shared under the policy of this node, and the claim's configuration says MPS; select devices by the attribute gpu.tranche.dev/strategy, share this one so in the policy of the node, or leave the configuration out",
        ),
    ),
    row(
        "gpu-test-mps",
        TURNS,
        Refused(
            "device gpu-0: is shared by time-slicing under the policy of this node, and the claim's configuration says MPS; select devices by the attribute gpu.tranche.dev/strategy, share this one so in the policy of the node, or leave the configuration out",
        ),
    ),
    row(
        "consumable-shares-memory",
        MPS,
        Works(&["part-0/work: gpu-0 mps:4096:10", "part-1/work: gpu-0 mps:4096:10"]),
    ),
    row(
        "consumable-shares-memory",
        WHOLE,
        Works(&["part-0/work: gpu-0 whole", "part-1/work: gpu-1 whole"]),
    ),
    row(
        "consumable-shares-memory",
        TURNS,
        Pending {
            pod: "part-0",
            why: "turns have no amount of memory",
        },
    ),
    row(
        "consumable-shares-integer",
        MPS,
        Works(&[
            "part-0/work: gpu-0 mps:14377:10",
            "part-1/work: gpu-0 mps:14377:10",
            "part-2/work: gpu-0 mps:14377:10",
            "part-3/work: gpu-0 mps:14377:10",
        ]),
    ),
    row(
        "consumable-shares-integer",
        TURNS,
        Works(&[
            "part-0/work: gpu-0 1/10",
            "part-1/work: gpu-0 1/10",
            "part-2/work: gpu-0 1/10",
            "part-3/work: gpu-0 1/10",
        ]),
    ),
    row(
        "consumable-shares-unlimited",
        MPS,
        Works(&["part-0/work: gpu-0 mps:14377:10", "part-1/work: gpu-0 mps:14377:10"]),
    ),
    row(
        "consumable-shares-unlimited",
        TURNS,
        Works(&["part-0/work: gpu-0 1/10", "part-1/work: gpu-0 1/10"]),
    ),
    row(
        "extended-resources-gpu-full",
        EXTENDED,
        Works(&["full/work: gpu-0 whole"]),
    ),
    row(
        "extended-resources-gpu-full",
        EXTENDED_MIXED,
        Works(&["full/work: gpu-1 whole"]),
    ),
    row(
        "extended-resources-gpu-full",
        EXTENDED_MPS,
        Pending {
            pod: "full",
            why: "the name means whole GPUs",
        },
    ),
    row(
        "extended-resources-gpu-full",
        WHOLE,
        Pending {
            pod: "full",
            why: "no class has the name `nvidia.com/gpu`",
        },
    ),
    row(
        "extended-resources-mig-1g-12gb",
        TWELVE_NVIDIA,
        Works(&["small/work: gpu-0-mig-1g-12gb-7-0 whole"]),
    ),
    row(
        "extended-resources-mig-1g-12gb",
        TWELVE,
        Pending {
            pod: "small",
            why: "its class is for devices of the driver `gpu.nvidia.com`",
        },
    ),
];
