//! NVIDIA's ways to ask, one row each.

use super::*;
use tranche_plan::inventory::DriverCapability;

const GPU: &str = "GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab";

#[test]
fn the_environment_names_devices() {
    check(&[
        ("", "nothing"),
        ("PATH=/bin", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES=", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES=,~,", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES=void", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES=0,void", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES=all", "environment all"),
        ("NVIDIA_VISIBLE_DEVICES=none", "environment none"),
        // The first word of both takes the place of everything without a vendor.
        ("NVIDIA_VISIBLE_DEVICES=0,all,none", "environment all"),
        ("NVIDIA_VISIBLE_DEVICES=0,none,all", "environment none"),
        ("NVIDIA_VISIBLE_DEVICES=all,x.com/nic=a", "environment all x.com/nic=a"),
        (
            "NVIDIA_VISIBLE_DEVICES=x.com/nic=a,none",
            "environment x.com/nic=a none",
        ),
        ("NVIDIA_VISIBLE_DEVICES=0", "environment 0"),
        ("NVIDIA_VISIBLE_DEVICES=~1~,,0,~", "environment 1 0"),
        ("NVIDIA_VISIBLE_DEVICES=0,1,0", "environment 0 1"),
        ("NVIDIA_VISIBLE_DEVICES=0:1", "environment 0:1"),
        ("NVIDIA_VISIBLE_DEVICES=0000:41:00.0", "environment 0000:41:00.0"),
        (
            "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0",
            "environment nvidia.com/gpu=0",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=0,x.com/nic=eth0",
            "environment 0 x.com/nic=eth0",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=runtime.nvidia.com/gpu=0,x.com/nic=a",
            "environment 0 x.com/nic=a",
        ),
        ("NVIDIA_VISIBLE_DEVICES=runtime.nvidia.com/gpu=all", "environment all"),
        // A name that a specification may have.
        ("NVIDIA_VISIBLE_DEVICES=gpu0", "environment nvidia.com/gpu=gpu0"),
        // Shares.
        ("NVIDIA_VISIBLE_DEVICES=0.big", "environment 0.big"),
        ("NVIDIA_VISIBLE_DEVICES=0.any,0.3", "environment 0.any 0.3"),
        ("NVIDIA_VISIBLE_DEVICES=0:1.any", "environment 0:1.any"),
        ("NVIDIA_VISIBLE_DEVICES=0::3", "environment 0.3"),
        ("NVIDIA_VISIBLE_DEVICES=0:1::3", "environment 0:1.3"),
    ]);
    // The forms that libnvidia-container accepts. Any other name is unchanged.
    let upper = "ABCDEF0B-0E3A-4D7E-9D3A-0123456789AB";
    for (asked, meant) in [
        ("ALL".to_owned(), "all".to_owned()),
        ("0,All".to_owned(), "all".to_owned()),
        ("runtime.nvidia.com/gpu=ALL".to_owned(), "all".to_owned()),
        (format!("gpu-{upper}"), format!("GPU-{upper}")),
        (format!("Mig-{upper}"), format!("MIG-{upper}")),
        (format!("mig-gpu-{upper}/7/0"), format!("MIG-GPU-{upper}/7/0")),
        (format!("gpu-{upper}.any"), format!("GPU-{upper}.any")),
        (format!("gpu-{upper}::3"), format!("GPU-{upper}.3")),
        ("gpu-of-mine-1".to_owned(), "nvidia.com/gpu=gpu-of-mine-1".to_owned()),
        ("0:1b:00.0".to_owned(), "0000:1b:00.0".to_owned()),
        ("0:1B:0".to_owned(), "0000:1b:00.0".to_owned()),
        ("00000000:1B:00.0".to_owned(), "0000:1b:00.0".to_owned()),
        ("10000:1:2.0".to_owned(), "10000:01:02.0".to_owned()),
    ] {
        check(&[(
            &format!("NVIDIA_VISIBLE_DEVICES={asked}"),
            &format!("environment {meant}"),
        )]);
    }
    // A CDI name is exact.
    check(&[(
        "NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=ALL",
        "environment nvidia.com/gpu=ALL",
    )]);
    for name in [
        GPU,
        "MIG-8188460b-0e3a-4d7e-9d3a-0123456789ab",
        "MIG-GPU-8188460b-0e3a/7/0",
    ] {
        check(&[(
            &format!("NVIDIA_VISIBLE_DEVICES={name}"),
            &format!("environment {name}"),
        )]);
        check(&[(
            &format!("NVIDIA_VISIBLE_DEVICES={name}.big"),
            &format!("environment {name}.big"),
        )]);
        check(&[(
            &format!("NVIDIA_VISIBLE_DEVICES={name}::0"),
            &format!("environment {name}.0"),
        )]);
    }
}

#[test]
fn the_last_of_a_variable_counts_and_an_entry_without_a_value_does_not() {
    check(&[
        ("NVIDIA_VISIBLE_DEVICES=all NVIDIA_VISIBLE_DEVICES=1", "environment 1"),
        ("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES=void", "nothing"),
        (
            "FOO NVIDIA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES=0 NVIDIA_VISIBLE_DEVICES BAR",
            "environment 0",
        ),
        ("NVIDIA_VISIBLE_DEVICES", "nothing"),
        ("XNVIDIA_VISIBLE_DEVICES=0", "nothing"),
        ("NVIDIA_VISIBLE_DEVICES_=0", "nothing"),
        ("=NVIDIA_VISIBLE_DEVICES=0", "nothing"),
    ]);
}

#[test]
fn an_image_of_old_cuda_gets_all() {
    check(&[
        ("CUDA_VERSION=9.0.176", "environment all"),
        ("CUDA_VERSION=9.0 NVIDIA_VISIBLE_DEVICES=", "nothing"),
        ("CUDA_VERSION=9.0 NVIDIA_VISIBLE_DEVICES=void", "nothing"),
        ("CUDA_VERSION=9.0 NVIDIA_VISIBLE_DEVICES=0", "environment 0"),
        ("CUDA_VERSION=12.4 NVIDIA_REQUIRE_CUDA=cuda>=12.4", "nothing"),
        ("CUDA_VERSION=12.4 NVIDIA_REQUIRE_CUDA=", "environment all"),
        ("CUDA_VERSION=", "nothing"),
        ("CUDA_VERSION=9.0 accept:never", "nothing"),
        ("CUDA_VERSION=9.0 swarm:SWARM SWARM=1", "environment 1"),
    ]);
}

#[test]
fn a_swarm_resource_takes_the_place_of_the_usual_variable() {
    check(&[
        ("swarm:SWARM SWARM=1 NVIDIA_VISIBLE_DEVICES=all", "environment 1"),
        ("swarm:SWARM SWARM= NVIDIA_VISIBLE_DEVICES=all", "nothing"),
        ("swarm:SWARM NVIDIA_VISIBLE_DEVICES=all", "environment all"),
        ("swarm:SWARM swarm:OTHER OTHER=2 SWARM=0,1", "environment 0 1 2"),
        ("SWARM=1", "nothing"),
    ]);
    assert!(refused("swarm:SWARM SWARM=a/b").starts_with("SWARM: \"a/b\" is not a valid name of a device"));
}

#[test]
fn annotations_come_first_and_in_the_order_of_their_keys() {
    check(&[
        ("@cdi.k8s.io/x=nvidia.com/gpu=0", "annotation nvidia.com/gpu=0"),
        (
            "@cdi.k8s.io/b=nvidia.com/gpu=1 @cdi.k8s.io/a=x.com/nic=a,~nvidia.com/gpu=0 @other/a=x.com/nic=b",
            "annotation x.com/nic=a nvidia.com/gpu=0 nvidia.com/gpu=1",
        ),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 NVIDIA_VISIBLE_DEVICES=all",
            "annotation nvidia.com/gpu=0",
        ),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 NVIDIA_VISIBLE_DEVICES=void",
            "annotation nvidia.com/gpu=0",
        ),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 accept:never",
            "annotation nvidia.com/gpu=0",
        ),
        ("@cdi.k8s.io/a=nvidia.com/gpu=0 mode:cdi", "annotation nvidia.com/gpu=0"),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 mode:jit-cdi",
            "annotation nvidia.com/gpu=0",
        ),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 mode:legacy NVIDIA_VISIBLE_DEVICES=1",
            "environment 1",
        ),
        ("@cdi.k8s.io/a=0.any", "annotation 0.any"),
        ("@cdi.k8s.io/a=~, NVIDIA_VISIBLE_DEVICES=0", "environment 0"),
        ("@cdi.k8s.io=nvidia.com/gpu=0", "nothing"),
        (
            "@cdi.k8s.io/a=nvidia.com/gpu=0 mounts /var/run/nvidia-container-devices/1",
            "annotation nvidia.com/gpu=0",
        ),
    ]);
    let mut other = container("@my.example/gpus=nvidia.com/gpu=2 @cdi.k8s.io/a=nvidia.com/gpu=0");
    other.settings.annotation_prefixes = vec!["my.example/".to_owned()];
    assert_eq!(shown(&other.asked().unwrap()), "annotation nvidia.com/gpu=2");
    let ignored = asked("@cdi.k8s.io/a=nvidia.com/gpu=0 mode:legacy");
    assert_eq!(
        ignored.notes,
        ["annotation cdi.k8s.io/a has no effect in this mode of the runtime"]
    );
}

#[test]
fn mounts_come_second_and_only_if_they_are_accepted() {
    const AT: &str = "/var/run/nvidia-container-devices";
    for (line, expected) in [
        ("/AT/0 mounts", "volume 0"),
        ("/AT/0", "nothing"),
        ("/AT/0 NVIDIA_VISIBLE_DEVICES=1", "environment 1"),
        ("/AT/0 mounts NVIDIA_VISIBLE_DEVICES=1 accept:never", "volume 0"),
        ("/AT/1 /AT/0 /AT/1 mounts", "volume 1 0"),
        ("/AT/all mounts", "volume all"),
        (
            "/AT/MIG-GPU-8188460b-0e3a/7/0 mounts",
            "volume MIG-GPU-8188460b-0e3a/7/0",
        ),
        ("/AT/cdi/nvidia.com/gpu/0 mounts", "volume nvidia.com/gpu=0"),
        ("/AT/cdi/nvidia.com/gpu=0.big mounts", "volume nvidia.com/gpu=0.big"),
        ("/var//run/./nvidia-container-devices/x/../0/ mounts", "volume 0"),
        ("/AT mounts", "nothing"),
        ("/AT-of-others/0 mounts", "nothing"),
        ("/AT/../0 mounts", "nothing"),
        ("/AT/imex/3 mounts", "nothing"),
        ("/AT/imex/3 mounts NVIDIA_VISIBLE_DEVICES=0", "environment 0"),
    ] {
        let line = line.replace("/AT", AT);
        check(&[(&line, expected)]);
    }
    // Only /dev/null marks a request.
    let mut other = container("mounts");
    other.mounts = vec![
        (format!("{AT}/0"), "/srv".to_owned()),
        (format!("{AT}/1"), "/dev//null".to_owned()),
    ];
    let asked = other.asked().unwrap();
    assert_eq!(shown(&asked), "volume 1");
    assert_eq!(asked.request.unwrap().request_mounts, [format!("{AT}/1")]);
    // All mounts that are requests leave the configuration, whatever decides.
    let line = format!("mounts {AT}/imex/3 {AT}//0 /data @cdi.k8s.io/a=nvidia.com/gpu=0");
    let found = request(&line);
    assert_eq!(found.request_mounts, [format!("{AT}/imex/3"), format!("{AT}//0")]);
    assert_eq!(found.imex, ImexRequest::Channels(vec![ImexChannelId(3)]));
    let invalid = refused(&format!("mounts {AT}/cdi/nvidia.com/gpu"));
    assert!(
        invalid.starts_with(&format!("mount {AT}/cdi/nvidia.com/gpu: does not name a CDI device")),
        "{invalid}"
    );
    // The value that NVIDIA's device plugin gives a container that it serves by mounts.
    let elsewhere = refused(&format!("NVIDIA_VISIBLE_DEVICES={AT}"));
    assert!(
        elsewhere.contains("accept-nvidia-visible-devices-as-volume-mounts"),
        "{elsewhere}"
    );
}

#[test]
fn an_environment_that_may_not_ask_is_noted() {
    for (line, expected, note) in [
        (
            "NVIDIA_VISIBLE_DEVICES=all accept:privileged privileged",
            "environment all",
            "",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=all accept:privileged",
            "nothing",
            "ignored: NVIDIA_VISIBLE_DEVICES=all, because only a privileged container may ask by its environment \
             (acceptEnvironment: privileged)",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES=0,a/b TRANCHE_MEMORY=x accept:never privileged",
            "nothing",
            "ignored: NVIDIA_VISIBLE_DEVICES=0,a/b and TRANCHE_MEMORY=x, because no container may ask by its environment \
             (acceptEnvironment: never)",
        ),
        ("NVIDIA_VISIBLE_DEVICES=void accept:never", "nothing", ""),
        ("NVIDIA_VISIBLE_DEVICES= accept:never", "nothing", ""),
        // The annotation has taken its place already.
        (
            "NVIDIA_VISIBLE_DEVICES=all @cdi.k8s.io/a=nvidia.com/gpu=0 accept:never",
            "annotation nvidia.com/gpu=0",
            "",
        ),
    ] {
        let asked = asked(line);
        assert_eq!(shown(&asked), expected, "{line}");
        assert_eq!(asked.notes.join("; "), note, "{line}");
    }
}

#[test]
fn the_mode_cdi_takes_every_name_from_a_specification() {
    check(&[
        (
            "mode:cdi NVIDIA_VISIBLE_DEVICES=0,0.big",
            "environment nvidia.com/gpu=0 nvidia.com/gpu=0.big",
        ),
        ("mode:cdi NVIDIA_VISIBLE_DEVICES=x.com/nic=a", "environment x.com/nic=a"),
        ("mode:cdi NVIDIA_VISIBLE_DEVICES=none", "environment none"),
        (
            "mode:cdi kind:management.nvidia.com/gpu NVIDIA_VISIBLE_DEVICES=0,all",
            "environment management.nvidia.com/gpu=all",
        ),
        (
            "kind:management.nvidia.com/gpu NVIDIA_VISIBLE_DEVICES=all",
            "environment all",
        ),
    ]);
}

#[test]
fn a_name_that_is_invalid_is_refused_with_the_names_that_are_valid() {
    for (name, expected) in [
        ("-1", "\"-1\" is not a valid name of a device"),
        ("a/b", "\"a/b\" is not a valid name of a device"),
        ("nvidia.com/gpu=", "\"nvidia.com/gpu=\" is not a valid CDI device"),
        ("gpu=0", "\"gpu=0\" is not a valid CDI device"),
        ("0::big", "\"0::big\" has no number after \"::\""),
        ("0::", "\"0::\" has no number after \"::\""),
        ("x::0", "\"x::0\" has no device before \"::\""),
        ("0,../../x", "\"../../x\" is not a valid name of a device"),
    ] {
        let line = refused(&format!("NVIDIA_VISIBLE_DEVICES={name}"));
        assert!(
            line.starts_with(&format!(
                "NVIDIA_VISIBLE_DEVICES: {expected}; expected all, any, none, void, or"
            )),
            "{line}"
        );
    }
    let line = refused("@cdi.k8s.io/b=a/b");
    assert!(line.starts_with("annotation cdi.k8s.io/b: \"a/b\" is not"), "{line}");
}

#[test]
fn driver_capabilities_are_the_usual_ones_those_named_or_all() {
    use DriverCapability::{Compute, Graphics, Utility, Video};
    let usual = BTreeSet::from([Compute, Utility]);
    let all: BTreeSet<DriverCapability> = DriverCapability::ALL.iter().copied().collect();
    for (line, expected) in [
        ("", &usual),
        ("NVIDIA_DRIVER_CAPABILITIES=", &usual),
        ("NVIDIA_DRIVER_CAPABILITIES=all", &all),
        ("NVIDIA_DRIVER_CAPABILITIES=video,all", &all),
        (
            "NVIDIA_DRIVER_CAPABILITIES=~video~,graphics,",
            &BTreeSet::from([Video, Graphics]),
        ),
        ("CUDA_VERSION=9.0", &all),
        ("CUDA_VERSION=9.0 NVIDIA_DRIVER_CAPABILITIES=", &usual),
        ("CUDA_VERSION=9.0 NVIDIA_REQUIRE_CUDA=cuda>=9.0", &usual),
    ] {
        assert_eq!(
            request(&format!("NVIDIA_VISIBLE_DEVICES=0 {line}")).capabilities,
            *expected,
            "{line}"
        );
    }
    let wrong = refused("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_DRIVER_CAPABILITIES=compute,vide");
    assert_eq!(
        wrong,
        "NVIDIA_DRIVER_CAPABILITIES: driver capability \"vide\" is unknown; expected some of video, compute, \
         utility, graphics, display and 3 more"
    );
    let limited = |line: &str| {
        let mut container = container(&format!("NVIDIA_VISIBLE_DEVICES=0 {line}"));
        container.settings.supported_capabilities = BTreeSet::from([Video, Compute]);
        container.asked()
    };
    let capabilities = |line: &str| limited(line).unwrap().request.unwrap().capabilities;
    assert_eq!(capabilities(""), BTreeSet::from([Compute]));
    assert_eq!(
        capabilities("NVIDIA_DRIVER_CAPABILITIES=all"),
        BTreeSet::from([Video, Compute])
    );
    assert_eq!(capabilities("CUDA_VERSION=9.0"), BTreeSet::from([Video, Compute]));
    let wrong = limited("NVIDIA_DRIVER_CAPABILITIES=compute,utility")
        .unwrap_err()
        .to_string();
    assert!(
        wrong.contains("\"utility\" is not supported on this host by its configuration"),
        "{wrong}"
    );
    // Without a request, nothing is wrong.
    check(&[("NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=vide", "nothing")]);
}

#[test]
fn more_than_gpus_is_asked_for_by_a_container_that_gets_one() {
    let modes = |line: &str| request(&format!("NVIDIA_VISIBLE_DEVICES=0 {line}")).modes;
    assert_eq!(modes(""), []);
    assert_eq!(
        modes("NVIDIA_NVSWITCH=enabled NVIDIA_GDS=enabled NVIDIA_GDRCOPY=enabled NVIDIA_MOFED=enabled"),
        [Mode::Gds, Mode::Mofed, Mode::Gdrcopy, Mode::Nvswitch]
    );
    assert_eq!(modes("NVIDIA_GDS=true NVIDIA_MOFED=Enabled NVIDIA_GDRCOPY="), []);
    check(&[("NVIDIA_GDS=enabled NVIDIA_IMEX_CHANNELS=0", "nothing")]);
}

#[test]
fn imex_channels_are_numbers_and_all_is_for_mounts() {
    const AT: &str = "/var/run/nvidia-container-devices/imex";
    let imex = |line: &str| asked(&format!("@cdi.k8s.io/a=nvidia.com/gpu=0 {line}"));
    let channels = |ids: &[u32]| ImexRequest::Channels(ids.iter().copied().map(ImexChannelId).collect());
    for (line, expected, note) in [
        ("", channels(&[]), false),
        ("NVIDIA_IMEX_CHANNELS=3,~0,3", channels(&[3, 0]), false),
        ("NVIDIA_IMEX_CHANNELS=all", channels(&[]), true),
        ("NVIDIA_IMEX_CHANNELS=void", channels(&[]), false),
        ("NVIDIA_IMEX_CHANNELS=", channels(&[]), false),
        ("NVIDIA_IMEX_CHANNELS=1048575", channels(&[1_048_575]), false),
        ("NVIDIA_IMEX_CHANNELS=3 accept:privileged", channels(&[]), true),
        (
            "NVIDIA_IMEX_CHANNELS=3 accept:privileged privileged",
            channels(&[3]),
            false,
        ),
        ("NVIDIA_IMEX_CHANNELS=3 mounts /AT/5", channels(&[5]), false),
        ("mounts /AT/all", ImexRequest::All, false),
    ] {
        let line = line.replace("/AT", AT);
        let found = imex(&line);
        assert_eq!(found.request.unwrap().imex, expected, "{line}");
        assert_eq!(!found.notes.is_empty(), note, "{line}: {:?}", found.notes);
    }
    for bad in ["x", "-1", "1048576", "0:1"] {
        let line = refused(&format!("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_IMEX_CHANNELS={bad}"));
        assert!(line.contains("is not an IMEX channel"), "{line}");
    }
    let mut ignoring = container("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_IMEX_CHANNELS=x");
    ignoring.settings.ignore_imex_channel_requests = true;
    let found = ignoring.asked().unwrap();
    assert_eq!(found.request.unwrap().imex, channels(&[]));
    assert_eq!(found.notes.len(), 1);
}

#[test]
fn only_a_privileged_container_manages_mig() {
    let config = |line: &str| request(&format!("NVIDIA_VISIBLE_DEVICES=all {line}")).mig_config;
    let zero = MigAccess::Devices(vec!["0".parse().unwrap(), GPU.parse().unwrap()]);
    for all in ["all", "ALL"] {
        let asked = config(&format!("privileged NVIDIA_MIG_CONFIG_DEVICES={all}"));
        assert_eq!(asked, Some(MigAccess::All));
    }
    assert_eq!(
        config(&format!("privileged NVIDIA_MIG_CONFIG_DEVICES=0,{GPU}")),
        Some(zero)
    );
    for nothing in ["", "void", "none"] {
        assert_eq!(config(&format!("NVIDIA_MIG_CONFIG_DEVICES={nothing}")), None);
    }
    let found = request("NVIDIA_VISIBLE_DEVICES=all privileged NVIDIA_MIG_MONITOR_DEVICES=all");
    assert_eq!((found.mig_config, found.mig_monitor), (None, Some(MigAccess::All)));
    for variable in ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"] {
        let line = refused(&format!("NVIDIA_VISIBLE_DEVICES=all {variable}=all"));
        assert!(
            line.starts_with(&format!("{variable}: needs a privileged container")),
            "{line}"
        );
        let line = refused(&format!("NVIDIA_VISIBLE_DEVICES=all privileged {variable}=x"));
        assert!(line.starts_with(&format!("{variable}: is invalid: \"x\"")), "{line}");
        let never = asked(&format!(
            "@cdi.k8s.io/a=nvidia.com/gpu=0 privileged accept:never {variable}=all"
        ));
        assert!(
            never.notes[0].starts_with(&format!("ignored: {variable}=all, because")),
            "{:?}",
            never.notes
        );
    }
}

#[test]
fn requirements_are_collected_unless_they_are_disabled() {
    let names = |line: &str| {
        let requirements = request(&format!("NVIDIA_VISIBLE_DEVICES=0 {line}")).requirements;
        let names: Vec<String> = requirements
            .into_iter()
            .map(|requirement| requirement.variable)
            .collect();
        names.join(" ")
    };
    let two = "NVIDIA_REQUIRE_DRIVER=driver>=535 NVIDIA_REQUIRE_CUDA=cuda>=12.4";
    assert_eq!(names(two), "NVIDIA_REQUIRE_CUDA NVIDIA_REQUIRE_DRIVER");
    assert_eq!(names(&format!("{two} NVIDIA_DISABLE_REQUIRE=1")), "");
    assert_eq!(names(&format!("{two} NVIDIA_DISABLE_REQUIRE=true")), "");
    assert_eq!(
        names(&format!("{two} NVIDIA_DISABLE_REQUIRE=no")),
        "NVIDIA_REQUIRE_CUDA NVIDIA_REQUIRE_DRIVER"
    );
    assert_eq!(
        names("NVIDIA_REQUIRE_JETPACK=csv-mounts=all NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS=x"),
        ""
    );
    assert_eq!(names("CUDA_VERSION=9.0.176"), "CUDA_VERSION");
    assert_eq!(asked("CUDA_VERSION=latest").notes.len(), 1);
    let mut disabled = container(&format!("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_REQUIRE_CUDA=wrong {two}"));
    disabled.settings.disable_require = true;
    assert!(disabled.asked().unwrap().request.unwrap().requirements.is_empty());
    assert!(
        refused("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_REQUIRE_CUDA=wrong").starts_with("NVIDIA_REQUIRE_CUDA: \"wrong\"")
    );
    // The last one counts here, too.
    let last = request("NVIDIA_VISIBLE_DEVICES=0 NVIDIA_REQUIRE_CUDA=cuda>=99 NVIDIA_REQUIRE_CUDA=cuda>=12.4");
    assert_eq!(
        last.requirements,
        [Requirement::parse("NVIDIA_REQUIRE_CUDA", "cuda>=12.4").unwrap()]
    );
}
