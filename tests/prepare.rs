//! `hook prepare` on images with a real loader: a program in them finds the driver's libraries by name.

// What tests share is test code too, though the lints do not see it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic, and says what it does"
)]

#[path = "support/glibc_image.rs"]
mod glibc_image;
#[path = "support/scene.rs"]
mod scene;
#[path = "support/skip.rs"]
mod skip;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use glibc_image::{DRIVER, LIBDIR, in_root, library, links};
use scene::{Ended, Scene, run};
use serde_json::{Value, json};

/// Arguments of the hook for these directories and the driver's links in the first.
fn arguments(directories: &[&str]) -> Vec<String> {
    let mut arguments = vec!["prepare".to_owned(), format!("--driver-version={DRIVER}")];
    for link in links(directories[0]) {
        arguments.push(format!("--link={link}"));
    }
    for directory in directories {
        arguments.push(format!("--ldcache-dir={directory}"));
    }
    arguments
}

/// Runs `before`, the hook, and `then` in the image's root, as a shell's words, in a mount namespace of their own. The
/// rest of what is written is what the program `then` wrote.
fn hook(scene: &Scene, before: &str, arguments: &[String], then: &str) -> Ended {
    fs::write(scene.at("state.json"), scene.state()).unwrap();
    let quoted: Vec<String> = arguments.iter().map(|a| format!("'{a}'")).collect();
    let script = format!(
        "set -e; cd {root}; {before}\n{hook} hook {arguments} < {state}\nexec chroot {root} {then}",
        root = scene.image("/").display(),
        hook = env!("CARGO_BIN_EXE_tranche-oci"),
        arguments = quoted.join(" "),
        state = scene.at("state.json").display(),
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", &script])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    run(command, b"")
}

/// Success without a word, and what the program wrote.
fn said(ended: Ended) -> String {
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{}", ended.stdout);
    ended.stdout
}

/// Panics with the paths that differ: what is in them is long.
fn same(now: &BTreeMap<PathBuf, String>, then: &BTreeMap<PathBuf, String>) {
    let names = now.keys().chain(then.keys());
    let differ: BTreeSet<_> = names.filter(|name| now.get(*name) != then.get(*name)).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

/// A scene with a glibc image, unless this machine has none.
fn glibc(test: &str) -> Option<Scene> {
    if let Some(reason) = glibc_image::missing() {
        skip::not_run(&format!("prepare::{test}"), &reason);
        return None;
    }
    let scene = Scene::new();
    glibc_image::glibc(&scene.image("/"));
    Some(scene)
}

const OPEN: &str = "/bin/open libcuda.so.1 libcuda.so libnvidia-ml.so.1";
const FOUND: &str = "libcuda.so.1 580\nlibcuda.so 580\nlibnvidia-ml.so.1 580\n";

fn ldconfig(scene: &Scene) {
    let output = Command::new("chroot")
        .arg(scene.image("/"))
        .arg("/sbin/ldconfig")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_program_finds_the_driver_by_name() {
    // In the distribution's own directory, in one that it searches by default, and in one that it has never heard of;
    // with a cache and without.
    for directory in [LIBDIR, "/usr/lib64", "/opt/driver/lib"] {
        for cached in [true, false] {
            let Some(scene) = glibc("a_program_finds_the_driver_by_name") else {
                return;
            };
            library(&scene.image("/usr/local/lib/libown.so.1"), "libown.so.1", 7);
            if cached {
                ldconfig(&scene);
            }
            glibc_image::driver(&scene.image(directory));
            let open = format!("{OPEN} libnvidia-eglcore.so.{DRIVER} libc.so.6 libown.so.1");
            let before = said(run_open(&scene, &open));
            assert!(before.starts_with("libcuda.so.1 none\n"), "{before}");
            let after = said(hook(&scene, "", &arguments(&[directory]), &open));
            // What the image had in its cache stays; without one, its own directories beyond the default were never searched.
            let own = if cached {
                "libown.so.1 7\n"
            } else {
                "libown.so.1 none\n"
            };
            let rest = format!("libnvidia-eglcore.so.{DRIVER} 580\nlibc.so.6 none\n{own}");
            assert_eq!(after, format!("{FOUND}{rest}"), "{directory} {cached}");

            let inside = scene.inside();
            assert_eq!(said(hook(&scene, "", &arguments(&[directory]), &open)), after);
            same(&scene.inside(), &inside);

            // An ldconfig that someone runs later keeps the driver.
            ldconfig(&scene);
            let again = said(run_open(&scene, OPEN));
            assert_eq!(again, FOUND, "{directory} {cached}");
        }
    }
}

fn run_open(scene: &Scene, open: &str) -> Ended {
    let mut command = Command::new("chroot");
    command
        .arg(scene.image("/"))
        .args(open.split(' '))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin");
    run(command, b"")
}

#[test]
fn ldconfig_reads_the_cache_and_would_have_made_the_same() {
    let Some(scene) = glibc("ldconfig_reads_the_cache_and_would_have_made_the_same") else {
        return;
    };
    ldconfig(&scene);
    glibc_image::driver(&scene.image("/opt/driver"));
    let print = |scene: &Scene| {
        let output = Command::new("chroot")
            .arg(scene.image("/"))
            .args(["/sbin/ldconfig", "-p"])
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter(|line| !line.starts_with("Cache generated by:"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    said(hook(&scene, "", &arguments(&["/opt/driver"]), "/bin/open"));
    let ours = print(&scene);
    ldconfig(&scene);
    assert_eq!(ours, print(&scene));
    assert!(ours.iter().any(|line| line.contains("libcuda.so.1 ")), "{ours:?}");
}

#[test]
fn ldconfig_would_have_made_the_same_of_what_an_engine_mounts() {
    let Some(scene) = glibc("ldconfig_would_have_made_the_same_of_what_an_engine_mounts") else {
        return;
    };
    ldconfig(&scene);
    let (mounts, before) = mounted_driver(&scene);
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": mounts}));
    let print = |before: &str, arguments: &[String]| {
        let text = said(hook(&scene, before, arguments, "/sbin/ldconfig -p"));
        let lines = text.lines().filter(|line| !line.starts_with("Cache generated by:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let ours = print(&before, &arguments(&[LIBDIR]));
    assert!(ours.iter().any(|line| line.contains("libcuda.so ")), "{ours:?}");
    // The links are there by now: as another's hooks, which make them first and have one verb for each.
    ldconfig(&scene);
    let theirs = print(&before, &words(&["update-ldcache", "--folder", LIBDIR]));
    assert_eq!(theirs, ours);
    let real = format!("{before} chroot . /sbin/ldconfig;");
    let nothing = words(&["chmod", "--mode", "755", "--path", "/etc"]);
    assert_eq!(print(&real, &nothing), ours);
}

/// The driver's files below the scene, as config.json has them mounted, and the shell's words that mount them.
fn mounted_driver(scene: &Scene) -> (Vec<Value>, String) {
    glibc_image::driver(&scene.at("driver"));
    let (mut mounts, mut before) = (Vec::new(), String::new());
    for entry in fs::read_dir(scene.at("driver")).unwrap() {
        let path = entry.unwrap().path();
        let at = format!("{LIBDIR}/{}", path.file_name().unwrap().to_str().unwrap());
        fs::write(scene.image(&at), "").unwrap();
        before += &format!("mount --bind {} {};", path.display(), scene.image(&at).display());
        mounts.push(json!({"destination": at, "type": "bind", "options": ["bind", "ro"]}));
    }
    (mounts, before)
}

#[test]
fn the_driver_goes_before_what_the_image_brought() {
    let Some(scene) = glibc("the_driver_goes_before_what_the_image_brought") else {
        return;
    };
    library(&scene.image("/usr/local/lib/libcuda.so.1"), "libcuda.so.1", 1);
    glibc_image::old_links(&scene.image(LIBDIR));
    ldconfig(&scene);
    let (mounts, before) = mounted_driver(&scene);
    for read_only in [true, false] {
        scene.configure(json!({"root": {"path": "rootfs", "readonly": read_only}, "mounts": mounts}));
        let inside = scene.inside();
        let ended = hook(&scene, &before, &arguments(&[LIBDIR]), OPEN);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, FOUND), "{}", ended.stderr);
        if read_only {
            same(&scene.inside(), &inside);
            assert_eq!(
                ended.stderr,
                "tranche-oci: hook prepare: root: is read-only: 3 links not made\n"
            );
        }
    }
}

#[test]
fn on_a_read_only_root_nothing_changes_and_the_driver_is_found() {
    for writable_still in [true, false] {
        let Some(scene) = glibc("on_a_read_only_root_nothing_changes_and_the_driver_is_found") else {
            return;
        };
        ldconfig(&scene);
        fs::create_dir_all(scene.image("/etc/nvidia")).unwrap();
        glibc_image::driver(&scene.image("/opt/driver"));
        scene.configure(json!({
            "root": {"path": "rootfs", "readonly": true},
            "linux": {"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}]}
        }));
        let (inside, outside) = (scene.inside(), {
            fs::write(scene.at("state.json"), scene.state()).unwrap();
            scene.outside()
        });
        let root = scene.image("/");
        // runc makes the root read-only after the hooks, crun before them.
        let before = match writable_still {
            true => String::new(),
            false => format!(
                "mount --bind {0} {0}; mount -o remount,bind,ro {0}; cd {0};",
                root.display()
            ),
        };
        let ended = hook(&scene, &before, &arguments(&["/opt/driver"]), OPEN);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, FOUND), "{}", ended.stderr);
        assert_eq!(
            ended.stderr,
            "tranche-oci: hook prepare: root: is read-only: 3 links not made\n\
             tranche-oci: hook prepare: application profile: not written: the root is read-only\n"
        );
        same(&scene.inside(), &inside);
        let mut now = scene.outside();
        now.retain(|path, _| !path.ends_with("state.json"));
        let mut then = outside;
        then.retain(|path, _| !path.ends_with("state.json"));
        same(&now, &then);
    }
}

#[test]
fn what_is_laid_over_the_image_has_the_containers_label() {
    let Some(scene) = glibc("what_is_laid_over_the_image_has_the_containers_label") else {
        return;
    };
    ldconfig(&scene);
    glibc_image::driver(&scene.image("/opt/driver"));
    let inside = scene.inside();
    // One that no kernel takes, whether it knows of labels or not: that it is refused shows that it got there.
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}, "linux": {"mountLabel": "no label"}}));
    let ended = hook(
        &scene,
        "",
        &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
        "/bin/open",
    );
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            0,
            "tranche-oci: hook prepare: /etc/ld.so.cache: cannot lay another over it on a read-only root: Invalid argument \
             (os error 22); set LD_LIBRARY_PATH=/opt/driver in the container\n"
        )
    );
    same(&scene.inside(), &inside);
}

#[test]
fn without_a_cache_a_read_only_root_is_told_what_to_set() {
    let Some(scene) = glibc("without_a_cache_a_read_only_root_is_told_what_to_set") else {
        return;
    };
    glibc_image::driver(&scene.image("/opt/driver"));
    scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
    let inside = scene.inside();
    let ended = hook(
        &scene,
        "",
        &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
        "/bin/open libcuda.so.1",
    );
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended.stderr,
        "tranche-oci: hook prepare: /etc/ld.so.cache: not there, and the root is read-only; \
         set LD_LIBRARY_PATH=/opt/driver in the container\n"
    );
    same(&scene.inside(), &inside);
}

/// What stands in the place of /etc/ld.so.cache, or around it.
#[test]
fn odd_roots() {
    let table: [(&str, &str); 10] = [
        (
            "an absolute link",
            "mv etc/ld.so.cache etc/real; ln -s /etc/real etc/ld.so.cache",
        ),
        (
            "a relative link",
            "mkdir -p var; mv etc/ld.so.cache var/c; ln -s ../var/c etc/ld.so.cache",
        ),
        (
            "a link to nowhere",
            "rm etc/ld.so.cache; ln -s /var/none etc/ld.so.cache",
        ),
        (
            "a link out of the root",
            "rm etc/ld.so.cache; ln -s ../../../../../../../etc/passwd etc/ld.so.cache",
        ),
        ("a loop", "rm etc/ld.so.cache; ln -s ld.so.cache etc/ld.so.cache"),
        (
            "a mount of its own",
            "cp etc/ld.so.cache tmp/c; mount --bind tmp/c etc/ld.so.cache",
        ),
        (
            "another file system",
            "mkdir tmp/e; cp -a etc/. tmp/e; mount -t tmpfs tmpfs etc; cp -a tmp/e/. etc",
        ),
        ("a read-only /etc", "mount --bind etc etc; mount -o remount,bind,ro etc"),
        (
            "merged directories",
            "mv lib/x86_64-linux-gnu/* usr/lib/x86_64-linux-gnu; rm -r lib; ln -s usr/lib lib",
        ),
        (
            "no loader's cache that makes sense",
            "head -c 100 etc/ld.so.cache > tmp/c; mv tmp/c etc/ld.so.cache",
        ),
    ];
    for (what, before) in table {
        let Some(scene) = glibc("odd_roots") else { return };
        ldconfig(&scene);
        glibc_image::driver(&scene.image("/opt/driver"));
        let ended = hook(&scene, &format!("{before};"), &arguments(&["/opt/driver"]), OPEN);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, FOUND),
            "{what}: {}",
            ended.stderr
        );
        let lines = ended.stderr.lines().count();
        assert_eq!(
            lines,
            usize::from(what.starts_with("no loader")),
            "{what}: {}",
            ended.stderr
        );
    }
}

#[test]
fn a_directory_in_place_of_the_cache_is_an_error_and_stays() {
    let Some(scene) = glibc("a_directory_in_place_of_the_cache_is_an_error_and_stays") else {
        return;
    };
    fs::create_dir(scene.image("/etc/ld.so.cache")).unwrap();
    glibc_image::driver(&scene.image("/opt/driver"));
    let inside = scene.inside();
    let ended = hook(
        &scene,
        "",
        &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
        "/bin/open",
    );
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .starts_with("tranche-oci: hook prepare: /etc/ld.so.cache: cannot replace: ")
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    same(&scene.inside(), &inside);
}

#[test]
fn a_full_disk_below_etc_is_covered_and_not_written() {
    let Some(scene) = glibc("a_full_disk_below_etc_is_covered_and_not_written") else {
        return;
    };
    ldconfig(&scene);
    glibc_image::driver(&scene.image("/opt/driver"));
    let before = "mkdir tmp/e; cp -a etc/. tmp/e; mount -t tmpfs -o size=64k tmpfs etc; cp -a tmp/e/. etc; \
                  cat /dev/zero > etc/full 2>/dev/null || true;";
    let ended = hook(
        &scene,
        before,
        &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
        "/bin/open",
    );
    // The program finds the driver: through a cache that is laid over the one on the full disk.
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn on_a_full_disk_the_start_fails_and_the_cache_is_as_it_was() {
    let Some(scene) = glibc("on_a_full_disk_the_start_fails_and_the_cache_is_as_it_was") else {
        return;
    };
    ldconfig(&scene);
    glibc_image::driver(&scene.image("/opt/driver"));
    let image = scene.at("image");
    fs::rename(scene.image("/"), &image).unwrap();
    fs::create_dir(scene.image("/")).unwrap();
    let seen = scene.at("seen");
    // The image on a file system of its own, with no room for a second cache; what is there afterwards is copied away.
    let before = format!(
        "mount -t tmpfs -o size=64m none {root}; cp -a {image}/. {root}; cd {root}; cat /dev/zero > fill 2> {seen} || true; \
         trap 'cat etc/ld.so.cache > {seen}; ls -A etc >> {seen}' EXIT;",
        root = scene.image("/").display(),
        image = image.display(),
        seen = seen.display(),
    );
    let ended = hook(
        &scene,
        &before,
        &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
        "/bin/open",
    );
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .starts_with("tranche-oci: hook prepare: /etc/ld.so.cache: cannot replace: No space left"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    let mut expected = fs::read(image.join("etc/ld.so.cache")).unwrap();
    let mut names: Vec<_> = fs::read_dir(image.join("etc"))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    for name in names {
        expected.extend_from_slice(name.as_encoded_bytes());
        expected.push(b'\n');
    }
    assert!(
        fs::read(&seen).unwrap() == expected,
        "another cache, or other files in /etc"
    );
}

#[test]
fn compatibility_libraries_of_the_image_go_first_when_they_fit() {
    let note = r#"__asm__(".section .note.cuda.fwd_compatibility,\"a\",@note\n.long 19,2f-1f,1\n.asciz \"NVIDIA Corporation\"\n.balign 4\n1: .asciz \"{\\\"format\\\":1,\\\"CUDA version\\\":\\\"13.1\\\",\\\"driver\\\":[BRANCH]}\"\n2: .balign 4\n.previous");"#;
    for (version, branch, expected) in [
        ("590.44.01", Some("580"), 590),
        ("590.44.01", Some("570"), 580),
        ("590.44.01", None, 590),
        ("575.57.08", None, 580),
        ("575.57.08", Some("580"), 580),
    ] {
        let Some(scene) = glibc("compatibility_libraries_of_the_image_go_first_when_they_fit") else {
            return;
        };
        ldconfig(&scene);
        let compat = scene.image("/usr/local/cuda-13.1/compat");
        let more = branch.map(|branch| note.replace("BRANCH", branch)).unwrap_or_default();
        let answer = version[..3].parse().unwrap();
        glibc_image::library_with(
            &compat.join(format!("libcuda.so.{version}")),
            "libcuda.so.1",
            answer,
            &more,
        );
        symlink(format!("libcuda.so.{version}"), compat.join("libcuda.so.1")).unwrap();
        symlink("cuda-13.1", scene.image("/usr/local/cuda")).unwrap();
        glibc_image::driver(&scene.image("/opt/driver"));
        let prepared = said(hook(&scene, "", &arguments(&["/opt/driver"]), "/bin/open libcuda.so.1"));
        assert_eq!(prepared, format!("libcuda.so.1 {expected}\n"), "{version} {branch:?}");
        // The image's ldconfig comes to the same.
        ldconfig(&scene);
        assert_eq!(
            said(run_open(&scene, "/bin/open libcuda.so.1")),
            prepared,
            "{version} {branch:?}"
        );

        // The same by NVIDIA's separate hooks, one after the other.
        let enable = vec!["enable-cuda-compat".into(), format!("--host-driver-version={DRIVER}")];
        said(hook(&scene, "", &enable, "/bin/open"));
        let update = vec![
            "update-ldcache".into(),
            "--folder".into(),
            "/opt/driver".into(),
            "--ldconfig-path".into(),
            "/x".into(),
        ];
        assert_eq!(
            said(hook(&scene, "", &update, "/bin/open libcuda.so.1")),
            prepared,
            "{version} {branch:?}"
        );
    }
}

#[test]
fn a_musl_image_gets_the_directory_in_its_path_file() {
    let scene = Scene::new();
    if let Some(reason) = glibc_image::missing().or_else(|| glibc_image::musl(&scene.image("/")).err()) {
        skip::not_run("prepare::a_musl_image_gets_the_directory_in_its_path_file", &reason);
        return;
    }
    glibc_image::driver(&scene.image("/opt/driver"));
    assert_eq!(said(run_open(&scene, "/bin/open libcuda.so.1")), "libcuda.so.1 none\n");
    for _ in 0..2 {
        assert_eq!(said(hook(&scene, "", &arguments(&["/opt/driver"]), OPEN)), FOUND);
        assert_eq!(
            fs::read_to_string(scene.image("/etc/ld-musl-x86_64.path")).unwrap(),
            "/lib\n/usr/local/lib\n/usr/lib\n/opt/driver\n"
        );
    }
    assert!(!scene.image("/etc/ld.so.cache").exists());
}

#[test]
fn an_image_without_a_loader_stays_as_it_is() {
    let scene = Scene::new();
    fs::create_dir_all(scene.image("/etc")).unwrap();
    fs::create_dir_all(in_root(&scene.image("/"), LIBDIR)).unwrap();
    let inside = scene.inside();
    scene
        .prepare(&["--ldcache-dir", LIBDIR, "--driver-version", DRIVER])
        .silent();
    same(&scene.inside(), &inside);
}

#[test]
fn a_directory_that_is_not_there_is_a_line() {
    let scene = Scene::new();
    let ended = scene.prepare(&["--ldcache-dir", "/opt/none"]);
    assert_eq!(ended.code, 0);
    assert_eq!(
        ended.stderr,
        "tranche-oci: hook prepare: /opt/none: not in the container, left out\n"
    );
}

#[test]
fn a_driver_that_was_replaced_leaves_no_names_behind() {
    let Some(scene) = glibc("a_driver_that_was_replaced_leaves_no_names_behind") else {
        return;
    };
    ldconfig(&scene);
    let directory = format!("--ldcache-dir={LIBDIR}");
    for version in ["550.1.1", "560.1.1", "570.1.1"] {
        let name = format!("libnvidia-eglcore.so.{version}");
        let at = format!("{LIBDIR}/{name}");
        // As an engine has it: the driver's file is mounted on an empty one, which stays.
        library(&scene.at(&name), &name, 1);
        fs::write(scene.image(&at), "").unwrap();
        scene.configure(json!({
            "root": {"path": "rootfs"},
            "mounts": [{"destination": at, "type": "bind", "options": ["bind", "ro"]}],
        }));
        let before = format!(
            "mount --bind {} {}",
            scene.at(&name).display(),
            scene.image(&at).display()
        );
        said(hook(
            &scene,
            &before,
            &["prepare".into(), directory.clone()],
            "/bin/open",
        ));
        let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
        let cache = tranche::ldcache::read(&bytes).unwrap();
        let names: Vec<_> = cache
            .entries
            .iter()
            .map(|entry| entry.soname.to_string_lossy())
            .collect();
        let of_drivers: Vec<_> = names.iter().filter(|name| name.contains("eglcore")).collect();
        assert_eq!(of_drivers, [&name]);
        assert!(names.iter().any(|name| name == "libc.so.6"), "{names:?}");
    }
}

#[test]
fn params_are_covered_and_the_profile_shows_the_gpus() {
    let Some(scene) = glibc("params_are_covered_and_the_profile_shows_the_gpus") else {
        return;
    };
    let params = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n";
    fs::create_dir_all(scene.image("/proc/driver/nvidia")).unwrap();
    fs::write(scene.image("/proc/driver/nvidia/params"), params).unwrap();
    fs::copy("/bin/busybox", scene.image("/bin/cat")).unwrap();
    let config = |read_only: bool| -> Value {
        json!({
            "root": {"path": "rootfs", "readonly": read_only},
            "mounts": [{"destination": "/dev/nvidia2", "options": ["bind"]}],
            "linux": {"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
        })
    };
    scene.configure(config(false));
    let cat = "/bin/cat /proc/driver/nvidia/params";
    let shown = said(hook(&scene, "", &["prepare".into()], cat));
    assert_eq!(shown, params.replace("Files: 1", "Files: 0"));
    assert_eq!(
        fs::read_to_string(scene.image("/proc/driver/nvidia/params")).unwrap(),
        params
    );
    let profile = scene.image("/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf");
    assert!(
        fs::read_to_string(&profile)
            .unwrap()
            .contains("\"EGLVisibleDGPUDevices\",0x5]")
    );
    assert_eq!(fs::metadata(&profile).unwrap().permissions().mode() & 0o7777, 0o444);
    let inside = scene.inside();
    said(hook(&scene, "", &["prepare".into()], cat));
    same(&scene.inside(), &inside);

    fs::remove_file(&profile).unwrap();
    let skipped = [
        "prepare",
        "--skip=disable-device-node-modification",
        "--skip=update-application-profile",
    ]
    .map(String::from);
    assert_eq!(said(hook(&scene, "", &skipped, cat)), params);
    assert!(!profile.exists());
    // And each by its own verb.
    assert_eq!(
        said(hook(&scene, "", &["disable-device-node-modification".into()], cat)),
        params.replace("Files: 1", "Files: 0")
    );
    assert!(!profile.exists());
    said(hook(&scene, "", &["update-application-profile".into()], "/bin/open"));
    assert!(profile.exists());
}

#[test]
fn nothing_can_be_had_back_that_was_given_up() {
    let scene = Scene::new();
    // A FIFO for a state: the hook waits in its reading, and can be looked at.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tranche-oci"))
        .args(["hook", "prepare"])
        .stdin(std::process::Stdio::piped())
        .env_clear()
        .spawn()
        .unwrap();
    let status = Path::new("/proc").join(child.id().to_string()).join("status");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let field = |name: &str| {
        let text = fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    // CAP_DAC_OVERRIDE 1, CAP_FOWNER 3, CAP_SYS_ADMIN 21.
    let needed = 1_u64 << 1 | 1 << 3 | 1 << 21;
    let hex = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
    while hex("CapPrm:") & !needed != 0 && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(hex("CapPrm:") & !needed, 0);
    assert_eq!(hex("CapEff:") & !needed, 0);
    assert_eq!(hex("CapInh:"), 0);
    assert_eq!(hex("CapAmb:"), 0);
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Umask:"), "0022");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    drop(scene);
}
