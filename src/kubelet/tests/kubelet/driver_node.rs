//! A node whose driver for dynamic resource allocation is the program that packages have.

use crate::bed::{Bed, Process};
use crate::fake_api::{FakeApi, NODE};
use crate::fake_kubelet::dra::FakeDra;
use tranche_protocol::DraDevices;

pub(crate) struct DriverNode {
    pub(crate) bed: Bed,
    pub(crate) api: FakeApi,
    pub(crate) kubelet: FakeDra,
}

impl DriverNode {
    /// One whose broker offers `devices`. The driver does not run yet.
    pub(crate) fn new(devices: DraDevices) -> Self {
        let node = Self::on(Bed::new(Vec::new()));
        node.bed.broker.node().dra = devices;
        node
    }

    /// One whose broker is what listens in the state directory of `bed`.
    pub(crate) fn on(bed: Bed) -> Self {
        let api = FakeApi::start();
        api.write_config(&bed.at("kubeconfig"));
        let mut kubelet = FakeDra::new(&bed.at("kubelet"));
        kubelet.start();
        Self { bed, api, kubelet }
    }

    /// Starts the program as `driver`.
    pub(crate) fn start(&self, driver: &str) -> Process {
        let (node, name) = (format!("--node={NODE}"), format!("--driver-name={driver}"));
        let config = self.bed.at("kubeconfig");
        self.bed
            .process_with(&["dra", &node, &name], &[("KUBECONFIG", &config)])
    }
}
