//! Who asks: a person, or an image.

use super::*;
use tranche_plan::inventory::DriverCapability::{Compute, Graphics, Utility};

/// Every sort of annotation that asks.
const ANNOTATIONS: &str = "@cdi.k8s.io/x=nvidia.com/gpu=0 @tranche.dev/shares=2 @tranche.dev/wait=5s";

#[test]
fn annotations_ask_only_where_no_image_can_write_them() {
    for (words, is_accepted) in [
        ("by:docker", true),
        ("by:containerd", true),
        ("", true),
        ("by:podman-4.5.1", true),
        ("by:podman-5.4.2", true),
        ("by:podman-4.5.0", false),
        ("by:podman-4.3.1", false),
        ("by:podman", false),
        ("by:unknown", false),
        ("@nerdctl/name=a", false),
        ("by:docker @a.nerdctl/b=", false),
        ("by:podman-5.4.2 @io.kubernetes.cri-o.ContainerID=a", false),
        // What the policy says counts for every engine.
        ("by:podman-4.3.1 annotations:always", true),
        ("by:unknown annotations:always", true),
        ("@nerdctl/name=a annotations:always", true),
        ("by:docker annotations:never", false),
        ("by:podman-5.4.2 annotations:never", false),
    ] {
        let line = format!("{words} {ANNOTATIONS}");
        let found = asked(&line);
        let expected = if is_accepted {
            "annotation shares:2 of:0 wait:5000ms"
        } else {
            "nothing"
        };
        assert_eq!(shown(&found), expected, "{line}");
        assert_eq!(
            found.notes.len(),
            usize::from(!is_accepted),
            "{line}: {:?}",
            found.notes
        );
        // Each sort by itself.
        for one in ANNOTATIONS.split(' ') {
            let found = asked(&format!("{words} {one} NVIDIA_VISIBLE_DEVICES=1"));
            let request = found.request.unwrap();
            let has_effect = request.source == RequestSource::Annotation || request.wait.is_some();
            assert_eq!(has_effect, is_accepted, "{words} {one}");
        }
    }
}

#[test]
fn a_refused_annotation_is_one_line_with_the_setting_and_a_form_that_no_image_can_write() {
    let note = |line: &str| {
        let notes = asked(line).notes;
        assert_eq!(notes.len(), 1, "{line}: {notes:?}");
        notes[0].clone()
    };
    assert_eq!(
        note(&format!("by:podman-4.3.1 {ANNOTATIONS}")),
        "ignored: annotation cdi.k8s.io/x, tranche.dev/shares, tranche.dev/wait, because podman 4.3.1 copies annotations \
         from images (runtime.acceptAnnotations: always accepts them); ask by --device nvidia.com/gpu=NAME, or by a mount of \
         /dev/null at /var/run/nvidia-container-devices/NAME, which no image can write"
    );
    let never = note("by:docker annotations:never @tranche.dev/memory=8Gi");
    assert!(
        never.contains("because the policy says runtime.acceptAnnotations: never; ask by --gpus or"),
        "{never}"
    );
    assert!(note("@nerdctl/name=a @cdi.k8s.io/nerdctl/x=0").contains("labels of images"));
    // An annotation without a value asks for nothing, and tranche ignores the others.
    for line in [
        "by:podman-4.3.1 @cdi.k8s.io/x= @tranche.dev/shares=~",
        "by:unknown @a=b @cdi.k8s.io=nvidia.com/gpu=0",
    ] {
        assert_eq!(asked(line), Asked::default(), "{line}");
    }
    let long = format!("by:unknown @cdi.k8s.io/{}=0", "x".repeat(1 << 20));
    assert!(note(&long).len() < 1000);
}

/// An image must not take away what a person asks for either.
#[test]
fn a_refused_annotation_hides_neither_mounts_nor_variables() {
    let refused = "by:podman-4.3.1 @cdi.k8s.io/x=nvidia.com/gpu=0 @tranche.dev/memory=8Gi";
    check(&[
        (&format!("{refused} NVIDIA_VISIBLE_DEVICES=1"), "environment 1"),
        (&format!("{refused} NVIDIA_VISIBLE_DEVICES=void"), "nothing"),
        (
            &format!("{refused} TRANCHE_MEMORY=1Gi NVIDIA_VISIBLE_DEVICES=1"),
            "environment memory:1024Mi of:1",
        ),
        (
            &format!("{refused} mounts /var/run/nvidia-container-devices/1"),
            "volume 1",
        ),
        // It cannot make a start fail.
        (
            "by:podman-4.3.1 @tranche.dev/memory=x @cdi.k8s.io/x=a/b NVIDIA_VISIBLE_DEVICES=1",
            "environment 1",
        ),
    ]);
}

#[test]
fn the_variables_of_swarm_and_nvidia_can_only_take_devices_from_each_other() {
    for (line, expected, is_noted) in [
        ("SWARM=1", "environment 1", false),
        ("SWARM=1 NVIDIA_VISIBLE_DEVICES=all", "environment 1", false),
        // An image sets the variable of the swarm outside of a swarm.
        ("SWARM=all NVIDIA_VISIBLE_DEVICES=0", "environment 0", true),
        ("SWARM=all NVIDIA_VISIBLE_DEVICES=void", "nothing", true),
        ("SWARM=all NVIDIA_VISIBLE_DEVICES=", "nothing", true),
        ("SWARM=all NVIDIA_VISIBLE_DEVICES=none", "environment none", true),
        ("SWARM=0,1,2 NVIDIA_VISIBLE_DEVICES=2,0,5", "environment 0 2", true),
        ("SWARM=1 NVIDIA_VISIBLE_DEVICES=0", "nothing", true),
        ("SWARM=void NVIDIA_VISIBLE_DEVICES=all", "nothing", false),
        ("SWARM=none NVIDIA_VISIBLE_DEVICES=0", "environment none", false),
        ("SWARM= NVIDIA_VISIBLE_DEVICES=all", "nothing", false),
        ("SWARM=1 CUDA_VERSION=9.0", "environment 1", false),
    ] {
        let found = asked(&format!("swarm:SWARM {line}"));
        assert_eq!(shown(&found), expected, "{line}");
        assert_eq!(found.notes.len(), usize::from(is_noted), "{line}: {:?}", found.notes);
    }
    let noted = asked("swarm:SWARM SWARM=all NVIDIA_VISIBLE_DEVICES=0").notes;
    assert_eq!(
        noted,
        ["SWARM=all gives only what NVIDIA_VISIBLE_DEVICES=0 gives as well, because an image can set either variable"]
    );
    // docker's own variable is the user's.
    check(&[(
        "by:docker gpus swarm:SWARM SWARM=all NVIDIA_VISIBLE_DEVICES=2",
        "environment 2",
    )]);
}

#[test]
fn the_environment_adds_nothing_to_what_a_person_asks_for() {
    for (line, expected, notes) in [
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=2",
            "annotation memory:1024Mi",
            1,
        ),
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=none",
            "annotation memory:1024Mi",
            1,
        ),
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=a/b",
            "annotation memory:1024Mi",
            1,
        ),
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=x.com/nic=a",
            "annotation memory:1024Mi",
            1,
        ),
        // What images of CUDA set is no contradiction.
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=all",
            "annotation memory:1024Mi",
            0,
        ),
        (
            "@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=void",
            "annotation memory:1024Mi",
            0,
        ),
        (
            "@tranche.dev/memory=1Gi CUDA_VERSION=9.0",
            "annotation memory:1024Mi",
            0,
        ),
        (
            "@tranche.dev/memory=1Gi TRANCHE_SHARES=4",
            "annotation memory:1024Mi",
            1,
        ),
        (
            "@tranche.dev/memory=1Gi TRANCHE_COMPUTE=x",
            "annotation memory:1024Mi",
            1,
        ),
        ("@cdi.k8s.io/x=0.any TRANCHE_SHARES=4", "annotation 0.any", 1),
        (
            "mounts /var/run/nvidia-container-devices/0.any TRANCHE_SHARES=4",
            "volume 0.any",
            1,
        ),
        (
            "mounts /var/run/nvidia-container-devices/0 @tranche.dev/shares=2 NVIDIA_VISIBLE_DEVICES=1",
            "annotation shares:2 of:0",
            0,
        ),
        // --gpus is the user's word.
        (
            "by:docker gpus @tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=2",
            "annotation memory:1024Mi of:2",
            0,
        ),
    ] {
        let found = asked(line);
        assert_eq!(shown(&found), expected, "{line}");
        assert_eq!(found.notes.len(), notes, "{line}: {:?}", found.notes);
    }
    assert_eq!(
        asked("@tranche.dev/memory=1Gi NVIDIA_VISIBLE_DEVICES=2").notes,
        [
            "NVIDIA_VISIBLE_DEVICES=2 is ignored, because annotation tranche.dev/memory asks for a size, and an image can set \
             the variable; name the device by an annotation cdi.k8s.io/…, too"
        ]
    );
    assert_eq!(
        asked("@cdi.k8s.io/x=0.any TRANCHE_SHARES=4").notes,
        [
            "TRANCHE_SHARES=4 is ignored, because annotation cdi.k8s.io/x asks for a device already, and an image can set the \
             variable; use the annotation tranche.dev/shares"
        ]
    );
}

#[test]
fn the_last_variable_of_docker_s_gpus_is_the_user_s() {
    let gpus = "by:docker gpus NVIDIA_VISIBLE_DEVICES=all NVIDIA_VISIBLE_DEVICES=1";
    for accept in ["accept:never", "accept:privileged", ""] {
        check(&[(&format!("{gpus} {accept}"), "environment 1")]);
        assert_eq!(asked(&format!("{gpus} {accept}")).notes, [""; 0]);
    }
    check(&[
        ("by:docker NVIDIA_VISIBLE_DEVICES=1 accept:never", "nothing"),
        // Other engines let a hook directory add the hook to every container.
        ("by:podman-5.0 gpus NVIDIA_VISIBLE_DEVICES=1 accept:never", "nothing"),
        ("gpus NVIDIA_VISIBLE_DEVICES=1 accept:never", "nothing"),
        (
            "by:docker gpus @nerdctl/name=a NVIDIA_VISIBLE_DEVICES=1 accept:never",
            "nothing",
        ),
        // Not a size, and not a device of an image of old CUDA.
        ("by:docker gpus TRANCHE_SHARES=2 accept:never", "nothing"),
        ("by:docker gpus CUDA_VERSION=9.0 accept:never", "nothing"),
    ]);
    // docker sets the capabilities behind the devices; those in front are the image's.
    let capabilities = |line: &str| request(&format!("by:docker gpus accept:never {line}")).capabilities;
    assert_eq!(
        capabilities("NVIDIA_VISIBLE_DEVICES=1 NVIDIA_DRIVER_CAPABILITIES=graphics"),
        BTreeSet::from([Graphics])
    );
    assert_eq!(
        capabilities("NVIDIA_DRIVER_CAPABILITIES=graphics NVIDIA_VISIBLE_DEVICES=1"),
        BTreeSet::from([Compute, Utility])
    );
}

/// No matter who asked for the device: variables that are not accepted narrow it, and neither widen it nor make it
/// fail.
#[test]
fn an_environment_that_is_not_accepted_only_narrows() {
    let person = "@cdi.k8s.io/a=nvidia.com/gpu=0";
    for accept in ["accept:never privileged", "accept:privileged"] {
        for variable in ["NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH"] {
            let found = asked(&format!("{person} {accept} {variable}=enabled"));
            assert_eq!(found.request.unwrap().modes, [], "{accept} {variable}");
            assert!(
                found.notes.len() == 1 && found.notes[0].starts_with(&format!("ignored: {variable}=enabled, because")),
                "{:?}",
                found.notes
            );
        }
        for variable in [
            "NVIDIA_MIG_CONFIG_DEVICES=all",
            "NVIDIA_MIG_MONITOR_DEVICES=x",
            "NVIDIA_IMEX_CHANNELS=x",
        ] {
            let found = asked(&format!("{person} {accept} {variable}"));
            let request = found.request.unwrap();
            assert_eq!(
                (request.mig_config, request.mig_monitor, request.imex),
                Default::default()
            );
            assert_eq!(found.notes.len(), 1, "{:?}", found.notes);
        }
        let capabilities = |names: &str| {
            let found = asked(&format!("{person} {accept} NVIDIA_DRIVER_CAPABILITIES={names}"));
            (found.request.unwrap().capabilities, found.notes.join("; "))
        };
        let usual = BTreeSet::from([Compute, Utility]);
        assert_eq!(capabilities(""), (usual.clone(), String::new()));
        assert_eq!(capabilities("compute,utility"), (usual.clone(), String::new()));
        assert_eq!(capabilities("utility"), (BTreeSet::from([Utility]), String::new()));
        for (names, left, ignored) in [
            ("all", &usual, "all"),
            ("graphics", &usual, "graphics"),
            ("utility,vide,graphics", &BTreeSet::from([Utility]), "vide,graphics"),
        ] {
            let (found, note) = capabilities(names);
            assert_eq!(found, *left, "{names}");
            assert!(
                note.starts_with(&format!("ignored: NVIDIA_DRIVER_CAPABILITIES={ignored}, because")),
                "{note}"
            );
        }
        assert_eq!(
            request(&format!("{person} {accept} CUDA_VERSION=9.0")).capabilities,
            usual
        );
        let found = asked(&format!(
            "{person} {accept} NVIDIA_REQUIRE_CUDA=cuda>=99 NVIDIA_REQUIRE_X=wrong"
        ));
        let request = found.request.unwrap();
        assert!(!request.requirements_bind);
        assert_eq!(
            (request.requirements.len(), found.notes.len()),
            (1, 1),
            "{:?}",
            found.notes
        );
        assert!(
            found.notes[0].starts_with("NVIDIA_REQUIRE_X: \"wrong\""),
            "{:?}",
            found.notes
        );
    }
    let accepted = request(&format!("{person} accept:privileged privileged NVIDIA_GDS=enabled"));
    assert!(accepted.modes == [Mode::Gds] && accepted.requirements_bind);
}

/// A text of a megabyte costs a time that grows with its length, and a line that does not.
#[test]
fn a_long_environment_costs_no_more_than_its_length() {
    let seconds = |size: usize| {
        let numbers = (0..size).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let container = Container {
            caller: CallingEngine::Known(Engine::Docker),
            env: (0..size).map(|n| format!("NVIDIA_REQUIRE_{n}=cuda>=1")).collect(),
            ..Container::default()
        };
        let mut container = container;
        container.env.push(format!("NVIDIA_VISIBLE_DEVICES={numbers}"));
        container.env.push(format!("NVIDIA_IMEX_CHANNELS={numbers}"));
        container.settings.swarm_resource = vec!["SWARM".to_owned()];
        container.env.push(format!("SWARM={numbers}"));
        let bytes = container.config().to_string();
        let begin = std::time::Instant::now();
        let found = of(bytes.as_bytes(), &container.settings, container.caller).unwrap();
        let request = found.request.unwrap();
        assert_eq!((request.devices.len(), request.requirements.len()), (size, size));
        begin.elapsed().as_secs_f64()
    };
    let (small, large) = (seconds(4_000).max(0.001), seconds(64_000));
    // 16 times the length, and 256 times the comparisons of each with each.
    assert!(large < small * 100.0, "{small} s and {large} s");
    let line = refused(&format!("NVIDIA_VISIBLE_DEVICES={}", "a".repeat(1 << 20)));
    assert!(line.len() < 1000 && line.contains("is longer than 512 bytes"), "{line}");
    let notes = asked(&format!("NVIDIA_VISIBLE_DEVICES={} accept:never", "a".repeat(1 << 20))).notes;
    assert!(notes.len() == 1 && notes[0].len() < 1000);
}
