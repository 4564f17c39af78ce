//! What tranche is for Kubernetes: a device plugin, and a driver for dynamic resource allocation (DRA).
//!
//! A kubelet asks device plugins which devices there are, and what a container needs for those that it chose. This one
//! is a client of the host's broker and has no privileges of its own: it shows the kubelet what the policy offers,
//! answers with names of the CDI specifications that `tranche cdi refresh` has written, and keeps the reservations of
//! pods in step with what the kubelet has allocated.
//!
//! | module | what it does |
//! |---|---|
//! | [`pods`] | pure: which pod has which device |
//! | [`catalog`] | pure: which devices and which health the kubelet is shown |
//! | [`allocate`] | pure: the CDI names of devices |
//! | [`prefer`] | pure: which of the free devices a container should get |
//! | [`reconcile`] | pure: which reservations are missing, and which are left over |
//! | [`registrar`] | pure: when to register with the kubelet |
//! | [`schedule`] | pure: when to ask again |
//! | [`configurations`] | which configuration of the cluster is for this node |
//! | [`ready`] | whether pods can get devices, for a probe |
//! | [`metrics`] | what the driver counts of its work, for a collector |
//! | [`settings`] | where the kubelet and the broker are, and how long things take |
//! | [`args`] | the command line |
//! | [`said`] | which faults are logged, and are events |
//! | [`log`] | the form of the log |
//! | [`proto`] | the kubelet's interfaces, generated |
//! | [`kubelet`] | calls to the kubelet |
//! | [`broker`] | calls to the broker |
//! | [`api`] | calls to the API server: the label of the node, events |
//! | [`cluster`] | passes the policy of the cluster to the broker |
//! | [`socket`] | the socket of a resource |
//! | [`watch`] | changes of directories |
//! | [`command`] | what the plugin of a resource reports to the node |
//! | [`service`] | what the kubelet asks the plugin of a resource |
//! | [`plugin`] | the plugin of a resource: its server, and its registration |
//! | [`dra`] | the driver for dynamic resource allocation |
//! | [`node`] | what all plugins share: offers, pods, reservations |

pub mod allocate;
pub mod api;
pub mod args;
pub mod broker;
pub mod catalog;
pub mod cluster;
pub mod command;
pub mod configurations;
pub mod dra;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod kubelet;
pub mod log;
pub mod metrics;
pub mod node;
pub mod plugin;
pub mod pods;
pub mod prefer;
pub mod proto;
pub mod ready;
pub mod reconcile;
pub mod registrar;
pub mod said;
pub mod schedule;
pub mod service;
pub mod settings;
pub mod socket;
pub mod watch;

#[cfg(test)]
#[path = "tests/support/offers.rs"]
mod fixtures;

pub use settings::{ClusterSettings, DriverOptions, PodRef, Settings, Times};

use kube::Client;
use ready::Ready;
use said::{Notice, Said};
use tokio::sync::mpsc;
use tranche_core::error::{Context, Error, Result};

/// Serves the kubelet until `stop` is ready, and then removes its sockets.
///
/// # Errors
/// Returns an error if a driver for dynamic resource allocation has no access to the API server, or if its port for
/// metrics cannot be had.
pub async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<()> {
    let (state_sender, state) = tokio::sync::watch::channel(0);
    tokio::spawn(watch::state(
        settings.state_dir.clone(),
        settings.times.look,
        state_sender.clone(),
    ));
    let ready = Ready::new(settings.device_plugin, settings.dra.is_some());
    if let Some(file) = &settings.ready_file {
        tokio::spawn(ready.clone().keep(file.clone()));
    }
    let (client, events) = start_cluster(&settings, state_sender).await?;
    let collectors = match settings.dra.as_ref().and_then(|driver| driver.metrics_port) {
        Some(port) => {
            let listener = metrics::listen(port).await;
            Some(listener.about(format!("--metrics-port {port}"), "cannot be listened on")?)
        }
        None => None,
    };
    let driver = match (client, &settings.cluster.node, &settings.dra) {
        (Some(client), Some(node), Some(options)) => Some(dra::start(
            &settings,
            options,
            client,
            node,
            state.clone(),
            events.clone(),
            ready.clone(),
        )),
        _ => None,
    };
    if let (Some(collectors), Some(driver)) = (collectors, &driver) {
        tokio::spawn(metrics::serve(collectors, driver.metrics().clone()));
    }
    match settings.device_plugin {
        true => serve_plugin(settings, state, events, ready, stop).await,
        false => stop.await,
    }
    if let Some(driver) = driver {
        driver.end().await;
    }
    Ok(())
}

async fn serve_plugin(
    settings: Settings,
    state: tokio::sync::watch::Receiver<u64>,
    events: Option<mpsc::Sender<Notice>>,
    ready: Ready,
    stop: impl Future<Output = ()>,
) {
    let plugins = kubelet::plugins_dir(&settings.kubelet_dir);
    socket::remove_stale(&plugins);
    let (kubelet_sender, kubelet) = tokio::sync::watch::channel(watch::Seen::default());
    tokio::spawn(watch::kubelet(plugins, settings.times.look, kubelet_sender));
    let mut node = node::Node::new(settings, kubelet, state, Said::new(events), ready);
    tokio::select! {
        () = stop => {}
        () = node.work() => {}
    }
    node.end().await;
}

/// How many events wait for the API server before the next ones are left to the log.
const WAITING_EVENTS: usize = 64;

/// Starts what needs the cluster. Returns the client of the API server, and where events go, if somebody writes them.
async fn start_cluster(
    settings: &Settings,
    offers: tokio::sync::watch::Sender<u64>,
) -> Result<(Option<Client>, Option<mpsc::Sender<Notice>>)> {
    let cluster = &settings.cluster;
    let broker = broker::Broker::of(&settings.state_dir);
    // Without the name of the node, there is no label to wait for.
    let (label_sender, label) = tokio::sync::watch::channel(cluster.node.is_none().then_some(None));
    let (mut used, mut events) = (None, None);
    if let Some(node) = &cluster.node {
        match api::client().await {
            Ok(client) => {
                let (sender, receiver) = mpsc::channel(WAITING_EVENTS);
                tokio::spawn(api::write_events(
                    client.clone(),
                    node.clone(),
                    settings.times.question,
                    receiver,
                ));
                if cluster.config_dir.is_some() {
                    let said = Said::default();
                    tokio::spawn(api::watch_label(client.clone(), node.clone(), label_sender, said));
                }
                (used, events) = (Some(client), Some(sender));
            }
            Err(why) if settings.dra.is_some() => return Err(Error::failed("dra", why)),
            Err(why) => tracing::warn!("{why}; the policy of this node stays as it is, and there are no events"),
        }
    }
    match &cluster.config_dir {
        Some(dir) => {
            let policy = cluster::ClusterPolicy::new(broker, dir, cluster, Said::new(events.clone()), offers);
            tokio::spawn(policy.work(label, settings.times.look));
        }
        None => drop(tokio::spawn(cluster::take_away(broker, offers, settings.times.period))),
    }
    Ok((used, events))
}
