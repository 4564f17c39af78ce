//! What shares need of the broker and of MPS daemons, asked as the start of a container asks.

use crate::doctor::{BrokerCondition, DaemonCondition, FoundError, MpsFacts};
use std::path::Path;
use std::time::Duration;
use tranche_core::broker::{self, BrokerError};
use tranche_core::error::Error;
use tranche_core::mps::check_daemon;
use tranche_core::types::HostPath;
use tranche_plan::policy::MpsDaemonOwner;
use tranche_plan::share::{Method, Need, Plan, SplitDevice};
use tranche_protocol::StatusRequest;
use tranche_state::controlled::DaemonState;
use tranche_state::public_status::PublicStatus;

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

fn name(split: &SplitDevice) -> String {
    format!("{}={}", split.kind, split.device.cdi_name())
}

/// Whether the broker of `state_dir` answers, if a share of `plan` needs it, or instances of MIG that are made on
/// demand.
pub(super) fn broker(plan: &Plan, makes_instances: bool, state_dir: &Path) -> BrokerCondition {
    let managed = plan.devices.iter().filter(|split| split.method.is_managed());
    let instances = makes_instances.then(|| "nvidia.com/gpu=mig-….any".to_owned());
    let devices: Vec<String> = managed.map(name).chain(instances).collect();
    if devices.is_empty() {
        return BrokerCondition::NotNeeded;
    }
    match broker::tell(&state_dir.join(broker::SOCKET), &StatusRequest {}, PATIENCE) {
        Ok(()) => BrokerCondition::Works,
        Err(BrokerError::Unreachable(why)) => BrokerCondition::Stopped {
            devices,
            why: why.to_string(),
        },
        Err(BrokerError::Refused(error)) => BrokerCondition::Refuses(FoundError::of(&error)),
    }
}

/// The MPS daemons: those of the broker as it tells everybody, and those that the policy leaves to the operator.
pub(super) fn mps(public: Option<&PublicStatus>, plan: Option<&Plan>, state_dir: Option<&HostPath>) -> MpsFacts {
    let devices = public.into_iter().flat_map(|public| &public.devices);
    let managed = devices.filter_map(|device| {
        let daemon = device.daemon.as_ref()?;
        let condition = match daemon.state {
            DaemonState::Running if daemon.is_of_earlier_version => DaemonCondition::OfEarlierVersion,
            DaemonState::Starting | DaemonState::Running | DaemonState::Stopping => DaemonCondition::Working,
            DaemonState::Failed => DaemonCondition::Failed,
            DaemonState::ServerFailed => DaemonCondition::ServerFailed,
            DaemonState::Foreign => DaemonCondition::Foreign,
        };
        Some((device.device.clone(), condition))
    });
    let mut facts = MpsFacts {
        managed: managed.collect(),
        ..MpsFacts::default()
    };
    let Some(state_dir) = state_dir else {
        return facts;
    };
    for split in plan.into_iter().flat_map(|plan| &plan.devices) {
        let is_external = matches!(&split.method, Method::Mps(mps) if mps.daemon == MpsDaemonOwner::External);
        facts.is_external |= is_external;
        for need in split.needs(state_dir) {
            let Need::MpsDaemon { pipe, .. } = need else { continue };
            let asked = is_external.then(|| check_daemon(pipe.as_path(), &name(split)));
            facts
                .stopped
                .extend(asked.and_then(Result::err).map(|error: Error| FoundError::of(&error)));
            facts.pipes.push(pipe.as_path().to_owned());
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_on_demand_need_the_broker() {
        let nowhere = tempfile::tempdir().unwrap();
        let asked = |makes_instances| broker(&Plan::default(), makes_instances, nowhere.path());
        assert!(matches!(asked(false), BrokerCondition::NotNeeded));
        assert!(matches!(asked(true), BrokerCondition::Stopped { .. }));
    }
}
