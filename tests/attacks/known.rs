//! The known vulnerabilities of programs that prepare containers for GPUs, each by its number, and what keeps us from
//! it. What is said of their mechanisms is what their advisories and fixes say.

use std::fs;
use std::process::Command;

use nix::unistd::Uid;

use crate::stage::Stage;
use crate::support::skip;
use crate::trial::Attack;
use crate::verb::{LIBDIR, VERBS, Verb};

/// What a path is is looked at, and by the time of the mount it is something else: the image gets the host's files
/// mounted. We mount on the handle that was looked at; exchanging names does nothing to it. Every component is
/// exchanged in [`crate::races`]; here it is the one mount that we make.
#[test]
fn cve_2024_0132_what_is_mounted_on_cannot_be_exchanged() {
    Attack::new(
        "known::cve_2024_0132",
        "what is mounted on is exchanged with a link to the host between the look and the mount",
    )
    .run(|trial| {
        let verb = Verb::named("update-ldcache");
        trial.twin(&Stage::new(verb));
        for component in ["/etc", "/etc/ld.so.cache", "/etc/ld-musl-x86_64.path"] {
            let stage = Stage::new(verb);
            stage.configure(None, true);
            stage.link("/away", stage.host(component));
            crate::races::race(trial, &stage, component, "/away", component);
        }
    });
}

/// A path of the image that leads to a missing file of the host, which is then made, empty. A link that leads nowhere
/// in the root is not followed to make what it names.
#[test]
fn cve_2024_0133_no_empty_file_appears_on_the_host() {
    Attack::new(
        "known::cve_2024_0133",
        "a path of the image leads to a missing file of the host, which is then made, empty",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for path in verb.touches {
                let stage = Stage::new(verb);
                stage.link(path, stage.scene.at("outside/made-by-the-image"));
                trial.attack(&format!("{} {path}", verb.name), &stage);
            }
        }
    });
}

/// Links of the image lead the making of links out of the root. Once to where the host has the directory, so that a
/// link would appear there, and once to where the image has one of that name too: then the link must be made inside.
#[test]
fn cve_2024_0134_links_are_made_inside() {
    Attack::new(
        "known::cve_2024_0134",
        "a directory on the way to a new link is a link to a directory of the host with the same path in the image",
    )
    .run(|trial| {
        for verb in ["prepare", "create-symlinks"] {
            trial.twin(&Stage::new(Verb::named(verb)));
            for component in ["/usr", "/usr/lib", LIBDIR] {
                for inside in [false, true] {
                    let stage = Stage::new(Verb::named(verb));
                    let host = stage.host(component);
                    if inside {
                        // Resolved in the root it is the image's own directory, moved there.
                        let there = stage.image(host.to_str().unwrap());
                        fs::create_dir_all(there.parent().unwrap()).unwrap();
                        fs::rename(stage.image(component), &there).unwrap();
                    }
                    stage.link(component, &host);
                    trial.attack_and(&format!("{verb} {component}, {inside}"), &stage, |ended| {
                        let rest = LIBDIR.strip_prefix(component).unwrap_or_default();
                        let made = stage.image(&format!("{}{rest}/libcuda.so", host.display()));
                        let missing = inside && (ended.code != 0 || fs::read_link(made).is_err());
                        missing
                            .then(|| format!("no link inside: {}", ended.stderr))
                            .into_iter()
                            .collect()
                    });
                }
            }
        }
    });
}

/// Improper isolation of the `ldconfig` that is run for the image: it could change the host's program, reach the host's
/// devices (2024-0136) and its network namespace (2024-0137). The hook runs no program and makes no process, so
/// nothing has to be isolated: a trace of the hook shows the `execve` that starts it, and no new process, namespace,
/// socket or device node.
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
    Attack::new(
        "known::cve_2024_0135_0136_0137",
        "the image's ldconfig is run as root, or a process, a namespace or a socket is made for it",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            let mut stage = Stage::new(verb);
            for path in ["/sbin/ldconfig", "/sbin/ldconfig.real", "/usr/bin/ldconfig"] {
                let file = stage.clear(path);
                crate::support::programs::install("/bin/true", file);
            }
            let calls = tempfile::NamedTempFile::new().unwrap();
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
            trial.attack_and(verb.name, &stage, |_| {
                let calls = fs::read_to_string(calls.path()).unwrap();
                let lines = calls.lines().filter(|line| line.contains('('));
                lines
                    .skip(1)
                    .map(|line| format!("a call that no hook needs: {line}"))
                    .collect()
            });
        }
    });
}

/// A cache that is a link, written through. It is replaced by name, in a directory that is held, and what it was a link
/// to, or had in common with, keeps its content.
#[test]
fn cve_2025_23267_no_link_is_written_through() {
    Attack::new(
        "known::cve_2025_23267",
        "the cache, the path file or a part of the configuration is a link to a secret file, and is written through",
    )
    .run(|trial| {
        for verb in ["prepare", "update-ldcache"] {
            trial.twin(&Stage::new(Verb::named(verb)));
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
                    trial.attack(&format!("{verb} {path}, hard: {hard}"), &stage);
                }
            }
        }
    });
}

/// The way around the fix of 2024-0132: the image's compatibility libraries were mounted by path. We mount none; the
/// directory is opened once and listed by that handle.
#[test]
fn cve_2025_23359_compatibility_libraries_are_not_mounted() {
    Attack::new(
        "known::cve_2025_23359",
        "the directory of compatibility libraries is exchanged with the host's while it is looked at",
    )
    .run(|trial| {
        for verb in ["prepare", "enable-cuda-compat"] {
            trial.twin(&Stage::new(Verb::named(verb)));
            for component in ["/usr/local", "/usr/local/cuda", "/usr/local/cuda/compat"] {
                let stage = Stage::new(Verb::named(verb));
                fs::write(stage.host("/usr/local/cuda/compat/libof-the-host.so.1"), "x").unwrap();
                stage.link("/away", stage.host(component));
                crate::races::race(trial, &stage, component, "/away", &format!("{verb} {component}"));
            }
        }
    });
}

/// A race in which a component is exchanged between check and use, in the making of links and in compatibility.
#[test]
fn cve_2026_24260_no_component_is_looked_up_twice() {
    Attack::new(
        "known::cve_2026_24260",
        "a component is exchanged between check and use, in the making of links and in compatibility",
    )
    .run(|trial| {
        for verb in ["create-symlinks", "enable-cuda-compat"] {
            trial.twin(&Stage::new(Verb::named(verb)));
            for component in Verb::named(verb).components() {
                let stage = crate::races::with(Verb::named(verb), component);
                stage.link("/away", stage.host(component));
                crate::races::race(trial, &stage, component, "/away", &format!("{verb} {component}"));
            }
        }
    });
}
