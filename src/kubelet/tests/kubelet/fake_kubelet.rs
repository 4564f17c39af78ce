//! A kubelet as far as a device plugin sees it: the manager of devices and PodResources of Kubernetes 1.36, in their
//! order of events. The names in comments are those of `pkg/kubelet/cm/devicemanager`.

pub(crate) mod dra;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Status};
use tranche_kubelet::proto::deviceplugin as api;
use tranche_kubelet::proto::deviceplugin::device_plugin_client::DevicePluginClient;
use tranche_kubelet::proto::deviceplugin::registration_server::RegistrationServer;
use tranche_kubelet::proto::podresources::pod_resources_lister_server::PodResourcesListerServer;

/// Pod, container, resource.
type Key = (String, String, String);

/// What the kubelet keeps in its checkpoint for a container.
#[derive(Clone)]
struct Allocation {
    ids: BTreeSet<String>,
    cdi: Vec<String>,
}

/// The connection to a plugin.
struct Client {
    number: u64,
    channel: Channel,
    options: api::DevicePluginOptions,
    stream: Option<AbortHandle>,
}

#[derive(Default)]
pub(crate) struct State {
    clients: BTreeMap<String, Client>,
    /// The last list of each resource; `None` after its plugin is gone.
    lists: BTreeMap<String, Option<Vec<api::Device>>>,
    checkpoint: BTreeMap<Key, Allocation>,
    /// When which resource was registered, in this life of the kubelet and those before.
    pub(crate) registrations: Vec<(Instant, api::RegisterRequest)>,
    /// How many lists were received.
    pub(crate) received: usize,
    /// Every call of Allocate and PreStartContainer.
    pub(crate) calls: Vec<String>,
    /// Whether it ends the connection of a plugin right after its registration.
    pub(crate) is_fighting: bool,
    /// Whether PodResources fails.
    pub(crate) hides_pods: bool,
    /// Pods that are missing from that many lists.
    pub(crate) missing: BTreeMap<String, usize>,
    /// How often PodResources was asked.
    pub(crate) asked: usize,
    numbers: u64,
}

#[derive(Clone)]
struct Kubelet {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
}

pub(crate) struct FakeKubelet {
    kubelet: Kubelet,
    runtime: Option<Runtime>,
}

impl FakeKubelet {
    /// One in `dir`, the directory of the kubelet, that is not started.
    pub(crate) fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir.join("device-plugins")).unwrap();
        fs::create_dir_all(dir.join("pod-resources")).unwrap();
        Self {
            kubelet: Kubelet {
                dir: dir.to_owned(),
                state: Arc::default(),
            },
            runtime: None,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.kubelet.dir.join("device-plugins/kubelet.sock")
    }

    /// The process ends: its connections are closed, and its sockets stay.
    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Its sockets are closed when this returns.
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
        let mut state = self.state();
        state.clients.clear();
        state.lists.clear();
    }

    /// A new process: it removes all sockets and serves its own (`plugin/v1beta1/server.go`, Start). What it allocated
    /// is in its checkpoint.
    pub(crate) fn start(&mut self) {
        for entry in fs::read_dir(self.kubelet.dir.join("device-plugins")).unwrap() {
            // A plugin may have renamed its socket by now.
            let _ = fs::remove_file(entry.unwrap().path());
        }
        self.serve();
    }

    /// As [`FakeKubelet::start`], without touching the sockets of plugins. Returns whether its socket has the number of
    /// the inode of the one before, which a file system may choose or not.
    pub(crate) fn replace_socket(&mut self) -> bool {
        let before = fs::metadata(self.socket()).unwrap().ino();
        self.stop();
        fs::remove_file(self.socket()).unwrap();
        // Another test may get the number first.
        for _ in 0..100 {
            drop(std::os::unix::net::UnixListener::bind(self.socket()).unwrap());
            let is_same = fs::metadata(self.socket()).unwrap().ino() == before;
            fs::remove_file(self.socket()).unwrap();
            if is_same {
                break;
            }
        }
        self.serve();
        fs::metadata(self.socket()).unwrap().ino() == before
    }

    fn serve(&mut self) {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let at = self.kubelet.dir.join("pod-resources/kubelet.sock");
        let _ = fs::remove_file(&at);
        let kubelet = self.kubelet.clone();
        let (registration, listing) = {
            let _enter = runtime.enter();
            let listener = |path: &Path| UnixListenerStream::new(UnixListener::bind(path).unwrap());
            (listener(&self.socket()), listener(&at))
        };
        runtime.spawn(Server::builder().serve_with_incoming(RegistrationServer::new(kubelet.clone()), registration));
        runtime.spawn(Server::builder().serve_with_incoming(PodResourcesListerServer::new(kubelet), listing));
        self.runtime = Some(runtime);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.kubelet.state.lock().unwrap()
    }

    /// The ids of a resource with their health, as the node's status has them.
    pub(crate) fn devices(&self, resource: &str) -> BTreeMap<String, bool> {
        let state = self.state();
        let list = state.lists.get(resource).cloned().flatten().unwrap_or_default();
        list.into_iter()
            .map(|device| (device.id, device.health == "Healthy"))
            .collect()
    }

    /// How many can be allocated.
    pub(crate) fn allocatable(&self, resource: &str) -> usize {
        self.devices(resource).values().filter(|healthy| **healthy).count()
    }

    /// Another plugin has registered the resource and has ended: nothing is left of it, and the stream of the first
    /// plugin is still read.
    pub(crate) fn forget(&self, resource: &str) {
        let mut state = self.state();
        state.clients.remove(resource);
        state.lists.insert(resource.to_owned(), None);
    }

    /// How often a resource was registered.
    pub(crate) fn registered(&self, resource: &str) -> usize {
        let state = self.state();
        state
            .registrations
            .iter()
            .filter(|(_, request)| request.resource_name == resource)
            .count()
    }

    fn client(&self, resource: &str) -> Option<(DevicePluginClient<Channel>, api::DevicePluginOptions)> {
        let state = self.state();
        let client = state.clients.get(resource)?;
        Some((DevicePluginClient::new(client.channel.clone()), client.options))
    }

    fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        let limit = Duration::from_secs(60);
        let runtime = self.runtime.as_ref().unwrap();
        runtime.block_on(async { tokio::time::timeout(limit, call).await.unwrap() })
    }

    /// Admits a container: chooses devices, and asks for what they need, or replays the answer of the checkpoint
    /// (`manager.go`, devicesToAllocate and allocateContainerResources). An error fails the pod.
    pub(crate) fn admit(
        &self,
        pod: &str,
        container: &str,
        resource: &str,
        count: usize,
    ) -> Result<Vec<String>, Status> {
        let key = (pod.to_owned(), container.to_owned(), resource.to_owned());
        let (healthy, in_use) = {
            let state = self.state();
            if let Some(allocation) = state.checkpoint.get(&key) {
                return Ok(allocation.cdi.clone());
            }
            let of = |(_, allocation): (&Key, &Allocation)| allocation.ids.clone();
            let in_use: BTreeSet<String> = state
                .checkpoint
                .iter()
                .filter(|(key, _)| key.2 == resource)
                .flat_map(of)
                .collect();
            drop(state);
            let healthy = self.devices(resource).into_iter().filter(|(_, healthy)| *healthy);
            (healthy.map(|(id, _)| id).collect::<BTreeSet<_>>(), in_use)
        };
        let free: BTreeSet<String> = healthy.difference(&in_use).cloned().collect();
        if free.len() < count {
            return Err(Status::resource_exhausted(format!(
                "{} of {resource} are free",
                free.len()
            )));
        }
        let Some((mut client, options)) = self.client(resource) else {
            return Err(Status::unavailable("endpoint stopped"));
        };
        let mut ids = BTreeSet::new();
        // The plugin is asked only if there is a choice.
        if options.get_preferred_allocation_available && free.len() > count {
            let preferred = self.prefer(resource, &free.iter().cloned().collect::<Vec<_>>(), &[], count as i32)?;
            ids.extend(preferred.into_iter().filter(|id| free.contains(id)).take(count));
        }
        let rest = free
            .difference(&ids)
            .take(count - ids.len())
            .cloned()
            .collect::<Vec<_>>();
        ids.extend(rest);
        self.state().calls.push(format!(
            "Allocate {}",
            ids.iter().cloned().collect::<Vec<_>>().join(",")
        ));
        let request = api::AllocateRequest {
            container_requests: vec![api::ContainerAllocateRequest {
                devices_i_ds: ids.iter().cloned().collect(),
            }],
        };
        let answer = self.wait(client.allocate(request))?.into_inner();
        let cdi: Vec<String> = answer.container_responses[0]
            .cdi_devices
            .iter()
            .map(|d| d.name.clone())
            .collect();
        let allocation = Allocation { ids, cdi: cdi.clone() };
        self.state().checkpoint.insert(key, allocation);
        Ok(cdi)
    }

    /// Asks for the plugin's preference.
    pub(crate) fn prefer(
        &self,
        resource: &str,
        free: &[String],
        must: &[String],
        size: i32,
    ) -> Result<Vec<String>, Status> {
        let (mut client, _) = self.client(resource).unwrap();
        let request = api::PreferredAllocationRequest {
            container_requests: vec![api::ContainerPreferredAllocationRequest {
                available_device_i_ds: free.to_vec(),
                must_include_device_i_ds: must.to_vec(),
                allocation_size: size,
            }],
        };
        let answer = self.wait(client.get_preferred_allocation(request))?.into_inner();
        Ok(answer.container_responses[0].device_i_ds.clone())
    }

    /// Allocates these ids, whatever they are.
    pub(crate) fn allocate(&self, resource: &str, ids: &[&str]) -> Result<Vec<String>, Status> {
        let (mut client, _) = self.client(resource).unwrap();
        let request = api::AllocateRequest {
            container_requests: vec![api::ContainerAllocateRequest {
                devices_i_ds: ids.iter().map(|id| (*id).to_owned()).collect(),
            }],
        };
        let answer = self.wait(client.allocate(request))?.into_inner();
        Ok(answer.container_responses[0]
            .cdi_devices
            .iter()
            .map(|d| d.name.clone())
            .collect())
    }

    /// Starts a container that was admitted, the first time or again (`manager.go`, GetDeviceRunContainerOptions). An
    /// error stops this start; the kubelet tries again. The call is left out if the plugin is away.
    pub(crate) fn run(&self, pod: &str, container: &str, resource: &str) -> Result<Vec<String>, Status> {
        let key = (pod.to_owned(), container.to_owned(), resource.to_owned());
        let allocation = self.state().checkpoint[&key].clone();
        if let Some((mut client, options)) = self.client(resource)
            && options.pre_start_required
        {
            let ids: Vec<String> = allocation.ids.into_iter().collect();
            self.state().calls.push(format!("PreStartContainer {}", ids.join(",")));
            let mut request = Request::new(api::PreStartContainerRequest { devices_i_ds: ids });
            request.set_timeout(Duration::from_secs(30));
            self.wait(client.pre_start_container(request))?;
        }
        Ok(allocation.cdi)
    }

    /// The ids of a pod.
    pub(crate) fn ids(&self, pod: &str) -> BTreeSet<String> {
        let state = self.state();
        let of_pod = state.checkpoint.iter().filter(|(key, _)| key.0 == pod);
        of_pod.flat_map(|(_, allocation)| allocation.ids.clone()).collect()
    }

    /// The pod is deleted.
    pub(crate) fn delete(&self, pod: &str) {
        self.state().checkpoint.retain(|key, _| key.0 != pod);
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.stop();
    }
}
