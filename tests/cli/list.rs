//! `tranche list --json`: which nodes each device has.

use crate::tranche;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The rows of a host, by name: the nodes of each.
fn nodes(inventory: &str) -> BTreeMap<String, Vec<String>> {
    let said = tranche(&["list", "--json", "--inventory", inventory]);
    assert_eq!(said.code, Some(0), "{inventory}: {}", said.err);
    let rows: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let count = rows.len();
    let rows: BTreeMap<String, Vec<String>> = rows
        .iter()
        .map(|row| {
            let nodes = row["nodes"].as_array().unwrap().iter();
            let nodes = nodes.map(|node| node.as_str().unwrap().to_owned()).collect();
            (row["name"].as_str().unwrap().to_owned(), nodes)
        })
        .collect();
    assert_eq!(rows.len(), count, "two rows with one name");
    rows
}

#[test]
fn json_names_the_nodes_of_a_gpu_and_of_a_mig_device() {
    let nodes = nodes("sim:dgx-a100-mig");
    assert_eq!(nodes["0"], ["/dev/nvidia0"]);
    assert_eq!(
        nodes["0:1"],
        [
            "/dev/nvidia0",
            "/dev/nvidia-caps/nvidia-cap75",
            "/dev/nvidia-caps/nvidia-cap76",
        ]
    );
}

/// The display nodes (`/dev/dri`) are not in the list.
#[test]
fn json_names_the_nodes_that_the_specification_gives() {
    for (sim, host) in [
        ("dgx-a100-mig", "dgx-a100-mig"),
        ("hgx-h200", "hgx-h200"),
        ("rtx4090", "workstation-rtx4090"),
        ("t4x2", "t4x2-old-driver"),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("cdi-specs/{host}.yaml"));
        let spec = tranche_plan::cdi::parse::spec(&fs::read(file).unwrap()).unwrap();
        let rows = nodes(&format!("sim:{sim}"));
        let mut compared = 0;
        for device in &spec.devices {
            let Some(row) = rows.get(device.name.as_str()) else {
                continue;
            };
            let edits = serde_json::to_value(&device.edits).unwrap();
            let of_spec = edits["deviceNodes"].as_array().unwrap().iter();
            let mut of_spec: Vec<&str> = of_spec
                .map(|node| node["path"].as_str().unwrap())
                .filter(|path| path.starts_with("/dev/nvidia"))
                .collect();
            of_spec.sort_unstable();
            let mut row: Vec<&str> = row.iter().map(String::as_str).collect();
            row.sort_unstable();
            assert_eq!(row, of_spec, "{host}: {}", device.name);
            compared += 1;
        }
        // A GPU in MIG mode is no device by itself.
        assert!(
            compared > 0 && compared + 8 >= rows.len(),
            "{host}: {compared} of {} rows",
            rows.len()
        );
    }
}

/// A driver container has its nodes elsewhere on the host; a node that is not known is left out.
#[test]
fn json_names_nodes_as_a_container_does_and_only_those_that_are_known() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/sim/dgx-a100-mig.json")).unwrap();
    let mut inventory: Value = serde_json::from_str(&text).unwrap();
    let gpu = &mut inventory["gpus"][0];
    gpu["node"]["host"] = "/run/nvidia/driver/dev/nvidia0".into();
    gpu["mig_devices"][0]["compute_instance_cap"] = Value::Null;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("inventory.json");
    fs::write(&file, inventory.to_string()).unwrap();
    let nodes = nodes(file.to_str().unwrap());
    assert_eq!(nodes["0"], ["/dev/nvidia0"]);
    assert_eq!(nodes["0:0"], ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap66"]);
}
