//! A root with a program that initialises CUDA, without CUDA's library.

use crate::glibc_image;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Says what cuInit returned, and who it is.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { printf("%s\n", dlerror()); return 2; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    printf("uid %d: cuInit %d\n", (int)getuid(), init(0));
    return 0;
}
"#;

/// Adds a loader, the C library and `/bin/client` to `root`.
pub fn image(root: &Path) -> Result<(), String> {
    glibc_image::glibc(root);
    let about = |e: std::io::Error| e.to_string();
    for name in ["libm.so.6", "libpthread.so.0", "librt.so.1"] {
        let of_root = root.join("lib/x86_64-linux-gnu").join(name);
        fs::copy(Path::new("/lib/x86_64-linux-gnu").join(name), of_root).map_err(about)?;
    }
    fs::create_dir_all(root.join("tmp/nvidia-mps")).map_err(about)?;
    let source = root.join("client.c");
    fs::write(&source, PROGRAM).map_err(about)?;
    let mut compiler = Command::new("gcc");
    let built = compiler.arg("-o").arg(root.join("bin/client")).arg(&source).arg("-ldl");
    let built = built.output().map_err(about)?;
    match built.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
    }
}
