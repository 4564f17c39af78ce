//! The health of the devices, as a stream: all of them when it opens, at each change, and again from time to time.

use crate::proto::drahealth as api;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The longest message, in bytes; the kubelet cuts longer ones off (`pkg/kubelet/cm/dra/manager.go`).
const MOST_MESSAGE: usize = 1024;

/// The end of a message that was cut off.
const CUT: &str = "...";

/// How a device is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Health {
    /// Nobody can say it now.
    #[default]
    Unknown,
    /// It works.
    Healthy,
    /// No container can use it.
    Unhealthy,
}

/// The health of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceHealth {
    /// Its pool.
    pub pool: String,
    /// Its name in the pool.
    pub device: String,
    /// How it is. What is sent again has the time of sending: if nobody looks any more, set [`Health::Unknown`].
    pub health: Health,
    /// Why, for people. More than 1024 bytes are cut off.
    pub message: String,
}

/// The service. Its copies, one for each connection, are one.
#[derive(Debug, Clone)]
pub(super) struct HealthService {
    /// All devices of the driver. A stream ends when the sender is gone.
    pub(super) devices: watch::Receiver<Vec<DeviceHealth>>,
    /// Whether the streams end, so that the server can.
    pub(super) ending: watch::Receiver<bool>,
    /// How long a stream is silent at most.
    pub(super) resend: Duration,
}

#[tonic::async_trait]
impl api::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream = ReceiverStream<Result<api::NodeWatchResourcesResponse, Status>>;

    async fn node_watch_resources(
        &self,
        _: Request<api::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let (send, receive) = mpsc::channel(1);
        let mut service = self.clone();
        tokio::spawn(async move {
            loop {
                let answer = answer(&service.devices.borrow_and_update());
                if send.send(Ok(answer)).await.is_err() {
                    break;
                }
                tokio::select! {
                    () = send.closed() => break,
                    _ = service.ending.wait_for(|ending| *ending) => break,
                    changed = service.devices.changed() => if changed.is_err() { break },
                    () = tokio::time::sleep(service.resend) => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }
}

/// The devices in the words of the interface.
fn answer(devices: &[DeviceHealth]) -> api::NodeWatchResourcesResponse {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let device = |device: &DeviceHealth| api::DeviceHealth {
        device: Some(api::DeviceIdentifier {
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
        }),
        health: match device.health {
            Health::Unknown => api::HealthStatus::Unknown,
            Health::Healthy => api::HealthStatus::Healthy,
            Health::Unhealthy => api::HealthStatus::Unhealthy,
        }
        .into(),
        last_updated_time: now,
        health_check_timeout_seconds: 0,
        message: short(&device.message),
    };
    api::NodeWatchResourcesResponse {
        devices: devices.iter().map(device).collect(),
    }
}

/// A message of at most [`MOST_MESSAGE`] bytes.
fn short(message: &str) -> String {
    if message.len() <= MOST_MESSAGE {
        return message.to_owned();
    }
    let mut ends = (0..=MOST_MESSAGE - CUT.len()).rev();
    let end = ends.find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{CUT}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        assert_eq!(short("Xid 79"), "Xid 79");
        assert_eq!(short(&"a".repeat(1024)).len(), 1024);
        let cut = short(&"é".repeat(600));
        assert_eq!(cut.len(), 1023);
        assert!(cut.starts_with("éé") && cut.ends_with("é..."));
    }
}
