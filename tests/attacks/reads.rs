//! What the hook reads for the image. It is root, and an image can point it at files that nobody in the container may
//! read.
//!
//! The oracle asks for no mark: after the hook, each file of the image is as it was, or it is as the same hook makes it
//! in the same image without the carrier, down to mode and owner. Whatever else is in it came from outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::can_mount;
use crate::furnish::cache;
use crate::run::Ended;
use crate::stage::{MARK, Stage};
use crate::trial::{Attack, Trial};
use crate::verb::{LIBDIR, Verb};

const MUSL_PATH: &str = "/etc/ld-musl-x86_64.path";
const CACHE: &str = "/etc/ld.so.cache";
const PROC: &str = r#"mount --rbind /proc "$root/proc""#;

/// Everything in the image, without times.
fn contents(stage: &Stage) -> BTreeMap<PathBuf, String> {
    let root = stage.image("/");
    let inside = stage.scene.inside().into_iter();
    inside
        .map(|(path, text)| {
            let mut words: Vec<&str> = text.splitn(4, ' ').collect();
            words.remove(2);
            (path.strip_prefix(&root).unwrap().to_owned(), words.join(" "))
        })
        .collect()
}

/// Runs the hook in `hostile`, and in the same image without `carrier`: what is in the image afterwards that neither
/// was there nor is in the other one.
fn carried(trial: &mut Trial, name: &str, hostile: &Stage, carrier: &str) -> Ended {
    let mut without = Stage::new(hostile.verb);
    without.before.clone_from(&hostile.before);
    for directory in ["/data", "/etc/ld.so.conf.d"] {
        if hostile.image(directory).is_dir() {
            fs::create_dir_all(without.image(directory)).unwrap();
        }
    }
    fs::copy(
        hostile.scene.at("bundle/config.json"),
        without.scene.at("bundle/config.json"),
    )
    .unwrap();
    without.clear(carrier);
    let before = contents(hostile);
    let twin = without.run();
    let expected = contents(&without);
    trial.attack_and(name, hostile, |ended| {
        let mut wrong = Vec::new();
        for (path, now) in contents(hostile) {
            let harmless = [before.get(&path), expected.get(&path)].contains(&Some(&now));
            // A directory above the carrier has another size or mode in neither case.
            if !harmless {
                wrong.push(format!("{} holds what is not the image's: {now:.200}", path.display()));
            }
        }
        for cover in &ended.covers {
            let same_file = expected.get(Path::new(cover.path.trim_start_matches('/')));
            let text = cover.bytes.escape_ascii().to_string();
            let harmless = twin.covers.contains(cover) || same_file.is_some_and(|file| file.ends_with(&text));
            if !harmless {
                wrong.push(format!("what covers {} is not the image's: {text:.200}", cover.path));
            }
        }
        wrong
    })
}

/// A process of the host with a secret in its environment and its arguments.
struct Victim(Child);

impl Victim {
    fn new() -> Victim {
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").env("SECRET", MARK).stdin(Stdio::null());
        Victim(sleep.spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Files of the kernel that nobody in a container reads, or that engines mask after the hooks; and another process's.
#[test]
fn files_of_proc() {
    if !can_mount("files_of_proc") {
        return;
    }
    let victim = Victim::new();
    let of = |file: &str| format!("/proc/{}/{file}", victim.0.id());
    let targets = [
        "/proc/self/mountinfo".to_owned(),
        "/proc/self/exe".to_owned(),
        "/proc/thread-self/maps".to_owned(),
        "/proc/1/environ".to_owned(),
        of("environ"),
        of("cmdline"),
        "/proc/iomem".to_owned(),
        "/proc/timer_list".to_owned(),
        "/proc/keys".to_owned(),
        "/proc/kallsyms".to_owned(),
        "/proc/cmdline".to_owned(),
    ];
    Attack::new(
        "reads::files_of_proc",
        "the path file or the cache is a link into /proc: mountinfo, another process's environ, masked files",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for (target, carrier) in targets.iter().flat_map(|t| [(t, MUSL_PATH), (t, CACHE)]) {
                for read_only in [false, true] {
                    let mut stage = Stage::new(verb);
                    stage.before = PROC.to_owned();
                    stage.configure(None, read_only);
                    stage.link(carrier, target);
                    let name = format!("{} {carrier} -> {target}, read-only: {read_only}", verb.name);
                    carried(trial, &name, &stage, carrier);
                }
            }
        }
    });
}

/// A stage whose image has a volume of the host at /data, read-only as `-v DIR:/data:ro` makes it.
fn with_volume(verb: Verb, read_only_root: bool) -> Stage {
    let mut stage = Stage::new(verb);
    fs::create_dir(stage.image("/data")).unwrap();
    let source = stage.scene.at("outside/host");
    stage.before = format!(
        "mount --bind '{}' \"$root/data\" && mount -o remount,bind,ro \"$root/data\"",
        source.display()
    );
    let mount = json!({"destination": "/data", "type": "bind", "source": source, "options": ["rbind", "ro"]});
    stage.configure(Some(mount), read_only_root);
    stage
}

/// Writes a file of the host that its owner alone may read.
fn secret(stage: &Stage, name: &str, bytes: &[u8]) {
    let file = stage.host(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut open = fs::File::create(&file).unwrap();
    open.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
    open.write_all(bytes).unwrap();
}

/// Text as in /etc/shadow, and an ld.so.cache: what a path file and a cache carry on.
#[test]
fn secret_files_of_a_volume() {
    if !can_mount("secret_files_of_a_volume") {
        return;
    }
    Attack::new(
        "reads::secret_files_of_a_volume",
        "the path file, the cache or a part of ld.so.conf.d is a link to a file with mode 0600 in a volume",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for carrier in [MUSL_PATH, CACHE, "/etc/ld.so.conf.d/evil.conf", "/etc/ld.so.conf"] {
                for read_only in [false, true] {
                    for content in [b"root:$y$j9T$secret:19000:0:99999:7:::\n".to_vec(), cache("secret")] {
                        let stage = with_volume(verb, read_only);
                        secret(&stage, "/secret", &content);
                        stage.link_inside(carrier, "/data/secret");
                        let name = format!("{} {carrier}, read-only root: {read_only}", verb.name);
                        carried(trial, &name, &stage, carrier);
                    }
                }
            }
        }
    });
}

/// What a file names decides too what is written: a directory of the driver's libraries that is named there already is
/// not named again. That is one bit of a secret file.
#[test]
fn a_secret_that_decides() {
    if !can_mount("a_secret_that_decides") {
        return;
    }
    Attack::new(
        "reads::a_secret_that_decides",
        "a part of ld.so.conf.d is a link to a secret file, and what is written depends on whether a line is in it",
    )
    .naive_passes("it writes its line whatever the other files say")
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let carrier = "/etc/ld.so.conf.d/evil.conf";
            let stage = with_volume(verb, false);
            secret(&stage, "/secret", format!("{LIBDIR}\n").as_bytes());
            stage.link_inside(carrier, "/data/secret");
            carried(trial, verb.name, &stage, carrier);
        }
    });
}

/// Names of files in a directory that its owner alone may enter.
#[test]
fn names_in_a_closed_directory_of_a_volume() {
    if !can_mount("names_in_a_closed_directory_of_a_volume") {
        return;
    }
    Attack::new(
        "reads::names_in_a_closed_directory_of_a_volume",
        "the directory of libraries or of compatibility libraries is a link to a closed directory in a volume",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache", "enable-cuda-compat"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let carriers = match verb.name {
                "update-ldcache" => &[LIBDIR],
                // It makes the directory of libraries where it is missing.
                _ => &["/usr/local/cuda/compat"],
            };
            for carrier in carriers {
                let stage = with_volume(verb, false);
                let library = fs::read(stage.host(&format!("{LIBDIR}/libcuda.so.580.95.05"))).unwrap();
                for name in ["libcuda.so.590.44.01", "libsecret-project.so.1", "libcuda.so.1"] {
                    secret(&stage, &format!("/closed/{name}"), &library);
                }
                fs::set_permissions(stage.host("/closed"), PermissionsExt::from_mode(0o700)).unwrap();
                stage.link_inside(carrier, "/data/closed");
                carried(trial, &format!("{} {carrier}", verb.name), &stage, carrier);
            }
        }
    });
}

/// A file of the host on the image's own file system, to which the image has a hard link.
#[test]
fn a_hard_link_to_a_secret_file() {
    Attack::new(
        "reads::a_hard_link_to_a_secret_file",
        "the path file or the cache is a hard link to a file with mode 0600 of the host, on the same file system",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for (carrier, content) in [(MUSL_PATH, b"root:$y$secret:1::\n".to_vec()), (CACHE, cache("secret"))] {
                for read_only in [false, true] {
                    let stage = Stage::new(verb);
                    stage.configure(None, read_only);
                    secret(&stage, "/secret", &content);
                    fs::hard_link(stage.host("/secret"), stage.clear(carrier)).unwrap();
                    carried(trial, &format!("{} {carrier}, {read_only}", verb.name), &stage, carrier);
                }
            }
        }
    });
}

/// The image's own file, which its user alone may read: a copy of it with mode 0644 is everybody's in the container.
#[test]
fn a_file_of_the_image_that_is_not_for_everybody() {
    Attack::new(
        "reads::a_file_of_the_image_that_is_not_for_everybody",
        "the path file has mode 0600, so that a copy with mode 0644 lets another user of the container read it",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            for read_only in [false, true] {
                let stage = Stage::new(verb);
                stage.configure(None, read_only);
                let file = stage.image(MUSL_PATH);
                fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
                trial.attack_and(&format!("{}, {read_only}", verb.name), &stage, |ended| {
                    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
                    let covers = ended.covers.iter().filter(|cover| cover.path == MUSL_PATH);
                    let covered: Vec<&str> = covers.map(|cover| cover.mode.as_str()).collect();
                    let wide = mode & 0o077 != 0 || covered.iter().any(|mode| !mode.starts_with("600 "));
                    wide.then(|| format!("mode {mode:o}, covers {covered:?}"))
                        .into_iter()
                        .collect()
                });
            }
        }
    });
}

/// The file is exchanged while the hook reads it. In `make attack-long` for a minute.
#[test]
fn a_path_file_that_is_exchanged() {
    if !can_mount("a_path_file_that_is_exchanged") {
        return;
    }
    Attack::new(
        "reads::a_path_file_that_is_exchanged",
        "the path file is exchanged with a link to a secret file of a volume between the look and the reading",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"].map(Verb::named) {
            trial.twin(&Stage::new(verb));
            let stage = with_volume(verb, false);
            secret(&stage, "/secret", format!("/lib:/{MARK}\n").as_bytes());
            stage.link_inside("/etc/away", "/data/secret");
            crate::races::race(trial, &stage, MUSL_PATH, "/etc/away", verb.name);
        }
    });
}
