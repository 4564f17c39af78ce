//! Two starts from one bundle, of which one waits or still has its claim in the configuration.

use std::fs;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::shim::{EXECUTED, Shim, asking, json_of, judged, marked};
use crate::shim_ended::twin;
use crate::support::until;
use crate::trial::Attack;

/// Ends a process, also where a test ends with a panic.
pub(crate) struct Ends(pub(crate) Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An engine gives a start up while it waits for a share, and writes another configuration into the bundle.
#[test]
fn another_configuration_while_the_start_waits() {
    Attack::new(
        "shim_files::another_configuration_while_the_start_waits",
        "config.json is replaced while the start from it waits for a share, which becomes free then",
    )
    .naive_passes("it does not wait")
    .run_one_way(|trial| {
        twin(trial);
        if !trial.subject.is_real() {
            return;
        }
        let shim = Shim::new();
        // A process that holds all shares until it ends.
        shim.program("bin/hold", "#!/bin/sh\nexec sleep 100\n");
        let mut host = shim.host();
        host["runtime"]["runtimes"] = json!([shim.at("bin/hold")]);
        shim.write_host(&host);
        shim.configure(&asking(&["NVIDIA_VISIBLE_DEVICES=0.any", "TRANCHE_SHARES=4"]));
        let holder = Ends(
            shim.command(&["create", "--bundle", "bundle", "FIRST"])
                .spawn()
                .unwrap(),
        );
        until("the first one holds the shares", || is_made_for(&shim, "FIRST"));
        let mut host = shim.host();
        host["runtime"]["max_wait"]["environment"] = json!("100s");
        shim.write_host(&host);
        let mut waiting = asking(&["NVIDIA_VISIBLE_DEVICES=0.any", "TRANCHE_WAIT=100s"]);
        waiting["hostname"] = json!("old");
        shim.configure(&waiting);
        let mut waiter = Ends(
            shim.command(&["create", "--bundle", "bundle", "ID"])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let queue = || fs::read_dir(shim.at("state/ledger/queue")).map_or(0, Iterator::count);
        until("the second one waits", || queue() > 0);
        let new = marked("new").to_string();
        fs::write(shim.at("new.json"), &new).unwrap();
        fs::rename(shim.at("new.json"), shim.config()).unwrap();
        drop(holder);
        let code = waiter.0.wait().unwrap().code();
        let mut wrong = Vec::new();
        if fs::read_to_string(shim.config()).unwrap() != new {
            wrong.push("the new configuration was written over".to_owned());
        }
        if code != Some(1) || shim.at("seen/arguments").exists() {
            wrong.push(format!("a start from what was not read: {code:?}"));
        }
        let ended = judged(1, wrong);
        trial.record("a rename", &ended);
    });
}

/// Two containers may be made from one bundle.
#[test]
fn a_configuration_with_the_claim_of_another_container() {
    Attack::new(
        "shim_files::a_configuration_with_the_claim_of_another_container",
        "config.json was edited for another container, which is being created and has its share",
    )
    .naive_passes("it makes no claims")
    .run_one_way(|trial| {
        twin(trial);
        if !trial.subject.is_real() {
            return;
        }
        let shim = Shim::new();
        shim.program("bin/hold", "#!/bin/sh\nexec sleep 100\n");
        let mut host = shim.host();
        host["runtime"]["runtimes"] = json!([shim.at("bin/hold")]);
        shim.write_host(&host);
        let _first = Ends(
            shim.command(&["create", "--bundle", "bundle", "FIRST"])
                .spawn()
                .unwrap(),
        );
        until("the first one has its share", || is_made_for(&shim, "FIRST"));
        let claim = |config: Value| config["hooks"]["createRuntime"].to_string();
        let first = claim(json_of(&shim.config()).unwrap());
        shim.write_host(&shim.host());
        let mut ended = shim.create();
        let second = claim(shim.seen().unwrap_or_default());
        if ended.code != EXECUTED
            || first == second
            || first.matches("start-").count() != second.matches("start-").count()
        {
            ended.wrong.push(format!("{first} and then {second}: {}", ended.stderr));
        }
        trial.record("a bundle for two", &ended);
    });
}

/// Whether the configuration was edited for this container, which holds something.
pub(crate) fn is_made_for(shim: &Shim, id: &str) -> bool {
    let is_edited = fs::read_to_string(shim.config()).unwrap().contains("start-");
    is_edited && shim.held().iter().any(|held| held.contains(id))
}
