use super::*;
use serde_json::json;
use tranche_core::broker::{EnterSubject, RequestLine};
use tranche_core::ledger::ContainerName;
use tranche_core::types::DeviceKey;
use tranche_core::types::{Part, WaitTime};

fn of(value: Value) -> Result<Request> {
    Request::parse(value.to_string().as_bytes())
}

fn refused(value: Value) -> String {
    tranche_core::error::line(&of(value).unwrap_err())
}

const DEVICE: &str = "GPU-11111111";

#[test]
fn each_command_has_its_fields_and_others_are_ignored() {
    let container = json!({"id": "c", "bundle": "/b", "name": "ignored"});
    let name = ContainerName {
        id: "c".into(),
        bundle: "/b".into(),
    };
    let device: DeviceKey = DEVICE.parse().unwrap();
    let enter = |subject: EnterSubject, size: Option<&str>| {
        Request::Enter(EnterRequest {
            device: device.clone(),
            subject,
            size: size.map(|size| size.parse().unwrap()),
            container: name.clone(),
            pid: 77,
            user: None,
            wait: WaitTime::default(),
        })
    };
    let entering = |more: Value| {
        let mut all = json!({"version": 1, "command": "enter", "device": DEVICE, "as": "nvidia.com/gpu=0.3", "pid": 77,
            "container": container});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let mps = |action: &str| json!({"version": 1, "command": "mps", "action": action, "device": DEVICE, "force": true});
    for (line, request) in [
        (
            json!({"version": 1, "command": "prepare", "device": DEVICE, "container": container}),
            Request::Prepare(PrepareRequest { device: device.clone() }),
        ),
        (
            json!({"version": 1, "command": "end-clients", "container": container}),
            Request::EndClients(EndClientsRequest {
                container: name.clone(),
            }),
        ),
        (mps("start"), Request::Mps(MpsRequest::Start { device: device.clone() })),
        (
            mps("stop"),
            Request::Mps(MpsRequest::Stop {
                device: device.clone(),
                force: true,
            }),
        ),
        (
            mps("restart"),
            Request::Mps(MpsRequest::Restart { device: device.clone() }),
        ),
        (mps("status"), Request::Mps(MpsRequest::Status)),
        (
            entering(json!({"share": "3", "size": "1/4"})),
            enter(EnterSubject::Part(Part::Share("3".parse().unwrap())), Some("1/4")),
        ),
        (
            entering(json!({"share": "any"})),
            enter(EnterSubject::Part(Part::Any), None),
        ),
        (
            entering(json!({"whole": true})),
            enter(EnterSubject::Part(Part::Whole), None),
        ),
        (
            entering(json!({"claim": "train"})),
            enter(EnterSubject::Claim("train".into()), None),
        ),
        (
            json!({"version": 1, "command": "leave", "container": container}),
            Request::Leave(LeaveRequest {
                container: name.clone(),
            }),
        ),
        (
            json!({"version": 1, "command": "list", "later": [1, {}]}),
            Request::List(ListRequest {}),
        ),
        (
            json!({"version": 1, "command": "status"}),
            Request::Status(StatusRequest {}),
        ),
        (
            json!({"version": 1, "command": "release", "what": "train"}),
            Request::Release(ReleaseRequest {
                what: "train".into(),
                force: false,
            }),
        ),
        (
            json!({"version": 1, "command": "claim", "name": "a", "memory": "8Gi", "compute": "30%", "shares": 2,
                "share": ["big"], "device": "0", "select": "memory>=40Gi", "wait": "5m", "once": true, "for_root": true, "ttl": 9, "cdi_version": "0.5.0"}),
            Request::Claim(ClaimRequest {
                name: "a".into(),
                memory: Some("8Gi".parse().unwrap()),
                compute: Some("30%".parse().unwrap()),
                shares: Some(2),
                names: vec!["big".parse().unwrap()],
                device: Some("0".parse().unwrap()),
                select: "memory>=40Gi".parse().unwrap(),
                once: true,
                for_root: true,
                ttl: Some(9),
                wait: "5m".parse().unwrap(),
                cdi_version: Some("0.5.0".parse().unwrap()),
            }),
        ),
    ] {
        assert_eq!(of(line.clone()).unwrap(), request, "{line}");
    }
}

#[test]
fn what_is_not_a_request_is_refused_with_what_is_wrong() {
    let command = |more: Value| {
        let mut all = json!({"version": 1});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        refused(all)
    };
    for (line, says) in [
        (refused(json!([])), "request: is not a JSON object"),
        (refused(json!({})), "request: has no field version with a number"),
        (
            refused(json!({"version": "1", "command": "list"})),
            "request: has no field version with a number",
        ),
        (command(json!({})), "request: has no field command with a text"),
        (
            command(json!({"command": "reboot"})),
            "command reboot: unknown; expected one of prepare, end-clients, mps, enter,",
        ),
        (command(json!({"command": "prepare"})), "missing field `device`"),
        (
            command(json!({"command": "prepare", "device": "../x"})),
            "not a device like GPU-8188460b",
        ),
        (
            command(json!({"command": "mps", "device": DEVICE, "action": "reset"})),
            "unknown variant `reset`, expected one of `start`, `stop`",
        ),
        (
            command(json!({"command": "leave", "container": {"id": "", "bundle": "/b"}})),
            "has a wrong field: the id or the bundle of the container is empty or too long",
        ),
        (
            command(json!({"command": "leave", "container": {"id": "i".repeat(129), "bundle": "/b"}})),
            "has a wrong field: the id or the bundle of the container is empty or too long",
        ),
        (
            command(json!({"command": "enter", "device": DEVICE, "pid": 7, "container": {"id": "c", "bundle": "/b"}})),
            "request: has a wrong field: expected one of share, whole and claim",
        ),
        (
            command(
                json!({"command": "enter", "device": DEVICE, "whole": true, "share": "3",
                "pid": 7, "container": {"id": "c", "bundle": "/b"}}),
            ),
            "request: has a wrong field: expected one of share, whole and claim",
        ),
        (
            command(json!({"command": "claim", "name": "a", "memory": "lots"})),
            "has a wrong field: \"lots\": not a valid size of memory",
        ),
        (
            command(json!({"command": "claim", "name": "a", "ttl": -1})),
            "has a wrong field",
        ),
    ] {
        assert!(line.contains(says), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    assert!(Request::parse(b"\xff{").is_err() && Request::parse(b"").is_err());
    // The depth of JSON is limited.
    assert!(Request::parse("[".repeat(8000).as_bytes()).is_err());
}

#[test]
fn a_broker_answers_its_own_version_and_the_one_before() {
    for (version, own, answers) in [
        (1, 1, true),
        (2, 2, true),
        (1, 2, true),
        (1, 3, false),
        (2, 1, false),
        (0, 1, false),
    ] {
        assert_eq!(speaks(version, own), answers, "{version} to {own}");
    }
    let list = |version: u64, own| {
        Request::parse_as(
            json!({"version": version, "command": "list"}).to_string().as_bytes(),
            own,
        )
    };
    assert_eq!(list(VERSION, VERSION).unwrap(), Request::List(ListRequest {}));
    assert_eq!(list(4, 5).unwrap(), Request::List(ListRequest {}));
    let line = list(3, 2).unwrap_err().to_string();
    assert_eq!(
        line,
        "broker: it speaks version 2 and 1 of its protocol, and the request has version 3; restart the broker, so that it \
         is the installed version"
    );
    assert!(list(u64::MAX, 2).is_err());
}

/// What `fields` are as they are sent, parsed again.
fn sent<C: Command>(fields: &C) -> Request {
    Request::parse(&serde_json::to_vec(&RequestLine::of(fields)).unwrap()).unwrap()
}

#[test]
fn what_a_program_sends_is_what_the_broker_reads() {
    let container = ContainerName {
        id: "c".into(),
        bundle: "/b".into(),
    };
    for (subject, field) in [
        (
            EnterSubject::Part(Part::Share("3".parse().unwrap())),
            json!({"share": "3"}),
        ),
        (EnterSubject::Part(Part::Any), json!({"share": "any"})),
        (EnterSubject::Part(Part::Whole), json!({"whole": true})),
        (EnterSubject::Claim("train".into()), json!({"claim": "train"})),
    ] {
        for size in [None, Some("mps:7000:30")] {
            let enter = || EnterRequest {
                device: DEVICE.parse().unwrap(),
                subject: subject.clone(),
                size: size.map(|size| size.parse().unwrap()),
                container: container.clone(),
                pid: 77,
                user: size.map(|_| 1000),
                wait: WaitTime::default(),
            };
            assert_eq!(sent(&enter()), Request::Enter(enter()));
            let mut expected = json!({"version": 1, "command": "enter", "device": DEVICE,
                "container": {"id": "c", "bundle": "/b"}, "pid": 77});
            let fields = expected.as_object_mut().unwrap();
            fields.extend(field.as_object().unwrap().clone());
            fields.extend(size.map(|size| ("size".to_owned(), json!(size))));
            fields.extend(size.map(|_| ("user".to_owned(), json!(1000))));
            // What is not said has no field.
            assert_eq!(serde_json::to_value(RequestLine::of(&enter())).unwrap(), expected);
        }
    }
    let stop = || MpsRequest::Stop {
        device: DEVICE.parse().unwrap(),
        force: true,
    };
    assert_eq!(sent(&stop()), Request::Mps(stop()));
    assert_eq!(sent(&MpsRequest::Status), Request::Mps(MpsRequest::Status));
    assert_eq!(sent(&ListRequest {}), Request::List(ListRequest {}));
    let claim = ClaimRequest {
        name: "a".into(),
        // Neither whole MiB nor a whole tenth of a GiB.
        memory: Some("7500000001".parse().unwrap()),
        compute: Some("30%".parse().unwrap()),
        names: vec!["big".parse().unwrap()],
        device: Some("/dev/nvidia3".parse().unwrap()),
        ..ClaimRequest::default()
    };
    assert_eq!(sent(&claim), Request::Claim(claim.clone()));
}

#[test]
fn the_documentation_has_a_row_for_each_command() {
    let rows = include_str!("../../docs/reference/broker.md").lines();
    let rows: Vec<&str> = rows
        .skip_while(|line| !line.starts_with("| command |"))
        .skip(2)
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    assert_eq!(rows, Request::COMMANDS);
}

#[test]
fn what_a_configuration_does_not_say_may_be_left_out() {
    let nothing = |name: &str| serde_json::from_value::<ClaimSharing>(json!({name: {}})).unwrap();
    let turns = ClaimSharing::TimeSlicing { interval: None };
    let mps = ClaimSharing::Mps {
        active_thread_percentage: None,
        pinned_memory: None,
    };
    assert_eq!((nothing("time-slicing"), nothing("mps")), (turns, mps));
}
