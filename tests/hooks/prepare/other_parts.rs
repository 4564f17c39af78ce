//! What the hook does besides links and the cache: compatibility libraries, the device-node switch, the profile.

use super::*;

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

/// Without a driver the host has no such file, so a file of /proc that says what an argument of a process says stands
/// for it. What is done to the container's file is tried in hook::driver_params, where the path can be another.
#[test]
fn a_file_in_place_of_the_drivers_params_is_neither_read_nor_covered() {
    if !rights::can_mount("prepare::other_parts::a_file_in_place_of_the_drivers_params_is_neither_read_nor_covered") {
        return;
    }
    use std::os::unix::process::CommandExt;
    let host = "ModifyDeviceFiles: 1\n";
    let mut process = Command::new("sleep").arg0(host).arg("60").spawn().unwrap();
    let with_driver = format!(
        "mount -t tmpfs tmpfs /proc/driver; mkdir /proc/driver/nvidia; : > /proc/driver/nvidia/params; \
         mount --bind /proc/{}/cmdline /proc/driver/nvidia/params;",
        process.id()
    );
    let in_image = "mkdir -p proc/driver/nvidia; echo ModifyDeviceFiles: 1 > proc/driver/nvidia/params;";
    let not_mounted = "the container's /proc is not a mounted proc file system";
    for (what, before, why) in [
        ("a directory", in_image.to_owned(), not_mounted),
        (
            "a link to another proc",
            "mkdir other; mount -t proc proc other; ln -s other proc;".to_owned(),
            not_mounted,
        ),
        (
            "a tmpfs",
            format!("mkdir -p proc; mount -t tmpfs tmpfs proc; {in_image}"),
            not_mounted,
        ),
        (
            "a mount in its proc",
            "mkdir -p proc; mount --rbind /proc proc;".to_owned(),
            "it is not a file of the container's /proc",
        ),
    ] {
        let scene = Scene::new();
        scene.image_directory("/bin");
        crate::support::programs::install("/bin/busybox", scene.image("/bin/cat"));
        let before = format!("{with_driver} {before}");
        let off = ["disable-device-node-modification".to_owned()];
        let ended = hook(&scene, &before, &off, "/bin/cat /proc/driver/nvidia/params");
        assert!(!ended.stdout.contains("Files: 0"), "{what}: {}", ended.stdout);
        let line = format!(
            "tranche-oci: hook disable-device-node-modification: /proc/driver/nvidia/params: device-node modification \
             stays on: {why}\n"
        );
        let said = ended.stderr.replace(
            "cat: can't open '/proc/driver/nvidia/params': No such file or directory\n",
            "",
        );
        assert_eq!(said, line, "{what}");
    }
    // The host's own file must be one of the kernel's as well.
    let scene = Scene::new();
    let before = "mount -t tmpfs tmpfs /proc/driver; mkdir /proc/driver/nvidia; \
                  echo ModifyDeviceFiles: 1 > /proc/driver/nvidia/params; mkdir proc; mount --rbind /proc proc;";
    scene.image_directory("/bin");
    crate::support::programs::install("/bin/busybox", scene.image("/bin/true"));
    let ended = hook(
        &scene,
        before,
        &["disable-device-node-modification".to_owned()],
        "/bin/true",
    );
    assert!(
        ended
            .stderr
            .ends_with("stays on: the host's file is not on a proc file system\n"),
        "{}",
        ended.stderr
    );
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn the_modification_of_device_nodes_is_turned_off_unless_that_is_skipped() {
    if !rights::can_mount("prepare::other_parts::the_modification_of_device_nodes_is_turned_off_unless_that_is_skipped")
    {
        return;
    }
    for (arguments, tried) in [
        (vec!["prepare"], true),
        (vec!["prepare", "--skip=update-application-profile"], true),
        (vec!["prepare", "--skip=disable-device-node-modification"], false),
    ] {
        let scene = Scene::new();
        scene.image_directory("/bin");
        crate::support::programs::install("/bin/busybox", scene.image("/bin/true"));
        // A file that is refused, because it is not one of the kernel's: that is reported.
        let before = "mount -t tmpfs tmpfs /proc/driver; mkdir /proc/driver/nvidia; \
                      echo ModifyDeviceFiles: 1 > /proc/driver/nvidia/params;";
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let ended = hook(&scene, before, &arguments, "/bin/true");
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let says = ended.stderr.contains("device-node modification stays on");
        assert_eq!(says, tried, "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn the_profile_shows_the_gpus() {
    let Some(scene) = glibc("the_profile_shows_the_gpus") else {
        return;
    };
    scene.configure(json!({
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/dev/nvidia2", "options": ["bind"]}],
        "linux": {"devices": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]}
    }));
    said(hook(&scene, "", &["prepare".into()], "/bin/open"));
    let profile = scene.image("/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf");
    assert!(
        fs::read_to_string(&profile)
            .unwrap()
            .contains("\"EGLVisibleDGPUDevices\",0x5]")
    );
    assert_eq!(fs::metadata(&profile).unwrap().permissions().mode() & 0o7777, 0o444);
    let inside = scene.inside();
    said(hook(&scene, "", &["prepare".into()], "/bin/open"));
    same(&scene.inside(), &inside);

    fs::remove_file(&profile).unwrap();
    let skipped = ["prepare", "--skip=update-application-profile"].map(String::from);
    said(hook(&scene, "", &skipped, "/bin/open"));
    assert!(!profile.exists());
    // And by its own verb.
    said(hook(
        &scene,
        "",
        &["disable-device-node-modification".into()],
        "/bin/open",
    ));
    assert!(!profile.exists());
    said(hook(&scene, "", &["update-application-profile".into()], "/bin/open"));
    assert!(profile.exists());
}

#[test]
fn nothing_can_be_had_back_that_was_given_up() {
    let scene = Scene::new();
    // A FIFO for a state: the hook waits in its reading, and can be looked at.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tranche-oci"))
        .args(["hook", "prepare", "--state-dir"])
        .arg(scene.state_dir())
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
    // CAP_CHOWN 0, CAP_DAC_OVERRIDE 1, CAP_FOWNER 3, CAP_SYS_ADMIN 21.
    let needed = 1_u64 | 1 << 1 | 1 << 3 | 1 << 21;
    let hex = |name: &str| u64::from_str_radix(&field(name), 16).unwrap();
    // The last of these is given up last: of a user without privileges nothing else changes.
    while (hex("CapPrm:") & !needed != 0 || field("NoNewPrivs:") != "1") && std::time::Instant::now() < end {
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
