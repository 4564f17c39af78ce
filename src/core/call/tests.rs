//! Each call is read as it was written, and knows its paths.

use super::*;
use crate::error::Result;
use crate::types::{
    Bounds, ContainerPath, ElfClass, Link, MemorySize, Part, Percent, Promise, ShareName, Side, Subject,
};
use proptest::option::of;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// The words after the program and the verb, as the hook gets them.
fn options(command: &[String]) -> Vec<OsString> {
    let (_, _, options) = verb_and_options(command).unwrap();
    options.iter().map(OsString::from).collect()
}

fn nothing_unknown(unknown: Unknown) -> Result<()> {
    panic!("{unknown:?}")
}

fn host() -> impl Strategy<Value = HostPath> {
    "(/[a-z:. =-]{1,8}){1,4}".prop_map(|text| HostPath::new(text).unwrap())
}

fn container() -> impl Strategy<Value = ContainerPath> {
    "(/[a-z.=-][a-z0-9. =-]{0,8}){1,4}"
        .prop_map(|text| ContainerPath::new(text).unwrap())
        .prop_filter("the root", |path| !path.file_name().is_empty())
}

/// Any text that is not the mark between two parts of a value.
fn name() -> impl Strategy<Value = String> {
    "[^/:\0]{0,8}[^/:.\0]"
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let targets = prop::collection::btree_map(container(), "(\\.\\./|/)?[^:\0]{1,12}", 0..4);
    targets.prop_map(|links| {
        let links = links.into_iter();
        links.map(|(path, target)| Link { path, target }).collect()
    })
}

fn class() -> impl Strategy<Value = ElfClass> {
    prop_oneof![Just(ElfClass::Elf32), Just(ElfClass::Elf64)]
}

prop_compose! {
    fn prepare()(
        links in links(),
        sockets in prop::collection::btree_map("(/[a-z.=-]{1,8}){1,3}", "(/[a-z.=-]{1,8}){1,3}", 0..2),
        by_path in prop::collection::btree_set((name(), "[a-z]{1,8}"), 0..3),
        ldcache_dirs in prop::collection::btree_set(container(), 0..3),
        libraries in prop::collection::vec((class(), container(), of(name())), 0..3),
        driver_version in of(".{1,8}"),
        skip in prop::sample::subsequence(PrepareCall::CAN_SKIP.to_vec(), 0..=2),
    ) -> PrepareCall {
        let node = |node: &str| ContainerPath::root().join("dev/dri").join(node);
        let by_path = by_path.iter().map(|(name, file)| ByPath::new(name, node(file)).unwrap());
        let libraries = libraries.into_iter().map(|(class, path, soname)| {
            KnownLibrary::new(class, path, soname.as_deref()).unwrap()
        });
        let sockets = sockets.into_iter().map(|(container, host)| BoundPath {
            container: ContainerPath::new(&container).unwrap(),
            host: HostPath::new(&host).unwrap(),
        });
        PrepareCall {
            links,
            sockets: sockets.collect(),
            by_path: by_path.collect(),
            ldcache_dirs: ldcache_dirs.into_iter().collect(),
            libraries: libraries.collect(),
            driver_version,
            skip,
        }
    }
}

fn hook() -> impl Strategy<Value = NvidiaHook> {
    let names = "create-symlinks update-ldcache enable-cuda-compat disable-device-node-modification \
                 update-application-profile chmod apply-cuda-memory-limits create-soname-symlinks noop";
    let names: Vec<&str> = names.split(' ').collect();
    prop::sample::select(names).prop_map(|name| name.parse().unwrap())
}

prop_compose! {
    fn nvidia()(
        hook in hook(),
        links in links(),
        folders in prop::collection::btree_set(container(), 0..3),
        ldconfig in of(host()),
        versions in (of(".{1,8}"), of(".{1,8}")),
        compat in of(container()),
        paths in prop::collection::vec(container(), 0..3),
        mode in of(0..=0o777u32),
        state_file in of("[^-]{1,8}"),
    ) -> NvidiaCall {
        NvidiaCall {
            hook,
            links,
            folders: folders.into_iter().collect(),
            ldconfig,
            driver_version: versions.0,
            cuda_version: versions.1,
            compat,
            paths,
            mode,
            state_file,
        }
    }
}

fn device() -> impl Strategy<Value = crate::types::DeviceKey> {
    prop::sample::select(vec!["GPU-11111111", "GPU-11111111/7/0"]).prop_map(|key| key.parse().unwrap())
}

fn share_name() -> impl Strategy<Value = ShareName> {
    prop_oneof!["[a-z][a-z0-9_-]{0,6}[0-9]", "[0-9]{1,4}"].prop_map(|name| name.parse().unwrap())
}

fn memory() -> impl Strategy<Value = MemorySize> {
    (0u64..1 << 44).prop_map(MemorySize::from_mib)
}

fn compute() -> impl Strategy<Value = Percent> {
    any::<u32>().prop_map(Percent::of_sum)
}

fn size() -> impl Strategy<Value = Promise> {
    prop_oneof![
        (1u32.., 0u32..1000).prop_map(|(slices, more)| Promise::Slices {
            slices,
            of: slices.saturating_add(more),
        }),
        (1u32..).prop_map(|holders| Promise::Turns { holders }),
        (of(memory()), of(compute())).prop_map(|(memory, compute)| Promise::Mps { memory, compute }),
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        Just(Subject::WHOLE),
        size().prop_map(|size| Subject::Part(Part::Any, size)),
        (share_name(), size()).prop_map(|(name, size)| Subject::Part(Part::Share(name), size)),
        (".*", of(prop_oneof![size(), Just(Promise::Whole)])).prop_map(|(name, size)| Subject::Claim(name, size)),
    ]
}

prop_compose! {
    fn claim()(
        device in device(),
        label in ".*",
        subject in subject(),
        asked_as in of(".*"),
        replicas in 1u32..,
        named in of(prop::collection::vec("[a-z][a-z0-9_-]{0,6}", 0..3)),
        bounds in of((of(memory()), compute())),
        alone in any::<bool>(),
        nodes in prop::collection::vec((container(), of(host())), 0..3),
        (daemon, prepare, wait) in (of(host()), any::<bool>(), 0..604_800_u32),
        state_dir in host(),
    ) -> ClaimCall {
        let siblings = match (named, &subject) {
            (Some(names), Subject::Part(Part::Whole | Part::Share(_), _) | Subject::Claim(..)) => Siblings::Named(names),
            _ => Siblings::Replicas(replicas),
        };
        let nodes = nodes.into_iter().map(|(container, host)| BoundPath {
            host: host.unwrap_or_else(|| HostPath::new(container.as_str()).unwrap()),
            container,
        });
        ClaimCall {
            device,
            label,
            subject,
            asked_as,
            siblings,
            bounds: bounds.map(|(memory, compute)| Bounds { memory, compute }),
            alone,
            nodes: nodes.collect(),
            daemon,
            prepare,
            wait: wait.to_string().parse().unwrap(),
            state_dir,
        }
    }
}

prop_compose! {
    fn release()(
        device in of(device()),
        claim in of(".*"),
        spec_file in of(host()),
        state_dir in host(),
    ) -> ReleaseCall {
        ReleaseCall {
            claim: claim.filter(|_| device.is_some()),
            device,
            spec_file,
            state_dir,
        }
    }
}

proptest! {
    #[test]
    fn a_call_is_read_as_it_was_written(
        prepare in prepare(),
        nvidia in nvidia(),
        claim in claim(),
        release in release(),
    ) {
        let read = PrepareCall::parse(options(&prepare.write()), &mut nothing_unknown);
        prop_assert_eq!(read.unwrap(), prepare);
        for program in [Program::Tranche, Program::NvidiaCdiHook, Program::NvidiaCtk] {
            let written = nvidia.write(program);
            let (of, verb, _) = verb_and_options(&written).unwrap();
            prop_assert_eq!((of, verb), (program, nvidia.hook.as_str()));
            let read = NvidiaCall::parse(nvidia.hook, options(&written), &mut nothing_unknown);
            prop_assert_eq!(read.unwrap(), nvidia.clone());
        }
        let written = claim.write();
        prop_assert_eq!(ClaimCall::parse(options(&written), &mut nothing_unknown).unwrap(), claim.clone());
        prop_assert_eq!(ClaimCall::of_hook(&written), Some(claim));
        let read = ReleaseCall::parse(options(&release.write()), &mut nothing_unknown);
        prop_assert_eq!(read.unwrap(), release);
    }
}

/// The options of a call, and a command line in which every one of them is written.
type Full = (&'static [(&'static str, ValueKind)], Vec<String>);

/// A hook's command line with the option that no field has, because it says where messages are kept.
fn with_state_dir(mut command: Vec<String>) -> Vec<String> {
    command.push("--state-dir=/run/other".to_owned());
    command
}

/// Calls in which every field has a value.
fn full() -> [Full; 4] {
    let link = Link {
        path: ContainerPath::new("/lib/libcuda.so").unwrap(),
        target: "libcuda.so.1".into(),
    };
    let directory = ContainerPath::new("/lib").unwrap();
    let other = HostPath::new("/run/other").unwrap();
    let prepare = PrepareCall {
        links: vec![link.clone()],
        sockets: vec![BoundPath {
            container: directory.clone(),
            host: other.clone(),
        }],
        by_path: vec![ByPath::new("pci-0", ContainerPath::new("/dev/dri/card0").unwrap()).unwrap()],
        ldcache_dirs: vec![directory.clone()],
        libraries: vec![KnownLibrary::new(ElfClass::Elf64, link.path.clone(), None).unwrap()],
        driver_version: Some("580.95.05".into()),
        skip: PrepareCall::CAN_SKIP.to_vec(),
    };
    let nvidia = NvidiaCall {
        hook: NvidiaHook::Chmod,
        links: vec![link],
        folders: vec![directory.clone()],
        ldconfig: Some(other.clone()),
        driver_version: Some("580.95.05".into()),
        cuda_version: Some("13.0".into()),
        compat: Some(directory.clone()),
        paths: vec![directory],
        mode: Some(0o755),
        state_file: Some("/state".into()),
    };
    let device: crate::types::DeviceKey = "GPU-11111111".parse().unwrap();
    let size = "mps:7000:30".parse().unwrap();
    let claim = ClaimCall {
        device: device.clone(),
        label: "gpu 0".into(),
        subject: Subject::Part(Part::Share("big".parse().unwrap()), size),
        asked_as: Some("nvidia.com/gpu=0.big".into()),
        siblings: Siblings::Named(vec!["big".into()]),
        bounds: Some("81559:100".parse().unwrap()),
        alone: true,
        nodes: vec![BoundPath {
            container: ContainerPath::new("/dev/nvidia0").unwrap(),
            host: HostPath::new("/run/driver/dev/nvidia0").unwrap(),
        }],
        daemon: Some(other.clone()),
        prepare: true,
        wait: "1m30s".parse().unwrap(),
        state_dir: other.clone(),
    };
    let mut claims = claim.write();
    claims.extend(ClaimCall::of(device.clone(), String::new(), Subject::WHOLE).write());
    claims.extend(ClaimCall::of(device.clone(), String::new(), Subject::Claim("a".into(), None)).write());
    let release = ReleaseCall {
        device: Some(device),
        claim: Some("train".into()),
        spec_file: Some(other.clone()),
        state_dir: other,
    };
    let program = Program::NvidiaCdiHook;
    claims.extend(release.write());
    [
        (PrepareCall::OPTIONS, with_state_dir(prepare.write())),
        (NvidiaCall::OPTIONS, with_state_dir(nvidia.write(program))),
        (ClaimCall::OPTIONS, claims.clone()),
        (ReleaseCall::OPTIONS, claims),
    ]
}

#[test]
fn every_option_that_is_parsed_is_written_by_some_value() {
    for (known, written) in full() {
        let named: BTreeSet<&str> = written
            .iter()
            .filter_map(|word| word.strip_prefix("--"))
            .map(|word| word.split('=').next().unwrap())
            .collect();
        let known: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, known);
    }
}

fn parse(verb: &str, arguments: &[&str]) -> (Result<()>, Vec<String>) {
    let mut unknown = Vec::new();
    let arguments = arguments.iter().map(OsString::from).collect();
    let mut note = |one: Unknown| {
        unknown.push(format!("{}: {one}", one.argument()));
        Ok(())
    };
    let result = match verb {
        "prepare" => PrepareCall::parse(arguments, &mut note).map(drop),
        "claim" => ClaimCall::parse(arguments, &mut note).map(drop),
        "release" => ReleaseCall::parse(arguments, &mut note).map(drop),
        verb => NvidiaCall::parse(verb.parse().unwrap(), arguments, &mut note).map(drop),
    };
    (result, unknown)
}

#[test]
fn an_argument_that_is_unknown_is_reported_with_its_value() {
    for verb in ["prepare", "noop"] {
        let arguments = ["--frobnicate", "x", "--mod=2", "-v", "--state-dir", "/s", "word"];
        let (result, unknown) = parse(verb, &arguments);
        result.unwrap();
        let expected = [
            "--frobnicate: unknown option",
            "--mod: unknown option",
            "-v: unknown option",
        ];
        assert_eq!(unknown, [&expected[..], &["word: unexpected argument"]].concat());
    }
    let (result, unknown) = parse(
        "prepare",
        &["--skip", "tea", "--skip=noop", "--skip=update-application-profile"],
    );
    result.unwrap();
    assert_eq!(unknown, ["--skip tea: unknown", "--skip noop: unknown"]);
    let refused = PrepareCall::parse(vec!["--shine".into()], &mut |one| {
        Err(crate::error::Error::usage(one.argument(), "refused"))
    });
    assert_eq!(refused.unwrap_err().to_string(), "--shine: refused");
}

#[test]
fn the_same_value_twice_is_the_same_as_once() {
    let given = "--link a::/b --link a::/b --ldcache-dir=/l --ldcache-dir=/l --driver-version 1 --driver-version=1 \
                 --by-path n::/dev/dri/c --by-path n::/dev/dri/c --library=64::/l/a --library=128::/l/future";
    let once = "--link a::/b --ldcache-dir /l --driver-version 1 --by-path n::/dev/dri/c --library=64::/l/a";
    let parse = |text: &str| {
        PrepareCall::parse(
            text.split_whitespace().map(OsString::from).collect(),
            &mut nothing_unknown,
        )
    };
    assert_eq!(parse(given).unwrap(), parse(once).unwrap());
}

#[test]
fn an_invalid_value_is_a_usage_error() {
    let prepare = [
        &["--link"][..],
        &["--link", "a"],
        &["--link", "::/b"],
        &["--link", "a::"],
        &["--link", "a::/b::/c"],
        &["--link", "a:::/b"],
        &["--link", "a::b"],
        &["--link", "a::/"],
        &["--link", "a::/x/../b"],
        &["--link", "a::/x/./b"],
        &["--link", "a::/x//b"],
        &["--link", "a::/x/"],
        &["--link", "a::/b", "--link", "c::/b"],
        &["--by-path", "x::/dev/nvidia0"],
        &["--by-path", "x::/dev/dri/sub/card0"],
        &["--by-path", "../x::/dev/dri/card0"],
        &["--by-path", "..::/dev/dri/card0"],
        &["--ldcache-dir", "lib"],
        &["--library", "/b"],
        &["--library", "64::b"],
        &["--library", "64::/b::"],
        &["--library", "64::/b::c/d"],
        &["--library", "64::/b::c::d"],
        &["--library", "128::b"],
        &["--driver-version", ""],
        &["--driver-version", "1", "--driver-version", "2"],
        &["--state-dir", "rel"],
    ];
    let claim = [
        &["--share", "a", "--size", "1/2"][..],
        &["--device", "../x", "--whole"],
        &["--device", "GPU-11111111"],
        &["--device", "GPU-11111111", "--whole", "--share", "a", "--size", "1/2"],
        &["--device", "GPU-11111111", "--whole", "--whole"],
        &["--device", "GPU-11111111", "--share", "a.b", "--size", "1/2"],
        &["--device", "GPU-11111111", "--share", "any", "--size", "1/2"],
        &[
            "--device",
            "GPU-11111111",
            "--share",
            "any",
            "--size",
            "1/2",
            "--of",
            "a,b",
        ],
        &["--device", "GPU-11111111", "--share", "any", "--of", "2"],
        &["--device", "GPU-11111111", "--share", "a"],
        &["--device", "GPU-11111111", "--share", "a", "--size", "whole"],
        &["--device", "GPU-11111111", "--share", "a", "--size", "1/0"],
        &["--device", "GPU-11111111", "--whole", "--capacity", "1"],
        &["--device", "GPU-11111111", "--whole", "--node", "nvidia0"],
        &["--device", "GPU-11111111", "--whole", "--daemon", "rel"],
        &["--device", "GPU-11111111", "--whole", "--spec-file", "rel"],
        &["--device", "GPU-11111111", "--whole", "--state-dir", "rel"],
    ];
    let chmod = [
        &["--mode", ""][..],
        &["--mode=4755"],
        &["--mode=8"],
        &["--mode=u+x"],
        &["--folder=lib"],
    ];
    let release = [
        &["--claim", "a", "--spec-file", "/a"][..],
        &["--device", "x"],
        &["--spec-file", "rel"],
    ];
    let all: [(&str, &[&[&str]]); 4] = [
        ("prepare", &prepare),
        ("claim", &claim),
        ("chmod", &chmod),
        ("release", &release),
    ];
    for (verb, invalid) in all {
        for arguments in invalid {
            let error = parse(verb, arguments).0.unwrap_err();
            assert_eq!(error.kind().exit_code(), 2, "{verb} {arguments:?}");
        }
    }
}

#[test]
fn a_release_may_have_the_options_of_its_claim() {
    let (result, unknown) = parse(
        "release",
        &["--device=GPU-11111111", "--share=a", "--size=1/2", "--alone", "--of=2"],
    );
    result.unwrap();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn relative_paths_of_nvidias_hooks_begin_at_the_root() {
    let arguments = ["--path=dev/dri/../x", "--cuda-compat-container-root", "compat"].map(OsString::from);
    let call = NvidiaCall::parse(NvidiaHook::Chmod, arguments.to_vec(), &mut nothing_unknown).unwrap();
    assert_eq!(call.paths[0].as_str(), "/dev/x");
    assert_eq!(call.compat.unwrap().as_str(), "/compat");
}

#[test]
fn only_a_claim_hook_of_tranche_is_a_claim() {
    let of = |text: &str| ClaimCall::of_hook(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let claim = "hook claim --device=GPU-11111111 --whole --later x";
    let found = of(&format!("tranche-oci {claim}")).unwrap();
    assert_eq!((found.subject, found.label.as_str()), (Subject::WHOLE, "GPU-11111111"));
    for other in [
        format!("nvidia-cdi-hook {claim}"),
        format!("nvidia-ctk {claim}"),
        "tranche-oci hook prepare".into(),
        "tranche-oci hook release --device=GPU-11111111".into(),
        "tranche-oci hook".into(),
        "tranche-oci hook claim --device=../x --whole".into(),
    ] {
        assert_eq!(of(&other), None, "{other}");
    }
}

/// The command line with `/usr`, `/dev` and `/run` of one side moved below `/x`.
fn moved(command: &str, side: Side) -> String {
    let args: Vec<String> = command.split(' ').map(str::to_owned).collect();
    let move_path = |at: Side, path: &str| match at == side && path.starts_with('/') {
        true => format!("/x{path}"),
        false => path.to_owned(),
    };
    with_moved_paths(&args, move_path).join(" ")
}

#[test]
fn paths_move_with_the_side_that_they_belong_to() {
    let cases = [
        // A node whose paths are the same on both sides is written once, and twice when one of them has moved.
        (
            "tranche-oci hook claim --device=GPU-1/7/0 --label=/a --node=/dev/a --node /dev/b:/run/b --daemon=/run/d",
            "tranche-oci hook claim --device=GPU-1/7/0 --label=/a --node=/dev/a:/x/dev/a --node /dev/b:/x/run/b \
             --daemon=/x/run/d",
            "tranche-oci hook claim --device=GPU-1/7/0 --label=/a --node=/x/dev/a:/dev/a --node /x/dev/b:/run/b \
             --daemon=/run/d",
        ),
        (
            "tranche-oci hook claim --node=/dev/a:/x/dev/a --alone /usr/word",
            "tranche-oci hook claim --node=/dev/a:/x/x/dev/a --alone /usr/word",
            "tranche-oci hook claim --node=/x/dev/a --alone /x/usr/word",
        ),
        (
            "tranche-oci hook release --spec-file /run/s --state-dir=/run/t",
            "tranche-oci hook release --spec-file /x/run/s --state-dir=/x/run/t",
            "tranche-oci hook release --spec-file /run/s --state-dir=/run/t",
        ),
        (
            "tranche-oci hook prepare --link /usr/a::/usr/b --by-path p::/dev/dri/c --library 64::/usr/a::a.so \
             --driver-version /usr --later /usr --later=/usr --state-dir /run/t",
            "tranche-oci hook prepare --link /usr/a::/usr/b --by-path p::/dev/dri/c --library 64::/usr/a::a.so \
             --driver-version /usr --later /usr --later=/usr --state-dir /x/run/t",
            "tranche-oci hook prepare --link /x/usr/a::/x/usr/b --by-path p::/x/dev/dri/c --library 64::/x/usr/a::a.so \
             --driver-version /usr --later /x/usr --later=/x/usr --state-dir /run/t",
        ),
        (
            "/opt/nvidia-ctk hook update-ldcache --folder /usr/lib --ldconfig-path /usr/ldconfig",
            "/opt/nvidia-ctk hook update-ldcache --folder /usr/lib --ldconfig-path /x/usr/ldconfig",
            "/x/opt/nvidia-ctk hook update-ldcache --folder /x/usr/lib --ldconfig-path /usr/ldconfig",
        ),
        (
            "other-hook --node=/dev/a --daemon /run/d",
            "other-hook --node=/dev/a --daemon /run/d",
            "other-hook --node=/x/dev/a --daemon /x/run/d",
        ),
    ];
    for (command, of_host, of_container) in cases {
        assert_eq!(moved(command, Side::Host), of_host);
        assert_eq!(moved(command, Side::Container), of_container);
    }
}

proptest! {
    /// What a call says about its paths is true: they are all moved, and nothing else is.
    #[test]
    fn a_moved_call_is_the_call_with_its_paths_moved(claim in claim(), release in release()) {
        let below = |path: &HostPath| HostPath::new(format!("/moved{path}")).unwrap();
        let move_host = |at: Side, path: &str| match at {
            Side::Host => format!("/moved{path}"),
            Side::Container => path.to_owned(),
        };
        let mut expected = claim.clone();
        expected.nodes.iter_mut().for_each(|node| node.host = below(&node.host));
        expected.daemon = expected.daemon.as_ref().map(below);
        expected.state_dir = below(&expected.state_dir);
        let read = ClaimCall::of_hook(&with_moved_paths(&claim.write(), move_host));
        prop_assert_eq!(read, Some(expected));
        let expected = ReleaseCall {
            spec_file: release.spec_file.as_ref().map(below),
            state_dir: below(&release.state_dir),
            ..release.clone()
        };
        let moved = with_moved_paths(&release.write(), move_host);
        prop_assert_eq!(ReleaseCall::parse(options(&moved), &mut nothing_unknown).unwrap(), expected);
    }
}
