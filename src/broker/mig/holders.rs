//! Who uses the instances of GPUs, for the planner.

use std::fs;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::{Calendar, Claim, ReservedTime, clock};
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

/// The reservations on these GPUs that are not over, each as a holder: a layout that a person wants is no reason to
/// destroy what somebody was promised for later.
///
/// # Errors
/// Returns an error if the calendar cannot be read.
pub fn reserved(gpus: &[MigGpu], state_dir: &Path) -> Result<Vec<InstanceHolder>> {
    let calendar = Calendar::read(state_dir)?;
    let now = calendar.now(clock());
    let is_here = |time: &&ReservedTime| now < time.until && gpus.iter().any(|gpu| gpu.uuid == *time.device.gpu());
    let holder = |time: &ReservedTime| InstanceHolder {
        gpu: time.device.gpu().clone(),
        instance: time
            .device
            .instance()
            .map(|(instance, compute)| (instance, Some(compute))),
        who: format!("reservation {} of {}", time.id, shown(&time.who)),
    };
    Ok(calendar.times.iter().filter(is_here).map(holder).collect())
}

/// `python3 (pid 812)`
fn process(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (pid {pid})", shown(name.trim_end())),
        Err(_) => format!("process {pid}"),
    }
}
