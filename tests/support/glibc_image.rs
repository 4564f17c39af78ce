//! Images with a real loader: glibc copied from this machine, musl where its compiler is installed, and a program that
//! opens libraries by name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the driver's libraries are in our images.
pub const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";
/// The version of the driver in our images.
pub const DRIVER: &str = "580.95.05";

/// The program: prints what `which` of each library that it is given says, or `none`.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW);
        int (*which)(void) = library ? (int (*)(void))dlsym(library, "which") : 0;
        if (which) printf("%s %d\n", argv[i], which());
        else printf("%s none\n", argv[i]);
    }
    return 0;
}
"#;

fn cc(compiler: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(compiler).args(arguments).output();
    let output = output.map_err(|e| format!("no {compiler}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Why no such image can be made here, if so.
pub fn missing() -> Option<String> {
    if !nix::unistd::Uid::effective().is_root() {
        return Some("not root: cannot mount or change the root directory".to_owned());
    }
    if !Path::new("/lib64/ld-linux-x86-64.so.2").exists() {
        return Some("no glibc of x86_64".to_owned());
    }
    cc("gcc", &["--version"]).err()
}

/// Puts the loader, the C library and `/bin/open` into `root`, with `ldconfig` as `/sbin/ldconfig`. Without a cache.
pub fn glibc(root: &Path) {
    for directory in ["bin", "sbin", "etc/ld.so.conf.d", "lib64", "proc", "dev", "tmp"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::create_dir_all(in_root(root, LIBDIR)).unwrap();
    fs::create_dir_all(root.join("lib/x86_64-linux-gnu")).unwrap();
    fs::copy("/lib64/ld-linux-x86-64.so.2", root.join("lib64/ld-linux-x86-64.so.2")).unwrap();
    for library in ["libc.so.6", "libdl.so.2"] {
        let of_host = Path::new("/lib/x86_64-linux-gnu").join(library);
        fs::copy(of_host, root.join("lib/x86_64-linux-gnu").join(library)).unwrap();
    }
    fs::copy("/sbin/ldconfig", root.join("sbin/ldconfig")).unwrap();
    fs::write(root.join("etc/ld.so.conf"), "include /etc/ld.so.conf.d/*.conf\n").unwrap();
    let directories = "/usr/local/lib\n/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n";
    fs::write(root.join("etc/ld.so.conf.d/x86_64-linux-gnu.conf"), directories).unwrap();
    program("gcc", &[], &root.join("bin/open"));
}

/// Where the driver's 32-bit libraries are in our images.
pub const LIBDIR32: &str = "/usr/lib/i386-linux-gnu";

/// Puts a 32-bit loader, its C library and `/bin/open32` beside what [`glibc`] made; says why not where there are none.
pub fn glibc32(root: &Path) -> Result<(), String> {
    let loader = "lib/ld-linux.so.2";
    if !Path::new("/").join(loader).exists() {
        return Err("no glibc of 32 bits".to_owned());
    }
    cc(
        "gcc",
        &[
            "-m32",
            "-E",
            "-xc",
            "-include",
            "dlfcn.h",
            "/dev/null",
            "-o",
            "/dev/null",
        ],
    )?;
    fs::create_dir_all(root.join("lib/i386-linux-gnu")).unwrap();
    fs::copy(Path::new("/").join(loader), root.join(loader)).unwrap();
    for library in ["libc.so.6", "libdl.so.2"] {
        let directories = ["/lib32", "/lib/i386-linux-gnu", "/usr/lib32"];
        let of_host = directories.iter().map(|directory| Path::new(directory).join(library));
        let of_host = of_host.into_iter().find(|path| path.exists()).ok_or("no 32-bit libc")?;
        fs::copy(of_host, root.join("lib/i386-linux-gnu").join(library)).unwrap();
    }
    let directories = "/lib/i386-linux-gnu\n/usr/lib/i386-linux-gnu\n";
    fs::write(root.join("etc/ld.so.conf.d/i386-linux-gnu.conf"), directories).unwrap();
    program("gcc", &["-m32"], &root.join("bin/open32"));
    Ok(())
}

/// Puts an aarch64 loader, its C library, `/bin/open` and an emulator, `/bin/emulate`, into `root`; says why not where
/// there are none.
pub fn aarch64(root: &Path) -> Result<(), String> {
    let emulator = Path::new("/usr/bin/qemu-aarch64-static");
    if !emulator.exists() {
        return Err("no qemu-aarch64-static".to_owned());
    }
    cc(AARCH64, &["--version"])?;
    let of_host = Path::new("/usr/aarch64-linux-gnu/lib");
    for directory in ["bin", "etc", "lib/aarch64-linux-gnu", "proc", "dev", "tmp"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (file, to) in [
        ("ld-linux-aarch64.so.1", "lib"),
        ("libc.so.6", "lib/aarch64-linux-gnu"),
        ("libdl.so.2", "lib/aarch64-linux-gnu"),
    ] {
        fs::copy(of_host.join(file), root.join(to).join(file)).map_err(|e| format!("{file}: {e}"))?;
    }
    fs::copy(emulator, root.join("bin/emulate")).unwrap();
    program(AARCH64, &[], &root.join("bin/open"));
    Ok(())
}

const AARCH64: &str = "aarch64-linux-gnu-gcc";

/// As [`library`], for aarch64.
pub fn library_of_aarch64(file: &Path, soname: &str, answer: i32) {
    compile(AARCH64, &["-nostdlib"], file, soname, answer, "");
}

/// Puts musl's loader, which is its C library, and `/bin/open` into `root`; says why not where there is no musl.
pub fn musl(root: &Path) -> Result<(), String> {
    let loader = Path::new("/lib/ld-musl-x86_64.so.1");
    if !loader.exists() {
        return Err("no musl".to_owned());
    }
    cc("musl-gcc", &["--version"])?;
    for directory in ["bin", "etc", "lib", "proc", "dev"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::create_dir_all(in_root(root, LIBDIR)).unwrap();
    fs::copy(loader, root.join("lib/ld-musl-x86_64.so.1")).unwrap();
    program("musl-gcc", &[], &root.join("bin/open"));
    Ok(())
}

fn program(compiler: &str, flags: &[&str], program: &Path) {
    let source = program.with_extension("c");
    fs::write(&source, PROGRAM).unwrap();
    let arguments = ["-o", program.to_str().unwrap(), source.to_str().unwrap(), "-ldl"];
    cc(compiler, &[flags, &arguments].concat()).unwrap();
    fs::remove_file(source).unwrap();
}

/// A library whose `which` gives `answer`, without any need of another. An empty `soname` is none.
pub fn library(file: &Path, soname: &str, answer: i32) {
    library_with(file, soname, answer, "");
}

/// As [`library`], of 32 bits, and it needs the C library: among those of 32 bits `ldconfig` tells them by that.
pub fn library32(file: &Path, soname: &str, answer: i32) {
    compile("gcc", &["-m32", "-Wl,--no-as-needed"], file, soname, answer, "");
}

/// As [`library`], with more C at its end.
pub fn library_with(file: &Path, soname: &str, answer: i32, more: &str) {
    compile("gcc", &["-nostdlib"], file, soname, answer, more);
}

fn compile(compiler: &str, flags: &[&str], file: &Path, soname: &str, answer: i32, more: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let source = file.with_extension("c");
    fs::write(&source, format!("int which(void) {{ return {answer}; }}\n{more}\n")).unwrap();
    let name = format!("-Wl,-soname,{soname}");
    let mut arguments = vec![
        "-shared",
        "-fPIC",
        "-o",
        file.to_str().unwrap(),
        source.to_str().unwrap(),
    ];
    if !soname.is_empty() {
        arguments.push(&name);
    }
    cc(compiler, &[flags, &arguments].concat()).unwrap();
    fs::remove_file(source).unwrap();
}

/// A path of the container below `root` on the host.
pub fn in_root(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The driver's libraries in `directory`, as an engine mounts them: real files, no links. Each answers 580.
pub fn driver(directory: &Path) {
    library(&directory.join(format!("libcuda.so.{DRIVER}")), "libcuda.so.1", 580);
    library(
        &directory.join(format!("libnvidia-ml.so.{DRIVER}")),
        "libnvidia-ml.so.1",
        580,
    );
    let core = format!("libnvidia-eglcore.so.{DRIVER}");
    library(&directory.join(&core), &core, 580);
}

/// The links that a spec asks for with that driver, as the values of `--link`.
pub fn links(directory: &str) -> Vec<String> {
    vec![
        format!("libcuda.so.{DRIVER}::{directory}/libcuda.so.1"),
        format!("libcuda.so.1::{directory}/libcuda.so"),
        format!("libnvidia-ml.so.{DRIVER}::{directory}/libnvidia-ml.so.1"),
    ]
}

/// Links in `directory` as the image had them before, to a library of its own.
pub fn old_links(directory: &Path) {
    library(&directory.join("libcuda.so.470.1"), "libcuda.so.1", 470);
    symlink("libcuda.so.470.1", directory.join("libcuda.so.1")).unwrap();
}
