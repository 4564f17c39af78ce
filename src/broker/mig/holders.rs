//! Who uses the instances of GPUs, for the planner.

use std::fs;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::Claim;
use tranche_core::text::shown;
use tranche_plan::mig::{InstanceHolder, MigClient, MigGpu};

/// The claims of the ledger on these GPUs, and the processes that NVML lists on them.
///
/// # Errors
/// Returns an error if the ledger cannot be read: what it has might be destroyed.
pub fn holders(gpus: &[MigGpu], claims: &Claims) -> Result<Vec<InstanceHolder>> {
    let books = claims.books()?;
    if let Some(damaged) = books.damaged.into_iter().next() {
        return Err(damaged.error);
    }
    let is_here = |claim: &&Claim| gpus.iter().any(|gpu| gpu.uuid == *claim.device.gpu());
    let claimed = books.books.iter().flat_map(|book| &book.claims).filter(is_here);
    let mut holders: Vec<InstanceHolder> = claimed
        .map(|claim| InstanceHolder {
            gpu: claim.device.gpu().clone(),
            instance: claim
                .device
                .instance()
                .map(|(instance, compute)| (instance, Some(compute))),
            who: claim.who(),
        })
        .collect();
    for gpu in gpus {
        let using = |client: &MigClient| InstanceHolder {
            gpu: gpu.uuid.clone(),
            instance: client.gpu_instance.map(|instance| (instance, client.compute_instance)),
            who: process(client.pid),
        };
        holders.extend(gpu.clients.iter().map(using));
    }
    Ok(holders)
}

/// `python3 (pid 812)`
fn process(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (pid {pid})", shown(name.trim_end())),
        Err(_) => format!("process {pid}"),
    }
}
