//! Wishes from what runs: what processes used of the GPUs, at several times.
//!
//! What a process needs and cannot be seen (a bound of latency, tenants who do not trust one another) is in no wish.

use super::wishes::{Trust, Wishes, Workload, WorkloadKind};
use serde::Serialize;
use std::collections::BTreeMap;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::text::counted;
use tranche_core::types::MemorySize;

/// What a process used of a device at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// The name of its program.
    pub program: String,
    /// What it is a part of: its container or itself, on this device. What has several processes counts once.
    pub holder: String,
    /// Its memory of the device; `None` if the driver does not report it.
    pub memory: Option<MemorySize>,
    /// Percent of the last sample period in which a kernel of it ran; `None` if the driver does not report it.
    pub busy: Option<u32>,
}

/// What was seen of the containers of one program, and the wish that it became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observed {
    /// The name of the wish.
    pub wish: String,
    /// The program.
    pub program: String,
    /// What its containers do, as their work looked.
    pub kind: WorkloadKind,
    /// The most of them at the same time.
    pub count: u32,
    /// The most memory that one of them had, in MiB.
    pub memory_mib: Option<u64>,
    /// Percent of the time in which kernels of one of them ran, on average.
    pub busy_percent: Option<u32>,
    /// Percent of the looks in which no kernel of one of them had run.
    pub idle_percent: Option<u32>,
}

/// From this average on, in percent, a program fills a GPU: training.
const FILLS: u32 = 80;

/// A program that was idle in so many of the looks, in percent, works with pauses: a notebook.
const PAUSES: u32 = 50;

/// What one program used.
#[derive(Debug, Default)]
struct Program {
    most: usize,
    memory: Option<MemorySize>,
    busy: Vec<u32>,
}

/// The wishes, and what each rests on. `looks` has what was used at each time.
///
/// # Errors
/// Returns an error of [`Kind::Nothing`] if nothing was seen, and the errors of [`Wishes::check`].
pub fn wishes(looks: &[Vec<Used>]) -> Result<(Wishes, Vec<Observed>)> {
    let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
    for look in looks {
        let mut holders: BTreeMap<(&str, &str), Vec<&Used>> = BTreeMap::new();
        for used in look {
            holders.entry((&used.program, &used.holder)).or_default().push(used);
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((name, _), parts) in holders {
            let program = programs.entry(name).or_default();
            // Of parts that are not all known, the sum is not known either.
            let memory: Option<u64> = parts.iter().map(|part| Some(part.memory?.mib())).sum();
            let busy: Option<u32> = parts.iter().map(|part| part.busy).sum();
            program.memory = program.memory.max(memory.map(MemorySize::from_mib));
            program.busy.extend(busy.map(|busy| busy.min(100)));
            let count = counts.entry(name).or_default();
            *count += 1;
            program.most = program.most.max(*count);
        }
    }
    if programs.is_empty() {
        let error = Error::new(Kind::Nothing, "GPUs", "no process has used one in this time");
        return Err(error.hint("observe for longer, or write wishes to a file: tranche advise --help"));
    }
    let seen: Vec<Observed> = programs
        .iter()
        .zip(1..)
        .map(|(one, number)| observed(one, number))
        .collect();
    let workloads = seen.iter().map(workload).collect::<Result<_>>()?;
    let wishes = Wishes {
        file: "what runs".to_owned(),
        trust: Trust::Team,
        workloads,
    };
    wishes.check()?;
    Ok((wishes, seen))
}

fn observed((name, program): (&&str, &Program), number: usize) -> Observed {
    let percent = |part: usize| u32::try_from(part / program.busy.len().max(1)).ok();
    let is_known = !program.busy.is_empty();
    let busy = percent(program.busy.iter().map(|busy| *busy as usize).sum()).filter(|_| is_known);
    let idle = percent(program.busy.iter().filter(|busy| **busy == 0).count() * 100).filter(|_| is_known);
    let kind = match (busy, idle) {
        (Some(FILLS..), _) => WorkloadKind::Training,
        (_, Some(PAUSES..)) => WorkloadKind::Notebook,
        _ => WorkloadKind::Service,
    };
    Observed {
        wish: format!("{kind}{number}"),
        program: (*name).to_owned(),
        kind,
        count: u32::try_from(program.most).unwrap_or(u32::MAX),
        memory_mib: program.memory.map(MemorySize::mib),
        busy_percent: busy,
        idle_percent: idle,
    }
}

fn workload(seen: &Observed) -> Result<Workload> {
    Ok(Workload {
        memory: seen.memory_mib.map(with_room),
        ..Workload::new(seen.wish.parse()?, seen.kind, seen.count)
    })
}

/// A tenth more than was seen, in whole quarters of a GiB: a limit that is just reached ends a program.
fn with_room(mib: u64) -> MemorySize {
    const QUARTER: u64 = 256;
    MemorySize::from_mib((mib + mib / 10).div_ceil(QUARTER).max(1) * QUARTER)
}

/// Sizes are shown in tenths of a GiB elsewhere, and this one is copied to a file.
fn exactly(size: MemorySize) -> String {
    match size.mib() {
        mib if mib % 1024 == 0 => format!("{}Gi", mib / 1024),
        mib => format!("{mib}Mi"),
    }
}

impl std::fmt::Display for Observed {
    /// `{name: training1, kind: training, count: 2, memory: 8Gi}: python3 in 2 containers, 7012 MiB at most, kernels in
    /// 92 % of the time, idle in 3 % of the looks`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { wish, kind, count, .. } = self;
        let memory = self
            .memory_mib
            .map(|mib| format!(", memory: {}", exactly(with_room(mib))));
        write!(
            f,
            "{{name: {wish}, kind: {kind}, count: {count}{}}}",
            memory.unwrap_or_default()
        )?;
        let count = counted(self.count as usize, "container");
        let memory = self
            .memory_mib
            .map_or("of unknown memory".to_owned(), |mib| format!("{mib} MiB at most"));
        let busy = match self.busy_percent.zip(self.idle_percent) {
            Some((busy, idle)) => format!("kernels in {busy} % of the time, idle in {idle} % of the looks"),
            None => "its kernels are not reported".to_owned(),
        };
        write!(
            f,
            ": {} in {count}, {memory}, {busy}",
            tranche_core::text::shown(&self.program)
        )
    }
}
