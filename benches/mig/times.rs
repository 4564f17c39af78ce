//! How long a plan takes, for one GPU and for eight, beside a base cost of the same run: reading what a driver reports
//! for one GPU from JSON.

use std::hint::black_box;
use std::time::{Duration, Instant};
use tranche_core::types::{GpuIndex, GpuInstanceId};
use tranche_plan::mig::{GpuInstance, Layout, MigGpu, free_places, plan};

/// The table of tests for a product that has seven slices and eight units.
const PRODUCT: &str = include_str!("../../src/plan/sim/mig/h100-80.json");

/// Layouts that people use.
const LAYOUTS: [&str; 5] = [
    "7x1g.10gb",
    "3g.40gb,2g.20gb,2x1g.10gb",
    "2x3g.40gb",
    "4g.40gb,3x1g.10gb",
    "7g.80gb",
];

/// From how many states each layout is planned.
const STATES: usize = 100;

/// Measures, and prints the table.
pub(crate) fn measure() {
    let product: MigGpu = serde_json::from_str(PRODUCT).unwrap();
    let reads: Vec<Duration> = (0..200)
        .map(|_| {
            time(|| {
                black_box(serde_json::from_str::<MigGpu>(black_box(PRODUCT)).unwrap());
            })
        })
        .collect();
    let base = median(&reads);
    println!("{:44} {:>10} {:>10} {:>8}", "", "median", "slowest", "ratio");
    line("base cost: reading one GPU from JSON", &reads, base);
    line("plan: one GPU", &plans(&product, 1), base);
    line("plan: eight GPUs, each in another state", &plans(&product, 8), base);
}

/// The time of each layout from each state of so many GPUs.
fn plans(product: &MigGpu, gpus: usize) -> Vec<Duration> {
    let layouts = LAYOUTS.map(|layout| format!("all:{layout}").parse::<Layout>().unwrap());
    let mut times = Vec::new();
    for state in 0..STATES {
        let gpus: Vec<MigGpu> = (0..gpus).map(|at| in_state(product, at, state * 8 + at)).collect();
        for layout in &layouts {
            let layout = std::slice::from_ref(layout);
            times.push(time(|| {
                black_box(plan(black_box(layout), black_box(&gpus), &[]).unwrap());
            }));
        }
    }
    times
}

/// The GPU with instances at places that follow from `state`: each next one at one of the free places, until `state` is
/// used up or nothing fits.
fn in_state(product: &MigGpu, at: usize, mut state: usize) -> MigGpu {
    let mut gpu = product.clone();
    gpu.uuid = format!("GPU-{at:08}-0000-0000-0000-000000000000").parse().unwrap();
    gpu.index = GpuIndex(at as u32);
    state = state * 7919 + 1;
    while state > 0 {
        let free = free_places(&gpu);
        let places = free
            .iter()
            .flat_map(|(profile, starts)| starts.iter().map(|start| (profile.id, *start)));
        let places: Vec<_> = places.collect();
        let Some((profile, start)) = places.get(state % places.len().max(1)).copied() else {
            break;
        };
        state /= places.len();
        let placements = &gpu.profile(profile).unwrap().placements;
        let placement = *placements.iter().find(|place| place.start == start).unwrap();
        gpu.instances.push(GpuInstance {
            id: GpuInstanceId(gpu.instances.len() as u32),
            profile,
            placement,
            compute: Vec::new(),
        });
        if places.len() == 1 {
            break;
        }
    }
    gpu
}

fn time(work: impl Fn()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn line(what: &str, times: &[Duration], base: Duration) {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let (median, slowest) = (median(times), times.iter().max().copied().unwrap_or_default());
    let ratio = us(median) / us(base);
    println!("{what:44} {:>7.1} us {:>7.1} us {ratio:>8.2}", us(median), us(slowest));
}
