//! Under real engines, a program of a glibc image finds the driver by name: with our one hook, and with the hooks that
//! NVIDIA's generator writes, their path pointed at ours.

use crate::support::{engines, glibc_image, scene, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use engines::{Bed, Engine, run_podman_in};
use glibc_image::{DRIVER, LIBDIR, in_root, links};
use serde_json::{Value, json};

const OPEN: [&str; 4] = ["/bin/open", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"];
const FOUND: &str = "libcuda.so.1 580\nlibcuda.so 580\nlibnvidia-ml.so.1 580\n";
const ENGINES: [Engine; 4] = Engine::ALL;

fn each_engine(name: &str, engines: &[Engine], test: impl Fn(&Bed, Engine)) {
    for engine in engines {
        match engine.missing().or_else(glibc_image::missing) {
            Some(reason) => skip::not_run(&format!("loader_engines::{name} {engine:?}"), &reason),
            None => test(&Bed::new(), *engine),
        }
    }
}

/// A glibc image with a cache of its own, and an older libcuda that it brought.
fn image(bed: &Bed, engine: Engine) -> PathBuf {
    let root = bed.image(engine);
    glibc_image::glibc(&root);
    glibc_image::library(&in_root(&root, "/usr/local/lib/libcuda.so.1"), "libcuda.so.1", 1);
    fs::create_dir_all(root.join("sys")).unwrap();
    assert!(
        Command::new("chroot")
            .arg(&root)
            .arg("/sbin/ldconfig")
            .status()
            .unwrap()
            .success()
    );
    if engine.is_rootless() {
        engines::own(&root);
    }
    root
}

/// A spec that mounts the driver's libraries and has these hooks: each the words after the program's path.
fn write_spec(bed: &Bed, engine: Engine, hooks: &[Vec<String>]) {
    let driver = bed.at("driver");
    glibc_image::driver(&driver);
    let mounts: Vec<Value> = fs::read_dir(&driver)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let at = format!("{LIBDIR}/{}", path.file_name().unwrap().to_str().unwrap());
            json!({"hostPath": path, "containerPath": at, "options": ["ro", "nosuid", "nodev", "bind"]})
        })
        .collect();
    let hooks: Vec<Value> = hooks
        .iter()
        .map(|args| json!({"hookName": "createContainer", "path": bed.hook(), "args": args, "env": ["NVIDIA_CTK_DEBUG=false"]}))
        .collect();
    let node = if engine.is_rootless() { "/dev/zero" } else { "/dev/null" };
    bed.spec(
        "nvidia.json",
        &json!({
            "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
            "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": node}]}}],
            "containerEdits": {"mounts": mounts, "hooks": hooks}
        }),
    );
}

fn prepare() -> Vec<Vec<String>> {
    let mut args = words("tranche-oci hook prepare");
    for link in links(LIBDIR) {
        args.extend(["--link".to_owned(), link]);
    }
    args.extend(words(&format!("--ldcache-dir {LIBDIR} --driver-version {DRIVER}")));
    vec![args]
}

/// The argument lists of NVIDIA's generator (nvidia-container-toolkit 1.18).
fn of_nvidia(program: &str) -> Vec<Vec<String>> {
    let mut symlinks = words(&format!("{program} create-symlinks"));
    for link in links(LIBDIR) {
        symlinks.extend(["--link".to_owned(), link]);
    }
    vec![
        symlinks,
        words(&format!("{program} enable-cuda-compat --host-driver-version={DRIVER}")),
        words(&format!(
            "{program} update-ldcache --folder {LIBDIR} --ldconfig-path /sbin/ldconfig"
        )),
        words(&format!("{program} disable-device-node-modification")),
        words(&format!("{program} update-application-profile")),
        words(&format!("{program} chmod --mode 755 --path /dev")),
        words(&format!("{program} made-in-the-future --with arguments")),
    ]
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn starts(bed: &Bed, engine: Engine, image: &Path, options: &[&str]) {
    let run = || run_podman_in(bed, engine, image, &["nvidia.com/gpu=0"], &bed.specs(), options, &OPEN);
    let mut output = run();
    // On a busy machine podman sometimes attaches to a container that ends at once too late, and prints nothing of what
    // it wrote. A program that does not find the driver writes as many lines.
    for _ in 0..2 {
        if output.status.success() && output.stdout.is_empty() {
            output = run();
        }
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{engine:?} {options:?}: {said}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        FOUND,
        "{engine:?} {options:?}: {said}"
    );
}

#[test]
fn a_program_finds_the_driver() {
    each_engine("a_program_finds_the_driver", &ENGINES, |bed, engine| {
        write_spec(bed, engine, &prepare());
        let image = image(bed, engine);
        starts(bed, engine, &image, &[]);
        let inside = scene::snapshot(&image, &|_| true);
        starts(bed, engine, &image, &[]);
        assert!(
            scene::snapshot(&image, &|_| true) == inside,
            "{engine:?}: a second start changed the root"
        );
    });
}

#[test]
fn the_hooks_of_a_spec_by_nvidia() {
    for program in ["nvidia-cdi-hook", "nvidia-ctk hook"] {
        each_engine("the_hooks_of_a_spec_by_nvidia", &ENGINES, |bed, engine| {
            write_spec(bed, engine, &of_nvidia(program));
            let image = image(bed, engine);
            starts(bed, engine, &image, &[]);
            starts(bed, engine, &image, &[]);
        });
    }
}

#[test]
fn a_read_only_container_leaves_the_root_as_it_was() {
    each_engine(
        "a_read_only_container_leaves_the_root_as_it_was",
        &ENGINES,
        |bed, engine| {
            for hooks in [prepare(), of_nvidia("nvidia-cdi-hook")] {
                let _ = fs::remove_dir_all(bed.at("driver"));
                write_spec(bed, engine, &hooks);
                let image = image(bed, engine);
                // An engine makes the places of its mounts, which is not our work: they are there already.
                for file in fs::read_dir(bed.at("driver")).unwrap() {
                    fs::write(in_root(&image, LIBDIR).join(file.unwrap().file_name()), "").unwrap();
                }
                for file in [
                    "etc/hosts",
                    "etc/hostname",
                    "etc/resolv.conf",
                    "run/.containerenv",
                    "etc/mtab",
                ] {
                    let _ = fs::write(image.join(file), "");
                }
                for directory in ["dev/pts", "dev/shm", "dev/mqueue", "var/tmp", "tmp"] {
                    fs::create_dir_all(image.join(directory)).unwrap();
                }
                if engine.is_rootless() {
                    engines::own(&image);
                }
                // Without a hook, to have what the engine itself changes.
                let nothing = run_podman_in(bed, engine, &image, &[], &bed.specs(), &["--read-only"], &["/bin/true"]);
                assert!(nothing.status.success(), "{}", String::from_utf8_lossy(&nothing.stderr));
                let inside = scene::snapshot(&image, &|_| true);
                if hooks.len() == 1 {
                    starts(bed, engine, &image, &["--read-only"]);
                } else {
                    // NVIDIA's hook for the cache is not told of the links, so there libraries are found by their
                    // SONAMEs alone.
                    let open = ["/bin/open", "libcuda.so.1", "libnvidia-ml.so.1"];
                    let device = ["nvidia.com/gpu=0"];
                    let output = run_podman_in(bed, engine, &image, &device, &bed.specs(), &["--read-only"], &open);
                    let said = String::from_utf8_lossy(&output.stdout);
                    let line = String::from_utf8_lossy(&output.stderr);
                    assert_eq!(said, "libcuda.so.1 580\nlibnvidia-ml.so.1 580\n", "{engine:?}: {line}");
                }
                let now = scene::snapshot(&image, &|_| true);
                let differ: Vec<_> = now
                    .iter()
                    .filter(|(path, text)| inside.get(*path) != Some(text))
                    .map(|(path, _)| path)
                    .collect();
                assert!(differ.is_empty() && now.len() == inside.len(), "{engine:?}: {differ:?}");
            }
        },
    );
}

/// A musl image with a path file works with `--read-only`: the file is covered.
#[test]
fn a_musl_image_with_a_path_file_finds_the_driver_on_a_read_only_root() {
    let test = "a_musl_image_with_a_path_file_finds_the_driver_on_a_read_only_root";
    each_engine(test, &ENGINES, |bed, engine| {
        write_spec(bed, engine, &prepare());
        let image = bed.image(engine);
        if let Err(reason) = glibc_image::musl(&image) {
            skip::not_run(&format!("loader_engines::{test}"), &reason);
            return;
        }
        fs::create_dir_all(in_root(&image, LIBDIR)).unwrap();
        fs::write(
            image.join("etc/ld-musl-x86_64.path"),
            "/lib\n/usr/local/lib\n/usr/lib\n",
        )
        .unwrap();
        if engine.is_rootless() {
            engines::own(&image);
        }
        let open = ["/bin/open", "libcuda.so.580.95.05"];
        let device = ["nvidia.com/gpu=0"];
        let output = run_podman_in(bed, engine, &image, &device, &bed.specs(), &["--read-only"], &open);
        let said = String::from_utf8_lossy(&output.stdout);
        let line = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "libcuda.so.580.95.05 580\n", "{engine:?}: {line}");
        let path = fs::read_to_string(image.join("etc/ld-musl-x86_64.path")).unwrap();
        assert_eq!(path, "/lib\n/usr/local/lib\n/usr/lib\n", "{engine:?}");
    });
}

/// podman as root keeps bundles below a directory of mode 0700, which the root of a user namespace may not enter. The
/// hook then works with the current directory and the list of mounts, and does not write to the root, because it cannot
/// know whether it may. (crun 1.8 cannot run a hook at all there.)
#[test]
fn a_container_in_a_user_namespace_of_roots_podman_finds_the_driver() {
    let test = "a_container_in_a_user_namespace_of_roots_podman_finds_the_driver";
    each_engine(test, &[Engine::PodmanRunc], |bed, engine| {
        write_spec(bed, engine, &prepare());
        let image = image(bed, engine);
        // Where the engine mounts something is made now, so that whatever else is new is the hook's.
        for directory in ["dev/pts", "dev/shm", "dev/mqueue", "run"] {
            fs::create_dir_all(image.join(directory)).unwrap();
        }
        for file in [
            "etc/hosts",
            "etc/hostname",
            "etc/resolv.conf",
            "etc/mtab",
            "run/.containerenv",
        ] {
            fs::write(image.join(file), "").unwrap();
        }
        for file in fs::read_dir(bed.at("driver")).unwrap() {
            fs::write(in_root(&image, LIBDIR).join(file.unwrap().file_name()), "").unwrap();
        }
        let owned = Command::new("chown").args(["-R", "100000:100000"]).arg(&image).status();
        assert!(owned.unwrap().success());
        let options = ["--uidmap=0:100000:65536", "--gidmap=0:100000:65536"];
        let inside = scene::snapshot(&image, &|_| true);
        starts(bed, engine, &image, &options);
        let now = scene::snapshot(&image, &|_| true);
        let differ: Vec<_> = now
            .iter()
            .filter(|(path, text)| inside.get(*path) != Some(text))
            .collect();
        assert!(differ.is_empty(), "{differ:?}");
    });
}

#[test]
fn a_limit_that_cannot_be_kept_keeps_the_container_from_starting() {
    each_engine(
        "a_limit_that_cannot_be_kept_keeps_the_container_from_starting",
        &[Engine::PodmanCrun, Engine::PodmanRunc],
        |bed, engine| {
            let hook = words("nvidia-cdi-hook apply-cuda-memory-limits --driver-root / --gpu-id GPU-1");
            write_spec(bed, engine, &[hook]);
            let image = image(bed, engine);
            let run = |options: &[&str]| {
                run_podman_in(
                    bed,
                    engine,
                    &image,
                    &["nvidia.com/gpu=0"],
                    &bed.specs(),
                    options,
                    &["/bin/true"],
                )
            };
            assert!(run(&[]).status.success());
            assert!(!run(&["--env=NVIDIA_GPU_MEMORY_LIMIT=1024"]).status.success());
        },
    );
}
