//! A kubelet as far as a driver for dynamic resource allocation sees it: the plugin watcher and the manager of claims
//! of Kubernetes 1.36. The names in comments are those of `pkg/kubelet`.

mod calls;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tonic::transport::{Channel, Endpoint};
use tranche_kubelet::proto::drahealth as health;
use tranche_kubelet::proto::drahealth::dra_resource_health_client::DraResourceHealthClient;
use tranche_kubelet::proto::pluginregistration as api;
use wire::GoClient;

const HEALTH: &str = "v1alpha1.DRAResourceHealth";

/// A driver that is registered.
struct Driver {
    /// The socket in the registry, and what tells it from a later one of the same name.
    socket: (PathBuf, Identity),
    name: String,
    endpoint: String,
    /// The first of its versions that this kubelet supports.
    version: String,
    channel: Channel,
    health: Option<AbortHandle>,
}

/// Device, inode, time of the last change.
type Identity = (u64, u64, i64, i64);

pub(crate) struct State {
    /// In the order of their registrations: the newest is called (`cm/dra/plugin/dra_plugin_manager.go`).
    drivers: Vec<Driver>,
    /// The services that this kubelet supports.
    pub(crate) supported: Vec<&'static str>,
    /// What the drivers answered to GetInfo, with a registration or without.
    pub(crate) infos: Vec<api::PluginInfo>,
    /// Why sockets were not registered; it tries again.
    pub(crate) failures: Vec<String>,
    /// The CDI names of each claim that is prepared, by its UID. A restart forgets them.
    prepared: BTreeMap<String, Vec<String>>,
    /// The messages of the streams of health, since the beginning.
    pub(crate) health: Vec<health::NodeWatchResourcesResponse>,
}

/// Its state is shared with its threads.
pub(crate) struct FakeDra {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    is_ending: Arc<AtomicBool>,
    watcher: JoinHandle<()>,
}

impl FakeDra {
    /// One in `dir`, the directory of the kubelet, that is not started.
    pub(crate) fn new(dir: &Path) -> Self {
        let state = State {
            drivers: Vec::new(),
            supported: vec!["v1.DRAPlugin", "v1beta1.DRAPlugin", HEALTH],
            infos: Vec::new(),
            failures: Vec::new(),
            prepared: BTreeMap::new(),
            health: Vec::new(),
        };
        Self {
            dir: dir.to_owned(),
            state: Arc::new(Mutex::new(state)),
            running: None,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Watches the registry: it registers each socket that is there, and each one that comes
    /// (`pluginmanager/pluginwatcher/plugin_watcher.go`).
    pub(crate) fn start(&mut self) {
        let registry = self.dir.join("plugins_registry");
        fs::create_dir_all(&registry).unwrap();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let is_ending = Arc::new(AtomicBool::new(false));
        let (handle, state, end) = (runtime.handle().clone(), self.state.clone(), is_ending.clone());
        let watcher = thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                look(&registry, &state, &handle);
                thread::sleep(Duration::from_millis(5));
            }
        });
        self.running = Some(Running {
            runtime,
            is_ending,
            watcher,
        });
    }

    /// The process ends: its connections are closed, and what it knew is forgotten.
    pub(crate) fn stop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        running.is_ending.store(true, Ordering::Relaxed);
        // A test that fails in the watcher fails by what it waits for.
        let _ = running.watcher.join();
        running.runtime.shutdown_timeout(Duration::from_secs(10));
        let mut state = self.state();
        state.drivers.clear();
        state.prepared.clear();
    }

    /// The endpoints of the instances of a driver, the oldest first, with the version that is used.
    pub(crate) fn registered(&self, driver: &str) -> Vec<(String, String)> {
        let state = self.state();
        let drivers = state.drivers.iter().filter(|found| found.name == driver);
        drivers
            .map(|found| (found.endpoint.clone(), found.version.clone()))
            .collect()
    }
}

impl Drop for FakeDra {
    fn drop(&mut self) {
        self.stop();
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Names that begin with a dot are ignored.
fn sockets(registry: &Path) -> Vec<(PathBuf, Identity)> {
    let entries = fs::read_dir(registry).into_iter().flatten().flatten();
    let named = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let paths = named.map(|entry| entry.path());
    paths.filter_map(|path| identity(&path).map(|id| (path, id))).collect()
}

fn look(registry: &Path, state: &Arc<Mutex<State>>, handle: &tokio::runtime::Handle) {
    let found = sockets(registry);
    let is_known = {
        let mut state = state.lock().unwrap();
        for gone in state.drivers.extract_if(.., |driver| !found.contains(&driver.socket)) {
            gone.health.inspect(AbortHandle::abort);
        }
        let known: Vec<_> = state.drivers.iter().map(|driver| driver.socket.clone()).collect();
        move |socket: &(PathBuf, Identity)| known.contains(socket)
    };
    for socket in found.into_iter().filter(|socket| !is_known(socket)) {
        if let Err(failure) = register(&socket, state, handle) {
            state.lock().unwrap().failures.push(failure);
        }
    }
}

/// Registers what listens on a socket (`pluginmanager/operationexecutor/operation_generator.go`).
fn register(
    socket: &(PathBuf, Identity),
    state: &Arc<Mutex<State>>,
    handle: &tokio::runtime::Handle,
) -> Result<(), String> {
    let mut client = GoClient::dial(&socket.0).map_err(|e| e.to_string())?;
    let info: api::PluginInfo = client.call(
        "/pluginregistration.Registration/GetInfo",
        Duration::from_secs(1),
        &api::InfoRequest {},
    )?;
    let accepted = accept(&info, state);
    state.lock().unwrap().infos.push(info.clone());
    let status = api::RegistrationStatus {
        plugin_registered: accepted.is_ok(),
        error: accepted.as_ref().err().cloned().unwrap_or_default(),
    };
    let _: api::RegistrationStatusResponse = client.call(
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        Duration::from_secs(5),
        &status,
    )?;
    let version = accepted?;
    let dialled = Endpoint::from_shared(format!("unix://{}", info.endpoint)).unwrap();
    let dialled = dialled.origin("http://localhost".parse().unwrap());
    let channel = handle.block_on(dialled.connect()).map_err(|e| e.to_string())?;
    let is_watched = info.supported_versions.iter().any(|version| version == HEALTH);
    let health = is_watched.then(|| {
        handle
            .spawn(watch_health(channel.clone(), state.clone()))
            .abort_handle()
    });
    state.lock().unwrap().drivers.push(Driver {
        socket: socket.clone(),
        name: info.name,
        endpoint: info.endpoint,
        version,
        channel,
        health,
    });
    Ok(())
}

/// The version that is used (`cm/dra/plugin/dra_plugin_manager.go`, validateSupportedServices and add).
fn accept(info: &api::PluginInfo, state: &Mutex<State>) -> Result<String, String> {
    let state = state.lock().unwrap();
    if info.r#type != "DRAPlugin" {
        return Err(format!("no handler registered for plugin type {}", info.r#type));
    }
    if state.drivers.iter().any(|driver| driver.endpoint == info.endpoint) {
        return Err(format!("endpoint {} already registered", info.endpoint));
    }
    let versions = info.supported_versions.iter();
    let mut usable = versions.filter(|version| version.ends_with(".DRAPlugin"));
    let usable = usable.find(|version| state.supported.contains(&version.as_str()));
    usable.cloned().ok_or(format!(
        "none of the services {:?} is supported",
        info.supported_versions
    ))
}

async fn watch_health(channel: Channel, state: Arc<Mutex<State>>) {
    let mut client = DraResourceHealthClient::new(channel);
    let Ok(answer) = client.node_watch_resources(health::NodeWatchResourcesRequest {}).await else {
        return;
    };
    let mut stream = answer.into_inner();
    while let Ok(Some(message)) = stream.message().await {
        state.lock().unwrap().health.push(message);
    }
}
