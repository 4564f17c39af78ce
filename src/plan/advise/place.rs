//! Puts the containers of one wish onto GPUs, in one way, beside what the GPUs are used for already.

mod instances;
mod shares;

use super::machine::{Machine, MachineGpu};
use super::way::Way;
use super::wishes::{Latency, Workload, WorkloadKind};
use crate::mig::WantedInstance;
use tranche_core::types::{MemorySize, MigProfile};

/// What a GPU is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing.
    Free,
    /// One container.
    Whole(Seat),
    /// One container at a time, of a wish for more.
    Waiting(Seat),
    /// Turns, one for each seat.
    Turns(Vec<Seat>),
    /// Shares under MPS, one for each seat.
    Mps(Vec<Seat>),
    /// MIG instances.
    Mig(Vec<Instance>),
}

/// What a container needs: what the wish with the name `of` says of each of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    /// The name of the wish.
    pub(super) of: String,
    pub(super) memory: Option<u64>,
    pub(super) compute: Option<u32>,
    pub(super) is_bounded: bool,
}

/// A MIG instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) wanted: WantedInstance,
    pub(super) profile: MigProfile,
    pub(super) seat: Seat,
    /// How many containers share it.
    pub(super) containers: u32,
}

/// Why a wish for compute gets no turns.
pub(super) const NO_CEILING: &str = "time-slicing has no ceiling of compute";

/// What the GPUs are used for with the wish as well, in the first variant that is possible.
///
/// # Errors
/// Returns why no variant of the way is possible.
pub(super) fn first(one: &Workload, way: Way, machine: &Machine<'_>, uses: &[Use]) -> Result<Vec<Use>, String> {
    let mut variants = (0..variants(way, machine)).map(|variant| put(one, way, variant, machine, uses));
    let mut why = None;
    variants
        .find_map(|tried| tried.map_err(|error| why = why.take().or(Some(error))).ok())
        .ok_or_else(|| why.unwrap_or_else(|| "the host has no GPU for it".to_owned()))
}

/// How many variants of a way there are.
pub(super) fn variants(way: Way, machine: &Machine<'_>) -> usize {
    match way {
        Way::Whole | Way::Waiting | Way::Mps => 1,
        Way::Turns => machine.gpus.len(),
        Way::Mig | Way::Pool => machine
            .gpus
            .iter()
            .map(|one| one.profiles().count())
            .max()
            .unwrap_or(0)
            .max(1),
    }
}

/// What the GPUs are used for with the wish as well.
///
/// # Errors
/// Returns why it is not possible.
pub(super) fn put(
    one: &Workload,
    way: Way,
    variant: usize,
    machine: &Machine<'_>,
    uses: &[Use],
) -> Result<Vec<Use>, String> {
    let mut uses = uses.to_vec();
    let seat = Seat {
        of: one.name.to_string(),
        memory: one.memory.map(MemorySize::mib),
        compute: one.compute.map(|compute| compute.get()),
        is_bounded: one.latency == Latency::Bounded,
    };
    let task = Task { one, seat, machine };
    match way {
        _ if one.count < 2 && way.is_for_several() => return Err("it is for several containers".to_owned()),
        Way::Waiting if one.kind == WorkloadKind::Service => {
            return Err("a service never ends, so no other one has its turn".to_owned());
        }
        Way::Pool if one.compute.is_some() => return Err(NO_CEILING.to_owned()),
        Way::Whole => task.whole(&mut uses, one.count, Use::Whole)?,
        Way::Waiting => task.whole(&mut uses, 1, Use::Waiting)?,
        Way::Mig => task.instances(&mut uses, variant, one.count, 1)?,
        Way::Pool => task.instances(&mut uses, variant, 1, one.count)?,
        Way::Mps => task.mps(&mut uses)?,
        Way::Turns => task.turns(&mut uses, variant)?,
    }
    Ok(uses)
}

struct Task<'a> {
    one: &'a Workload,
    seat: Seat,
    machine: &'a Machine<'a>,
}

impl Task<'_> {
    fn gpus(&self) -> impl Iterator<Item = (usize, &MachineGpu<'_>)> {
        self.machine.gpus.iter().enumerate()
    }

    /// A GPU each for `count` containers, the smallest that are large enough.
    fn whole(&self, uses: &mut [Use], count: u32, used: fn(Seat) -> Use) -> Result<(), String> {
        let large = self.gpus().filter(|(_, gpu)| gpu.has_memory(self.seat.memory));
        let mut free: Vec<(usize, &MachineGpu<'_>)> = large.collect();
        let large = free.len();
        free.retain(|(at, _)| uses.get(*at) == Some(&Use::Free));
        free.sort_by_key(|(at, gpu)| (gpu.gpu.is_in_mig_mode(), gpu.gpu.memory, *at));
        if free.len() < count as usize {
            let memory = self
                .one
                .memory
                .map_or(String::new(), |memory| format!(" with {memory}"));
            return Err(format!(
                "{count} needed{memory}, {large} on this host, {} free beside the other wishes",
                free.len()
            ));
        }
        for (at, _) in free.into_iter().take(count as usize) {
            set(uses, at, used(self.seat.clone()));
        }
        Ok(())
    }
}

fn set(uses: &mut [Use], at: usize, used: Use) {
    if let Some(found) = uses.get_mut(at) {
        *found = used;
    }
}
