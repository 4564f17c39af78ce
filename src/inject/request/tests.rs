mod bytes;
mod cases;
mod own;
mod who;

use serde_json::{Value, json};

use super::*;
use crate::CallingEngine;
use tranche_core::error::Result;
use tranche_plan::engines::Engine;
use tranche_plan::policy::RuntimeSettings;

/// A container, and the settings of the machine that it starts on.
#[derive(Default)]
struct Container {
    env: Vec<String>,
    annotations: Vec<(String, String)>,
    mounts: Vec<(String, String)>,
    privileged: bool,
    /// docker's prestart hook for `--gpus`.
    gpus: bool,
    caller: CallingEngine,
    settings: RuntimeSettings,
}

/// A container with the words of a line: `NAME=value` is a variable, `@key=value` an annotation, `/path` a mount of
/// /dev/null, `gpus` docker's hook for `--gpus`, and `privileged`, `accept:…`, `annotations:…`, `by:…`, `mode:…`,
/// `mounts`, `swarm:…` set what they say. The engine is ctr if no other is named.
fn container(line: &str) -> Container {
    let mut made = Container {
        caller: CallingEngine::Ctr,
        ..Container::default()
    };
    for word in line.split_whitespace() {
        // A space within a value.
        let word = word.replace('~', " ");
        let settings = &mut made.settings;
        if let Some(annotation) = word.strip_prefix('@') {
            let (key, value) = annotation.split_once('=').unwrap();
            made.annotations.push((key.to_owned(), value.to_owned()));
        } else if word.starts_with('/') {
            made.mounts.push((word, "/dev/null".to_owned()));
        } else if word == "privileged" {
            made.privileged = true;
        } else if word == "gpus" {
            made.gpus = true;
        } else if let Some(engine) = word.strip_prefix("by:") {
            let (engine, version) = engine.split_once('-').unwrap_or((engine, ""));
            settings.oldest_podman = version.parse().ok();
            made.caller = match engine {
                "docker" => CallingEngine::Known(Engine::Docker),
                "containerd" => CallingEngine::Known(Engine::Containerd),
                "podman" => CallingEngine::Known(Engine::Podman),
                _ => CallingEngine::Unknown,
            };
        } else if let Some(whose) = word.strip_prefix("annotations:") {
            settings.accept_annotations = serde_json::from_value(json!(whose)).unwrap();
        } else if word == "mounts" {
            settings.accept_volume_mounts = true;
        } else if let Some(who) = word.strip_prefix("accept:") {
            settings.accept_environment = serde_json::from_value(json!(who)).unwrap();
        } else if let Some(mode) = word.strip_prefix("mode:") {
            settings.mode = serde_json::from_value(json!(mode)).unwrap();
        } else if let Some(kind) = word.strip_prefix("kind:") {
            settings.default_kind = kind.parse().unwrap();
        } else if let Some(name) = word.strip_prefix("swarm:") {
            settings.swarm_resource.push(name.to_owned());
        } else {
            made.env.push(word);
        }
    }
    made
}

impl Container {
    fn config(&self) -> Value {
        let bounding = if self.privileged {
            json!(["CAP_CHOWN", "CAP_SYS_ADMIN"])
        } else {
            json!(["CAP_CHOWN"])
        };
        let annotations: serde_json::Map<String, Value> = self
            .annotations
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)))
            .collect();
        let mounts: Vec<Value> = self
            .mounts
            .iter()
            .map(|(destination, source)| json!({"destination": destination, "source": source, "type": "bind"}))
            .collect();
        let hook = "/usr/bin/nvidia-container-runtime-hook";
        let hooks = if self.gpus {
            json!({"prestart": [{"path": hook, "args": [hook, "prestart"]}]})
        } else {
            json!(null)
        };
        json!({
            "hooks": hooks,
            "ociVersion": "1.0.2",
            "process": {
                "args": ["sh"],
                "env": self.env,
                "capabilities": {"bounding": bounding, "effective": ["CAP_SYS_ADMIN"]},
            },
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "annotations": annotations,
        })
    }

    fn asked(&self) -> Result<Asked> {
        of(self.config().to_string().as_bytes(), &self.settings, self.caller)
    }
}

fn asked(line: &str) -> Asked {
    container(line)
        .asked()
        .unwrap_or_else(|wrong| panic!("{line}: {wrong}"))
}

fn request(line: &str) -> Request {
    asked(line)
        .request
        .unwrap_or_else(|| panic!("{line}: nothing is asked for"))
}

fn refused(line: &str) -> String {
    match container(line).asked() {
        Ok(asked) => panic!("{line}: {asked:?}"),
        Err(wrong) => tranche_core::error::line(&wrong),
    }
}

/// The devices of a request as a line: `environment 0 0.big`, `volume none`, `nothing`.
fn shown(asked: &Asked) -> String {
    let Some(request) = &asked.request else {
        return "nothing".to_owned();
    };
    let mut words = vec![
        match request.source {
            RequestSource::Annotation => "annotation",
            RequestSource::Volume => "volume",
            RequestSource::Environment => "environment",
        }
        .to_owned(),
    ];
    words.extend(request.devices.iter().map(|device| match device {
        WantedDevice::All => "all".to_owned(),
        WantedDevice::Any => "any".to_owned(),
        WantedDevice::Part(part) => part.to_string(),
        WantedDevice::Cdi(name) => name.to_string(),
    }));
    if request.driver_only {
        words.push("none".to_owned());
    }
    if !request.select.is_empty() {
        words.push(format!("select:{}", request.select));
    }
    if let Some(size) = &request.size {
        let amounts = [
            size.memory.map(|memory| format!("memory:{}Mi", memory.mib())),
            size.compute.map(|compute| format!("compute:{compute}")),
            size.shares.map(|shares| format!("shares:{shares}")),
            size.device.as_ref().map(|device| format!("of:{device}")),
        ];
        words.extend(amounts.into_iter().flatten());
    }
    words.extend(
        request
            .wait
            .map(|wait| format!("wait:{}ms", wait.time.get().as_millis())),
    );
    words.join(" ")
}

/// Each row is a container and what it asks for.
fn check(rows: &[(&str, &str)]) {
    for (line, expected) in rows {
        assert_eq!(shown(&asked(line)), *expected, "{line}");
    }
}
