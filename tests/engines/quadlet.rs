//! Quadlets: the command that podman's generator makes of a `.container` file with `AddDevice`, and what it starts.
//!
//! The command runs as systemd would run it, but for two things: podman keeps its state in the bed, and without
//! `--cgroups=split`, which divides the cgroup that systemd gives a service.

use crate::requests::has_share;
use crate::shares::each_engine;
use crate::support::engines::find;
use crate::support::skip;
use std::path::Path;

const SCRIPT: &str = r#"
mkdir "$bed/units" "$bed/t"
# unit NAME DEVICE IMAGE
unit() {
    cat > "$bed/units/$1.container" << END
[Container]
ContainerName=$1
Rootfs=$3
AddDevice=$2
Network=none
PodmanArgs=$limits
Exec=/bin/sleep 1000
END
}
unit whole nvidia.com/gpu=0 "$1"
unit slice nvidia.com/gpu=0.a "$1"
unit taken nvidia.com/gpu=0.a "$2"
unit mps nvidia.com/gpu=1.big "$3"
step generated env QUADLET_UNIT_DIRS="$bed/units" /usr/libexec/podman/quadlet --dryrun
# starts UNIT: its ExecStart.
starts() {
    sed -n "/^---$1.service---\$/,/^---/s/^ExecStart=//p" "$bed/steps/generated.text" |
        sed "s,/usr/bin/podman,'$bed/podman',; s,--cgroups=split ,,; s,%t,$bed/t,g; s,%N,$1,g" > "$bed/$1.sh"
    # Without this, a unit that was not generated would start nothing, with success.
    grep -q -- --device "$bed/$1.sh" && sh "$bed/$1.sh"
}
control=/run/tranche/mps/1/control
touch "$control"
mount --bind "$bed/daemon" "$control"
step slice starts slice
step nodes podman exec slice ls /dev
step status tranche status
refuse taken starts taken
refuse whole starts whole
step mps starts mps
step variables podman exec mps cat /proc/1/environ
podman rm --force --time 0 slice mps > /dev/null 2>&1
step free tranche status
"#;

#[test]
fn a_unit_gets_its_share_and_a_second_one_is_refused() {
    if !Path::new("/usr/libexec/podman/quadlet").exists() && find("podman").is_some() {
        let test = "quadlet::a_unit_gets_its_share_and_a_second_one_is_refused";
        skip::not_run(test, "podman has no quadlets before 4.4");
        return;
    }
    each_engine("quadlet", 3, SCRIPT, |_, session| {
        assert!(session.ok("generated").contains("AddDevice=nvidia.com/gpu=0.a\n"));
        session.ok("slice");
        let nodes = session.ok("nodes");
        assert!(nodes.contains("nvidia0\n") && !nodes.contains("nvidia1\n"), "{nodes}");
        let status = session.ok("status");
        assert!(
            status.contains("nvidia.com/gpu=0.a ") && status.contains(" held "),
            "{status}"
        );
        for step in ["taken", "whole"] {
            let why = session.refused(step);
            assert!(why.contains("holds share a since"), "{step}: {why}");
        }
        session.ok("mps");
        has_share("mps", session.ok("variables"), 60, 8192);
        assert!(
            session.ok("free").contains("no share is held\n"),
            "{}",
            session.ok("free")
        );
    });
}
