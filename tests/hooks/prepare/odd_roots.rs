//! Roots that cannot be written, or not as usual.

use super::*;

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
            "tranche-oci: hook prepare: /etc/ld.so.cache: cannot be covered on a read-only root: Invalid argument \
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
        "tranche-oci: hook prepare: /etc/ld.so.cache: is missing, and the root is read-only; \
         set LD_LIBRARY_PATH=/opt/driver in the container, or add /etc/ld.so.cache to the image\n"
    );
    same(&scene.inside(), &inside);
}

/// musl's loader without a path file searches its three directories. On a read-only root a new file cannot be made, so
/// the driver is not found, and the hook says what helps; with a path file in the image it is found.
#[test]
fn a_musl_image_needs_a_path_file_for_a_read_only_root() {
    for path_file in [true, false] {
        let scene = Scene::new();
        if let Some(reason) = glibc_image::missing().or_else(|| glibc_image::musl(&scene.image("/")).err()) {
            skip::not_run("prepare::a_musl_image_needs_a_path_file_for_a_read_only_root", &reason);
            return;
        }
        glibc_image::driver(&scene.image("/opt/driver"));
        if path_file {
            fs::write(
                scene.image("/etc/ld-musl-x86_64.path"),
                "/lib\n/usr/local/lib\n/usr/lib\n",
            )
            .unwrap();
        }
        scene.configure(json!({"root": {"path": "rootfs", "readonly": true}}));
        let inside = scene.inside();
        // musl finds a file by its name and does not look at SONAMEs, and links cannot be made there.
        let open = format!("/bin/open libcuda.so.{DRIVER}");
        let ended = hook(
            &scene,
            "",
            &["prepare".into(), "--ldcache-dir=/opt/driver".into()],
            &open,
        );
        let (found, line) = match path_file {
            true => ("580", ""),
            false => (
                "none",
                "tranche-oci: hook prepare: /etc/ld-musl-x86_64.path: is missing, and the root is read-only; set \
                 LD_LIBRARY_PATH=/opt/driver in the container, or add /etc/ld-musl-x86_64.path to the image\n",
            ),
        };
        let found = format!("libcuda.so.{DRIVER} {found}\n");
        assert_eq!((ended.code, ended.stdout, ended.stderr.as_str()), (0, found, line));
        same(&scene.inside(), &inside);
    }
}

/// What stands in the place of /etc/ld.so.cache, or around it.
#[test]
fn odd_roots() {
    let table: [(&str, &str); 7] = [
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

/// What is mounted there is a volume of the user or of the engine: it is neither written nor covered, and the container
/// starts.
#[test]
fn a_cache_on_a_mount_is_left_alone_and_the_remedy_is_named() {
    for (what, before) in [
        (
            "a mount of its own",
            "cp etc/ld.so.cache tmp/c; mount --bind tmp/c etc/ld.so.cache;",
        ),
        (
            "another file system",
            "mkdir tmp/e; cp -a etc/. tmp/e; mount -t tmpfs tmpfs etc; cp -a tmp/e/. etc;",
        ),
        (
            "a read-only /etc",
            "mount --bind etc etc; mount -o remount,bind,ro etc;",
        ),
        (
            "a full disk",
            "mkdir tmp/e; cp -a etc/. tmp/e; mount -t tmpfs -o size=64k tmpfs etc; cp -a tmp/e/. etc; \
             yes > etc/full 2>/dev/null || true;",
        ),
    ] {
        let Some(scene) = glibc("a_cache_on_a_mount_is_left_alone_and_the_remedy_is_named") else {
            return;
        };
        ldconfig(&scene);
        glibc_image::driver(&scene.image("/opt/driver"));
        let ended = hook(&scene, before, &arguments(&["/opt/driver"]), "/bin/open libcuda.so.1");
        // What the container finds there is what was mounted, which does not know the driver.
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, "libcuda.so.1 none\n"),
            "{what}"
        );
        assert_eq!(
            ended.stderr,
            "tranche-oci: hook prepare: /etc/ld.so.cache: its content is ignored: it is not on the mount of the \
             container's root\n\
             tranche-oci: hook prepare: /etc/ld.so.cache: cannot be changed, because it is not on the image's own file system; \
             set LD_LIBRARY_PATH=/opt/driver in the container\n",
            "{what}"
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
fn on_a_full_disk_the_start_fails_and_the_root_is_as_it_was() {
    let Some(scene) = glibc("on_a_full_disk_the_start_fails_and_the_root_is_as_it_was") else {
        return;
    };
    ldconfig(&scene);
    glibc_image::driver(&scene.image("/opt/driver"));
    let image = scene.at("image");
    fs::rename(scene.image("/"), &image).unwrap();
    fs::create_dir(scene.image("/")).unwrap();
    let seen = scene.at("seen");
    // The image on a file system of its own, with no room for a second cache; what is there afterwards is listed.
    let before = format!(
        "mount -t tmpfs -o size=64m none {root}; cp -a {image}/. {root}; cd {root}; yes > fill 2> {seen} || true; \
         list() {{ find . ! -name fill | sort; cat etc/ld.so.cache; }}; list > {seen}; trap 'list > {seen}.after' EXIT;",
        root = scene.image("/").display(),
        image = image.display(),
        seen = seen.display(),
    );
    let ended = hook(&scene, &before, &arguments(&["/opt/driver"]), "/bin/open");
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .starts_with("tranche-oci: hook prepare: /etc/ld.so.cache: cannot replace: No space left"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    let (before, after) = (fs::read(&seen).unwrap(), fs::read(scene.at("seen.after")).unwrap());
    let before = String::from_utf8_lossy(&before);
    assert!(
        before.contains("\n./opt/driver/libcuda.so.") && before.contains("glibc-ld.so.cache"),
        "{before}"
    );
    assert_eq!(before, String::from_utf8_lossy(&after));
}
