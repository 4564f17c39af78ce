//! A simulated day: requests for instances of mixed profiles, and their releases.

use crate::chance::Chance;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use tranche_core::types::{GpuIndex, GpuInstanceId, MigProfile};
use tranche_plan::mig::{GpuInstance, LostCapacity, MigGpu, ProfileId, choose, free_places, possible_instances};

/// Who chooses the place of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The rule of the product: the place with which the least capacity is lost.
    LeastLost,
    /// The first GPU with a free place, and of its places the first one in the order in which the driver for DRA
    /// publishes them: the scheduler of Kubernetes.
    Published,
    /// The first GPU with a free place, and its lowest placement, which is the first one that the driver lists.
    FirstFit,
    /// The first GPU with a free place, and the placement that the driver would choose. This is a model: the highest
    /// placement, which reproduces the example of NVIDIA's MIG user guide in which 19, 19, 14, 9 fails at the last and
    /// 9 first works.
    Driver,
}

impl Choice {
    pub(crate) const ALL: [Self; 4] = [Self::LeastLost, Self::Published, Self::FirstFit, Self::Driver];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LeastLost => "tranche",
            Self::Published => "Kubernetes, first fit in tranche's order",
            Self::FirstFit => "first fit in the driver's order",
            Self::Driver => "the driver's choice (a model)",
        }
    }
}

/// What is requested: the name of the profile in the product's table, and how many of 100 requests are for it.
const MIX: [(&str, usize); 6] = [
    ("1g.10gb", 45),
    ("1g.20gb", 10),
    ("2g.20gb", 20),
    ("3g.40gb", 15),
    ("4g.40gb", 7),
    ("7g.80gb", 3),
];

/// A day.
pub(crate) struct Day {
    /// How many GPUs there are.
    pub(crate) gpus: usize,
    /// The compute slices that would be held on average if each request were accepted, as a part of all.
    pub(crate) load: f64,
    /// Where chance begins.
    pub(crate) seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// The part of the requests that found a place.
    pub(crate) accepted: f64,
    /// The part of those for 3g, 4g and 7g.
    pub(crate) large_accepted: f64,
    /// The part of the GPUs that could have made a 3g, on average.
    pub(crate) room_for_half: f64,
    /// The part of the GPUs that could have made a 7g, on average.
    pub(crate) room_for_whole: f64,
}

impl Outcome {
    pub(crate) fn mean(all: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| all.iter().map(field).sum::<f64>() / all.len() as f64;
        Self {
            accepted: of(|one| one.accepted),
            large_accepted: of(|one| one.large_accepted),
            room_for_half: of(|one| one.room_for_half),
            room_for_whole: of(|one| one.room_for_whole),
        }
    }
}

/// The position of what is requested in [`MIX`].
fn request(chance: &mut Chance) -> usize {
    let mut left = (chance.next() * 100.0) as usize;
    let found = MIX.iter().position(|(_, share)| match left.checked_sub(*share) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    found.unwrap()
}

/// The instances of a GPU: the profile and the first unit of each, in order.
type State = Vec<(ProfileId, u32)>;

/// What a place costs, and its first unit. The cost counts for the product's choice alone.
type Place = (Option<LostCapacity>, u32);

/// The rules of the product, with what was computed about each state.
struct Rules<'a> {
    gpu: &'a MigGpu,
    /// The profiles of [`MIX`].
    profiles: Vec<ProfileId>,
    names: Vec<MigProfile>,
    /// The first units of each profile's places, in the order in which they are published.
    published: Vec<Vec<u32>>,
    slices: Vec<u32>,
    /// The places for one way to choose.
    places: HashMap<(State, usize), Option<Place>>,
    rooms: HashMap<State, (bool, bool)>,
}

impl<'a> Rules<'a> {
    fn of(gpu: &'a MigGpu) -> Self {
        let found = MIX.map(|(name, _)| gpu.profiles.iter().find(|one| one.name.to_string() == name).unwrap());
        Self {
            gpu,
            profiles: found.iter().map(|one| one.id).collect(),
            names: found.iter().map(|one| one.name.clone()).collect(),
            published: found.iter().map(|one| published(gpu, one.id)).collect(),
            slices: found.iter().map(|one| one.slices).collect(),
            places: HashMap::new(),
            rooms: HashMap::new(),
        }
    }

    /// The place of an instance on a GPU in this state.
    fn place(&mut self, state: &State, wanted: usize, choice: Choice) -> Option<Place> {
        if let Some(known) = self.places.get(&(state.clone(), wanted)) {
            return known.clone();
        }
        let gpu = in_state(self.gpu, 0, state);
        let free = free_places(&gpu);
        let starts = free.iter().find(|(profile, _)| profile.id == self.profiles[wanted]);
        let starts = starts.into_iter().flat_map(|(_, starts)| starts.iter().copied());
        let place = match choice {
            Choice::LeastLost => choose(std::slice::from_ref(&gpu), &self.names[wanted])
                .map(|place| (Some(place.lost), place.placement.start)),
            Choice::Published => {
                let free: Vec<u32> = starts.collect();
                let first = self.published[wanted].iter().find(|start| free.contains(start));
                first.map(|start| (None, *start))
            }
            Choice::FirstFit => starts.min().map(|start| (None, start)),
            Choice::Driver => starts.max().map(|start| (None, start)),
        };
        self.places.insert((state.clone(), wanted), place.clone());
        place
    }

    /// Whether a GPU in this state has room for a 3g and for a 7g.
    fn room(&mut self, state: &State) -> (bool, bool) {
        if let Some(known) = self.rooms.get(state) {
            return *known;
        }
        let gpu = in_state(self.gpu, 0, state);
        let free = free_places(&gpu);
        let fits = |wanted: usize| free.iter().any(|(profile, _)| profile.id == self.profiles[wanted]);
        let room = (fits(3), fits(5));
        self.rooms.insert(state.clone(), room);
        room
    }

    /// The GPU and the first unit for an instance.
    fn choose(&mut self, fleet: &[State], wanted: usize, choice: Choice) -> Option<(usize, u32)> {
        let mut best: Option<(Option<LostCapacity>, usize, u32)> = None;
        for (gpu, state) in fleet.iter().enumerate() {
            let Some((lost, start)) = self.place(state, wanted, choice) else {
                continue;
            };
            if choice != Choice::LeastLost {
                return Some((gpu, start));
            }
            // Of equal places, the one on the first GPU counts.
            if best.as_ref().is_none_or(|best| lost < best.0) {
                best = Some((lost, gpu, start));
            }
        }
        best.map(|(_, gpu, start)| (gpu, start))
    }

    fn with(&self, state: &mut State, wanted: usize, start: u32) {
        state.push((self.profiles[wanted], start));
        state.sort_unstable();
    }
}

fn published(gpu: &MigGpu, profile: ProfileId) -> Vec<u32> {
    let all = possible_instances(gpu).into_iter();
    all.filter(|one| one.profile.id == profile)
        .map(|one| one.placement.start)
        .collect()
}

impl Day {
    /// Runs the day with one way to choose.
    pub(crate) fn run(&self, gpu: &MigGpu, choice: Choice, requests: usize) -> Outcome {
        let mut rules = Rules::of(gpu);
        let mut chance = Chance(self.seed);
        let shares = MIX
            .iter()
            .zip(&rules.slices)
            .map(|((_, share), slices)| *share as f64 * f64::from(*slices));
        let slices_of_a_request = shares.sum::<f64>() / 100.0;
        // One request comes in each unit of time, on average.
        let lifetime = self.load * (self.gpus * 7) as f64 / slices_of_a_request;
        let mut fleet = vec![State::default(); self.gpus];
        let mut ends: BinaryHeap<Reverse<(u64, usize, u32)>> = BinaryHeap::new();
        let mut now = 0.0;
        let (mut accepted, mut large, mut large_accepted) = (0, 0, 0);
        let (mut halves, mut wholes, mut looks) = (0, 0, 0);
        // The fleet is empty at first: as many requests as it can hold twice come before the day, and are not counted.
        let before = (2.0 * lifetime) as usize;
        for at in 0..before + requests {
            now += chance.wait(1.0);
            let (wanted, held) = (request(&mut chance), chance.wait(lifetime));
            let over = |end: &Reverse<(u64, usize, u32)>| f64::from_bits(end.0.0) <= now;
            while let Some(Reverse((_, gpu, start))) = ends.peek().copied().filter(over) {
                ends.pop();
                fleet[gpu].retain(|one| one.1 != start);
            }
            let counts = at >= before;
            let is_large = rules.slices[wanted] >= 3;
            large += usize::from(counts && is_large);
            if let Some((gpu, start)) = rules.choose(&fleet, wanted, choice) {
                rules.with(&mut fleet[gpu], wanted, start);
                // The bits of positive numbers have the order of the numbers.
                ends.push(Reverse(((now + held).to_bits(), gpu, start)));
                accepted += usize::from(counts);
                large_accepted += usize::from(counts && is_large);
            }
            if counts && at % 100 == 0 {
                for state in &fleet {
                    let (half, whole) = rules.room(state);
                    halves += usize::from(half);
                    wholes += usize::from(whole);
                    looks += 1;
                }
            }
        }
        let part = |count: usize, of: usize| count as f64 / of as f64;
        Outcome {
            accepted: part(accepted, requests),
            large_accepted: part(large_accepted, large),
            room_for_half: part(halves, looks),
            room_for_whole: part(wholes, looks),
        }
    }
}

/// The simulation remembers what each place costs: it must choose as the product does.
pub(crate) fn check_against_the_product(product: &MigGpu) {
    let mut rules = Rules::of(product);
    let mut chance = Chance(99);
    let mut fleet = vec![State::default(); 8];
    for _ in 0..300 {
        let wanted = request(&mut chance);
        let gpus: Vec<MigGpu> = fleet
            .iter()
            .enumerate()
            .map(|(at, state)| in_state(product, at, state))
            .collect();
        let of_product = choose(&gpus, &rules.names[wanted]);
        let of_product = of_product.map(|place| (place.gpu.index.0 as usize, place.placement.start));
        let chosen = rules.choose(&fleet, wanted, Choice::LeastLost);
        assert_eq!(chosen, of_product);
        match chosen {
            Some((gpu, start)) => rules.with(&mut fleet[gpu], wanted, start),
            // Something ends.
            None => drop(fleet[(chance.next() * 8.0) as usize].pop()),
        }
    }
}

/// A GPU in a state.
fn in_state(product: &MigGpu, at: usize, state: &State) -> MigGpu {
    let instance = |(id, (profile, start)): (usize, &(ProfileId, u32))| GpuInstance {
        id: GpuInstanceId(id as u32),
        profile: *profile,
        placement: *product
            .profile(*profile)
            .unwrap()
            .placements
            .iter()
            .find(|one| one.start == *start)
            .unwrap(),
        compute: Vec::new(),
    };
    MigGpu {
        uuid: format!("GPU-{at:08}-0000-0000-0000-000000000000").parse().unwrap(),
        index: GpuIndex(at as u32),
        instances: state.iter().enumerate().map(instance).collect(),
        ..product.clone()
    }
}
