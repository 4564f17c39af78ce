//! Images that mean harm, against the real program: after each, the host outside the root is as it was.
//!
//! Every case runs twice, with the kernel's `openat2` and, in a process that has lost it, with the walk of `O_PATH`
//! handles. The known vulnerabilities whose mechanism is public are named where a case pins them.

use crate::support::{old_kernel, rights, scene};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use scene::{LIBDIR, Scene};
use serde_json::json;

/// Runs `case` with each way of resolving paths.
fn both_ways(case: impl Fn() + Sync) {
    case();
    std::thread::scope(|threads| {
        let without = threads.spawn(|| {
            old_kernel::lose_openat2();
            case();
        });
        if let Err(panic) = without.join() {
            eprintln!("this was without openat2");
            std::panic::resume_unwind(panic);
        }
    });
}

const LINK: &str = "libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so";

#[test]
fn a_plain_image_gets_its_links() {
    both_ways(|| {
        let scene = Scene::new();
        let outside = scene.outside();
        scene
            .prepare(&["--link", LINK, "--link", "../a b::/opt/x/y/z"])
            .silent();
        assert_eq!(
            fs::read_link(scene.image("/usr/lib/x86_64-linux-gnu/libcuda.so")).unwrap(),
            Path::new("libcuda.so.1")
        );
        assert_eq!(fs::read_link(scene.image("/opt/x/y/z")).unwrap(), Path::new("../a b"));
        assert_eq!(
            fs::metadata(scene.image("/opt/x/y")).unwrap().mode() & 0o7777,
            0o755,
            "whatever the umask is"
        );
        assert_eq!(scene.outside(), outside);
        let inside = scene.inside();
        scene
            .prepare(&["--link", LINK, "--link", "../a b::/opt/x/y/z"])
            .silent();
        assert_eq!(
            scene.inside(),
            inside,
            "a second start finds everything in place and touches nothing"
        );
    });
}

/// CVE-2024-0134: links of the image lead the making of links out of the root.
#[test]
fn a_link_at_any_component_stays_in_the_root() {
    both_ways(|| {
        for component in ["/usr", "/usr/lib", LIBDIR, "/usr/lib/x86_64-linux-gnu/libcuda.so"] {
            for how in ["absolute", "relative", "dots", "magic", "dangling", "loop"] {
                let scene = Scene::new();
                let target = match how {
                    "absolute" => scene.at("outside/lib"),
                    "relative" => PathBuf::from("../../../../../../../outside/lib"),
                    "dots" => PathBuf::from(format!("{}{}", "../".repeat(64), scene.at("outside/lib").display())),
                    "magic" => PathBuf::from(format!("/proc/self/root{}", scene.at("outside/lib").display())),
                    "dangling" => PathBuf::from("/nowhere/at/all"),
                    _ => PathBuf::from(component),
                };
                scene.image_link(&target, component);
                let (outside, inside) = (scene.outside(), scene.inside());
                let ended = scene.prepare(&["--link", LINK]);
                assert_eq!(
                    scene.outside(),
                    outside,
                    "{component} is a link, {how}: {}",
                    ended.stderr
                );
                if component.ends_with(".so") {
                    // The last name is replaced, whatever it was.
                    assert_eq!(ended.code, 0, "{}", ended.stderr);
                    assert_eq!(
                        fs::read_link(scene.image(component)).unwrap(),
                        Path::new("libcuda.so.1")
                    );
                } else {
                    // Inside the root these paths do not exist, and a link that leads nowhere is not followed to make
                    // what it names.
                    assert_eq!(ended.code, 1, "{component} {how}");
                    assert!(
                        ended
                            .stderr
                            .starts_with("tranche-oci: hook prepare: /usr/lib/x86_64-linux-gnu/libcuda.so: ")
                    );
                    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
                    assert_eq!(scene.inside(), inside);
                }
            }
        }
    });
}

#[test]
fn a_link_that_stays_inside_is_followed_as_the_container_would() {
    both_ways(|| {
        // Merged /usr, and an absolute link with dots: both mean a place in the image.
        for target in ["usr/lib", "/usr/lib", "/../../usr/lib", "../../usr/./lib"] {
            let scene = Scene::new();
            scene.image_directory("/usr/lib");
            scene.image_link(target, "/lib");
            let outside = scene.outside();
            scene.prepare(&["--link", "a::/lib/x/b"]).silent();
            assert_eq!(
                fs::read_link(scene.image("/usr/lib/x/b")).unwrap(),
                Path::new("a"),
                "{target}"
            );
            assert_eq!(scene.outside(), outside);
        }
    });
}

/// With a real /proc in the root, where magic links lead out of it.
#[test]
fn magic_links_of_a_mounted_proc_are_refused() {
    if !rights::can_mount("hostile::magic_links_of_a_mounted_proc_are_refused") {
        return;
    }
    both_ways(|| {
        for magic in [
            "/proc/self/root",
            "/proc/1/root",
            "/proc/thread-self/root",
            "/proc/self/cwd",
            "/proc/self/fd/0",
        ] {
            let scene = Scene::new();
            scene.image_directory("/proc");
            let out = scene.at("outside/lib");
            scene.image_link(format!("{magic}{}", out.display()), LIBDIR);
            let outside = scene.outside();
            let mut command = std::process::Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c"]);
            command
                .arg(r#"mount --rbind /proc "$1/proc" && shift && exec "$@""#)
                .arg("sh");
            command.arg(scene.image("/")).arg(env!("CARGO_BIN_EXE_tranche-oci"));
            command
                .args(["hook", "prepare", "--link", LINK, "--state-dir"])
                .arg(scene.state_dir());
            let ended = scene::run(command, scene.state().as_bytes());
            assert_eq!(ended.code, 1, "{magic}: {}", ended.stderr);
            assert!(
                ended.stderr.starts_with("tranche-oci: hook prepare: /usr/lib"),
                "{}",
                ended.stderr
            );
            assert_eq!(scene.outside(), outside, "{magic}");
        }
    });
}

#[test]
fn other_kinds_of_file_at_the_links_place() {
    both_ways(|| {
        let scene = Scene::new();
        scene.image_directory(LIBDIR);
        let place = scene.image("/usr/lib/x86_64-linux-gnu/libcuda.so");
        let root = rights::is_root_of_machine();
        for kind in ["fifo", "file", "socket", "hard link", "device"] {
            match kind {
                "fifo" => mkfifo(&place, Mode::S_IRWXU).unwrap(),
                "file" => fs::write(&place, "the image's").unwrap(),
                "socket" => drop(std::os::unix::net::UnixListener::bind(&place).unwrap()),
                "hard link" => fs::hard_link(scene.at("outside/shadow"), &place).unwrap(),
                _ if root => mknod(&place, SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 5)).unwrap(),
                _ => continue,
            }
            let outside = scene.outside();
            scene.prepare(&["--link", LINK]).silent();
            assert_eq!(fs::read_link(&place).unwrap(), Path::new("libcuda.so.1"), "{kind}");
            assert_eq!(scene.outside(), outside, "{kind}");
            fs::remove_file(&place).unwrap();
        }
        // A directory is not thrown away, and nothing of our attempt stays behind.
        fs::create_dir(&place).unwrap();
        fs::write(place.join("x"), "").unwrap();
        let (outside, inside) = (scene.outside(), scene.inside());
        let ended = scene.prepare(&["--link", LINK]);
        assert_eq!(ended.code, 1);
        assert!(
            ended
                .stderr
                .contains("libcuda.so: cannot make the link: Is a directory"),
            "{}",
            ended.stderr
        );
        let changed: Vec<_> = scene
            .inside()
            .into_iter()
            .filter(|(p, s)| inside.get(p) != Some(s))
            .map(|c| c.0)
            .collect();
        assert_eq!(
            changed,
            [scene.image(LIBDIR)],
            "only the directory's time: a name came and went"
        );
        assert_eq!(scene.outside(), outside);
        assert!(fs::symlink_metadata(&place).unwrap().is_dir());
    });
}

#[test]
fn a_file_where_a_directory_belongs() {
    both_ways(|| {
        for kind in ["file", "fifo"] {
            let scene = Scene::new();
            scene.image_directory("/usr");
            let place = scene.image("/usr/lib");
            if kind == "file" {
                fs::write(&place, "").unwrap();
            } else {
                mkfifo(&place, Mode::S_IRWXU).unwrap();
            }
            let (outside, inside) = (scene.outside(), scene.inside());
            let ended = scene.prepare(&["--link", LINK]);
            assert_eq!(ended.code, 1);
            assert!(ended.stderr.contains("Not a directory"), "{}", ended.stderr);
            assert_eq!((scene.outside(), scene.inside()), (outside, inside));
            assert_eq!(
                fs::symlink_metadata(&place).unwrap().file_type().is_fifo(),
                kind == "fifo"
            );
        }
    });
}

/// CVE-2024-0132 and CVE-2025-23359 are of this kind: what was checked is not what is used.
#[test]
fn a_directory_that_is_swapped_for_a_link_while_we_work() {
    both_ways(|| {
        let scene = Scene::new();
        scene.image_directory(LIBDIR);
        scene.image_link(scene.at("outside"), "/usr/away");
        scene.image_directory("/usr/lib/lib");
        let outside = scene.outside();
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let (real, away) = (scene.image("/usr/lib"), scene.image("/usr/away"));
                while !stop.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &real, AT_FDCWD, &away, RenameFlags::RENAME_EXCHANGE).unwrap();
                }
            });
            let links: Vec<String> = (0..200).map(|n| format!("t::/usr/lib/lib/n{n}")).collect();
            let arguments: Vec<&str> = links.iter().flat_map(|link| ["--link", link]).collect();
            for _ in 0..40 {
                let ended = scene.prepare(&arguments);
                assert!(ended.code == 0 || ended.code == 1, "{} {}", ended.code, ended.stderr);
                assert!(ended.stderr.lines().count() <= 1, "{}", ended.stderr);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(scene.outside(), outside);
    });
}

#[test]
fn a_read_only_root_is_left_alone() {
    both_ways(|| {
        let scene = Scene::new();
        scene.image_directory("/dev/dri");
        scene.configure(json!({"root": {"path": "rootfs", "readonly": true},
            "linux": {"devices": [{"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0}]}}));
        let (outside, inside) = (scene.outside(), scene.inside());
        let ended = scene.prepare(&["--link", LINK, "--link", "a::/b", "--by-path", "x::/dev/dri/card0"]);
        assert_eq!(
            (ended.code, ended.stderr.as_str()),
            (
                0,
                "tranche-oci: hook prepare: root: is read-only: 2 links not made\n\
                 tranche-oci: hook prepare: /dev/dri/by-path: cannot make the links: read-only filesystem or storage medium\n"
            )
        );
        assert_eq!((scene.outside(), scene.inside()), (outside, inside));
    });
}

#[test]
fn by_path_links_are_made_for_the_nodes_that_are_there() {
    both_ways(|| {
        let scene = Scene::new();
        scene.image_directory("/dev/dri");
        scene.configure(
            json!({"root": {"path": scene.image("/")}, "linux": {"devices": [{"path": "/dev/dri/card1"}]},
            "mounts": [{"destination": "/dev/dri/renderD129", "source": "/dev/dri/renderD129", "options": ["bind"]}]}),
        );
        let arguments = [
            "--by-path=pci-0000:41:00.0-card::/dev/dri/card1",
            "--by-path=pci-0000:41:00.0-render::/dev/dri/renderD129",
            "--by-path=pci-0000:01:00.0-card::/dev/dri/card0",
        ];
        scene.prepare(&arguments).silent();
        let names: Vec<_> = fs::read_dir(scene.image("/dev/dri/by-path"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let link = |name: &str| fs::read_link(scene.image("/dev/dri/by-path").join(name)).unwrap();
        assert_eq!(link("pci-0000:41:00.0-card"), Path::new("../card1"));
        assert_eq!(link("pci-0000:41:00.0-render"), Path::new("../renderD129"));
    });
}

#[test]
fn by_path_does_not_leave_the_root_nor_write_into_the_hosts_dev() {
    both_ways(|| {
        let nodes = json!({"devices": [{"path": "/dev/dri/card0"}]});
        let scene = Scene::new();
        scene.image_link(scene.at("outside"), "/dev/dri");
        scene.configure(json!({"root": {"path": "rootfs"}, "linux": nodes}));
        let outside = scene.outside();
        assert_eq!(scene.prepare(&["--by-path", "card::/dev/dri/card0"]).code, 0);
        assert_eq!(scene.outside(), outside);

        let scene = Scene::new();
        scene.image_directory("/dev/dri");
        let bound = json!([{"destination": "/dev", "source": "/dev", "type": "bind"}]);
        scene.configure(json!({"root": {"path": "rootfs"}, "linux": nodes, "mounts": bound}));
        let inside = scene.inside();
        scene.prepare(&["--by-path", "card::/dev/dri/card0"]).silent();
        assert_eq!(scene.inside(), inside);
    });
}

#[test]
fn a_bundle_that_is_not_what_the_state_says() {
    both_ways(|| {
        let scene = Scene::new();
        let (outside, inside) = (scene.outside(), scene.inside());
        let at = |path: &str| scene.at(path).display().to_string();
        let says = |state: String, expected: &str| {
            let ended = scene.prepare_with(&["--link", LINK], &state);
            assert_eq!(ended.code, 1, "{state}");
            assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1);
        };
        says(String::new(), "container state: standard input is empty");
        says("{".into(), "container state: does not parse");
        says(
            json!({"bundle": at("nowhere")}).to_string(),
            "cannot open the bundle: No such file",
        );
        says(
            json!({"bundle": at("outside/shadow")}).to_string(),
            "cannot open the bundle: Not a directory",
        );
        says(
            json!({"bundle": at("outside")}).to_string(),
            "outside/config.json: cannot read: No such file",
        );
        says(
            json!({"bundle": at("bundle"), "root": at("outside")}).to_string(),
            "config.json has another root",
        );
        says(
            json!({"bundle": at("bundle"), "root": at("gone")}).to_string(),
            "cannot open the container's root",
        );
        assert_eq!((scene.outside(), scene.inside()), (outside, inside));
        // crun's own word for the root, where it is the same.
        let state = json!({"bundle": at("bundle"), "root": at("bundle/rootfs"), "status": "starting", "pid": 0});
        scene.prepare_with(&["--link", LINK], &state.to_string()).silent();
    });
}

#[test]
fn a_config_that_is_no_file_or_too_large() {
    both_ways(|| {
        let scene = Scene::new();
        let config = scene.at("bundle/config.json");
        let says = |expected: &str| {
            let ended = scene.prepare(&["--link", LINK]);
            assert_eq!(ended.code, 1);
            assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        };
        fs::File::options()
            .write(true)
            .open(&config)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        says("larger than");
        fs::remove_file(&config).unwrap();
        mkfifo(&config, Mode::S_IRWXU).unwrap();
        says("not a regular file");
        fs::remove_file(&config).unwrap();
        std::os::unix::fs::symlink(scene.at("outside/shadow"), &config).unwrap();
        says("not a regular file");
        fs::remove_file(&config).unwrap();
        fs::write(&config, format!("{{\"x\":{}", "[".repeat(100_000))).unwrap();
        says("does not parse");
        scene.configure(json!({"root": {"path": "../outside/shadow"}}));
        says("cannot open the container's root");
    });
}

#[test]
fn what_the_program_does_not_know_it_names_and_lets_be() {
    let scene = Scene::new();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
        command.args(arguments).env_clear();
        scene::run(command, scene.state().as_bytes())
    };
    let state_dir = format!("--state-dir={}", scene.state_dir().display());
    let newer = run(&["hook", "polish-the-gpu", "--how", "well", &state_dir]);
    assert_eq!(
        (newer.code, newer.stderr.as_str()),
        (0, "tranche-oci: hook: polish-the-gpu: unknown hook, ignored\n")
    );
    let option = run(&["hook", "prepare", "--shine=1", &state_dir]);
    assert_eq!(
        (option.code, option.stderr.as_str()),
        (0, "tranche-oci: hook prepare: --shine: unknown option, ignored\n")
    );
    assert_eq!(run(&["hook", "prepare", "--link", "x", &state_dir]).code, 2);
    assert_eq!(run(&[]).code, 2);
    assert_eq!(
        run(&["polish"]).stderr,
        "tranche-oci: polish: not a command; see tranche-oci --help\n"
    );
    assert_eq!(
        run(&["--version"]).stdout,
        concat!("tranche-oci ", env!("CARGO_PKG_VERSION"), "\n")
    );
    assert!(run(&["--help"]).stdout.contains("hook VERB"));
}
