//! Files whose content the hook carries over, where the image gives their names to files that are not its own.

use std::os::unix::fs::{MetadataExt, chown};

use super::*;
use crate::support::stub_elf;

const MUSL: &str = "/etc/ld-musl-x86_64.path";
const MUSL_LOADER: &str = "/lib/ld-musl-x86_64.so.1";
/// What musl's path file says for an image without one, with the driver's directory.
const NEW: &str = "/lib\n/usr/local/lib\n/usr/lib\n/opt/driver\n";

/// An image with musl's loader by name, a driver directory, and busybox.
fn musl() -> Scene {
    let scene = Scene::new();
    for directory in ["bin", "etc", "lib", "opt/driver", "data", "proc", "sys", "tmp"] {
        scene.image_directory(directory);
    }
    fs::write(scene.image(MUSL_LOADER), "").unwrap();
    crate::support::programs::install("/bin/busybox", scene.image("/bin/true"));
    fs::write(scene.at("outside/secret"), "/of-the-host\n").unwrap();
    fs::set_permissions(scene.at("outside/secret"), PermissionsExt::from_mode(0o600)).unwrap();
    scene
}

fn prepare() -> Vec<String> {
    vec!["prepare".into(), "--ldcache-dir=/opt/driver".into()]
}

/// Shell words that make a volume, a /proc and a /sys in the image.
fn mounts(scene: &Scene) -> String {
    let volume = volume(scene);
    format!("{volume} mount -o remount,bind,ro data; mount -t proc proc proc; mount -t sysfs sysfs sys;")
}

/// Shell words that mount a directory of the host in the image.
fn volume(scene: &Scene) -> String {
    format!("mount --bind {} data;", scene.at("outside").display())
}

/// The image of [`musl`], whose root is read-only or not.
fn musl_with(read_only: bool) -> Scene {
    let scene = musl();
    scene.configure(json!({"root": {"path": "rootfs", "readonly": read_only}}));
    scene
}

#[test]
fn a_link_to_a_file_that_is_not_the_images_is_not_followed_for_its_content() {
    if !rights::can_mount("prepare::foreign::a_link_to_a_file_that_is_not_the_images_is_not_followed_for_its_content") {
        return;
    }
    for target in [
        "/data/secret",
        "/proc/self/mountinfo",
        "/proc/1/environ",
        "/proc/self/environ",
        "/proc/iomem",
        "/proc/timer_list",
        "/proc/kallsyms",
        "/sys/kernel/uevent_seqnum",
        "/sys/kernel/notes",
    ] {
        let scene = musl();
        scene.image_link(target, MUSL);
        let ended = hook(&scene, &mounts(&scene), &prepare(), "/bin/true");
        assert_eq!(ended.code, 0, "{target}: {}", ended.stderr);
        assert_eq!(fs::read_to_string(scene.image(MUSL)).unwrap(), NEW, "{target}");
        let file = fs::symlink_metadata(scene.image(MUSL)).unwrap();
        assert_eq!((file.is_file(), file.mode() & 0o7777), (true, 0o644), "{target}");
        assert!(
            ended
                .stderr
                .starts_with(&format!("tranche-oci: hook prepare: {MUSL}: its content is ignored: "))
                && ended.stderr.lines().count() == 1,
            "{target}: {}",
            ended.stderr
        );
    }
}

/// Before Linux 5.8 mounts are told apart by a number in /proc.
#[test]
fn mounts_are_told_apart_on_an_old_kernel() {
    if !rights::can_mount("prepare::foreign::mounts_are_told_apart_on_an_old_kernel") {
        return;
    }
    for (target, content, lines) in [("/data/secret", NEW, 1), ("/etc/own", "/lib\n/opt/driver\n", 0)] {
        let scene = musl();
        fs::write(scene.image("/etc/own"), "/lib\n").unwrap();
        scene.image_link(target, MUSL);
        let before = volume(&scene);
        let ended = std::thread::scope(|threads| {
            let old = || {
                old_kernel::lose_statx();
                hook(&scene, &before, &prepare(), "/bin/true")
            };
            threads.spawn(old).join().unwrap()
        });
        assert_eq!(
            (ended.code, ended.stderr.lines().count()),
            (0, lines),
            "{}",
            ended.stderr
        );
        assert_eq!(
            fs::read_to_string(scene.image(MUSL)).unwrap(),
            content,
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_file_with_another_name_is_not_the_images() {
    if !rights::can_mount("prepare::foreign::a_file_with_another_name_is_not_the_images") {
        return;
    }
    let scene = musl();
    fs::hard_link(scene.at("outside/secret"), scene.image(MUSL)).unwrap();
    let ended = hook(&scene, "", &prepare(), "/bin/true");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(fs::read_to_string(scene.image(MUSL)).unwrap(), NEW);
    assert_eq!(
        fs::read_to_string(scene.at("outside/secret")).unwrap(),
        "/of-the-host\n"
    );
    assert!(ended.stderr.contains("more than one name"), "{}", ended.stderr);
}

#[test]
fn a_file_that_is_bound_into_the_container_is_neither_read_nor_covered() {
    if !rights::can_mount("prepare::foreign::a_file_that_is_bound_into_the_container_is_neither_read_nor_covered") {
        return;
    }
    for read_only in [false, true] {
        let scene = musl_with(read_only);
        fs::write(scene.image(MUSL), "").unwrap();
        let before = format!(
            "mount --bind {} etc/ld-musl-x86_64.path;",
            scene.at("outside/secret").display()
        );
        crate::support::programs::install("/bin/busybox", scene.image("/bin/cat"));
        let ended = hook(&scene, &before, &prepare(), &format!("/bin/cat {MUSL} /proc/none"));
        // What the user bound there is still what the container sees, and it is the host's file, not a copy.
        assert_eq!(ended.stdout, "/of-the-host\n", "{}", ended.stderr);
        assert!(
            ended.stderr.contains("set LD_LIBRARY_PATH=/opt/driver"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_cache_of_the_host_does_not_become_the_containers() {
    if !rights::can_mount("prepare::foreign::a_cache_of_the_host_does_not_become_the_containers") {
        return;
    }
    let Some(scene) = glibc("a_cache_of_the_host_does_not_become_the_containers") else {
        return;
    };
    library(&scene.image("/usr/local/lib/libsecret.so.1"), "libsecret.so.1", 7);
    ldconfig(&scene);
    fs::rename(scene.image("/etc/ld.so.cache"), scene.at("outside/cache")).unwrap();
    glibc_image::driver(&scene.image("/opt/driver"));
    scene.image_directory("/data");
    scene.image_link("/data/cache", "/etc/ld.so.cache");
    let before = volume(&scene);
    let ended = hook(&scene, &before, &arguments(&["/opt/driver"]), OPEN);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, FOUND), "{}", ended.stderr);
    assert_eq!(
        ended.stderr,
        "tranche-oci: hook prepare: /etc/ld.so.cache: its content is ignored: it is not on the mount of the \
         container's root\n"
    );
    let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    assert!(
        !bytes.windows(9).any(|part| part == b"libsecret"),
        "of the host's cache"
    );
}

#[test]
fn configuration_of_the_host_does_not_decide_what_is_written() {
    if !rights::can_mount("prepare::foreign::configuration_of_the_host_does_not_decide_what_is_written") {
        return;
    }
    let Some(scene) = glibc("configuration_of_the_host_does_not_decide_what_is_written") else {
        return;
    };
    glibc_image::driver(&scene.image("/opt/driver"));
    fs::write(scene.at("outside/conf"), "/opt/driver\n").unwrap();
    scene.image_directory("/data");
    let _ = fs::remove_file(scene.image("/etc/ld.so.conf"));
    scene.image_link("/data/conf", "/etc/ld.so.conf");
    let before = volume(&scene);
    let ended = hook(&scene, &before, &arguments(&["/opt/driver"]), OPEN);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(
        fs::read_to_string(scene.image("/etc/ld.so.conf.d/00-tranche.conf")).unwrap(),
        "/opt/driver\n"
    );
    assert!(
        ended.stderr.contains("/etc/ld.so.conf: its content is ignored"),
        "{}",
        ended.stderr
    );
}

#[test]
fn mode_and_owner_of_a_file_stay_as_they_are() {
    if !rights::owns_machine("prepare::foreign::mode_and_owner_of_a_file_stay_as_they_are") {
        return;
    }
    for (mode, read_only) in [
        (0o600, false),
        (0o600, true),
        (0o640, false),
        (0o644, true),
        (0o4755, false),
    ] {
        let scene = musl_with(read_only);
        fs::write(scene.image(MUSL), "/lib\n").unwrap();
        chown(scene.image(MUSL), Some(5), Some(6)).unwrap();
        fs::set_permissions(scene.image(MUSL), PermissionsExt::from_mode(mode)).unwrap();
        crate::support::programs::install("/bin/busybox", scene.image("/bin/stat"));
        let ended = hook(&scene, "", &prepare(), &format!("/bin/stat -c %a:%u:%g:%s {MUSL}"));
        // A file that the hook writes has no setuid or setgid bit.
        let expected = format!("{:o}:5:6:17\n", mode & 0o777);
        assert_eq!(
            (ended.stdout, ended.stderr),
            (expected, String::new()),
            "{mode:o} {read_only}"
        );
    }
}

/// A library directory is a link to a directory of the host that the container's user may not list.
#[test]
fn names_and_libraries_of_a_volume_do_not_get_into_the_cache() {
    if !rights::can_mount("prepare::foreign::names_and_libraries_of_a_volume_do_not_get_into_the_cache") {
        return;
    }
    for link in ["/opt/driver", "/opt/driver/libsecret.so"] {
        let Some(scene) = glibc("names_and_libraries_of_a_volume_do_not_get_into_the_cache") else {
            return;
        };
        library(&scene.at("outside/private/libsecret.so.1"), "libsecret.so.1", 7);
        fs::set_permissions(scene.at("outside/private"), PermissionsExt::from_mode(0o700)).unwrap();
        scene.image_directory("/data");
        if link == "/opt/driver" {
            scene.image_link("/data/private", link);
        } else {
            glibc_image::driver(&scene.image("/opt/driver"));
            scene.image_link("/data/private/libsecret.so.1", link);
        }
        let before = volume(&scene);
        let ended = hook(
            &scene,
            &before,
            &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
            "/bin/open",
        );
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap_or_default();
        assert!(
            !bytes.windows(11).any(|part| part == b"libsecret.s"),
            "{link}: {}",
            ended.stderr
        );
    }
}

/// `--read-only -v DIR:/data:rshared`: what is mounted below the volume would be mounted on the host too.
#[test]
fn nothing_is_mounted_on_the_host_through_a_shared_volume() {
    if !rights::can_mount("prepare::foreign::nothing_is_mounted_on_the_host_through_a_shared_volume") {
        return;
    }
    let scene = musl_with(true);
    fs::write(scene.at("outside/path"), "/lib\n").unwrap();
    scene.image_link("/data/path", MUSL);
    let before = format!("mount --rbind {} data;", scene.at("outside").display());
    let (after, ended) = with_a_host(&scene, "outside", &before);
    assert_eq!(after, "", "on the host: {}", ended.stderr);
    assert!(
        ended.stderr.contains("set LD_LIBRARY_PATH=/opt/driver"),
        "{}",
        ended.stderr
    );
}

/// With a shared volume podman keeps the container's root a peer of the host's mount of it.
#[test]
fn nothing_is_mounted_on_the_host_where_the_root_is_shared() {
    if !rights::can_mount("prepare::foreign::nothing_is_mounted_on_the_host_where_the_root_is_shared") {
        return;
    }
    let scene = musl_with(true);
    fs::write(scene.image(MUSL), "/lib\n").unwrap();
    let (after, ended) = with_a_host(&scene, "bundle/rootfs", "");
    assert_eq!(after, "", "on the host: {}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("cannot be covered on a read-only root: its mount is shared with the host"),
        "{}",
        ended.stderr
    );
}

/// Runs the hook in a mount namespace below another, which stands for the host and shares the mount `shared` with it.
/// Gives what is new among the host's mounts afterwards.
fn with_a_host(scene: &Scene, shared: &str, before: &str) -> (String, Ended) {
    fs::write(scene.at("state.json"), scene.state()).unwrap();
    let arguments = prepare().join(" ");
    let script = format!(
        "set -e; mount --bind {shared} {shared}; mount --make-shared {shared}
         cat /proc/self/mountinfo > {top}/before
         unshare -m --propagation unchanged sh -ec 'cd {root}; {before} exec {hook} hook {arguments} --state-dir {state_dir} < {top}/state.json'
         grep -vxFf {top}/before /proc/self/mountinfo || true",
        shared = scene.at(shared).display(),
        root = scene.image("/").display(),
        top = scene.at("").display(),
        state_dir = scene.state_dir().display(),
        hook = env!("CARGO_BIN_EXE_tranche-oci"),
    );
    let ended = in_own_mounts(&script);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    (ended.stdout.clone(), ended)
}

/// From the moment that the cover can be seen, it is read-only: both the mount and its file system.
#[test]
fn a_cover_is_a_mount_that_cannot_be_written() {
    if !rights::can_mount("prepare::foreign::a_cover_is_a_mount_that_cannot_be_written") {
        return;
    }
    let scene = musl_with(true);
    fs::write(scene.image(MUSL), "/lib\n").unwrap();
    crate::support::programs::install("/bin/busybox", scene.image("/bin/grep"));
    let before = "mount --bind /proc proc;";
    let ended = hook(
        &scene,
        before,
        &prepare(),
        "/bin/grep ld-musl-x86_64.path /proc/self/mountinfo",
    );
    let fields: Vec<&str> = ended.stdout.split_whitespace().collect();
    assert_eq!(fields[5], "ro,nosuid,nodev,noexec,relatime", "{}", ended.stdout);
    assert!(fields.last().unwrap().starts_with("ro,"), "{}", ended.stdout);
}

/// A runtime mounts the kernel's file systems for a container too, but what is in them is the kernel's. A devpts and a
/// cgroup hierarchy that are made for the test stand for sysfs and the host's cgroups, where a failure would last.
#[test]
fn file_systems_of_the_kernel_are_not_written() {
    if !rights::owns_machine("prepare::foreign::file_systems_of_the_kernel_are_not_written") {
        return;
    }
    let scene = musl();
    let mounts = json!([
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"}
    ]);
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": mounts,
        "linux": {"devices": [{"path": "/dev/nvidia0"}]}}));
    scene.image_directory("/dev");
    scene.image_link("/sys/fs/cgroup", "/etc/nvidia");
    crate::support::programs::install("/bin/busybox", scene.image("/bin/stat"));
    let name = format!("tranche-test-{}", std::process::id());
    let before = format!(
        "mount -t tmpfs -o mode=700 tmpfs dev; mkdir dev/pts; mount -t devpts -o newinstance,ptmxmode=0600 devpts dev/pts; \
         ln -s pts/ptmx dev/nvidia-caps; mkdir dev/dri; chmod 700 dev/dri; mount -t tmpfs tmpfs sys; \
         mkdir -p sys/fs/cgroup; mount -t cgroup -o none,name={name} cgroup sys/fs/cgroup;"
    );
    let look = "/bin/stat -c %a dev/pts/ptmx dev/dri sys/fs/cgroup/nvidia-application-profiles-rc.d";
    let chmod = words("chmod --mode 755 --path /dev/nvidia-caps --path /dev/dri");
    let ended = hook(&scene, &before, &chmod, look);
    assert!(
        ended.stdout.starts_with("600\n755\n"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert!(
        ended.stderr.contains("/dev/nvidia-caps: mode stays as it is: "),
        "{}",
        ended.stderr
    );
    let ended = hook(&scene, &before, &words("update-application-profile"), look);
    assert!(
        ended.stderr.contains("application profile: not written: "),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("nvidia-application-profiles-rc.d': No such file"),
        "a directory was made in the hierarchy: {}",
        ended.stdout
    );
}

#[test]
fn links_into_a_volume_are_not_made_and_are_counted() {
    if !rights::can_mount("prepare::foreign::links_into_a_volume_are_not_made_and_are_counted") {
        return;
    }
    let scene = musl();
    fs::create_dir(scene.at("outside/volume")).unwrap();
    let before = format!("mount --bind {} data;", scene.at("outside/volume").display());
    let links = words("create-symlinks --link x::/data/a --link y::/opt/driver/b --link z::/data/c");
    let ended = hook(&scene, &before, &links, "/bin/true");
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            0,
            "tranche-oci: hook create-symlinks: root: has read-only places: 2 links not made\n"
        )
    );
    assert_eq!(fs::read_link(scene.image("/opt/driver/b")).unwrap(), Path::new("y"));
    assert_eq!(fs::read_dir(scene.at("outside/volume")).unwrap().count(), 0);
}

/// The cache has the libraries, and the volume's owner decides what an `ldconfig` reads there.
#[test]
fn configuration_on_a_volume_is_left_alone() {
    if !rights::can_mount("prepare::foreign::configuration_on_a_volume_is_left_alone") {
        return;
    }
    let scene = Scene::new();
    for directory in ["bin", "lib64", "etc/ld.so.conf.d", "opt/driver"] {
        scene.image_directory(directory);
    }
    fs::write(scene.image("/lib64/ld-linux-x86-64.so.2"), "").unwrap();
    crate::support::programs::install("/bin/busybox", scene.image("/bin/true"));
    let library = stub_elf::library("libcuda.so.1", stub_elf::Machine::X86_64).unwrap();
    fs::write(scene.image("/opt/driver/libcuda.so.1"), library).unwrap();
    fs::create_dir(scene.at("outside/volume")).unwrap();
    let before = format!(
        "mount --bind {} etc/ld.so.conf.d;",
        scene.at("outside/volume").display()
    );
    said(hook(&scene, &before, &prepare(), "/bin/true"));
    // There may be a record of an earlier start, which cannot be removed.
    let ended = hook(&scene, &before, &words("enable-cuda-compat"), "/bin/true");
    assert!(
        ended.code == 0 && ended.stderr.contains("CUDA forward compatibility is not changed: "),
        "{}",
        ended.stderr
    );
    assert_eq!(fs::read_dir(scene.at("outside/volume")).unwrap().count(), 0);
    let cache = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    let cache = tranche_core::ldcache::read(&cache).unwrap();
    assert_eq!(cache.entries.len(), 1, "the driver's library");
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// While the hook makes a directory, somebody gives its name to a volume: what is opened under that name is looked at.
#[test]
fn a_volume_that_takes_the_name_of_a_new_directory_is_not_written() {
    let test = "a_volume_that_takes_the_name_of_a_new_directory_is_not_written";
    if !rights::can_mount(&format!("prepare::foreign::{test}")) {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run(&format!("prepare::foreign::{test}"), "no strace");
    }
    let scene = musl();
    fs::create_dir(scene.at("outside/volume")).unwrap();
    fs::write(scene.at("state.json"), scene.state()).unwrap();
    // The kernel waits before mkdirat, and the volume is moved to the name in the meantime, from a mount namespace in
    // which nothing is mounted on it: there it is a plain directory that can be renamed.
    let script = format!(
        "set -e; cd {root}
         unshare -m sh -c ': > {top}/ready; while ! test -e {top}/go; do sleep 0.05; done; mv data d' & mover=$!
         while ! test -e {top}/ready; do sleep 0.05; done
         mount --bind {top}/outside/volume data
         strace -qq -o {top}/trace -e trace=mkdirat -e inject=mkdirat:delay_enter=2000000 {hook} hook create-symlinks \
             --link x::/d/y --state-dir {state_dir} < {top}/state.json & hook=$!
         sleep 0.5; : > {top}/go; wait $mover
         wait $hook || true",
        root = scene.image("/").display(),
        top = scene.at("").display(),
        state_dir = scene.state_dir().display(),
        hook = env!("CARGO_BIN_EXE_tranche-oci"),
    );
    let ended = in_own_mounts(&script);
    let trace = fs::read_to_string(scene.at("trace")).unwrap_or_default();
    assert!(
        trace.contains("EEXIST"),
        "the volume did not take the name in time: {trace} {}",
        ended.stderr
    );
    assert_eq!(
        fs::read_dir(scene.at("outside/volume")).unwrap().count(),
        0,
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("read-only places"), "{}", ended.stderr);
}

/// New files have no name before they are complete, so that a hook that is killed leaves none behind.
#[test]
fn a_hook_that_is_killed_while_it_writes_leaves_nothing_behind() {
    let test = "a_hook_that_is_killed_while_it_writes_leaves_nothing_behind";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run(&format!("prepare::foreign::{test}"), "no strace");
    }
    for existing in [false, true] {
        let scene = musl();
        if existing {
            fs::write(scene.image(MUSL), "/lib\n").unwrap();
        }
        let inside = scene.inside();
        let mut command = Command::new("strace");
        let kill = [
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=fchmod",
            "-e",
            "inject=fchmod:signal=KILL",
        ];
        command.args(kill).arg(env!("CARGO_BIN_EXE_tranche-oci"));
        command
            .args(["hook", "prepare", "--ldcache-dir=/opt/driver", "--state-dir"])
            .arg(scene.state_dir())
            .env_clear();
        let ended = run(command, scene.state().as_bytes());
        assert_eq!(ended.code, -1, "it was not killed: {}", ended.stderr);
        let names = |list: &BTreeMap<PathBuf, String>| list.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&scene.inside()), names(&inside), "{existing}");
    }
}
