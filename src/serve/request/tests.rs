use super::*;
use serde_json::json;

fn of(value: Value) -> Result<BrokerRequest> {
    parse(value.to_string().as_bytes())
}

fn refused(value: Value) -> String {
    crate::error::line(&of(value).unwrap_err())
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
        BrokerRequest::Enter(EnterRequest {
            device: device.clone(),
            subject,
            size: size.map(|size| size.parse().unwrap()),
            container: name.clone(),
            pid: 77,
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
            BrokerRequest::Prepare(device.clone()),
        ),
        (
            json!({"version": 1, "command": "drain", "container": container}),
            BrokerRequest::Drain(name.clone()),
        ),
        (mps("start"), BrokerRequest::Mps(MpsAction::Start, device.clone())),
        (
            mps("stop"),
            BrokerRequest::Mps(MpsAction::Stop { force: true }, device.clone()),
        ),
        (mps("restart"), BrokerRequest::Mps(MpsAction::Restart, device.clone())),
        (mps("status"), BrokerRequest::MpsStatus),
        (
            entering(json!({"share": "3", "size": "1/4"})),
            enter(EnterSubject::Share("3".parse().unwrap()), Some("1/4")),
        ),
        (entering(json!({"share": "any"})), enter(EnterSubject::Any, None)),
        (entering(json!({"whole": true})), enter(EnterSubject::Whole, None)),
        (
            entering(json!({"claim": "train"})),
            enter(EnterSubject::Claim("train".into()), None),
        ),
        (
            json!({"version": 1, "command": "leave", "container": container}),
            BrokerRequest::Leave(name.clone()),
        ),
        (
            json!({"version": 1, "command": "list", "later": [1, {}]}),
            BrokerRequest::List,
        ),
        (json!({"version": 1, "command": "status"}), BrokerRequest::Status),
        (
            json!({"version": 1, "command": "release", "what": "train"}),
            BrokerRequest::Release {
                what: "train".into(),
                force: false,
            },
        ),
        (
            json!({"version": 1, "command": "claim", "name": "a", "memory": "8Gi", "compute": "30%", "shares": 2,
                "share": ["big"], "device": "0", "once": true, "for_root": true, "ttl": 9, "cdi_version": "0.5.0"}),
            BrokerRequest::Claim(Box::new(ClaimRequest {
                name: "a".into(),
                memory: Some("8Gi".parse().unwrap()),
                compute: Some("30%".parse().unwrap()),
                shares: Some(2),
                names: vec!["big".parse().unwrap()],
                device: Some("0".parse().unwrap()),
                once: true,
                for_root: true,
                ttl: Some(9),
                cdi_version: Some("0.5.0".parse().unwrap()),
            })),
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
            "command reboot: unknown; expected one of prepare, drain, mps, enter,",
        ),
        (command(json!({"command": "prepare"})), "missing field `device`"),
        (
            command(json!({"command": "prepare", "device": "../x"})),
            "not a device like GPU-8188460b",
        ),
        (
            command(json!({"command": "mps", "device": DEVICE, "action": "reset"})),
            "action reset: unknown",
        ),
        (
            command(json!({"command": "leave", "container": {"id": "", "bundle": "/b"}})),
            "a container whose id or bundle is empty or too long",
        ),
        (
            command(json!({"command": "leave", "container": {"id": "i".repeat(129), "bundle": "/b"}})),
            "a container whose id or bundle is empty or too long",
        ),
        (
            command(json!({"command": "enter", "device": DEVICE, "pid": 7, "container": {"id": "c", "bundle": "/b"}})),
            "needs one of share, whole and claim",
        ),
        (
            command(
                json!({"command": "enter", "device": DEVICE, "whole": true, "share": "3",
                "pid": 7, "container": {"id": "c", "bundle": "/b"}}),
            ),
            "needs one of share, whole and claim",
        ),
        (
            command(json!({"command": "claim", "name": "a", "memory": "lots"})),
            "has a wrong field memory",
        ),
        (
            command(json!({"command": "claim", "name": "a", "ttl": -1})),
            "has a wrong field",
        ),
    ] {
        assert!(line.contains(says), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    assert!(parse(b"\xff{").is_err() && parse(b"").is_err());
    // The depth of JSON is limited.
    assert!(parse("[".repeat(8000).as_bytes()).is_err());
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
        parse_as(
            json!({"version": version, "command": "list"}).to_string().as_bytes(),
            own,
        )
    };
    assert_eq!(list(VERSION, VERSION).unwrap(), BrokerRequest::List);
    assert_eq!(list(4, 5).unwrap(), BrokerRequest::List);
    let line = list(3, 2).unwrap_err().to_string();
    assert_eq!(
        line,
        "broker: it speaks version 2 and 1 of its protocol, and the request has version 3; restart the broker, so that it \
         is the installed version"
    );
    assert!(list(u64::MAX, 2).is_err());
}
