//! The known vulnerabilities of programs that prepare containers for GPUs, each by its number, and what keeps us from it.
//! What is said of their mechanisms is what their advisories and fixes say.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::unistd::Uid;

use crate::stage::{Stage, program};
use crate::tally::Tally;
use crate::verb::{LIBDIR, VERBS, Verb};
use crate::{both_ways, skip};

fn refused_or_harmless(stage: &Stage, name: &str, tally: &mut Tally) {
    let ended = stage.attack(name, tally);
    assert!(ended.wrong.is_empty(), "{name}: {:?}", ended.wrong);
}

/// What a path is is looked at, and by the time of the mount it is something else: the image gets the host's files
/// mounted. We mount on the handle that was looked at; exchanging names does nothing to it. Every component is exchanged
/// in [`crate::races`]; here it is the one mount that we make.
#[test]
fn cve_2024_0132_what_is_mounted_on_cannot_be_exchanged() {
    both_ways("known::cve_2024_0132", |tally, how| {
        for component in ["/proc/driver", "/proc/driver/nvidia", "/proc/driver/nvidia/params"] {
            let stage = Stage::new(Verb::named("disable-device-node-modification"));
            stage.link("/away", stage.host(component));
            crate::races::race(&stage, component, "/away", &format!("{component}, {how}"), tally);
        }
    });
}

/// A path of the image that leads to a missing file of the host, which is then made, empty. A link that leads nowhere in
/// the root is not followed to make what it names.
#[test]
fn cve_2024_0133_no_empty_file_appears_on_the_host() {
    both_ways("known::cve_2024_0133", |tally, how| {
        for verb in VERBS {
            for path in verb.touches {
                let stage = Stage::new(verb);
                stage.link(path, stage.scene.at("outside/made-by-the-image"));
                refused_or_harmless(&stage, &format!("{} {path}, {how}", verb.name), tally);
                assert!(!stage.scene.at("outside/made-by-the-image").exists());
            }
        }
    });
}

/// Links of the image lead the making of links out of the root.
#[test]
fn cve_2024_0134_links_are_made_inside() {
    both_ways("known::cve_2024_0134", |tally, how| {
        for verb in ["prepare", "create-symlinks"] {
            for component in ["/usr", "/usr/lib", LIBDIR] {
                let stage = Stage::new(Verb::named(verb));
                fs::remove_file(stage.host(LIBDIR).join("libcuda.so")).unwrap_or_default();
                stage.link(component, stage.host(component));
                refused_or_harmless(&stage, &format!("{verb} {component}, {how}"), tally);
                assert!(fs::symlink_metadata(stage.host(LIBDIR).join("libcuda.so")).is_err());
            }
        }
    });
}

/// Improper isolation of the `ldconfig` that is run for the image: it could change the host's program, reach the host's
/// devices (2024-0136) and its network namespace (2024-0137). No program is run and no process made, so there is none
/// to isolate: a process that starts us sees one `execve`, ours, no new process, namespace or socket, and no node made.
#[test]
fn cve_2024_0135_0136_0137_nothing_is_run() {
    const TRACED: &str = "execve,execveat,clone,clone3,fork,vfork,setns,unshare,mknod,mknodat,socket,connect,chroot,pivot_root,\
                          init_module,finit_module,ptrace,kill";
    let possible = Command::new("strace")
        .args(["-qq", "-e", "trace=execve", "true"])
        .output();
    if !Uid::effective().is_root() || !possible.is_ok_and(|output| output.status.success()) {
        return skip::not_run(
            "attacks::cve_2024_0135_0136_0137_nothing_is_run",
            "no root, or no strace that may trace",
        );
    }
    both_ways("known::cve_2024_0135_0136_0137", |tally, how| {
        for verb in VERBS {
            let mut stage = Stage::new(verb);
            for path in ["/sbin/ldconfig", "/sbin/ldconfig.real", "/usr/bin/ldconfig"] {
                let file = stage.clear(path);
                fs::copy("/bin/true", file).unwrap();
            }
            let calls = tempfile::NamedTempFile::new().unwrap();
            let program_before = fs::read(program()).unwrap();
            stage.wrapper = [
                "strace",
                "-f",
                "-qq",
                "-o",
                &calls.path().display().to_string(),
                "-e",
                &format!("trace={TRACED}"),
            ]
            .map(Into::into)
            .to_vec();
            refused_or_harmless(&stage, &format!("{} {how}", verb.name), tally);
            let calls = fs::read_to_string(calls.path()).unwrap();
            let lines: Vec<_> = calls.lines().filter(|line| line.contains('(')).collect();
            assert_eq!(lines.len(), 1, "{}: {calls}", verb.name);
            assert!(
                lines[0].contains("execve(") && lines[0].contains("tranche-oci"),
                "{calls}"
            );
            assert!(
                fs::read(program()).unwrap() == program_before,
                "the program was changed"
            );
        }
    });
}

/// A hook inherits the image's environment, and its loader loads the image's library as root. [`crate::environment`] tries
/// it on the program; here: every hook of every spec that we write carries an environment, so that no runtime passes on
/// the image's.
#[test]
fn cve_2025_23266_every_hook_has_an_environment() {
    let mut hooks = 0;
    let specs = Path::new(env!("CARGO_MANIFEST_DIR")).join("cdi-specs");
    for file in fs::read_dir(specs).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let spec = tranche::cdi::parse::spec(&fs::read(&file).unwrap()).unwrap();
        let edits = std::iter::once(&spec.edits).chain(spec.devices.iter().map(|device| &device.edits));
        for hook in edits.flat_map(|edits| &edits.hooks) {
            assert!(!hook.env.is_empty(), "{}: {hook:?}", file.display());
            assert!(
                !hook.env.iter().any(|entry| entry.starts_with("LD_")),
                "{}",
                file.display()
            );
            hooks += 1;
        }
    }
    assert!(hooks > 10, "{hooks}");
}

/// A cache that is a link, written through. It is replaced by name, in a directory that is held, and what it was a link
/// to, or had in common with, keeps its content.
#[test]
fn cve_2025_23267_no_link_is_written_through() {
    both_ways("known::cve_2025_23267", |tally, how| {
        for verb in ["prepare", "update-ldcache"] {
            for path in [
                "/etc/ld.so.cache",
                "/etc/ld-musl-x86_64.path",
                "/etc/ld.so.conf.d/00-tranche.conf",
                "/etc/ld.so.conf.d/00-compat-tranche.conf",
            ] {
                for hard in [false, true] {
                    let stage = Stage::new(Verb::named(verb));
                    let shadow = stage.scene.at("outside/shadow");
                    if hard {
                        fs::hard_link(&shadow, stage.clear(path)).unwrap();
                    } else {
                        stage.link(path, &shadow);
                    }
                    refused_or_harmless(&stage, &format!("{verb} {path}, hard: {hard}, {how}"), tally);
                    assert_eq!(fs::read_to_string(&shadow).unwrap(), "outside/shadow of the host\n");
                }
            }
        }
    });
}

/// The way around the fix of 2024-0132: the image's compatibility libraries were mounted by path. We mount none; the
/// directory is opened once and listed by that handle.
#[test]
fn cve_2025_23359_compatibility_libraries_are_not_mounted() {
    both_ways("known::cve_2025_23359", |tally, how| {
        for verb in ["prepare", "enable-cuda-compat"] {
            for component in ["/usr/local", "/usr/local/cuda", "/usr/local/cuda/compat"] {
                let stage = Stage::new(Verb::named(verb));
                stage.link("/away", stage.host(component));
                crate::races::race(&stage, component, "/away", &format!("{verb} {component}, {how}"), tally);
            }
        }
    });
}

/// A race in which a component is exchanged between check and use, in the making of links and in compatibility.
#[test]
fn cve_2026_24260_no_component_is_looked_up_twice() {
    both_ways("known::cve_2026_24260", |tally, how| {
        for verb in ["create-symlinks", "enable-cuda-compat"] {
            for component in Verb::named(verb).components() {
                let stage = crate::races::with(Verb::named(verb), component);
                stage.link("/away", stage.host(component));
                crate::races::race(&stage, component, "/away", &format!("{verb} {component}, {how}"), tally);
            }
        }
    });
}

/// runc's: a container's process opens the runtime's own program by `/proc/PID/exe` and overwrites it. Two things keep ours
/// whole. It has ended before the container's first process exists, and starts none of the image's, so nobody in the
/// container is there to open it; and a path of the image that leads to it by /proc is refused like any magic link.
#[test]
fn cve_2019_5736_the_program_is_not_overwritten() {
    if !Uid::effective().is_root() {
        return skip::not_run(
            "attacks::cve_2019_5736_the_program_is_not_overwritten",
            "not root: cannot mount",
        );
    }
    let before = fs::read(program()).unwrap();
    both_ways("known::cve_2019_5736", |tally, how| {
        for verb in VERBS {
            for path in verb.touches.iter().filter(|path| !path.starts_with("/proc")) {
                for exe in ["/proc/self/exe", "/proc/thread-self/exe"] {
                    let mut stage = Stage::new(verb);
                    stage.before = r#"mount --rbind /proc "$root/proc""#.to_owned();
                    stage.link(path, exe);
                    refused_or_harmless(&stage, &format!("{} {path} is {exe}, {how}", verb.name), tally);
                }
            }
        }
    });
    assert!(fs::read(program()).unwrap() == before, "the program was overwritten");
    let running: BTreeSet<_> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path().join("exe"))
        .collect();
    let own = fs::canonicalize(program()).unwrap();
    let parent = std::process::id().to_string();
    let left = running
        .into_iter()
        .filter(|exe| fs::read_link(exe).is_ok_and(|target| target == own));
    // Other tests run it at this moment; none outlives the process that started it.
    for exe in left {
        let status = fs::read_to_string(exe.with_file_name("status")).unwrap_or_default();
        assert!(
            !status.contains("\nPPid:\t1\n"),
            "{} was left running by {parent}",
            exe.display()
        );
    }
}
