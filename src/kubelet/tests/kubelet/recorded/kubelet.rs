//! A kubelet that does what was recorded.

use super::{CALLS, PODS, REGISTERED, frames, runtime};
use crate::bed::{Bed, GPU, Plugin};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tranche_kubelet::proto::deviceplugin as api;
use tranche_kubelet::proto::deviceplugin::device_plugin_client::DevicePluginClient;

/// The sockets of a kubelet, and its connection to the plugin.
pub(super) struct RecordedKubelet {
    dir: PathBuf,
    runtime: Runtime,
    client: DevicePluginClient<Channel>,
    pub(super) options: api::DevicePluginOptions,
}

impl RecordedKubelet {
    /// Waits until the plugin of `bed` registers, and asks it for its options before it answers.
    pub(super) fn start(bed: &Bed) -> (Self, Plugin) {
        let dir = bed.settings().kubelet_dir;
        let requests = dir.join("requests.sock");
        frames::replace_requests(&requests, CALLS, bed.socket(GPU));
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let (registered, registration) = mpsc::channel();
        frames::serve(&dir.join("device-plugins/kubelet.sock"), REGISTERED, move || {
            let endpoint = Endpoint::from_shared(format!("unix://{}", requests.display())).unwrap();
            let answer = handle.block_on(async {
                let mut client = DevicePluginClient::new(endpoint.connect().await?);
                let options = client.get_device_plugin_options(api::Empty {}).await;
                Ok::<_, tonic::transport::Error>((client, options))
            });
            // A plugin that registers again when the test has ended has nobody who waits.
            if let Ok(answer) = answer {
                let _ = registered.send(answer);
            }
        });
        let plugin = bed.plugin();
        let (client, options) = registration.recv_timeout(Duration::from_secs(60)).unwrap();
        let kubelet = Self {
            dir,
            runtime,
            client,
            options: options.unwrap().into_inner(),
        };
        (kubelet, plugin)
    }

    /// The health of each id in the first list. The stream stays open while the kubelet lives.
    pub(super) fn first_list(&mut self) -> (BTreeMap<String, String>, tonic::Streaming<api::ListAndWatchResponse>) {
        let client = &mut self.client;
        self.runtime.block_on(async {
            let mut lists = client.list_and_watch(api::Empty {}).await.unwrap().into_inner();
            let list = lists.message().await.unwrap().unwrap();
            let devices = list.devices.into_iter().map(|device| (device.id, device.health));
            (devices.collect(), lists)
        })
    }

    pub(super) fn prefer(&mut self) -> BTreeSet<String> {
        let asked = self
            .client
            .get_preferred_allocation(api::PreferredAllocationRequest::default());
        let answer = self.runtime.block_on(asked).unwrap().into_inner();
        assert_eq!(answer.container_responses.len(), 1);
        answer.container_responses[0].device_i_ds.iter().cloned().collect()
    }

    pub(super) fn allocate(&mut self) -> BTreeSet<String> {
        let asked = self.client.allocate(api::AllocateRequest::default());
        let answer = self.runtime.block_on(asked).unwrap().into_inner();
        assert_eq!(answer.container_responses.len(), 1);
        let devices = answer.container_responses[0].cdi_devices.iter();
        devices.map(|device| device.name.clone()).collect()
    }

    /// Lists the pods from now on.
    pub(super) fn list_pods(&self) {
        frames::serve(&self.dir.join("pod-resources/kubelet.sock"), PODS, || {});
    }

    pub(super) fn pre_start(&mut self) {
        let asked = self
            .client
            .pre_start_container(api::PreStartContainerRequest::default());
        self.runtime.block_on(asked).unwrap();
    }
}
