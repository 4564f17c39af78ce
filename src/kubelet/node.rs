//! What the plugins of all resources share: the offers of the broker, and the pods of the kubelet.

mod reservations;
mod starts;

use crate::broker::Broker;
use crate::catalog::{Catalog, Listing};
use crate::command::Command;
use crate::kubelet::{allocatable, list, plugins_dir};
use crate::plugin::{Needs, Plugin};
use crate::pods::{Owners, Pods};
use crate::ready::{Part, Ready};
use crate::reconcile::{Absences, reserved};
use crate::said::{Said, Topic};
use crate::schedule::{Pace, Schedule};
use crate::settings::Settings;
use crate::watch::Seen;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tonic::Status;
use tracing::info;
use tranche_core::broker::BrokerError;
use tranche_core::ledger::PodName;
use tranche_core::notify::notify;
use tranche_protocol::Offers;

/// When the pod of an allocation is in the kubelet's list: it is recorded after the plugin has answered.
const AFTER_ALLOCATE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// The node.
pub(crate) struct Node {
    settings: Settings,
    broker: Broker,
    /// The last good answer.
    offers: Option<Offers>,
    pods: Option<Pods>,
    owners: Owners,
    catalog: Catalog,
    absences: Absences,
    plugins: BTreeMap<String, Plugin>,
    kubelet: watch::Receiver<Seen>,
    state: watch::Receiver<u64>,
    commands: mpsc::Receiver<Command>,
    /// For the plugins, and for starts that are looked at again.
    sender: mpsc::Sender<Command>,
    lists: Schedule,
    asks: Schedule,
    checks: Schedule,
    pace: Pace,
    said: Said,
    /// For the probe.
    probed: Ready,
    /// When a service manager gets the message that the plugin serves, also without an offer; `None`: it has got it.
    ready: Option<Instant>,
}

/// How long a service manager waits for the first offers. It starts the kubelet afterwards, and a node without a driver
/// needs a kubelet too.
const READY: Duration = Duration::from_secs(5);

impl Node {
    pub(crate) fn new(
        settings: Settings,
        kubelet: watch::Receiver<Seen>,
        state: watch::Receiver<u64>,
        said: Said,
        probed: Ready,
    ) -> Self {
        let now = Instant::now();
        let (sender, commands) = mpsc::channel(1024);
        Self {
            broker: Broker::of(&settings.state_dir),
            offers: None,
            pods: None,
            owners: Owners::default(),
            catalog: Catalog::new(settings.placement),
            absences: Absences::new(settings.times.absent),
            plugins: BTreeMap::new(),
            kubelet,
            state,
            commands,
            sender,
            lists: Schedule::new(now, settings.times.period),
            asks: Schedule::new(now, settings.times.period),
            checks: Schedule::new(now + settings.times.check, settings.times.check),
            pace: Pace::new(),
            said,
            probed,
            ready: Some(now + READY),
            settings,
        }
    }

    /// Works until it is dropped.
    pub(crate) async fn work(&mut self) {
        loop {
            let due = self.lists.due().min(self.asks.due()).min(self.checks.due());
            let due = self.ready.map_or(due, |ready| ready.min(due));
            tokio::select! {
                biased;
                Some(command) = self.commands.recv() => self.command(command).await,
                Ok(()) = self.state.changed() => {
                    let at = self.pace.changed(Instant::now());
                    self.asks.at(at);
                }
                () = tokio::time::sleep_until(due.into()) => self.refresh().await,
            }
        }
    }

    /// Ends all plugins.
    pub(crate) async fn end(&mut self) {
        let mut plugins = std::mem::take(&mut self.plugins);
        plugins.values_mut().for_each(Plugin::begin_to_stop);
        for (_, plugin) in plugins {
            plugin.stop().await;
        }
    }

    async fn refresh(&mut self) {
        let now = Instant::now();
        // The pods first: a device that is allocated is never shown as unhealthy for a moment.
        let is_listed = self.lists.due() <= now && self.list().await.is_ok();
        if self.asks.due() <= now {
            let _ = self.ask().await;
        }
        self.publish().await;
        if is_listed {
            self.reconcile().await;
        }
        if self.checks.due() <= now {
            self.check().await;
        }
        if self.ready.is_some_and(|ready| self.offers.is_some() || ready <= now) {
            self.ready = None;
            if let Err(e) = notify("READY=1") {
                tracing::warn!("no message to the service manager: {e}");
            }
        }
    }

    /// Looks whether the kubelet has what it is shown. If another plugin registers a resource and ends, the kubelet
    /// forgets the resource, and still reads the stream of the first plugin (`plugin/v1beta1/handler.go`).
    async fn check(&mut self) {
        let allocatable = allocatable(&self.settings.kubelet_dir).await;
        self.checks.done(Instant::now());
        // A kubelet that does not answer, or is too old to, has its plugins registered by the other rules.
        let Ok(allocatable) = allocatable else {
            return;
        };
        for (resource, plugin) in &self.plugins {
            let is_forgotten = plugin.listing.borrow().is_forgotten(allocatable.get(resource));
            if !is_forgotten {
                self.said.is_well(&Topic::Resource(resource.clone()));
            }
            plugin.checked(!is_forgotten);
        }
    }

    async fn list(&mut self) -> Result<(), Status> {
        let listed = list(&self.settings.kubelet_dir).await;
        let now = Instant::now();
        self.lists.done(now);
        match listed {
            Ok(listed) => {
                let reserved: BTreeMap<String, PodName> = self.offers.iter().flat_map(reserved).collect();
                self.pods = Some(self.owners.resolve(listed, |id| reserved.get(id).cloned()));
                self.said.is_well(&Topic::Pods);
                Ok(())
            }
            Err(status) => {
                self.absences.no_list();
                self.said.warn(
                    Topic::Pods,
                    format!("the pods of this node are not known: {}", status.message()),
                );
                Err(status)
            }
        }
    }

    async fn ask(&mut self) -> Result<(), BrokerError> {
        let asked = self.broker.offers().await;
        let now = Instant::now();
        self.asks.done(now);
        match asked {
            Ok(offers) => {
                let is_new = self.offers.as_ref() != Some(&offers);
                self.pace.answered(now, is_new);
                let wrong_policy = offers.wrong_policy.clone();
                self.offers = Some(offers);
                self.said.is_well(&Topic::Broker);
                match wrong_policy {
                    Some(wrong) => self.said.warn(Topic::WrongPolicy, wrong),
                    None => self.said.is_well(&Topic::WrongPolicy),
                }
                Ok(())
            }
            Err(e) => {
                self.pace.answered(now, false);
                self.said.warn(Topic::Broker, self.broker.explain(&e));
                Err(e)
            }
        }
    }

    /// Shows the kubelet what there is now.
    async fn publish(&mut self) {
        let Some(offers) = &self.offers else {
            return;
        };
        for offer in &offers.offers {
            // A device with named shares is in several resources.
            let device = format!("{} {}", offer.resource, offer.device);
            let topic = Topic::Device(device.clone());
            match &offer.unhealthy {
                Some(why) => self.said.warn(topic, format!("{device}: {why}")),
                None => self.said.is_well(&topic),
            }
        }
        self.catalog.update(offers, self.pods.as_ref());
        let mut ended = Vec::new();
        for (resource, listing) in self.catalog.resources() {
            let topic = Topic::LeftOut(resource.to_owned());
            match listing.left_out {
                0 => self.said.is_well(&topic),
                _ => self.said.warn(topic, listing.left_out_text(resource)),
            }
            match self.plugins.get(resource) {
                Some(plugin) => {
                    if show(&plugin.listing, listing) {
                        info!("{resource}: {}", listing.summary());
                    }
                    if listing.devices.is_empty() {
                        ended.push(resource.to_owned());
                    }
                }
                None if listing.devices.is_empty() => {}
                None => {
                    info!("{resource}: {}", listing.summary());
                    let plugin = Plugin::start(Needs {
                        resource: resource.to_owned(),
                        dir: plugins_dir(&self.settings.kubelet_dir),
                        listing: Arc::new(listing.clone()),
                        kubelet: self.kubelet.clone(),
                        node: self.sender.clone(),
                        ready: self.probed.clone(),
                    });
                    self.plugins.insert(resource.to_owned(), plugin);
                }
            }
        }
        self.catalog.forget_empty();
        for resource in ended {
            if let Some(plugin) = self.plugins.remove(&resource) {
                info!("{resource}: not offered any more; its plugin ends");
                plugin.stop().await;
            }
        }
        // The resources are missing now, until the kubelet reads them.
        self.probed.set(Part::Offers, None);
    }

    async fn command(&mut self, first: Command) {
        let now = Instant::now();
        let mut starts = Vec::new();
        let mut next = Some(first);
        // Pods often start together: one list and one answer of the broker serve them all.
        while let Some(command) = next {
            match command {
                Command::Allocated => AFTER_ALLOCATE.iter().for_each(|after| self.lists.at(now + *after)),
                Command::Start(start) => starts.push(start),
                Command::Forgotten { resource, wait } => {
                    let what = format!(
                        "{resource}: the kubelet does not have its devices, as when another plugin has registered this \
                         resource; registering again in {} ms",
                        wait.as_millis()
                    );
                    self.said.warn(Topic::Resource(resource), what);
                }
            }
            next = self.commands.try_recv().ok();
        }
        if !starts.is_empty() {
            self.start(starts).await;
        }
    }
}

/// Replaces what a plugin shows, if it differs. Returns whether the devices do.
fn show(shown: &watch::Sender<Arc<Listing>>, listing: &Listing) -> bool {
    let mut is_new = false;
    shown.send_if_modified(|now| {
        let differs = **now != *listing;
        is_new = now.devices != listing.devices;
        if differs {
            *now = Arc::new(listing.clone());
        }
        differs
    });
    is_new
}
