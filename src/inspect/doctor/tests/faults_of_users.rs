//! Faults that people had: of rights, of room, of policies that give nothing, and of what other programs leave.

use super::*;
use crate::engine_config::document::{ConfigFile, Syntax};
use crate::engine_config::view::EngineView;
use tranche_plan::engines::Engine;
use tranche_plan::inventory::{MigMode, MigState, Warning, WarningKind};

fn replaceable(path: &str, part: &str, by: OtherWriter, link: Option<&str>) -> Replaceable {
    Replaceable {
        path: path.into(),
        part: part.into(),
        by,
        link: link.map(PathBuf::from),
    }
}

/// The fix for something that others can write.
fn others_can_write(trusted: Trusted, one: Replaceable, text: &str) -> Fix {
    fires(Finding::OthersCanWrite, text, |subject, top| {
        write(
            top,
            "/etc/passwd",
            "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/data/ann:/bin/sh\n",
        );
        let below = |path: &Path| top.join(path.strip_prefix("/").unwrap());
        let part = if one.part.starts_with("/data") {
            below(&one.part)
        } else {
            one.part.clone()
        };
        subject.replaceable = Some(vec![(trusted, Replaceable { part, ..one.clone() })]);
    })
}

#[test]
fn what_root_s_engines_trust_is_given_back_to_root() {
    use Trusted::{EngineFile, Policy, Program, Specification};
    let nobody = OtherWriter::Owner(65534);
    let spec = replaceable("/etc/cdi/tranche.yaml", "/etc/cdi", nobody, None);
    let says = "/etc/cdi belongs to user 65534, who can replace /etc/cdi/tranche.yaml";
    let fix = others_can_write(Specification, spec, says);
    assert_eq!(fix, Fix::command("chown root: /etc/cdi && chmod go-w /etc/cdi"));
    let open = replaceable("/run/cdi/a.yaml", "/run/cdi/a.yaml", OtherWriter::Mode(0o666), None);
    let fix = others_can_write(
        Specification,
        open,
        "has mode 0666, so a user other than root can change it",
    );
    assert_eq!(fix, Fix::command("chmod go-w /run/cdi/a.yaml"));
    let policy = replaceable(
        "/etc/c.yaml",
        "/data/ann",
        OtherWriter::Owner(1000),
        Some("/etc/c.yaml"),
    );
    let fix = others_can_write(Policy, policy, "belongs to user 1000, who can replace /etc/c.yaml");
    assert!(
        fix.text()
            .ends_with("cp --remove-destination \"$(readlink -f /etc/c.yaml)\" /etc/c.yaml"),
        "{fix:?}"
    );
    let linked = replaceable(
        "/etc/cdi/a.yaml",
        "/data/ann",
        OtherWriter::Owner(1000),
        Some("/etc/cdi"),
    );
    let fix = others_can_write(Specification, linked, "can replace /etc/cdi/a.yaml");
    assert!(fix.text().contains("in the place of the link /etc/cdi"), "{fix:?}");
    // The home of a user stays the user's.
    let home = replaceable("/data/ann/c.yaml", "/data/ann", OtherWriter::Owner(1000), None);
    let fix = others_can_write(Policy, home, "belongs to user 1000");
    assert!(fix.text().starts_with("keep it in a directory of root's"), "{fix:?}");
    let program = replaceable("/opt/t/tranche-oci", "/opt/t", OtherWriter::Mode(0o777), None);
    let fix = others_can_write(Program, program, "/opt/t has mode 0777");
    assert!(
        fix.text()
            .starts_with("install /opt/t/tranche-oci where root alone can write"),
        "{fix:?}"
    );
    let missing = replaceable("/tmp/cdi", "/tmp", OtherWriter::Mode(0o1777), None);
    let fix = others_can_write(EngineFile, missing, "/tmp has mode 1777");
    assert!(fix.text().starts_with("make /tmp/cdi as root"), "{fix:?}");
}

#[test]
fn a_directory_that_others_can_write_is_one_result() {
    let of = |path: &str| replaceable(path, "/etc/cdi", OtherWriter::Mode(0o777), None);
    fires(
        Finding::OthersCanWrite,
        "/etc/cdi/a.yaml, /etc/cdi/b.yaml",
        |subject, _| {
            let both = ["/etc/cdi/a.yaml", "/etc/cdi/b.yaml"].map(|path| (Trusted::Specification, of(path)));
            subject.replaceable = Some(both.into());
            assert_eq!(faults(subject).len(), 1);
        },
    );
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    subject.replaceable = None;
    assert_eq!(
        faults(&subject),
        [],
        "in a user namespace without root, owners say nothing"
    );
}

#[test]
fn programs_that_the_kernel_does_not_execute() {
    let program = |path: &str, why| UnusableProgram {
        path: path.into(),
        named_by: vec!["/etc/docker/daemon.json".to_owned()],
        why,
    };
    let says = "/usr/bin/tranche-runtime has mode 0644, and /etc/docker/daemon.json executes it";
    let fix = fires(Finding::ProgramNotExecutable, says, |subject, _| {
        subject.unusable_programs = vec![program("/usr/bin/tranche-runtime", Unusable::Mode(0o644))];
    });
    assert_eq!(fix, Fix::command("chmod 0755 /usr/bin/tranche-runtime"));
    let says = "/mnt is mounted with noexec, and has /mnt/a, /mnt/b";
    let fix = fires(Finding::ProgramNotExecutable, says, |subject, _| {
        let both = ["/mnt/a", "/mnt/b"].map(|path| program(path, Unusable::NoExec("/mnt".into())));
        subject.unusable_programs = both.into();
        assert_eq!(faults(subject).len(), 1);
    });
    assert!(fix.text().contains("mount -o remount,exec /mnt"), "{fix:?}");
}

#[test]
fn a_file_system_without_room_stops_what_writes_to_it() {
    for (lack, says, fix) in [
        (Lack::Bytes(0), "/run has 0 free bytes", "free some"),
        (Lack::Files, "/run can have no more files", "remove some"),
        (Lack::ReadOnly, "/run is mounted read-only", "mount -o remount,rw /run"),
    ] {
        let found = fires(Finding::NoRoom, says, |subject, _| {
            let directories = ["/run/tranche", "/run/cdi"];
            let of = |directory: &str| NoRoom {
                directory: directory.into(),
                at: "/run".into(),
                lack,
            };
            subject.without_room = Some(directories.map(of).into());
            assert_eq!(faults(subject).len(), 1);
        });
        assert!(found.text().starts_with(fix), "{found:?}");
    }
}

#[test]
fn a_refresh_is_the_fix_only_where_it_would_write() {
    let stale = |change: fn(&mut DoctorSubject)| {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        let header = tranche_plan::cdi::header::REFRESHED;
        let spec = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: a, containerEdits: {env: [A=B]}}]\n";
        let file = subject.spec_dirs[0].join("tranche.yaml");
        fs::write(&file, format!("# {header}\n{spec}")).unwrap();
        subject.registry = Registry::read(&subject.spec_dirs);
        subject.stale = vec![Problem::new(&file, None, "stale: the driver has changed")];
        change(&mut subject);
        let results = examine(&subject);
        let found = results.iter().find(|one| one.check == "age of specifications").unwrap();
        found.diagnosis.fault().unwrap().fix.clone()
    };
    assert_eq!(stale(|_| ()), Fix::safe(&["cdi", "refresh"]));
    let first = |fix: Fix, finding: &str| {
        let expected = format!("correct the result {finding} first; then run tranche cdi refresh");
        assert_eq!(fix, Fix::by_hand(expected));
    };
    let silent = stale(|subject| {
        let (device, why) = ("gpu 1".to_owned(), "does not answer".to_owned());
        subject.inventory.degraded = vec![Degraded::Device { device, why }];
    });
    first(silent, "device-lost");
    let full = stale(|subject| {
        let (directory, at) = ("/run/cdi".into(), "/run".into());
        subject.without_room = Some(vec![NoRoom {
            directory,
            at,
            lack: Lack::Bytes(0),
        }]);
    });
    first(full, "no-room");
    let refused = || FoundError {
        found: "x".to_owned(),
        hint: None,
    };
    first(
        stale(|subject| {
            subject.policy.invalid = Some(FoundError {
                found: "x".to_owned(),
                hint: None,
            })
        }),
        "policy-invalid",
    );
    let mut subject = healthy(tempfile::tempdir().unwrap().path());
    subject.policy.unfit = Some(refused());
    first(subject.refresh(), "policy-unfit");
    subject.state = Some(Err(refused()));
    first(subject.refresh(), "state-unsafe");
    subject.inventory.nodes.control.clear();
    first(subject.refresh(), "module-not-loaded");
}

/// A refresh leaves out what another program's file has, and ends at a file of tranche cdi generate.
#[test]
fn two_files_of_one_device_stop_a_refresh_only_if_one_was_generated() {
    let fix_beside = |header: &str| {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        let spec = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: \"0\", containerEdits: {env: [A=B]}}]\n";
        let refreshed = tranche_plan::cdi::header::REFRESHED;
        let made_by = tranche_plan::cdi::header::made_by();
        for (name, header) in [
            ("tranche.yaml", format!("# {made_by}\n# {refreshed}")),
            ("other.yaml", header.to_owned()),
        ] {
            fs::write(subject.spec_dirs[0].join(name), format!("{header}\n{spec}")).unwrap();
        }
        fs::remove_file(subject.spec_dirs[0].join("nvidia.json")).unwrap();
        subject.registry = Registry::read(&subject.spec_dirs);
        assert!(
            faults(&subject)
                .iter()
                .any(|(_, found)| found.contains("engines ignore them in every file"))
        );
        subject.refresh()
    };
    assert_eq!(fix_beside("# by another program"), Fix::safe(&["cdi", "refresh"]));
    let generated = format!("# {}", tranche_plan::cdi::header::made_by());
    assert!(
        fix_beside(&generated)
            .text()
            .starts_with("correct the result spec-conflict first")
    );
}

#[test]
fn a_specification_of_refresh_in_another_directory_is_removed() {
    let spec = |name: &str| {
        let header = tranche_plan::cdi::header::REFRESHED;
        format!(
            "# {header}\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{{name: \"{name}\", containerEdits: {{env: [A=B]}}}}]\n"
        )
    };
    for (is_left_over, command) in [(true, "rm FILE"), (false, "rm FILE && tranche cdi refresh")] {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        let (first, last) = (top.path().join("etc"), top.path().join("run"));
        for directory in [&first, &last] {
            fs::create_dir(directory).unwrap();
        }
        let file = first.join("tranche.yaml");
        fs::write(&file, spec("0")).unwrap();
        if is_left_over {
            fs::write(last.join("tranche.yaml"), spec("0")).unwrap();
        }
        subject.spec_dirs = vec![first, last];
        subject.registry = Registry::read(&subject.spec_dirs);
        subject.stale = vec![Problem::new(&file, None, "stale: the driver has changed")];
        let results = examine(&subject);
        let found: Vec<&Trouble> = results.iter().filter_map(|one| one.diagnosis.fault()).collect();
        let [one] = found[..] else {
            panic!("one cause is one result: {found:?}")
        };
        assert_eq!(one.finding, Finding::SpecStale);
        let shown = file.display().to_string();
        assert_eq!(one.fix, Fix::command(command.replace("FILE", &shown)));
    }
}

#[test]
fn a_policy_that_gives_nothing() {
    let policy = |entries, says_more| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.policy.file = Some("/etc/tranche/config.yaml".to_owned());
            (subject.policy.entries, subject.policy.says_more) = (entries, says_more);
        }
    };
    fires(Finding::PolicyEmpty, "config.yaml shares no device", policy(0, false));
    fires(
        Finding::PolicyEmpty,
        "this host has none of these devices",
        policy(2, false),
    );
    is_good("policy", "0 shares", policy(0, true));
}

#[test]
fn a_change_of_mig_that_waits_for_a_reset() {
    let change = |current, pending, gpus: usize| {
        move |subject: &mut DoctorSubject, _: &Path| {
            for gpu in subject.inventory.gpus.iter_mut().take(gpus) {
                gpu.mig = Some(MigState { current, pending });
            }
        }
    };
    let (on, off) = (MigMode::Enabled, MigMode::Disabled);
    let says = "MIG mode is to be turned on with the next reset of gpu 0, gpu 1";
    let fix = fires(Finding::MigPending, says, change(off, on, 2));
    assert!(fix.text().contains("nvidia-smi --gpu-reset"), "{fix:?}");
    is_good("MIG mode", "no change waits", change(off, off, 1));
}

#[test]
fn what_other_programs_left() {
    let hook = r#"{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}}"#;
    let path = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json";
    let fix = fires(Finding::NvidiaHook, path, |_, top| write(top, path, hook));
    assert_eq!(fix, Fix::command(format!("mv {path} {path}.off")));
    is_good("NVIDIA's hook", "no file", |_, top| {
        write(
            top,
            "/etc/containers/oci/hooks.d/other.json",
            r#"{"hook": {"path": "/bin/true"}}"#,
        );
        write(top, &format!("{path}.off"), hook);
    });
    let results = {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        write(top.path(), path, hook);
        subject.policy.devices = 1;
        examine(&subject)
    };
    let found = results.iter().find(|one| one.check == "NVIDIA's hook").unwrap();
    assert!(
        matches!(found.diagnosis, Diagnosis::Wrong(_)),
        "past a policy: {found:?}"
    );
    fires(Finding::EngineInSnap, "/snap/docker/current", |_, top| {
        write(top, "/snap/docker/current", "")
    });
    fires(
        Finding::LibrariesMixed,
        "/usr/lib/libcuda.so.1 is /usr/lib/libcuda.so.535.1",
        |subject, _| {
            let (link, file) = ("/usr/lib/libcuda.so.1".into(), "/usr/lib/libcuda.so.535.1".into());
            subject.other_libraries = vec![OtherLibrary { link, file }];
        },
    );
}

fn file(engine: Engine, text: &str) -> (Engine, Result<EngineView, FoundError>) {
    let file = ConfigFile::read(engine.facts().file, Syntax::of(engine), text);
    let view = file.and_then(|file| EngineView::of(engine, &file));
    (engine, view.map_err(|error| FoundError::of(&error).without_hint()))
}

#[test]
fn a_command_that_the_file_of_an_engine_refuses_is_no_fix() {
    // containerd 1 does not start with such a file, and no change of it helps.
    let version_3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n";
    let says = "is of version 3, and containerd 1.7.33 reads version 2 and older";
    let fix = fires(Finding::EngineConfigInvalid, says, |subject, _| {
        subject.engines = vec![engine("containerd", "1.7.33")];
        subject.engine_files = vec![file(Engine::Containerd, version_3)];
    });
    assert!(
        !fix.is_command() && fix.text().contains("containerd config default"),
        "{fix:?}"
    );
    is_good("configuration of engines", "CDI is on", |subject, _| {
        subject.engines = vec![engine("containerd", "2.1.9")];
        subject.engine_files = vec![file(Engine::Containerd, version_3)];
    });
    let refused = |hint: &str| FoundError {
        found: "/etc/containerd/config.toml: has no version".to_owned(),
        hint: Some(hint.to_owned()),
    };
    let fix = fires(Finding::EngineCdiOff, "CDI is off by default", |subject, _| {
        subject.engines = vec![engine("containerd", "1.7.33")];
        subject.engine_files = vec![file(Engine::Containerd, "root = '/x'\n")];
        subject.unchangeable = vec![(Engine::Containerd, refused("run containerd config migrate"))];
    });
    assert!(
        !fix.is_command()
            && fix
                .text()
                .starts_with("run containerd config migrate; then run tranche"),
        "{fix:?}"
    );
    // The file of docker's package: its containerd starts no pods.
    for version in ["1.6.20", "1.7.33"] {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        subject.engines = vec![engine("containerd", version)];
        subject.engine_files = vec![file(Engine::Containerd, "disabled_plugins = ['cri']\n")];
        subject.unchangeable = vec![(Engine::Containerd, refused("this file is docker's"))];
        assert_eq!(faults(&subject), [], "{version}");
    }
}

#[test]
fn the_runtime_of_another_program_is_not_removed_by_tranche() {
    let text = r#"{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}"#;
    let fix = fires(
        Finding::EngineRuntimeMissing,
        "nvidia-container-runtime",
        |subject, _| {
            subject.engine_files = vec![file(Engine::Docker, text)];
        },
    );
    assert!(
        fix.text()
            .contains("tranche runtime configure --runtime docker --set-as-default"),
        "{fix:?}"
    );
    assert!(!fix.text().contains("unconfigure"), "{fix:?}");
}

#[test]
fn eight_gpus_that_lack_the_same_are_one_result() {
    let device = |gpu: usize, why: &str| Degraded::Device {
        device: format!("gpu {gpu}"),
        why: why.to_owned(),
    };
    fires(
        Finding::DeviceLost,
        "gpu 0 does not answer, gpu 1 does not answer",
        |subject, _| {
            subject.inventory.degraded = (0..8).map(|gpu| device(gpu, "does not answer")).collect();
            assert_eq!(faults(subject).len(), 1);
        },
    );
    // The module is the cause of all nodes.
    fires(Finding::ModuleNotLoaded, "nvidia is not loaded", |subject, _| {
        subject.inventory.nodes.control.clear();
        subject.inventory.degraded = (0..8)
            .map(|gpu| device(gpu, "has no device node /dev/nvidia0"))
            .collect();
        assert_eq!(faults(subject).len(), 1);
    });
    let fix = fires(Finding::NodeWrong, "/dev/nvidia1 is 195:9", |subject, _| {
        let text = "is 195:9, expected 195:1: it is left out";
        let wrong = |node: &str| Warning {
            kind: WarningKind::WrongNode,
            ..Warning::new(node, text)
        };
        subject.inventory.warnings = vec![wrong("/dev/nvidia0"), wrong("/dev/nvidia1")];
        assert_eq!(faults(subject).len(), 1);
    });
    assert_eq!(
        fix.text(),
        "rm -r /dev/nvidia0 /dev/nvidia1 && tranche system create-device-nodes"
    );
    let fix = fires(
        Finding::ComputeModeChanged,
        "gpu 0 ExclusiveProcess, gpu 1 ExclusiveProcess",
        |subject, _| {
            for gpu in &mut subject.inventory.gpus {
                gpu.compute_mode = Some(ComputeMode::ExclusiveProcess);
            }
            assert_eq!(faults(subject).len(), 1);
        },
    );
    assert!(fix.text().ends_with("nvidia-smi -i 0,1 -c DEFAULT"), "{fix:?}");
    let says = "nvidia.com/gpu=0, nvidia.com/gpu=1: an earlier version of tranche started the MPS daemon";
    fires(Finding::MpsEarlierVersion, says, |subject, _| {
        let of = |gpu| (format!("nvidia.com/gpu={gpu}"), DaemonCondition::OfEarlierVersion);
        subject.mps.managed = (0..2).map(of).collect();
        assert_eq!(faults(subject).len(), 1);
    });
    fires(Finding::MigEmpty, "without instances: gpu 0, gpu 1", |subject, _| {
        let on = MigMode::Enabled;
        for gpu in &mut subject.inventory.gpus {
            gpu.mig = Some(MigState {
                current: on,
                pending: on,
            });
        }
        assert_eq!(faults(subject).len(), 1);
    });
}

#[test]
fn a_library_that_the_driver_lost_is_one_result() {
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    let header = tranche_plan::cdi::header::REFRESHED;
    let spec = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: a, containerEdits: {env: [A=B]}}]\n\
                containerEdits: {mounts: [{hostPath: /nowhere/libcuda.so.570.1, containerPath: /x}]}\n";
    fs::write(subject.spec_dirs[0].join("tranche.yaml"), format!("# {header}\n{spec}")).unwrap();
    subject.registry = Registry::read(&subject.spec_dirs);
    subject.registry.check_references();
    let soname = "libcuda.so.1".to_owned();
    let files = vec![soname.clone()];
    subject.inventory.degraded = vec![Degraded::Library { soname }, Degraded::Lost { files }];
    let results = examine(&subject);
    let found: Vec<Finding> = results
        .iter()
        .filter_map(|one| Some(one.diagnosis.fault()?.finding))
        .collect();
    assert_eq!(found, [Finding::LibraryMissing]);
}

#[test]
fn versions_with_a_known_fault() {
    let driver = |version: &'static str| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.inventory.driver.as_mut().unwrap().version = version.parse().unwrap();
        }
    };
    let says = "driver 595.71.05: if a process that CRIU restored is killed, the whole host hangs";
    fires(Finding::KnownFault, says, driver("595.71.05"));
    is_good("known faults", "none is known", driver("595.71.06"));
    let on_arm = |subject: &mut DoctorSubject, top: &Path| {
        driver("580.178.04")(subject, top);
        subject.architecture = Some("aarch64");
    };
    fires(
        Finding::KnownFault,
        "driver 580.178.04: cuda-checkpoint is not supported on ARM",
        on_arm,
    );
    is_good("known faults", "none is known", driver("580.178.04"));
    let without_persistence = |subject: &mut DoctorSubject, top: &Path| {
        driver("565.77")(subject, top);
        subject.inventory.gpus[0].persistence = Some(false);
    };
    let fix = fires(
        Finding::KnownFault,
        "driver 565.77: cuda-checkpoint resumes",
        without_persistence,
    );
    assert!(fix.text().contains("nvidia-smi -pm 1"), "{fix:?}");
    is_good("known faults", "none is known", driver("565.77"));
    let others = |name: &'static str, version: &'static str| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.other_programs = vec![(name, Some(version.parse().unwrap()))];
        }
    };
    let fix = fires(
        Finding::KnownFault,
        "nvidia-ctk 1.17.4: ",
        others("nvidia-ctk", "1.17.4"),
    );
    assert!(
        fix.text()
            .ends_with("if the distribution has not corrected the older version"),
        "{fix:?}"
    );
    fires(Finding::KnownFault, "(CVE-2026-24260)", others("nvidia-ctk", "1.17.8"));
    is_good("known faults", "none is known", others("nvidia-ctk", "1.20.1"));
    fires(Finding::KnownFault, "containerd 2.2.4: ", |subject, _| {
        subject.engines = vec![engine("containerd", "2.2.4")];
    });
    is_good("known faults", "none is known", |subject, _| {
        subject.engines = vec![engine("containerd", "2.2.5")];
    });
}

#[test]
fn a_module_is_loaded_only_where_the_kernel_has_it() {
    let without = |kernel: Option<&'static str>| {
        fires(Finding::ModuleNotLoaded, "nvidia is not loaded", |subject, _| {
            subject.inventory.nodes.control.clear();
            subject.kernel_without_modules = kernel.map(ToOwned::to_owned);
        })
    };
    assert_eq!(without(None), Fix::command("modprobe nvidia"));
    let fix = without(Some("6.1.0-49-amd64"));
    assert!(
        !fix.is_command() && fix.text().contains("for the running kernel 6.1.0-49-amd64"),
        "{fix:?}"
    );
}
