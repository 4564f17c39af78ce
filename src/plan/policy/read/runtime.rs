//! The section `runtime`: what the owner of the machine decides about the runtime shim.

use super::sections::RuntimeSection;
use crate::policy::{NvidiaCli, Placed, RuntimeSettings};
use std::path::PathBuf;
use tranche_core::call::NvidiaHook;
use tranche_core::error::{Error, Result};
use tranche_core::types::HostPath;

/// The settings of the section; what it does not have is as in NVIDIA's container toolkit.
///
/// # Errors
/// Returns a usage error with the place of a value that cannot be used.
pub(super) fn read(file: &str, section: RuntimeSection) -> Result<RuntimeSettings> {
    let default = RuntimeSettings::default();
    let checked = |list: Option<Vec<Placed<String>>>, name: &str, check: fn(&str) -> Result<(), &'static str>| {
        let Some(list) = list else { return Ok(None) };
        let checked = list.into_iter().map(|Placed { place, value }| match check(&value) {
            Ok(()) => Ok(value),
            Err(what) => Err(Error::usage(place.of(file), format!("{name}: \"{value}\" {what}"))),
        });
        checked.collect::<Result<Vec<String>>>().map(Some)
    };
    let runtimes = checked(section.runtimes.map(|list| list.0), "runtimes", is_runtime)?;
    let swarm_resource = checked(section.swarm_resource, "swarmResource", is_variable)?;
    let annotation_prefixes = checked(
        section.annotation_prefixes.map(|list| list.0),
        "annotationPrefixes",
        is_prefix,
    )?;
    let path = |path: HostPath| PathBuf::from(path.as_str());
    Ok(RuntimeSettings {
        accept_environment: section.accept_environment,
        accept_annotations: section.accept_annotations,
        oldest_podman: default.oldest_podman,
        accept_volume_mounts: section.accept_volume_mounts,
        claims_from_environment: section.claims_from_environment,
        max_wait: section.max_wait,
        unchecked_kinds: section.unchecked_kinds,
        swarm_resource: swarm_resource.unwrap_or_default(),
        supported_capabilities: section
            .supported_capabilities
            .map_or(default.supported_capabilities, |list| list.0.into_iter().collect()),
        disable_require: section.disable_require,
        runtimes: runtimes.unwrap_or(default.runtimes),
        annotation_prefixes: annotation_prefixes.unwrap_or(default.annotation_prefixes),
        spec_dirs: section
            .spec_dirs
            .map_or(default.spec_dirs, |list| list.0.into_iter().map(path).collect()),
        default_kind: section.default_kind.unwrap_or(default.default_kind),
        ignore_imex_channel_requests: section.ignore_imex_channels,
        mode: section.mode,
        skip_mode_detection: false,
        additional_gids: section.additional_gids.unwrap_or(default.additional_gids),
        disabled_hooks: hooks(file, section.disabled_hooks.unwrap_or_default())?,
        driver_root: section.driver_root,
        log: section.log.map(path),
        nvidia_cli: NvidiaCli {
            path: section.nvidia_container_cli.map(path),
            ..NvidiaCli::default()
        },
    })
}

fn hooks<C: FromIterator<NvidiaHook>>(file: &str, list: Vec<Placed<String>>) -> Result<C> {
    let part = |Placed { place, value }: Placed<String>| {
        NvidiaHook::written(&value).map_err(|error| Error::usage(place.of(file), format!("disabledHooks: {error}")))
    };
    list.into_iter().map(part).collect()
}

/// Checks the name of a low-level runtime: a name that is searched for in PATH, or an absolute path.
pub fn is_runtime(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty; write the name or the path of a program, such as runc"),
        _ if name.contains('/') && !name.starts_with('/') => {
            Err("is neither the name of a program nor an absolute path")
        }
        _ => Ok(()),
    }
}

/// Checks the name of an environment variable.
pub fn is_variable(name: &str) -> Result<(), &'static str> {
    match name.is_empty() || name.contains(['=', ',']) || name.contains(char::is_whitespace) {
        true => Err("is not the name of an environment variable"),
        false => Ok(()),
    }
}

fn is_prefix(prefix: &str) -> Result<(), &'static str> {
    match prefix {
        "" => Err("is empty, so every annotation would be a request; write a prefix like cdi.k8s.io/"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::inventory::DriverCapability;
    use crate::policy::{
        AcceptAnnotations, AcceptEnvironment, ClaimsFromEnvironment, MaxWait, NvidiaCli, RuntimeMode, RuntimeSettings,
    };
    use tranche_core::call::NvidiaHook;

    #[test]
    fn every_key_has_its_effect_and_a_missing_one_has_nvidia_s_default() {
        let text = "runtime:\n  acceptEnvironment: never\n  acceptAnnotations: always\n  acceptVolumeMounts: true\n  swarmResource: [MY_GPU]\n  \
                    claimsFromEnvironment: always\n  maxWait: {environment: 5s, annotation: 2m}\n  \
                    uncheckedKinds: [example.com/all]\n  \
                    supportedCapabilities: [compute, utility]\n  disableRequire: true\n  runtimes: [crun, /opt/runc]\n  \
                    annotationPrefixes: [a/]\n  specDirs: [/x]\n  defaultKind: example.com/gpu\n  \
                    ignoreImexChannels: true\n  mode: jit-cdi\n  additionalGids: false\n  \
                    disabledHooks: [update-ldcache]\n  driverRoot: /run/nvidia/driver\n  log: /var/log/t.log\n  \
                    nvidiaContainerCli: /opt/cli\n";
        let expected = RuntimeSettings {
            accept_environment: AcceptEnvironment::Never,
            accept_annotations: Some(AcceptAnnotations::Always),
            oldest_podman: None,
            accept_volume_mounts: true,
            claims_from_environment: ClaimsFromEnvironment::Always,
            max_wait: MaxWait {
                environment: "5s".parse().unwrap(),
                annotation: "2m".parse().unwrap(),
            },
            unchecked_kinds: Some(vec!["example.com/all".parse().unwrap()]),
            swarm_resource: vec!["MY_GPU".into()],
            supported_capabilities: [DriverCapability::Compute, DriverCapability::Utility].into(),
            disable_require: true,
            runtimes: vec!["crun".into(), "/opt/runc".into()],
            annotation_prefixes: vec!["a/".into()],
            spec_dirs: vec!["/x".into()],
            default_kind: "example.com/gpu".parse().unwrap(),
            ignore_imex_channel_requests: true,
            mode: RuntimeMode::JitCdi,
            skip_mode_detection: false,
            additional_gids: false,
            disabled_hooks: [NvidiaHook::UpdateLdcache].into(),
            driver_root: Some("/run/nvidia/driver".parse().unwrap()),
            log: Some("/var/log/t.log".into()),
            nvidia_cli: NvidiaCli {
                path: Some("/opt/cli".into()),
                ..NvidiaCli::default()
            },
        };
        let read = parse("c.yaml", text).unwrap();
        assert_eq!((read.runtime, read.warnings), (Some(expected), Vec::new()));
        let runtime = |text| parse("c.yaml", text).unwrap().runtime;
        assert_eq!(runtime("runtime: {}\n"), Some(RuntimeSettings::default()));
        assert_eq!(runtime("version: v1\n"), None);
        assert_eq!(runtime("runtime:\n"), None);
        let warned = parse("c.yaml", "runtime: {mode: csv}\n").unwrap().warnings;
        assert_eq!(
            warned,
            ["c.yaml: the runtime's mode csv is not supported; the mode auto is used in its place"]
        );
    }

    #[test]
    fn a_mistake_is_an_error_with_its_place() {
        for (text, says) in [
            (
                "runtime:\n  acceptEnviroment: never\n",
                "c.yaml:2:3: \"acceptEnviroment\" is unknown in runtime; did you mean acceptEnvironment?",
            ),
            (
                "runtime:\n  acceptEnvironment: sometimes\n",
                "c.yaml:2:22: acceptEnvironment: \"sometimes\" is unknown; write always or privileged or never",
            ),
            (
                "runtime:\n  acceptAnnotations: privileged\n",
                "c.yaml:2:22: acceptAnnotations: \"privileged\" is unknown; write always or never",
            ),
            (
                "runtime:\n  claimsFromEnvironment: sometimes\n",
                "c.yaml:2:26: claimsFromEnvironment: \"sometimes\" is unknown; write never or always",
            ),
            (
                "runtime:\n  maxWait: {environment: 8d}\n",
                "c.yaml:2:26: environment: \"8d\": not a time to wait like 30s",
            ),
            (
                "runtime:\n  maxWait: {annotations: 1h}\n",
                "c.yaml:2:13: \"annotations\" is unknown in runtime.maxWait",
            ),
            (
                "runtime:\n  uncheckedKinds: [management]\n",
                "c.yaml:2:20: uncheckedKinds: ",
            ),
            (
                "runtime:\n  runtimes: []\n",
                "c.yaml:2:13: runtimes: the list is empty; write at least one item, or leave the key out",
            ),
            (
                "runtime:\n  runtimes: [runc, a/b]\n",
                "c.yaml:2:20: runtimes: \"a/b\" is neither the name of a program nor an absolute path",
            ),
            (
                "runtime:\n  swarmResource: [\"A=b\"]\n",
                "c.yaml:2:19: swarmResource: \"A=b\" is not the name of an environment variable",
            ),
            (
                "runtime:\n  annotationPrefixes: [\"\"]\n",
                "c.yaml:2:24: annotationPrefixes: \"\" is empty, so every annotation would be a request",
            ),
            (
                "runtime:\n  specDirs: [cdi]\n",
                "c.yaml:2:14: specDirs: \"cdi\": path is not absolute",
            ),
            (
                "runtime:\n  supportedCapabilities: [compute, x]\n",
                "c.yaml:2:36: supportedCapabilities: driver capability \"x\": unknown; expected one of compute",
            ),
            (
                "runtime:\n  disabledHooks: [noop]\n",
                "c.yaml:2:19: disabledHooks: hook \"noop\": unknown; expected one of create-symlinks",
            ),
            ("runtime: 3\n", "c.yaml:1:10: runtime: expected keys with values"),
            (
                "runtime:\n  disableRequire: 'yes'\n",
                "c.yaml:2:19: disableRequire: expected true or false, found \"yes\"",
            ),
        ] {
            let said = parse("c.yaml", text).unwrap_err().to_string();
            assert!(said.starts_with(says), "{text}: {said}");
        }
    }
}
