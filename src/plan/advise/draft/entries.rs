//! The entries of the policy, as text.

use super::super::place::{Instance, Seat, Use};
use super::super::wishes::Wishes;
use super::Grant;
use crate::inventory::{Gpu, HostDevice, MigDevice};
use tranche_core::types::{MemorySize, Percent, ShareName};

/// The entries of the policy.
#[derive(Default)]
pub(super) struct Entries {
    dedicated: Vec<String>,
    turns: Vec<String>,
    mps: Vec<String>,
    is_waiting: bool,
    /// How many shares there are; a whole device is one.
    shares: usize,
}

impl Entries {
    pub(super) fn add(&mut self, gpu: &Gpu, used: &Use, wishes: &Wishes, grants: &mut Vec<Grant>) {
        let whole = HostDevice { gpu, mig: None };
        match used {
            Use::Free => {}
            Use::Whole(seat) | Use::Waiting(seat) => {
                self.is_waiting |= matches!(used, Use::Waiting(_));
                self.add_whole(whole);
                grants.push(grant(whole, seat, None, false));
            }
            Use::Turns(seats) => {
                self.add_turns("gpu", whole, seats.len());
                grants.extend(seats.iter().map(|seat| grant(whole, seat, None, true)));
            }
            Use::Mps(seats) => self.mps(whole, seats, wishes, grants),
            Use::Mig(instances) => self.instances(gpu, instances, grants),
        }
    }

    fn mps(&mut self, device: HostDevice<'_>, seats: &[Seat], wishes: &Wishes, grants: &mut Vec<Grant>) {
        // Without ceilings, a bound would hold against nobody.
        let is_bounded = seats.iter().any(|seat| seat.is_bounded);
        let equal = is_bounded.then(|| 100 / u32::try_from(seats.len()).unwrap_or(100).max(1));
        let mut shares = String::new();
        for seat in seats {
            let number = grants.iter().filter(|grant| grant.of == seat.of).count() + 1;
            let one = wishes.workloads.iter().find(|one| one.name.as_str() == seat.of);
            let name = one.and_then(|one| one.share(u32::try_from(number).ok()?));
            let Some(name) = name else { continue };
            let compute = seat.compute.or(equal);
            let memory = seat
                .memory
                .map_or(String::new(), |mib| format!(", memory: {}", size(mib)));
            let percent = compute.map_or(String::new(), |compute| format!(", compute: {compute}%"));
            shares.push_str(&format!("      - {{name: \"{name}\"{memory}{percent}}}\n"));
            grants.push(grant(device, seat, Some(name), false));
        }
        let device = device.name();
        self.shares += seats.len();
        self.mps.push(format!(
            "    - name: nvidia.com/gpu\n      devices: [\"{device}\"]\n      shares:\n{shares}"
        ));
    }

    fn instances(&mut self, gpu: &Gpu, instances: &[Instance], grants: &mut Vec<Grant>) {
        let mut free: Vec<&MigDevice> = gpu.mig_devices.iter().collect();
        for instance in instances {
            let Some(at) = free
                .iter()
                .position(|mig| mig.profile.as_ref() == Some(&instance.profile))
            else {
                continue;
            };
            let device = HostDevice {
                gpu,
                mig: Some(free.remove(at)),
            };
            if instance.containers > 1 {
                let class = format!("mig-{}", instance.profile);
                self.add_turns(&class, device, instance.containers as usize);
            } else {
                self.add_whole(device);
            }
            let is_turn = instance.containers > 1;
            grants.extend((0..instance.containers).map(|_| grant(device, &instance.seat, None, is_turn)));
        }
    }

    fn add_whole(&mut self, device: HostDevice<'_>) {
        self.shares += 1;
        self.dedicated.push(device.name());
    }

    /// A device is split into at least two.
    fn add_turns(&mut self, class: &str, device: HostDevice<'_>, count: usize) {
        let (count, device) = (count.max(2), device.name());
        self.shares += count;
        self.turns.push(format!(
            "    - {{name: nvidia.com/{class}, devices: [\"{device}\"], replicas: {count}}}\n"
        ));
    }

    pub(super) fn text(&self, layouts: &[String]) -> String {
        let quoted = |list: &[String]| {
            list.iter()
                .map(|one| format!("\"{one}\""))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut text = "version: v1\n".to_owned();
        if !layouts.is_empty() {
            text.push_str(&format!("mig:\n  layout: [{}]\n", quoted(layouts)));
        }
        text.push_str("sharing:\n");
        if !self.dedicated.is_empty() {
            text.push_str(&format!("  dedicated: {{devices: [{}]}}\n", quoted(&self.dedicated)));
        }
        for (section, entries) in [("timeSlicing", &self.turns), ("mps", &self.mps)] {
            if !entries.is_empty() {
                text.push_str(&format!("  {section}:\n    resources:\n{}", entries.concat()));
            }
        }
        if self.is_waiting {
            // Without a quota, users leave one share of the host to root.
            text.push_str(&format!("  wait: 1h\n  quota: {{all: {}}}\n", self.shares));
            text.push_str("  users:\n    default: {maxDevices: 1, maxHold: 8h, idle: 2h, maxWait: 4h}\n");
        }
        text
    }
}

fn size(mib: u64) -> String {
    match mib % 1024 {
        0 => format!("{}Gi", mib / 1024),
        _ => format!("{mib}Mi"),
    }
}

fn grant(device: HostDevice<'_>, seat: &Seat, share: Option<ShareName>, is_turn: bool) -> Grant {
    Grant {
        of: seat.of.clone(),
        device: device.device(),
        share,
        is_turn,
        memory: seat.memory.map(MemorySize::from_mib),
        compute: seat.compute.and_then(|compute| Percent::try_from(compute).ok()),
    }
}
