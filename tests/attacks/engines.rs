//! Images that mean harm under podman with crun and with runc, as root and not: the engines have hands of their own on an
//! image, and what they leave of an attack reaches the hook.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::bed::{Bed, Engine, run_podman_in};
use crate::scene::snapshot;
use crate::skip;
use crate::stage::{furnish, program};
use crate::tally::Tally;
use crate::verb::{LIBDIR, Verb};

/// A bed with a host to be kept as it is, and a device whose hook is ours.
fn bed(environment: Option<&str>) -> Bed {
    let bed = Bed::new();
    // As shipped, where there is one: the bed has the one for development.
    fs::copy(program(), bed.hook()).unwrap();
    furnish(&bed.at("outside"), "of-the-host");
    Command::new("chmod")
        .args(["-R", "a+rwX"])
        .arg(bed.at("outside"))
        .status()
        .unwrap();
    let arguments = ["tranche-oci", "hook", "prepare"]
        .into_iter()
        .chain(Verb::named("prepare").arguments.iter().copied());
    let mut hook = json!({"hookName": "createContainer", "path": bed.hook(), "args": arguments.collect::<Vec<_>>()});
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

/// Runs a container and counts it; what is below `outside` may not change.
fn attack(bed: &Bed, engine: Engine, image: &Path, options: &[&str], name: &str, tally: &mut Tally) -> (bool, String) {
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
        &["/bin/true"],
    );
    let mut wrong = Vec::new();
    if snapshot(&bed.at("outside"), &|_| true) != before {
        wrong.push("the host changed".to_owned());
    }
    if fs::read(bed.hook()).unwrap() != program {
        wrong.push("our program changed".to_owned());
    }
    let code = i32::from(!output.status.success());
    tally.count(&format!("{name}, {engine:?}"), code, start.elapsed(), &wrong);
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn each_engine(test: &str, attacks: impl Fn(Engine, &mut Tally)) {
    let mut tally = Tally::default();
    let mut any = false;
    for engine in Engine::ALL {
        match engine.missing() {
            Some(reason) => skip::not_run(&format!("attacks::{test} {engine:?}"), &reason),
            None => {
                attacks(engine, &mut tally);
                any = true;
            }
        }
    }
    if any {
        tally.finish(&format!("engines::{test}"));
    }
}

#[test]
fn an_image_with_links_to_the_host() {
    each_engine("an_image_with_links_to_the_host", |engine, tally| {
        let bed = bed(Some("PATH="));
        // Each run of an engine takes a second: all of the table is tried on the hook alone.
        let all = [
            ("/etc", "absolute magic"),
            (LIBDIR, "absolute dots magic"),
            ("/etc/ld.so.cache", "absolute dots"),
            ("/usr/lib", "absolute"),
            ("/etc/nvidia", "absolute"),
            ("/etc/ld.so.conf.d", "absolute"),
            ("/usr/local", "magic"),
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
                attack(&bed, engine, &image, &[], &format!("{component} {how}"), tally);
            }
        }
    });
}

/// CVE-2025-23266, as it was done: `LD_PRELOAD=/proc/self/cwd/poc.so` in the image's environment.
#[test]
fn an_image_with_a_library_to_preload() {
    each_engine("an_image_with_a_library_to_preload", |engine, tally| {
        // A specification with an environment for the hook, as all of ours; and one without, by some other hand, from which
        // only a program without a loader is safe.
        let shipped = std::env::var_os("TRANCHE_OCI_STATIC").is_some();
        for environment in [Some("PATH="), None].into_iter().take(if shipped { 2 } else { 1 }) {
            let bed = bed(environment);
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
            let (started, said) = attack(
                &bed,
                engine,
                &image,
                &options,
                &format!("preload, {environment:?}"),
                tally,
            );
            assert!(started, "{engine:?}: {said}");
            assert!(!loaded.exists());
        }
    });
}
