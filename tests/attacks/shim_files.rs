//! A bundle that another user can change: links, another bundle in its place, another configuration at the same time.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::races::exchange;
use crate::shim::{EXECUTED, Shim, asking, json_of, judged, marked};
use crate::shim_ended::twin;
use crate::stage::{MARK, differences};
use crate::trial::Attack;

/// What a start may leave at `path`: the mark that was there, once, in a complete file, edited or not.
fn is_whole(path: &Path, marks: &[&str]) -> Result<(), String> {
    let config = json_of(path).ok_or_else(|| format!("{} is no valid JSON", path.display()))?;
    match config["hostname"].as_str() {
        Some(mark) if marks.contains(&mark) => Ok(()),
        other => Err(format!("{} holds what belongs elsewhere: {other:?}", path.display())),
    }
}

/// A shared configuration, a secret of another user, a file of the host's: whatever it leads to stays as it is.
#[test]
fn a_configuration_that_is_a_link() {
    if !crate::owns_machine("shim_files::a_configuration_that_is_a_link") {
        return;
    }
    Attack::new(
        "shim_files::a_configuration_that_is_a_link",
        "config.json, or the bundle, is a link to a file of the host, to a secret of another user, or to another bundle",
    )
    .run_one_way(|trial| {
        twin(trial);
        for how in ["valid", "secret", "hard", "by /proc", "chain"] {
            let shim = Shim::new();
            fs::remove_file(shim.config()).unwrap();
            let target = shim.at("outside/target");
            fs::write(&target, asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]).to_string()).unwrap();
            std::os::unix::fs::chown(&target, Some(1234), Some(1234)).unwrap();
            shim.mode("outside/target", 0o600);
            match how {
                "valid" => symlink(&target, shim.config()).unwrap(),
                "secret" => symlink(shim.at("outside/shadow"), shim.config()).unwrap(),
                "hard" => fs::hard_link(&target, shim.config()).unwrap(),
                "by /proc" => {
                    let path = target.strip_prefix("/").unwrap();
                    symlink(Path::new("/proc/self/root").join(path), shim.config()).unwrap();
                }
                _ => {
                    symlink(&target, shim.at("bundle/one")).unwrap();
                    symlink("one", shim.config()).unwrap();
                }
            }
            let mut ended = shim.create();
            let is_secret = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains(MARK));
            if how == "secret" {
                // It asks for nothing, and stays what it is: the low-level runtime refuses it.
                let is_link = fs::symlink_metadata(shim.config()).unwrap().is_symlink();
                ended.wrong.extend((!is_link).then(|| "the link was replaced".to_owned()));
            } else if ended.code == EXECUTED && shim.limits().is_empty() {
                ended.wrong.push("the container started without its share".to_owned());
            } else if is_secret(&shim.at("seen/config.json")) {
                ended.wrong.push("the secret was copied".to_owned());
            }
            trial.record(how, &ended);
        }
    });
}

/// Names that a program would choose for a file that it renames later.
#[test]
fn a_temporary_name_that_exists() {
    Attack::new(
        "shim_files::a_temporary_name_that_exists",
        "names for a temporary file exist in the bundle, as links to files of the host",
    )
    .fault("temporary")
    .run_one_way(|trial| {
        twin(trial);
        let shim = Shim::new();
        for name in [
            "config.json.tmp",
            ".config.json.tmp",
            "config.json~",
            "config.json.new",
            ".config.json",
            "tmp",
            ".tmp",
            ".tranche.tmp",
            ".tranche.config.json.tmp",
            "config.json.tranche",
            ".tranche-0",
            ".tranche.0.tmp",
        ] {
            symlink(shim.at("outside/shadow"), shim.at("bundle").join(name)).unwrap();
        }
        let links = fs::read_dir(shim.at("bundle")).unwrap().count();
        let before = fs::metadata(shim.config()).unwrap();
        let run = shim
            .command(&["create", "--bundle", "bundle", "ID"])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        let mut ended = judged(run.code().unwrap_or(-1), Vec::new());
        if fs::read_to_string(shim.at("outside/shadow")).unwrap() != format!("root:{MARK}:1::\n") {
            ended.wrong.push("a file of the host was written".to_owned());
        }
        if shim.subject.is_real() && (ended.code != EXECUTED || shim.limits().is_empty()) {
            ended
                .wrong
                .push("the container did not start with its share".to_owned());
        }
        let now = fs::metadata(shim.config()).unwrap();
        if (now.mode(), now.uid()) != (before.mode(), before.uid()) {
            ended.wrong.push("config.json got another mode or owner".to_owned());
        }
        if fs::read_dir(shim.at("bundle")).unwrap().count() != links {
            ended.wrong.push("something was left in the bundle".to_owned());
        }
        trial.record("links", &ended);
    });
}

/// Two bundles that change places: what belongs to one must not be written into the other.
#[test]
fn a_bundle_for_another_one() {
    Attack::new(
        "shim_files::a_bundle_for_another_one",
        "the bundle is exchanged with another bundle, or with a link to one, as fast as can be, while the shim works",
    )
    .run_one_way(|trial| {
        twin(trial);
        for how in ["directory", "link", "file"] {
            let shim = Shim::new();
            shim.configure(&marked("one"));
            fs::create_dir(shim.at("bundle2")).unwrap();
            let other = match how {
                "file" => shim.at("bundle/other.json"),
                _ => shim.at("bundle2"),
            };
            match how {
                "directory" => fs::write(shim.at("bundle2/config.json"), marked("two").to_string()).unwrap(),
                "link" => {
                    fs::remove_dir(&other).unwrap();
                    fs::create_dir(shim.at("outside/bundle")).unwrap();
                    fs::write(shim.at("outside/bundle/config.json"), marked("two").to_string()).unwrap();
                    symlink("outside/bundle", &other).unwrap();
                }
                _ => fs::write(&other, marked("two").to_string()).unwrap(),
            }
            let one = if how == "file" {
                shim.config()
            } else {
                shim.at("bundle")
            };
            let before = if how == "link" {
                Default::default()
            } else {
                shim.outside()
            };
            let mut wrong = Vec::new();
            exchange(&one, &other, || {
                for _ in 0..30 {
                    let mut command = shim.command(&["create", "--bundle", "bundle", "ID"]);
                    let code = command.stderr(Stdio::null()).status().unwrap().code();
                    let known = [Some(EXECUTED), Some(1)].contains(&code);
                    wrong.extend((!known).then(|| format!("exit code {code:?}")));
                }
            });
            if how != "link" {
                differences("the host", &before, &shim.outside(), &mut wrong);
            }
            let files = match how {
                "directory" => vec![shim.at("bundle/config.json"), shim.at("bundle2/config.json")],
                "link" => {
                    let is_link = fs::symlink_metadata(shim.at("bundle")).unwrap().is_symlink();
                    let first = if is_link { "bundle2" } else { "bundle" };
                    vec![
                        shim.at(first).join("config.json"),
                        shim.at("outside/bundle/config.json"),
                    ]
                }
                _ => vec![shim.config(), other.clone()],
            };
            let marks: Vec<Value> = files
                .iter()
                .filter_map(|file| json_of(file))
                .map(|config| config["hostname"].clone())
                .collect();
            for file in &files {
                wrong.extend(is_whole(file, &["one", "two"]).err());
            }
            // Between two files of one name, the last look is a moment before the rename, and only the bundle is held.
            if how != "file" && marks.len() == 2 && marks[0] == marks[1] {
                wrong.push(format!("one configuration was written over the other: {marks:?}"));
            }
            let ended = judged(1, wrong);
            trial.record(how, &ended);
        }
    });
}
