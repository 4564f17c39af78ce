//! The plugin of one resource: its server, and its registration.

mod runner;

use crate::catalog::Listing;
use crate::command::Command;
use crate::ready::Ready;
use crate::service::{Service, StreamEvent};
use crate::socket;
use crate::watch::Seen;
use runner::Runner;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// A plugin that runs.
#[derive(Debug)]
pub(crate) struct Plugin {
    /// Its devices.
    pub(crate) listing: watch::Sender<Arc<Listing>>,
    events: mpsc::UnboundedSender<StreamEvent>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// What a plugin needs.
pub(crate) struct Needs {
    pub(crate) resource: String,
    /// The directory of device plugins.
    pub(crate) dir: PathBuf,
    pub(crate) listing: Arc<Listing>,
    pub(crate) kubelet: watch::Receiver<Seen>,
    pub(crate) node: mpsc::Sender<Command>,
    /// For the probe.
    pub(crate) ready: Ready,
}

impl Plugin {
    pub(crate) fn start(needs: Needs) -> Self {
        let (listing, listing_receiver) = watch::channel(needs.listing);
        let (stop, stopped) = oneshot::channel();
        let (events, events_receiver) = mpsc::unbounded_channel();
        let (ending, ending_receiver) = watch::channel(0);
        let service = Service {
            resource: needs.resource.as_str().into(),
            listing: listing_receiver,
            ending: ending_receiver,
            events: events.clone(),
            node: needs.node,
            streams: Arc::default(),
        };
        let runner = Runner::new(socket::name(&needs.resource), needs.dir, service, ending, needs.ready);
        let task = tokio::spawn(runner.run(needs.kubelet, events_receiver, stopped));
        Self {
            listing,
            events,
            stop: Some(stop),
            task,
        }
    }

    /// Tells the plugin whether the kubelet has its devices.
    pub(crate) fn checked(&self, is_known: bool) {
        // If its task has ended, the plugin ends.
        let _ = self.events.send(StreamEvent::Checked { is_known });
    }

    /// Tells the plugin to end, without waiting for it.
    pub(crate) fn begin_to_stop(&mut self) {
        self.stop = None;
    }

    /// Ends the plugin: the kubelet reads the last list, and the socket is removed.
    pub(crate) async fn stop(mut self) {
        self.begin_to_stop();
        let _ = self.task.await;
    }
}
