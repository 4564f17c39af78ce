use super::*;
use crate::metrics::catalogue::{CLAIM_USED, HELD, WAITERS};
use crate::metrics::{Exposition, bytes};

const GPU: &str = "nvidia.com/gpu=0";
const MIG: &str = "nvidia.com/gpu=1:0";

fn identity(key: &str, index: &str) -> Identity {
    Identity {
        key: key.parse().unwrap(),
        index: Some(index.to_owned()),
        pci: Some("0000:3b:00.0".parse().unwrap()),
        model: Some("NVIDIA A100-SXM4-40GB".to_owned()),
        profile: key.contains('/').then(|| "1g.5gb".to_owned()),
    }
}

/// The samples of a GPU with a claim on one of its shares, of a MIG device, and of a device that nobody knows.
fn text(names: Names) -> String {
    let mut out = Exposition::default();
    out.add(HELD, &[GPU], 1.0);
    for device in [GPU, MIG, "GPU-of-before"] {
        out.add(MEMORY_USED, &[device], bytes(700));
    }
    out.add(BUSY, &[GPU], 0.4);
    out.add(CLAIM, &[GPU, "0", "mps", "", "aaaa1111", "train"], 1.0);
    out.add(CLAIM_USED, &[GPU, "0"], bytes(512));
    out.add(WAITERS, &[], 2.0);
    let devices = [
        (GPU.to_owned(), identity("GPU-8188460b-0000", "0")),
        (MIG.to_owned(), identity("GPU-9999460b-0000/7/0", "1")),
    ];
    let text = out.text(&Naming::new(names, BTreeMap::from(devices)));
    let lines = text.lines().filter(|line| !line.starts_with("# HELP tranche_"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn otel() {
    let expected = r##"# TYPE tranche_device_shares_held gauge
tranche_device_shares_held{device="nvidia.com/gpu=0",hw_id="GPU-8188460b-0000"} 1
# TYPE hw_gpu_memory_usage_bytes gauge
# UNIT hw_gpu_memory_usage_bytes bytes
# HELP hw_gpu_memory_usage_bytes GPU memory used.
hw_gpu_memory_usage_bytes{hw_id="GPU-8188460b-0000",hw_name="nvidia.com/gpu=0",hw_type="gpu",hw_vendor="NVIDIA",hw_model="NVIDIA A100-SXM4-40GB"} 734003200
hw_gpu_memory_usage_bytes{hw_id="GPU-9999460b-0000/7/0",hw_name="nvidia.com/gpu=1:0",hw_type="gpu",hw_vendor="NVIDIA",hw_model="NVIDIA A100-SXM4-40GB",hw_parent="GPU-9999460b-0000"} 734003200
hw_gpu_memory_usage_bytes{hw_id="GPU-of-before",hw_type="gpu"} 734003200
# TYPE hw_gpu_utilization_ratio gauge
# UNIT hw_gpu_utilization_ratio ratio
# HELP hw_gpu_utilization_ratio Fraction of time spent in a specific task.
hw_gpu_utilization_ratio{hw_id="GPU-8188460b-0000",hw_name="nvidia.com/gpu=0",hw_type="gpu",hw_vendor="NVIDIA",hw_model="NVIDIA A100-SXM4-40GB"} 0.4
# TYPE tranche_claim_held gauge
tranche_claim_held{device="nvidia.com/gpu=0",shares="0",strategy="mps",claim="",container_id="aaaa1111",container_name="train",hw_id="GPU-8188460b-0000"} 1
# TYPE tranche_claim_memory_used_bytes gauge
# UNIT tranche_claim_memory_used_bytes bytes
tranche_claim_memory_used_bytes{device="nvidia.com/gpu=0",shares="0",hw_id="GPU-8188460b-0000",container_id="aaaa1111",container_name="train"} 536870912
# TYPE tranche_waiters gauge
tranche_waiters 2
# EOF
"##;
    assert_eq!(text(Names::Otel), expected);
}

#[test]
fn dcgm() {
    let expected = r##"# TYPE tranche_device_shares_held gauge
tranche_device_shares_held{device="nvidia.com/gpu=0",gpu="0",UUID="GPU-8188460b-0000",pci_bus_id="00000000:3B:00.0",modelName="NVIDIA A100-SXM4-40GB"} 1
# TYPE DCGM_FI_DEV_FB_USED gauge
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-8188460b-0000",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB"} 700
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-9999460b-0000",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"} 700
DCGM_FI_DEV_FB_USED{device="GPU-of-before"} 700
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-8188460b-0000",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB"} 40
# TYPE tranche_claim_held gauge
tranche_claim_held{device="nvidia.com/gpu=0",shares="0",strategy="mps",claim="",container_id="aaaa1111",container="train",gpu="0",UUID="GPU-8188460b-0000",pci_bus_id="00000000:3B:00.0",modelName="NVIDIA A100-SXM4-40GB"} 1
# TYPE tranche_claim_memory_used_bytes gauge
# UNIT tranche_claim_memory_used_bytes bytes
tranche_claim_memory_used_bytes{device="nvidia.com/gpu=0",shares="0",gpu="0",UUID="GPU-8188460b-0000",pci_bus_id="00000000:3B:00.0",modelName="NVIDIA A100-SXM4-40GB",container_id="aaaa1111",container="train"} 536870912
# TYPE tranche_waiters gauge
tranche_waiters 2
# EOF
"##;
    assert_eq!(text(Names::Dcgm), expected);
}

/// The compute instances of one GPU instance are one for dcgm-exporter, and a series has one value.
#[test]
fn what_is_one_for_others_is_written_once() {
    let mut out = Exposition::default();
    let devices = ["GPU-9999460b-0000/7/0", "GPU-9999460b-0000/7/1"];
    for key in devices {
        out.add(MEMORY_USED, &[key], bytes(700));
    }
    let devices = devices.map(|key| (key.to_owned(), identity(key, "1")));
    let text = out.text(&Naming::new(Names::Dcgm, BTreeMap::from(devices)));
    assert_eq!(text.matches("GPU_I_ID").count(), 1, "{text}");
}
