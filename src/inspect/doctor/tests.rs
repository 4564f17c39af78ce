use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tranche_core::ledger::Outage;
use tranche_core::types::DeviceKey;
use tranche_plan::cdi::Problem;
use tranche_plan::cdi::registry::Registry;
use tranche_plan::engines::FoundEngine;
use tranche_plan::host_file::HostFileError;
use tranche_plan::inventory::{ComputeMode, ControlRole, Degraded};
use tranche_state::turns::{HolderRecord, TurnRecord};

mod access;
mod causes;
mod engines;
mod faults_of_users;
mod fixes;
mod rootless;
mod selinux;

#[test]
fn the_documentation_lists_the_checks_in_their_order() {
    let page = include_str!("../../../docs/reference/doctor.md").lines();
    let listed = page.filter_map(|line| line.strip_prefix("- **")?.split_once("**: "));
    let listed: Vec<&str> = listed.map(|(name, _)| name).collect();
    let checks: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, checks);
}

/// A healthy host in a directory, with one specification.
fn healthy(top: &Path) -> DoctorSubject {
    let mut inventory = tranche_plan::sim::open("t4x2").unwrap();
    inventory.degraded.clear();
    for gpu in &mut inventory.gpus {
        gpu.persistence = Some(true);
        gpu.compute_mode = Some(ComputeMode::Default);
        if let Some(node) = &mut gpu.node {
            (node.present, node.mode) = (true, Some(0o660));
        }
    }
    inventory
        .nodes
        .control
        .iter_mut()
        .for_each(|control| control.node.present = true);
    let specs = top.join("cdi");
    fs::create_dir_all(&specs).unwrap();
    let spec = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
        "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}]}"#;
    fs::write(specs.join("nvidia.json"), spec).unwrap();
    DoctorSubject {
        inventory,
        root: top.to_owned(),
        registry: Registry::read(std::slice::from_ref(&specs)),
        spec_dirs: vec![specs],
        stale: Vec::new(),
        not_compared: Vec::new(),
        own_hook: Some(PathBuf::from("/usr/bin/tranche-oci")),
        replaceable: Some(Vec::new()),
        unusable_programs: Vec::new(),
        without_room: Some(Vec::new()),
        other_libraries: Vec::new(),
        id_maps: IdMaps::default(),
        policy: PolicyFacts::default(),
        state: Some(Ok(())),
        host_file: Some(Err(HostFileError::Missing {
            path: PathBuf::from("/run/tranche/host.json"),
        })),
        low_level: None,
        ledger: Some(LedgerFacts::default()),
        out_of_service: Some(tranche_core::ledger::OutOfService::default()),
        by_turns: Some(Vec::new()),
        calendar_problem: None,
        shared_use: None,
        engines: vec![engine("podman", "4.3.1")],
        other_programs: Vec::new(),
        kernel_without_modules: None,
        architecture: Some("x86_64"),
        engine_files: Vec::new(),
        unchangeable: Vec::new(),
        access: AccessFacts::default(),
        broker: BrokerCondition::NotNeeded,
        private_socket: None,
        mig_restore: Vec::new(),
        public_error: None,
        daemons: Vec::new(),
        mps: MpsFacts::default(),
        labels: BTreeMap::new(),
    }
}

fn engine(name: &str, version: &str) -> FoundEngine {
    FoundEngine {
        engine: name.parse().unwrap(),
        version: Some(version.parse().unwrap()),
    }
}

/// The faults of `subject`: check and finding.
fn faults(subject: &DoctorSubject) -> Vec<(&'static str, String)> {
    let faults = examine(subject).into_iter();
    faults
        .filter_map(|one| Some((one.check, one.diagnosis.fault()?.found.clone())))
        .collect()
}

/// That the healthy host has no fault, and that it has `finding` after `change`, with `text` in it, and no other.
/// Returns its fix.
fn fires(finding: Finding, text: &str, change: impl FnOnce(&mut DoctorSubject, &Path)) -> Fix {
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    assert_eq!(faults(&subject), [], "the host is healthy");
    change(&mut subject, top.path());
    let results = examine(&subject);
    let found: Vec<&Trouble> = results.iter().filter_map(|one| one.diagnosis.fault()).collect();
    let meant = found
        .iter()
        .find(|one| one.finding == finding && one.found.contains(text));
    let meant = meant.unwrap_or_else(|| panic!("{finding}: {text}: {found:?}"));
    let others: Vec<_> = found.iter().filter(|one| one.finding != finding).collect();
    assert!(others.is_empty(), "{finding}: {others:?}");
    meant.fix.clone()
}

#[test]
fn every_check_is_made_once_and_a_healthy_host_has_no_fault() {
    let top = tempfile::tempdir().unwrap();
    let results = examine(&healthy(top.path()));
    for (check, _) in CHECKS {
        assert!(results.iter().any(|one| one.check == *check), "{check}");
    }
    let skipped = results
        .iter()
        .filter(|one| matches!(one.diagnosis, Diagnosis::Skipped { .. }));
    let skipped: Vec<&str> = skipped.map(|one| one.check).collect();
    assert_eq!(
        skipped,
        [
            "MIG mode",
            "links in /dev/char",
            "access to device nodes",
            "fabric manager",
            "IMEX",
            "policy",
            "age of specifications",
            "refresh",
            "hooks",
            "host.json",
            "configuration of engines",
            "docker in a snap",
            "low-level runtime",
            "messages of hooks",
            "SELinux",
            "AppArmor",
            "rootless engines",
            "use of shared devices",
            "broker"
        ]
    );
}

#[test]
fn the_driver_and_its_nodes() {
    fires(Finding::NvmlSilent, "NVML does not answer", |subject, _| {
        let why = "does not answer".to_owned();
        subject.inventory.degraded = vec![Degraded::Nvml { why }];
    });
    fires(Finding::ModuleNotLoaded, "nvidia-uvm is not loaded", |subject, _| {
        let control = &mut subject.inventory.nodes.control;
        control.retain(|control| !matches!(control.role, ControlRole::Uvm | ControlRole::UvmTools));
    });
    fires(Finding::ModuleNotLoaded, "nvidia is not loaded", |subject, _| {
        subject.inventory.nodes.control.clear()
    });
    fires(Finding::NodeMissing, "/dev/nvidia1", |subject, _| {
        subject.inventory.gpus[1].node.as_mut().unwrap().present = false;
    });
    let open = |devices| {
        move |subject: &mut DoctorSubject, _: &Path| {
            subject.policy.devices = devices;
            subject.inventory.gpus[0].node.as_mut().unwrap().mode = Some(0o666);
        }
    };
    let fix = fires(Finding::NodesOpen, "/dev/nvidia0", open(1));
    // The option applies to the node that everybody needs, as docs/how-to/team.md says.
    assert!(
        fix.text().contains("is no answer by itself") && !fix.is_command(),
        "{fix:?}"
    );
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    open(0)(&mut subject, top.path());
    assert_eq!(faults(&subject), [], "without a policy there is no claim");
    is_good("persistence mode", "off on 1 of 2 GPUs", |subject, _| {
        subject.inventory.gpus[0].persistence = Some(false);
    });
    fires(Finding::ComputeModeChanged, "gpu 1", |subject, _| {
        subject.inventory.gpus[1].compute_mode = Some(ComputeMode::ExclusiveProcess);
    });
    fires(
        Finding::DeviceOutOfService,
        "gpu 1: out of service since",
        |subject, _| {
            let device = DeviceKey::whole(subject.inventory.gpus[1].uuid.clone());
            let outage = Outage::new(device, 1_795_227_000, Some("a fan".into()));
            subject.out_of_service.as_mut().unwrap().drained = vec![outage];
        },
    );
    fires(Finding::OutOfServiceDamaged, "is damaged", |subject, _| {
        subject.out_of_service.as_mut().unwrap().unreadable = Some("x: is damaged".into());
    });
    let by_turns = |subject: &mut DoctorSubject, version: &str| {
        let mut record = TurnRecord::default();
        let holder = HolderRecord {
            bytes: 5 << 30,
            driver_version: Some(version.parse().unwrap()),
            ..HolderRecord::default()
        };
        record.holders.insert("one".to_owned(), holder);
        let device = DeviceKey::whole(subject.inventory.gpus[1].uuid.clone());
        subject.by_turns = Some(vec![(device, record)]);
    };
    fires(
        Finding::WorkSuspended,
        "gpu 1: 1 suspended, with 5120 MiB",
        |subject, _| {
            let own = subject.inventory.driver.as_ref().unwrap().version.to_string();
            by_turns(subject, &own);
        },
    );
    fires(Finding::TurnsNotTried, "never tried", |subject, _| {
        let why = "gpu 0: turns: starts are refused: suspended work was never tried";
        subject.policy.file = Some("/etc/tranche/config.yaml".to_owned());
        subject.policy.untried = vec![(why.to_owned(), "tranche turns try 0".to_owned())];
    });
    fires(Finding::SuspendedByOtherDriver, "by driver 580.1.2", |subject, _| {
        by_turns(subject, "580.1.2")
    });
    fires(Finding::CalendarUnusable, "is damaged", |subject, _| {
        subject.calendar_problem = Some("x: is damaged".into());
    });
    let with_switch = |subject: &mut DoctorSubject| {
        let node = subject.inventory.gpus[0].node.clone().unwrap();
        subject.inventory.nodes.nvswitch = vec![node];
    };
    let fix = fires(Finding::FabricManagerStopped, "does not exist", |subject, _| {
        with_switch(subject)
    });
    assert!(
        fix.text().starts_with("install nvidia-fabricmanager of version"),
        "{fix:?}"
    );
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    with_switch(&mut subject);
    fs::create_dir_all(top.path().join("run/systemd/system")).unwrap();
    write(top.path(), "/usr/lib/systemd/system/nvidia-fabricmanager.service", "");
    let results = examine(&subject);
    let fault = results
        .iter()
        .find(|one| one.check == "fabric manager")
        .unwrap()
        .diagnosis
        .fault();
    assert_eq!(
        fault.unwrap().fix,
        Fix::command("systemctl enable --now nvidia-fabricmanager.service")
    );
}

#[test]
fn a_mode_that_tranche_set_is_expected() {
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    subject.inventory.gpus[1].compute_mode = Some(ComputeMode::ExclusiveProcess);
    subject.ledger.as_mut().unwrap().exclusive = vec![subject.inventory.gpus[1].uuid.to_string()];
    assert_eq!(faults(&subject), []);
}

#[test]
fn no_driver_is_one_fault() {
    fires(Finding::NoDriver, "no driver was found", |subject, _| {
        subject.inventory = tranche_plan::inventory::Inventory::empty(subject.inventory.platform.clone());
        subject.registry = Registry::default();
        // Its devices are missing for the same reason.
        subject.policy.file = Some("/etc/tranche/config.yaml".to_owned());
        subject.policy.missing = vec!["config.yaml:7: device 42: not found".to_owned()];
    });
}

#[test]
fn links_are_needed_with_systemd_only() {
    let systemd = |top: &Path| fs::create_dir_all(top.join("run/systemd/system")).unwrap();
    fires(Finding::LinkMissing, "are missing or lead elsewhere", |_, top| {
        systemd(top)
    });
    fires(Finding::LinkBlocked, "is not a symbolic link", |_, top| {
        systemd(top);
        fs::create_dir_all(top.join("dev/char")).unwrap();
        fs::write(top.join("dev/char/195:0"), "").unwrap();
    });
    let top = tempfile::tempdir().unwrap();
    let subject = healthy(top.path());
    systemd(top.path());
    fs::create_dir_all(top.path().join("dev/char")).unwrap();
    for link in tranche_specs::device_files::links(&subject.inventory, false) {
        symlink(&link.target, top.path().join("dev/char").join(&link.name)).unwrap();
    }
    assert_eq!(faults(&subject), []);
}

#[test]
fn specifications_that_are_missing_broken_old_or_hidden() {
    let again = |subject: &mut DoctorSubject| subject.registry = Registry::read(&subject.spec_dirs);
    fires(Finding::SpecMissing, "has a device of NVIDIA", |subject, top| {
        fs::remove_file(top.join("cdi/nvidia.json")).unwrap();
        again(subject);
    });
    fires(Finding::SpecInvalid, "other.json", |subject, top| {
        fs::write(top.join("cdi/other.json"), "{").unwrap();
        again(subject);
    });
    fires(Finding::SpecHidden, "nvidia.com/gpu=0 in ", |subject, top| {
        fs::create_dir(top.join("later")).unwrap();
        fs::copy(top.join("cdi/nvidia.json"), top.join("later/nvidia.json")).unwrap();
        subject.spec_dirs.push(top.join("later"));
        again(subject);
    });
    fires(Finding::SpecStale, "stale", |subject, _| {
        let what = "stale: the driver has changed; run tranche cdi refresh";
        subject.stale = vec![Problem::new(Path::new("/etc/cdi/nvidia.yaml"), None, what)];
    });
    fires(Finding::HostFileOld, "host.json", |subject, _| {
        subject.host_file = Some(Err(HostFileError::OtherVersion {
            path: "/run/tranche/host.json".into(),
            program: "0.0.1".into(),
        }));
    });
}

#[test]
fn only_a_specification_of_refresh_is_written_again_without_asking() {
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    let file = subject.spec_dirs[0].join("tranche.yaml");
    let spec = "cdiVersion: 0.5.0\nkind: nvidia.com/other\ndevices: [{name: a, containerEdits: {env: [A=B]}}]\n";
    for (header, fix) in [
        (
            format!("# {}\n", tranche_plan::cdi::header::REFRESHED),
            vec!["cdi", "refresh"],
        ),
        ("# by hand\n".to_owned(), vec![]),
    ] {
        fs::write(&file, format!("{header}{spec}")).unwrap();
        subject.registry = Registry::read(&subject.spec_dirs);
        subject.stale = vec![Problem::new(&file, None, "stale: the driver has changed")];
        let results = examine(&subject);
        let stale = results.iter().find(|one| one.check == "age of specifications").unwrap();
        assert_eq!(stale.diagnosis.fault().unwrap().fix.safe_arguments(), fix, "{header}");
    }
}

#[test]
fn processes_on_shared_devices() {
    let line = || vec!["nvidia.com/gpu=0: process 7 (python) uses it without a claim".to_owned()];
    fires(Finding::UseWithoutClaim, "process 7 (python)", |subject, _| {
        subject.shared_use = Some(SharedUse {
            without_claim: line(),
            ..SharedUse::default()
        });
    });
    fires(Finding::UseBeyondPromise, "process 7 (python)", |subject, _| {
        subject.shared_use = Some(SharedUse {
            beyond_promise: line(),
            ..SharedUse::default()
        });
    });
    for (processes, says) in [(0, "no process uses"), (3, "there are 3")] {
        is_good("use of shared devices", says, |subject, _| {
            subject.shared_use = Some(SharedUse {
                processes: Some(processes),
                ..SharedUse::default()
            });
        });
    }
}

#[test]
fn what_is_corrected_without_asking_does_no_harm() {
    let safe = [
        &["system", "create-device-nodes"][..],
        &["system", "create-dev-char-symlinks"],
        &["cdi", "refresh"],
    ];
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    subject.inventory.gpus[1].node.as_mut().unwrap().present = false;
    fs::create_dir_all(top.path().join("run/systemd/system")).unwrap();
    subject.registry = Registry::default();
    let mut found: Vec<Vec<&str>> = examine(&subject)
        .iter()
        .filter_map(|one| Some(one.diagnosis.fault()?.fix.safe_arguments().to_vec()))
        .filter(|fix| !fix.is_empty())
        .collect();
    found.sort();
    let mut safe: Vec<Vec<&str>> = safe.iter().map(|fix| fix.to_vec()).collect();
    safe.sort();
    assert_eq!(found, safe);
}

/// Writes a file of the host.
fn write(top: &Path, path: &str, text: &str) {
    let path = top.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// That a host without a fault has this result of `check`, after `change`.
fn is_good(check: &str, text: &str, change: impl FnOnce(&mut DoctorSubject, &Path)) {
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    change(&mut subject, top.path());
    assert_eq!(faults(&subject), [], "{check}");
    let found = examine(&subject).into_iter().find(|one| one.check == check).unwrap();
    let good = matches!(&found.diagnosis, Diagnosis::Good { found } if found.contains(text));
    assert!(good, "{check}: {:?}", found.diagnosis);
}

#[test]
fn apparmor_that_confines_a_hook() {
    let profiles = |top: &Path, profiles: &str| {
        write(top, "/sys/module/apparmor/parameters/enabled", "Y\n");
        write(top, "/sys/kernel/security/apparmor/profiles", profiles);
    };
    fires(Finding::ApparmorConfines, "/usr/bin/tranche-oci", |_, top| {
        profiles(top, "man (enforce)\n/usr/bin/tranche-oci (enforce)\n");
    });
    is_good("AppArmor", "no profile confines", |_, top| {
        profiles(
            top,
            "man (enforce)\ncontainers-default (enforce)\ntranche-oci (complain)\n",
        );
    });
    is_good("AppArmor", "not enabled", |_, top| {
        write(top, "/sys/module/apparmor/parameters/enabled", "N\n");
    });
}

#[test]
fn a_domain_of_imex_without_its_daemon_or_channel() {
    const CONFIG: &str = "/etc/nvidia-imex/nodes_config.cfg";
    let complete = |subject: &mut DoctorSubject, top: &Path| {
        write(top, CONFIG, "# nodes\n10.0.0.1\n10.0.0.2\n");
        subject.daemons = vec![FoundDaemon {
            program: imex::DAEMON,
            pid: 7,
        }];
        let node = subject.inventory.gpus[0].node.clone().unwrap();
        let id = tranche_core::types::ImexChannelId(0);
        subject.inventory.nodes.imex_channels = vec![tranche_plan::inventory::ImexChannel { id, node }];
    };
    is_good("IMEX", "nvidia-imex runs", complete);
    fires(
        Finding::ImexDaemonStopped,
        "nvidia-imex does not run",
        |subject, top| {
            complete(subject, top);
            subject.daemons.clear();
        },
    );
    fires(Finding::ImexChannelMissing, "there is no channel", |subject, top| {
        complete(subject, top);
        subject.inventory.nodes.imex_channels.clear();
    });
    // The package brings the file without a node.
    let top = tempfile::tempdir().unwrap();
    write(top.path(), CONFIG, "# one address a line\n\n");
    assert_eq!(faults(&healthy(top.path())), []);
}

#[test]
fn mps_daemons_of_others_and_what_is_left_of_one() {
    let control = |pid| FoundDaemon {
        program: mps::DAEMON,
        pid,
    };
    let managed = |condition| vec![("nvidia.com/gpu=0".to_owned(), condition)];
    is_good("MPS daemons", "no daemon runs", |_, _| ());
    is_good("MPS daemons", "1 daemon by tranche", |subject, _| {
        subject.mps.managed = managed(DaemonCondition::Working);
        subject.daemons = vec![control(7)];
    });
    is_good("MPS daemons", "the operator runs", |subject, _| {
        subject.mps.is_external = true;
        subject.daemons = vec![control(7)];
    });
    fires(
        Finding::MpsUnknown,
        "these processes are nvidia-cuda-mps-control: 7",
        |subject, _| {
            subject.daemons = vec![control(7)];
        },
    );
    fires(Finding::MpsFailed, "could not be started again", |subject, _| {
        subject.mps.managed = managed(DaemonCondition::Failed);
    });
    fires(
        Finding::MpsServerFailed,
        "the server that it starts for clients",
        |subject, _| {
            subject.mps.managed = managed(DaemonCondition::ServerFailed);
            subject.daemons = vec![control(7)];
        },
    );
    fires(
        Finding::MpsEarlierVersion,
        "an earlier version of tranche",
        |subject, _| {
            subject.mps.managed = managed(DaemonCondition::OfEarlierVersion);
            subject.daemons = vec![control(7)];
        },
    );
    fires(
        Finding::MpsForeign,
        "another program runs the MPS daemon",
        |subject, _| {
            subject.mps.managed = managed(DaemonCondition::Foreign);
            subject.daemons = vec![control(7)];
        },
    );
    fires(Finding::MpsLeftOver, "/tmp/nvidia-mps/control is left", |_, top| {
        write(top, "/tmp/nvidia-mps/control", "");
    });
    is_good("MPS daemons", "the operator runs", |subject, top| {
        subject.mps.is_external = true;
        subject.daemons = vec![control(7)];
        write(top, "/tmp/nvidia-mps/control", "");
    });
}

#[test]
fn specifications_that_nothing_keeps_current() {
    let refreshed = |subject: &mut DoctorSubject, top: &Path| {
        let text = format!(
            "# {}\n# {}\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n    env: [A=B]\n",
            tranche_plan::cdi::header::made_by(),
            tranche_plan::cdi::header::REFRESHED
        );
        fs::remove_file(top.join("cdi/nvidia.json")).unwrap();
        write(top, "/cdi/tranche.yaml", &text);
        subject.registry = Registry::read(&subject.spec_dirs);
        for link in tranche_specs::device_files::links(&subject.inventory, false) {
            fs::create_dir_all(top.join("dev/char")).unwrap();
            symlink(&link.target, top.join("dev/char").join(&link.name)).unwrap();
        }
        fs::create_dir_all(top.join("run/systemd/system")).unwrap();
    };
    let wants = |top: &Path, unit: &str| write(top, &format!("/etc/systemd/system/multi-user.target.wants/{unit}"), "");
    fires(Finding::RefreshDisabled, "are not both enabled", |subject, top| {
        refreshed(subject, top);
        wants(top, "tranche-cdi-refresh.service");
    });
    is_good("refresh", "are enabled", |subject, top| {
        refreshed(subject, top);
        wants(top, "tranche-cdi-refresh.service");
        wants(top, "tranche-cdi-refresh.path");
    });
}
