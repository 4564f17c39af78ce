//! The hook under real engines, with specs written by hand: what a container then sees.

use crate::support::{engines, skip};
use std::fs;
use std::process::Output;

use engines::{Bed, Engine, run_bundle, run_podman, run_podman_in};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;

const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

/// Runs `test` under each engine that is here, and says which are not.
fn each_engine(name: &str, engines: &[Engine], test: impl Fn(&Bed, Engine)) {
    for engine in engines {
        match engine.missing() {
            Some(reason) => skip::not_run(&format!("handwritten::{name} {engine:?}"), &reason),
            None => test(&Bed::new(), *engine),
        }
    }
}

/// Success, and what was written to standard output.
fn succeeded(engine: Engine, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{engine:?}: {:?}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One library and one node for device `0`, both of the bed's own making, and our hook.
///
/// A rootless engine cannot make nodes: it binds the host's, and only under the same path.
fn write_spec(bed: &Bed, engine: Engine) {
    let library = bed.at("libcuda.so.580.95.05");
    fs::write(&library, "a library").unwrap();
    let node = if engine.is_rootless() {
        json!({"path": "/dev/zero"})
    } else {
        let node = bed.at("nvidia0");
        mknod(&node, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), makedev(1, 5)).unwrap();
        json!({"path": "/dev/nvidia0", "hostPath": node})
    };
    bed.spec(
        "nvidia.json",
        &json!({
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [
                {"name": "0", "containerEdits": {"deviceNodes": [node]}},
                {"name": "1", "containerEdits": {"env": ["SECOND=1"]}}
            ],
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void"],
                "mounts": [{"hostPath": library, "containerPath": format!("{LIBDIR}/libcuda.so.580.95.05"),
                            "options": ["ro", "nosuid", "nodev", "bind"]}],
                "hooks": [{
                    "hookName": "createContainer",
                    "path": bed.hook(),
                    "args": ["tranche-oci", "hook", "prepare",
                             "--link", format!("libcuda.so.580.95.05::{LIBDIR}/libcuda.so.1"),
                             "--link", format!("libcuda.so.1::{LIBDIR}/libcuda.so"),
                             "--ldcache-dir", LIBDIR, "--driver-version", "580.95.05"],
                    "env": ["PATH="]
                }]
            }
        }),
    );
}

#[test]
fn a_container_sees_node_library_links_and_environment() {
    each_engine(
        "a_container_sees_node_library_links_and_environment",
        &Engine::ALL,
        |bed, engine| {
            write_spec(bed, engine);
            let node = if engine.is_rootless() {
                "/dev/zero"
            } else {
                "/dev/nvidia0"
            };
            let script = format!(
                "stat -c '%F %t:%T' {node}; cat {LIBDIR}/libcuda.so; echo; readlink {LIBDIR}/libcuda.so; readlink {LIBDIR}/libcuda.so.1; \
             echo $NVIDIA_VISIBLE_DEVICES $SECOND"
            );
            let devices = ["nvidia.com/gpu=0", "nvidia.com/gpu=1"];
            let output = run_podman(bed, engine, &devices, &bed.specs(), &["/bin/sh", "-c", &script]);
            assert_eq!(
                succeeded(engine, &output),
                "character special file 1:5\na library\nlibcuda.so.1\nlibcuda.so.580.95.05\nvoid 1\n",
                "{engine:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        },
    );
}

#[test]
fn without_a_device_there_is_nothing_of_ours() {
    each_engine(
        "without_a_device_there_is_nothing_of_ours",
        &Engine::ALL,
        |bed, engine| {
            write_spec(bed, engine);
            let output = run_podman(
                bed,
                engine,
                &[],
                &bed.specs(),
                &["/bin/sh", "-c", "ls /usr/lib; echo $NVIDIA_VISIBLE_DEVICES"],
            );
            assert_eq!(succeeded(engine, &output), "\n");
        },
    );
}

#[test]
fn a_container_that_starts_again_on_the_same_root() {
    each_engine(
        "a_container_that_starts_again_on_the_same_root",
        &Engine::ALL,
        |bed, engine| {
            write_spec(bed, engine);
            let image = bed.image(engine);
            let show = ["/bin/readlink", "/usr/lib/x86_64-linux-gnu/libcuda.so"];
            for _ in 0..2 {
                let output = run_podman_in(bed, engine, &image, &["nvidia.com/gpu=1"], &bed.specs(), &[], &show);
                assert_eq!(succeeded(engine, &output), "libcuda.so.1\n");
            }
            let names: Vec<_> = fs::read_dir(image.join("usr/lib/x86_64-linux-gnu")).unwrap().collect();
            assert_eq!(names.len(), 3, "the mount's place and two links: {names:?}");
        },
    );
}

#[test]
fn an_image_that_links_its_library_directory_to_the_host() {
    each_engine(
        "an_image_that_links_its_library_directory_to_the_host",
        &Engine::ALL,
        |bed, engine| {
            // The mount of the library is left out: an engine makes its place, which is another program's affair.
            let outside = bed.at("outside");
            fs::create_dir(&outside).unwrap();
            fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
            let arguments = [
                "tranche-oci",
                "hook",
                "prepare",
                "--link",
                "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so",
            ];
            bed.spec(
            "nvidia.json",
            &json!({
                "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
                "containerEdits": {"hooks": [{"hookName": "createContainer", "path": bed.hook(), "args": arguments, "env": ["PATH="]}]}
            }),
        );
            for target in [
                outside.clone(),
                format!("/proc/self/root{}", outside.display()).into(),
                format!("/proc/1/root{}", outside.display()).into(),
            ] {
                let image = bed.image(engine);
                std::os::unix::fs::symlink(&target, image.join("usr/lib/x86_64-linux-gnu")).unwrap();
                let output = run_podman_in(
                    bed,
                    engine,
                    &image,
                    &["nvidia.com/gpu=0"],
                    &bed.specs(),
                    &[],
                    &["/bin/true"],
                );
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success(), "{engine:?} {target:?}");
                assert!(said.contains("hook"), "{engine:?}: {said}");
                assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{engine:?} {target:?}");
            }
        },
    );
}

#[test]
fn a_read_only_container_leaves_its_root_as_it_was() {
    each_engine(
        "a_read_only_container_leaves_its_root_as_it_was",
        &Engine::ALL,
        |bed, engine| {
            write_spec(bed, engine);
            let image = bed.image(engine);
            // The place of the mount is there: an engine would make it otherwise.
            let libdir = image.join("usr/lib/x86_64-linux-gnu");
            fs::create_dir(&libdir).unwrap();
            fs::write(libdir.join("libcuda.so.580.95.05"), "").unwrap();
            let show = ["/bin/ls", "/usr/lib/x86_64-linux-gnu"];
            let output = run_podman_in(
                bed,
                engine,
                &image,
                &["nvidia.com/gpu=1"],
                &bed.specs(),
                &["--read-only"],
                &show,
            );
            assert_eq!(succeeded(engine, &output), "libcuda.so.580.95.05\n", "{engine:?}");
            assert_eq!(fs::read_dir(&libdir).unwrap().count(), 1, "{engine:?}");
        },
    );
}

#[test]
fn the_runtimes_alone_run_the_hook() {
    each_engine(
        "the_runtimes_alone_run_the_hook",
        &[Engine::PodmanCrun, Engine::PodmanRunc],
        |bed, engine| {
            fs::write(bed.specs().join("none.json"), "{}").unwrap();
            let image = bed.image(engine);
            let script = "readlink /opt/libcuda.so; ls /dev/dri/by-path; readlink /dev/dri/by-path/*";
            let show = ["/bin/sh", "-c", script];
            let output = run_bundle(bed, engine, &image, &show, |config| {
                config["linux"]["devices"] = json!([{"path": "/dev/dri/card1", "type": "c", "major": 1, "minor": 5, "fileMode": 0o666, "uid": 0, "gid": 0}]);
                config["hooks"] = json!({"createContainer": [{
                    "path": bed.hook(),
                    "args": ["tranche-oci", "hook", "prepare", "--link", "libcuda.so.1::/opt/libcuda.so",
                             "--by-path", "pci-0000:41:00.0-card::/dev/dri/card1", "--by-path", "x::/dev/dri/card0"],
                    "env": ["PATH="]
                }]});
            });
            assert_eq!(
                succeeded(engine, &output),
                "libcuda.so.1\npci-0000:41:00.0-card\n../card1\n"
            );
        },
    );
}

#[test]
fn what_the_hook_says_is_kept_whatever_the_engine_does_with_it() {
    let test = "what_the_hook_says_is_kept_whatever_the_engine_does_with_it";
    for engine in Engine::ALL {
        if let Some(reason) = engine.missing() {
            skip::not_run(&format!("handwritten::{test} {engine:?}"), &reason);
            continue;
        }
        let mut bed = Bed::new();
        let kept = bed.at("kept");
        // A session of the rootless user, which pam_systemd(8) would have begun.
        let before = "mkdir -p /run/user/65534 && chmod 700 /run/user/65534 && chown 65534:65534 /run/user/65534";
        let after = "cat /run/tranche/messages/*.jsonl > ROOT 2> /dev/null\n\
                     cat /run/user/65534/tranche/messages/*.jsonl > USER 2> /dev/null";
        let place = |name: &str| kept.with_extension(name).display().to_string();
        bed.around(
            before,
            &after.replace("ROOT", &place("root")).replace("USER", &place("user")),
        );
        bed.spec(
            "nvidia.json",
            &json!({
                "cdiVersion": "0.5.0",
                "kind": "nvidia.com/gpu",
                "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
                "containerEdits": {"hooks": [{
                    "hookName": "createContainer", "path": bed.hook(),
                    "args": ["tranche-oci", "hook", "prepare", "--shine=1"], "env": ["PATH="]
                }]}
            }),
        );
        let output = run_podman(&bed, engine, &["nvidia.com/gpu=0"], &bed.specs(), &["/bin/true"]);
        succeeded(engine, &output);
        let read = |name: &str| fs::read_to_string(place(name)).unwrap();
        let (here, elsewhere) = if engine.is_rootless() {
            ("user", "root")
        } else {
            ("root", "user")
        };
        let line = read(here);
        assert!(
            line.contains(r#""text":"--shine: unknown option, ignored""#),
            "{engine:?}: {line}"
        );
        assert!(
            line.contains(r#""hook":"prepare""#) && !line.contains(r#""container":"""#),
            "{engine:?}: {line}"
        );
        assert_eq!(read(elsewhere), "", "{engine:?}");
    }
}
