//! What each role does between the begin and the end of a run, and what it prints.

use crate::arguments::{Options, Role};
use crate::calibrate::calibrate;
use crate::failure::{Error, Failure};
use crate::gpu::{Gpu, PROBE};
use crate::input::{Input, MOST, Times};
use core::fmt::Write;
use inside::json::{Escaped, Output};
use inside::sys::clock;
use inside::sys::cuda::Unanswered;
use inside::sys::deadline::step;
use inside::sys::records::Records;

/// The first and the last size of the blocks that `greedy` allocates: CUDA has pages of 2 MiB.
const LARGEST: u64 = 256 << 20;
const SMALLEST: u64 = 2 << 20;

/// Pieces of work: when each was intended, was begun and was done, after the begin of the run, and its units. One that
/// was not begun is done at 0.
type Pieces = Records<[u64; 4]>;

/// Runs a role from its first line of output to its last one.
pub(crate) fn run(gpu: &mut Gpu<'_>, options: &Options, out: &mut Output) -> Result<(), Failure> {
    let mut input = Input::new();
    let mut schedule = Records::new(MOST).ok_or(Failure::NoRoom)?;
    let mut pieces: Pieces = Records::new(MOST).ok_or(Failure::NoRoom)?;
    gpu.ready(out)?;
    if options.role == Role::Calibrate {
        let found = calibrate(gpu, options.target_us.saturating_mul(1000), &mut input)?;
        let (fma, took) = (found.fma, found.request_ns);
        writeln!(out, "{{\"event\":\"calibrated\",\"fma\":{fma},\"request_ns\":{took}}}")?;
        return end(out);
    }
    step(c"the input");
    let times = input.start((options.role == Role::Serve).then_some(&mut schedule))?;
    step(c"the work");
    input.wait_until(times.begin)?;
    let ran = match options.role {
        Role::Greedy => greedy(gpu, times, &mut input, out),
        Role::Fault => fault(gpu, options, out),
        Role::Probe => probe(gpu, out),
        Role::Keep => keep(gpu, out),
        Role::Serve if !schedule.all().is_empty() => {
            let served = serve(gpu, options.fma, schedule.all(), times, &mut input, &mut pieces);
            served.or_else(Unfinished::of)
        }
        role => {
            let piece = || match role {
                Role::HogSm => gpu.spin().map(|()| 1),
                Role::HogDram | Role::HogL2 => gpu.copy(),
                Role::HogPcie => gpu.exchange(),
                _ => gpu.request(options.fma).map(|()| 1),
            };
            let worked = work(piece, times, &mut input, &mut pieces);
            worked.or_else(Unfinished::of)
        }
    }?;
    print(&pieces, options.role, out)?;
    match ran {
        Ran::Whole => end(out),
        Ran::Until(failure) => Err(failure),
    }
}

/// How far a run came.
enum Ran {
    Whole,
    /// Until a call failed. What was done before is reported.
    Until(Failure),
}

struct Unfinished;

impl Unfinished {
    /// A run that a failed call ended is reported as far as it came, and another one is not.
    fn of(failure: Failure) -> Result<Ran, Failure> {
        match failure {
            Failure::Call(_) => Ok(Ran::Until(failure)),
            other => Err(other),
        }
    }
}

fn end(out: &mut Output) -> Result<(), Failure> {
    writeln!(out, "{{\"event\":\"end\",\"at\":{}}}", clock::now())?;
    flush(out)
}

fn flush(out: &mut Output) -> Result<(), Failure> {
    match out.flush() {
        true => Ok(()),
        false => Err(Failure::OutputClosed),
    }
}

/// Serves each request at its intended time, or as soon as the ones before it are done. One whose turn comes after the
/// end is not begun.
fn serve(
    gpu: &Gpu<'_>,
    fma: u64,
    schedule: &[u64],
    times: Times,
    input: &mut Input,
    pieces: &mut Pieces,
) -> Result<Ran, Failure> {
    let length = times.end - times.begin;
    for intended in schedule.iter().copied() {
        let due = times.begin.saturating_add(intended);
        if intended < length && clock::now() < times.end {
            input.wait_until(due)?;
        }
        let began = clock::now().saturating_sub(times.begin);
        let piece = match intended < length && began < length {
            true => {
                gpu.request(fma)?;
                [intended, began, clock::now().saturating_sub(times.begin), 1]
            }
            false => [intended, 0, 0, 0],
        };
        add(pieces, piece)?;
    }
    // The run lasts until its end.
    input.wait_until(times.end)?;
    Ok(Ran::Whole)
}

/// Does one piece of work after another until the end.
fn work(
    mut piece: impl FnMut() -> Result<u64, Unanswered>,
    times: Times,
    input: &mut Input,
    pieces: &mut Pieces,
) -> Result<Ran, Failure> {
    loop {
        input.look()?;
        let now = clock::now();
        if now >= times.end {
            return Ok(Ran::Whole);
        }
        let began = now.saturating_sub(times.begin);
        let units = piece()?;
        add(pieces, [began, began, clock::now().saturating_sub(times.begin), units])?;
    }
}

fn add(pieces: &mut Pieces, piece: [u64; 4]) -> Result<(), Failure> {
    match pieces.push(piece) {
        true => Ok(()),
        false => Err(Failure::TooMany(MOST)),
    }
}

fn print(pieces: &Pieces, role: Role, out: &mut Output) -> Result<(), Failure> {
    for [intended, began, done, units] in pieces.all() {
        match (role, done) {
            (Role::Serve, 0) => writeln!(out, "{{\"event\":\"late\",\"intended\":{intended}}}")?,
            (Role::Serve, _) => writeln!(
                out,
                "{{\"event\":\"served\",\"intended\":{intended},\"began\":{began},\"done\":{done}}}"
            )?,
            _ => writeln!(
                out,
                "{{\"event\":\"finished\",\"began\":{began},\"done\":{done},\"units\":{units}}}"
            )?,
        }
    }
    Ok(())
}

/// Allocates until CUDA refuses the smallest block, and holds the memory until the end.
fn greedy(gpu: &Gpu<'_>, times: Times, input: &mut Input, out: &mut Output) -> Result<Ran, Failure> {
    let (mut bytes, mut blocks, mut size) = (0, 0_u64, LARGEST);
    let (call, code) = loop {
        input.look()?;
        match gpu.take(size) {
            Ok(()) => {
                bytes += size;
                blocks += 1;
            }
            Err(Unanswered::Error(_, 2)) if size > SMALLEST => size /= 2,
            Err(Unanswered::Error(call, code @ 2)) => break (call, code),
            Err(other) => return Err(other.into()),
        }
    };
    let name = Escaped(gpu.cuda.error_name(code).unwrap_or_default());
    writeln!(out, "{{\"event\":\"allocated\",\"bytes\":{bytes},\"blocks\":{blocks}}}")?;
    let call = Escaped(call.to_bytes());
    writeln!(
        out,
        "{{\"event\":\"refused\",\"call\":\"{call}\",\"code\":{code},\"name\":\"{name}\",\"bytes\":{size}}}"
    )?;
    flush(out)?;
    input.wait_until(times.end)?;
    Ok(Ran::Whole)
}

fn fault(gpu: &Gpu<'_>, options: &Options, out: &mut Output) -> Result<Ran, Failure> {
    match gpu.fail(options.kind) {
        Ok(()) => Err(Failure::NoFault),
        Err(missing @ Unanswered::Missing(_)) => Err(missing.into()),
        Err(Unanswered::Error(_, code)) => {
            let (event, name) = ("faulted", gpu.cuda.error_name(code));
            let call = None;
            Error {
                event,
                call,
                code,
                name,
            }
            .print(out)?;
            Ok(Ran::Whole)
        }
    }
}

fn keep(gpu: &mut Gpu<'_>, out: &mut Output) -> Result<Ran, Failure> {
    let (bytes, wrong) = gpu.compare()?;
    writeln!(out, "{{\"event\":\"compared\",\"bytes\":{bytes},\"wrong\":{wrong}}}")?;
    Ok(Ran::Whole)
}

fn probe(gpu: &mut Gpu<'_>, out: &mut Output) -> Result<Ran, Failure> {
    // A bit for each number. No device has more SMs.
    let mut seen = [0_u64; 64];
    for sm in gpu.seen()? {
        if let Some(word) = usize::try_from(sm / 64).ok().and_then(|at| seen.get_mut(at)) {
            *word |= 1 << (sm % 64);
        }
    }
    out.write_str("{\"event\":\"probed\",\"sms\":[")?;
    let numbers = (0..64 * 64).filter(|sm| seen.get(sm / 64).is_some_and(|word| word >> (sm % 64) & 1 == 1));
    for (at, sm) in numbers.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(out, "{comma}{sm}")?;
    }
    writeln!(out, "],\"blocks\":{}}}", PROBE.0)?;
    Ok(Ran::Whole)
}
