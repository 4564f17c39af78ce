//! The defaults, and `nvidia-ctk runtime configure`.

use super::*;

/// The programs of an installation, with the names of NVIDIA's.
fn installed(bed: &Bed) -> PathBuf {
    let bin = bed.at("bin");
    for program in [env!("CARGO_BIN_EXE_tranche"), env!("CARGO_BIN_EXE_tranche-oci")] {
        programs::install(program, bin.join(Path::new(program).file_name().unwrap()));
    }
    symlink("tranche-oci", bin.join("nvidia-ctk")).unwrap();
    bin
}

fn run(bin: &Path, program: &str, words: &[&str]) -> Said {
    let mut command = Command::new(bin.join(program));
    let state = bin.with_file_name("state");
    said(
        command
            .env_clear()
            .env("PATH", bin)
            .env("TRANCHE_STATE_DIR", state)
            .args(words),
    )
}

#[test]
fn the_runtime_beside_the_program_is_the_default() {
    let bed = Bed::new("docker");
    let bin = installed(&bed);
    let config = format!("--config={}", bed.main().display());
    let done = run(&bin, "tranche", &["runtime", "configure", &config]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        done.last(),
        "docker: runtime tranche is configured; run systemctl restart docker to apply it"
    );
    let annotations = "docker: annotations may ask for devices, because no image can write them with this engine";
    assert!(done.err.contains(annotations), "{done:?}");
    let expected = json!({
        "runtimes": {"tranche": {"path": bed.runtime(), "runtimeArgs": []}},
        "features": {"cdi": true}
    });
    assert_eq!(read(&fs::read_to_string(bed.main()).unwrap(), true), expected);
}

#[test]
fn nvidia_ctk_has_the_defaults_of_nvidia() {
    let bed = Bed::new("docker");
    let bin = installed(&bed);
    let config = format!("--config={}", bed.main().display());
    let words = ["--debug", "runtime", "configure", "--runtime=docker", &config];
    let missing = run(&bin, "nvidia-ctk", &words);
    if !Path::new("/usr/bin/nvidia-container-runtime").exists() {
        assert!(
            missing.code == Some(1) && missing.err.contains("nvidia-container-runtime: not found in PATH"),
            "{missing:?}"
        );
        assert!(!bed.main().exists());
    }
    symlink("tranche-oci", bin.join("nvidia-container-runtime")).unwrap();
    let dry = run(&bin, "nvidia-ctk", &[&words[..], &["--dry-run"]].concat());
    let expected = json!({"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}});
    assert_eq!(read(&dry.out, true), expected, "{dry:?}");
    assert!(!bed.main().exists());
    assert_eq!(run(&bin, "nvidia-ctk", &words).code, Some(0));
    assert_eq!(read(&fs::read_to_string(bed.main()).unwrap(), true), expected);

    // Other features stay, which NVIDIA's tool overwrites.
    fs::write(bed.main(), "{\"features\":{\"buildkit\":true}}").unwrap();
    let more = [
        "--cdi.enabled",
        "--nvidia-set-as-default",
        "--nvidia-runtime-name=gpu",
        "--config-mode=config-file",
    ];
    assert_eq!(run(&bin, "nvidia-ctk", &[&words[..], &more].concat()).code, Some(0));
    let value = read(&fs::read_to_string(bed.main()).unwrap(), true);
    assert_eq!(value["features"], json!({"buildkit": true, "cdi": true}));
    assert_eq!(value["default-runtime"], "gpu");
}

#[test]
fn nvidia_ctk_gives_other_engines_a_path() {
    let bed = Bed::new("crio");
    let bin = installed(&bed);
    symlink("tranche-oci", bin.join("nvidia-container-runtime")).unwrap();
    let drop_in = format!("--drop-in-config={}", bed.drop_in().display());
    let config = format!("--config={}", bed.main().display());
    let words = [
        "runtime",
        "configure",
        "--runtime=crio",
        &config,
        &drop_in,
        "--set-as-default",
    ];
    let done = run(&bin, "nvidia-ctk", &words);
    assert_eq!(done.code, Some(0), "{done:?}");
    let value = read(&fs::read_to_string(bed.drop_in()).unwrap(), false);
    let entry = at(&value, &["crio", "runtime", "runtimes", "nvidia"]);
    let path = entry["runtime_path"].as_str().unwrap();
    assert!(
        Path::new(path).is_absolute() && path.ends_with("/nvidia-container-runtime"),
        "{entry}"
    );
    assert_eq!(at(&value, &["crio", "runtime", "default_runtime"]), "nvidia");
}

#[test]
fn a_new_file_of_containerd_has_the_version_of_the_installed_one() {
    for (says, version, plugin) in [
        (
            "containerd github.com/containerd/containerd v1.7.27 x",
            2,
            "io.containerd.grpc.v1.cri",
        ),
        (
            "containerd github.com/containerd/containerd/v2 v2.1.0 x",
            3,
            "io.containerd.cri.v1.runtime",
        ),
    ] {
        let bed = Bed::new("containerd");
        let engine = bed.at("bin/containerd");
        programs::write(
            &engine,
            format!("#!/bin/sh\ncase $1 in --version) echo {says} ;; *) cat \"$2\" ;; esac\n"),
        );
        let option = format!("--executable-path={}", engine.display());
        let done = bed.configure(&[&option]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let value = read(&fs::read_to_string(bed.main()).unwrap(), false);
        assert_eq!(value["version"], version);
        let entry = at(&value, &["plugins", plugin, "containerd", "runtimes", "tranche"]);
        assert_eq!(
            entry["options"]["BinaryName"],
            bed.runtime().to_str().unwrap(),
            "{value}"
        );
    }
}

#[test]
fn the_options_can_come_from_what_the_engine_prints() {
    let bed = Bed::new("containerd");
    fs::write(bed.main(), "version = 3\n").unwrap();
    let engine = bed.at("bin/containerd");
    let printed = "version = 3\\n[plugins.\\\"io.containerd.cri.v1.runtime\\\".containerd.runtimes.runc.options]\\nSystemdCgroup = true\\n";
    programs::write(
        &engine,
        format!(
            "#!/bin/sh\ncase $2 in {}) printf \"{printed}\" ;; *) cat \"$2\" ;; esac\n",
            bed.main().display()
        ),
    );
    let option = format!("--executable-path={}", engine.display());
    assert_eq!(bed.configure(&[&option, "--config-source=command"]).code, Some(0));
    let value = read(&fs::read_to_string(bed.main()).unwrap(), false);
    let entry = at(
        &value,
        &[
            "plugins",
            "io.containerd.cri.v1.runtime",
            "containerd",
            "runtimes",
            "tranche",
        ],
    );
    assert_eq!(entry["options"]["SystemdCgroup"], true);
    assert!(
        value["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
            .as_object()
            .unwrap()
            .len()
            == 1
    );
}
