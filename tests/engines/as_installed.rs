//! podman without any option for its runtime, storage, cgroups and network: as root, and as a user whom `useradd` made.
//! Only limits are set, on machines that do not allow podman to raise them. Doctor must say before what happens then.

use crate::cdi_names::said;
use crate::requests::gpus;
use crate::support::engines::{Bed, Engine};
use crate::support::session::session;
use crate::support::{fake_host, skip};

const SCRIPT: &str = r#"
step generate tranche cdi generate $place --cdi-version 0.5 --hook-path "$oci" --output /etc/cdi/nvidia.yaml
look='ls -d /dev/nvidia[0-9]*; find /usr/lib -name "libcuda.so.*"'
# In a home of its own, because nobody may enter root's directories.
useradd --create-home --home-dir "$bed/home" tranche-test
install --directory /run/user
install --directory --owner=tranche-test --mode=700 "/run/user/$(id -u tranche-test)"
cp -a "$2" "$bed/home/image"
chown -R tranche-test: "$bed/home"
as_user() {
    setpriv --reuid=tranche-test --regid=tranche-test --init-groups env -i PATH="$PATH" PODMAN_IGNORE_CGROUPSV1_WARNING=1 HOME="$bed/home" \
        XDG_RUNTIME_DIR="/run/user/$(id -u tranche-test)" "$@"
}
doctor() {
    # 4: something is wrong with the host of files.
    "$@" doctor --json --all $place || [ $? = 4 ]
}
step root-doctor doctor tranche
step root command podman run --rm $limits --device nvidia.com/gpu=0 --rootfs "$1" /bin/sh -c "$look"
step root-uses command podman info --format '{{.Host.OCIRuntime.Name}}, {{.Store.GraphDriverName}}, {{.Host.CgroupManager}}'
step user-doctor doctor as_user "$bed/tranche"
step user as_user podman run --rm $limits --device nvidia.com/gpu=0 --rootfs "$bed/home/image" /bin/sh -c "$look"
step user-uses as_user podman info --format '{{.Host.OCIRuntime.Name}}, {{.Store.GraphDriverName}}, {{.Host.CgroupManager}}'
# It keeps the namespaces of the user's containers.
kill "$(cat "/run/user/$(id -u tranche-test)/libpod/tmp/pause.pid")"
"#;

#[test]
fn podman_gives_a_gpu_without_options() {
    let test = "as_installed::podman_gives_a_gpu_without_options";
    if let Some(reason) = Engine::PodmanCrun.missing() {
        skip::not_run(test, &reason);
        return;
    }
    let mut bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(test, &missing.why);
        return;
    }
    // A user's engine takes a node only by the path that it has in the container.
    bed.with_nodes(&host.path("/dev"));
    // The user may not enter a checkout.
    crate::support::installed::command_line(&bed.at(""));
    let root = host.root.display();
    let script =
        format!("place='--driver-root={root} --dev-root=/ --proc-root={root}/proc --sys-root={root}/sys'\n{SCRIPT}");
    let session = session(&bed, Engine::PodmanCrun, 2, &script);
    session.ok("generate");
    for who in ["root", "user"] {
        let look = session.ok(who);
        assert_eq!(gpus(look), [0], "{who}: {look}");
        // The hook makes this link.
        assert!(look.contains("/libcuda.so.1\n"), "{who}: {look}");
        // Doctor says that this podman reads specifications, that this user finds these, and that users may run it.
        let doctor = format!("{who}-doctor");
        for (check, word) in [
            ("engines", "podman"),
            ("specifications", "/etc/cdi"),
            ("access to specifications", ""),
            ("rootless engines", ""),
        ] {
            let said = said(&session, &doctor, check, word);
            assert!(
                !said.is_empty() && said.iter().all(|(result, _)| result == "good"),
                "{who}: {check}: {said:?}"
            );
        }
        let uses = session.ok(&format!("{who}-uses"));
        skip::seen(&format!("podman of {who}"), &format!("as installed: {}", uses.trim()));
    }
}
