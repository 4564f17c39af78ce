//! A node with a kubelet and instances of a driver, whose handler keeps its claims in memory.

use crate::bed::until;
use crate::fake_kubelet::dra::FakeDra;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::dra::{ClaimHandler, DeviceHealth, DraSettings, DraTimes, Health, PreparedDevice, serve};
use tranche_kubelet::ready::Ready;
use tranche_kubelet::said::{Notice, Said};

pub(super) const DRIVER: &str = "gpu.tranche.dev";

/// Longer than any test.
pub(super) const NEVER: Duration = Duration::from_secs(3600);

/// A claim whose name and UID are `name`.
pub(super) fn claim(name: &str) -> KubernetesObject {
    KubernetesObject {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("{name}-uid"),
    }
}

/// What all instances of a driver share, as they share the broker on a real node.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) prepared: BTreeSet<KubernetesObject>,
    /// Every call, in its order.
    pub(super) calls: Vec<String>,
    pub(super) asked_at: Vec<u64>,
    /// Why claims are refused, by their UIDs.
    pub(super) refused: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Handler(Arc<Mutex<Shared>>);

impl ClaimHandler for Handler {
    async fn prepare(&self, claim: KubernetesObject, asked_at: u64) -> Result<Vec<PreparedDevice>, String> {
        self.0.lock().unwrap().calls.push(format!("prepare {}", claim.name));
        // Another claim would have its turn here, if they were prepared at once.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut shared = self.0.lock().unwrap();
        shared.calls.push(format!("prepared {}", claim.name));
        shared.asked_at.push(asked_at);
        if let Some(why) = shared.refused.get(&claim.uid) {
            return Err(why.clone());
        }
        let device = PreparedDevice {
            requests: vec!["gpu".into()],
            pool: "node1".into(),
            device: "gpu-0".into(),
            cdi: vec![format!("nvidia.com/claim={}-gpu-gpu-0", claim.uid)],
            share_id: Some("share".into()),
        };
        shared.prepared.insert(claim);
        Ok(vec![device])
    }

    async fn unprepare(&self, claim: KubernetesObject) -> Result<(), String> {
        let mut shared = self.0.lock().unwrap();
        shared.calls.push(format!("unprepare {}", claim.name));
        if let Some(why) = shared.refused.get(&claim.uid) {
            return Err(why.clone());
        }
        shared.prepared.remove(&claim);
        Ok(())
    }
}

pub(super) struct Node {
    pub(super) kubelet: FakeDra,
    handler: Handler,
    top: TempDir,
}

/// An instance of the driver.
pub(super) struct Instance {
    pub(super) settings: DraSettings,
    pub(super) health: watch::Sender<Vec<DeviceHealth>>,
    pub(super) events: mpsc::Receiver<Notice>,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Node {
    /// One whose kubelet does not run yet.
    pub(super) fn asleep() -> Self {
        // Not in the build directory: a path of a socket has at most 107 bytes, and the UID of a pod has 36.
        let top = tempfile::tempdir().unwrap();
        Self {
            kubelet: FakeDra::new(top.path()),
            handler: Handler::default(),
            top,
        }
    }

    pub(super) fn new() -> Self {
        let mut node = Self::asleep();
        node.kubelet.start();
        node
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.handler.0.lock().unwrap()
    }

    pub(super) fn dir(&self) -> &Path {
        self.top.path()
    }

    pub(super) fn settings(&self, pod_uid: Option<&str>) -> DraSettings {
        DraSettings {
            kubelet_dir: self.top.path().to_owned(),
            driver: DRIVER.into(),
            pod_uid: pod_uid.map(str::to_owned),
            times: DraTimes {
                look: Duration::from_millis(20),
                resend: NEVER,
            },
        }
    }

    pub(super) fn driver(&self) -> Instance {
        self.start(self.settings(None))
    }

    pub(super) fn start(&self, settings: DraSettings) -> Instance {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let healthy = DeviceHealth {
            pool: "node1".into(),
            device: "gpu-0".into(),
            health: Health::Healthy,
            message: String::new(),
        };
        let (health, devices) = watch::channel(vec![healthy]);
        let (events_sender, events) = mpsc::channel(8);
        let (stop, stopped) = oneshot::channel::<()>();
        let said = Said::new(Some(events_sender));
        let task = runtime.spawn(serve(
            settings.clone(),
            self.handler.clone(),
            devices,
            said,
            Ready::new(false, true),
            async {
                let _ = stopped.await;
            },
        ));
        Instance {
            settings,
            health,
            events,
            runtime: Some(runtime),
            stop: Some(stop),
            task: Some(task),
        }
    }

    pub(super) fn wait_registered(&self, instances: usize) {
        until(&format!("{instances} instances are registered"), || {
            self.kubelet.registered(DRIVER).len() == instances
        });
    }

    /// The files of the registry and of the driver, without those that are renamed in a moment.
    pub(super) fn sockets(&self) -> Vec<String> {
        let dirs = ["plugins_registry".to_owned(), format!("plugins/{DRIVER}")];
        let entries = dirs
            .iter()
            .flat_map(|dir| fs::read_dir(self.top.path().join(dir)).into_iter().flatten());
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }
}

impl Instance {
    /// Ends it as SIGTERM does.
    pub(super) fn stop(mut self) {
        drop(self.stop.take());
        let (runtime, task) = (self.runtime.take().unwrap(), self.task.take().unwrap());
        runtime.block_on(task).unwrap();
        runtime.shutdown_background();
    }

    /// Its next event.
    pub(super) fn event(&mut self) -> Notice {
        let mut event = None;
        until("there is an event", || {
            event = self.events.try_recv().ok();
            event.is_some()
        });
        event.unwrap()
    }

    pub(super) fn socket_files(&self) -> [PathBuf; 2] {
        [self.settings.socket(), self.settings.registration_socket()]
    }
}

impl Drop for Instance {
    /// Ends it as SIGKILL does: its sockets stay, and nobody listens on them.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}
