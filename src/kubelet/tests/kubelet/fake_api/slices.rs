//! The ResourceSlices of the server: stored, numbered and watched.

use super::{FakeApi, NODE, Reply, failure, send_chunk, until_gone};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::Duration;

/// The slices, and what has happened to them.
#[derive(Default)]
pub(crate) struct Slices {
    /// The slices by their names.
    pub(crate) stored: BTreeMap<String, Value>,
    /// Verb, version and object of each change.
    events: Vec<(&'static str, u64, Value)>,
    /// The last version.
    version: u64,
    /// Versions up to this one are forgotten.
    forgotten: u64,
    /// Verb and generation of each call that writes, with `dry` for a dry run.
    pub(crate) writes: Vec<String>,
    /// How many lists and watches there were.
    pub(crate) reads: BTreeMap<&'static str, usize>,
    /// Whether fields with a gate are dropped.
    pub(crate) drops_gated: bool,
    /// Whether counters alone are dropped: DRAPartitionableDevices is off.
    pub(crate) drops_counters: bool,
    /// How many writes are answered by 409 although nothing has changed.
    pub(crate) conflicts: usize,
    /// The status of each answer; 0: the calls are served.
    pub(crate) refuses: u16,
    /// How many of the next calls get no answer, while their connections stay.
    pub(crate) lost: u32,
}

impl Slices {
    /// Another program sets, changes or deletes (`null`) a slice.
    pub(crate) fn put(&mut self, name: &str, mut slice: Value) {
        self.version += 1;
        let had = self.stored.contains_key(name);
        if slice.is_null() {
            if let Some(mut gone) = self.stored.remove(name) {
                gone["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.events.push(("DELETED", self.version, gone));
            }
            return;
        }
        slice["metadata"]["name"] = json!(name);
        slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let verb = if had { "MODIFIED" } else { "ADDED" };
        self.events.push((verb, self.version, slice.clone()));
        self.stored.insert(name.to_owned(), slice);
    }

    /// All slices are deleted, as the kubelet does it at its start.
    pub(crate) fn wipe(&mut self) {
        let names: Vec<String> = self.stored.keys().cloned().collect();
        names.iter().for_each(|name| self.put(name, Value::Null));
    }

    /// Each version before now is forgotten: a watch from one of them has to begin anew.
    pub(crate) fn forget(&mut self) {
        self.version += 1;
        self.forgotten = self.version;
    }

    /// The slices in the order of their names.
    pub(crate) fn specs(&self) -> Vec<Value> {
        self.stored.values().map(|slice| slice["spec"].clone()).collect()
    }

    /// The generations of the slices.
    pub(crate) fn generations(&self) -> Vec<i64> {
        let all = self.stored.values();
        all.map(|slice| slice["spec"]["pool"]["generation"].as_i64().unwrap())
            .collect()
    }

    /// The names of all devices, in the order of the slices.
    pub(crate) fn devices(&self) -> Vec<String> {
        let devices = self
            .stored
            .values()
            .flat_map(|slice| slice["spec"]["devices"].as_array());
        let names = devices
            .flatten()
            .map(|device| device["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    fn list(&self, query: &str) -> Value {
        let items = self.stored.values().filter(|slice| selects(query, slice));
        json!({"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1",
            "metadata": {"resourceVersion": self.version.to_string()}, "items": items.collect::<Vec<_>>()})
    }

    /// As `dropDisabledFields` of the API server does it: what the stored object has is kept.
    fn drop_gated(&self, slice: &mut Value, old: Option<&Value>) {
        if self.drops_gated || self.drops_counters {
            let spec = slice["spec"].as_object_mut().unwrap();
            spec.remove("sharedCounters");
            for device in spec
                .get_mut("devices")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                device.as_object_mut().unwrap().remove("consumesCounters");
            }
        }
        if !self.drops_gated {
            return;
        }
        let is_used = |field: &str| old.is_some_and(|old| old.to_string().contains(&format!("\"{field}\"")));
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            let device = device.as_object_mut().unwrap();
            if !is_used("taints") {
                device.remove("taints");
            }
            if is_used("allowMultipleAllocations") || is_used("requestPolicy") {
                continue;
            }
            device.remove("allowMultipleAllocations");
            for capacity in device
                .get_mut("capacity")
                .and_then(Value::as_object_mut)
                .into_iter()
                .flatten()
            {
                capacity.1.as_object_mut().unwrap().remove("requestPolicy");
            }
        }
    }

    fn write(&mut self, method: &str, name: Option<&str>, query: &str, body: &[u8]) -> Reply {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return failure(409, "Conflict");
        }
        let old = name.and_then(|name| self.stored.get(name).cloned());
        if name.is_some() && old.is_none() {
            return failure(404, "NotFound");
        }
        let dry = if query.contains("dryRun=All") { " dry" } else { "" };
        if method == "DELETE" {
            self.writes.push("delete".to_owned());
            self.put(name.unwrap(), Value::Null);
            return (
                "200 OK",
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            );
        }
        let mut slice: Value = serde_json::from_slice(body).unwrap();
        let version = |slice: &Value| slice["metadata"]["resourceVersion"].clone();
        if old.as_ref().is_some_and(|old| version(old) != version(&slice)) {
            return failure(409, "Conflict");
        }
        let verb = if old.is_some() { "update" } else { "create" };
        let generation = &slice["spec"]["pool"]["generation"];
        self.writes.push(format!("{verb} {generation}{dry}"));
        self.drop_gated(&mut slice, old.as_ref());
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            for taint in device["taints"].as_array_mut().into_iter().flatten() {
                taint["timeAdded"] = json!("2026-11-22T00:00:00Z");
            }
            if device["taints"].is_null() {
                device.as_object_mut().unwrap().remove("taints");
            }
        }
        slice["kind"] = json!("ResourceSlice");
        slice["apiVersion"] = json!("resource.k8s.io/v1");
        let begin = slice["metadata"]["generateName"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let name = name.map_or_else(|| format!("{begin}{:05x}", self.version + 1), str::to_owned);
        if dry.is_empty() {
            self.put(&name, slice);
            slice = self.stored[&name].clone();
        }
        ("201 Created", slice)
    }
}

/// Whether the field selector of a list or watch has this slice. The driver asks for its own alone.
fn selects(query: &str, slice: &Value) -> bool {
    let driver = slice["spec"]["driver"].as_str().unwrap_or_default();
    assert!(query.contains(&format!("spec.nodeName%3D{NODE}")), "{query}");
    query.contains(&format!("spec.driver%3D{driver}%2C")) && slice["spec"]["nodeName"] == NODE
}

impl FakeApi {
    pub(super) fn slices_call(
        &self,
        stream: &TcpStream,
        method: &str,
        name: Option<&str>,
        query: &str,
        body: &[u8],
    ) -> Option<()> {
        let is_watch = query.contains("watch=true");
        let mut cluster = self.cluster();
        let verb = match method {
            "GET" if is_watch => "watch",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            _ => "delete",
        };
        cluster.calls.insert(format!("{verb} resourceslices.resource.k8s.io"));
        let slices = &mut cluster.slices;
        if method == "GET" {
            *slices.reads.entry(verb).or_default() += 1;
        }
        if slices.lost > 0 {
            slices.lost -= 1;
            drop(cluster);
            return until_gone(stream);
        }
        let (status, value) = match slices.refuses {
            0 if method == "GET" && is_watch => {
                drop(cluster);
                return self.watch_slices(stream, query);
            }
            0 if method == "GET" => ("200 OK", slices.list(query)),
            0 => slices.write(method, name, query, body),
            code => failure(code, "InternalError"),
        };
        drop(cluster);
        self.changed();
        super::send(stream, status, &value)
    }

    fn watch_slices(&self, stream: &TcpStream, query: &str) -> Option<()> {
        let since = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut sent: u64 = since.unwrap().parse().unwrap();
        super::begin_chunks(stream)?;
        let mut cluster = self.cluster();
        let began = cluster.cut;
        while cluster.cut == began && cluster.slices.refuses == 0 {
            if sent < cluster.slices.forgotten {
                let gone = failure(410, "Expired").1;
                send_chunk(stream, &json!({"type": "ERROR", "object": gone}))?;
                break;
            }
            let events = cluster.slices.events.iter();
            let since = sent;
            let new = events.filter(|(_, version, slice)| *version > since && selects(query, slice));
            for (verb, version, slice) in new {
                sent = *version;
                send_chunk(stream, &json!({"type": verb, "object": slice}))?;
            }
            cluster = self.wait(cluster, Duration::from_millis(100));
        }
        drop(cluster);
        super::end_chunks(stream)
    }
}
