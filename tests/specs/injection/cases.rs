//! Generated cases: small sets of names, so that they collide often.

use super::{Case, DIRS, File};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};
use tranche_plan::cdi::{minimum_version, parse};

/// An object with the fields of `fields` that are not null.
fn object(fields: &[(&str, Value)]) -> Value {
    let given = fields.iter().filter(|(_, value)| !value.is_null());
    Value::Object(given.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// One of `values`, or no value, as often.
fn maybe(values: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::option::of(select(values)).prop_map(|value| json!(value))
}

fn maybe_number(values: &'static [i64]) -> impl Strategy<Value = Value> {
    prop::option::of(select(values)).prop_map(|value| json!(value))
}

/// Entries of an environment.
fn env() -> impl Strategy<Value = Value> {
    prop::collection::vec(("[AB]|PATH", "[a-c=]{0,2}").prop_map(|(k, v)| format!("{k}={v}")), 0..3)
        .prop_map(|env| json!(env))
}

prop_compose! {
    fn device_node()(
        path in select(&["/dev/null", "/dev/x0", "/dev/x1", "/dev/nvidia/0"][..]),
        host_path in maybe(&["/dev/null", "/dev/zero", "/dev/full", "@/fifo", "@/link", "@/file", "/dev/missing"]),
        kind in prop_oneof![3 => maybe(&["c"]), 1 => maybe(&["", "b", "p", "u"])],
        major in maybe_number(&[0, 1, 195]),
        minor in maybe_number(&[0, 7]),
        mode in maybe_number(&[0o666, 0o600]),
        permissions in maybe(&["", "r", "rw", "rwm"]),
        uid in maybe_number(&[0, 7]),
        gid in maybe_number(&[0, 44]),
    ) -> Value {
        object(&[
            ("path", json!(path)), ("hostPath", host_path), ("type", kind), ("major", major), ("minor", minor),
            ("fileMode", mode), ("permissions", permissions), ("uid", uid), ("gid", gid),
        ])
    }
}

/// Where things are mounted.
const DESTINATIONS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/a/b/",
    "/a//c",
    "/usr/lib/x",
    "/usr/lib/../y",
    "relative",
    "a/b",
];

prop_compose! {
    fn mount()(
        source in select(&["/host", "/host/lib"][..]),
        destination in select(DESTINATIONS),
        kind in maybe(&["bind", "tmpfs"]),
        options in subsequence(vec!["ro", "nosuid", "rbind"], 0..3),
    ) -> Value {
        object(&[
            ("hostPath", json!(source)), ("containerPath", json!(destination)), ("type", kind), ("options", json!(options)),
        ])
    }
}

const STAGES: &[&str] = &[
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

prop_compose! {
    fn hook()(
        stage in select(STAGES),
        path in select(&["/bin/one", "/bin/two"][..]),
        args in prop::option::of(subsequence(vec!["one", "--a", "--b"], 0..3)),
        env in prop::option::of(env()),
        timeout in maybe_number(&[5, 60]),
    ) -> Value {
        object(&[
            ("hookName", json!(stage)), ("path", json!(path)), ("args", json!(args)), ("env", json!(env)),
            ("timeout", timeout),
        ])
    }
}

prop_compose! {
    fn intel_rdt()(
        id in maybe(&["guaranteed", "best-effort"]),
        cache in maybe(&["L3:0=f"]),
        memory in maybe(&["MB:0=20"]),
        schemata in prop::option::of(subsequence(vec!["L2:0=1", "L3:0=ff"], 0..3)),
        monitoring in prop::option::weighted(0.3, any::<bool>()),
    ) -> Value {
        object(&[
            ("closID", id), ("l3CacheSchema", cache), ("memBwSchema", memory), ("schemata", json!(schemata)),
            ("enableMonitoring", json!(monitoring)),
        ])
    }
}

fn net_device() -> impl Strategy<Value = Value> {
    (select(&["eth0", "eth1"][..]), select(&["net0", "net1", "net2"][..]))
        .prop_map(|(host, name)| json!({"hostInterfaceName": host, "name": name}))
}

fn list(of: impl Strategy<Value = Value>, most: usize) -> impl Strategy<Value = Value> {
    prop_oneof![2 => Just(Value::Null), 3 => prop::collection::vec(of, 0..=most).prop_map(Value::Array)]
}

prop_compose! {
    fn edits()(
        env in prop::option::of(env()),
        nodes in list(device_node(), 3),
        mounts in list(mount(), 4),
        hooks in list(hook(), 3),
        rdt in prop::option::weighted(0.2, intel_rdt()),
        gids in list(select(&[0, 5, 44][..]).prop_map(|gid| json!(gid)), 3),
        net in prop::option::weighted(0.2, prop::collection::vec(net_device(), 1..3)),
    ) -> Value {
        object(&[
            ("env", json!(env)), ("deviceNodes", nodes), ("mounts", mounts), ("hooks", hooks), ("intelRdt", json!(rdt)),
            ("additionalGids", gids), ("netDevices", json!(net)),
        ])
    }
}

/// Names of devices, of which a later CDI allows more.
const NAMES: &[&str] = &["gpu0", "gpu1", "0", "a.b_c:d-1"];

/// Kinds of devices.
const KINDS: &[&str] = &["nvidia.com/gpu", "vendor.com/gpu", "vendor.com/net.card"];

/// All versions but the two that are too old for every specification. Most content needs a late one.
const VERSIONS: &[&str] = &["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0"];

prop_compose! {
    fn spec()(
        version in prop_oneof![3 => Just("1.1.0"), 2 => select(VERSIONS)],
        kind in select(KINDS),
        names in subsequence(NAMES.to_vec(), 1..3),
        own in prop::collection::vec(edits(), NAMES.len()),
        shared in prop::option::of(edits()),
        flaw in prop::option::weighted(0.1, select(&["unknown", "stage", "env", "permissions", "no device"][..])),
    ) -> Value {
        let devices: Vec<Value> =
            names.iter().zip(own).map(|(name, edits)| json!({"name": name, "containerEdits": edits})).collect();
        let mut spec = object(&[
            ("cdiVersion", json!(version)), ("kind", json!(kind)), ("devices", json!(devices)), ("containerEdits", json!(shared)),
        ]);
        if let Some(flaw) = flaw {
            let edits = &mut spec["devices"][0]["containerEdits"];
            match flaw {
                "unknown" => edits["unknown"] = json!(1),
                "stage" => edits["hooks"] = json!([{"hookName": "sometime", "path": "/x"}]),
                "env" => edits["env"] = json!(["NOTHING"]),
                "permissions" => edits["deviceNodes"] = json!([{"path": "/dev/null", "permissions": "rx"}]),
                _ => spec["devices"] = json!([]),
            }
        }
        declared_correctly(spec)
    }
}

/// `spec` with a version that is late enough for each of its devices, unless it is too early for the last one.
///
/// The reference library compares the declared version only with what the last device and the shared edits need: its
/// loop takes the address of a variable that all rounds share. We refuse a file that declares too early a version for
/// any device.
fn declared_correctly(mut spec: Value) -> Value {
    let needed = |spec: &Value| Some(minimum_version(&parse::spec(spec.to_string().as_bytes()).ok()?));
    let mut last_alone = spec.clone();
    if let Some(devices) = last_alone["devices"].as_array_mut()
        && let Some(last) = devices.pop()
    {
        // What a name needs is looked at for every device.
        devices
            .iter_mut()
            .for_each(|device| device["containerEdits"] = json!({}));
        devices.push(last);
    }
    if needed(&spec) != needed(&last_alone) {
        spec["cdiVersion"] = json!("1.1.0");
    }
    spec
}

prop_compose! {
    fn config()(
        env in prop::collection::vec("[ABC]=[x-z]{0,1}|PATH=/bin|NOEQUALS", 0..4),
        (uid, gid) in select(&[(0, 0), (1000, 0), (0, 1000), (7, 8)][..]),
        gids in prop::option::of(subsequence(vec![5, 44, 100], 0..3)),
        mounts in prop::collection::vec(select(DESTINATIONS), 0..5),
        devices in prop::collection::vec(select(&["/dev/x0", "/dev/other"][..]), 0..3),
        stages in subsequence(STAGES.to_vec(), 0..3),
        net in any::<bool>(),
        rdt in any::<bool>(),
        bare in prop::bool::weighted(0.1),
    ) -> Value {
        if bare {
            return json!({"ociVersion": "1.2.0"});
        }
        let mounts: Vec<Value> = mounts.iter().zip(0..).map(|(destination, i)| {
            json!({"destination": destination, "type": "bind", "source": format!("/old{i}")})
        }).collect();
        let nodes: Vec<Value> = devices.iter().map(|path| json!({"path": path, "type": "c", "major": 9, "minor": 9})).collect();
        let rules: Vec<Value> = devices.iter().map(|_| json!({"allow": true, "type": "c", "major": 9, "minor": 9, "access": "r"})).collect();
        let hooks: Map<String, Value> = stages.iter().map(|stage| ((*stage).to_owned(), json!([{"path": "/bin/old"}]))).collect();
        let user = object(&[("uid", json!(uid)), ("gid", json!(gid)), ("additionalGids", json!(gids))]);
        let linux = object(&[
            ("devices", json!(nodes)), ("resources", json!({"devices": rules})),
            ("netDevices", if net { json!({"eth0": {"name": "old"}}) } else { Value::Null }),
            ("intelRdt", if rdt { json!({"closID": "old"}) } else { Value::Null }),
        ]);
        json!({
            "ociVersion": "1.2.0", "process": {"user": user, "args": ["sh"], "env": env, "cwd": "/"},
            "root": {"path": "rootfs"}, "mounts": mounts, "hooks": hooks, "linux": linux,
        })
    }
}

prop_compose! {
    /// A case.
    pub(super) fn case()(
        specs in prop::collection::vec((0..DIRS, spec()), 1..5),
        // Most requests are of devices that exist.
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        stray in prop::option::weighted(0.05, select(&["vendor.com/gpu=missing", "nonsense"][..])),
        config in config(),
    ) -> Case {
        let files: Vec<File> =
            specs.into_iter().enumerate().map(|(i, (dir, spec))| File { dir, name: format!("{i}.json"), spec }).collect();
        let named: Vec<String> = files.iter().flat_map(|file| {
            let kind = file.spec["kind"].as_str().unwrap();
            let devices = file.spec["devices"].as_array().unwrap();
            devices.iter().map(move |device| format!("{kind}={}", device["name"].as_str().unwrap()))
        }).collect();
        let picked = picks.iter().filter(|_| !named.is_empty()).map(|pick| pick.get(&named).clone());
        Case { devices: picked.chain(stray.map(str::to_owned)).collect(), files, config }
    }
}
