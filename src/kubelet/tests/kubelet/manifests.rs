//! The examples of NVIDIA's driver (`demo/specs` of kubernetes-sigs/dra-driver-nvidia-gpu), as manifests of the same
//! structure: what becomes of each on a node, with the program, a kubelet, an API server, and the scheduler's rules.
//!
//! What the broker gives is what its planner says of a built-in host (`tranche_plan::share`); `tests/broker` has the
//! real one.

mod document;
mod machines;
mod objects;
mod rows;
mod scene;
mod scheduler;
mod selectors;

use rows::{Expected, ROWS};
use scene::{Outcome, outcome};

/// Tries a manifest on each node that the table has for it.
fn check(file: &str) {
    let mut wrong = Vec::new();
    for row in ROWS.iter().filter(|row| row.file == file) {
        let expected = match row.expected {
            Expected::Works(containers) => Outcome::Runs(containers.iter().map(|&line| line.to_owned()).collect()),
            Expected::Refused(why) => Outcome::Refused(why.to_owned()),
            Expected::Pending { pod, .. } => Outcome::Waits(pod.to_owned()),
        };
        let found = outcome(file, &row.machine);
        if found != expected {
            wrong.push(format!("{}: {found:#?}, expected {expected:#?}", row.machine.words));
        }
    }
    assert!(wrong.is_empty(), "{file}: {}", wrong.join("\n"));
}

/// A test for each manifest.
macro_rules! manifests {
    ($($test:ident: $file:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $test() {
                check($file);
            }
        )*
    };
}

manifests! {
    a_claim_for_each_pod: "gpu-test1",
    a_claim_for_two_containers: "gpu-test2",
    a_claim_for_two_pods: "gpu-test3",
    four_mig_devices_of_one_gpu: "gpu-test4",
    two_configurations: "gpu-test5",
    two_configurations_with_selectors: "gpu-test5-selected",
    a_product_and_an_index: "gpu-test6",
    two_claims_of_a_pod: "gpu-test7",
    two_devices_of_a_request: "gpu-test8",
    limits_under_mps: "gpu-test-mps",
    an_amount_of_memory: "consumable-shares-memory",
    a_share_by_default: "consumable-shares-integer",
    shares_without_a_limit: "consumable-shares-unlimited",
    an_extended_resource: "extended-resources-gpu-full",
    an_extended_resource_of_a_class_of_its_own: "extended-resources-mig-1g-12gb",
}

#[test]
fn each_row_has_a_test() {
    let mut files: Vec<&str> = ROWS.iter().map(|row| row.file).collect();
    files.dedup();
    assert_eq!(files, FILES);
}
