//! What the task of a plugin does.

use crate::command::Command;
use crate::kubelet::register;
use crate::proto::deviceplugin::device_plugin_server::DevicePluginServer;
use crate::ready::{Part, Ready};
use crate::registrar::{Ended, Registrar};
use crate::service::{Service, StreamEvent};
use crate::socket::{Presence, Socket};
use crate::watch::Seen;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tracing::{info, warn};

/// The most servers whose sockets were removed.
const MOST_BEFORE: usize = 4;

/// How long a server that ends waits for calls that are not answered yet.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The socket and what serves it.
struct Served {
    socket: Socket,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// The task.
pub(super) struct Runner {
    /// The name of the socket.
    name: String,
    dir: PathBuf,
    service: Service,
    ending: watch::Sender<u64>,
    served: Option<Served>,
    /// Those whose sockets were removed. The kubelet may still use a connection to one.
    before: Vec<Served>,
    /// Whether another process serves this resource on a socket of the same name.
    is_replaced: bool,
    registrar: Registrar,
    ready: Ready,
    /// The last fault that was logged: one that lasts is one line.
    said: String,
}

impl Runner {
    /// One that serves on a socket called `name` in `dir`.
    pub(super) fn new(name: String, dir: PathBuf, service: Service, ending: watch::Sender<u64>, ready: Ready) -> Self {
        let runner = Self {
            ready,
            name,
            dir,
            service,
            ending,
            served: None,
            before: Vec::new(),
            is_replaced: false,
            registrar: Registrar::new(Instant::now()),
            said: String::new(),
        };
        runner.report();
        runner
    }

    /// Says whether the kubelet has the devices.
    fn report(&self) {
        let resource = &self.service.resource;
        let missing = || format!("{resource}: the kubelet has not registered it");
        let is_missing = !self.registrar.is_read() || self.is_replaced;
        self.ready
            .set(Part::Resource(resource.to_string()), is_missing.then(missing));
    }

    pub(super) async fn run(
        mut self,
        mut kubelet: watch::Receiver<Seen>,
        mut events: mpsc::UnboundedReceiver<StreamEvent>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut seen = *kubelet.borrow_and_update();
        loop {
            let due = self.registrar.due();
            // A receiver of its own, so that the change is still new to the one above.
            let mut next = kubelet.clone();
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                Some(event) = events.recv() => self.stream(event),
                Ok(()) = kubelet.changed() => {
                    let now = *kubelet.borrow_and_update();
                    self.changed(now.kubelets != seen.kubelets);
                    seen = now;
                }
                () = until(due) => tokio::select! {
                    _ = &mut stopped => break,
                    // A kubelet that restarts does not answer what the one before was asked.
                    Ok(_) = next.wait_for(|now| now.kubelets != seen.kubelets) => {}
                    () = self.attempt() => {}
                }
            }
            self.report();
        }
        // What is not offered is not missing.
        self.ready.set(Part::Resource(self.service.resource.to_string()), None);
        self.end().await;
    }

    /// Something may have changed in the directory of device plugins.
    fn changed(&mut self, is_kubelet_new: bool) {
        let now = Instant::now();
        if is_kubelet_new {
            // Streams that are open lead to a kubelet that has ended, or will: the end of one that the kubelet notices
            // late would end the new one (kubernetes/kubernetes#127803).
            self.end_streams();
            return self.registrar.kubelet_is_new(now);
        }
        match self.presence() {
            None | Some(Presence::Own) => {}
            Some(Presence::Taken) if self.is_replaced => {}
            Some(Presence::Taken) => {
                self.is_replaced = true;
                info!("{}: another tranche-kubelet serves it now", self.service.resource);
            }
            Some(presence) => match self.serve(presence) {
                Ok(()) if self.is_replaced => {
                    // The kubelet has forgotten this plugin, although it may still read its list.
                    self.is_replaced = false;
                    self.end_streams();
                    self.registrar.is_alone_again(now);
                }
                Ok(()) => self.registrar.socket_is_new(now),
                // Another process was faster.
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => self.fault(format!("{}: cannot listen: {e}", self.name)),
            },
        }
    }

    fn presence(&self) -> Option<Presence> {
        self.served.as_ref().map(|served| served.socket.presence())
    }

    fn end_streams(&self) {
        self.ending.send_modify(|ending| *ending += 1);
    }

    fn stream(&mut self, event: StreamEvent) {
        let resource = &self.service.resource;
        match event {
            StreamEvent::Opened(stream) => self.registrar.opened(stream),
            // The instance that took its place serves the resource.
            StreamEvent::Checked { .. } if self.is_replaced => {}
            StreamEvent::Checked { is_known } => {
                if let Some(wait) = self.registrar.checked(is_known, Instant::now()) {
                    let resource = resource.to_string();
                    // If the node has too much to do, the registration is in the log all the same.
                    let _ = self.service.node.try_send(Command::Forgotten { resource, wait });
                    self.end_streams();
                }
            }
            StreamEvent::Ended(stream) => match self.registrar.ended(stream, Instant::now()) {
                Ended::Ignored => {}
                Ended::Late(_) => info!("{resource}: the kubelet ended its connection; registering again"),
                Ended::Soon(wait) => warn!(
                    "{resource}: the kubelet ended its connection soon after the registration, as it does when it \
                     restarts or when another plugin registers this resource; registering again in {} ms",
                    wait.as_millis()
                ),
            },
        }
    }

    /// Registers the resource, after it is served: the kubelet asks for the options before it answers.
    async fn attempt(&mut self) {
        let resource = self.service.resource.clone();
        let failed = match self.presence() {
            Some(Presence::Taken) => {
                self.is_replaced = true;
                Some(format!("{}: another tranche-kubelet serves it now", self.name))
            }
            Some(Presence::Own) => None,
            // At the start, this process takes the place of any other one.
            presence => match self.serve(presence.unwrap_or(Presence::Stale)) {
                Ok(()) => None,
                Err(e) => Some(format!("{}: cannot listen: {e}", self.dir.join(&self.name).display())),
            },
        };
        if failed.is_none() && std::mem::take(&mut self.is_replaced) {
            self.end_streams();
        }
        let failed = match failed {
            None => match register(&self.dir, &self.name, &resource).await {
                Ok(()) => None,
                Err(status) => Some(format!("not registered: {}", status.message())),
            },
            Some(failed) => Some(failed),
        };
        let now = Instant::now();
        match failed {
            None => {
                self.registrar.registered(now);
                self.said.clear();
                self.before.clear();
                info!("{resource}: registered with the kubelet");
            }
            Some(failed) => {
                self.registrar.failed(now);
                self.fault(failed);
            }
        }
    }

    fn fault(&mut self, what: String) {
        if self.said != what {
            warn!("{}: {what}; trying again", self.service.resource);
            self.said = what;
        }
    }

    /// Serves the resource on a new socket. Until the kubelet has registered it, the one before serves its connections.
    fn serve(&mut self, instead_of: Presence) -> io::Result<()> {
        let path = self.dir.join(&self.name);
        let (socket, listener) = match instead_of {
            Presence::Missing => Socket::bind(path)?,
            _ => Socket::replace(path)?,
        };
        let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
        let (stop, stopped) = oneshot::channel();
        let serving = Server::builder().serve_with_incoming_shutdown(
            DevicePluginServer::new(self.service.clone()),
            incoming,
            async {
                let _ = stopped.await;
            },
        );
        let task = tokio::spawn(serving);
        self.before.extend(self.served.replace(Served { socket, stop, task }));
        // If something removes its sockets again and again, only the last ones matter.
        let old = self.before.len().saturating_sub(MOST_BEFORE);
        self.before.drain(..old);
        Ok(())
    }

    async fn end(mut self) {
        self.end_streams();
        self.before.clear();
        if let Some(served) = self.served.take() {
            served.socket.remove();
            let _ = served.stop.send(());
            let _ = tokio::time::timeout(LAST_CALLS, served.task).await;
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
