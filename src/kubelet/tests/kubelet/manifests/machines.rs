//! The nodes on which the manifests are tried: built-in hosts under a policy.

use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read;
use tranche_plan::share::{Plan, dra_devices, dra_limits, dra_part, dra_together, plan};
use tranche_plan::sim;
use tranche_protocol::DraDevices;

/// A node.
pub(super) struct Machine {
    /// What it is, as the documentation has it.
    pub(super) words: &'static str,
    pub(super) driver: &'static str,
    /// Whether the chart's class for whole GPUs has the name of an extended resource.
    pub(super) is_extended: bool,
    inventory: fn() -> Inventory,
    sharing: &'static str,
}

const TRANCHE: &str = "gpu.tranche.dev";
const TURNS_SHARING: &str =
    "sharing: {timeSlicing: {interval: long, resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n";

/// One with the name of the driver, and without extended resources.
const fn machine(words: &'static str, inventory: fn() -> Inventory, sharing: &'static str) -> Machine {
    Machine {
        words,
        driver: TRANCHE,
        is_extended: false,
        inventory,
        sharing,
    }
}

pub(super) const WHOLE: Machine = machine("whole GPUs", h200, "");
pub(super) const MPS: Machine = machine(
    "GPUs under MPS, ten replicas",
    h200,
    "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}\n",
);
pub(super) const TURNS: Machine = machine("GPUs in turns, `interval: long`", h200, TURNS_SHARING);
pub(super) const BOTH: Machine = machine(
    "GPU 0 in turns, `interval: long`; GPU 1 under MPS",
    h200,
    "sharing:\n  timeSlicing: {interval: long, resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}\n  \
     mps: {resources: [{name: nvidia.com/gpu, devices: [1], replicas: 10}]}\n",
);
pub(super) const MIXED: Machine = machine(
    "GPU 0 under MPS, the others whole",
    h200,
    "sharing: {mps: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}\n",
);
pub(super) const A100: Machine = machine("whole A100", a100, "");
pub(super) const A100_TURNS: Machine = machine("A100 in turns, `interval: long`", a100, TURNS_SHARING);
pub(super) const HALF_BALANCED: Machine = machine("four GPUs with these instances", half_balanced, "");
pub(super) const SCATTERED: Machine = machine("these instances on different GPUs", scattered, "");
pub(super) const EXTENDED: Machine = Machine {
    words: "whole GPUs, `dra.extendedResources.gpu=nvidia.com/gpu`",
    is_extended: true,
    ..WHOLE
};
pub(super) const EXTENDED_MPS: Machine = Machine {
    words: "GPUs under MPS, `dra.extendedResources.gpu=nvidia.com/gpu`",
    is_extended: true,
    ..MPS
};
pub(super) const EXTENDED_MIXED: Machine = Machine {
    words: "GPU 0 under MPS, the others whole, `dra.extendedResources.gpu=nvidia.com/gpu`",
    is_extended: true,
    ..MIXED
};
pub(super) const TWELVE: Machine = machine("MIG devices `1g.12gb`", twelve, "");
pub(super) const TWELVE_NVIDIA: Machine = Machine {
    words: "MIG devices `1g.12gb`, `dra.driverName=gpu.nvidia.com`",
    driver: "gpu.nvidia.com",
    ..TWELVE
};
pub(super) const WHOLE_NVIDIA: Machine = Machine {
    words: "whole GPUs, `dra.driverName=gpu.nvidia.com`",
    driver: "gpu.nvidia.com",
    ..WHOLE
};
pub(super) const BOTH_NVIDIA: Machine = Machine {
    words: "GPU 0 in turns, GPU 1 under MPS, `dra.driverName=gpu.nvidia.com`",
    driver: "gpu.nvidia.com",
    ..BOTH
};

fn h200() -> Inventory {
    sim::open("hgx-h200").unwrap()
}

/// Those before GPU 3 are others: the first device of that product has an odd index, and the first one is of neither.
fn a100() -> Inventory {
    let mut inventory = h200();
    for gpu in &mut inventory.gpus[3..] {
        gpu.name = "NVIDIA A100-SXM4-40GB".to_owned();
    }
    inventory
}

/// GPU 0 has seven instances 1g.5gb, and GPU 1 one of each other profile.
fn scattered() -> Inventory {
    sim::open("dgx-a100-mig").unwrap()
}

/// Four GPUs have two instances 1g.5gb, one 2g.10gb and one 3g.20gb, as mig-parted makes them for `half-balanced`. GPU
/// 0 before them has only small ones: the first device that fits is a wrong one.
fn half_balanced() -> Inventory {
    let mut inventory = scattered();
    let mut layout = inventory.gpus[1].mig_devices.clone();
    layout.push(inventory.gpus[0].mig_devices[6].clone());
    for gpu in [1, 3, 4, 6] {
        let mut devices = layout.clone();
        for (number, device) in devices.iter_mut().enumerate() {
            let uuid = format!("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87{gpu}{number:03}");
            (device.uuid, device.index) = (
                Some(uuid.parse().unwrap()),
                serde_json::from_str(&number.to_string()).unwrap(),
            );
        }
        inventory.gpus[gpu].mig_devices = devices;
    }
    inventory
}

fn twelve() -> Inventory {
    let mut inventory = scattered();
    for device in &mut inventory.gpus[0].mig_devices {
        device.profile = Some("1g.12gb".parse().unwrap());
    }
    inventory
}

impl Machine {
    fn planned(&self) -> (Inventory, Plan) {
        let inventory = (self.inventory)();
        let text = format!("version: v1\nkubernetes: {{door: dra}}\n{}", self.sharing);
        let policy = read::parse("config.yaml", &text).unwrap().policy;
        let plan = plan(&policy, &inventory).unwrap();
        (inventory, plan)
    }

    /// What the broker offers.
    pub(super) fn devices(&self) -> DraDevices {
        let (inventory, plan) = self.planned();
        let driver = inventory.driver.as_ref().unwrap();
        DraDevices {
            devices: dra_devices(&inventory, &plan)
                .into_iter()
                .map(|(_, device)| device)
                .collect(),
            driver: Some(driver.version.to_string()),
            cuda: driver.cuda.map(|cuda| cuda.to_string()),
            claims: Vec::new(),
            divided: Vec::new(),
        }
    }

    /// What the broker gives, as its planner says it: the device, and the limits of each process.
    pub(super) fn judge(&self) -> crate::fake_broker::Judge {
        let (inventory, plan) = self.planned();
        Box::new(move |devices| {
            let parts = devices.iter().map(|device| dra_part(&inventory, &plan, device));
            let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
            dra_together(devices.iter().zip(&parts))?;
            let given = devices.iter().zip(&parts);
            given
                .map(|(device, part)| Ok(format!("{} {}", device.device, dra_limits(device, part)?)))
                .collect()
        })
    }
}
