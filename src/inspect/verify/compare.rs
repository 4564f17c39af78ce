//! Compares what CUDA gives with what a claim promises. Pure.

use super::report::{CudaReport, Visible};
use serde::Serialize;
use std::fmt;
use tranche_core::ledger::{Claim, Promise};
use tranche_core::types::MemorySize;
use tranche_plan::inventory::{HostDevice, Inventory};

/// A process has so many MiB less than its limit, because its context uses memory, too.
const CONTEXT_MIB: u64 = 1024;

/// MPS rounds the number of SMs down to a step of the hardware. The largest known step, of SMs.
const LARGEST_STEP: u64 = 8;

/// The fewest SMs that MPS can give: hardware before Hopper divides at pairs.
const FEWEST: u64 = 2;

/// What a claim promises, with what the host says about its device.
#[derive(Debug)]
pub(super) struct Promised {
    /// The name under which it was requested: `nvidia.com/gpu=0.big`.
    pub(super) cdi: String,
    /// The UUID of the device; `None` if the host does not say it.
    uuid: Option<String>,
    /// Its memory.
    memory: Option<MemorySize>,
    /// Its SMs, all of them.
    sms: Option<u64>,
    promise: Option<Promise>,
}

/// One question.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Check {
    /// The name of the claim; `null` for a device that is not of a claim.
    cdi: Option<String>,
    /// `device`, `memory`, `compute` or `mps`.
    check: &'static str,
    /// What is promised; `null` if nothing is.
    promised: Option<String>,
    /// What CUDA gives; `null` if it gave no answer.
    given: Option<String>,
    #[serde(flatten)]
    pub(super) verdict: PromiseVerdict,
}

/// How what CUDA gives compares with what is promised.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "why")]
pub(super) enum PromiseVerdict {
    AsPromised,
    Less(String),
    More(String),
    NotAsked(String),
    NotPromised,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claim = self.cdi.as_ref().map(|cdi| format!("{cdi} ")).unwrap_or_default();
        write!(f, "{claim}{}:", self.check)?;
        if let Some(promised) = &self.promised {
            write!(f, " promised {promised};")?;
        }
        if let Some(given) = &self.given {
            write!(f, " CUDA gives {given};")?;
        }
        match &self.verdict {
            PromiseVerdict::AsPromised => f.write_str(" as promised"),
            PromiseVerdict::Less(why) => write!(f, " LESS{}", after(why)),
            PromiseVerdict::More(why) => write!(f, " MORE THAN PROMISED{}", after(why)),
            PromiseVerdict::NotAsked(why) => write!(f, " not asked{}", after(why)),
            PromiseVerdict::NotPromised => f.write_str(" nothing is promised"),
        }
    }
}

fn after(why: &str) -> String {
    if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    }
}

impl Promised {
    /// What `claim` promises of a device. `inventory` is the host's, if that could be examined.
    pub(super) fn new(cdi: String, claim: &Claim, inventory: Option<&Inventory>) -> Self {
        let is_it = |device: &HostDevice<'_>| device.key() == claim.device;
        let device = inventory.and_then(|inventory| inventory.catalogue().all().find(is_it));
        let of_gpu = || {
            claim
                .device
                .instance()
                .is_none()
                .then(|| claim.device.gpu().to_string())
        };
        Self {
            cdi,
            uuid: device.and_then(|device| device.uuid()).or_else(of_gpu),
            memory: device.and_then(|device| device.memory()),
            sms: device.and_then(|device| device.sms()).map(u64::from),
            promise: claim.part.promise(),
        }
    }

    fn check(
        &self,
        check: &'static str,
        promised: Option<String>,
        given: Option<String>,
        verdict: PromiseVerdict,
    ) -> Check {
        Check {
            cdi: Some(self.cdi.clone()),
            check,
            promised,
            given,
            verdict,
        }
    }

    fn is_mps(&self) -> bool {
        matches!(self.promise, Some(Promise::Mps { .. }))
    }

    /// The device itself. Returns the one that CUDA shows, if it is there.
    fn device<'r>(&self, report: &'r CudaReport) -> (Check, Option<&'r Visible>) {
        let Some(uuid) = &self.uuid else {
            let why = PromiseVerdict::NotAsked("the host does not say the UUID of this device".to_owned());
            return (self.check("device", None, None, why), None);
        };
        let promised = Some(uuid.clone());
        // `MIG-GPU-…/7/0`, the form before driver 470.
        if let ([device], true) = (&report.devices[..], uuid.contains('/')) {
            let why = PromiseVerdict::NotAsked("CUDA does not name instances as this driver does".to_owned());
            let given = Some(device.shown().to_owned());
            return (self.check("device", promised, given, why), Some(device));
        }
        let is_it = |device: &&Visible| device.uuid.as_deref() == Some(without_kind(uuid));
        let found = report.devices.iter().find(is_it);
        let check = match found {
            Some(device) => self.check(
                "device",
                promised,
                Some(device.shown().to_owned()),
                PromiseVerdict::AsPromised,
            ),
            None => {
                let shown: Vec<&str> = report.devices.iter().map(Visible::shown).collect();
                let given = if shown.is_empty() {
                    "no device".to_owned()
                } else {
                    shown.join(", ")
                };
                self.check("device", promised, Some(given), PromiseVerdict::Less(String::new()))
            }
        };
        (check, found)
    }

    fn memory(&self, device: &Visible, report: &CudaReport) -> Check {
        let limit = self.promise.and_then(|promise| promise.memory()).map(MemorySize::mib);
        let (Some(free), Some(total)) = (device.free_mib(), device.total_mib()) else {
            let why = PromiseVerdict::NotAsked(device.why("memory_free"));
            return self.check("memory", limit.map(mib), None, why);
        };
        let largest = device
            .largest_allocation
            .map(|bytes| format!(", {} MiB in one block", bytes >> 20));
        let given = format!("{free} MiB free of {total} MiB{}", largest.unwrap_or_default());
        let verdict = match (limit, self.promise, self.memory.map(MemorySize::mib)) {
            (Some(limit), ..) => limited(limit, free, total, own_limit(report, device)),
            // The driver keeps a part of the memory for itself.
            (None, Some(Promise::Whole), Some(whole)) if total + CONTEXT_MIB < whole => {
                PromiseVerdict::Less(String::new())
            }
            (None, Some(Promise::Whole), Some(_)) => PromiseVerdict::AsPromised,
            _ => PromiseVerdict::NotPromised,
        };
        let promised = match (limit, self.promise) {
            (Some(limit), _) => Some(mib(limit)),
            (None, Some(Promise::Whole)) => self.memory.map(|whole| format!("all {} MiB", whole.mib())),
            _ => None,
        };
        self.check("memory", promised, Some(given), verdict)
    }

    fn compute(&self, device: &Visible) -> Check {
        let percent = self
            .promise
            .and_then(|promise| promise.compute())
            .map(|percent| percent.get().min(100));
        let text = |sms: u64| format!("{sms} SMs");
        let Some(percent) = percent else {
            let verdict = match device.sms {
                Some(_) => PromiseVerdict::NotPromised,
                None => PromiseVerdict::NotAsked(device.why("sms")),
            };
            return self.check("compute", None, device.sms.map(text), verdict);
        };
        let promised = self.sms.map(|all| all * u64::from(percent) / 100);
        let shown = promised.map_or_else(|| format!("{percent}%"), |sms| format!("{sms} SMs ({percent}%)"));
        let verdict = match (device.sms, promised) {
            (None, _) => PromiseVerdict::NotAsked(device.why("sms")),
            (Some(_), None) => {
                PromiseVerdict::NotAsked("the host does not say how many SMs the whole device has".to_owned())
            }
            (Some(sms), Some(promised)) if sms > promised.max(FEWEST) => PromiseVerdict::More(NO_LIMIT.to_owned()),
            (Some(sms), Some(promised)) if sms + LARGEST_STEP < promised || sms * 2 < promised => {
                PromiseVerdict::Less("a lower ceiling is in effect".to_owned())
            }
            (Some(_), Some(_)) => PromiseVerdict::AsPromised,
        };
        self.check("compute", Some(shown), device.sms.map(text), verdict)
    }

    fn mps(&self, device: &Visible, report: &CudaReport) -> Check {
        let promised = self.is_mps().then(|| "a client of its MPS daemon".to_owned());
        let given = device
            .mps
            .map(|mps| if mps { "a client of MPS" } else { "no MPS" }.to_owned());
        let verdict = match (self.is_mps(), device.mps) {
            (true, Some(true)) => PromiseVerdict::AsPromised,
            (true, Some(false)) => PromiseVerdict::More(format!("{NO_LIMIT}; {}", daemon(report))),
            (true, None) => PromiseVerdict::NotAsked(format!("{}; {}", device.why("mps"), daemon(report))),
            (false, Some(_)) => PromiseVerdict::NotPromised,
            (false, None) => PromiseVerdict::NotAsked(device.why("mps")),
        };
        self.check("mps", promised, given, verdict)
    }
}

const NO_LIMIT: &str = "no limit is in effect";

fn mib(mib: u64) -> String {
    format!("{mib} MiB")
}

/// A UUID without the word for the kind of device, which CUDA does not say.
fn without_kind(uuid: &str) -> &str {
    let rest = uuid.strip_prefix("GPU-").or_else(|| uuid.strip_prefix("MIG-"));
    rest.unwrap_or(uuid)
}

/// What the program saw of the daemon.
fn daemon(report: &CudaReport) -> String {
    let directory = &report.mps.pipe_directory;
    match (report.mps.accepts, report.mps.errno) {
        (true, _) => format!("a daemon accepts connections in {directory}"),
        (false, Some(errno)) => {
            let error = std::io::Error::from_raw_os_error(errno);
            format!("no daemon can be reached in {directory}: {error}")
        }
        (false, None) => format!("no daemon can be reached in {directory}"),
    }
}

/// The limit in MiB that the process itself has set for the device, if it is one that can be understood.
fn own_limit(report: &CudaReport, device: &Visible) -> Option<u64> {
    let entries = report.environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")?;
    let of_device = entries.split(',').find_map(|entry| {
        let (name, size) = entry.split_once('=')?;
        let name = name.trim();
        // An index counts the devices that the process sees.
        let is_meant = match name.parse::<usize>() {
            Ok(index) => report.devices.get(index).is_some_and(|other| other.uuid == device.uuid),
            Err(_) => device.uuid.as_deref() == Some(without_kind(name)),
        };
        is_meant.then_some(size.trim())
    })?;
    let size = of_device.trim_end_matches('B');
    let number = |unit: char| size.strip_suffix(unit)?.parse::<u64>().ok();
    number('M').or_else(|| number('G')?.checked_mul(1024))
}

/// How free memory compares with a limit. `own` is the limit that the process has set for itself.
fn limited(limit: u64, free: u64, total: u64, own: Option<u64>) -> PromiseVerdict {
    if free > limit {
        return PromiseVerdict::More(NO_LIMIT.to_owned());
    }
    if total < limit {
        return PromiseVerdict::Less(String::new());
    }
    if let Some(own) = own.filter(|own| *own < limit) {
        return PromiseVerdict::Less(format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT says {own} MiB"));
    }
    match free + CONTEXT_MIB.min(limit / 2) < limit {
        true => PromiseVerdict::NotAsked(
            "whether processes on the device use the rest, or a lower limit is in effect; no more than promised is free"
                .to_owned(),
        ),
        false => PromiseVerdict::AsPromised,
    }
}

/// The answer to each question, in the order in which they are printed.
pub(super) fn checks(promised: &[Promised], report: &CudaReport) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(error) = &report.error {
        let verdict = match promised {
            [] => PromiseVerdict::NotAsked(error.clone()),
            _ => PromiseVerdict::Less(error.clone()),
        };
        checks.push(Check {
            cdi: None,
            check: "cuda",
            promised: (!promised.is_empty()).then(|| "a device".to_owned()),
            given: None,
            verdict,
        });
        return checks;
    }
    let mut seen: Vec<&Visible> = Vec::new();
    for one in promised {
        let (check, device) = one.device(report);
        checks.push(check);
        if let Some(device) = device {
            checks.extend([one.memory(device, report), one.compute(device), one.mps(device, report)]);
            seen.push(device);
        }
    }
    let others = report
        .devices
        .iter()
        .filter(|device| !seen.iter().any(|other| std::ptr::eq(*other, *device)));
    for device in others {
        // A process sees one MPS daemon, so a container with such a share has no other device.
        let verdict = match promised.iter().any(Promised::is_mps) {
            true => PromiseVerdict::More("a container with a share under MPS has no other device".to_owned()),
            false => PromiseVerdict::NotPromised,
        };
        checks.push(Check {
            cdi: None,
            check: "device",
            promised: None,
            given: Some(format!("{}: {}", device.shown(), device.text())),
            verdict,
        });
    }
    checks
}

#[cfg(test)]
mod tests;
