use super::*;

/// A host that enforces SELinux, with these booleans that are on or off, and with tranche's module if `has_module`.
fn enforcing(top: &Path, booleans: &[(&str, bool)], has_module: bool) {
    write(top, "/sys/fs/selinux/enforce", "1");
    for (name, is_on) in booleans {
        let text = if *is_on { "1 1" } else { "0 0" };
        write(top, &format!("/sys/fs/selinux/booleans/{name}"), text);
    }
    write(
        top,
        "/etc/selinux/config",
        "# the policy:\nSELINUX=enforcing\nSELINUXTYPE=local\n",
    );
    let contexts = match has_module {
        true => "/run/tranche/mps(/.*)?\tsystem_u:object_r:tranche_mps_run_t:s0\n",
        false => "/dev/nvidia.*\t-c\tsystem_u:object_r:xserver_misc_device_t:s0\n",
    };
    write(top, "/etc/selinux/local/contexts/files/file_contexts", contexts);
}

const NARROW: &str = "container_use_xserver_devices";
const WIDE: &str = "container_use_devices";

#[test]
fn selinux_that_denies_device_nodes() {
    let off = format!("neither {NARROW} nor {WIDE} is on");
    fires(Finding::SelinuxNodes, &off, |_, top| {
        enforcing(top, &[(NARROW, false), (WIDE, false)], false);
    });
    fires(Finding::SelinuxNodes, &off, |_, top| enforcing(top, &[], false));
    for on in [NARROW, WIDE] {
        is_good("SELinux", &format!("enforced, with {on} on"), |_, top| {
            enforcing(top, &[(on, true)], false);
        });
    }
    // Before container-selinux 2.232, the narrower boolean does not exist.
    for (booleans, fix) in [
        (
            &[(NARROW, false), (WIDE, false)][..],
            "setsebool -P container_use_xserver_devices on",
        ),
        (&[(WIDE, false)], "setsebool -P container_use_devices on"),
        (&[], "start the container with --security-opt label=disable"),
    ] {
        let top = tempfile::tempdir().unwrap();
        enforcing(top.path(), booleans, false);
        let found = examine(&healthy(top.path()));
        let fixes: Vec<&str> = found
            .iter()
            .filter_map(|one| Some(one.diagnosis.fault()?.fix.text()))
            .collect();
        assert!(matches!(fixes[..], [only] if only.starts_with(fix)), "{fixes:?}");
    }
    let labelled = |subject: &mut DoctorSubject, name: &str| {
        let context = format!("system_u:object_r:{name}:s0");
        subject.labels.insert(PathBuf::from("/dev/nvidia-uvm-tools"), context);
    };
    fires(
        Finding::SelinuxNodeLabels,
        "labelled device_t: /dev/nvidia-uvm-tools",
        |subject, top| {
            enforcing(top, &[(NARROW, true)], false);
            labelled(subject, "device_t");
        },
    );
    is_good("SELinux", "enforced", |subject, top| {
        enforcing(top, &[(WIDE, true)], false);
        labelled(subject, "device_t");
    });
    is_good("SELinux", "enforced", |subject, top| {
        enforcing(top, &[(NARROW, true)], false);
        labelled(subject, "xserver_misc_device_t");
    });
    is_good("SELinux", "not enforced", |subject, top| {
        write(top, "/sys/fs/selinux/enforce", "0");
        labelled(subject, "device_t");
    });
}

#[test]
fn selinux_that_denies_mps_daemons() {
    let shared = |subject: &mut DoctorSubject, top: &Path, has_module: bool| {
        enforcing(top, &[(NARROW, true)], has_module);
        subject.mps.pipes = vec![PathBuf::from("/run/tranche/mps/0"), PathBuf::from("/run/tranche/mps/1")];
    };
    let label = |subject: &mut DoctorSubject, path: &str, context: &str| {
        subject.labels.insert(PathBuf::from(path), context.to_owned());
    };
    const RIGHT: &str = "system_u:object_r:tranche_mps_run_t:s0";
    fires(
        Finding::SelinuxModule,
        "the SELinux module of tranche is not installed",
        |subject, top| {
            shared(subject, top, false);
        },
    );
    for share in ["/usr/share", "/usr/local/share"] {
        let top = tempfile::tempdir().unwrap();
        let mut subject = healthy(top.path());
        shared(&mut subject, top.path(), false);
        write(top.path(), &format!("{share}/selinux/packages/tranche.cil"), "");
        let fix = format!("semodule -i {share}/selinux/packages/tranche.cil && restorecon -RF /run/tranche");
        let found = examine(&subject);
        let faults: Vec<_> = found.iter().filter_map(|one| one.diagnosis.fault()).collect();
        assert!(matches!(faults[..], [only] if only.fix.text() == fix), "{faults:?}");
    }
    // The directories do not exist yet, or are as they should be.
    is_good("SELinux", "enforced", |subject, top| shared(subject, top, true));
    is_good("SELinux", "enforced", |subject, top| {
        shared(subject, top, true);
        label(subject, "/run/tranche/mps", RIGHT);
        label(
            subject,
            "/run/tranche/mps/0",
            "unconfined_u:object_r:tranche_mps_run_t:s0",
        );
    });
    // What a daemon makes gets the label of its directory, so the directory above counts as well.
    let cases = [
        ("/run/tranche/mps", "system_u:object_r:var_run_t:s0"),
        ("/run/tranche/mps/1", "system_u:object_r:container_file_t:s0"),
        ("/run/tranche/mps/1", "system_u:object_r:tranche_mps_run_t:s0:c12,c700"),
    ];
    for (path, context) in cases {
        fires(
            Finding::SelinuxPipeLabels,
            &format!("{path} ({context})"),
            |subject, top| {
                shared(subject, top, true);
                label(subject, path, context);
            },
        );
    }
    let top = tempfile::tempdir().unwrap();
    let mut subject = healthy(top.path());
    shared(&mut subject, top.path(), true);
    label(&mut subject, "/run/tranche/mps/0", "system_u:object_r:var_run_t:s0");
    let wrong = |one: &CheckResult| matches!(&one.diagnosis, Diagnosis::Wrong(what) if what.fix.text() == "restorecon -RF /run/tranche");
    assert!(examine(&subject).iter().any(wrong));
    // Without shares under MPS, nobody needs the module or the directories.
    subject.mps.pipes.clear();
    assert_eq!(faults(&subject), []);
}
