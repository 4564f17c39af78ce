//! Who has worked since the last look.

use crate::control::MachineControl;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::error::line;
use tranche_core::ledger::process::{Lineage, Machine};
use tranche_core::ledger::{Books, Claim, ClaimState};
use tranche_core::types::GpuUuid;
use tranche_plan::idle::{GpuWork, Work};

/// Whether each of `watched` has worked. `books` has them with all other claims.
pub(super) fn of<'c>(
    watched: &[&'c Claim],
    books: &Books,
    control: &dyn MachineControl,
    machine: &Machine,
) -> Vec<(&'c Claim, Work)> {
    let gpus: BTreeSet<GpuUuid> = watched
        .iter()
        .filter(|claim| cannot_be_told(claim, machine).is_none())
        .map(|claim| claim.device.gpu().clone())
        .collect();
    let gpus: Vec<GpuUuid> = gpus.into_iter().collect();
    let asked = match gpus.is_empty() {
        true => Ok(Vec::new()),
        false => control.driver().map_err(|error| line(&error)).and_then(|driver| {
            let work = driver.nvml.work(&gpus);
            work.map_err(|failure| failure.to_string())
        }),
    };
    let answers: BTreeMap<&GpuUuid, Result<GpuWork, String>> = match asked {
        Ok(work) => gpus.iter().zip(work).collect(),
        Err(why) => gpus.iter().map(|gpu| (gpu, Err(why.clone()))).collect(),
    };
    let of = |claim: &&'c Claim| {
        let work = match (cannot_be_told(claim, machine), answers.get(claim.device.gpu())) {
            (Some(work), _) => work,
            (None, Some(Ok(work))) => {
                let on_gpu = books.claims().filter(|other| other.device.gpu() == claim.device.gpu());
                attribute(claim, &on_gpu.collect::<Vec<_>>(), work, |pid| machine.lineage(pid))
            }
            (None, Some(Err(why))) => Work::Unknown(why.clone()),
            (None, None) => Work::Unknown("NVML was not asked".to_owned()),
        };
        (*claim, work)
    };
    watched.iter().map(of).collect()
}

/// What is known of a claim without NVML.
fn cannot_be_told(claim: &Claim, machine: &Machine) -> Option<Work> {
    let unknown = |why: &str| Some(Work::Unknown(why.to_owned()));
    match &claim.process {
        _ if claim.state == ClaimState::Reserved => Some(Work::Nothing),
        _ if !claim.device.is_whole() => unknown("NVML does not say who works on a MIG device"),
        None => unknown("the process that holds it is unknown"),
        Some(process) if !machine.sees(process) => unknown("its processes are in another pid namespace"),
        Some(_) => None,
    }
}

/// Whether `claim` has worked, among all claims on its GPU. Work that belongs to no claim counts for each of them: that
/// of a server of MPS, of a process that has ended since, and of a GPU that is busy while no process is named.
fn attribute(claim: &Claim, on_gpu: &[&Claim], work: &GpuWork, lineage: impl Fn(u32) -> Option<Lineage>) -> Work {
    let belongs = |lineage: &Lineage, claim: &Claim| {
        let process = claim.process.as_ref();
        process.is_some_and(|process| lineage.is_of(process))
    };
    let counts = |pid: &u32| {
        let Some(lineage) = lineage(*pid) else { return true };
        belongs(&lineage, claim) || !on_gpu.iter().any(|other| belongs(&lineage, other))
    };
    let is_of_nobody = work.is_busy && work.processes.is_empty();
    match is_of_nobody || work.processes.iter().any(counts) {
        true => Work::Done,
        false => Work::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ending::tests::claim;
    use super::*;
    use std::process::{Child, Command};
    use tranche_core::ledger::{Holder, InitProcess};

    fn sleeping() -> Child {
        Command::new("sleep").arg("1000").spawn().unwrap()
    }

    #[test]
    fn work_counts_for_its_claim_and_that_of_nobody_for_each() {
        let machine = Machine::here().unwrap();
        let children = [sleeping(), sleeping(), sleeping()];
        let [a, b, _] = [0, 1, 2].map(|n: usize| claim(&machine.process(children[n].id()).unwrap(), 1000));
        let works = |processes: &[u32], is_busy| {
            let work = GpuWork {
                processes: processes.iter().copied().collect(),
                is_busy,
            };
            [&a, &b].map(|claim| attribute(claim, &[&a, &b], &work, |pid| machine.lineage(pid)) == Work::Done)
        };
        let [of_a, of_b, stranger] = [0, 1, 2].map(|n: usize| children[n].id());
        assert_eq!(works(&[], false), [false, false]);
        assert_eq!(works(&[of_a], true), [true, false]);
        assert_eq!(works(&[of_b], true), [false, true]);
        assert_eq!(works(&[of_a, stranger], false), [true, true]);
        assert_eq!(works(&[], true), [true, true], "busy, and no process is named");
        // A process that has ended since.
        let mut ended = sleeping();
        ended.kill().unwrap();
        ended.wait().unwrap();
        assert_eq!(works(&[ended.id()], false), [true, true]);
        for mut child in children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_nvml_cannot_tell_is_unknown_and_what_nobody_uses_does_nothing() {
        let machine = Machine::here().unwrap();
        let own = machine.process(std::process::id()).unwrap();
        let unknown = |claim: &Claim| match cannot_be_told(claim, &machine) {
            Some(Work::Unknown(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(cannot_be_told(&claim(&own, 1000), &machine), None);
        let mig = Claim {
            device: "GPU-11111111/7/0".parse().unwrap(),
            ..claim(&own, 1000)
        };
        assert_eq!(unknown(&mig), "NVML does not say who works on a MIG device");
        let without_process = Claim {
            process: None,
            ..claim(&own, 1000)
        };
        assert_eq!(unknown(&without_process), "the process that holds it is unknown");
        let elsewhere = InitProcess {
            namespace: own.namespace + 1,
            ..own
        };
        assert_eq!(
            unknown(&claim(&elsewhere, 1000)),
            "its processes are in another pid namespace"
        );
        let reserved = Claim {
            state: ClaimState::Reserved,
            holder: Holder::Person,
            ..mig
        };
        assert_eq!(cannot_be_told(&reserved, &machine), Some(Work::Nothing));
    }
}
