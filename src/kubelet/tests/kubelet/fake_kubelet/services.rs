//! What the kubelet serves: the registration of plugins, and PodResources.

use super::{Client, Kubelet, State};
use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tranche_kubelet::proto::deviceplugin as api;
use tranche_kubelet::proto::deviceplugin::device_plugin_client::DevicePluginClient;
use tranche_kubelet::proto::deviceplugin::registration_server::Registration;
use tranche_kubelet::proto::podresources as pods;
use tranche_kubelet::proto::podresources::pod_resources_lister_server::PodResourcesLister;

impl Kubelet {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Reads the lists of a plugin until its stream ends (`plugin/v1beta1/client.go`, Run).
    async fn read(&self, resource: &str, number: u64, channel: Channel) {
        let mut client = DevicePluginClient::new(channel);
        if let Ok(answer) = client.list_and_watch(api::Empty {}).await {
            let mut stream = answer.into_inner();
            // A list of more than 4 MiB is an error here, as in grpc-go.
            while let Ok(Some(list)) = stream.message().await {
                let mut state = self.state();
                state.received += 1;
                state.lists.insert(resource.to_owned(), Some(list.devices));
                if state.is_fighting {
                    drop(state);
                    break;
                }
            }
        }
        self.ended(resource, number);
    }

    /// The stream of client `number` ended. Up to 1.36.2, this disconnects the plugin that has the name of the resource
    /// by now, also if it is another one (`plugin/v1beta1/handler.go`, runClient; kubernetes/kubernetes#135437).
    fn ended(&self, resource: &str, number: u64) {
        let mut state = self.state();
        let Some(client) = state.clients.remove(resource) else {
            return;
        };
        state.lists.insert(resource.to_owned(), None);
        if client.number != number
            && let Some(stream) = client.stream
        {
            stream.abort();
        }
    }
}

#[tonic::async_trait]
impl Registration for Kubelet {
    async fn register(&self, request: Request<api::RegisterRequest>) -> Result<Response<api::Empty>, Status> {
        let request = request.into_inner();
        if request.version != "v1beta1" {
            return Err(Status::invalid_argument(format!("version {}", request.version)));
        }
        // It dials back before it answers, and asks for the options (`plugin/v1beta1/client.go`, Connect).
        let socket = self.dir.join("device-plugins").join(&request.endpoint);
        let channel = Endpoint::from_shared(format!("unix://{}", socket.display()))
            .unwrap()
            .origin("http://localhost".parse().unwrap())
            .connect_timeout(Duration::from_secs(10))
            .connect()
            .await
            .map_err(|e| Status::unavailable(format!("failed to dial device plugin: {e}")))?;
        let mut asked = Request::new(api::Empty {});
        asked.set_timeout(Duration::from_secs(15));
        let options = DevicePluginClient::new(channel.clone())
            .get_device_plugin_options(asked)
            .await?;
        let resource = request.resource_name.clone();
        let mut state = self.state();
        state.numbers += 1;
        let number = state.numbers;
        state.registrations.push((Instant::now(), request));
        let client = Client {
            number,
            channel: channel.clone(),
            options: options.into_inner(),
            stream: None,
        };
        // The client before stays connected, and its stream is still read.
        state.clients.insert(resource.clone(), client);
        let kubelet = self.clone();
        let name = resource.clone();
        let task = tokio::spawn(async move { kubelet.read(&name, number, channel).await });
        if let Some(client) = state.clients.get_mut(&resource) {
            client.stream = Some(task.abort_handle());
        }
        Ok(Response::new(api::Empty {}))
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn get_allocatable_resources(
        &self,
        _: Request<pods::AllocatableResourcesRequest>,
    ) -> Result<Response<pods::AllocatableResourcesResponse>, Status> {
        let state = self.state();
        if state.hides_pods {
            return Err(Status::unavailable("the kubelet is starting"));
        }
        let mut devices = Vec::new();
        for (resource, list) in &state.lists {
            // One message for each device, as the kubelet sends them.
            let healthy = list.iter().flatten().filter(|device| device.health == "Healthy");
            devices.extend(healthy.map(|device| pods::ContainerDevices {
                resource_name: resource.clone(),
                device_ids: vec![device.id.clone()],
            }));
        }
        Ok(Response::new(pods::AllocatableResourcesResponse { devices }))
    }

    async fn list(
        &self,
        _: Request<pods::ListPodResourcesRequest>,
    ) -> Result<Response<pods::ListPodResourcesResponse>, Status> {
        let mut state = self.state();
        state.asked += 1;
        if state.hides_pods {
            return Err(Status::unavailable("the kubelet is starting"));
        }
        let mut found: BTreeMap<String, BTreeMap<String, Vec<pods::ContainerDevices>>> = BTreeMap::new();
        for ((pod, container, resource), allocation) in &state.checkpoint {
            let containers = found.entry(pod.clone()).or_default();
            containers
                .entry(container.clone())
                .or_default()
                .push(pods::ContainerDevices {
                    resource_name: resource.clone(),
                    device_ids: allocation.ids.iter().cloned().collect(),
                });
        }
        state.missing.retain(|pod, lists| {
            found.remove(pod);
            *lists -= 1;
            *lists > 0
        });
        let containers = |containers: BTreeMap<String, Vec<pods::ContainerDevices>>| {
            let container = |(name, devices)| pods::ContainerResources { name, devices };
            containers.into_iter().map(container).collect()
        };
        let pod_resources = found.into_iter().map(|(name, of)| pods::PodResources {
            name,
            namespace: "default".into(),
            containers: containers(of),
        });
        Ok(Response::new(pods::ListPodResourcesResponse {
            pod_resources: pod_resources.collect(),
        }))
    }
}
