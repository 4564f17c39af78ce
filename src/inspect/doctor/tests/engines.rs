//! Engines and the programs that they start.

use super::*;

#[test]
fn a_hook_that_has_a_loader() {
    let with_hook = |subject: &mut DoctorSubject, path: &Path| {
        let spec = format!(
            r#"{{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{{"name": "0", "containerEdits":
                {{"hooks": [{{"hookName": "createContainer", "path": "{}"}}]}}}}]}}"#,
            path.display()
        );
        fs::write(subject.spec_dirs[0].join("nvidia.json"), spec).unwrap();
        subject.registry = Registry::read(&subject.spec_dirs);
    };
    let fix = fires(Finding::HookNotStatic, "is not a static program", |subject, top| {
        let path = top.join("tranche-oci");
        fs::copy("/proc/self/exe", &path).unwrap();
        with_hook(subject, &path);
    });
    // A person who installed a package has no source tree.
    assert!(fix.text().starts_with("install the package tranche again"), "{fix:?}");
}

#[test]
fn engines_that_read_no_or_older_specifications() {
    fires(
        Finding::EngineWithoutCdi,
        "docker 20.10.24: does not read CDI",
        |subject, _| {
            subject.engines = vec![engine("docker", "20.10.24")];
        },
    );
    fires(
        Finding::EngineOutdated,
        "podman 4.1.1: reads CDI 0.4.0, and",
        |subject, _| {
            subject.engines = vec![engine("podman", "4.1.1")];
        },
    );
    fires(Finding::EngineCdiOff, "CDI is off by default", |subject, _| {
        subject.engines = vec![engine("docker", "27.5")];
    });
    // Nothing can be done about it.
    is_good(
        "messages of hooks",
        "crun 1.28 discards what hooks print",
        |subject, _| subject.other_programs = vec![("crun", Some("1.28".parse().unwrap()))],
    );
}

#[test]
fn claims_that_an_engine_does_not_read() {
    let claim = |name: &'static str| {
        move |subject: &mut DoctorSubject, top: &Path| {
            let spec = r#"{"cdiVersion": "0.7.0", "kind": "nvidia.com/claim",
                "devices": [{"name": "a", "containerEdits": {"env": ["A=B"]}}]}"#;
            write(top, &format!("cdi/{name}.json"), spec);
            subject.registry = Registry::read(&subject.spec_dirs);
        }
    };
    let fix = fires(
        Finding::EngineOutdated,
        "podman 4.3.1: reads CDI 0.5.0, and",
        claim("nvidia.com-claim_a"),
    );
    assert_eq!(
        fix.text(),
        "release the claim, and create it again with --cdi-version 0.5.0"
    );
    // podman is not asked for the devices of a pod.
    let of_pod = claim("nvidia.com-resource-claim_a");
    is_good("engines", "podman 4.3.1: reads CDI 0.5.0", of_pod);
    let fix = fires(
        Finding::EngineOutdated,
        "crio 1.28.0: reads CDI 0.6.0, and",
        |subject, top| {
            subject.engines = vec![engine("crio", "1.28.0")];
            of_pod(subject, top);
        },
    );
    assert!(fix.text().starts_with("upgrade the engine"), "{fix:?}");
}
