//! Apptainer of a user, with what `tranche export` prints: it reads no CDI specification.

use crate::requests::gpus;
use crate::support::engines::{Bed, Engine, find};
use crate::support::session::session;
use crate::support::{fake_host, skip};
use std::fs;

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
";

const SCRIPT: &str = r#"
look='ls -d /dev/nvidia[0-9]* 2>/dev/null; find /usr/lib -name "libcuda.so.*"; echo "path $LD_LIBRARY_PATH"'
useradd --create-home --home-dir "$bed/home" tranche-test
cp -a "$1" "$bed/home/image"
chown -R tranche-test: "$bed/home"
# exec NAME DEVICE…: a step, in a container with the exported device.
exec_() {
    name=$1
    shift
    flags=
    if [ $# -gt 0 ]; then
        flags=$(tranche export --for apptainer $place "$@" 2> "$bed/steps/$name-said.text")
        echo $? > "$bed/steps/$name-said.code"
    fi
    step "$name" setpriv --reuid=tranche-test --regid=tranche-test --init-groups env -i PATH="$PATH" HOME="$bed/home" FLAGS="$flags" \
        LOOK="$look" IMAGE="$bed/home/image" sh -c 'eval apptainer exec $FLAGS "$IMAGE" /bin/sh -c "\"\$LOOK\""'
}
exec_ nothing
exec_ whole 1
exec_ share 0.1
step cdi apptainer exec --device nvidia.com/gpu=1 "$bed/home/image" true
"#;

#[test]
fn a_container_of_a_user_sees_what_is_exported() {
    let test = "apptainer::a_container_of_a_user_sees_what_is_exported";
    let reason = Engine::PodmanCrun.missing();
    let reason = reason.or_else(|| {
        find("apptainer")
            .is_none()
            .then(|| "not installed: apptainer".to_owned())
    });
    if let Some(reason) = reason {
        skip::not_run(test, &reason);
        return;
    }
    let mut bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(test, &missing.why);
        return;
    }
    // It takes nodes from the host's /dev alone.
    bed.with_nodes(&host.path("/dev"));
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    let root = host.root.display();
    let script = format!(
        "place='--driver-root={root} --dev-root=/ --proc-root={root}/proc --sys-root={root}/sys --config={}'\n{SCRIPT}",
        bed.at("policy.yaml").display()
    );
    let session = session(&bed, Engine::PodmanCrun, 1, &script);
    // Apptainer shares the host's /dev.
    assert_eq!(gpus(session.ok("nothing")), [0, 1]);
    assert!(!session.ok("nothing").contains("libcuda"), "{}", session.ok("nothing"));
    for (step, expected) in [("whole", 1), ("share", 0)] {
        let look = session.ok(step);
        assert_eq!(gpus(look), [expected], "{step}: {look}");
        assert!(
            look.contains("/libcuda.so.1\n") && look.contains("path /usr/lib/x86_64-linux-gnu"),
            "{look}"
        );
    }
    let said = session.ok("share-said");
    assert!(said.contains("tranche run --share 0.1 -- PROGRAM"), "{said}");
    let cdi = session.step("cdi");
    assert!(
        cdi.code != 0 && cdi.text.contains("unknown flag: --device"),
        "{}",
        cdi.text
    );
}
