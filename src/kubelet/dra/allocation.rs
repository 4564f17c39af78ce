//! What the scheduler has allocated to a resource claim, as the broker is asked for it.

use super::handler::PreparedDevice;
use super::opaque::{Opaque, decode};
use super::quantity::thousandths;
use super::result::DeviceResult;
use k8s_openapi::api::resource::v1::DeviceAllocationConfiguration;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::Value;
use tranche_core::types::{MemorySize, Percent};
use tranche_protocol::{AllocatedDevice, ClaimSharing, DraKind};

/// NVIDIA's driver. A configuration that is addressed to it means the same here.
const NVIDIA: &str = "gpu.nvidia.com";

/// One device of a claim: as the broker is asked for it, and as the kubelet is answered, without its CDI name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocated {
    /// For the broker.
    pub asked: AllocatedDevice,
    /// For the kubelet.
    pub answer: PreparedDevice,
}

/// What the scheduler has allocated to a claim, of all drivers.
#[derive(Debug, Default, Deserialize)]
pub struct Allocation {
    #[serde(default)]
    results: Vec<Value>,
    #[serde(default)]
    config: Vec<DeviceAllocationConfiguration>,
}

impl Allocation {
    /// That of `claim`; `None` if it is not allocated.
    ///
    /// # Errors
    /// Returns what cannot be read in it, in one line.
    pub fn of(claim: &DynamicObject) -> Result<Option<Self>, String> {
        match claim.data.pointer("/status/allocation/devices") {
            None | Some(Value::Null) => Ok(None),
            Some(devices) => Self::deserialize(devices)
                .map(Some)
                .map_err(|e| format!("its allocation cannot be read: {e}")),
        }
    }

    /// The results for the pool `pool` of the driver `driver`.
    fn own<'a>(&'a self, driver: &'a str, pool: &'a str) -> impl Iterator<Item = &'a Value> {
        let results = self.results.iter();
        results.filter(move |one| one["driver"] == driver && one["pool"] == pool)
    }

    /// Whether it has a device of the pool `pool` of the driver `driver`.
    pub fn has(&self, driver: &str, pool: &str) -> bool {
        self.own(driver, pool).next().is_some()
    }

    /// The devices in the pool `pool` of the driver `driver`, in the order of the allocation.
    ///
    /// # Errors
    /// Returns why they cannot be prepared, in one line: nothing is of this pool, a result has a field that this
    /// version does not know, or a configuration is wrong.
    pub fn devices(&self, driver: &str, pool: &str) -> Result<Vec<Allocated>, String> {
        if !self.has(driver, pool) {
            return Err(format!("it has no device of {driver} in the pool {pool}"));
        }
        let configs = configs(&self.config, driver)?;
        let own = self.own(driver, pool).map(DeviceResult::read);
        own.map(|result| device(&result?, &configs)).collect()
    }
}

/// A configuration, with the requests that it is for; empty: all.
type Config<'a> = (&'a [String], Opaque);

/// Those for this driver, the most important one last: those of the class come first.
fn configs<'a>(all: &'a [DeviceAllocationConfiguration], driver: &str) -> Result<Vec<Config<'a>>, String> {
    let mut found = Vec::new();
    for source in ["FromClass", "FromClaim"] {
        for config in all.iter().filter(|config| config.source == source) {
            let Some(opaque) = config
                .opaque
                .as_ref()
                .filter(|one| one.driver == driver || one.driver == NVIDIA)
            else {
                continue;
            };
            let decoded = decode(&opaque.parameters.0).map_err(|e| format!("its configuration is wrong: {e}"))?;
            found.push((config.requests.as_deref().unwrap_or_default(), decoded));
        }
    }
    Ok(found)
}

fn device(result: &DeviceResult, configs: &[Config<'_>]) -> Result<Allocated, String> {
    let consumed = |name: &str| -> Result<Option<u64>, String> {
        let Some(quantity) = result.consumed_capacity.get(name) else {
            return Ok(None);
        };
        let number = thousandths(quantity).and_then(|thousandths| u64::try_from(thousandths / 1000).ok());
        let number = number.ok_or_else(|| format!("its {name} {:?} is not a number", quantity.0))?;
        Ok(Some(number))
    };
    let small = |name: &str| -> Result<Option<u32>, String> {
        let number = consumed(name)?.map(u32::try_from).transpose();
        number.map_err(|_| format!("its {name} is too large"))
    };
    let compute = small("compute")?.map(Percent::try_from).transpose();
    // A request with alternatives is named with the one that was chosen: `gpu/large`.
    let request = result.request.split('/').next().unwrap_or_default();
    let asked = AllocatedDevice {
        device: result.device.clone(),
        request: request.to_owned(),
        share_id: result.share_id.clone(),
        memory: consumed("memory")?.map(MemorySize::from_bytes),
        compute: compute.map_err(|e| format!("its compute: {e}"))?,
        shares: small("shares")?,
        sharing: sharing(result, request, configs)?,
        admin: result.admin_access.unwrap_or(false),
    };
    let answer = PreparedDevice {
        requests: vec![request.to_owned()],
        pool: result.pool.clone(),
        device: result.device.clone(),
        cdi: Vec::new(),
        share_id: result.share_id.clone(),
    };
    Ok(Allocated { asked, answer })
}

/// What the last configuration for this device says. One that names the request must fit the device.
fn sharing(result: &DeviceResult, request: &str, configs: &[Config<'_>]) -> Result<Option<ClaimSharing>, String> {
    let kind = DraKind::of(&result.device);
    let mut found = None;
    for (requests, opaque) in configs {
        let is_named = requests.iter().any(|one| *one == result.request || one == request);
        match opaque.kind == kind {
            true if is_named || requests.is_empty() => found.clone_from(&opaque.sharing),
            false if is_named => {
                let wanted = match kind {
                    DraKind::Gpu => "GpuConfig",
                    DraKind::Mig => "MigDeviceConfig",
                };
                return Err(format!("its configuration for the request {request} is not a {wanted}"));
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(results: Value, config: Value) -> DynamicObject {
        let devices = json!({"results": results, "config": config});
        serde_json::from_value(json!({
            "metadata": {"namespace": "lab", "name": "train", "uid": "u"},
            "spec": {},
            "status": {"allocation": {"devices": devices}}
        }))
        .unwrap()
    }

    fn result(request: &str, device: &str) -> Value {
        json!({"request": request, "driver": "gpu.tranche.dev", "pool": "node1", "device": device})
    }

    fn of(results: Value, config: Value) -> Result<Vec<Allocated>, String> {
        let allocation = Allocation::of(&claim(results, config))?.unwrap();
        allocation.devices("gpu.tranche.dev", "node1")
    }

    fn config(source: &str, requests: Value, driver: &str, kind: &str, percent: u32) -> Value {
        let parameters = json!({"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing":
            {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": percent}}});
        json!({"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": parameters}})
    }

    fn percents(results: Value, config: Value) -> Vec<Option<u32>> {
        let percent = |one: &Allocated| match &one.asked.sharing {
            Some(ClaimSharing::Mps {
                active_thread_percentage,
                ..
            }) => active_thread_percentage.map(Percent::get),
            _ => None,
        };
        of(results, config).unwrap().iter().map(percent).collect()
    }

    #[test]
    fn amounts_and_shares_are_what_the_scheduler_counted() {
        let mut shared = result("big", "gpu-0");
        shared["shareID"] = json!("8a1c2d3e");
        shared["consumedCapacity"] = json!({"memory": "8Gi", "compute": "30", "shares": "1"});
        let all = of(json!([shared, result("any/mig", "gpu-1-mig-1g-10gb-7-0")]), json!([])).unwrap();
        assert_eq!(
            (all[0].asked.memory, all[0].asked.compute, all[0].asked.shares),
            (Some(MemorySize::from_mib(8 << 10)), Some(Percent::of_sum(30)), Some(1))
        );
        assert_eq!(all[0].answer.share_id.as_deref(), Some("8a1c2d3e"));
        assert_eq!((all[1].answer.requests[0].as_str(), all[1].asked.memory), ("any", None));
    }

    #[test]
    fn devices_of_other_drivers_and_nodes_are_left_out() {
        let mut other = result("nic", "gpu-7");
        other["driver"] = json!("nic.example.com");
        let mut elsewhere = result("far", "gpu-0");
        elsewhere["pool"] = json!("node2");
        let all = of(
            json!([other.clone(), result("gpu", "gpu-0"), elsewhere.clone()]),
            json!([]),
        )
        .unwrap();
        assert_eq!(all.len(), 1);
        let none = of(json!([other, elsewhere]), json!([])).unwrap_err();
        assert_eq!(none, "it has no device of gpu.tranche.dev in the pool node1");
        let claim = serde_json::from_value(json!({"metadata": {}, "spec": {}})).unwrap();
        assert!(Allocation::of(&claim).unwrap().is_none());
    }

    #[test]
    fn a_field_of_a_result_that_is_not_known_is_refused() {
        let refused = |name: &str, value: Value| {
            let mut one = result("gpu", "gpu-0");
            one[name] = value;
            of(json!([one]), json!([])).unwrap_err()
        };
        let why = refused("exclusiveUse", json!(true));
        assert!(why.contains("`exclusiveUse`") && why.contains("gpu-0"), "{why}");
        let why = refused("consumedCapacity", json!({"memory": "8Gi", "bandwidth": "10"}));
        assert!(why.contains("\"bandwidth\""), "{why}");
        // Fields that are for the scheduler, and an amount of nothing.
        let mut known = result("gpu", "gpu-0");
        known["tolerations"] = json!([{"operator": "Exists"}]);
        known["bindingConditions"] = json!(["ready"]);
        known["consumedCapacity"] = json!({"gpu.nvidia.com/memory": "0"});
        known["adminAccess"] = json!(false);
        assert!(!of(json!([known]), json!([])).unwrap()[0].asked.admin);
        // Those of another driver are not this driver's to judge.
        let mut other = result("nic", "nic-0");
        other["driver"] = json!("nic.example.com");
        other["exclusiveUse"] = json!(true);
        assert_eq!(of(json!([other, result("gpu", "gpu-0")]), json!([])).unwrap().len(), 1);
    }

    #[test]
    fn admin_access_is_passed_on() {
        let mut watched = result("all", "gpu-0");
        watched["adminAccess"] = json!(true);
        let all = of(json!([watched, result("gpu", "gpu-1")]), json!([])).unwrap();
        assert_eq!([all[0].asked.admin, all[1].asked.admin], [true, false]);
    }

    #[test]
    fn the_last_configuration_counts_and_those_of_the_class_come_first() {
        let gpus = || json!([result("a", "gpu-0"), result("b/x", "gpu-1")]);
        let all = |source: &str, percent| config(source, json!([]), NVIDIA, "GpuConfig", percent);
        assert_eq!(
            percents(gpus(), json!([all("FromClaim", 20), all("FromClass", 10)])),
            [Some(20), Some(20)]
        );
        let of_b = config("FromClaim", json!(["b"]), "gpu.tranche.dev", "GpuConfig", 30);
        assert_eq!(
            percents(gpus(), json!([all("FromClass", 10), of_b])),
            [Some(10), Some(30)]
        );
        let of_x = config("FromClaim", json!(["b/x"]), NVIDIA, "GpuConfig", 40);
        assert_eq!(percents(gpus(), json!([of_x])), [None, Some(40)]);
        let of_other = config("FromClaim", json!([]), "nic.example.com", "Anything", 50);
        assert_eq!(percents(gpus(), json!([of_other])), [None, None]);
    }

    #[test]
    fn a_configuration_for_another_kind_of_device_is_ignored_or_refused() {
        let both = || json!([result("a", "gpu-0"), result("b", "gpu-1-mig-1g-10gb-7-0")]);
        let mig = config("FromClaim", json!([]), NVIDIA, "MigDeviceConfig", 10);
        assert_eq!(percents(both(), json!([mig])), [None, Some(10)]);
        let wrong = config("FromClaim", json!(["a"]), NVIDIA, "MigDeviceConfig", 10);
        let wrong = of(both(), json!([wrong])).unwrap_err();
        assert_eq!(wrong, "its configuration for the request a is not a GpuConfig");
        let broken = config("FromClaim", json!(["c"]), NVIDIA, "VfioDeviceConfig", 10);
        assert!(
            of(both(), json!([broken]))
                .unwrap_err()
                .starts_with("its configuration is wrong: kind")
        );
    }
}
