use super::*;

const ID: &str = "a1b2";

fn of(root: &str, bundle: &str) -> CallingEngine {
    let root = Some(root).filter(|root| !root.is_empty());
    CallingEngine::of(root.map(Path::new), Path::new(bundle), ID)
}

#[test]
fn an_engine_is_known_by_the_command_line_that_it_writes() {
    const TASKS: &str = "/run/containerd/io.containerd.runtime.v2.task";
    for (root, bundle, expected) in [
        (
            "/var/run/docker/runtime-runc/moby",
            format!("{TASKS}/moby/{ID}"),
            CallingEngine::Known(Engine::Docker),
        ),
        (
            "/run/user/1000/docker/runtime-tranche/moby",
            format!("/run/user/1000/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/{ID}"),
            CallingEngine::Known(Engine::Docker),
        ),
        (
            "/run/docker/runtime-x/other",
            format!("{TASKS}/other/{ID}"),
            CallingEngine::Known(Engine::Docker),
        ),
        (
            "/run/containerd/runc/k8s.io",
            format!("{TASKS}/k8s.io/{ID}"),
            CallingEngine::Known(Engine::Containerd),
        ),
        (
            "/run/containerd/runc/default",
            format!("{TASKS}/default/{ID}/"),
            CallingEngine::Ctr,
        ),
        // The hook of docker does not know the directory.
        ("", format!("{TASKS}/moby/{ID}"), CallingEngine::Known(Engine::Docker)),
        (
            "",
            format!("/var/lib/containers/storage/overlay-containers/{ID}/userdata"),
            CallingEngine::Known(Engine::Podman),
        ),
        (
            "",
            format!("/home/u/.local/share/containers/storage/vfs-containers/{ID}/userdata"),
            CallingEngine::Known(Engine::Podman),
        ),
        (
            "/run/runc",
            format!("/run/containers/storage/btrfs-containers/{ID}/userdata"),
            CallingEngine::Known(Engine::Podman),
        ),
    ] {
        assert_eq!(of(root, &bundle), expected, "{root} {bundle}");
    }
    for (root, bundle) in [
        ("", String::new()),
        ("", "/bundle".to_owned()),
        ("", ID.to_owned()),
        ("/run/containerd/runc/k8s.io", format!("{TASKS}/moby/{ID}")),
        ("/run/containerd/runc/buildkit", format!("{TASKS}/buildkit/{ID}")),
        ("/run/containerd/runc/moby", format!("{TASKS}/moby/another")),
        ("/run/containerd/runc/moby", format!("/tmp/moby/{ID}")),
        (
            "",
            "/var/lib/containers/storage/overlay-containers/another/userdata".to_owned(),
        ),
        ("", format!("/var/lib/containers/storage/overlay/{ID}/userdata")),
        ("", format!("/var/lib/containers/storage/overlay-containers/{ID}")),
    ] {
        assert_eq!(of(root, &bundle), CallingEngine::Unknown, "{root} {bundle}");
    }
}

/// An image can write an annotation, or leave it out. It never becomes an engine that is accepted.
#[test]
fn an_annotation_only_makes_the_answer_safer() {
    for caller in [
        CallingEngine::Known(Engine::Docker),
        CallingEngine::Known(Engine::Containerd),
        CallingEngine::Ctr,
        CallingEngine::Known(Engine::Podman),
        CallingEngine::Unknown,
    ] {
        for keys in [
            &["nerdctl/name", "a"][..],
            &["a", "x/nerdctl/y"],
            &["io.kubernetes.cri-o.ContainerID"],
        ] {
            let found = caller.with_annotations(keys.iter().copied());
            assert!(
                matches!(found, CallingEngine::Nerdctl | CallingEngine::Known(Engine::Crio)),
                "{caller:?} {keys:?}"
            );
            assert!(found.doubt("9.0".parse().ok().as_ref()).is_some());
        }
        let others = [
            "io.container.manager",
            "io.kubernetes.cri.sandbox-id",
            "io.kubernetes.cri-o.Created",
            "nerdctl",
        ];
        assert_eq!(caller.with_annotations(others.into_iter()), caller);
    }
}

#[test]
fn images_write_annotations_with_these_engines() {
    let doubt = |caller: CallingEngine, podman: &str| caller.doubt(podman.parse().ok().as_ref());
    for caller in [
        CallingEngine::Known(Engine::Docker),
        CallingEngine::Known(Engine::Containerd),
        CallingEngine::Ctr,
    ] {
        assert_eq!(doubt(caller, ""), None);
    }
    for fixed in ["4.5.1", "4.6.0", "5.0", "10.0.0"] {
        assert_eq!(doubt(CallingEngine::Known(Engine::Podman), fixed), None, "{fixed}");
    }
    for old in ["1.0", "3.4.4", "4.3.1", "4.4.4", "4.5", "4.5.0"] {
        let expected = format!("podman {old} copies annotations from images");
        assert_eq!(doubt(CallingEngine::Known(Engine::Podman), old), Some(expected));
    }
    assert!(
        doubt(CallingEngine::Known(Engine::Podman), "")
            .unwrap()
            .contains("version of podman is not known")
    );
    for caller in [
        CallingEngine::Nerdctl,
        CallingEngine::Known(Engine::Crio),
        CallingEngine::Unknown,
    ] {
        assert!(doubt(caller, "5.0").is_some(), "{caller:?}");
    }
}
