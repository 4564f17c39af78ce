//! What the kubelet asks the plugin of a resource.

use crate::allocate::{Refusal, cdi_names};
use crate::catalog::{Device, Listing};
use crate::command::{Command, Start};
use crate::kubelet::options;
use crate::prefer::prefer;
use crate::proto::deviceplugin as api;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::warn;

/// How long the start of a container waits. The kubelet itself waits for 30 s, and then reports only that.
const START: Duration = Duration::from_secs(25);

/// What happens to the list of devices that the kubelet reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    /// The kubelet asked for it.
    Opened(u64),
    /// It or its connection ended.
    Ended(u64),
    /// The kubelet was asked whether it has the devices of the list.
    Checked {
        /// Whether it has.
        is_known: bool,
    },
}

/// The plugin of one resource. Its copies, one for each connection, are one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) resource: Arc<str>,
    pub(crate) listing: watch::Receiver<Arc<Listing>>,
    /// Streams that began before a change of this number end.
    pub(crate) ending: watch::Receiver<u64>,
    pub(crate) events: mpsc::UnboundedSender<StreamEvent>,
    pub(crate) node: mpsc::Sender<Command>,
    pub(crate) streams: Arc<AtomicU64>,
}

#[tonic::async_trait]
impl api::device_plugin_server::DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(options()))
    }

    type ListAndWatchStream = ReceiverStream<Result<api::ListAndWatchResponse, Status>>;

    async fn list_and_watch(&self, _: Request<api::Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let (send, receive) = mpsc::channel(1);
        let mut listing = self.listing.clone();
        let mut ending = self.ending.clone();
        ending.mark_unchanged();
        let events = self.events.clone();
        // The receivers of events are gone when the program ends.
        let _ = events.send(StreamEvent::Opened(stream));
        tokio::spawn(async move {
            let mut sent = None;
            let mut is_last = false;
            loop {
                let now = listing.borrow_and_update().clone();
                if sent.as_ref() != Some(&now.devices) {
                    if send.send(Ok(answer(&now.devices))).await.is_err() {
                        break;
                    }
                    sent = Some(now.devices.clone());
                }
                if is_last {
                    break;
                }
                tokio::select! {
                    () = send.closed() => break,
                    changed = listing.changed() => is_last = changed.is_err(),
                    _ = ending.changed() => is_last = true,
                }
            }
            let _ = events.send(StreamEvent::Ended(stream));
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let listing = self.listing.borrow().clone();
        let requests = request.into_inner().container_requests.into_iter();
        let container_responses = requests.map(|wanted| api::ContainerPreferredAllocationResponse {
            device_i_ds: prefer(
                &listing.parts,
                &wanted.available_device_i_ds,
                &wanted.must_include_device_i_ds,
                usize::try_from(wanted.allocation_size).unwrap_or(0),
                listing.placement,
            ),
        });
        Ok(Response::new(api::PreferredAllocationResponse {
            container_responses: container_responses.collect(),
        }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let listing = self.listing.borrow().clone();
        let mut container_responses = Vec::new();
        for wanted in request.into_inner().container_requests {
            let names = cdi_names(&listing.parts, &wanted.devices_i_ds).map_err(|refusal: Refusal| {
                warn!("{}: {refusal}", self.resource);
                Status::invalid_argument(refusal.to_string())
            })?;
            let cdi_devices = names.into_iter().map(|name| api::CdiDevice { name });
            container_responses.push(api::ContainerAllocateResponse {
                cdi_devices: cdi_devices.collect(),
            });
        }
        // If many are waiting, the pod is found in a later list.
        let _ = self.node.try_send(Command::Allocated);
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        let start = Start {
            ids: request.into_inner().devices_i_ds,
            tries: 0,
            answer,
        };
        let asked = async {
            let ended = || Status::unavailable("tranche-kubelet is ending");
            self.node.send(Command::Start(start)).await.map_err(|_| ended())?;
            answered.await.map_err(|_| ended())?
        };
        let late = || Status::unavailable(format!("no answer within {} s", START.as_secs()));
        let answer = tokio::time::timeout(START, asked).await.unwrap_or_else(|_| Err(late()));
        answer.map(|()| Response::new(api::PreStartContainerResponse {}))
    }
}

/// The devices in the words of the interface.
fn answer(devices: &[Device]) -> api::ListAndWatchResponse {
    let device = |device: &Device| api::Device {
        id: device.id.clone(),
        health: match device.unhealthy {
            None => "Healthy".into(),
            Some(_) => "Unhealthy".into(),
        },
        topology: device.numa.map(|node| api::TopologyInfo {
            nodes: vec![api::NumaNode { id: node.into() }],
        }),
    };
    api::ListAndWatchResponse {
        devices: devices.iter().map(device).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, offers};
    use crate::fixtures::{replicas, whole};
    use prost::Message;

    /// The kubelet would drop the list whole, without a word.
    #[test]
    fn as_many_replicas_are_listed_as_the_kubelet_reads_and_as_many_of_each_device() {
        let device = |n: usize| format!("GPU-4f1b7e3c-7a0e-5c5e-9f0c-00000000000{n}");
        let with = |count: u32| {
            let split = (1..8).map(|n| replicas(&device(n), count));
            let mut catalog = Catalog::default();
            catalog.update(&offers(std::iter::once(whole(&device(0))).chain(split)), None);
            catalog.resources().next().unwrap().1.clone()
        };
        let few = with(1024);
        assert_eq!((few.devices.len(), few.left_out), (1 + 7 * 1024, 0));
        for count in [16_384, u32::MAX - 1] {
            let listing = with(count);
            let of = |n: usize| listing.devices.iter().filter(|d| d.id.starts_with(&device(n))).count();
            assert_eq!(of(0), 1, "a whole GPU is not left out");
            assert!((1..8).all(|n| of(n) == of(1)), "each has as many");
            assert!(listing.devices.len() > 50_000, "{}", listing.devices.len());
            let all = 1 + 7 * count as usize;
            assert_eq!(listing.devices.len() + listing.left_out, all);
            let text = listing.left_out_text("nvidia.com/gpu");
            assert!(
                text.contains(&format!(
                    "of {all} devices, because it reads no list of more than 4 MiB"
                )),
                "{text}"
            );
            // All of them unhealthy, beside a NUMA node: the longest that the list can be.
            let worst = |device: &Device| Device {
                unhealthy: Some(String::new()),
                numa: Some(u32::MAX),
                ..device.clone()
            };
            let worst: Vec<Device> = listing.devices.iter().map(worst).collect();
            let size = answer(&worst).encoded_len();
            assert!(size <= 4 << 20, "{size}");
        }
    }
}
