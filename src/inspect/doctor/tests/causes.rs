//! Causes that one check must tell apart, or that several checks would report: one result for one cause, with its own
//! fix.

use super::*;
use crate::engine_config::document::{ConfigFile, Syntax};
use crate::engine_config::view::EngineView;
use std::os::unix::fs::PermissionsExt;
use tranche_plan::cdi::{ProblemKind, Reference};
use tranche_plan::engines::Engine;
use tranche_plan::inventory::{MigMode, MigState, Warning, WarningKind};

fn error(found: &str, hint: Option<&str>) -> FoundError {
    FoundError {
        found: found.to_owned(),
        hint: hint.map(ToOwned::to_owned),
    }
}

fn warning(kind: WarningKind, object: &str, text: &str) -> Warning {
    Warning {
        kind,
        ..Warning::new(object, text)
    }
}

#[test]
fn a_layout_that_was_not_made_at_boot() {
    let fix = fires(Finding::MigNotRestored, "gpu 0: the driver says no", |subject, _| {
        subject.mig_restore = vec![error("gpu 0: the driver says no", None)];
    });
    let expected = "correct what the message names, and make the layouts: tranche mig restore";
    assert_eq!(fix, Fix::by_hand(expected));
}

#[test]
fn each_way_in_which_a_driver_is_incomplete() {
    let lacks = |finding, text: &str, degraded: Degraded| {
        fires(finding, text, move |subject, _| {
            subject.inventory.degraded = vec![degraded]
        });
    };
    let device = |why: &str| Degraded::Device {
        device: "gpu 1".to_owned(),
        why: why.to_owned(),
    };
    let shown_by = || "/proc/driver/nvidia/version".to_owned();
    lacks(Finding::DeviceLost, "gpu 1 does not answer", device("does not answer"));
    lacks(
        Finding::LibrariesMissing,
        "its libraries",
        Degraded::NoLibraries { shown_by: shown_by() },
    );
    let soname = "libcuda.so.1".to_owned();
    lacks(Finding::LibraryMissing, "libcuda.so.1", Degraded::Library { soname });
    let files = vec!["libnvidia-ml.so.550".to_owned()];
    lacks(Finding::FilesLost, "libnvidia-ml.so.550", Degraded::Lost { files });
    lacks(
        Finding::NoGpu,
        "no GPU was found",
        Degraded::NoGpu { shown_by: shown_by() },
    );
    fires(Finding::MigEmpty, "without instances: gpu 1", |subject, _| {
        let (current, pending) = (MigMode::Enabled, MigMode::Enabled);
        subject.inventory.gpus[1].mig = Some(MigState { current, pending });
    });
    fires(Finding::HostWarning, "/etc/ld.so.cache: is not valid", |subject, _| {
        subject.inventory.warnings = vec![warning(WarningKind::Other, "/etc/ld.so.cache", "is not valid")];
    });
}

#[test]
fn a_module_and_libraries_of_two_versions_are_one_cause() {
    let text = "the kernel module is 560.1, the libraries are 550.1: programs will fail; reboot";
    let fix = fires(
        Finding::VersionsDiffer,
        "560.1, the libraries are 550.1",
        |subject, _| {
            subject.inventory.warnings = vec![warning(WarningKind::Versions, "driver", text)];
            let why = "does not answer".to_owned();
            subject.inventory.degraded = vec![Degraded::Nvml { why }];
            let says = "says that the driver is 550.1, the kernel module says 560.1; reboot";
            let says = warning(WarningKind::Versions, "NVML", says);
            subject.inventory.warnings.push(says);
            let stale = "stale: the driver has changed";
            subject.stale = vec![Problem::new(Path::new("/etc/cdi/x.yaml"), None, stale)];
            assert_eq!(faults(subject).len(), 1);
        },
    );
    assert!(fix.text().starts_with("restart the machine"), "{fix:?}");
}

#[test]
fn a_node_with_wrong_numbers_is_not_called_missing() {
    let text = "is 195:9, expected 195:1: it is left out; remove it and run nvidia-modprobe";
    let fix = fires(
        Finding::NodeWrong,
        "/dev/nvidia1 is 195:9, expected 195:1",
        |subject, _| {
            subject.inventory.warnings = vec![warning(WarningKind::WrongNode, "/dev/nvidia1", text)];
            subject.inventory.gpus[1].node = None;
            subject.inventory.degraded = vec![Degraded::Device {
                device: "gpu 1".to_owned(),
                why: "has no device node /dev/nvidia1".to_owned(),
            }];
        },
    );
    assert_eq!(fix.text(), "rm -r /dev/nvidia1 && tranche system create-device-nodes");
    // Its module is loaded.
    fires(Finding::NodeWrong, "/dev/nvidia-uvm", |subject, _| {
        let control = &mut subject.inventory.nodes.control;
        control.retain(|control| control.role != ControlRole::Uvm);
        let wrong = warning(
            WarningKind::WrongNode,
            "/dev/nvidia-uvm",
            "is a regular file, expected a device node",
        );
        subject.inventory.warnings = vec![wrong];
    });
}

/// A specification with this hook and this many mounts of files that do not exist.
fn write_spec(subject: &mut DoctorSubject, first_line: &str, hook: &str, mounts: usize) {
    let mut text = format!(
        "{first_line}\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n    env: [A=B]\n"
    );
    text.push_str("containerEdits:\n  env: [C=D]\n");
    if !hook.is_empty() {
        text.push_str(&format!("  hooks: [{{hookName: createContainer, path: {hook}}}]\n"));
    }
    text.push_str("  mounts:\n  - {hostPath: /, containerPath: /x}\n");
    for number in 0..mounts {
        text.push_str(&format!(
            "  - {{hostPath: /nowhere/lib{number}.so, containerPath: /x}}\n"
        ));
    }
    let directory = subject.spec_dirs[0].clone();
    fs::remove_file(directory.join("nvidia.json")).unwrap();
    fs::write(directory.join("tranche.yaml"), text).unwrap();
    subject.registry = Registry::read(&subject.spec_dirs);
    subject.registry.check_references();
}

fn refreshed() -> String {
    format!(
        "# {}\n# {}",
        tranche_plan::cdi::header::made_by(),
        tranche_plan::cdi::header::REFRESHED
    )
}

#[test]
fn files_that_went_with_a_driver_are_one_result() {
    let fix = fires(Finding::SpecFilesMissing, "lib7.so", |subject, _| {
        write_spec(subject, "# by hand", "", 8);
        assert_eq!(subject.registry.problems.len(), 8);
        let reference = ProblemKind::Reference(Reference {
            is_hook: false,
            path: "/nowhere/lib0.so".into(),
        });
        assert_eq!(subject.registry.problems[0].kind, reference);
    });
    assert!(fix.text().contains("that its first lines name"), "{fix:?}");
    // The specification is older than the driver, and so is host.json: all are one cause.
    let fix = fires(
        Finding::SpecStale,
        "of what it names, 24 files do not exist",
        |subject, _| {
            write_spec(subject, &refreshed(), "", 24);
            let file = subject.spec_dirs[0].join("tranche.yaml");
            subject.stale = vec![Problem::new(&file, None, "stale: the driver has changed")];
            let path = PathBuf::from("/run/tranche/host.json");
            let changed = tranche_plan::host_file::HostSource::now(
                tranche_plan::host_file::SourceKind::DriverLibrary,
                "/nowhere",
            );
            subject.host_file = Some(Err(HostFileError::Stale {
                path,
                changed,
                arguments: Vec::new(),
            }));
            assert_eq!(faults(subject).len(), 1);
        },
    );
    assert_eq!(fix.safe_arguments(), ["cdi", "refresh"]);
}

#[test]
fn a_missing_hook_is_not_replaced_by_another_that_is_missing() {
    let fix = |finding, line: &str, hook: &str, own: Option<&str>| {
        fires(finding, hook, |subject, _| {
            write_spec(subject, line, hook, 0);
            subject.own_hook = own.map(PathBuf::from);
        })
    };
    let own = Some("/usr/bin/tranche-oci");
    let gone = "/opt/old/tranche-oci";
    assert_eq!(
        fix(Finding::SpecHookMissing, &refreshed(), gone, own).safe_arguments(),
        ["cdi", "refresh"]
    );
    let by_hand = fix(Finding::SpecHookMissing, "# by hand", gone, own);
    assert!(by_hand.text().ends_with("it names /usr/bin/tranche-oci"), "{by_hand:?}");
    let install = fix(Finding::SpecHookMissing, &refreshed(), gone, None);
    assert!(
        install
            .text()
            .starts_with("install tranche-oci as /opt/old/tranche-oci"),
        "{install:?}"
    );
    let other = fix(
        Finding::SpecOtherHookMissing,
        "# by hand",
        "/nowhere/nvidia-cdi-hook",
        own,
    );
    assert!(other.text().starts_with("install the program"), "{other:?}");
}

#[test]
fn files_of_specifications_that_engines_do_not_read() {
    fires(
        Finding::SpecMisnamed,
        "engines read .yaml and .json only",
        |subject, top| {
            write(top, "/cdi/other.yml", "");
            subject.registry = Registry::read(&subject.spec_dirs);
        },
    );
    fires(
        Finding::SpecConflict,
        "engines ignore them in every file",
        |subject, top| {
            fs::copy(top.join("cdi/nvidia.json"), top.join("cdi/other.json")).unwrap();
            subject.registry = Registry::read(&subject.spec_dirs);
        },
    );
    for path in ["cdi/nvidia.json", "cdi"] {
        let fix = fires(Finding::SpecPrivate, path, |_, top| {
            fs::set_permissions(top.join(path), PermissionsExt::from_mode(0o700)).unwrap();
        });
        assert!(fix.is_command() && fix.text().starts_with("chmod a+rX /"), "{fix:?}");
    }
    // Nobody but root reads them.
    is_good("specifications", "engines find 1 device", |subject, top| {
        subject.engines = vec![engine("containerd", "2.0.10")];
        fs::set_permissions(top.join("cdi/nvidia.json"), PermissionsExt::from_mode(0o600)).unwrap();
    });
}

#[test]
fn the_policy_the_ledger_and_their_fixes() {
    let policy = |change: fn(&mut PolicyFacts)| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.policy.file = Some("/etc/tranche/config.yaml".to_owned());
            change(&mut subject.policy);
        }
    };
    let fixes = [
        fires(
            Finding::PolicyInvalid,
            "unknown",
            policy(|facts| {
                facts.invalid = Some(error(
                    "config.yaml:2: \"shring\" is unknown",
                    Some("did you mean sharing?"),
                ));
            }),
        ),
        fires(
            Finding::PolicyUnfit,
            "96 GiB of 80 GiB",
            policy(|facts| {
                facts.unfit = Some(error("gpu 0: shares ask for 96 GiB of 80 GiB", Some("lower one")));
            }),
        ),
        fires(
            Finding::PolicyDeviceMissing,
            "device 42",
            policy(|facts| {
                facts.missing = vec!["config.yaml:7: device 42: not found; this host has 0, 1".to_owned()];
            }),
        ),
        fires(Finding::LedgerDamaged, "line 2", |subject, _| {
            subject.ledger.as_mut().unwrap().damaged =
                vec![error("GPU-1.claims: line 2 is not valid", Some("remove it"))];
        }),
        fires(Finding::LedgerUnusable, "cannot be listed", |subject, _| {
            subject.ledger.as_mut().unwrap().unusable = Some(error("/run/tranche/ledger: cannot be listed", None));
        }),
        fires(Finding::HeldBeyondPolicy, "held by", |subject, _| {
            subject.ledger.as_mut().unwrap().held = vec!["nvidia.com/gpu=0.0: held by container x".to_owned()];
        }),
    ];
    let texts: std::collections::BTreeSet<&str> = fixes.iter().map(Fix::text).collect();
    assert_eq!(texts.len(), fixes.len(), "{texts:?}");
    fires(
        Finding::PolicyWarning,
        "no effect",
        policy(|facts| {
            facts.warnings = vec!["config.yaml:3: failOnInitError: has no effect".to_owned()];
        }),
    );
    is_good(
        "policy",
        "2 shares of 1 device",
        policy(|facts| {
            (facts.devices, facts.shares) = (1, 2);
        }),
    );
}

#[test]
fn a_state_directory_of_others_is_one_result() {
    let hint = Some("run: chmod go-w /run/tranche");
    let fix = fires(Finding::StateUnsafe, "has mode 0777", |subject, _| {
        subject.state = Some(Err(error("/run/tranche: has mode 0777", hint)));
        subject.ledger = None;
        let refused =
            tranche_core::error::Error::failed("/run/tranche/host.json", "another user could have written it");
        subject.host_file = Some(Err(HostFileError::Refused(refused)));
    });
    assert!(fix.is_command() && fix.text() == "chmod go-w /run/tranche", "{fix:?}");
    fires(
        Finding::HostFileRefused,
        "another user could have written it",
        |subject, _| {
            let refused =
                tranche_core::error::Error::failed("/run/tranche/host.json", "another user could have written it");
            subject.host_file = Some(Err(HostFileError::Refused(refused)));
        },
    );
    fires(Finding::UseUnknown, "is damaged", |subject, _| {
        subject.shared_use = Some(SharedUse {
            unknown: Some(error("/run/tranche/queue: is damaged", None)),
            ..SharedUse::default()
        });
    });
}

#[test]
fn the_broker_and_the_daemons_that_shares_need() {
    let stopped = |subject: &mut DoctorSubject| {
        subject.broker = BrokerCondition::Stopped {
            devices: vec!["nvidia.com/gpu=0".to_owned()],
            why: "No such file or directory".to_owned(),
        };
    };
    let by_hand = fires(Finding::BrokerStopped, "nvidia.com/gpu=0", |subject, _| {
        stopped(subject)
    });
    assert!(by_hand.text().starts_with("run tranche broker as root"), "{by_hand:?}");
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    stopped(&mut subject);
    fs::create_dir_all(top.path().join("run/systemd/system")).unwrap();
    let fix = |subject: &DoctorSubject| {
        let results = examine(subject);
        let one = results.iter().find(|one| one.check == "broker").unwrap();
        one.diagnosis.fault().unwrap().fix.text().to_owned()
    };
    assert!(
        fix(&subject).starts_with("run tranche broker as root"),
        "the unit is not installed"
    );
    write(top.path(), "/usr/lib/systemd/system/tranche-broker.socket", "");
    assert_eq!(fix(&subject), "systemctl enable --now tranche-broker.socket");
    fs::create_dir_all(top.path().join("etc/systemd/system")).unwrap();
    symlink("/dev/null", top.path().join("etc/systemd/system/tranche-broker.socket")).unwrap();
    let unit = "tranche-broker.socket";
    assert_eq!(
        fix(&subject),
        format!("systemctl unmask {unit} && systemctl enable --now {unit}")
    );
    fires(Finding::BrokerRefuses, "its answer is not", |subject, _| {
        subject.broker = BrokerCondition::Refuses(error("broker.sock: its answer is not one of the broker's", None));
    });
    fires(Finding::StatusDamaged, "status.json", |subject, _| {
        subject.public_error = Some(error("/run/tranche/status.json: is damaged", None));
    });
    fires(Finding::MpsStopped, "its MPS daemon was not found", |subject, _| {
        subject.mps.is_external = true;
        subject.mps.stopped = vec![error("nvidia.com/gpu=0 /run/x: its MPS daemon was not found", None)];
    });
    is_good("broker", "it answers", |subject, _| {
        subject.broker = BrokerCondition::Works
    });
}

#[test]
fn engines_whose_files_keep_them_from_devices() {
    let file = |engine: Engine, text: &str| {
        let syntax = match engine {
            Engine::Docker => Syntax::Json,
            _ => Syntax::Toml,
        };
        let file = ConfigFile::read(engine.facts().file, syntax, text);
        let view = file.and_then(|file| EngineView::of(engine, &file));
        (engine, view.map_err(|error| FoundError::of(&error).without_hint()))
    };
    let docker = |text: &str| vec![file(Engine::Docker, text)];
    let fix = fires(Finding::EngineCdiOff, "features.cdi is false", |subject, _| {
        subject.engine_files = docker(r#"{"features": {"cdi": false}}"#);
    });
    assert!(
        fix.text()
            .starts_with("tranche runtime configure --runtime docker --cdi.enabled")
    );
    fires(Finding::EngineCdiOff, "enable_cdi is false", |subject, _| {
        let text = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n";
        subject.engine_files = vec![file(Engine::Containerd, text)];
    });
    // A file that says nothing of CDI, as Debian's package has it.
    let debian = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dir = '/usr/lib/cni'\n";
    fires(
        Finding::EngineCdiOff,
        "containerd 1.7.33: CDI is off by default",
        |subject, _| {
            subject.engines = vec![engine("containerd", "1.7.33")];
            subject.engine_files = vec![file(Engine::Containerd, debian)];
        },
    );
    let runtimes = |name: &str| {
        let section = "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = true\n\
                       [plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.";
        vec![file(
            Engine::Containerd,
            &format!("{section}{name}]\nruntime_type = 'io.containerd.runc.v2'\n"),
        )]
    };
    fires(
        Finding::EngineRuntimeMissing,
        "the default runtime runc is not defined",
        |subject, _| {
            subject.engines = vec![engine("containerd", "1.7.33")];
            subject.engine_files = runtimes("tranche");
        },
    );
    // containerd 2 adds the table of the file to its own.
    for (version, name) in [("1.7.33", "runc"), ("2.1.9", "tranche")] {
        is_good("configuration of engines", "CDI is on", |subject, _| {
            subject.engines = vec![engine("containerd", version)];
            subject.engine_files = runtimes(name);
        });
    }
    for text in ["{", r#"{"features": {"cdi": "no"}}"#] {
        fires(Finding::EngineConfigInvalid, "/etc/docker/daemon.json", |subject, _| {
            subject.engine_files = docker(text);
        });
    }
    fires(
        Finding::EngineDirectories,
        "cdi-spec-dirs does not have /",
        |subject, _| {
            subject.engine_files = docker(r#"{"cdi-spec-dirs": ["/opt/cdi"]}"#);
        },
    );
    fires(
        Finding::EngineRuntimeMissing,
        "default runtime nvidia is not defined",
        |subject, _| {
            subject.engine_files = docker(r#"{"default-runtime": "nvidia"}"#);
        },
    );
    let with_program = r#"{"runtimes": {"tranche": {"path": "/usr/bin/tranche-runtime"}}}"#;
    fires(Finding::EngineRuntimeMissing, "does not exist", |subject, _| {
        subject.engine_files = docker(with_program);
    });
    // A docker in which CDI is on, one whose runtime is tranche's, and a runtime that no container uses.
    is_good("engines", "docker 27.5: reads CDI", |subject, _| {
        subject.engines = vec![engine("docker", "27.5")];
        subject.engine_files = docker(r#"{"features": {"cdi": true}, "runtimes": {"old": {"path": "/gone"}}}"#);
    });
    is_good("engines", "has the runtime of tranche", |subject, top| {
        write(top, "/usr/bin/tranche-runtime", "");
        subject.engines = vec![engine("docker", "20.10.24")];
        subject.engine_files = docker(with_program);
    });
    fires(Finding::LowLevelMissing, "not found: runc", |subject, _| {
        subject.low_level = Some(Err(error(
            "low-level runtime: not found: runc, crun",
            Some("install runc"),
        )));
    });
}
