//! The admission policy of the chart, as the API server evaluates it for what a stolen token of a node would send.

use cel::{Context, Env, Value as CelValue};
use serde_json::{Value, json};
use std::sync::Arc;

/// The objects of the chart (`tests/chart/golden`), with the name of the driver.
const CHARTS: [(&str, &str); 2] = [
    (
        "gpu.tranche.dev",
        include_str!("../../../../tests/chart/golden/dra.yaml"),
    ),
    (
        "gpu.nvidia.com",
        include_str!("../../../../tests/chart/golden/nvidia-classes.yaml"),
    ),
];

/// The policy in force for a request of the pod of node1.
fn admits(policy: &Value, operation: &str, old: &Value, new: &Value) -> bool {
    let request = json!({"operation": operation, "userInfo":
        {"username": "system:serviceaccount:tranche:tranche-kubelet",
         "extra": {"authentication.kubernetes.io/node-name": ["node1"]}}});
    let env = Arc::new(Env::stdlib());
    let mut context = Context::with_env(env.clone());
    context.add_variable("request", &request).unwrap();
    context.add_variable("object", new).unwrap();
    context.add_variable("oldObject", old).unwrap();
    context.add_variable("variables", json!({"node": "node1"})).unwrap();
    policy["spec"]["validations"].as_array().unwrap().iter().all(|one| {
        let expression = one["expression"].as_str().unwrap();
        let program = env.compile(expression).unwrap();
        match program.execute(&context) {
            Ok(CelValue::Bool(is_admitted)) => is_admitted,
            other => panic!("{expression}: {other:?}"),
        }
    })
}

fn slice(driver: &str, node: &str, pool: &str) -> Value {
    json!({"spec": {"driver": driver, "nodeName": node, "pool": {"name": pool, "generation": 999_999}}})
}

#[test]
fn a_token_of_a_node_writes_the_slices_of_its_driver_in_the_pool_of_its_node_alone() {
    for (driver, chart) in CHARTS {
        let objects: Vec<Value> = serde_saphyr::from_multiple(chart).unwrap();
        let mut policies = objects.iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy");
        let policy = policies.next().unwrap();
        let own = slice(driver, "node1", "node1");
        let all_nodes = json!({"spec": {"driver": driver, "allNodes": true, "pool": {"name": "node1"}}});
        let foreign = [
            ("another driver", slice("nic.example.com", "node1", "node1")),
            ("the pool of another node", slice(driver, "node1", "node2")),
            ("another node", slice(driver, "node2", "node2")),
            ("all nodes", all_nodes),
        ];
        for (operation, old, new) in [
            ("CREATE", &Value::Null, &own),
            ("UPDATE", &own, &own),
            ("DELETE", &own, &Value::Null),
        ] {
            assert!(admits(policy, operation, old, new), "{driver}: {operation} its own");
        }
        for (what, other) in &foreign {
            for (operation, old, new) in [
                ("CREATE", &Value::Null, other),
                ("UPDATE", other, &own),
                ("UPDATE", &own, other),
                ("DELETE", other, &Value::Null),
            ] {
                assert!(!admits(policy, operation, old, new), "{driver}: {operation} of {what}");
            }
        }
    }
}
