//! The driver, from its start to its end.

use super::driver::Driver;
use super::labels;
use super::node::DraNode;
use super::pace::Pacing;
use super::publish::Publisher;
use super::server::{DraSettings, DraTimes, serve};
use super::slices::NodeRef;
use super::status;
use crate::api::{why, within};
use crate::broker::Broker;
use crate::metrics::Metrics;
use crate::ready::{Part, Ready};
use crate::said::{Notice, Said, Topic};
use crate::settings::{DriverOptions, Settings};
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tranche_protocol::DraDevices;

/// The driver while it runs.
pub struct Running {
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    metrics: Metrics,
}

/// Starts the driver of `options` on the node `node`.
pub fn start(
    settings: &Settings,
    options: &DriverOptions,
    client: Client,
    node: &str,
    state: watch::Receiver<u64>,
    events: Option<mpsc::Sender<Notice>>,
    ready: Ready,
) -> Running {
    let metrics = Metrics::default();
    let broker = Broker::of(&settings.state_dir);
    let status = options.claim_status.then(|| {
        let (sender, given) = mpsc::channel(status::WAITING);
        let said = Said::new(events.clone());
        let patience = settings.times.question;
        tokio::spawn(status::write(
            client.clone(),
            options.name.clone(),
            patience,
            said,
            given,
        ));
        sender
    });
    let (devices_sender, devices) = watch::channel(None);
    if let Some(owner) = &options.labels_owner {
        let said = Said::new(events.clone());
        let (client, name, patience) = (client.clone(), options.name.clone(), settings.times.question);
        let (node, owner, devices) = (node.to_owned(), owner.clone(), devices.clone());
        tokio::spawn(labels::keep(client, name, node, owner, patience, said, devices));
    }
    let driver = Driver {
        client: client.clone(),
        broker: broker.clone(),
        name: options.name.clone(),
        pool: node.to_owned(),
        times: settings.times,
        devices: devices.clone(),
        metrics: metrics.clone(),
        status,
    };
    let (health_sender, health) = watch::channel(Vec::new());
    let work = DraNode {
        broker,
        driver: driver.clone(),
        pool: node.to_owned(),
        period: settings.times.period,
        reconcile: settings.times.reconcile,
        state,
        devices: devices_sender,
        health: health_sender,
        said: Said::new(events.clone()),
    };
    tokio::spawn(work.work());
    let said = Said::new(events.clone());
    let slices = publish(
        client,
        options.name.clone(),
        node.to_owned(),
        settings.times.question,
        said,
        ready.clone(),
        devices,
    );
    tokio::spawn(slices);
    let server = DraSettings {
        kubelet_dir: settings.kubelet_dir.clone(),
        driver: options.name.clone(),
        pod_uid: options.pod_uid.clone(),
        times: DraTimes::default(),
    };
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { drop(stopped.await) };
    Running {
        metrics,
        stop,
        server: tokio::spawn(serve(server, driver, health, Said::new(events), ready, stopped)),
    }
}

impl Running {
    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Ends the server. The slices stay: the kubelet removes them after 30 s, and a driver that is back before finds
    /// them.
    pub async fn end(self) {
        // A server that has ended waits for nothing.
        let _ = self.stop.send(());
        if let Err(e) = self.server.await {
            tracing::warn!("the driver did not end: {e}");
        }
    }
}

/// How long to wait until the API server is asked for the node again.
const AGAIN: Duration = Duration::from_secs(5);

async fn publish(
    client: Client,
    driver: String,
    name: String,
    patience: Duration,
    mut said: Said,
    ready: Ready,
    devices: watch::Receiver<Option<DraDevices>>,
) {
    // The slices are removed with the node, by its UID.
    let uid = loop {
        let nodes = Api::<PartialObjectMeta<Node>>::all(client.clone());
        let what = match within(patience, nodes.get_metadata(&name)).await {
            Ok(node) => match node.metadata.uid {
                Some(uid) => break uid,
                None => format!("the node {name} has no UID"),
            },
            Err(e) => format!("the node {name} is not known: {}", why(&e)),
        };
        let what = format!("the devices are not published: {what}");
        ready.set(Part::Slices, Some(what.clone()));
        said.warn(Topic::Slices, what);
        sleep(AGAIN).await;
    };
    said.is_well(&Topic::Slices);
    let node = NodeRef { name, uid };
    Publisher::new(client, &driver, node, said, ready, Pacing::default())
        .work(devices)
        .await;
}
