//! What the driver tells others: collectors of metrics, users of claims, and those who choose nodes by labels.

use super::*;

/// What a collector gets from the driver.
fn collected(driver: &Instance, request: &str) -> String {
    let runtime = driver.runtime.as_ref().unwrap();
    let listener = runtime.block_on(listen(0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let metrics = driver.running.as_ref().unwrap().metrics().clone();
    let server = runtime.spawn(serve(listener, metrics));
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    server.abort();
    answer
}

#[test]
fn what_became_of_claims_is_counted_for_a_collector() {
    let scene = Scene::new();
    let driver = scene.driver();
    let (a, b, gone) = (claim("a"), claim("b"), claim("gone"));
    let mut part = result("gpu-0");
    part["shareID"] = json!("5f3c");
    part["consumedCapacity"] = json!({"memory": "8Gi", "compute": "30", "shares": "1"});
    scene.allocate(&a, json!([part, result("gpu-1")]), json!([]));
    scene.prepare(&a).unwrap();
    scene.prepare(&gone).unwrap_err();
    scene.allocate(&b, json!([result("gpu-9")]), json!([]));
    scene.unprepare(&a).unwrap();
    fs::remove_file(scene.top.path().join("run/broker.sock")).unwrap();
    scene.prepare(&b).unwrap_err();
    let answer = collected(&driver, "GET /metrics HTTP/1.1\r\nHost: pod\r\n\r\n");
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("application/openmetrics-text"),
        "{head}"
    );
    for line in [
        "tranche_dra_allocations_total{resource=\"share\",strategy=\"mps\"} 1",
        "tranche_dra_allocations_total{resource=\"gpu\",strategy=\"dedicated\"} 1",
        "tranche_dra_failures_total{operation=\"prepare\",reason=\"not-allocated\"} 1",
        "tranche_dra_failures_total{operation=\"prepare\",reason=\"broker-unreachable\"} 1",
        "tranche_dra_failures_total{operation=\"prepare\",reason=\"held\"} 0",
        "tranche_dra_failures_total{operation=\"unprepare\",reason=\"broker-refused\"} 0",
        "tranche_dra_operation_seconds_count{operation=\"prepare\"} 3",
        "tranche_dra_operation_seconds_count{operation=\"unprepare\"} 1",
    ] {
        assert!(text.lines().any(|has| has == line), "{line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("\r\n\r\n", "405"),
    ] {
        let answer = collected(&driver, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    prometheus_accepts(text);
}

/// Asks promtool, which reads the older text format: there, a counter and its help have one name.
#[allow(clippy::print_stdout, reason = "what is not run is said")]
fn prometheus_accepts(text: &str) {
    let check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut check = match check {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("not run: what_became_of_claims_is_counted_for_a_collector: no promtool");
            return;
        }
        check => check.unwrap(),
    };
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().all(|line| line.ends_with("_total no help text")), "{said}");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
}

/// What the status of a claim has for this driver, when it has anything.
fn status_of(scene: &Scene, name: &str) -> Value {
    let of = || {
        let cluster = scene.api.cluster();
        cluster.claims[&("lab".into(), name.into())]["status"]["devices"].clone()
    };
    until("the status is written", || !of().is_null());
    of()
}

#[test]
fn the_status_of_a_claim_says_what_it_was_given() {
    let scene = Scene::new();
    let options = DriverOptions {
        claim_status: true,
        ..DriverOptions::default()
    };
    let (sender, mut events) = mpsc::channel(64);
    let _driver = scene.driver_with(options, Some(sender));
    let mut part = result("gpu-0");
    part["shareID"] = json!("5f3c");
    part["consumedCapacity"] = json!({"memory": "8Gi", "compute": "30", "shares": "1"});
    let mut watched = result("gpu-2");
    watched["adminAccess"] = json!(true);
    scene.allocate(&claim("a"), json!([watched, part, result("gpu-1")]), json!([]));
    scene.prepare(&claim("a")).unwrap();
    let mut devices = status_of(&scene, "a");
    for device in devices.as_array_mut().unwrap() {
        let condition = device["conditions"][0].as_object_mut().unwrap();
        let at = condition.remove("lastTransitionTime").unwrap();
        assert!(at.as_str().unwrap().ends_with('Z'), "{at}");
    }
    let ready = json!([{"type": "Ready", "status": "True", "reason": "Prepared", "message": ""}]);
    let wanted = json!([
        {"driver": DRIVER, "pool": NODE, "device": "gpu-0", "shareID": "5f3c", "conditions": ready,
            "data": {"uuid": "GPU-of-gpu-0", "strategy": "mps", "share": "5f3c", "memoryMiB": 8192,
                "activeThreadPercentage": 30}},
        {"driver": DRIVER, "pool": NODE, "device": "gpu-1", "conditions": ready,
            "data": {"uuid": "GPU-of-gpu-1", "strategy": "dedicated"}},
    ]);
    assert_eq!(devices, wanted, "what is only watched is not given");
    let patch = CALLS.lines().find(|call| call.starts_with("patch ")).unwrap();
    assert!(scene.api.cluster().calls.contains(patch));
    // No right, or an older API server: claims are prepared all the same, and one line says so.
    for (refuses, part) in [(true, "Invalid"), (false, "DRAResourceClaimDeviceStatus is off")] {
        {
            let mut cluster = scene.api.cluster();
            (cluster.refuses_status, cluster.drops_status) = (refuses, !refuses);
        }
        for name in ["b", "c"] {
            scene.allocate(&claim(name), json!([result("gpu-1")]), json!([]));
            scene.prepare(&claim(name)).unwrap();
        }
        let notice = events.blocking_recv().unwrap();
        assert!(
            notice.reason == "StatusNotWritten" && notice.text.contains(part),
            "{notice:?}"
        );
        let mut cluster = scene.api.cluster();
        (cluster.refuses_status, cluster.drops_status) = (false, false);
        drop(cluster);
        // What follows is written again.
        scene.allocate(&claim("d"), json!([result("gpu-1")]), json!([]));
        scene.prepare(&claim("d")).unwrap();
        assert_eq!(status_of(&scene, "d")[0]["device"], "gpu-1");
        assert!(events.try_recv().is_err(), "it is said once");
    }
    // A later claim of the name is not written over, and a deleted one is no fault.
    scene.delete(&claim("a"));
    let later = KubernetesObject {
        uid: "later".into(),
        ..claim("a")
    };
    scene.allocate(&later, json!([result("gpu-1")]), json!([]));
    scene.prepare(&later).unwrap();
    assert_eq!(status_of(&scene, "a")[0]["device"], "gpu-1");
    // Nor is one that another has replaced since it was prepared.
    scene.api.cluster().replaced = 1;
    scene.allocate(&claim("e"), json!([result("gpu-1")]), json!([]));
    scene.prepare(&claim("e")).unwrap();
    until("its status was sent", || scene.api.cluster().replaced == 0);
    scene.allocate(&claim("f"), json!([result("gpu-1")]), json!([]));
    scene.prepare(&claim("f")).unwrap();
    assert_eq!(status_of(&scene, "f")[0]["device"], "gpu-1");
    assert!(
        events.try_recv().is_err(),
        "a claim that was replaced is no fault of the status"
    );
}

#[test]
fn the_node_has_the_labels_of_its_gpus() {
    let scene = Scene::new();
    let options = DriverOptions {
        labels_owner: Some(PodRef {
            name: "tranche-x".into(),
            uid: "pod-uid".into(),
        }),
        ..DriverOptions::default()
    };
    let (sender, mut events) = mpsc::channel(64);
    scene.broker.node().dra = devices([whole(1), whole(2)]);
    let _driver = scene.driver_with(options, Some(sender));
    let labels = || {
        let cluster = scene.api.cluster();
        cluster
            .node_feature
            .as_ref()
            .map(|object| object["spec"]["labels"].clone())
    };
    let mut wanted = json!({
        "nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/cuda.driver-version.full": "570.124.06", "nvidia.com/cuda.driver-version.major": "570",
        "nvidia.com/cuda.driver-version.minor": "124", "nvidia.com/cuda.driver-version.revision": "06",
    });
    until("the labels are there", || labels().as_ref() == Some(&wanted));
    let object = scene.api.cluster().node_feature.clone().unwrap();
    assert_eq!(
        object["metadata"],
        json!({"name": format!("tranche-{NODE}"), "labels": {"nfd.node.kubernetes.io/node-name": NODE},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "tranche-x", "uid": "pod-uid"}]})
    );
    let patch = CALLS
        .lines()
        .find(|call| call.starts_with("patch nodefeatures"))
        .unwrap();
    let patch = patch.replace(" tranche", " default");
    assert!(
        scene.api.cluster().calls.contains(&patch),
        "the namespace is that of the account"
    );
    // What the GPUs do not have in common is no label.
    let mut other = whole(2);
    other.gpu.product = "NVIDIA A100".into();
    other.memory = None;
    scene.broker.node().dra = devices([equal(0, 10), other]);
    for name in ["product", "memory", "sharing-strategy"] {
        wanted
            .as_object_mut()
            .unwrap()
            .remove(&format!("nvidia.com/gpu.{name}"));
    }
    until("they follow", || labels().as_ref() == Some(&wanted));
    scene.broker.node().dra = devices([equal(0, 10)]);
    until("a way of sharing is one", || {
        labels().is_some_and(|labels| labels["nvidia.com/gpu.sharing-strategy"] == "mps")
    });
    // Without the right, or without Node Feature Discovery.
    scene.api.cluster().is_forbidden = true;
    scene.broker.node().dra = devices([whole(1)]);
    // The slices have an event, too.
    let notice = std::iter::from_fn(|| events.blocking_recv()).find(|notice| notice.reason == "LabelsNotSet");
    let notice = notice.unwrap();
    assert!(notice.text.contains("forbidden"), "{notice:?}");
    // They are set soon after it is there, and not at the next look at what is well.
    scene.api.cluster().is_forbidden = false;
    until("they are set", || {
        labels().is_some_and(|labels| labels["nvidia.com/gpu.sharing-strategy"] == "none")
    });
}
