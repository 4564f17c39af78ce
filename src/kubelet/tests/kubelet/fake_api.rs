//! An API server with one node, with events, ResourceSlices and ResourceClaims, which records the calls that it gets.

mod slices;
mod wire;

pub(crate) use slices::Slices;

use wire::{begin_chunks, end_chunks, request, send, send_chunk};

use crate::bed::until;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tranche_core::ledger::KubernetesObject;

/// The name of the node.
pub(crate) const NODE: &str = "gpu1";

/// Its UID, if nobody has made it anew.
pub(crate) const NODE_UID: &str = "5e2f8a34-3c2e-4a52-a2b7-6f4ad0a1b6a1";

/// What the server has.
#[derive(Default)]
pub(crate) struct Cluster {
    label: Option<String>,
    /// The UID of the node, if it is not [`NODE_UID`].
    pub(crate) node_uid: Option<&'static str>,
    /// The version of the node.
    version: u64,
    /// Verb and resource of each call, with the namespace if there is one.
    pub(crate) calls: BTreeSet<String>,
    /// The events, as they were sent.
    pub(crate) events: Vec<Value>,
    /// Whether every call is refused.
    pub(crate) is_forbidden: bool,
    /// The ResourceSlices.
    pub(crate) slices: Slices,
    /// The ResourceClaims by their namespaces and names, as a test sets them.
    pub(crate) claims: BTreeMap<(String, String), Value>,
    /// How many of the next questions about claims get no answer, while their connections stay.
    pub(crate) lost: u32,
    /// The same of events.
    pub(crate) lost_events: u32,
    /// What the driver asks of Node Feature Discovery.
    pub(crate) node_feature: Option<Value>,
    /// Whether nobody may write into the status of claims.
    pub(crate) refuses_status: bool,
    /// Whether what drivers write into it is dropped.
    pub(crate) drops_status: bool,
    /// How many of the next claims are other ones by the time that their status is written.
    pub(crate) replaced: u32,
    /// Watches that began before this one end.
    cut: u64,
}

/// The status line and the body of an answer.
type Reply = (&'static str, Value);

/// A refusal.
fn failure(code: u16, reason: &str) -> Reply {
    let line = match code {
        403 => "403 Forbidden",
        404 => "404 Not Found",
        409 => "409 Conflict",
        410 => "410 Gone",
        422 => "422 Unprocessable Entity",
        _ => "500 Internal Server Error",
    };
    // The messages of a real server have versions and addresses, and differ each time.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let message = format!(
        "refusal {} of the test: {reason}",
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message});
    (line, status)
}

#[derive(Clone)]
pub(crate) struct FakeApi {
    cluster: Arc<(Mutex<Cluster>, Condvar)>,
    pub(crate) url: String,
}

impl FakeApi {
    pub(crate) fn start() -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// One that serves on this port.
    pub(crate) fn listen(listener: TcpListener) -> Self {
        let api = Self {
            cluster: Arc::default(),
            url: format!("http://{}", listener.local_addr().unwrap()),
        };
        let server = api.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let server = server.clone();
                let stream = stream.unwrap();
                // An answer is written in pieces: the second one does not wait until the first is acknowledged.
                stream.set_nodelay(true).unwrap();
                // A client that ends cuts its connection.
                thread::spawn(move || server.serve(&stream));
            }
        });
        api
    }

    /// A file for `KUBECONFIG`.
    pub(crate) fn write_config(&self, path: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {"token": "test"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        fs::write(path, config.to_string()).unwrap();
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.0.lock().unwrap()
    }

    /// Sets the label of the node, or removes it.
    pub(crate) fn label(&self, value: Option<&str>) {
        let mut cluster = self.cluster();
        cluster.label = value.map(str::to_owned);
        cluster.version += 1;
        self.cluster.1.notify_all();
    }

    /// Sets a claim to which the scheduler has allocated `devices`: results and configurations.
    pub(crate) fn allocate(&self, claim: &KubernetesObject, devices: Value) {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "spec": {},
            "status": {"allocation": {"devices": devices}},
        });
        let key = (claim.namespace.clone(), claim.name.clone());
        self.cluster().claims.insert(key, object);
    }

    /// Somebody has changed something: watches look at it.
    pub(crate) fn changed(&self) {
        self.cluster.1.notify_all();
    }

    fn wait<'a>(&self, cluster: MutexGuard<'a, Cluster>, most: Duration) -> MutexGuard<'a, Cluster> {
        self.cluster.1.wait_timeout(cluster, most).unwrap().0
    }

    /// Ends each watch, as a server does after some minutes.
    pub(crate) fn cut(&self) {
        let mut cluster = self.cluster();
        cluster.cut += 1;
        self.cluster.1.notify_all();
    }

    /// Waits for an event with this reason whose note has this part.
    pub(crate) fn wait_event(&self, reason: &str, part: &str) {
        until(&format!("there is an event {reason} with {part}"), || {
            let cluster = self.cluster();
            let mut events = cluster.events.iter();
            events.any(|event| {
                event["reason"] == reason && event["note"].as_str().is_some_and(|note| note.contains(part))
            })
        });
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((method, path, body)) = request(&mut reader) {
            if self.answer(stream, &method, &path, &body).is_none() {
                return;
            }
        }
    }

    /// `None`: the connection has ended.
    fn answer(&self, stream: &TcpStream, method: &str, path: &str, body: &[u8]) -> Option<()> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let verb = match (method, query.contains("watch=true")) {
            ("GET", true) => "watch",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PATCH", _) => "patch",
            _ => "other",
        };
        let resource = match path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", "v1", "nodes"] | ["", "api", "v1", "nodes", _] => "nodes".to_owned(),
            ["", "apis", "resource.k8s.io", "v1", "resourceslices", ref name @ ..] => {
                return self.slices_call(stream, method, name.first().copied(), query, body);
            }
            ["", "apis", group, "v1", "namespaces", namespace, resource] => format!("{resource}.{group} {namespace}"),
            // A claim may be in any namespace.
            [
                "",
                "apis",
                group @ "nfd.k8s-sigs.io",
                "v1alpha1",
                "namespaces",
                namespace,
                resource,
                _,
            ] => {
                format!("{resource}.{group} {namespace}")
            }
            ["", "apis", group, "v1", "namespaces", _, resource, _] => format!("{resource}.{group}"),
            ["", "apis", group, "v1", "namespaces", _, resource, _, part] => format!("{resource}/{part}.{group}"),
            _ => path.to_owned(),
        };
        let mut cluster = self.cluster();
        let one = cluster.one(method, path);
        let verb = if one.is_some() { "get" } else { verb };
        cluster.calls.insert(format!("{verb} {resource}"));
        if cluster.is_forbidden {
            drop(cluster);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
                "message": "nodes is forbidden"});
            return send(stream, "403 Forbidden", &status);
        }
        if let Some((status, value)) = one {
            if resource.starts_with("resourceclaims") && cluster.lost > 0 {
                cluster.lost -= 1;
                drop(cluster);
                return until_gone(stream);
            }
            drop(cluster);
            return send(stream, status, &value);
        }
        if verb == "patch" && resource.starts_with("nodefeatures") {
            let sent: Value = serde_json::from_slice(body).unwrap();
            cluster.node_feature = Some(sent.clone());
            drop(cluster);
            return send(stream, "200 OK", &sent);
        }
        if verb == "patch" {
            let (status, value) = cluster.apply_status(path, query, body);
            drop(cluster);
            return send(stream, status, &value);
        }
        match verb {
            "list" => {
                assert!(query.contains(&format!("metadata.name%3D{NODE}")), "{query}");
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"resourceVersion": cluster.version.to_string()}, "items": [cluster.node()]});
                drop(cluster);
                send(stream, "200 OK", &list)
            }
            "watch" => {
                drop(cluster);
                let since = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
                self.watch(stream, since.unwrap().parse().unwrap())
            }
            _ if cluster.lost_events > 0 => {
                cluster.lost_events -= 1;
                drop(cluster);
                until_gone(stream)
            }
            _ => {
                let event: Value = serde_json::from_slice(body).unwrap();
                cluster.events.push(event.clone());
                drop(cluster);
                send(stream, "201 Created", &event)
            }
        }
    }

    /// Sends the node whenever it changes, and once if it has changed since this version.
    fn watch(&self, stream: &TcpStream, mut sent: u64) -> Option<()> {
        begin_chunks(stream)?;
        let mut cluster = self.cluster();
        let began = cluster.cut;
        while cluster.cut == began {
            if cluster.version != sent {
                sent = cluster.version;
                send_chunk(stream, &json!({"type": "MODIFIED", "object": cluster.node()}))?;
            }
            cluster = self.wait(cluster, Duration::from_millis(100));
        }
        drop(cluster);
        end_chunks(stream)
    }
}

/// Gives no answer until the client goes.
fn until_gone(mut stream: &TcpStream) -> Option<()> {
    let _ = stream.read(&mut [0]);
    None
}

impl Cluster {
    /// The answer to a call for one object.
    fn one(&self, method: &str, path: &str) -> Option<Reply> {
        let parts: Vec<&str> = path.split('/').collect();
        match (method, &parts[..]) {
            ("GET", ["", "api", "v1", "nodes", NODE]) => {
                let uid = self.node_uid.unwrap_or(NODE_UID);
                let metadata = json!({"name": NODE, "uid": uid, "resourceVersion": self.version.to_string()});
                Some((
                    "200 OK",
                    json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata}),
                ))
            }
            (
                "GET",
                [
                    "",
                    "apis",
                    "resource.k8s.io",
                    "v1",
                    "namespaces",
                    namespace,
                    "resourceclaims",
                    name,
                ],
            ) => {
                let claim = self.claims.get(&((*namespace).to_owned(), (*name).to_owned()));
                Some(claim.map_or_else(|| failure(404, "NotFound"), |claim| ("200 OK", claim.clone())))
            }
            _ => None,
        }
    }

    /// Applies `status.devices` of a claim, as far as the server is set to.
    fn apply_status(&mut self, path: &str, query: &str, body: &[u8]) -> Reply {
        let parts: Vec<&str> = path.split('/').collect();
        assert!(
            query.contains("fieldManager=") && query.contains("force=true"),
            "{query}"
        );
        let sent: Value = serde_json::from_slice(body).unwrap();
        if self.refuses_status {
            // As for an account that lacks the right over the driver's part of the status.
            return failure(422, "Invalid");
        }
        let claim = self.claims.get_mut(&(parts[5].to_owned(), parts[7].to_owned()));
        let Some(claim) = claim else {
            return failure(404, "NotFound");
        };
        let is_replaced = self.replaced > 0;
        self.replaced -= u32::from(is_replaced);
        if is_replaced || claim["metadata"]["uid"] != sent["metadata"]["uid"] {
            // As a real server (1.36): a precondition of an apply is a field that cannot change.
            let (line, mut status) = failure(422, "Invalid");
            status["details"] = json!({"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid",
                "message": "Invalid value: field is immutable"}]});
            return (line, status);
        }
        if !self.drops_status {
            claim["status"]["devices"] = sent["status"]["devices"].clone();
        }
        ("200 OK", claim.clone())
    }

    fn node(&self) -> Value {
        let labels = match &self.label {
            Some(label) => json!({"nvidia.com/device-plugin.config": label}),
            None => json!({}),
        };
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": NODE, "uid": "1", "resourceVersion": self.version.to_string(), "labels": labels}})
    }
}
