//! Shares under MPS, and turns, for the containers of a wish.

use super::super::machine::MachineGpu;
use super::{NO_CEILING, Seat, Task, Use};
use tranche_core::text::counted;

/// The most containers on one GPU under MPS (MPS documentation, "Limitations").
const MOST_OF_MPS: usize = 48;

/// The most notebooks of unknown size on one GPU, as long as others are free.
const FEW_TURNS: usize = 4;

impl Task<'_> {
    /// Shares under MPS, each on the first GPU with room.
    pub(super) fn mps(&self, uses: &mut [Use]) -> Result<(), String> {
        let reason = usize::from(self.seat.memory.is_none());
        let refusal = |gpu: &MachineGpu<'_>| gpu.no_mps.get(reason).cloned().flatten();
        let mut at = 0;
        for _ in 0..self.one.count {
            while !self
                .gpus()
                .nth(at)
                .is_some_and(|(_, gpu)| refusal(gpu).is_none() && self.has_room(uses.get(at), gpu))
            {
                at += 1;
                if at >= uses.len() {
                    let refusals: Option<Vec<String>> = self.machine.gpus.iter().map(refusal).collect();
                    let refused = refusals.and_then(|all| all.into_iter().next());
                    return Err(refused.unwrap_or_else(|| self.too_many()));
                }
            }
            add(uses, at, self.seat.clone(), Use::Mps);
        }
        Ok(())
    }

    /// Whether one more share fits under MPS. Shares of one GPU all have a limit of memory, or none of them has one.
    /// The same holds for compute.
    fn has_room(&self, used: Option<&Use>, gpu: &MachineGpu<'_>) -> bool {
        let seats = match used {
            Some(Use::Free) => &[][..],
            Some(Use::Mps(seats)) => seats,
            _ => return false,
        };
        let alike = |seat: &Seat| {
            (seat.memory.is_some(), seat.compute.is_some()) == (self.seat.memory.is_some(), self.seat.compute.is_some())
        };
        let compute = seats.iter().filter_map(|seat| seat.compute).sum::<u32>() + self.seat.compute.unwrap_or(0);
        seats.len() < MOST_OF_MPS && seats.iter().all(alike) && compute <= 100 && self.memory_fits(seats, gpu)
    }

    fn memory_fits(&self, seats: &[Seat], gpu: &MachineGpu<'_>) -> bool {
        let used: u64 = seats.iter().filter_map(|seat| seat.memory).sum();
        gpu.has_memory(self.seat.memory.map(|wished| used.saturating_add(wished)))
    }

    /// Turns, spread evenly over GPUs that are shared already and over further ones: the fewest that have the memory,
    /// or, if it is unknown, so many that each has few.
    pub(super) fn turns(&self, uses: &mut [Use], variant: usize) -> Result<(), String> {
        if self.seat.compute.is_some() {
            return Err(NO_CEILING.to_owned());
        }
        let refusals: Option<Vec<String>> = self.machine.gpus.iter().map(|gpu| gpu.no_turns.clone()).collect();
        if let Some(refused) = refusals.and_then(|all| all.into_iter().next()) {
            return Err(refused);
        }
        let can = |used: &Use, gpu: &MachineGpu<'_>| gpu.no_turns.is_none() && *used == Use::Free;
        let free: Vec<usize> = self
            .gpus()
            .filter(|(at, gpu)| uses.get(*at).is_some_and(|used| can(used, gpu)))
            .map(|(at, _)| at)
            .collect();
        let begun = uses.iter().filter(|used| matches!(used, Use::Turns(_))).count();
        let few = (self.one.count as usize)
            .div_ceil(FEW_TURNS)
            .saturating_sub(begun)
            .min(free.len());
        let further = match self.seat.memory {
            Some(_) if variant <= free.len() => variant + usize::from(begun == 0),
            None if variant <= few => few - variant,
            _ => return Err(self.too_many()),
        };
        let chosen: Vec<usize> = free.into_iter().take(further).collect();
        for _ in 0..self.one.count {
            let seats = |at: usize| match uses.get(at) {
                Some(Use::Turns(seats)) => Some(seats.as_slice()),
                Some(Use::Free) if chosen.contains(&at) => Some(&[][..]),
                _ => None,
            };
            let room = self.gpus().filter_map(|(at, gpu)| Some((at, seats(at)?, gpu)));
            let room = room.filter(|(_, seats, gpu)| self.memory_fits(seats, gpu));
            let best = room.min_by_key(|(at, seats, _)| (seats.len(), *at)).map(|(at, ..)| at);
            let at = best.ok_or_else(|| self.too_many())?;
            add(uses, at, self.seat.clone(), Use::Turns);
        }
        Ok(())
    }

    fn too_many(&self) -> String {
        let size = match (self.one.memory, self.one.compute) {
            (Some(memory), Some(compute)) => format!(" of {memory} and {compute} compute"),
            (Some(memory), None) => format!(" of {memory}"),
            (None, Some(compute)) => format!(" of {compute} compute"),
            (None, None) => String::new(),
        };
        format!(
            "{}{size} do not fit beside the other wishes",
            counted(self.one.count as usize, "container")
        )
    }
}

fn add(uses: &mut [Use], at: usize, seat: Seat, used: fn(Vec<Seat>) -> Use) {
    match uses.get_mut(at) {
        Some(Use::Turns(seats) | Use::Mps(seats)) => seats.push(seat),
        Some(free) => *free = used(vec![seat]),
        None => {}
    }
}
