//! Files that other programs and people change between two runs, and what is kept.

use super::*;

const DAEMON: &str =
    "{\n  \"debug\": true,\n  \"default-runtime\": \"crun\",\n  \"features\": {\"buildkit\": true}\n}\n";

#[test]
fn what_others_added_since_is_kept() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), DAEMON).unwrap();
    assert_eq!(bed.configure(&["--set-as-default"]).code, Some(0));
    let text = fs::read_to_string(bed.main()).unwrap();
    fs::write(
        bed.main(),
        text.replace("\"debug\": true", "\"debug\": true,\n  \"mtu\": 1450"),
    )
    .unwrap();
    let said = bed.unconfigure();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err
            .contains("was changed since; only what tranche wrote is removed"),
        "{said:?}"
    );
    let left = read(&fs::read_to_string(bed.main()).unwrap(), true);
    let expected = json!({"debug": true, "mtu": 1450, "default-runtime": "crun", "features": {"buildkit": true}});
    assert_eq!(left, expected);
    assert_eq!(bed.tree().keys().collect::<Vec<_>>(), ["daemon.json"]);
}

#[test]
fn a_setting_that_was_changed_since_is_kept_and_named() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), DAEMON).unwrap();
    assert_eq!(bed.configure(&["--set-as-default"]).code, Some(0));
    let text = fs::read_to_string(bed.main()).unwrap();
    let changed = text.replace("\"default-runtime\": \"tranche\"", "\"default-runtime\": \"kata\"");
    fs::write(
        bed.main(),
        changed.replace("\"runtimeArgs\": []", "\"runtimeArgs\": [\"--debug\"]"),
    )
    .unwrap();
    let said = bed.unconfigure();
    assert!(
        said.err.contains("default-runtime has another value now and is kept"),
        "{said:?}"
    );
    let left = read(&fs::read_to_string(bed.main()).unwrap(), true);
    // The entry of the runtime belongs to tranche, whatever is in it.
    assert_eq!(
        left,
        json!({"debug": true, "default-runtime": "kata", "features": {"buildkit": true}})
    );
}

#[test]
fn comments_that_were_added_since_are_kept() {
    let bed = Bed::new("containerd");
    let text = "version = 3\n# end\n";
    fs::write(bed.main(), text).unwrap();
    let engine = bed.at("bin/containerd");
    programs::write(&engine, "#!/bin/sh\ncat \"$2\"\n");
    let option = format!("--executable-path={}", engine.display());
    assert_eq!(bed.configure(&[&option]).code, Some(0));
    let text = fs::read_to_string(bed.main()).unwrap();
    let text = text
        .replace("runtime_type", "# why: see ticket 7\nruntime_type")
        .replace("\n[plugins", "\n# GPUs\n[plugins");
    fs::write(bed.main(), &text).unwrap();
    assert!(
        text.contains("# why: see ticket 7") && text.matches("# GPUs").count() == 2,
        "{text}"
    );
    assert_eq!(bed.unconfigure().code, Some(0));
    let left = fs::read_to_string(bed.main()).unwrap();
    assert_eq!(read(&left, false), json!({"version": 3}));
    for comment in ["# end", "# why: see ticket 7", "# GPUs"] {
        assert!(left.contains(comment), "{comment}: {left}");
    }
}

#[test]
fn a_second_configuration_replaces_the_first_and_both_are_taken_back() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), DAEMON).unwrap();
    assert_eq!(bed.configure(&[]).code, Some(0));
    assert_eq!(bed.configure(&["--set-as-default"]).code, Some(0));
    assert_eq!(bed.configure(&["--runtime-name=other"]).code, Some(0));
    let value = read(&fs::read_to_string(bed.main()).unwrap(), true);
    assert_eq!(value["default-runtime"], "tranche");
    assert_eq!(value["runtimes"].as_object().unwrap().len(), 2);
    assert_eq!(bed.unconfigure().code, Some(0));
    assert_eq!(fs::read_to_string(bed.main()).unwrap(), DAEMON);
}

#[test]
fn a_change_by_others_between_two_configurations_is_kept() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), DAEMON).unwrap();
    assert_eq!(bed.configure(&[]).code, Some(0));
    let text = fs::read_to_string(bed.main()).unwrap();
    fs::write(bed.main(), text.replace("\"debug\": true", "\"debug\": false")).unwrap();
    assert_eq!(bed.configure(&["--set-as-default"]).code, Some(0));
    assert_eq!(bed.unconfigure().code, Some(0));
    let left = read(&fs::read_to_string(bed.main()).unwrap(), true);
    assert_eq!(
        left,
        json!({"debug": false, "default-runtime": "crun", "features": {"buildkit": true}})
    );
}

#[test]
fn a_file_that_tranche_created_is_removed_unless_others_use_it() {
    let bed = Bed::new("docker");
    assert_eq!(bed.configure(&[]).code, Some(0));
    assert_eq!(fs::metadata(bed.main()).unwrap().mode() & 0o777, 0o644);
    assert_eq!(bed.unconfigure().code, Some(0));
    assert_eq!(bed.tree().len(), 0);
    for engine in ["docker", "crio"] {
        let bed = Bed::new(engine);
        assert_eq!(bed.configure(&[]).code, Some(0));
        let text = fs::read_to_string(bed.main()).unwrap();
        let (text, left) = match engine {
            "docker" => (text.replacen('{', "{\n  \"debug\": true,", 1), json!({"debug": true})),
            _ => (
                text + "[crio.network]\nnetwork_dir = \"/x\"\n",
                json!({"crio": {"network": {"network_dir": "/x"}}}),
            ),
        };
        fs::write(bed.main(), text).unwrap();
        assert_eq!(bed.unconfigure().code, Some(0));
        let text = fs::read_to_string(bed.main()).unwrap();
        assert_eq!(read(&text, engine == "docker"), left);
    }
    // The file is gone already.
    assert_eq!(bed.configure(&[]).code, Some(0));
    fs::remove_file(bed.main()).unwrap();
    let said = bed.unconfigure();
    assert!(
        said.code == Some(0) && said.err.contains("does not exist any more"),
        "{said:?}"
    );
    assert_eq!(bed.tree().len(), 0);
}

#[test]
fn the_file_behind_a_link_is_changed_and_the_link_stays() {
    let bed = Bed::new("docker");
    let target = bed.at("etc/real.json");
    fs::write(&target, DAEMON).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    if rights::is_root_of_machine() {
        std::os::unix::fs::chown(&target, Some(65534), Some(65534)).unwrap();
    }
    symlink("real.json", bed.main()).unwrap();
    let before = fs::metadata(&target).unwrap();
    assert_eq!(bed.configure(&[]).code, Some(0));
    assert!(fs::symlink_metadata(bed.main()).unwrap().is_symlink());
    let after = fs::metadata(&target).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
    // Nobody else may read the backup of a file that nobody else may read.
    let backup = fs::metadata(bed.at("etc/real.json.before-tranche")).unwrap();
    assert_eq!(backup.mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&target).unwrap().contains("tranche"));
    assert_eq!(bed.unconfigure().code, Some(0));
    assert_eq!(fs::read_to_string(&target).unwrap(), DAEMON);
    assert_eq!(bed.tree().keys().collect::<Vec<_>>(), ["real.json"]);
}

#[test]
fn nothing_is_left_in_a_directory_whose_every_file_is_read() {
    let bed = Bed::new("crio");
    fs::create_dir(bed.at("etc/crio.conf.d")).unwrap();
    assert_eq!(bed.configure_in(true, &[]).code, Some(0));
    let names: Vec<_> = fs::read_dir(bed.at("etc/crio.conf.d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["99-tranche.conf"]);
}

#[test]
fn a_later_drop_in_that_replaces_the_setting_is_refused() {
    let bed = Bed::new("podman");
    fs::create_dir(bed.at("etc/containers.conf.d")).unwrap();
    let later = bed.at("etc/containers.conf.d/zz-site.conf");
    fs::write(&later, "[engine]\nhooks_dir = [\"/etc/site\"]\n").unwrap();
    let said = bed.configure_in(true, &[]);
    assert!(
        said.code == Some(1) && said.err.contains("zz-site.conf: is read after"),
        "{said:?}"
    );
    assert!(!bed.drop_in().exists());
    // Read before it, its list is part of the new one.
    fs::rename(&later, bed.at("etc/containers.conf.d/10-site.conf")).unwrap();
    assert_eq!(bed.configure_in(true, &[]).code, Some(0));
    let new = read(&fs::read_to_string(bed.drop_in()).unwrap(), false);
    assert_eq!(
        new["engine"]["hooks_dir"],
        json!(["/etc/site", "/usr/share/tranche/hooks.d"])
    );
}

#[test]
fn options_of_a_runtime_in_another_drop_in_are_copied() {
    let bed = Bed::new("crio");
    fs::create_dir(bed.at("etc/crio.conf.d")).unwrap();
    let text = "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nmonitor_path = \"/usr/libexec/crio/conmon\"\n\
                runtime_path = \"/usr/libexec/crio/crun\"\n";
    fs::write(bed.at("etc/crio.conf.d/10-crio.conf"), text).unwrap();
    let said = bed.configure_in(true, &[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    // Its program is not in PATH, where tranche would look for one.
    assert!(said.err.contains("/usr/libexec/crio/crun"), "{said:?}");
    let new = read(&fs::read_to_string(bed.drop_in()).unwrap(), false);
    let entry = at(&new, &["crio", "runtime", "runtimes", "tranche"]);
    assert_eq!(entry["monitor_path"], "/usr/libexec/crio/conmon");
    assert_eq!(entry["runtime_path"], bed.runtime().to_str().unwrap());
}

#[test]
fn options_of_a_runtime_in_an_imported_file_are_copied() {
    let bed = Bed::new("containerd");
    fs::create_dir(bed.at("etc/site")).unwrap();
    fs::write(bed.main(), "version = 3\nimports = [\"site/*.toml\"]\n").unwrap();
    let text = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\noptions.SystemdCgroup = true\n";
    fs::write(bed.at("etc/site/runc.toml"), text).unwrap();
    let engine = bed.at("bin/containerd");
    programs::write(
        &engine,
        "#!/bin/sh\ncat \"${2%config.toml}drop-in.toml\" 2> /dev/null || cat \"$2\"\n",
    );
    let option = format!("--executable-path={}", engine.display());
    for drop_in in [true, false] {
        assert_eq!(bed.configure_in(drop_in, &[&option]).code, Some(0));
        let file = if drop_in { bed.drop_in() } else { bed.main() };
        let new = read(&fs::read_to_string(file).unwrap(), false);
        let runtimes = at(
            &new,
            &["plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes"],
        );
        assert_eq!(runtimes["tranche"]["options"]["SystemdCgroup"], true, "{new}");
        assert_eq!(bed.run("unconfigure", &bed.files(drop_in)).code, Some(0));
    }
}

#[test]
fn a_copy_of_a_private_section_is_as_private() {
    let bed = Bed::new("containerd");
    let auth = "[plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"r.example\".auth]\npassword = \"secret\"\n";
    fs::write(bed.main(), format!("version = 2\n{auth}")).unwrap();
    fs::set_permissions(bed.main(), fs::Permissions::from_mode(0o600)).unwrap();
    let engine = bed.at("bin/containerd");
    programs::write(
        &engine,
        "#!/bin/sh\ncat \"${2%config.toml}drop-in.toml\" 2> /dev/null || cat \"$2\"\n",
    );
    let option = format!("--executable-path={}", engine.display());
    assert_eq!(bed.configure_in(true, &[&option]).code, Some(0));
    assert!(fs::read_to_string(bed.drop_in()).unwrap().contains("secret"));
    for (name, (bytes, mode, _)) in bed.tree() {
        let is_private = mode & 0o077 == 0;
        assert!(
            is_private || !String::from_utf8(bytes).unwrap().contains("secret"),
            "{name}: {mode:o}"
        );
    }
}

#[test]
fn a_drop_in_is_taken_back_if_the_main_file_cannot_be_changed() {
    let bed = Bed::new("containerd");
    fs::write(bed.main(), "version = 3\n").unwrap();
    // A directory in the place of the main file's record.
    fs::create_dir_all(bed.at("etc/config.toml.before-tranche/x")).unwrap();
    let engine = bed.at("bin/containerd");
    programs::write(&engine, "#!/bin/sh\ncat \"${2%config.toml}drop-in.toml\"\n");
    let said = bed.configure_in(true, &[&format!("--executable-path={}", engine.display())]);
    assert!(said.code == Some(1) && said.err.lines().count() == 1, "{said:?}");
    assert_eq!(bed.tree().keys().collect::<Vec<_>>(), ["config.toml"]);
}

#[test]
fn the_drop_in_is_beside_the_main_file() {
    let bed = Bed::new("crio");
    let options = [
        "--runtime=crio".to_owned(),
        format!("--config={}", bed.main().display()),
        format!("--runtime-path={}", bed.runtime().display()),
    ];
    let said = bed.run("configure", &options);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(bed.drop_in().exists() && !bed.main().exists());
    assert_eq!(bed.run("unconfigure", &options[..2]).code, Some(0));
    assert_eq!(bed.tree().len(), 0);
}
