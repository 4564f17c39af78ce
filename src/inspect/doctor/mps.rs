//! Whether the MPS daemons are those that shares need, and nothing is left of others.

use super::subject::{DaemonCondition, exists};
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::BTreeMap;
use tranche_core::text::some;

/// The daemon.
pub(super) const DAEMON: &str = "nvidia-cuda-mps-control";

/// The directory of clients that do not name one, and the socket that a daemon makes in it.
const DIRECTORY: &str = "/tmp/nvidia-mps";
const SOCKET: &str = "/tmp/nvidia-mps/control";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let managed = &subject.mps.managed;
    let mut conditions: BTreeMap<DaemonCondition, Vec<&str>> = BTreeMap::new();
    for (name, is) in managed {
        conditions.entry(*is).or_default().push(name);
    }
    // After an upgrade, for example, the daemons of all devices are of the earlier version, for one reason.
    let mut found: Vec<Diagnosis> = conditions
        .iter()
        .filter_map(|(is, names)| of(&some(names), *is))
        .collect();
    found.extend(subject.mps.stopped.iter().map(|error| {
        Diagnosis::wrong(
            Finding::MpsStopped,
            error.found.clone(),
            "the policy says daemon: external, and a share is refused while its daemon does not run",
            error.fix_or("start it; tranche plan prints the commands"),
        )
    }));
    let running: Vec<String> = subject.daemons_of(DAEMON).map(|pid| pid.to_string()).collect();
    let runs = |is: &DaemonCondition| {
        use DaemonCondition::{OfEarlierVersion, ServerFailed, Working};
        matches!(is, Working | OfEarlierVersion | ServerFailed)
    };
    let working = managed.iter().filter(|(_, is)| runs(is)).count();
    // A foreign daemon of a managed device is reported above.
    let is_reported = managed.iter().any(|(_, is)| *is == DaemonCondition::Foreign);
    if running.len() > working && !subject.mps.is_external && !is_reported {
        found.push(Diagnosis::advice(Finding::MpsUnknown,
            format!(
                "{} by tranche, and these processes are {DAEMON}: {}",
                tranche_core::text::counted(working, "MPS daemon"),
                some(&running)
            ),
            "a device that another program's daemon has gives no share under MPS",
            "if nothing needs it: echo quit | nvidia-cuda-mps-control, with its CUDA_MPS_PIPE_DIRECTORY; if you run it for \
             tranche, set sharing.mps.daemon: external",
        ));
    }
    if running.is_empty() && exists(&subject.at(SOCKET)) {
        found.push(Diagnosis::advice(
            Finding::MpsLeftOver,
            format!("{SOCKET} is left of an MPS daemon that does not run any more"),
            "programs on the host that find it wait for the daemon instead of using the GPU",
            Fix::command(format!("rm -r {DIRECTORY}")),
        ));
    }
    if found.is_empty() {
        found.push(match (working, running.len()) {
            (0, 0) => Diagnosis::good("no daemon runs, and nothing is left of one"),
            (0, _) => Diagnosis::good("the operator runs the daemons"),
            (count, _) => Diagnosis::good(format!("{} by tranche", tranche_core::text::counted(count, "daemon"))),
        });
    }
    found
}

/// What is wrong with the daemons of devices.
fn of(device: &str, condition: DaemonCondition) -> Option<Diagnosis> {
    match condition {
        DaemonCondition::Working => None,
        DaemonCondition::OfEarlierVersion => Some(Diagnosis::wrong(
            Finding::MpsEarlierVersion,
            format!("{device}: an earlier version of tranche started the MPS daemon"),
            "its containers can write the daemon's directory, so nothing is guaranteed to them, and no other container \
             gets a share of the device",
            "end the containers that hold shares of the device; the daemon is replaced then",
        )),
        DaemonCondition::ServerFailed => Some(Diagnosis::wrong(
            Finding::MpsServerFailed,
            format!("{device}: the MPS daemon runs, and the server that it starts for clients does not"),
            "CUDA programs in the share fail with error 805, and no further share of the device is given out",
            "tranche mps status shows the last line of the server",
        )),
        DaemonCondition::Failed => Some(Diagnosis::wrong(
            Finding::MpsFailed,
            format!("{device}: the MPS daemon does not run, and could not be started again"),
            "no share of the device is given out",
            "tranche mps status says why",
        )),
        DaemonCondition::Foreign => Some(Diagnosis::wrong(
            Finding::MpsForeign,
            format!("{device}: another program runs the MPS daemon"),
            "no share of the device is given out, and tranche leaves the daemon alone",
            "stop that daemon, or set sharing.mps.daemon: external",
        )),
    }
}
