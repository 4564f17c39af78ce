//! Files of the driver that are gone since an engine has put them into a configuration.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::place::{Place, said};
use crate::support::programs::script;
use crate::support::scene::run;

/// A place whose `host.json` has a library of the driver and a configuration file, which the container's configuration
/// has as mounts, and a program in the place of `tranche` that records its arguments.
struct Engine {
    place: Place,
}

impl Engine {
    fn new() -> Self {
        let place = Place::new();
        script(place.at("bin/tranche"), "echo \"$@\" >> \"${0%/*}/refreshed\"");
        let engine = Self { place };
        for file in ["lib", "json", "volume"] {
            fs::write(engine.file(file), file).unwrap();
        }
        let mut host = engine.place.host(&[&engine.place.at("bin/runc")]);
        let path = |file: &str| engine.file(file).display().to_string();
        let library = json!({"type": "library", "soname": "libcuda.so.1", "class": "64"});
        host["inventory"]["driver"]["files"] = json!([
            {"host": path("lib"), "container": "/usr/lib/lib", "kind": library, "capability": "compute"},
            {"host": path("json"), "container": "/etc/json", "kind": {"type": "config"}, "capability": "graphics"},
        ]);
        host["arguments"] = json!(["--cdi-version=0.6"]);
        fs::write(engine.place.at("state/host.json"), host.to_string()).unwrap();
        engine.configure();
        engine
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.at(name)
    }

    fn config(&self) -> Value {
        let mount = |file: &str, at: &str| json!({"destination": at, "source": self.file(file), "type": "bind", "options": ["ro", "rbind"]});
        let hook = json!({"path": "/usr/bin/tranche-oci", "args": ["tranche-oci", "hook", "prepare", "--ldcache-dir", "/usr/lib"]});
        json!({
            "process": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                mount("lib", "/usr/lib/lib"), mount("json", "/etc/json"), mount("volume", "/data"),
            ],
            "hooks": {"createContainer": [hook]},
        })
    }

    fn configure(&self) {
        self.place.configure(&self.config());
    }

    /// Where the container has mounts, after it was created.
    fn mounted(&self) -> Vec<String> {
        let config = fs::read_to_string(self.place.config()).unwrap();
        destinations(&serde_json::from_str(&config).unwrap())
    }

    fn refreshed(&self) -> String {
        fs::read_to_string(self.place.at("bin/refreshed")).unwrap_or_default()
    }
}

fn destinations(config: &Value) -> Vec<String> {
    let mounts = config["mounts"].as_array().unwrap().iter();
    mounts
        .map(|mount| mount["destination"].as_str().unwrap().to_owned())
        .collect()
}

const CREATE: [&str; 4] = ["create", "--bundle", "bundle", "ID"];

#[test]
fn what_a_container_can_do_without_is_left_out_and_the_host_is_refreshed_once() {
    let engine = Engine::new();
    engine.place.passes(&CREATE);
    assert_eq!((engine.mounted().len(), engine.refreshed().as_str()), (4, ""));
    fs::remove_file(engine.file("json")).unwrap();
    let started = engine.place.run(&CREATE);
    let gone = format!(
        "{}: is gone, and the container starts without it",
        engine.file("json").display()
    );
    assert!(said(&started).contains(&gone), "{}", said(&started));
    assert_eq!(said(&started).lines().count(), 1, "{}", said(&started));
    assert_eq!(engine.mounted(), ["/proc", "/usr/lib/lib", "/data"]);
    let state = engine.place.at("state");
    let refresh = "cdi refresh --cdi-version=0.6\n";
    assert_eq!(engine.refreshed(), refresh, "{}", state.display());
    // podman's precreate hook does the same.
    let mut command = std::process::Command::new(engine.place.runtime());
    command
        .args(["hook", "precreate", "--state-dir"])
        .arg(state)
        .env_clear();
    let ended = run(command, engine.config().to_string().as_bytes());
    assert!(ended.code == 0 && ended.stderr.contains(&gone), "{}", ended.stderr);
    let config: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(destinations(&config), ["/proc", "/usr/lib/lib", "/data"]);
    assert_eq!(engine.refreshed(), refresh.repeat(2));
}

#[test]
fn what_every_container_needs_and_what_is_not_the_driver_s_stays() {
    for gone in [&["lib"][..], &["lib", "json"], &["volume"]] {
        let engine = Engine::new();
        let before = fs::read(engine.place.config()).unwrap();
        for file in gone {
            fs::remove_file(engine.file(file)).unwrap();
        }
        engine.place.passes(&CREATE);
        assert_eq!(fs::read(engine.place.config()).unwrap(), before, "{gone:?}");
        assert_eq!(engine.refreshed(), "", "{gone:?}");
    }
    // A specification that no hook of tranche belongs to is another program's.
    let engine = Engine::new();
    fs::remove_file(engine.file("json")).unwrap();
    let mut config = engine.config();
    config["hooks"] = json!({});
    engine.place.configure(&config);
    engine.place.passes(&CREATE);
    assert_eq!(engine.mounted().len(), 4);
}

/// A refresh that fails does not keep the container from starting.
#[test]
fn a_refresh_that_fails_is_a_remark() {
    let engine = Engine::new();
    script(engine.place.at("bin/tranche"), "echo 'tranche: no space' >&2; exit 1");
    fs::remove_file(engine.file("json")).unwrap();
    let started = said(&engine.place.run(&CREATE));
    assert!(
        started.contains("cdi refresh: failed") && started.contains("no space"),
        "{started}"
    );
    assert_eq!(engine.mounted().len(), 3);
}
