//! `create` and `run`: which file is edited, and what happens if it is not what it should be.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::place::{EXECUTED, Place, is_edited, link, plain, request, said};
use crate::support::programs::script;
use crate::support::rights;

#[test]
fn the_configuration_of_the_bundle_is_edited() {
    let place = Place::new();
    let bundle = place.at("bundle").display().to_string();
    for line in [
        "create --bundle bundle ID".to_owned(),
        format!("--root /r --log /dev/null --log-format json create --bundle {bundle} --pid-file /p ID"),
        "run -d -b=bundle ID".to_owned(),
        "--unknown value create --other thing --bundle bundle ID".to_owned(),
        // runc reads options behind the id, too.
        "run ID --bundle bundle".to_owned(),
        "create --pid-file /p ID -b bundle".to_owned(),
    ] {
        place.configure(&request());
        fs::set_permissions(place.config(), PermissionsExt::from_mode(0o640)).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(place.passes(&words).arguments, words);
        assert!(is_edited(&place.config()), "{line}");
        assert_eq!(fs::metadata(place.config()).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(&bundle).unwrap().count(), 1, "nothing else is left");
    }
    // By default, the current directory.
    place.configure(&request());
    let mut command = place.command(&["run", "ID"]);
    assert_eq!(command.current_dir(&bundle).status().unwrap().code(), Some(EXECUTED));
    assert!(is_edited(&place.config()));
}

/// A later runtime may start what an option names that is not known: without the GPU, it would be started unlimited.
#[test]
fn a_container_that_an_unknown_option_names_is_refused_if_it_asks() {
    let place = Place::new();
    let other = place.at("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("config.json"), plain().to_string()).unwrap();
    for line in [
        "create --bundle other --spec bundle ID",
        "run --spec=bundle/config.json -b other ID",
        "run -b other ID --spec bundle",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        place.configure(&request());
        let said = place.refused(&words);
        let says =
            "config.json: its container asks for a device, and is named by an option that this program does not know";
        assert!(said.contains(says), "{line}: {said}");
        place.configure(&plain());
        assert_eq!(place.passes(&words).arguments, words, "{line}");
    }
}

#[test]
fn the_file_that_crun_is_given_instead_is_edited() {
    let place = Place::new();
    fs::write(place.at("other.json"), request().to_string()).unwrap();
    place.passes(&["create", "--bundle", "bundle", "--config", "other.json", "ID"]);
    assert!(is_edited(&place.at("other.json")));
    assert!(!is_edited(&place.config()));
    place.passes(&["create", "-f", "config.json", "-b", "bundle", "ID"]);
    assert!(is_edited(&place.config()));
}

#[test]
fn a_file_of_another_user_stays_that_user_s() {
    if !rights::owns_machine("create::a_file_of_another_user_stays_that_user_s") {
        return;
    }
    let place = Place::new();
    std::os::unix::fs::chown(place.config(), Some(1234), Some(5678)).unwrap();
    place.passes(&["create", "--bundle", "bundle", "ID"]);
    assert!(is_edited(&place.config()));
    let now = fs::metadata(place.config()).unwrap();
    assert_eq!((now.uid(), now.gid()), (1234, 5678));
}

/// Containers of one image may share a configuration by a link. The file that is shared must not get one of them's GPU.
#[test]
fn a_link_is_replaced_and_its_target_stays() {
    let place = Place::new();
    fs::rename(place.config(), place.at("shared.json")).unwrap();
    let before = fs::read(place.at("shared.json")).unwrap();
    link("../shared.json", &place.config());
    link("bundle", &place.at("by-link"));
    place.passes(&["create", "--bundle", "by-link", "ID"]);
    assert!(fs::symlink_metadata(place.config()).unwrap().is_file());
    assert!(is_edited(&place.config()));
    assert_eq!(fs::read(place.at("shared.json")).unwrap(), before);
}

#[test]
fn a_configuration_that_is_not_a_regular_file_is_refused() {
    let place = Place::new();
    fs::remove_file(place.config()).unwrap();
    let create = ["create", "--bundle", "bundle", "ID"];
    let missing = place.refused(&create);
    assert!(
        missing.contains("bundle/config.json: cannot be read: No such file"),
        "{missing}"
    );
    let fifo = || nix::unistd::mkfifo(&place.config(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let makers: [&dyn Fn(); 5] = [
        &fifo,
        &|| fs::create_dir(place.config()).unwrap(),
        &|| link("/dev/zero", &place.config()),
        &|| link("config.json", &place.config()),
        &|| link("/proc/self/fd/0", &place.config()),
    ];
    for make in makers {
        make();
        let line = place.refused(&create);
        assert!(line.contains("bundle/config.json: cannot be read: "), "{line}");
        fs::remove_file(place.config())
            .or_else(|_| fs::remove_dir(place.config()))
            .unwrap();
    }
    let line = place.refused(&["create", "--bundle", "none", "ID"]);
    assert!(line.contains("none: cannot open the bundle: No such file"), "{line}");
}

#[test]
fn a_large_configuration_works_and_an_endless_one_does_not() {
    let place = Place::new();
    let create = ["create", "--bundle", "bundle", "ID"];
    for mut config in [plain(), request()] {
        let requests = config == request();
        config["annotations"]["large"] = "x".repeat(10 << 20).into();
        place.configure(&config);
        place.passes(&create);
        assert_eq!(is_edited(&place.config()), requests);
    }
    let mut config = request();
    config["annotations"]["large"] = "x".repeat(17 << 20).into();
    place.configure(&config);
    let line = place.refused(&create);
    assert!(line.contains("larger than 16777216 bytes"), "{line}");
}

/// It is refused by tranche or by the low-level runtime, which gets it as it is.
#[test]
fn a_damaged_configuration_is_never_edited() {
    let place = Place::new();
    let whole = request().to_string();
    for text in [
        "",
        &whole[..whole.len() - 1],
        &format!("{whole}}}"),
        &format!("\0{whole}"),
        &format!("[{whole}"),
    ] {
        fs::write(place.config(), text).unwrap();
        place.run(&["create", "--bundle", "bundle", "ID"]);
        assert_eq!(fs::read_to_string(place.config()).unwrap(), *text);
    }
}

/// In a file system without space, and where the engine's user has a small limit on the size of files.
#[test]
fn a_full_disk_leaves_the_old_configuration() {
    let place = Place::new();
    let mut config = request();
    config["annotations"]["large"] = "x".repeat(200 << 10).into();
    place.configure(&config);
    let before = fs::read(place.config()).unwrap();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        let program = format!(
            "{} --state-dir {}",
            place.runtime().display(),
            place.at("state").display()
        );
        command
            .args(["-c", &script.replace("RUNTIME", &program)])
            .current_dir(place.at(""));
        command.output().unwrap()
    };
    let limited = run("ulimit -f 64; RUNTIME create --bundle bundle ID; echo $?");
    assert_eq!(
        String::from_utf8_lossy(&limited.stdout).trim(),
        "1",
        "{}",
        said(&limited)
    );
    assert!(
        said(&limited).contains("bundle/config.json: cannot be written"),
        "{}",
        said(&limited)
    );
    assert_eq!(fs::read(place.config()).unwrap(), before);
    assert_eq!(fs::read_dir(place.at("bundle")).unwrap().count(), 1);

    if !rights::can_mount("create::a_full_disk_leaves_the_old_configuration") {
        return;
    }
    fs::create_dir(place.at("small")).unwrap();
    let full = run(
        "exec unshare -m --propagation private sh -c 'mount -t tmpfs -o size=300k tmpfs small && cp bundle/config.json small &&
         { RUNTIME create --bundle small ID; echo $?; cmp bundle/config.json small/config.json; ls -A small; }'",
    );
    assert_eq!(
        String::from_utf8_lossy(&full.stdout),
        "1\nconfig.json\n",
        "{}",
        said(&full)
    );
    assert!(
        said(&full).contains("cannot be written: No space left"),
        "{}",
        said(&full)
    );
}

/// Ends a loop in another thread when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The low-level runtime must find a complete file whatever happens to it at the same time.
#[test]
fn a_configuration_that_changes_at_the_same_time_is_never_half_written() {
    let place = Place::new();
    let others = [plain().to_string(), request().to_string()];
    fs::write(place.at("outside.json"), &others[1]).unwrap();
    let stop = AtomicBool::new(false);
    let swap = |number: usize| {
        let new = place.at(&format!("new{number}"));
        match number % 4 {
            0 => fs::write(&new, &others[0]).unwrap(),
            1 => fs::write(&new, &others[1]).unwrap(),
            2 => link(place.at("outside.json"), &new),
            _ => nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        }
        fs::rename(&new, place.config()).unwrap();
    };
    thread::scope(|scope| {
        // Also if this test fails.
        let _end = Stop(&stop);
        scope.spawn(|| (0..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(swap));
        for _ in 0..100 {
            let output = place.run(&["create", "--bundle", "bundle", "ID"]);
            match output.status.code() {
                Some(EXECUTED) => assert_eq!(said(&output), ""),
                code => {
                    assert_eq!(code, Some(1));
                    let expected = ["not a regular file", "was replaced by another file"];
                    assert!(
                        expected.iter().any(|text| said(&output).contains(text)),
                        "{}",
                        said(&output)
                    );
                }
            }
        }
    });
    assert_eq!(fs::read_to_string(place.at("outside.json")).unwrap(), others[1]);
    if fs::metadata(place.config()).unwrap().is_file() {
        let _: serde_json::Value = serde_json::from_slice(&fs::read(place.config()).unwrap()).unwrap();
    }
    let left: Vec<_> = fs::read_dir(place.at("bundle"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["config.json"]);
}

/// An engine may remove a bundle while a start that it gave up is still at work.
#[test]
fn a_bundle_that_is_removed_at_the_same_time_does_no_harm() {
    let place = Place::new();
    for _ in 0..100 {
        let mut create = place.command(&["create", "--bundle", "bundle", "ID"]);
        let child = create.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let _ = fs::remove_dir_all(place.at("bundle"));
        let output = child.wait_with_output().unwrap();
        assert!([Some(1), Some(EXECUTED)].contains(&output.status.code()), "{output:?}");
        let _ = fs::remove_dir_all(place.at("bundle"));
        fs::create_dir(place.at("bundle")).unwrap();
        place.configure(&request());
    }
}

/// docker and containerd show the last error of the log, podman shows standard error.
#[test]
fn a_failure_is_in_the_engine_s_log() {
    let place = Place::new();
    fs::write(place.config(), format!("{}}}", request())).unwrap();
    let log = place.at("log.json").display().to_string();
    fs::write(&log, "{\"level\":\"info\",\"msg\":\"earlier\"}\n").unwrap();
    let line = place.refused(&[
        "--log",
        &log,
        "--log-format",
        "json",
        "create",
        "--bundle",
        "bundle",
        "ID",
    ]);
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["level"], "error");
    let message = lines[1]["msg"].as_str().unwrap();
    assert_eq!(line, format!("tranche-runtime: create: {message}\n"));
    // For `tranche status`.
    let kept = fs::read_to_string(place.at("state/messages/ID.jsonl")).unwrap();
    assert!(kept.contains("\"hook\":\"create\""), "{kept}");

    let log = place.at("log.text").display().to_string();
    place.refused(&["--log", &log, "create", "--bundle", "bundle", "ID"]);
    assert!(fs::read_to_string(&log).unwrap().contains("level=error msg="));
    // A log that nobody can write, or that nobody reads, changes nothing.
    nix::unistd::mkfifo(&place.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for log in ["/no/such/log", "fifo", "bundle"] {
        place.refused(&["--log", log, "create", "--bundle", "bundle", "ID"]);
    }
}

#[test]
fn a_host_file_of_the_first_form_is_written_again_for_a_container_that_asks() {
    let place = Place::new();
    let host = place.host(&[&place.at("bin/runc")]).to_string();
    fs::write(place.at("host"), host).unwrap();
    let [new, file] = ["host", "state/host.json"].map(|path| place.at(path).display().to_string());
    script(place.at("bin/tranche"), &format!("cp {new} {file}"));
    place.host_file_of_the_first_form();
    place.passes(&["create", "--bundle", "bundle", "ID"]);
    assert!(is_edited(&place.config()));
}

#[test]
fn a_missing_host_file_is_written_once() {
    let place = Place::new();
    let host = place.host(&[&place.at("bin/runc")]).to_string();
    let [file, calls] = ["state/host.json", "calls"].map(|path| place.at(path));
    fs::write(place.at("host"), &host).unwrap();
    // The runtime is named by host.json as well, so a wrapper is found by its default name.
    let writes = format!(
        "echo \"$@\" >> {}; env >> {0}; cp {} {}",
        calls.display(),
        place.at("host").display(),
        file.display()
    );
    script(place.at("bin/tranche"), &writes);
    let damaged = place
        .host(&[&place.at("bin/runc")])
        .to_string()
        .replacen("\"version\"", "\"v\"", 1);
    fs::write(&file, &damaged).unwrap();
    place.passes(&["create", "--bundle", "bundle", "ID"]);
    assert!(is_edited(&place.config()));
    let seen = fs::read_to_string(&calls).unwrap();
    assert!(
        seen.starts_with(&format!("cdi refresh --state-dir {}\n", place.at("state").display())),
        "{seen}"
    );
    assert_eq!(seen.matches("cdi refresh").count(), 1, "{seen}");
    for entry in seen.lines().skip(1) {
        assert!(
            ["PWD=", "_=", "SHLVL=", "OLDPWD="]
                .iter()
                .any(|name| entry.starts_with(name)),
            "{entry}"
        );
    }

    // Without a request, nobody asks.
    fs::remove_file(&calls).unwrap();
    fs::write(&file, &damaged).unwrap();
    place.configure(&plain());
    place.passes(&["create", "--bundle", "bundle", "ID"]);
    assert!(!calls.exists());

    // A refresh that fails, or that writes nothing, fails the start.
    place.configure(&request());
    script(
        place.at("bin/tranche"),
        "echo first >&2; echo 'tranche: no driver; install one' >&2; exit 3",
    );
    let line = place.refused(&["create", "--bundle", "bundle", "ID"]);
    assert!(
        line.contains("cdi refresh: failed") && line.contains("no driver; install one"),
        "{line}"
    );
    script(place.at("bin/tranche"), "exit 0");
    let line = place.refused(&["create", "--bundle", "bundle", "ID"]);
    assert!(line.contains("host.json"), "{line}");
    fs::remove_file(place.at("bin/tranche")).unwrap();
    let line = place.refused(&["create", "--bundle", "bundle", "ID"]);
    assert!(
        line.contains("tranche cdi refresh: cannot be run: No such file"),
        "{line}"
    );
    assert!(!is_edited(&place.config()));
}
