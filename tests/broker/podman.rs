//! A container of a user's own podman that is held for too long.

use crate::limits::scene;
use crate::scene::{ANN, GPU_0};
use crate::support::{skip, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// podman of a user whose home this is.
struct Podman<'h>(&'h Path);

impl Podman<'_> {
    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={ANN}"),
            format!("--regid={ANN}"),
            "--clear-groups".into(),
        ]);
        command.arg("podman").args(arguments).current_dir("/").env_clear();
        command.env("HOME", self.0).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.output().unwrap()
    }

    /// A field of a container; nothing while podman changes it.
    fn field(&self, id: &str, field: &str) -> String {
        let format = format!("{{{{{field}}}}}");
        let output = self.output(&["container", "inspect", "--format", &format, id]);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn pid(&self, id: &str) -> i32 {
        self.field(id, ".State.Pid").parse().unwrap_or(0)
    }
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        let _ = self.output(&["rm", "--force", "--all", "--time=0"]);
        // The process that keeps the user's namespaces.
        let pause = format!("/tmp/podman-run-{ANN}/libpod/tmp/pause.pid");
        if let Some(pid) = fs::read_to_string(pause).ok().and_then(|pid| pid.trim().parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[test]
fn a_container_that_podman_starts_again_is_stopped_for_good() {
    let test = "a_container_that_podman_starts_again_is_stopped_for_good";
    let Some(mut scene) = scene(test, "    default: {maxHold: 1s, atLimit: end, grace: 2s}\n") else {
        return;
    };
    let missing = ["/bin/busybox", "/usr/bin/podman"]
        .into_iter()
        .find(|path| !Path::new(path).exists());
    if let Some(path) = missing {
        return skip::not_run(&format!("broker::podman::{test}"), &format!("{path}: not found"));
    }
    scene.stop(Signal::SIGTERM);
    let (home, root) = (scene.at("home"), scene.at("home/root"));
    for directory in ["bin", "dev", "etc", "proc", "run", "sys", "tmp"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for path in [&home, &root] {
        chown(path, Some(ANN), Some(ANN)).unwrap();
    }
    for entry in fs::read_dir(&root).unwrap() {
        chown(entry.unwrap().path(), Some(ANN), Some(ANN)).unwrap();
    }
    let passwd = format!(
        "root:x:0:0::/root:/bin/sh\nann:x:{ANN}:{ANN}::{}:/bin/sh\n",
        home.display()
    );
    scene.start_with(&[("/etc/passwd", &passwd)]);

    let podman = Podman(&home);
    let rootfs = root.to_str().unwrap();
    let mut arguments = vec![
        "--cgroup-manager=cgroupfs",
        "run",
        "--detach",
        "--restart=always",
        "--network=none",
    ];
    arguments.extend([
        "--cgroups=disabled",
        "--rootfs",
        rootfs,
        "/bin/busybox",
        "sleep",
        "1000",
    ]);
    let output = podman.output(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let id = text.trim_end();
    if !output.status.success() || podman.pid(id) == 0 {
        let why = String::from_utf8_lossy(&output.stderr);
        return skip::not_run(
            &format!("broker::podman::{test}"),
            &format!("podman: {}", why.trim_end()),
        );
    }
    // Its restart policy works.
    let first = podman.pid(id);
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    until("podman starts it again", || ![0, first].contains(&podman.pid(id)));

    let bundle = podman.field(id, ".OCIConfigPath");
    let bundle = bundle.strip_suffix("/config.json").unwrap();
    let container = json!({"id": id, "bundle": bundle});
    let fields = json!({"device": GPU_0, "share": "any", "container": container, "pid": podman.pid(id)});
    scene.ask(ANN, "enter", fields).unwrap();
    until("it is stopped", || podman.field(id, ".State.Status") == "exited");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(podman.field(id, ".State.Status"), "exited");
    until("nothing is held", || scene.seen(ANN).is_empty());
}
