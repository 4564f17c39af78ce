//! `tranche-oci` as it is shipped: small, static, and deaf to what an image can put into its environment.
//!
//! The program is the one that `make oci` built; `make test` says where it is in `TRANCHE_OCI_STATIC`.

use crate::support::{scene, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{DT_NEEDED, PT_INTERP};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use scene::Scene;

fn shipped(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("TRANCHE_OCI_STATIC").map(PathBuf::from);
    if path.is_none() {
        skip::not_run(
            &format!("oci_binary::{test}"),
            "TRANCHE_OCI_STATIC is not set: run `make test`",
        );
    }
    path
}

#[test]
fn it_is_small_and_needs_nothing() {
    let Some(path) = shipped("it_is_small_and_needs_nothing") else {
        return;
    };
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() < 2 << 20, "{} bytes", bytes.len());
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).unwrap();
    let endian = file.endian();
    for header in file.elf_program_headers() {
        assert_ne!(header.p_type(endian), PT_INTERP, "it names a loader");
    }
    let sections = file.elf_header().sections(endian, &*bytes).unwrap();
    if let Some((dynamic, _)) = sections.dynamic(endian, &*bytes).unwrap() {
        for entry in dynamic {
            assert_ne!(entry.d_tag(endian), DT_NEEDED, "it needs a library");
        }
    }
}

/// CVE-2025-23266: a hook that inherits the image's environment and directory runs the image's library as root.
#[test]
fn a_library_of_the_image_is_not_loaded() {
    let Some(path) = shipped("a_library_of_the_image_is_not_loaded") else {
        return;
    };
    let scene = Scene::new();
    let source = scene.at("poc.c");
    let trace = scene.at("loaded");
    let text = format!(
        "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) {{ open(\"{}\", O_CREAT | O_WRONLY, 0600); }}\n",
        trace.display()
    );
    fs::write(&source, text).unwrap();
    let library = scene.image("poc.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );

    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir(scene.image("/"));
        for name in ["LD_PRELOAD", "LD_AUDIT"] {
            command.env(name, "/proc/self/cwd/poc.so");
        }
        command
            .env("LD_LIBRARY_PATH", "/proc/self/cwd")
            .env("GCONV_PATH", "/proc/self/cwd")
            .env("PATH", ".");
        scene::run(command, scene.state().as_bytes())
    };
    // The library does harm to a program that has a loader: otherwise this test would show nothing.
    run(Path::new("/bin/true"), &[]);
    assert!(trace.exists());
    fs::remove_file(&trace).unwrap();

    let state_dir = format!("--state-dir={}", scene.state_dir().display());
    let link = "--link=libcuda.so.1::/usr/lib/libcuda.so";
    let ended = run(&path, &["hook", "prepare", link, &state_dir]);
    ended.silent();
    assert!(!trace.exists());
    assert_eq!(
        fs::read_link(scene.image("/usr/lib/libcuda.so")).unwrap(),
        Path::new("libcuda.so.1")
    );
}

#[test]
fn it_takes_the_name_that_specs_of_others_call() {
    let Some(path) = shipped("it_takes_the_name_that_specs_of_others_call") else {
        return;
    };
    let scene = Scene::new();
    let alias = scene.at("nvidia-cdi-hook");
    std::os::unix::fs::symlink(&path, &alias).unwrap();
    let mut command = Command::new(&alias);
    command
        .args(["prepare", "--link", "a::/b", "--state-dir"])
        .arg(scene.state_dir())
        .env_clear();
    scene::run(command, scene.state().as_bytes()).silent();
    assert_eq!(fs::read_link(scene.image("/b")).unwrap(), Path::new("a"));
}
