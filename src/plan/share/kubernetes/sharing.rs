//! What the configuration of a resource claim says about sharing its device.

use super::DraPart;
use crate::share::{Need, SplitDevice};
use tranche_core::error::{Error, Result};
use tranche_core::types::{HostPath, Interval, Promise, Strategy};
use tranche_protocol::{AllocatedDevice, ClaimSharing};

/// Refuses devices of one request with which no container could start: a container of a request gets all of its
/// devices, and one with an MPS share can have nothing else.
///
/// # Errors
/// Returns the two devices, and what to ask for.
pub fn dra_together<'p>(parts: impl Iterator<Item = (&'p AllocatedDevice, &'p DraPart<'p>)> + Clone) -> Result<()> {
    let shares = parts
        .clone()
        .filter(|(_, part)| part.split.method.strategy() == Strategy::Mps);
    for (share, _) in shares {
        let mut others = parts.clone().map(|(device, _)| device);
        let is_beside = |other: &&AllocatedDevice| {
            let is_same = (&other.device, &other.share_id) == (&share.device, &share.share_id);
            !share.request.is_empty() && other.request == share.request && !is_same
        };
        if let Some(other) = others.find(is_beside) {
            let both = match share.device == other.device {
                true => format!("two parts of {}", share.device),
                false => format!("{} and {}", share.device, other.device),
            };
            let what = format!("gives a container {both}, and a container with an MPS share can have nothing else");
            return Err(Error::failed(format!("request {}", share.request), what).hint(
                "ask for more of one device by capacity.requests, for whole GPUs by the class gpu.tranche.dev, or give \
                 each container a request of its own",
            ));
        }
    }
    Ok(())
}

/// The limits of each process of the claim: those of its part, or lower ones that its configuration sets.
///
/// # Errors
/// Returns an error if the configuration asks for what the policy of this node does not give.
pub fn dra_limits(device: &AllocatedDevice, part: &DraPart<'_>) -> Result<Promise> {
    let strategy = part.split.method.strategy();
    match &device.sharing {
        None => Ok(part.promise),
        Some(ClaimSharing::TimeSlicing { interval }) => {
            // The containers of one claim run in turn on a device that nobody else has.
            if matches!(strategy, Strategy::Mps | Strategy::Turns) {
                return Err(refused(device, strategy, "TimeSlicing"));
            }
            check_interval(device, part.split, *interval)?;
            Ok(part.promise)
        }
        Some(ClaimSharing::Mps {
            active_thread_percentage,
            pinned_memory,
        }) => match part.promise {
            Promise::Mps { memory, compute } => Ok(Promise::Mps {
                memory: lower(memory, *pinned_memory),
                compute: lower(compute, *active_thread_percentage),
            }),
            Promise::Whole | Promise::Slices { .. } | Promise::Turns { .. } => Err(refused(device, strategy, "MPS")),
        },
    }
}

/// The lower one of two limits; a limit that is not set is the higher one.
fn lower<T: Ord>(own: Option<T>, asked: Option<T>) -> Option<T> {
    match (own, asked) {
        (Some(own), Some(asked)) => Some(own.min(asked)),
        (own, asked) => own.or(asked),
    }
}

/// Refuses a length of turns that is not that of the policy: it is the same for all who use the device.
fn check_interval(device: &AllocatedDevice, split: &SplitDevice, asked: Option<Interval>) -> Result<()> {
    let Some(asked) = asked.filter(|asked| *asked != Interval::Default) else {
        return Ok(());
    };
    // The directory is that of MPS daemons, which are not needed here.
    let needs = split.needs(&HostPath::root());
    let own = needs.iter().find_map(|need| match need {
        Need::TimeSlice { interval, .. } => Some(*interval),
        _ => None,
    });
    let own = own.unwrap_or_default();
    if own == asked {
        return Ok(());
    }
    let what = format!("has turns of the length {own} under the policy of this node, and the claim asks for {asked}");
    Err(Error::failed(format!("device {}", device.device), what)
        .hint("set sharing.timeSlicing.interval in the policy of the node, or leave the interval out"))
}

fn refused(device: &AllocatedDevice, strategy: Strategy, asked: &str) -> Error {
    let how = match strategy {
        Strategy::Dedicated => "is not shared",
        Strategy::TimeSlicing => "is shared by time-slicing",
        Strategy::Mps => "is shared by MPS",
        Strategy::Turns => "is shared by turns",
    };
    let what = format!("{how} under the policy of this node, and the claim's configuration says {asked}");
    Error::failed(format!("device {}", device.device), what)
        .hint(
            "select devices by the attribute gpu.tranche.dev/strategy, share this one so in the policy of the node, or leave \
             the configuration out",
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Inventory;
    use crate::policy::read;
    use crate::share::{Plan, dra_part, plan};
    use crate::sim;
    use tranche_core::types::{MemorySize, Percent};

    fn planned(sharing: &str) -> (Inventory, Plan) {
        let inventory = sim::open("t4x2").unwrap();
        let text = format!("version: v1\nkubernetes: {{door: dra}}\n{sharing}");
        let policy = read::parse("c.yaml", &text).unwrap().policy;
        let plan = plan(&policy, &inventory).unwrap();
        (inventory, plan)
    }

    fn of(sharing: &str, asked: ClaimSharing) -> Result<String, String> {
        let (inventory, plan) = planned(sharing);
        let device = AllocatedDevice {
            device: "gpu-0".into(),
            share_id: (!sharing.is_empty()).then(|| "s".to_owned()),
            memory: Some(MemorySize::from_mib(4 << 10)),
            compute: Some(Percent::of_sum(40)),
            sharing: Some(asked),
            ..AllocatedDevice::default()
        };
        let part = dra_part(&inventory, &plan, &device).unwrap();
        dra_limits(&device, &part)
            .map(|limits| limits.to_string())
            .map_err(|e| e.to_string())
    }

    fn mps(percent: Option<u32>, mib: Option<u64>) -> ClaimSharing {
        ClaimSharing::Mps {
            active_thread_percentage: percent.map(Percent::of_sum),
            pinned_memory: mib.map(MemorySize::from_mib),
        }
    }

    fn turns(interval: Option<Interval>) -> ClaimSharing {
        ClaimSharing::TimeSlicing { interval }
    }

    const MPS: &str = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n";
    const LONG: &str = "sharing: {timeSlicing: {interval: long, resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n";

    #[test]
    fn limits_of_a_configuration_only_lower_those_of_the_share() {
        for (asked, limits) in [
            (mps(None, None), "mps:4096:40"),
            (mps(Some(20), Some(1024)), "mps:1024:20"),
            (mps(Some(90), Some(1 << 20)), "mps:4096:40"),
        ] {
            assert_eq!(of(MPS, asked), Ok(limits.to_owned()));
        }
        assert_eq!(lower(None::<u32>, None), None);
        assert_eq!(lower(None, Some(3)), Some(3));
    }

    #[test]
    fn a_request_with_an_mps_share_has_nothing_else() {
        let (inventory, plan) = planned(&MPS.replace("replicas: 2", "devices: [0], replicas: 2"));
        let device = |name: &str, request: &str, share: Option<&str>| AllocatedDevice {
            device: name.into(),
            request: request.into(),
            share_id: share.map(str::to_owned),
            ..AllocatedDevice::default()
        };
        let together = |devices: &[AllocatedDevice]| {
            let part = |one: &AllocatedDevice| dra_part(&inventory, &plan, one).unwrap();
            let parts: Vec<_> = devices.iter().map(part).collect();
            dra_together(devices.iter().zip(&parts)).map_err(|e| e.to_string())
        };
        let (one, two) = (device("gpu-0", "a", Some("s")), device("gpu-0", "a", Some("t")));
        let why = together(&[one.clone(), two]).unwrap_err();
        assert!(
            why.starts_with("request a: gives a container two parts of gpu-0, and a container with an MPS share"),
            "{why}"
        );
        assert!(together(&[device("gpu-1", "a", None), one.clone()]).is_err());
        // Containers of their own may have them, and an older driver does not say whose they are.
        for other in [device("gpu-1", "b", None), device("gpu-0", "b", Some("t"))] {
            assert_eq!(together(&[one.clone(), other]), Ok(()));
        }
        assert_eq!(
            together(&[device("gpu-0", "", Some("s")), device("gpu-1", "", None)]),
            Ok(())
        );
    }

    #[test]
    fn what_the_policy_does_not_give_is_refused() {
        for (sharing, asked, why) in [
            ("", mps(None, None), "is not shared under the policy"),
            (LONG, mps(None, None), "is shared by time-slicing"),
            (MPS, turns(None), "is shared by MPS"),
            ("", turns(Some(Interval::Long)), "turns of the length default"),
            (LONG, turns(Some(Interval::Short)), "turns of the length long"),
        ] {
            let refused = of(sharing, asked).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let (default, long) = (Some(Interval::Default), Some(Interval::Long));
        for (sharing, interval) in [("", None), ("", default), (LONG, long), (LONG, None)] {
            assert!(of(sharing, turns(interval)).is_ok(), "{sharing} {interval:?}");
        }
    }
}
