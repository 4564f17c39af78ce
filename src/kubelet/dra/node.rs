//! What the broker offers to the driver, as it changes: for the slices, for the health of the devices, and for claims
//! that were deleted while nobody listened.

use super::driver::Driver;
use super::health::{DeviceHealth, Health};
use crate::broker::Broker;
use crate::said::{Said, Topic};
use crate::schedule::{Pace, Schedule};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tranche_protocol::{DraDevice, DraDevices, DraDivided};

/// After two looks at the API server, claims are compared with it so many times less often: each is a request.
const SELDOM: u32 = 30;

/// Asks the broker, and passes on what it answers.
pub(crate) struct DraNode {
    pub(crate) broker: Broker,
    pub(crate) driver: Driver,
    pub(crate) pool: String,
    /// How often the broker is asked, if nothing changes.
    pub(crate) period: Duration,
    /// How long after the start the claims are compared with the API server, and then again.
    pub(crate) reconcile: Duration,
    /// Counts the changes of the directory of the ledger.
    pub(crate) state: watch::Receiver<u64>,
    pub(crate) devices: watch::Sender<Option<DraDevices>>,
    pub(crate) health: watch::Sender<Vec<DeviceHealth>>,
    pub(crate) said: Said,
}

impl DraNode {
    /// Works until it is dropped.
    pub(crate) async fn work(mut self) {
        let now = Instant::now();
        let mut asks = Schedule::new(now, self.period);
        let mut pace = Pace::new();
        let mut check = now + self.reconcile;
        let mut looks = 0;
        // The claims that were over at the last look.
        let mut over = BTreeSet::new();
        loop {
            tokio::select! {
                Ok(()) = self.state.changed() => {
                    asks.at(pace.changed(Instant::now()));
                    continue;
                }
                () = tokio::time::sleep_until(asks.due().min(check).into()) => {}
            }
            let now = Instant::now();
            if asks.due() <= now {
                let is_new = self.ask().await;
                let now = Instant::now();
                asks.done(now);
                pace.answered(now, is_new);
            }
            if check <= now {
                let found = self.reconcile(over).await;
                looks += u32::from(found.is_some());
                over = found.unwrap_or_default();
                // While the driver runs, the kubelet gives up what is over.
                let is_done = looks >= 2 && over.is_empty();
                check = Instant::now() + self.reconcile * if is_done { SELDOM } else { 1 };
            }
        }
    }

    /// Returns whether the answer differs from the last one.
    async fn ask(&mut self) -> bool {
        match self.broker.dra_devices().await {
            Ok(devices) => {
                self.said.is_well(&Topic::Broker);
                for device in &devices.devices {
                    let topic = Topic::Device(device.name.clone());
                    match device.unhealthy.as_ref().or(device.out_of_service.as_ref()) {
                        Some(why) => self.said.warn(topic, format!("{}: {why}", device.name)),
                        None => self.said.is_well(&topic),
                    }
                }
                for gpu in &devices.divided {
                    let topic = Topic::Device(gpu.gpu.name.clone());
                    match &gpu.unhealthy {
                        Some(why) => self.said.warn(topic, format!("{}: {why}", gpu.gpu.name)),
                        None => self.said.is_well(&topic),
                    }
                }
                self.health.send_replace(health(&devices, &self.pool));
                self.devices.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&devices);
                    *known = Some(devices);
                    is_new
                })
            }
            Err(e) => {
                self.said.warn(Topic::Broker, self.broker.explain(&e));
                // The slices stay: what is allocated meanwhile is prepared later.
                self.health.send_modify(|all| {
                    for one in all {
                        one.health = Health::Unknown;
                        "the broker of the node does not answer".clone_into(&mut one.message);
                    }
                });
                false
            }
        }
    }

    /// Gives up the claims that are over now and were over at the last look. A kubelet that was away when its pod was
    /// deleted asks nobody to do it (kubernetes-sigs/dra-driver-nvidia-gpu#1278). Returns those that are over now;
    /// `None` if the API server does not answer.
    async fn reconcile(&mut self, before: BTreeSet<String>) -> Option<BTreeSet<String>> {
        let claims = self.devices.borrow().as_ref().map(|devices| devices.claims.clone());
        let mut over = BTreeSet::new();
        for claim in claims.unwrap_or_default() {
            match self.driver.is_over(&claim).await {
                Ok(false) => {}
                Ok(true) if before.contains(&claim.uid) => match self.driver.give_up(&claim.uid).await {
                    Ok(()) => tracing::info!("{claim} does not exist any more: what was reserved for it is given up"),
                    Err(why) => tracing::warn!("{claim} is not given up: {why}"),
                },
                Ok(true) => drop(over.insert(claim.uid)),
                // The API server is away, and says nothing about the others either.
                Err(_) => return None,
            }
        }
        Some(over)
    }
}

/// The health of all devices, and of those that are shares.
fn health(devices: &DraDevices, pool: &str) -> Vec<DeviceHealth> {
    let names = |device: &DraDevice| -> Vec<String> {
        let shares = device.parts.iter().flat_map(|parts| &parts.shares);
        let shares = shares.map(|share| share.device.clone());
        std::iter::once(device.name.clone()).chain(shares).collect()
    };
    let one = |device: String, unhealthy: &Option<String>, out_of_service: &Option<String>| DeviceHealth {
        pool: pool.to_owned(),
        device,
        health: match unhealthy {
            Some(_) => Health::Unhealthy,
            None => Health::Healthy,
        },
        // What a pod has of a device that is out of service works.
        message: unhealthy
            .as_ref()
            .or(out_of_service.as_ref())
            .cloned()
            .unwrap_or_default(),
    };
    let of_device = |device: &DraDevice| -> Vec<DeviceHealth> {
        let names = names(device).into_iter();
        names
            .map(|name| one(name, &device.unhealthy, &device.out_of_service))
            .collect()
    };
    let of_instances = |gpu: &DraDivided| -> Vec<DeviceHealth> {
        let names = gpu.instances.iter().map(|instance| instance.name.clone());
        names
            .map(|name| one(name, &gpu.unhealthy, &gpu.out_of_service))
            .collect()
    };
    let existing = devices.devices.iter().flat_map(of_device);
    existing.chain(devices.divided.iter().flat_map(of_instances)).collect()
}
