//! Calls to the kubelet: the registration of a resource, and the list of what pods have.

use crate::pods::List;
use crate::proto::deviceplugin::registration_client::RegistrationClient;
use crate::proto::deviceplugin::{DevicePluginOptions, RegisterRequest};
use crate::proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use crate::proto::podresources::{AllocatableResourcesRequest, ListPodResourcesRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tranche_core::ledger::PodName;

/// The version of the device plugin interface (`kubelet/pkg/apis/deviceplugin/v1beta1/constants.go`).
pub const VERSION: &str = "v1beta1";

/// The kubelet's socket in the directory of device plugins.
pub const SOCKET: &str = "kubelet.sock";

/// The kubelet asks the plugin for its options, for at most 10 s, before it answers a registration.
const REGISTER: Duration = Duration::from_secs(15);

/// How long a list may take.
const LIST: Duration = Duration::from_secs(5);

/// The most bytes of a list: it has all pods of the node with all their devices, CPUs and memory.
const MOST_BYTES: usize = 64 << 20;

/// What the plugin can do.
pub fn options() -> DevicePluginOptions {
    DevicePluginOptions {
        pre_start_required: true,
        get_preferred_allocation_available: true,
    }
}

/// The directory of device plugins in the kubelet's directory.
pub fn plugins_dir(kubelet_dir: &Path) -> PathBuf {
    kubelet_dir.join("device-plugins")
}

/// Registers `resource`, which is served on the socket named `endpoint`.
///
/// # Errors
/// Returns the status with which the kubelet refused, or why it did not answer.
pub async fn register(plugins_dir: &Path, endpoint: &str, resource: &str) -> Result<(), Status> {
    let channel = connect(&plugins_dir.join(SOCKET)).await?;
    let mut request = Request::new(RegisterRequest {
        version: VERSION.into(),
        endpoint: endpoint.into(),
        resource_name: resource.into(),
        options: Some(options()),
    });
    request.set_timeout(REGISTER);
    let answer = within(REGISTER, RegistrationClient::new(channel).register(request)).await?;
    drop(answer);
    Ok(())
}

/// What all pods have, of any resource: ids are unique on the node.
///
/// # Errors
/// Returns the kubelet's status, or why it did not answer.
pub async fn list(kubelet_dir: &Path) -> Result<List, Status> {
    let mut client = pod_resources(kubelet_dir).await?;
    let answer = within(LIST, client.list(ListPodResourcesRequest {})).await?;
    let pods = answer.into_inner().pod_resources.into_iter().map(|pod| {
        let name = PodName {
            namespace: pod.namespace,
            name: pod.name,
        };
        let devices = pod.containers.into_iter().flat_map(|container| container.devices);
        (name, devices.flat_map(|devices| devices.device_ids).collect())
    });
    Ok(pods.collect())
}

/// The ids that the kubelet takes for healthy, of each resource (`GetAllocatableDevices` in
/// `pkg/kubelet/cm/devicemanager/manager.go`).
///
/// # Errors
/// Returns the kubelet's status, or why it did not answer.
pub async fn allocatable(kubelet_dir: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Status> {
    let mut client = pod_resources(kubelet_dir).await?;
    let answer = within(LIST, client.get_allocatable_resources(AllocatableResourcesRequest {})).await?;
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for devices in answer.into_inner().devices {
        found
            .entry(devices.resource_name)
            .or_default()
            .extend(devices.device_ids);
    }
    Ok(found)
}

async fn pod_resources(kubelet_dir: &Path) -> Result<PodResourcesListerClient<Channel>, Status> {
    let channel = connect(&kubelet_dir.join("pod-resources/kubelet.sock")).await?;
    Ok(PodResourcesListerClient::new(channel).max_decoding_message_size(MOST_BYTES))
}

async fn connect(socket: &Path) -> Result<Channel, Status> {
    let shown = socket.display();
    let endpoint = Endpoint::from_shared(format!("unix://{shown}"))
        .map_err(|e| Status::invalid_argument(format!("{shown}: {e}")))?;
    within(LIST, async {
        endpoint.connect().await.map_err(|e| {
            // The text of the error itself is only that it is one of the transport.
            let cause = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Status::unavailable(format!("{shown}: cannot connect: {cause}"))
        })
    })
    .await
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded(format!(
            "the kubelet did not answer within {} s",
            limit.as_secs()
        ))),
    }
}
