//! A manifest on a node, from the slices of the program to the names that its containers get.

use super::machines::Machine;
use super::objects::{Objects, list, text};
use super::scheduler::{PodClaim, Scheduler};
use crate::bed::{Process, until};
use crate::dra::allocator::Allocator;
use crate::driver_node::DriverNode;
use crate::fake_api::NODE;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::proto::dra as v1;

/// What becomes of the pods of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// What each container has: its pod, its name, and its devices with the limits of each process.
    Runs(Vec<String>),
    /// Why the driver refuses the claim of a pod.
    Refused(String),
    /// The pod for which there is no device.
    Waits(String),
}

/// A node with the program.
struct Scene<'a> {
    machine: &'a Machine,
    node: DriverNode,
    _program: Process,
    /// What was allocated and prepared, by the names of the claims.
    prepared: BTreeMap<String, Vec<v1::Device>>,
}

/// What becomes of the pods of the manifest `file` on a node.
pub(super) fn outcome(file: &str, machine: &Machine) -> Outcome {
    let node = DriverNode::new(machine.devices());
    node.bed.broker.node().judge = Some(machine.judge());
    let program = node.start(machine.driver);
    let mut scene = Scene {
        machine,
        node,
        _program: program,
        prepared: BTreeMap::new(),
    };
    let classes = Objects::classes(machine.driver, machine.is_extended);
    let manifest = Objects::read(file);
    let mut scheduler = Scheduler {
        driver: machine.driver,
        classes: &classes,
        manifest: &manifest,
        allocator: Allocator::new(scene.slices()),
        shares: 0,
    };
    let mut containers = Vec::new();
    for (pod, spec) in manifest.pods() {
        let claims = scheduler.claims(&pod, spec);
        for claim in &claims {
            if scene.prepared.contains_key(&claim.name) {
                continue;
            }
            let Some(devices) = scheduler.allocate(claim) else {
                return Outcome::Waits(pod);
            };
            if let Err(why) = scene.prepare(claim, devices) {
                return Outcome::Refused(why);
            }
        }
        containers.extend(scene.containers(&pod, spec, &claims));
    }
    Outcome::Runs(containers)
}

impl Scene<'_> {
    /// The slices that the program publishes, all of them.
    fn slices(&self) -> Vec<ResourceSlice> {
        let mut slices: Vec<ResourceSlice> = Vec::new();
        until("the slices are published", || {
            let cluster = self.node.api.cluster();
            let stored = cluster.slices.stored.values().cloned();
            slices = stored.map(|slice| serde_json::from_value(slice).unwrap()).collect();
            let count = slices.first().map(|slice| slice.spec.pool.resource_slice_count);
            count == i64::try_from(slices.len()).ok()
        });
        until("the driver is registered", || {
            self.node.kubelet.registered(self.machine.driver).len() == 1
        });
        slices
    }

    /// Prepares a claim to which `devices` are allocated, and checks that the answer is about them.
    fn prepare(&mut self, claim: &PodClaim, devices: Value) -> Result<(), String> {
        let object = KubernetesObject {
            namespace: "lab".into(),
            name: claim.name.clone(),
            uid: format!("{}-uid", claim.name),
        };
        self.node.api.allocate(&object, devices.clone());
        let results = self
            .node
            .kubelet
            .prepare(self.machine.driver, std::slice::from_ref(&object));
        let prepared = results.unwrap().remove(&object.uid).unwrap()?;
        let answered = prepared.iter().map(|device| {
            json!([
                device.request_names,
                device.pool_name,
                device.device_name,
                device.share_id
            ])
        });
        let allocated = list(&devices["results"]).iter().map(|result| {
            let share = result.get("shareID");
            json!([[result["request"]], NODE, result["device"], share])
        });
        assert_eq!(answered.collect::<Vec<_>>(), allocated.collect::<Vec<_>>());
        self.prepared.insert(claim.name.clone(), prepared);
        Ok(())
    }

    /// What the containers of a pod get: the names of the requests that they use, or of all.
    fn containers(&self, pod: &str, spec: &Value, claims: &[PodClaim]) -> Vec<String> {
        let of_container = |container: &Value| {
            let name = text(&container["name"]);
            let mut devices = Vec::new();
            for claim in claims {
                let users = claim.users.iter().filter(|(user, _)| user == name);
                for (_, request) in users {
                    let all = self.prepared[&claim.name].iter();
                    let own = all.filter(|one| {
                        request
                            .as_ref()
                            .is_none_or(|request| one.request_names.contains(request))
                    });
                    let names = own.flat_map(|one| &one.cdi_device_ids);
                    devices.extend(names.map(|name| self.given(&claim.name, name)));
                }
            }
            format!("{pod}/{name}: {}", devices.join(" + "))
        };
        list(&spec["containers"]).iter().map(of_container).collect()
    }

    /// What the broker has given under a CDI name of a claim.
    fn given(&self, claim: &str, name: &str) -> String {
        let begin = format!("nvidia.com/claim={claim}-uid-");
        assert!(name.starts_with(&begin), "{name} is not of the claim {claim}");
        let node = self.node.bed.broker.node();
        node.given
            .get(name)
            .unwrap_or_else(|| panic!("{name} was not given"))
            .clone()
    }
}
