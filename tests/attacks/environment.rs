//! An image's environment and current directory, as a runtime hands them to a hook without an `env` of its own.

use std::path::Path;

use crate::stage::Stage;
use crate::support::{programs, skip};
use crate::trial::Attack;
use crate::verb::VERBS;

/// CVE-2025-23266: `LD_PRELOAD` of the image in the hook's environment. The loader would write into `LD_DEBUG_OUTPUT`
/// before a line of the program ran; so this says, too, that there is no loader.
#[test]
fn variables_of_the_image() {
    // The program as it is built for development has a loader, and that one listens.
    if std::env::var_os("TRANCHE_OCI_STATIC").is_none() {
        return skip::not_run(
            "attacks::variables_of_the_image",
            "TRANCHE_OCI_STATIC is not set: run `make test`",
        );
    }
    Attack::new(
        "environment::variables_of_the_image",
        "CVE-2025-23266: the image's LD_PRELOAD, LD_DEBUG_OUTPUT and the like in the hook's environment",
    )
    .run(|trial| {
        for verb in VERBS {
            let quiet = Stage::new(verb).run().stderr;
            trial.twin(&Stage::new(verb));
            let mut stage = Stage::new(verb);
            let out = stage.scene.at("outside/debug");
            let image = stage.image("/usr/lib/x86_64-linux-gnu");
            let here = |path: &Path| path.display().to_string();
            let library = here(&image.join("libcuda.so.580.95.05"));
            for (name, value) in [
                (
                    "LD_PRELOAD",
                    "/proc/self/cwd/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05".to_owned(),
                ),
                ("LD_AUDIT", library.clone()),
                ("LD_LIBRARY_PATH", here(&image)),
                ("LD_DEBUG", "all".to_owned()),
                ("LD_DEBUG_OUTPUT", here(&out)),
                ("LD_PROFILE_OUTPUT", here(&out)),
                ("GCONV_PATH", here(&image)),
                ("LOCPATH", here(&image)),
                ("NLSPATH", library.clone()),
                ("GLIBC_TUNABLES", "glibc.malloc.check=3".to_owned()),
                ("MALLOC_TRACE", here(&out)),
                ("PATH", format!("{}:.:/proc/self/cwd", here(&image))),
                ("TMPDIR", here(&stage.scene.at("outside"))),
                ("HOME", here(&stage.scene.at("outside"))),
                ("PWD", "/".to_owned()),
                ("RUST_BACKTRACE", "full".to_owned()),
                ("RUST_LOG", "trace".to_owned()),
                ("RUST_MIN_STACK", "1".to_owned()),
                ("LLVM_PROFILE_FILE", here(&out)),
                ("ASAN_OPTIONS", format!("log_path={}", here(&out))),
                ("TRANCHE_ROOT", "/".to_owned()),
                ("_OCI_STARTPIPE", "3".to_owned()),
            ] {
                stage.environment.push((name.into(), value.into()));
            }
            trial.attack_and(verb.name, &stage, |ended| {
                let listens = (ended.stderr != quiet).then(|| format!("it listens: {}", ended.stderr));
                listens.into_iter().collect()
            });
        }
    });
}

/// The current directory is the image's: names that a program would look for in it.
#[test]
fn files_in_the_current_directory() {
    Attack::new(
        "environment::files_in_the_current_directory",
        "the hook runs in the image's root, where files have the names that programs look for in their directory",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            let stage = Stage::new(verb);
            // The naive program does what tools of this kind do: it runs the image's ldconfig.
            let trap = stage.clear("/sbin/ldconfig");
            programs::script(&trap, &format!("echo > {}", stage.scene.at("outside/run").display()));
            for name in [
                "config.json",
                "libc.so.6",
                "sh",
                "ldconfig",
                "state.json",
                "rootfs",
                "tranche-oci",
                "core",
                "self",
                "0",
            ] {
                programs::install(&trap, stage.image("/").join(name));
            }
            trial.attack_and(verb.name, &stage, |ended| {
                let failed = (ended.code != 0).then(|| format!("not served: {}", ended.stderr));
                failed.into_iter().collect()
            });
        }
    });
}
