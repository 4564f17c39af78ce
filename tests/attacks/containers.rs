//! Images that mean harm under podman with crun and with runc, as root and not: the engines have hands of their own on
//! an image, and what they leave of an attack reaches the hook.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::furnish::furnish;
use crate::run::Ended;
use crate::subject::Subject;
use crate::support::engines::{Bed, Engine, run_podman_in};
use crate::support::programs;
use crate::support::scene::snapshot;
use crate::support::session::session;
use crate::support::skip;
use crate::trial::{Attack, Trial};
use crate::verb::{LIBDIR, Verb};

/// A bed with a host to be kept as it is, and a device whose hook is ours.
fn bed(environment: Option<&str>) -> Bed {
    let bed = Bed::new();
    // As shipped, where there is one: the bed has the one for development.
    let subject = Subject::current();
    programs::install(subject.hook(), bed.hook());
    furnish(&bed.at("outside"), "of-the-host");
    Command::new("chmod")
        .args(["-R", "a+rwX"])
        .arg(bed.at("outside"))
        .status()
        .unwrap();
    let own = subject.arguments(&[&bed.at("")]);
    let own: Vec<String> = own
        .into_iter()
        .map(|argument| argument.into_string().unwrap())
        .collect();
    let arguments = ["tranche-oci", "hook", "prepare"].into_iter();
    let arguments = arguments.chain(Verb::named("prepare").arguments.iter().copied());
    let arguments: Vec<&str> = arguments.chain(own.iter().map(String::as_str)).collect();
    let mut hook = json!({"hookName": "createContainer", "path": bed.hook(), "args": arguments});
    if let Some(environment) = environment {
        hook["env"] = json!([environment]);
    }
    bed.spec(
        "nvidia.json",
        &json!({
            "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
            "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
            "containerEdits": {"hooks": [hook]}
        }),
    );
    bed
}

/// An image with everything that a hook touches, without what an engine mounts itself.
fn image(bed: &Bed, engine: Engine) -> PathBuf {
    let image = bed.image(engine);
    furnish(&image, "of-the-image");
    for made in ["dev", "proc"] {
        fs::remove_dir_all(image.join(made)).unwrap();
        fs::create_dir(image.join(made)).unwrap();
    }
    image
}

fn hand_over(image: &Path, engine: Engine) {
    if engine.is_rootless() {
        let done = Command::new("chown")
            .args(["-R", "-h", "65534:65534"])
            .arg(image)
            .status();
        assert!(done.unwrap().success());
    }
}

/// Runs a container: whether it started, what it said, and what changed below `outside`.
fn run(bed: &Bed, engine: Engine, image: &Path, options: &[&str], command: &[&str]) -> (bool, String, Ended) {
    let program = fs::read(bed.hook()).unwrap();
    let before = snapshot(&bed.at("outside"), &|_| true);
    let start = std::time::Instant::now();
    let output = run_podman_in(
        bed,
        engine,
        image,
        &["nvidia.com/gpu=0"],
        &bed.specs(),
        options,
        command,
    );
    let mut wrong = Vec::new();
    if snapshot(&bed.at("outside"), &|_| true) != before {
        wrong.push("the host changed".to_owned());
    }
    if fs::read(bed.hook()).unwrap() != program {
        wrong.push("our program changed".to_owned());
    }
    let ended = Ended {
        code: i32::from(!output.status.success()),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: start.elapsed(),
        wrong,
        ..Ended::default()
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &ended.stderr;
    (output.status.success(), text, ended)
}

/// A harmless image must be served: the driver's link is there.
fn twin(bed: &Bed, engine: Engine, trial: &mut Trial) {
    let image = image(bed, engine);
    hand_over(&image, engine);
    let (started, text, ended) = run(bed, engine, &image, &[], &["/bin/true"]);
    let mut wrong = ended.wrong;
    if !started || fs::read_link(image.join(LIBDIR.trim_start_matches('/')).join("libcuda.so")).is_err() {
        wrong.push(format!("not served: {text}"));
    }
    trial.record_twin(&format!("{engine:?}"), &wrong);
}

/// Runs an attack with each engine that is there.
fn each_engine(attack: Attack, test: &str, body: impl Fn(Engine, &mut Trial)) {
    let there: Vec<Engine> = Engine::ALL
        .into_iter()
        .filter(|engine| match engine.missing() {
            Some(reason) => {
                skip::not_run(&format!("attacks::{test} {engine:?}"), &reason);
                false
            }
            None => true,
        })
        .collect();
    if !there.is_empty() {
        attack.run_one_way(|trial| there.iter().for_each(|engine| body(*engine, trial)));
    }
}

#[test]
fn an_image_with_links_to_the_host() {
    let attack = Attack::new(
        "containers::an_image_with_links_to_the_host",
        "a component of a path is a link to the host, in an image that a real engine starts",
    );
    each_engine(attack, "an_image_with_links_to_the_host", |engine, trial| {
        let bed = bed(Some("PATH="));
        twin(&bed, engine, trial);
        // Each run of an engine takes a second: all of the table is tried on the hook alone.
        let all = [
            ("/etc", "absolute magic"),
            (LIBDIR, "absolute dots magic"),
            ("/etc/ld.so.cache", "absolute dots"),
            ("/usr/lib", "absolute"),
            ("/etc/nvidia", "absolute"),
            ("/etc/ld.so.conf.d", "absolute"),
            ("/usr/local", "magic"),
            ("/usr", "absolute"),
            ("/run", "absolute"),
        ];
        for (component, kinds) in all.into_iter().take(if engine.is_rootless() { 3 } else { all.len() }) {
            for how in kinds.split(' ') {
                let image = image(&bed, engine);
                let host = bed.at("outside").join(component.trim_start_matches('/'));
                let target = match how {
                    "absolute" => host,
                    "dots" => format!("{}{}", "../".repeat(40), host.display()).into(),
                    _ => PathBuf::from(format!("/proc/1/root{}", host.display())),
                };
                let place = image.join(component.trim_start_matches('/'));
                if place.is_dir() {
                    fs::remove_dir_all(&place).unwrap();
                } else {
                    let _ = fs::remove_file(&place);
                }
                symlink(target, &place).unwrap();
                hand_over(&image, engine);
                let (_, _, ended) = run(&bed, engine, &image, &[], &["/bin/true"]);
                trial.record(&format!("{component} {how}, {engine:?}"), &ended);
            }
        }
    });
}

/// runc's CVE-2026-41579 and crun's CVE-2026-47766: runtimes that have them set up devices where a link leads. The hook
/// must add nothing to that.
#[test]
fn an_image_whose_dev_is_a_link() {
    let attack = Attack::new(
        "containers::an_image_whose_dev_is_a_link",
        "CVE-2026-41579, CVE-2026-47766: /dev, and with it /usr/lib, is a link to the host in an image that an engine starts",
    );
    each_engine(attack, "an_image_whose_dev_is_a_link", |engine, trial| {
        twin(&bed(Some("PATH=")), engine, trial);
        for links in [&["/dev"][..], &["/dev", "/usr/lib"]] {
            let start = std::time::Instant::now();
            // The paths of the host that a start changes, without the hook and with it.
            let changed = |devices: &[&str]| {
                let bed = bed(Some("PATH="));
                let image = image(&bed, engine);
                for link in links {
                    let place = image.join(link.trim_start_matches('/'));
                    let _ = fs::remove_dir_all(&place);
                    symlink(bed.at("outside").join(link.trim_start_matches('/')), place).unwrap();
                }
                hand_over(&image, engine);
                let before = snapshot(&bed.at("outside"), &|_| true);
                run_podman_in(&bed, engine, &image, devices, &bed.specs(), &[], &["/bin/true"]);
                let after = snapshot(&bed.at("outside"), &|_| true);
                let paths = after.keys().chain(before.keys());
                let paths = paths.filter(|path| after.get(*path) != before.get(*path));
                let of_bed = |path: &PathBuf| path.strip_prefix(bed.at("")).map_or(path.clone(), Path::to_owned);
                paths.map(of_bed).collect::<BTreeSet<PathBuf>>()
            };
            let (without, with) = (changed(&[]), changed(&["nvidia.com/gpu=0"]));
            let more: Vec<_> = with.difference(&without).collect();
            let ended = Ended {
                took: start.elapsed(),
                wrong: (!more.is_empty())
                    .then(|| format!("the hook changed {more:?}"))
                    .into_iter()
                    .collect(),
                ..Ended::default()
            };
            trial.record(&format!("{links:?}, {engine:?}"), &ended);
        }
    });
}

/// CVE-2025-23266, as it was done: `LD_PRELOAD=/proc/self/cwd/poc.so` in the image's environment.
#[test]
fn an_image_with_a_library_to_preload() {
    let attack = Attack::new(
        "containers::an_image_with_a_library_to_preload",
        "CVE-2025-23266 as it was done: LD_PRELOAD=/proc/self/cwd/poc.so in the image's environment",
    );
    each_engine(attack, "an_image_with_a_library_to_preload", |engine, trial| {
        // A specification that sets the environment of the hook, as those of tranche do; and one of another program
        // that does not, where only a static program is safe from the image's variables.
        let shipped = std::env::var_os("TRANCHE_OCI_STATIC").is_some();
        for environment in [Some("PATH="), None]
            .into_iter()
            .take(if shipped || !trial.subject.is_real() { 2 } else { 1 })
        {
            let bed = bed(environment);
            twin(&bed, engine, trial);
            let image = image(&bed, engine);
            let loaded = bed.at("outside/loaded");
            let source = bed.at("poc.c");
            let text = format!(
                "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ open(\"{}\", O_CREAT | O_WRONLY, 0666); }}\n",
                loaded.display()
            );
            fs::write(&source, text).unwrap();
            let made = Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .arg(image.join("poc.so"))
                .arg(&source)
                .output();
            if !made.is_ok_and(|output| output.status.success()) {
                return skip::not_run(
                    &format!("attacks::an_image_with_a_library_to_preload {engine:?}"),
                    "no cc",
                );
            }
            hand_over(&image, engine);
            let options = [
                "--env=LD_PRELOAD=/proc/self/cwd/poc.so",
                "--env=GCONV_PATH=/proc/self/cwd",
                "--env=PATH=/proc/self/cwd/bin:/bin",
            ];
            let (started, said, mut ended) = run(&bed, engine, &image, &options, &["/bin/true"]);
            if !started {
                ended.wrong.push(format!("it does not start: {said}"));
            }
            if loaded.exists() {
                ended.wrong.push("the image's library was loaded".to_owned());
                fs::remove_file(&loaded).unwrap();
            }
            trial.record(&format!("preload, {environment:?}, {engine:?}"), &ended);
        }
    });
}

/// As it was done: a file with mode 0600 of a volume, read by a user of the container without any right.
#[test]
fn an_image_that_reads_a_secret_file() {
    let attack = Attack::new(
        "containers::an_image_that_reads_a_secret_file",
        "the path file is a link to a file with mode 0600 of a volume, or to /proc/self/mountinfo, and a user reads it",
    );
    each_engine(attack, "an_image_that_reads_a_secret_file", |engine, trial| {
        let bed = bed(Some("PATH="));
        twin(&bed, engine, trial);
        let shadow = bed.at("outside/shadow");
        fs::write(&shadow, "root:$y$tranche-secret:1::\n").unwrap();
        fs::set_permissions(&shadow, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let volume = format!("--volume={}:/data:ro", bed.at("outside").display());
        for (target, shown) in [("../data/shadow", "tranche-secret"), ("/proc/self/mountinfo", " / / ")] {
            let image = image(&bed, engine);
            let path = image.join("etc/ld-musl-x86_64.path");
            fs::remove_file(&path).unwrap();
            symlink(target, &path).unwrap();
            hand_over(&image, engine);
            let options = [
                volume.as_str(),
                "--user=65534",
                "--cap-drop=all",
                "--security-opt=no-new-privileges",
            ];
            // As a file, not as a link: by the link the container reads its own mountinfo.
            let read = "test -L /etc/ld-musl-x86_64.path || cat /etc/ld-musl-x86_64.path";
            let (_, text, mut ended) = run(&bed, engine, &image, &options, &["/bin/sh", "-c", read]);
            if text.contains(shown) || text.contains(" - proc ") {
                ended
                    .wrong
                    .push(format!("a user of the container reads {target}: {text:.300}"));
            }
            trial.record(&format!("{target}, {engine:?}"), &ended);
        }
    });
}

/// As it was done: `--read-only -v DIR:/data:rshared,ro`, and the host's mounts after the container is gone.
#[test]
fn an_image_that_mounts_on_the_host() {
    let attack = Attack::new(
        "containers::an_image_that_mounts_on_the_host",
        "on a read-only root the cache and the path file are links into a volume with shared propagation",
    );
    each_engine(attack, "an_image_that_mounts_on_the_host", |engine, trial| {
        if engine.is_rootless() {
            // A user's mounts are slaves of the host's.
            return;
        }
        let bed = bed(Some("PATH="));
        twin(&bed, engine, trial);
        let image = image(&bed, engine);
        for path in ["etc/ld-musl-x86_64.path", "etc/ld.so.cache"] {
            fs::remove_file(image.join(path)).unwrap();
            symlink(Path::new("../data").join(path), image.join(path)).unwrap();
        }
        fs::rename(&image, bed.at("hostile")).unwrap();
        let before = snapshot(&bed.at("outside"), &|_| true);
        let script = r#"
            mount --bind "$bed/outside" "$bed/outside" && mount --make-rshared "$bed/outside"
            grep outside /proc/self/mountinfo > "$bed/mounts.before"
            step run podman run --rm --network=none $limits --read-only --device nvidia.com/gpu=0 \
                --volume "$bed/outside:/data:rshared,ro" --rootfs "$bed/hostile" /bin/true
            grep outside /proc/self/mountinfo > "$bed/mounts.after"
            umount -R "$bed/outside"
        "#;
        let start = std::time::Instant::now();
        let done = session(&bed, engine, 0, script);
        let list = |name: &str| fs::read_to_string(bed.at(name)).unwrap();
        let mut wrong = Vec::new();
        if list("mounts.before") != list("mounts.after") {
            wrong.push(format!("mounts of the host: {}", list("mounts.after")));
        }
        if snapshot(&bed.at("outside"), &|_| true) != before {
            wrong.push("the host changed".to_owned());
        }
        let step = done.step("run");
        let ended = Ended {
            code: step.code,
            stderr: step.text.clone(),
            took: start.elapsed(),
            wrong,
            ..Ended::default()
        };
        trial.record(&format!("{engine:?}"), &ended);
    });
}
