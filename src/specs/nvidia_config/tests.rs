use super::*;
use tranche_plan::policy::NvidiaCli;

/// What `nvidia-ctk config default` of version 1.19 prints, without the values of sections that are comments there.
const DEFAULT: &str = r#"
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
#ldcache = "/etc/ld.so.cache"
ldconfig = "@/sbin/ldconfig"
load-kmods = true
#no-cgroups = false
#path = "/usr/bin/nvidia-container-cli"
#root = "/run/nvidia/driver"
#user = "root:video"

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/nvidia-container-runtime/host-files-for-container.d"

[nvidia-container-runtime.modes.jit-cdi]

[nvidia-container-runtime.modes.legacy]
cuda-compat-mode = "ldconfig"

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"#;

fn read(text: &str) -> ReadSettings {
    parse("c.toml", text).unwrap()
}

#[test]
fn the_default_file_gives_the_default_settings() {
    let ldconfig = |settings: &mut RuntimeSettings| settings.nvidia_cli.ldconfig = Some("@/sbin/ldconfig".to_owned());
    let mut expected = RuntimeSettings::default();
    ldconfig(&mut expected);
    let defaults = read(DEFAULT);
    assert_eq!(defaults.settings, expected);
    assert_eq!(defaults.warnings, [""; 0]);
    assert_eq!(read("").settings, RuntimeSettings::default());
    // The values in comments are the defaults or examples; all of them are valid.
    let uncommented = DEFAULT.replace("\n#", "\n");
    let all = read(&uncommented);
    assert_eq!(all.warnings, [""; 0]);
    assert_eq!(all.settings.swarm_resource, ["DOCKER_RESOURCE_GPU"]);
    assert_eq!(all.settings.log, Some("/var/log/nvidia-container-runtime.log".into()));
}

#[test]
fn every_key_has_its_effect() {
    let text = r#"
disable-require = true
swarm-resource = "DOCKER_RESOURCE_GPU, MY_GPU"
accept-nvidia-visible-devices-envvar-when-unprivileged = false
accept-nvidia-visible-devices-as-volume-mounts = true
supported-driver-capabilities = "compute,utility"
nvidia-container-cli = { root = "/run/nvidia/driver", path = "/opt/cli", environment = ["A=b"], debug = "/d", ldcache = "/l", load-kmods = false, no-pivot = true, no-cgroups = true, user = "root:video", ldconfig = "@/sbin/ldconfig.real" }
[nvidia-container-runtime]
debug = "/dev/null"
runtimes = ["crun", "/opt/runc"]
mode = "jit-cdi"
modes.cdi.spec-dirs = ["/x"]
modes.cdi.default-kind = "example.com/gpu"
modes.cdi.annotation-prefixes = ["a/", "b/"]
modes.jit-cdi.nvcdi-disable-hooks = ["update-ldcache"]
modes.legacy.cuda-compat-mode = "mount"
[nvidia-container-runtime-hook]
skip-mode-detection = true
[features]
disable-cuda-compat-lib-hook = true
no-additional-gids-for-device-nodes = true
disable-imex-channel-creation = true
ignore-imex-channel-requests = true
allow-unknown-oci-spec-fields = false
"#;
    let expected = RuntimeSettings {
        accept_environment: AcceptEnvironment::Privileged,
        accept_annotations: None,
        oldest_podman: None,
        accept_volume_mounts: true,
        claims_from_environment: Default::default(),
        max_wait: Default::default(),
        unchecked_kinds: None,
        swarm_resource: vec!["DOCKER_RESOURCE_GPU".into(), "MY_GPU".into()],
        supported_capabilities: [DriverCapability::Compute, DriverCapability::Utility].into(),
        disable_require: true,
        runtimes: vec!["crun".into(), "/opt/runc".into()],
        annotation_prefixes: vec!["a/".into(), "b/".into()],
        spec_dirs: vec!["/x".into()],
        default_kind: "example.com/gpu".parse().unwrap(),
        ignore_imex_channel_requests: true,
        mode: RuntimeMode::JitCdi,
        skip_mode_detection: true,
        additional_gids: false,
        disabled_hooks: [NvidiaHook::UpdateLdcache, NvidiaHook::EnableCudaCompat].into(),
        driver_root: Some("/run/nvidia/driver".parse().unwrap()),
        log: None,
        nvidia_cli: NvidiaCli {
            path: Some("/opt/cli".into()),
            environment: vec!["A=b".into()],
            debug: Some("/d".into()),
            ldcache: Some("/l".into()),
            load_kmods: false,
            no_pivot: true,
            no_cgroups: true,
            user: Some("root:video".into()),
            ldconfig: Some("@/sbin/ldconfig.real".into()),
            cuda_compat_mode: CudaCompatMode::Mount,
            no_create_imex_channels: true,
        },
    };
    let read = read(text);
    assert_eq!(read.settings, expected);
    assert_eq!(read.warnings, [""; 0]);
}

#[test]
fn what_has_no_effect_is_reported_once_with_its_place() {
    for (text, says) in [
        ("new-key = 1", "c.toml:1:11: \"new-key\" is unknown and has no effect"),
        (
            "[features]\nnew = true",
            "c.toml:2:7: \"features.new\" is unknown and has no effect",
        ),
        (
            "[new]\na = 1\nb = 2",
            "c.toml:1:1: \"new\" is unknown and has no effect",
        ),
        (
            "nvidia-container-runtime.log-level = \"debug\"",
            "c.toml:1:38: nvidia-container-runtime.log-level has no effect on tranche",
        ),
        (
            "nvidia-container-runtime.mode = \"legacy\"",
            "c.toml: the runtime's mode legacy is not supported; the mode auto is used in its place",
        ),
        (
            "[features]\nallow-ldconfig-from-container = true",
            "c.toml:2:33: features.allow-ldconfig-from-container has no effect on tranche",
        ),
        (
            "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks = [\"chmod\", \"x\"]",
            "c.toml:1:62: nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks has no effect on tranche",
        ),
    ] {
        assert_eq!(read(text).warnings, [says], "{text}");
    }
}

#[test]
fn a_wrong_type_or_value_is_an_error_that_names_the_key() {
    for (text, says) in [
        (
            "disable-require = \"yes\"",
            "c.toml:1:19: disable-require: expected true or false, found a value of type string",
        ),
        (
            "[disable-require]\nx = 1",
            "c.toml:1:1: disable-require: expected true or false, found a value of type table",
        ),
        (
            "features = 3",
            "c.toml:1:12: features: expected a table, found a value of type integer",
        ),
        (
            "nvidia-container-runtime.runtimes = [1]",
            "c.toml:1:37: nvidia-container-runtime.runtimes: expected a list of texts in quotes, found a value of type array",
        ),
        (
            "nvidia-container-runtime.runtimes = []",
            "c.toml:1:37: nvidia-container-runtime.runtimes: the list is empty; write at least one item, or remove the key",
        ),
        (
            "nvidia-container-runtime.runtimes = [\"a/b\"]",
            "c.toml:1:37: nvidia-container-runtime.runtimes: \"a/b\" is neither the name of a program nor an absolute path",
        ),
        (
            "nvidia-container-runtime.mode = \"magic\"",
            "c.toml:1:33: nvidia-container-runtime.mode: \"magic\" is unknown; write auto, cdi, jit-cdi, legacy or csv",
        ),
        (
            "supported-driver-capabilities = \"compute,x\"",
            "c.toml:1:33: supported-driver-capabilities: driver capability \"x\": unknown; expected one of ",
        ),
        (
            "nvidia-container-cli.root = \"driver\"",
            "c.toml:1:29: nvidia-container-cli.root: \"driver\": path is not absolute",
        ),
        ("a = [\nb", "c.toml:2:"),
    ] {
        let said = parse("c.toml", text).unwrap_err().to_string();
        assert!(said.starts_with(says), "{text}: {said}");
        assert!(!said.contains('\n'), "{said}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let said = super::read(&directory.path().join("config.toml"))
        .unwrap_err()
        .to_string();
    assert!(said.ends_with("config.toml: cannot be read"), "{said}");
    assert!(super::read(directory.path()).is_err());
}

proptest::proptest! {
    #[test]
    fn no_damage_harms_the_reader(at in 0usize..2000, byte in 32u8..127, cut: bool) {
        let mut text = DEFAULT.to_owned();
        let at = at % text.len();
        if cut { text.truncate(at) } else { text.replace_range(at..=at, char::from(byte).encode_utf8(&mut [0; 4])) }
        if let Err(error) = parse("c.toml", &text) {
            let said = error.to_string();
            proptest::prop_assert!(said.starts_with("c.toml:") && !said.contains('\n'), "{said}");
        }
    }
}
