//! How many iterations a request has that takes a given time alone.

use crate::failure::Failure;
use crate::gpu::Gpu;
use crate::input::Input;
use inside::sys::clock;

/// Requests of which the median is taken.
const SAMPLE: usize = 20;
/// How long requests are made before the result is measured, in nanoseconds: a GPU at rest has slow clocks.
const WARM: u64 = 300_000_000;
/// How often the number is corrected by a measurement.
const CORRECTIONS: u32 = 3;
const MOST_FMA: u64 = 1 << 32;

/// Iterations, and how long a request with them takes, in nanoseconds.
pub(crate) struct Found {
    pub(crate) fma: u64,
    pub(crate) request_ns: u64,
}

/// Finds the iterations with which a request takes `target` nanoseconds; 1 if its copy alone takes longer.
pub(crate) fn calibrate(gpu: &Gpu<'_>, target: u64, input: &mut Input) -> Result<Found, Failure> {
    let mut median = |fma: u64| -> Result<u64, Failure> {
        let mut sample = [0; SAMPLE];
        for place in &mut sample {
            input.look()?;
            let began = clock::now();
            gpu.request(fma)?;
            *place = clock::now().saturating_sub(began);
        }
        sample.sort_unstable();
        let middle = sample.get(SAMPLE / 2 - 1..=SAMPLE / 2).unwrap_or_default();
        Ok(middle.iter().sum::<u64>() / 2)
    };
    let mut fma = 16;
    while median(fma)? < target / 2 && fma < MOST_FMA {
        fma *= 2;
    }
    let began = clock::now();
    while clock::now().saturating_sub(began) < WARM {
        median(fma)?;
    }
    // A line through two points: the request without a chain, and the request with this one.
    let base = median(1)?;
    for _ in 0..CORRECTIONS {
        let more = median(fma)?.saturating_sub(base).max(1);
        let wanted = u128::from(target.saturating_sub(base)) * u128::from(fma) / u128::from(more);
        fma = u64::try_from(wanted).unwrap_or(MOST_FMA).clamp(1, MOST_FMA);
    }
    let request_ns = median(fma)?;
    Ok(Found { fma, request_ns })
}
