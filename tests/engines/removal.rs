//! docker after a removal of tranche, which was its default runtime.

use crate::requests::{Way, policy, run_policy};
use crate::support::engines::Engine;

const REMOVAL: &str = r#"
step configured docker run --rm --network=none bb:1 /bin/sh -c "echo works"
docker run --detach --name runs --network=none bb:1 /bin/sleep 1000
init=$(docker inspect --format '{{.State.Pid}}' runs)
step removal tranche system prepare-removal --spec-dir "$bed/no-specs" --tmpfiles-dir "$bed/no-tmpfiles"
rm "$bed/runtime/tranche-runtime"
step file ls -A /etc/docker
# The daemon still has what it read when it started.
step running docker run --rm --network=none bb:1 /bin/sh -c "echo works"
step exec docker exec runs /bin/true
step stop docker stop --time 1 runs
await is_over "$init"
daemon_down
daemon_up
step restarted docker run --rm --network=none bb:1 /bin/sh -c "echo works"
"#;

#[test]
fn docker_starts_containers_after_the_removal_and_the_restart_that_it_asks_for() {
    let policy = policy("runc", "");
    run_policy(
        "removal",
        Way::DockerDefault,
        Engine::PodmanRunc,
        &policy,
        REMOVAL,
        |session| {
            assert_eq!(session.ok("configured"), "works\n");
            let removal = session.step("removal");
            assert!(
                removal
                    .text
                    .contains("docker: the runtime is removed; run systemctl restart docker to apply it\n"),
                "{removal:?}"
            );
            assert!(!session.ok("file").contains("daemon.json"), "{}", session.ok("file"));
            let running = session.step("running");
            assert!(
                running.code != 0 && running.text.contains("tranche-runtime"),
                "{running:?}"
            );
            let exec = session.step("exec");
            assert!(exec.code != 0 && exec.text.contains("tranche-runtime"), "{exec:?}");
            // docker kills what no runtime ends.
            session.ok("stop");
            assert_eq!(session.ok("restarted"), "works\n");
        },
    );
}
