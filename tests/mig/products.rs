//! What is asked of the driver, for each product.

use crate::bed::Bed;
use crate::support::sample;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const PRODUCTS: [&str; 7] = ["a30", "a100-40", "a100-80", "h100-80", "h200", "b200", "rtx-pro-6000"];

fn table(product: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/sim/mig/{product}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A machine whose GPU 0 is of this product, in MIG mode and without instances; the others have no MIG.
pub(crate) fn with(product: &str) -> Bed {
    let mut bed = Bed::without_broker("hgx-h200");
    make(&bed, product);
    bed.start();
    bed
}

pub(crate) fn make(bed: &Bed, product: &str) {
    bed.host
        .nvml(|config| {
            for (number, gpu) in config["gpus"].as_array_mut().unwrap().iter_mut().enumerate() {
                gpu["mig"] = match number {
                    0 => json!({"product": product, "current": true, "max": 12}),
                    _ => Value::Null,
                };
            }
        })
        .unwrap();
}

fn profiles(bed: &Bed) -> Vec<Value> {
    let said = bed.tranche(&["mig", "profiles", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let gpus: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(gpus.as_array().unwrap().len(), 1);
    gpus[0]["profiles"].as_array().unwrap().clone()
}

fn without_compute(profiles: &[Value]) -> Vec<Value> {
    let mut profiles = profiles.to_vec();
    profiles.sort_by_key(|profile| profile["index"].as_u64());
    for profile in &mut profiles {
        profile["compute"] = json!([]);
    }
    profiles
}

#[test]
fn profiles_and_places_are_those_of_the_driver() {
    let bed = Bed::without_broker("hgx-h200");
    for product in PRODUCTS {
        make(&bed, product);
        let expected = without_compute(table(product)["profiles"].as_array().unwrap());
        assert_eq!(without_compute(&profiles(&bed)), expected, "{product}");
    }
}

#[test]
fn an_old_driver_has_no_names_and_the_first_list_of_places() {
    let bed = Bed::without_broker("hgx-h200");
    make(&bed, "a100-40");
    bed.host
        .nvml(|config| {
            let missing = [
                "nvmlDeviceGetGpuInstanceProfileInfoV",
                "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
            ];
            config["missing_symbols"] = json!(missing);
        })
        .unwrap();
    let names: Vec<String> = profiles(&bed)
        .iter()
        .map(|profile| profile["name"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "1g.5gb",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
        "1g.5gb+me",
        "1g.10gb",
    ];
    assert_eq!(names, expected);
}

/// Each profile is made at its last place, and destroyed for the next one.
#[test]
fn an_instance_of_each_profile_can_be_made() {
    for product in PRODUCTS {
        let bed = with(product);
        let table = table(product);
        let all = table["profiles"].as_array().unwrap();
        for profile in sample::of(3, all) {
            let name = profile["name"].as_str().unwrap();
            let place = profile["placements"].as_array().unwrap().last().unwrap();
            let wanted = format!("{name}@{}", place["start"]);
            bed.apply(&format!("0:{wanted}"));
            assert_eq!(bed.layout(0), wanted, "{product}");
        }
        bed.apply("0:empty");
        assert_eq!(bed.layout(0), "empty");
    }
}

#[test]
fn a_gpu_that_does_not_say_what_it_has_is_named() {
    let bed = Bed::without_broker("dgx-a100-mig");
    let said = bed.tranche(&["mig", "status"]);
    assert_eq!(said.code, Some(0));
    // That GPU has instances where no driver makes them, so it has no table.
    assert!(said.err.contains("gpu 6: NVML says: "), "{said:?}");
    assert!(said.out.contains("gpu 0: NVIDIA A100-SXM4-40GB, MIG on\n"), "{said:?}");
    assert!(!said.out.contains("gpu 6"), "{said:?}");
}

#[test]
fn a_host_without_mig_has_nothing_to_show() {
    let bed = Bed::without_broker("workstation-rtx4090");
    let said = bed.tranche(&["mig", "status"]);
    assert_eq!(
        (said.code, said.err.as_str()),
        (Some(3), "tranche: host: has no GPU with MIG\n")
    );
}
