//! `hook prepare` on images with a real loader: a program in them finds the driver's libraries by name.

mod back_ends;
mod foreign;
mod odd_roots;
#[cfg(target_arch = "x86_64")]
mod one_directory;
mod other_machine;
mod other_parts;
mod sockets;
mod two_word_sizes;
mod unreachable;

use crate::support::{glibc_image, old_kernel, rights, scene, skip};
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
        "set -e; cd {root}; {before}\n{hook} hook {arguments} --state-dir {state_dir} < {state}\nexec chroot {root} {then}",
        root = scene.image("/").display(),
        hook = env!("CARGO_BIN_EXE_tranche-oci"),
        arguments = quoted.join(" "),
        state_dir = scene.state_dir().display(),
        state = scene.at("state.json").display(),
    );
    in_own_mounts(&script)
}

/// Runs a shell script in a mount namespace of its own.
fn in_own_mounts(script: &str) -> Ended {
    let mut command = Command::new("unshare");
    command
        .args(["-m", "--propagation", "private", "sh", "-c", script])
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
            // What the image had in its cache stays; without one, its own directories beyond the default were never
            // searched.
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
        let cache = tranche_core::ldcache::read(&bytes).unwrap();
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
