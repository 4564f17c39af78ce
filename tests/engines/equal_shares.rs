//! Any free one of equal replicas, and devices that one container has to itself, under real engines.

use crate::support::{engines, fake_host, session, skip};
use engines::{Bed, Engine};
use session::{Session, session};

/// Runs a script under podman with each runtime, with the specs of a fake host with two GPUs under `policy`.
fn each_engine(name: &str, policy: &str, images: usize, script: &str, look: impl Fn(&Session)) {
    for engine in [Engine::PodmanCrun, Engine::PodmanRunc] {
        let test = format!("equal_shares::{name} {engine:?}");
        if let Some(reason) = engine.missing() {
            skip::not_run(&test, &reason);
            continue;
        }
        let bed = Bed::new();
        let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&test, &missing.why);
            continue;
        }
        std::fs::write(bed.at("policy.yaml"), policy).unwrap();
        std::fs::write(bed.specs().join("none-yet"), "").unwrap();
        let script = format!(
            "rm /etc/cdi/none-yet\nhost=$bed/host\n\
             at=\"--driver-root=$host --dev-root=$host --proc-root=$host/proc --sys-root=$host/sys\"\n\
             place=\"$at --config=$bed/policy.yaml\"\n\
             step generate tranche cdi refresh $place --cdi-version 0.5 --hook-path \"$oci\" --output-dir /etc/cdi\n\
             {script}"
        );
        let session = session(&bed, engine, images, &script);
        session.ok("generate");
        look(&session);
    }
}

/// GPU 0 by turns, in four equal parts.
const FOUR: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
";

/// The share in the line that `tranche status` has for a container.
fn part_of(status: &str, container: &str) -> String {
    let line = status.lines().find(|line| line.contains(&container.trim()[..12]));
    let line = line.unwrap_or_else(|| panic!("no line about {container} in {status}"));
    let mut cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    cells.nth(1).unwrap().to_owned()
}

#[test]
fn any_is_a_free_replica_and_the_fifth_container_of_four_is_refused() {
    let script = r#"
step a start a "$1" --device nvidia.com/gpu=0.any
step fixed start fixed "$2" --device nvidia.com/gpu=0.1
step c start c "$3" --device nvidia.com/gpu=0.any
step d start d "$4" --device nvidia.com/gpu=0.any
step status tranche status
refuse fifth start fifth "$5" --device nvidia.com/gpu=0.any
step whole start whole "$6" --device nvidia.com/gpu=0
step remove podman rm --force --time 0 a
step again start again "$1" --device nvidia.com/gpu=0.any
step then tranche status
init=$(init_of c)
kill -9 "$init"
await is_over "$init"
step after-kill start after-kill "$7" --device nvidia.com/gpu=0.any
step last tranche status
"#;
    each_engine("any", FOUR, 7, script, |session| {
        let status = session.ok("status");
        let parts: Vec<String> = ["a", "fixed", "c", "d"]
            .map(|name| part_of(status, session.ok(name)))
            .to_vec();
        assert_eq!(parts, ["0.0", "0.1", "0.2", "0.3"], "{status}");
        let why = session.refused("fifth");
        assert!(
            why.starts_with("gpu 0 any share: none of its 4 shares is free"),
            "{why}"
        );
        for (name, number) in [("a", 0), ("fixed", 1), ("c", 2), ("d", 3)] {
            let holder = format!("container {} holds share {number}", &session.ok(name)[..12]);
            assert!(why.contains(&holder), "{why}");
        }
        assert_ne!(session.step("whole").code, 0);
        session.ok("remove");
        assert_eq!(part_of(session.ok("then"), session.ok("again")), "0.0");
        assert_eq!(part_of(session.ok("last"), session.ok("after-kill")), "0.2");
    });
}

#[test]
fn any_under_two_names_is_one_share_and_a_restarted_container_has_one() {
    let script = r#"
uuid=$(tranche list $at --json | sed -n 's/.*"uuid": "\(GPU-[^"]*\)".*/\1/p' | head -n 1)
step twice start twice "$1" --device nvidia.com/gpu=0.any --device nvidia.com/gpu=0.any --device "nvidia.com/gpu=$uuid.any"
step twice-status tranche status
step restart podman restart --time 0 twice
step restart-status tranche status
step claim tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 --name beforehand --shares 2 --of 0
step claimed start claimed "$2" --device nvidia.com/claim=beforehand
step fourth start fourth "$3" --device nvidia.com/gpu=0.any
refuse fifth start fifth "$4" --device nvidia.com/gpu=0.any
podman rm --force --time 0 twice claimed fourth > /dev/null 2>&1
tranche claim release beforehand > /dev/null 2>&1
step all start all "$1" --device nvidia.com/gpu=0
refuse under-whole start under-whole "$2" --device nvidia.com/gpu=0.any
"#;
    each_engine("any-twice", FOUR, 4, script, |session| {
        session.ok("twice");
        session.ok("restart");
        for step in ["twice-status", "restart-status"] {
            let status = session.ok(step);
            assert_eq!(
                status.lines().filter(|line| line.contains(" held ")).count(),
                1,
                "{status}"
            );
            assert_eq!(part_of(status, session.ok("twice")), "0.0", "{step}");
        }
        session.ok("claim");
        session.ok("claimed");
        session.ok("fourth");
        let why = session.refused("fifth");
        assert!(
            why.contains("claim beforehand") && why.contains("holds shares 1, 2"),
            "{why}"
        );
        let all = session.ok("all").trim()[..12].to_owned();
        let why = session.refused("under-whole");
        assert!(
            why.contains(&format!("container {all} holds the whole device")),
            "{why}"
        );
    });
}

#[test]
fn a_dedicated_gpu_is_for_one_container_at_a_time() {
    let policy = "version: v1\nsharing:\n  dedicated: {devices: [1]}\n";
    let script = r#"
step one start one "$1" --device nvidia.com/gpu=1
step status tranche status
refuse two start two "$2" --device nvidia.com/gpu=1
step other start other "$3" --device nvidia.com/gpu=0
step beside start beside "$4" --device nvidia.com/gpu=0
step every start every "$5" --device nvidia.com/gpu=all
step nodes podman exec every ls /dev
step stop podman stop --time 0 one
step claim tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 --name mine --device 1
refuse taken start taken "$2" --device nvidia.com/gpu=1
step second tranche claim create $place --spec-dir /etc/cdi --cdi-version 0.5 --name yours --device 1
step use start use "$2" --device nvidia.com/claim=mine
step gpu podman exec use ls /dev
"#;
    each_engine("dedicated", policy, 5, script, |session| {
        let one = session.ok("one").trim()[..12].to_owned();
        let status = session.ok("status");
        assert!(
            status.contains("nvidia.com/gpu=1  whole") && status.contains(&one),
            "{status}"
        );
        let why = session.refused("two");
        assert!(
            why.starts_with("gpu 1 the whole device: container") && why.contains(&one),
            "{why}"
        );
        // GPU 0 is in no policy: as many containers as ask have it, and all is GPU 0.
        session.ok("other");
        session.ok("beside");
        session.ok("every");
        let nodes = session.ok("nodes");
        assert!(nodes.contains("nvidia0") && !nodes.contains("nvidia1"), "{nodes}");
        session.ok("stop");
        let said = session.ok("claim");
        assert!(
            said.contains("nvidia.com/claim=mine") && said.contains("the whole device"),
            "{said}"
        );
        assert!(session.refused("taken").contains("claim mine"));
        assert_ne!(session.step("second").code, 0);
        session.ok("use");
        assert!(session.ok("gpu").contains("nvidia1"));
    });
}
