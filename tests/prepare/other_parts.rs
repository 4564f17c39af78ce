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
