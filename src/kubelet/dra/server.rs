//! Both sockets of a driver, from the start to the end.

use crate::dra::authority::AuthorityFilter;
use crate::dra::claims::Claims;
use crate::dra::health::HealthService;
use crate::dra::listening::{Listening, remove_stale};
use crate::dra::registration::Registration;
use crate::dra::routes::Routes;
use crate::dra::{ClaimHandler, DeviceHealth};
use crate::proto::pluginregistration::registration_server::RegistrationServer;
use crate::ready::{Part, Ready};
use crate::said::{Said, Topic};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tracing::warn;

/// How long a server that ends waits for calls that are not answered yet.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// How many connections wait for the server.
const WAITING: usize = 16;

/// The directory in that of the kubelet whose sockets its plugin watcher dials.
const REGISTRY: &str = "plugins_registry";

const REGISTRATION_SUFFIX: &str = "-reg.sock";

/// Where a driver is served.
#[derive(Debug, Clone)]
pub struct DraSettings {
    /// The directory of the kubelet: `/var/lib/kubelet`.
    pub kubelet_dir: PathBuf,
    /// The name of the driver, a DNS subdomain: `gpu.tranche.dev`.
    pub driver: String,
    /// The UID of the driver's pod, so that an old and a new instance can be there at once; `None`: only one is.
    pub pod_uid: Option<String>,
    /// How long things take.
    pub times: DraTimes,
}

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct DraTimes {
    /// How often the sockets are looked at, if inotify reports nothing.
    pub look: Duration,
    /// How often the health of all devices is sent, if nothing changes. The kubelet takes it for unknown after 30 s.
    pub resend: Duration,
}

impl Default for DraTimes {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(5),
            resend: Duration::from_secs(10),
        }
    }
}

impl DraSettings {
    /// The socket that the kubelet finds: `plugins_registry/DRIVER-reg.sock`, or `DRIVER-UID-reg.sock`.
    pub fn registration_socket(&self) -> PathBuf {
        let uid = self.pod_uid.iter().map(|uid| format!("-{uid}")).collect::<String>();
        let name = format!("{}{uid}{REGISTRATION_SUFFIX}", self.driver);
        self.kubelet_dir.join(REGISTRY).join(name)
    }

    /// The socket of the driver: `plugins/DRIVER/dra.sock`, or `dra-UID.sock`.
    pub fn socket(&self) -> PathBuf {
        let uid = self.pod_uid.iter().map(|uid| format!("-{uid}")).collect::<String>();
        self.dir().join(format!("dra{uid}.sock"))
    }

    fn dir(&self) -> PathBuf {
        self.kubelet_dir.join("plugins").join(&self.driver)
    }

    /// Removes the sockets of instances that ended without removing them: the kubelet would dial them for ever.
    fn remove_stale(&self) {
        remove_stale(&self.dir(), |name| is_of_instance(unhidden(name), "dra", ".sock"));
        remove_stale(&self.kubelet_dir.join(REGISTRY), |name| {
            is_of_instance(unhidden(name), &self.driver, REGISTRATION_SUFFIX)
        });
    }
}

/// The name of a socket that was perhaps not renamed yet: [`crate::socket::Socket::replace_private`].
fn unhidden(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// Whether `name` is `start` and `end`, perhaps with the UID of a pod between them. The name of another driver may
/// begin with that of this one.
fn is_of_instance(name: &str, start: &str, end: &str) -> bool {
    let between = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    between.is_some_and(|between| {
        // The UID of a static pod has no hyphens.
        let is_uid = |uid: &str| {
            let digits = uid.bytes().filter(|byte| *byte != b'-');
            digits.clone().count() == 32 && digits.clone().all(|byte| byte.is_ascii_hexdigit())
        };
        between.is_empty() || between.strip_prefix('-').is_some_and(is_uid)
    })
}

/// Serves the driver until `stop` is ready, and then removes its sockets. `health` has all devices of the driver.
/// Connections stay when the sockets are removed or the kubelet is new: nothing is kept in memory between two calls.
pub async fn serve(
    settings: DraSettings,
    handler: impl ClaimHandler,
    health: watch::Receiver<Vec<DeviceHealth>>,
    said: Said,
    ready: Ready,
    stop: impl Future<Output = ()>,
) {
    settings.remove_stale();
    let said = Arc::new(Mutex::new(said));
    let (ending, ended) = watch::channel(false);
    let health = HealthService {
        devices: health,
        ending: ended.clone(),
        resend: settings.times.resend,
    };
    let registration = Registration {
        driver: settings.driver.as_str().into(),
        endpoint: settings.socket(),
        said: said.clone(),
        ready: ready.clone(),
    };
    let (plugin_sender, plugin_connections) = mpsc::channel(WAITING);
    let (registration_sender, registration_connections) = mpsc::channel(WAITING);
    let incoming = ReceiverStream::new(registration_connections).map(filtered);
    let servers = [
        tokio::spawn(Server::builder().serve_with_incoming_shutdown(
            Routes::new(Claims::new(handler), health),
            ReceiverStream::new(plugin_connections),
            end(ended.clone()),
        )),
        tokio::spawn(Server::builder().serve_with_incoming_shutdown(
            RegistrationServer::new(registration),
            incoming,
            end(ended),
        )),
    ];
    // The kubelet dials the driver as soon as it finds the registration.
    let mut sockets = [
        Listening::new(settings.socket(), plugin_sender),
        Listening::new(settings.registration_socket(), registration_sender),
    ];
    tokio::select! {
        () = stop => {}
        () = keep(&mut sockets, &settings, &said, &ready) => {}
    }
    // The kubelet forgets the driver when the registration is gone.
    let [plugin, registration] = sockets;
    registration.end();
    plugin.end();
    // The receivers are the servers.
    let _ = ending.send(true);
    for server in servers {
        finish(server).await;
    }
}

fn filtered(stream: io::Result<UnixStream>) -> io::Result<AuthorityFilter<UnixStream>> {
    stream.map(AuthorityFilter::new)
}

/// Keeps the sockets where they belong.
async fn keep(sockets: &mut [Listening], settings: &DraSettings, said: &Mutex<Said>, ready: &Ready) {
    let (sender, mut changes) = watch::channel(0);
    let dirs = vec![settings.dir(), settings.kubelet_dir.join(REGISTRY)];
    let look = settings.times.look;
    let watching = crate::watch::directories(dirs, look, sender);
    tokio::pin!(watching);
    loop {
        let topic = Topic::DriverSocket(settings.driver.clone());
        changes.mark_unchanged();
        let checked = sockets.iter_mut().try_for_each(Listening::check);
        let is_well = checked.is_ok();
        {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            match checked {
                Ok(()) => said.is_well(&topic),
                Err(e) => {
                    let what = format!("driver {}: {e}; trying again", settings.driver);
                    // The kubelet registers it anew from its new socket.
                    ready.set(Part::Driver, Some(what.clone()));
                    said.warn(topic, what);
                }
            }
        }
        tokio::select! {
            () = &mut watching => return,
            // A socket that cannot be put into its place is a change of its directory, too.
            () = tokio::time::sleep(look), if !is_well => {}
            _ = changes.changed(), if is_well => {}
        }
    }
}

async fn end(mut ended: watch::Receiver<bool>) {
    // The sender is gone if the program ends.
    let _ = ended.wait_for(|ended| *ended).await;
}

async fn finish(mut server: JoinHandle<Result<(), tonic::transport::Error>>) {
    match tokio::time::timeout(LAST_CALLS, &mut server).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(e))) => warn!("the driver's server has failed: {e}"),
        Ok(Err(e)) => warn!("the driver's server has failed: {e}"),
        Err(_) => server.abort(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_of_an_instance_of_the_same_driver_only() {
        let driver = "gpu.tranche.dev";
        for (name, is) in [
            ("gpu.tranche.dev-reg.sock", true),
            ("gpu.tranche.dev-0b5ee5c8-0a34-4e8a-9d0a-0d5f4e7a8f11-reg.sock", true),
            ("gpu.tranche.dev-0b5ee5c80a344e8a9d0a0d5f4e7a8f11-reg.sock", true),
            (".gpu.tranche.dev-reg.sock", true),
            ("gpu.tranche.dev-mig-reg.sock", false),
            ("gpu.tranche.dev.example-reg.sock", false),
            ("other-reg.sock", false),
            (".hidden.gpu.tranche.dev-reg.sock", false),
        ] {
            assert_eq!(
                is_of_instance(unhidden(name), driver, REGISTRATION_SUFFIX),
                is,
                "{name}"
            );
        }
    }
}
