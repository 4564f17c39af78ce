//! Files that cannot be changed: one line says why, and nothing is written.

use super::*;

/// Checks that the command fails with one line with `wanted`, and leaves every file as it is.
fn refused(bed: &Bed, done: impl FnOnce(&Bed) -> Said, wanted: &str) {
    let before = bed.tree();
    let said = done(bed);
    assert!(matches!(said.code, Some(1 | 2)), "{wanted}: {said:?}");
    assert_eq!((said.err.lines().count(), &*said.out), (1, ""), "{said:?}");
    assert!(said.err.contains(wanted), "{wanted}: {}", said.err);
    assert_eq!(bed.tree(), before, "{wanted}");
}

#[test]
fn a_file_that_is_not_valid_or_has_another_type_is_refused() {
    for (engine, text, wanted) in [
        (
            "docker",
            "{\"runtimes\": []}",
            "runtimes: expected a table, found a list",
        ),
        (
            "docker",
            "{\"runtimes\": {\"tranche\": 4}}",
            "runtimes.tranche: expected a table, found a number",
        ),
        (
            "docker",
            "{\"features\": \"cdi\"}",
            "features: expected a table, found a string",
        ),
        (
            "docker",
            "{\"default-runtime\": {}}",
            "default-runtime: expected a string, found a table",
        ),
        (
            "docker",
            "\u{feff}{}",
            "begins with a byte order mark (EF BB BF), which not every version of the engine reads",
        ),
        ("podman", "\u{feff}[engine]\n", "begins with a byte order mark"),
        ("docker", "[1]", "expected a JSON object"),
        ("docker", "{\"dns\": [\"1.1.1.1\"}", "not valid JSON"),
        ("docker", "{\"dns\": [\"1.1.1.1\"],}", "not valid JSON"),
        ("docker", "// comment\n{}", "not valid JSON"),
        (
            "docker",
            "{\"debug\": true, \"runtimes\": {}, \"debug\": false}",
            "\"debug\" is in one object twice",
        ),
        ("containerd", "[plugins]\n[plugins.cri]\n", "which means version 1"),
        ("containerd", "version = 1\n", "is of version 1"),
        ("containerd", "version = 9\n", "version 9 is not known"),
        ("containerd", "version = \"2\"\n", "is not known"),
        ("containerd", "disabled_plugins = [\"cri\"]\n", "this file is docker's"),
        (
            "containerd",
            "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
            "disabled_plugins",
        ),
        (
            "containerd",
            "version = 3\n[plugins]\n\"io.containerd.cri.v1.runtime\" = 3\n",
            "expected a table, found a number",
        ),
        (
            "containerd",
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\ntranche = [1]\n",
            "runtimes.tranche: expected a table, found a list",
        ),
        ("containerd", "version = 2\nversion = 2\n", "not valid TOML: line 2"),
        (
            "crio",
            "[crio]\nruntime = 3\n",
            "crio.runtime: expected a table, found a number",
        ),
        (
            "crio",
            "[crio.runtime]\ndefault_runtime = true\n",
            "expected a string, found true or false",
        ),
        ("crio", "[crio\n", "not valid TOML: line 1"),
        (
            "podman",
            "[engine]\nhooks_dir = \"/x\"\n",
            "engine.hooks_dir: expected a list of strings, found a string",
        ),
        (
            "podman",
            "[engine]\nhooks_dir = [1]\n",
            "engine.hooks_dir: expected a list of strings",
        ),
        (
            "podman",
            "[engine.runtimes]\ntranche = \"x\"\n",
            "engine.runtimes.tranche: expected a list",
        ),
    ] {
        let bed = Bed::new(engine);
        fs::write(bed.main(), text).unwrap();
        refused(&bed, |bed| bed.configure(&["--set-as-default"]), wanted);
    }
}

#[test]
fn the_imports_of_containerd_must_be_a_list_for_a_drop_in() {
    let bed = Bed::new("containerd");
    fs::write(bed.main(), "version = 3\nimports = 3\n").unwrap();
    refused(
        &bed,
        |bed| bed.configure_in(true, &[]),
        "imports: expected a list of strings, found a number",
    );
}

#[test]
fn what_is_not_a_text_file_is_refused() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), b"{\"a\": \"\xff\"}").unwrap();
    refused(&bed, |bed| bed.configure(&[]), "is not valid UTF-8 (byte 7)");
    fs::remove_file(bed.main()).unwrap();
    fs::create_dir(bed.main()).unwrap();
    refused(&bed, |bed| bed.configure(&[]), "is not a regular file");
    fs::remove_dir(bed.main()).unwrap();
    symlink("/nonexistent/daemon.json", bed.main()).unwrap();
    refused(
        &bed,
        |bed| bed.configure(&[]),
        "the file behind the link cannot be found",
    );
    fs::remove_file(bed.main()).unwrap();
    nix::unistd::mkfifo(&bed.main(), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    refused(&bed, |bed| bed.configure(&[]), "is not a regular file");
    fs::remove_file(bed.main()).unwrap();
    fs::write(bed.main(), " ".repeat((4 << 20) + 1)).unwrap();
    refused(&bed, |bed| bed.configure(&[]), "has more than");
}

#[test]
fn a_missing_runtime_is_never_configured() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), "{}").unwrap();
    fs::remove_file(bed.runtime()).unwrap();
    refused(
        &bed,
        |bed| bed.configure(&[]),
        "must not be configured with a missing runtime",
    );
    fs::write(bed.runtime(), "text").unwrap();
    refused(&bed, |bed| bed.configure(&[]), "is not an executable file");
    refused(
        &bed,
        |bed| bed.configure(&["--runtime-name=runc"]),
        "is the name of a low-level runtime",
    );
    refused(&bed, |bed| bed.configure(&["--runtime-name=a b"]), "expected letters");
    let relative = [bed.files(false), vec!["--runtime-path=bin/tranche-runtime".to_owned()]].concat();
    refused(&bed, |bed| bed.run("configure", &relative), "path is not absolute");
    let own = bed.files(false);
    // No such program is beside the one that the tests run.
    if !Path::new(env!("CARGO_BIN_EXE_tranche"))
        .with_file_name("tranche-runtime")
        .exists()
    {
        refused(
            &bed,
            |bed| bed.run("configure", &own),
            "tranche-runtime: is not an executable file",
        );
    }
}

#[test]
fn what_the_engine_refuses_is_not_installed() {
    let bed = Bed::new("containerd");
    fs::write(bed.main(), "version = 3\n").unwrap();
    let engine = bed.at("bin/containerd");
    let option = format!("--executable-path={}", engine.display());
    programs::write(
        &engine,
        "#!/bin/sh\necho 'level=warning msg=odd' >&2\necho 'containerd: fatal: no' >&2\nexit 1\n",
    );
    for drop_in in [false, true] {
        refused(
            &bed,
            |bed| bed.configure_in(drop_in, &[&option]),
            "refuses the changed file: containerd: fatal: no;",
        );
    }
    programs::write(&engine, "#!/bin/sh\necho 'version = 3'\n");
    refused(
        &bed,
        |bed| bed.configure(&[&option]),
        "does not find the runtime tranche in the changed file",
    );
    refused(
        &bed,
        |bed| bed.configure(&[&option]),
        "if the file is for another version of the engine, name its program with --executable-path",
    );
    refused(
        &bed,
        |bed| bed.configure(&["--executable-path=/nonexistent"]),
        "is not an executable file",
    );
}

/// The containerd of the distribution's package reads no file of k3s' own, newer one (nvidia-container-toolkit#982).
#[test]
fn a_file_of_k3s_is_for_its_own_containerd() {
    let bed = Bed::new("containerd");
    let engine = bed.at("bin/containerd");
    for (file, program) in [
        (
            "etc/rancher/k3s/agent/etc/containerd/config.toml",
            "/var/lib/rancher/k3s/data/current/bin/containerd",
        ),
        (
            "etc/rancher/rke2/agent/etc/containerd/config.toml",
            "/var/lib/rancher/rke2/bin/containerd",
        ),
        ("etc/k0s/containerd.toml", "/var/lib/k0s/bin/containerd"),
    ] {
        let config = bed.at(file);
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(&config, "version = 3\n").unwrap();
        let options = [
            "--runtime=containerd".to_owned(),
            format!("--config={}", config.display()),
            "--drop-in-config=".to_owned(),
            format!("--runtime-path={}", bed.runtime().display()),
            format!("--executable-path={}", engine.display()),
        ];
        for answer in ["echo 'version = 2'", "echo 'containerd: fatal: version 3' >&2; exit 1"] {
            programs::write(&engine, format!("#!/bin/sh\n{answer}\n"));
            let wanted = format!("this file is for a containerd of its own: add --executable-path {program}");
            refused(&bed, |bed| bed.run("configure", &options), &wanted);
        }
    }
}

/// dockerd takes null for a table that is absent.
#[test]
fn a_null_is_an_absent_table() {
    let bed = Bed::new("docker");
    fs::write(
        bed.main(),
        "{\"runtimes\": null, \"features\": null, \"debug\": true}\n",
    )
    .unwrap();
    let said = bed.configure(&[]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let written: Value = serde_json::from_slice(&fs::read(bed.main()).unwrap()).unwrap();
    assert!(written["runtimes"]["tranche"]["path"].is_string(), "{written}");
    assert_eq!(
        (&written["features"]["cdi"], &written["debug"]),
        (&true.into(), &true.into())
    );
    assert_eq!(bed.unconfigure().code, Some(0));
    let text = fs::read_to_string(bed.main()).unwrap();
    assert_eq!(text, "{\"runtimes\": null, \"features\": null, \"debug\": true}\n");
}

/// The name of the present program, the test that needs it, and whether it is there.
fn has(program: &str, test: &str) -> bool {
    let found = ["/usr/sbin", "/usr/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file());
    if !found {
        skip::not_run(
            &format!("runtime_configure::bad::{test}"),
            &format!("not installed: {program}"),
        );
    }
    found
}

#[test]
fn the_installed_engines_refuse_what_they_cannot_read() {
    let test = "the_installed_engines_refuse_what_they_cannot_read";
    if has("containerd", test) {
        let bed = Bed::new("containerd");
        let text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = 3\n";
        fs::write(bed.main(), text).unwrap();
        refused(&bed, |bed| bed.configure(&[]), "containerd refuses the changed file: ");
    }
    if has("podman", test) {
        let bed = Bed::new("podman");
        fs::write(bed.main(), "[engine]\ncgroup_manager = 3\n").unwrap();
        // The change is not what podman refuses.
        refused(
            &bed,
            |bed| bed.configure(&[]),
            "podman refuses the file as it is now, too: ",
        );
    }
}

/// containerd 1.6 replaces the section of a plugin by that of an imported file, so the runtime in the main file is
/// lost.
#[test]
fn an_import_that_hides_the_runtime_is_found_by_the_installed_containerd() {
    let test = "an_import_that_hides_the_runtime_is_found_by_the_installed_containerd";
    if !has("containerd", test) {
        return;
    }
    let version = said(Command::new("containerd").arg("--version")).out;
    if !version.contains(" 1.") && !version.contains(" v1.") {
        skip::not_run(&format!("runtime_configure::bad::{test}"), "needs containerd 1");
        return;
    }
    let bed = Bed::new("containerd");
    fs::create_dir(bed.at("etc/conf.d")).unwrap();
    fs::write(bed.main(), "version = 2\nimports = [\"conf.d/*.toml\"]\n").unwrap();
    let other = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"x\"\n";
    fs::write(bed.at("etc/conf.d/99-other.toml"), other).unwrap();
    refused(
        &bed,
        |bed| bed.configure(&[]),
        "another file of its configuration replaces that section",
    );
    fs::remove_file(bed.at("etc/conf.d/99-other.toml")).unwrap();
    assert_eq!(bed.configure(&[]).code, Some(0));
}

/// Runs the command with the engine's directory as a small file system, after `before`.
fn on_small_disk(test: &str, before: &str, wanted: &str) {
    if !rights::is_root_of_machine() {
        skip::not_run(&format!("runtime_configure::bad::{test}"), "not root: cannot mount");
        return;
    }
    let bed = Bed::new("docker");
    let etc = bed.at("etc").display().to_string();
    let script = format!(
        "set -e; mount -t tmpfs -o size=16k tmpfs {etc}; cd {etc}; printf '{{\"debug\": true}}' > daemon.json; {before}; \
         ls -A > ../before; {} runtime configure --config {etc}/daemon.json --runtime-path {} && exit 9; cat daemon.json; \
         ls -A | cmp - ../before && echo; echo same",
        env!("CARGO_BIN_EXE_tranche"),
        bed.runtime().display(),
    );
    let said = said(Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]));
    assert_eq!(
        (said.code, &*said.out),
        (Some(0), "{\"debug\": true}\nsame\n"),
        "{said:?}"
    );
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert!(said.err.contains(wanted), "{said:?}");
}

#[test]
fn a_full_disk_leaves_the_file() {
    let fill = "dd if=/dev/zero of=fill bs=4k 2> /dev/null || true";
    on_small_disk("a_full_disk_leaves_the_file", fill, "No space left on device");
}

#[test]
fn a_read_only_directory_leaves_the_file() {
    let test = "a_read_only_directory_leaves_the_file";
    on_small_disk(test, "mount -o remount,ro .", "Read-only file system");
}

#[test]
fn a_broken_record_is_named() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), "{}").unwrap();
    assert_eq!(bed.configure(&[]).code, Some(0));
    let record = bed.at("etc/daemon.json.tranche.json");
    let text = fs::read_to_string(&record).unwrap();
    for (broken, wanted) in [
        ("{".to_owned(), "daemon.json.tranche.json: is not a record of tranche"),
        (text.replace("\"version\": 1", "\"version\": 7"), "is of version 7"),
    ] {
        fs::write(&record, broken).unwrap();
        refused(&bed, Bed::unconfigure, wanted);
    }
    fs::write(&record, text).unwrap();
    fs::remove_file(bed.at("etc/daemon.json.before-tranche")).unwrap();
    refused(&bed, Bed::unconfigure, "the backup cannot be read");
}

#[test]
fn docker_has_no_drop_ins_and_hooks_are_no_mode() {
    let bed = Bed::new("docker");
    fs::write(bed.main(), "{}").unwrap();
    refused(&bed, |bed| bed.configure_in(true, &[]), "docker reads no drop-ins");
    refused(
        &bed,
        |bed| bed.configure(&["--config-mode=oci-hook"]),
        "a prestart hook runs too late",
    );
    let bed = Bed::new("crio");
    let options = [
        bed.files(false),
        vec![format!("--runtime-path={}", bed.runtime().display())],
    ]
    .concat();
    let relative = [&options[..], &["--drop-in-config=x.conf".to_owned()]].concat();
    refused(
        &bed,
        |bed| bed.run("configure", &relative[1..]),
        // The last one counts, as in NVIDIA's tool.
        "--drop-in-config x.conf: docker reads no drop-ins",
    );
}
