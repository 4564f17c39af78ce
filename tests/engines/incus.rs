//! Incus, with what `tranche export` prints: it reads no CDI specification.

use crate::requests::gpus;
use crate::support::engines::{Bed, Engine, find};
use crate::support::session::{Session, session};
use crate::support::{fake_host, skip};
use std::fs;
use std::path::Path;
use std::process::Command;

const INCUSD: &str = "/usr/libexec/incus/incusd";

const POLICY: &str = "\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
";

/// What is missing to start `incusd`.
fn missing() -> Option<String> {
    let has_incus = Path::new(INCUSD).exists() && find("incus").is_some();
    Engine::PodmanCrun
        .missing()
        .or_else(|| (!has_incus).then(|| "not installed: incus".to_owned()))
}

/// What is missing to start a container.
fn missing_for_containers() -> Option<String> {
    let version = String::from_utf8(Command::new(INCUSD).arg("--version").output().unwrap().stdout).unwrap();
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    let has_cgroup2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    (major >= 7 && !has_cgroup2)
        .then(|| "Incus of this version needs cgroup v2, which this machine does not have".to_owned())
}

fn run(test: &str, script: &str, look: impl Fn(&Session)) {
    let bed = Bed::new();
    let host = fake_host::build("t4x2-old-driver", &bed.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(test, &missing.why);
        return;
    }
    fs::write(bed.at("policy.yaml"), POLICY).unwrap();
    let root = host.root.display();
    let script = format!(
        "place='--driver-root={root} --proc-root={root}/proc --sys-root={root}/sys --config={}'\n{}{script}\n\
         kill \"$daemon\"\nwait \"$daemon\"\n",
        bed.at("policy.yaml").display(),
        include_str!("incus.sh"),
    );
    let session = session(&bed, Engine::PodmanCrun, 1, &script);
    session.ok("import");
    look(&session);
}

#[test]
fn a_container_sees_what_is_exported() {
    let test = "incus::a_container_sees_what_is_exported";
    if let Some(reason) = missing().or_else(missing_for_containers) {
        skip::not_run(test, &reason);
        return;
    }
    let script = "box nothing\nbox whole 1\nbox share 0.1\n";
    run(test, script, |session| {
        for (step, expected) in [("nothing", &[][..]), ("whole", &[1]), ("share", &[0])] {
            let look = session.ok(step);
            assert_eq!(gpus(look), expected, "{step}: {look}");
            for part in ["/libcuda.so.1\n", "LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu"] {
                assert_eq!(look.contains(part), !expected.is_empty(), "{step}: {look}");
            }
        }
    });
}

#[test]
fn a_cdi_name_is_refused() {
    let test = "incus::a_cdi_name_is_refused";
    if let Some(reason) = missing() {
        skip::not_run(test, &reason);
        return;
    }
    let script = "\
incus init bb cdi > /dev/null 2>&1
step device incus config device add cdi gpu gpu gputype=physical id=nvidia.com/gpu=1
step cdi incus start cdi
";
    run(test, script, |session| {
        session.ok("device");
        let cdi = session.step("cdi");
        let why = "Failed to detect requested GPU device";
        assert!(cdi.code != 0 && cdi.text.contains(why), "{}", cdi.text);
    });
}
