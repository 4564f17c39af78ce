use super::*;
use crate::policy::{AcceptEnvironment, CudaCompatMode, NvidiaCli, RuntimeMode};
use crate::{share, sim};
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use tranche_core::call::NvidiaHook;
use tranche_core::sealed;

/// The file of a built-in host whose GPUs are split.
fn host_file(sources: Vec<HostSource>) -> HostFile {
    let inventory = sim::open("hgx-h200").unwrap();
    let policy = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 4}\n";
    let policy = crate::policy::read::parse("c.yaml", policy).unwrap().policy;
    let plan = share::plan(&policy, &inventory).unwrap();
    HostFile {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        host: Digest([1; 32]),
        policy: Digest([2; 32]),
        inventory,
        plan,
        runtime: RuntimeSettings::default(),
        wrong_policy: None,
        hook: HostPath::new("/usr/bin/tranche-oci").unwrap(),
        arguments: vec!["--driver-root=/run/nvidia/driver".to_owned()],
        sources,
    }
}

/// The text of the file without checksums: as the program before them wrote it, and for tests that edit it.
fn unsealed(file: &HostFile) -> String {
    let text = file.text().unwrap();
    seal::open(text.as_bytes()).unwrap().into_owned()
}

/// A state directory with this file.
fn written(file: &HostFile) -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join(NAME), file.text().unwrap()).unwrap();
    state
}

fn complaint(state: &Path) -> String {
    HostFile::read(state).unwrap_err().to_string()
}

/// The file of a host whose first GPU the policy divides like this, and the second one into shares with names.
fn divided(parts: &str) -> HostFile {
    let policy = format!(
        "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, devices: [0], {parts}}}, {{name: nvidia.com/gpu, \
         devices: [1], shares: [{{name: a}}, {{name: b}}]}}]}}}}\n"
    );
    let policy = crate::policy::read::parse("c.yaml", &policy).unwrap().policy;
    let file = host_file(Vec::new());
    let plan = share::plan(&policy, &file.inventory).unwrap();
    HostFile { plan, ..file }
}

#[test]
fn equal_replicas_are_a_number_in_the_file() {
    let size = |parts| {
        let file = divided(parts);
        assert_eq!(HostFile::load(written(&file).path()).unwrap(), file);
        file.text().unwrap().len()
    };
    let (two, many) = (size("replicas: 2"), size("replicas: 4294967294"));
    assert!(
        many < two + 16,
        "{two} bytes with 2 replicas, {many} with all that a number can say"
    );
}

#[test]
fn replicas_that_no_plan_has_are_damage() {
    let text = unsealed(&divided("replicas: 4"));
    for number in ["0", "1", "-1", "4294967296"] {
        let state = tempfile::tempdir().unwrap();
        let counted = text.replace("\"count\":4,", &format!("\"count\":{number},"));
        assert!(counted != text);
        let text = counted;
        fs::write(state.path().join(NAME), text).unwrap();
        let error = HostFile::load(state.path()).unwrap_err();
        assert!(matches!(error, HostFileError::Damaged { .. }), "{number}: {error}");
    }
}

#[test]
fn the_first_line_has_the_settings_and_nothing_that_grows() {
    let first = |parts| head(divided(parts).text().unwrap().as_bytes()).unwrap();
    let line = first("replicas: 2");
    assert_eq!(line, first("replicas: 1024"));
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        version: u32,
        program: String,
        runtime: RuntimeSettings,
    }
    assert!(sealed::is_sealed(std::str::from_utf8(&line).unwrap()));
    let expected = Line {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        runtime: RuntimeSettings::default(),
    };
    assert_eq!(sealed::parse::<Line>(&line).unwrap(), expected);
}

/// Written by the version of tranche before the settings had a line of their own.
const FIRST_FORM: &str = include_str!("../../../tests/data/host-file/version-1.json");

#[test]
fn a_file_of_the_first_form_can_be_written_again_and_its_settings_are_read() {
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join(NAME), FIRST_FORM).unwrap();
    let error = HostFile::read(state.path()).unwrap_err();
    assert!(matches!(error, HostFileError::OtherVersion { .. }), "{error}");
    assert!(error.repaired_by().is_some());
    assert_eq!(head(FIRST_FORM.as_bytes()).unwrap(), FIRST_FORM.trim_end().as_bytes());
}

/// Whatever bit changes: the file is refused, or has the same content.
#[test]
fn a_changed_bit_is_noticed() {
    let file = host_file(Vec::new());
    let state = written(&file);
    let path = state.path().join(NAME);
    let bytes = fs::read(&path).unwrap();
    let line =
        |bytes: &[u8]| sealed::parse::<serde_json::Value>(&head(bytes).unwrap()).map(|line| line["runtime"].clone());
    let settings = line(&bytes).unwrap();
    // Each byte of the first line and around it, and some of the rest, in another of its bits.
    let begin = head(&bytes[..]).unwrap().len() + 64;
    for at in (0..begin)
        .chain((begin..bytes.len()).step_by(509))
        .chain(bytes.len() - 4..bytes.len())
    {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        fs::write(&path, &changed).unwrap();
        match HostFile::load(state.path()) {
            Err(HostFileError::Damaged { .. } | HostFileError::OtherVersion { .. }) => {}
            // Only the white space at the end.
            other => assert!(at + 1 == bytes.len() && other.unwrap() == file, "byte {at}"),
        }
        if let Ok(read) = line(&changed) {
            assert_eq!(read, settings, "byte {at}");
        }
    }
}

#[test]
fn a_file_without_checksums_is_read() {
    let file = host_file(Vec::new());
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join(NAME), unsealed(&file)).unwrap();
    assert_eq!(HostFile::load(state.path()).unwrap(), file);
}

#[test]
fn a_current_file_is_read() {
    let file = host_file(vec![HostSource::now(
        SourceKind::Boot,
        "/proc/sys/kernel/random/boot_id",
    )]);
    assert_eq!(HostFile::read(written(&file).path()).unwrap(), file);
}

#[test]
fn a_file_that_is_missing_damaged_or_of_another_version_can_be_written_again() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join(NAME);
    let read = || HostFile::read(state.path()).unwrap_err();
    assert!(matches!(read(), HostFileError::Missing { path: of } if of == path));
    let none = HostFile::read(&state.path().join("missing/state")).unwrap_err();
    assert!(matches!(none, HostFileError::Missing { .. }));
    let text = unsealed(&host_file(Vec::new()));
    for damaged in [
        "",
        "{}",
        "[1]",
        &text[..text.len() - 1],
        &text.replacen("\"plan\"", "\"plans\"", 1),
    ] {
        fs::write(&path, damaged).unwrap();
        assert!(matches!(read(), HostFileError::Damaged { .. }), "{:?}", read());
        assert_eq!(read().repaired_by(), Some(&[][..]));
    }
    let older = text.replacen(&format!("\"version\":{VERSION}"), "\"version\":0", 1);
    let other = r#"{"version":3,"program":"99.0.0","new":{}}"#;
    let mine = format!("\"program\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let patched = text.replacen(&mine, "\"program\":\"99.0.0\"", 1);
    for (text, of) in [
        (older.as_str(), env!("CARGO_PKG_VERSION")),
        (other, "99.0.0"),
        (&patched, "99.0.0"),
    ] {
        fs::write(&path, text).unwrap();
        assert!(
            matches!(read(), HostFileError::OtherVersion { program, .. } if program == of),
            "{:?}",
            read()
        );
    }
}

#[test]
fn each_source_that_changes_makes_the_file_out_of_date() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    let text = |name: &str| fs::write(at(name), "1\n").unwrap();
    let kinds = [
        (SourceKind::Policy, "policy", "the policy "),
        (SourceKind::NvidiaConfig, "config.toml", "config.toml has changed"),
        (SourceKind::DriverModule, "version", "the kernel module"),
        (SourceKind::DriverLibrary, "libcuda.so.1", "the driver's library"),
        (SourceKind::Specification, "tranche.yaml", "the specification"),
        (SourceKind::Boot, "boot_id", "was started again"),
    ];
    kinds.iter().for_each(|(_, name, _)| text(name));
    fs::create_dir(at("nvidia-caps")).unwrap();
    for (kind, name, says) in kinds
        .into_iter()
        .chain([(SourceKind::MigNodes, "nvidia-caps", "the MIG devices")])
    {
        let file = host_file(vec![
            HostSource::now(kind, at("absent")),
            HostSource::now(kind, at(name)),
        ]);
        let state = written(&file);
        HostFile::read(state.path()).unwrap();
        match kind {
            SourceKind::MigNodes => fs::write(at(name).join("nvidia-cap1"), "").unwrap(),
            _ => fs::write(at(name), "22\n").unwrap(),
        }
        let error = HostFile::read(state.path()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.repaired_by(), Some(&file.arguments[..]));
        assert_eq!(HostFile::load(state.path()).unwrap(), file);
    }
    // A file that appears or disappears.
    let state = written(&host_file(vec![HostSource::now(SourceKind::Policy, at("absent"))]));
    text("absent");
    assert!(complaint(state.path()).contains("the policy"));
    let state = written(&host_file(vec![HostSource::now(
        SourceKind::DriverModule,
        at("version"),
    )]));
    fs::remove_file(at("version")).unwrap();
    assert!(complaint(state.path()).contains("the kernel module"));
}

#[test]
fn a_replacement_with_the_same_size_and_time_is_a_change() {
    let top = tempfile::tempdir().unwrap();
    let policy = top.path().join("config.yaml");
    fs::write(&policy, "a").unwrap();
    let state = written(&host_file(vec![HostSource::now(SourceKind::Policy, &policy)]));
    let time = fs::metadata(&policy).unwrap().modified().unwrap();
    let new = File::create(top.path().join("new")).unwrap();
    fs::write(top.path().join("new"), "b").unwrap();
    new.set_modified(time).unwrap();
    fs::rename(top.path().join("new"), &policy).unwrap();
    assert!(complaint(state.path()).contains("the policy"));
}

#[test]
fn a_file_that_another_user_could_have_written_is_refused() {
    let state = written(&host_file(Vec::new()));
    let path = state.path().join(NAME);
    let refused = |says: &str| {
        // Not unwrap_err, which prints a hundred kilobytes.
        let error = HostFile::read(state.path()).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.repaired_by(), None);
    };
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        refused("may be written by other users");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(state.path(), Permissions::from_mode(0o777)).unwrap();
    refused("has mode 0777");
    fs::set_permissions(state.path(), Permissions::from_mode(0o755)).unwrap();
    HostFile::read(state.path()).unwrap();
    fs::hard_link(&path, state.path().join("second")).unwrap();
    refused("a hard link");
    fs::remove_file(state.path().join("second")).unwrap();
    fs::rename(&path, state.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &path).unwrap();
    refused("cannot be read");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("is not a regular file");
    fs::remove_dir(&path).unwrap();
    if !nix::unistd::Uid::effective().is_root() {
        println!("not run: host_file: not root");
        return;
    }
    fs::rename(state.path().join("elsewhere"), &path).unwrap();
    std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
    refused("belongs to another user");
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    std::os::unix::fs::chown(state.path(), Some(12345), None).unwrap();
    refused("belongs to user 12345");
}

fn settings() -> impl Strategy<Value = RuntimeSettings> {
    let words = || proptest::collection::vec("[a-zA-Z0-9/_.,= \"\\\\é-]{0,20}", 0..3);
    let accept = prop_oneof![
        Just(AcceptEnvironment::Always),
        Just(AcceptEnvironment::Privileged),
        Just(AcceptEnvironment::Never)
    ];
    let mode = prop_oneof![
        Just(RuntimeMode::Auto),
        Just(RuntimeMode::JitCdi),
        Just(RuntimeMode::Csv)
    ];
    (accept, mode, any::<(bool, bool, bool)>(), words(), words(), words()).prop_map(
        |(accept_environment, mode, flags, runtimes, swarm_resource, environment)| RuntimeSettings {
            accept_environment,
            mode,
            accept_volume_mounts: flags.0,
            disable_require: flags.1,
            disabled_hooks: flags.2.then_some(NvidiaHook::EnableCudaCompat).into_iter().collect(),
            driver_root: flags.2.then(|| HostPath::new("/run/nvidia/driver").unwrap()),
            log: swarm_resource.first().map(PathBuf::from),
            swarm_resource,
            runtimes,
            nvidia_cli: NvidiaCli {
                environment,
                cuda_compat_mode: CudaCompatMode::Mount,
                ..NvidiaCli::default()
            },
            ..RuntimeSettings::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        runtime in settings(),
        arguments in proptest::collection::vec(".{0,12}", 0..3),
        simulation in proptest::sample::select(&["dgx-a100-mig", "hgx-h200", "t4x2", "rtx4090"][..]),
        state in prop_oneof![
            Just(SourceState::Absent),
            any::<(u64, u64, i64, i64)>()
                .prop_map(|(size, inode, seconds, nanoseconds)| SourceState::Metadata { size, inode, seconds, nanoseconds }),
            ".{0,40}".prop_map(SourceState::Text),
        ],
    ) {
        let source = HostSource { kind: SourceKind::Policy, path: "/etc/tranche/config.yaml".into(), state };
        let inventory = sim::open(simulation).unwrap();
        let file = HostFile { runtime, arguments, inventory, ..host_file(vec![source]) };
        prop_assert_eq!(HostFile::load(written(&file).path()).unwrap(), file);
    }

    #[test]
    fn no_damage_harms_the_reader(at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let mut bytes = host_file(Vec::new()).text().unwrap().into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(NAME), bytes).unwrap();
        if let Err(error) = HostFile::load(state.path()) {
            let says = error.to_string();
            prop_assert!(says.contains(NAME) && !says.contains('\n'), "{}", says);
        }
    }
}
