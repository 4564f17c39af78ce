//! What tonic makes of the requests of grpc-go, with the filter of the driver and without it.

use super::node::Node;
use crate::bed::until;
use crate::fake_kubelet::dra::wire::{GoClient, authority};
use crate::recorded::frames;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tranche_kubelet::dra::authority::AuthorityFilter;
use tranche_kubelet::proto::pluginregistration as api;
use tranche_kubelet::proto::pluginregistration::registration_server::{Registration, RegistrationServer};

/// What a kubelet sent to the registration socket of a driver.
const REGISTRATION: &str = include_str!("../../data/registration.txt");

const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";

/// Longer than any test.
const PATIENCE: Duration = Duration::from_secs(60);

struct Answers;

#[tonic::async_trait]
impl Registration for Answers {
    async fn get_info(&self, request: Request<api::InfoRequest>) -> Result<Response<api::PluginInfo>, Status> {
        let name = format!("{:?}", request.metadata().get("user-agent"));
        Ok(Response::new(api::PluginInfo {
            name,
            ..Default::default()
        }))
    }

    async fn notify_registration_status(
        &self,
        _: Request<api::RegistrationStatus>,
    ) -> Result<Response<api::RegistrationStatusResponse>, Status> {
        Ok(Response::new(api::RegistrationStatusResponse {}))
    }
}

/// A server of tonic on `socket`. It ends with the runtime.
fn serve(socket: &Path, is_filtered: bool) -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = {
        let _enter = runtime.enter();
        UnixListenerStream::new(tokio::net::UnixListener::bind(socket).unwrap())
    };
    let server = RegistrationServer::new(Answers);
    if is_filtered {
        let filtered = |stream: std::io::Result<UnixStream>| stream.map(AuthorityFilter::new);
        runtime.spawn(Server::builder().serve_with_incoming(server, listener.map(filtered)));
    } else {
        runtime.spawn(Server::builder().serve_with_incoming(server, listener));
    }
    runtime
}

fn get_info(client: &mut GoClient) -> Result<String, String> {
    let answer = client.call::<api::PluginInfo>(GET_INFO, PATIENCE, &api::InfoRequest {});
    answer.map(|info| info.name)
}

fn notify(client: &mut GoClient, status: &api::RegistrationStatus) -> Result<(), String> {
    let answer = client.call::<api::RegistrationStatusResponse>(NOTIFY, PATIENCE, status);
    answer.map(|_| ())
}

/// A client whose requests are replaced by the recorded ones, before `server`.
fn recorded(dir: &Path, server: PathBuf) -> GoClient {
    let socket = dir.join("recorded.sock");
    frames::replace_requests(&socket, REGISTRATION, server);
    GoClient::dial(&socket).unwrap()
}

#[test]
fn the_authority_of_go_is_refused_by_tonic_and_passes_the_filter() {
    let top = tempfile::tempdir().unwrap();
    assert!(authority(Path::new("/var/lib/x-reg.sock")) == "%2Fvar%2Flib%2Fx-reg.sock");
    // The second request refers to the headers of the first one.
    let ask_twice = |name: &str, is_filtered| {
        let socket = top.path().join(name);
        let _server = serve(&socket, is_filtered);
        let mut client = GoClient::dial(&socket).unwrap();
        [get_info(&mut client), get_info(&mut client)]
    };
    let agent = || Ok("Some(\"grpc-go/1.79.3\")".to_owned());
    assert_eq!(ask_twice("filtered.sock", true), [agent(), agent()]);
    // PROTOCOL_ERROR.
    let refused = || Err("reset with error 1".to_owned());
    assert_eq!(ask_twice("plain.sock", false), [refused(), refused()]);
}

#[test]
fn the_registration_by_a_real_kubelet_is_refused_by_tonic_without_the_filter() {
    let top = tempfile::tempdir().unwrap();
    let server = top.path().join("plain.sock");
    let _server = serve(&server, false);
    let mut client = recorded(top.path(), server);
    // PROTOCOL_ERROR.
    let refused = "reset with error 1".to_owned();
    assert_eq!(get_info(&mut client), Err(refused.clone()));
    assert_eq!(notify(&mut client, &api::RegistrationStatus::default()), Err(refused));
}

#[test]
fn the_driver_answers_the_registration_by_a_real_kubelet() {
    let node = Node::asleep();
    let mut driver = node.driver();
    let socket = driver.settings.registration_socket();
    until("the driver listens", || socket.exists());
    // The driver has a fault that the recorded status ends. So the same fault is an event again.
    let status = api::RegistrationStatus {
        plugin_registered: false,
        error: "unknown version".into(),
    };
    let mut refusing = GoClient::dial(&socket).unwrap();
    notify(&mut refusing, &status).unwrap();
    let refused = driver.event();
    assert_eq!(refused.reason, "RegistrationRefused");

    let mut client = recorded(node.dir(), socket);
    assert_eq!(get_info(&mut client), Ok("gpu.tranche.dev".to_owned()));
    // What this client sends says nothing of the registration. The recorded request says that it has succeeded.
    notify(&mut client, &api::RegistrationStatus::default()).unwrap();

    notify(&mut refusing, &status).unwrap();
    assert_eq!(driver.event(), refused);
}
