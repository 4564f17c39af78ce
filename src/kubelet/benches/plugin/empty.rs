//! A plugin that does nothing else: an empty tonic server with a fixed list of devices. It costs what gRPC and the
//! kubelet cost.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tranche_kubelet::proto::deviceplugin as api;
use tranche_kubelet::proto::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use tranche_kubelet::proto::deviceplugin::registration_client::RegistrationClient;

/// What it registers.
pub(crate) const EMPTY: &str = "example.com/empty";

const SOCKET: &str = "empty.sock";

/// The empty plugin, on one thread as tranche-kubelet.
pub(crate) struct Empty {
    runtime: Runtime,
    plugins: PathBuf,
    devices: usize,
}

impl Empty {
    /// One of `devices` devices, with its socket in `plugins`.
    pub(crate) fn new(plugins: &Path, devices: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self {
            runtime: runtime.unwrap(),
            plugins: plugins.to_owned(),
            devices,
        }
    }

    /// Listens and registers.
    pub(crate) fn register(&self) {
        self.runtime.block_on(async {
            let at = self.plugins.join(SOCKET);
            let _ = std::fs::remove_file(&at);
            let listener = UnixListenerStream::new(UnixListener::bind(at).unwrap());
            let service = DevicePluginServer::new(Service(self.devices));
            tokio::spawn(Server::builder().serve_with_incoming(service, listener));
            let kubelet = self.plugins.join("kubelet.sock");
            let endpoint = Endpoint::from_shared(format!("unix://{}", kubelet.display()))
                .unwrap()
                .origin("http://localhost".parse().unwrap())
                .connect_timeout(Duration::from_secs(10));
            let request = api::RegisterRequest {
                version: "v1beta1".into(),
                endpoint: SOCKET.into(),
                resource_name: EMPTY.into(),
                options: None,
            };
            let mut client = RegistrationClient::new(endpoint.connect().await.unwrap());
            client.register(request).await.unwrap();
        });
    }
}

#[derive(Clone)]
struct Service(usize);

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions::default()))
    }

    type ListAndWatchStream = ReceiverStream<Result<api::ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let (send, receive) = tokio::sync::mpsc::channel(1);
        let device = |n: usize| api::Device {
            // As long as the id of a share.
            id: format!("MIG-6f5b7e3c-7a0e-5c5e-9f0c-{n:012}.0"),
            health: "Healthy".into(),
            topology: None,
        };
        let devices = (0..self.0).map(device).collect();
        send.send(Ok(api::ListAndWatchResponse { devices })).await.unwrap();
        // The stream stays open.
        tokio::spawn(async move { send.closed().await });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("not offered"))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let one = |_| api::ContainerAllocateResponse {
            cdi_devices: vec![api::CdiDevice {
                name: "example.com/empty=0".into(),
            }],
        };
        let container_responses = request.into_inner().container_requests.into_iter().map(one).collect();
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}
