//! What the kubelet asks before it uses the driver.

use crate::proto::pluginregistration as api;
use crate::ready::{Part, Ready};
use crate::said::{Said, Topic};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::{Request, Response, Status};
use tracing::info;

/// What kind of plugin a driver is (`kubelet/pkg/apis/pluginregistration/v1/constants.go`).
const KIND: &str = "DRAPlugin";

/// The services on the driver's socket, newest first, because the kubelet takes the first that it supports. These are
/// labels, and not the names of the services in calls (`kubelet/pkg/apis/dra/v1/types.go`).
const SERVICES: [&str; 3] = ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"];

/// The service. Its copies, one for each connection, are one.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) driver: Arc<str>,
    /// The driver's socket.
    pub(super) endpoint: PathBuf,
    pub(super) said: Arc<Mutex<Said>>,
    pub(super) ready: Ready,
}

#[tonic::async_trait]
impl api::registration_server::Registration for Registration {
    async fn get_info(&self, _: Request<api::InfoRequest>) -> Result<Response<api::PluginInfo>, Status> {
        Ok(Response::new(api::PluginInfo {
            r#type: KIND.into(),
            name: self.driver.to_string(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: SERVICES.map(str::to_owned).into(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<api::RegistrationStatus>,
    ) -> Result<Response<api::RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let driver = &self.driver;
        let topic = Topic::Driver(driver.to_string());
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if status.plugin_registered {
            said.is_well(&topic);
            self.ready.set(Part::Driver, None);
            info!("driver {driver}: registered with the kubelet");
        } else {
            let what = format!("driver {driver}: the kubelet refused it: {}", status.error);
            self.ready.set(Part::Driver, Some(what.clone()));
            said.warn(topic, what);
        }
        Ok(Response::new(api::RegistrationStatusResponse {}))
    }
}
