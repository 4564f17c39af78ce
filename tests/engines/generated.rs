//! Specifications that `tranche cdi generate` writes for the test hosts, in real engines: what a container then has.
//!
//! A host lies in a directory, so its nodes and files have that directory in their paths, as those of a driver
//! container have (`--driver-root`). A rootless engine takes a node only by the path that it has in the container: for
//! that one the nodes are put into `/dev` of the engine's own mount namespace, and the specification is made there.

use crate::support::{engines, fake_host, skip};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Output;

use engines::{Bed, Engine, run_podman};
use fake_host::Host;
use nix::sys::stat::{major, minor};

/// What every container of these hosts has besides its devices.
const CONTROL: [&str; 4] = [
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidiactl",
];

/// A test host and an engine to hold it against.
struct Case {
    bed: Bed,
    engine: Engine,
    host: Host,
}

/// Runs `test` with the host `name` under each engine that is here, and says which are not.
fn each_engine(test_name: &str, engines: &[Engine], name: &str, test: impl Fn(&Case)) {
    for engine in engines {
        let full_name = format!("generated::{test_name} {engine:?}");
        if let Some(reason) = engine.missing() {
            skip::not_run(&full_name, &reason);
            continue;
        }
        let mut bed = Bed::new();
        let host = fake_host::build(name, &bed.at("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&full_name, &missing.why);
            continue;
        }
        if engine.is_rootless() {
            bed.with_nodes(&host.path("/dev"));
        }
        test(&Case {
            bed,
            engine: *engine,
            host,
        });
    }
}

impl Case {
    /// Writes the specification of this host, with `more` options, where the engine looks.
    fn generate(&self, more: &[&str]) {
        let root = self.host.root.to_str().unwrap();
        let dev = if self.engine.is_rootless() { "/" } else { root };
        let driver = if self.host.path("/run/nvidia/driver/usr").exists() {
            format!("{root}/run/nvidia/driver")
        } else {
            root.to_owned()
        };
        let mut arguments = vec![
            "cdi".to_owned(),
            "generate".to_owned(),
            format!("--driver-root={driver}"),
            format!("--dev-root={dev}"),
            format!("--proc-root={root}/proc"),
            format!("--sys-root={root}/sys"),
            // One of the hosts has a GPU that is lost.
            "--degraded".to_owned(),
            "--cdi-version=0.5".to_owned(),
            format!("--output={}/nvidia.yaml", self.bed.specs().display()),
        ];
        if !more.contains(&"--no-hooks") {
            arguments.push(format!("--hook-path={}", self.bed.hook().display()));
        }
        arguments.extend(more.iter().map(|&option| option.to_owned()));
        let output = self.bed.tranche(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// What `script` says in a container with `devices`.
    fn inside(&self, devices: &[&str], script: &str) -> String {
        let output = self.run(devices, script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{:?} {devices:?}: {:?}\n{said}",
            self.engine,
            output.status
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn run(&self, devices: &[&str], script: &str) -> Output {
        run_podman(
            &self.bed,
            self.engine,
            devices,
            &self.bed.specs(),
            &["/bin/sh", "-c", script],
        )
    }

    /// Holds that a container with `devices` has the nodes `expected`, each with the host's numbers and permissions,
    /// and no other.
    fn has_nodes(&self, devices: &[&str], expected: &[&str]) {
        let script =
            "find /dev -type c '(' -path '/dev/nvidia*' -o -path '/dev/dri/*' ')' -exec stat -c '%n %t:%T %a' '{}' ';'";
        let said = self.inside(devices, script);
        let found: BTreeSet<&str> = said.lines().collect();
        let wanted: Vec<String> = expected
            .iter()
            .map(|path| {
                let status = fs::metadata(self.host.path(path)).unwrap();
                let (number, mode) = (status.rdev(), status.permissions().mode() & 0o7777);
                format!("{path} {:x}:{:x} {mode:o}", major(number), minor(number))
            })
            .collect();
        let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
        assert_eq!(found, wanted, "{:?} {devices:?}", self.engine);
    }
}

/// `nodes` and those of every container.
fn with_control<'a>(nodes: &[&'a str]) -> Vec<&'a str> {
    nodes.iter().copied().chain(CONTROL).collect()
}

#[test]
fn a_container_has_the_nodes_of_its_devices_and_no_other() {
    let test = "a_container_has_the_nodes_of_its_devices_and_no_other";
    each_engine(test, &Engine::ALL, "dgx-a100-mig", |case| {
        case.generate(&[]);
        // A MIG device: the GPU's node, and the capabilities of its two instances.
        let mig = with_control(&[
            "/dev/nvidia0",
            "/dev/nvidia-caps/nvidia-cap66",
            "/dev/nvidia-caps/nvidia-cap67",
        ]);
        case.has_nodes(&["nvidia.com/gpu=0:0"], &mig);
        let listed = fs::read_to_string(case.bed.specs().join("nvidia.yaml")).unwrap();
        let by_uuid = listed.split('"').find(|name| name.starts_with("MIG-")).unwrap();
        case.has_nodes(&[&format!("nvidia.com/gpu={by_uuid}")], &mig);
        // Two devices at once: of one GPU and of another.
        case.has_nodes(
            &["nvidia.com/gpu=0:0", "nvidia.com/gpu=7"],
            &[mig, vec!["/dev/nvidia7"]].concat(),
        );
    });
}

#[test]
fn all_are_all() {
    each_engine("all_are_all", &Engine::ALL, "workstation-rtx4090", |case| {
        case.generate(&[]);
        let all = with_control(&["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD129"]);
        case.has_nodes(&["nvidia.com/gpu=all"], &all);
        let listed = fs::read_to_string(case.bed.specs().join("nvidia.yaml")).unwrap();
        let uuid = listed.split('"').find(|name| name.starts_with("GPU-")).unwrap();
        case.has_nodes(&[&format!("nvidia.com/gpu={uuid}")], &all);
        let links = "cd /dev/dri/by-path; for link in *; do echo $link $(readlink $link); done";
        assert_eq!(
            case.inside(&["nvidia.com/gpu=0"], links),
            "pci-0000:01:00.0-card ../card1\npci-0000:01:00.0-render ../renderD129\n"
        );
    });
}

#[test]
fn an_index_is_no_minor() {
    let engines = [Engine::PodmanCrun, Engine::RootlessCrun];
    each_engine("an_index_is_no_minor", &engines, "minors-reordered", |case| {
        case.generate(&[]);
        // A driver for computing alone: no modeset.
        let nodes = [
            "/dev/nvidia2",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
            "/dev/nvidia-uvm-tools",
        ];
        case.has_nodes(&["nvidia.com/gpu=0"], &nodes);
    });
}

#[test]
fn libraries_and_links_are_there_with_and_without_a_hook() {
    let test = "libraries_and_links_are_there_with_and_without_a_hook";
    each_engine(test, &Engine::ALL, "workstation-rtx4090", |case| {
        let libdir = "/usr/lib/x86_64-linux-gnu";
        let version = "550.163.01";
        let library = case.host.path(&format!("{libdir}/libcuda.so.{version}"));
        let size = fs::metadata(library).unwrap().len();
        case.generate(&[]);
        let script = format!(
            "cd {libdir}; readlink libcuda.so; readlink libcuda.so.1; stat -L -c %s libcuda.so; stat -c %F libcuda.so.1; \
             echo $NVIDIA_VISIBLE_DEVICES"
        );
        assert_eq!(
            case.inside(&["nvidia.com/gpu=0"], &script),
            format!("libcuda.so.1\nlibcuda.so.{version}\n{size}\nsymbolic link\nvoid\n")
        );
        // Mounts stand for the links.
        case.generate(&["--no-hooks"]);
        let script = format!("cd {libdir}; stat -c '%s %F' libcuda.so libcuda.so.1 libcuda.so.{version}");
        let one = format!("{size} regular file\n");
        assert_eq!(case.inside(&["nvidia.com/gpu=0"], &script), one.repeat(3));
    });
}

/// nvidia-container-toolkit#692: a package with a version of its own is updated. toolbox#1577: a daemon is stopped.
#[test]
fn what_comes_and_goes_stops_no_container() {
    let test = "what_comes_and_goes_stops_no_container";
    each_engine(test, &Engine::ALL, "workstation-rtx4090", |case| {
        case.generate(&[]);
        let library = "/usr/lib/x86_64-linux-gnu/libnvidia-egl-wayland.so.1";
        let socket = "/run/nvidia-persistenced/socket";
        let script = format!("stat -L -c %s {library}; test -S {socket} && echo socket || echo none");
        let of_library = || fs::metadata(case.host.path(library)).unwrap().len();
        let devices = ["nvidia.com/gpu=0"];
        assert_eq!(case.inside(&devices, &script), format!("{}\nsocket\n", of_library()));
        let (link, host_socket) = (case.host.path(library), case.host.path(socket));
        let (old, new) = (format!("{}.1.13", link.display()), format!("{}.1.16", link.display()));
        let mut updated = fs::read(&old).unwrap();
        updated.extend([0; 4096]);
        fs::write(&new, updated).unwrap();
        fs::remove_file(old).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("libnvidia-egl-wayland.so.1.1.16", &link).unwrap();
        let stopped = case.host.path("/run/stopped");
        fs::rename(&host_socket, &stopped).unwrap();
        assert_eq!(case.inside(&devices, &script), format!("{}\nnone\n", of_library()));
        fs::rename(&stopped, &host_socket).unwrap();
        assert_eq!(case.inside(&devices, &script), format!("{}\nsocket\n", of_library()));
    });
}

#[test]
fn none_is_the_driver_s_files_without_a_device() {
    let test = "none_is_the_driver_s_files_without_a_device";
    each_engine(test, &Engine::ALL, "workstation-rtx4090", |case| {
        case.generate(&["--device-id=none"]);
        let script = "test -e /usr/lib/x86_64-linux-gnu/libcuda.so.1 && find /dev -name 'nvidia[0-9]' -o -path '/dev/dri/*'; \
                      echo ${NVCT_EMPTY_DEVICE-unset}.";
        assert_eq!(
            case.inside(&["nvidia.com/gpu=none"], script),
            ".\n",
            "{:?}",
            case.engine
        );
    });
}

#[test]
fn the_hook_chmod_opens_the_directories_of_nodes() {
    let test = "the_hook_chmod_opens_the_directories_of_nodes";
    each_engine(test, &Engine::ALL, "workstation-rtx4090", |case| {
        case.generate(&["--enable-hook=chmod"]);
        for device in ["nvidia.com/gpu=0", "nvidia.com/gpu=all"] {
            assert_eq!(
                case.inside(&[device], "stat -c %a /dev/dri"),
                "755\n",
                "{:?}",
                case.engine
            );
        }
    });
}

#[test]
fn management_gives_every_node() {
    let test = "management_gives_every_node";
    each_engine(test, &Engine::ALL, "dgx-a100-mig", |case| {
        case.generate(&["--mode=management"]);
        let count = fs::read_dir(case.host.path("/dev/nvidia-caps")).unwrap().count();
        let script = "find /dev/nvidia-caps -type c | wc -l; find /dev -name 'nvidia[0-9]' | wc -l";
        assert_eq!(
            case.inside(&["management.nvidia.com/gpu=all"], script),
            format!("{count}\n8\n")
        );
    });
}

#[test]
fn an_old_engine_takes_the_specification_of_every_host() {
    let test = "an_old_engine_takes_the_specification_of_every_host";
    for name in fake_host::names().unwrap() {
        if ["no-driver", "driver-no-gpu"].contains(&name.as_str()) {
            continue; // nothing to give: held by tests/specs/golden.rs
        }
        each_engine(test, &[Engine::PodmanCrun], &name, |case| {
            case.generate(&[]);
            let said = case.inside(&["nvidia.com/gpu=all"], "find /dev -name 'nvidia[0-9]' | wc -l");
            assert_ne!(said, "0\n", "{name}");
        });
    }
}
