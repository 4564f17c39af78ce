//! A cache extended by us, and made anew by a real `ldconfig`: the same libraries, in one run.
//!
//! Medians depend on the machine; what counts is the ratio. The hook's column is the work inside it (read the image's
//! cache, look into the driver's libraries, write the new cache to a file), that of ldconfig a process that looks into
//! every library.

// A benchmark is run by hand and may stop at the first thing that is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tranche_core::ldcache::{self, AbiFlags, Sorted, directory};

const ROUNDS: usize = 15;
/// About as many libraries as a driver with graphics brings.
const DRIVER_LIBRARIES: usize = 60;
const PLACEHOLDER: &str = "libbench00000.so.1";

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    if Command::new("gcc").arg("--version").output().is_err() || !Path::new("/sbin/ldconfig").exists() {
        println!("not run: ldcache benchmark: needs gcc and glibc's ldconfig");
        return;
    }
    if !nix::unistd::Uid::effective().is_root() {
        println!("not run: ldcache benchmark: ldconfig changes its root directory, which needs root");
        return;
    }
    println!(
        "{:>9} {:>14} {:>14} {:>14} {:>10}",
        "libraries", "in memory", "file to file", "ldconfig", "ratio"
    );
    for count in [50, 500, 3000, 10_000] {
        row(count);
    }
}

fn row(count: usize) {
    let work = tempfile::tempdir().unwrap();
    let root = work.path();
    for directory in ["etc", "image", "driver"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    let template = template(root);
    libraries(&template, &root.join("image"), 0..count);
    libraries(&template, &root.join("driver"), 90_000..90_000 + DRIVER_LIBRARIES);
    fs::write(root.join("etc/image.conf"), "/image\n").unwrap();
    fs::write(root.join("etc/both.conf"), "/driver\n/image\n").unwrap();
    ldconfig(root, "image");

    let image = fs::read(root.join("etc/image.cache")).unwrap();
    let driver = driver_libraries(&root.join("driver"));
    let memory = median(|| {
        let cache = ldcache::read(&image).unwrap();
        let added: Vec<_> = driver.iter().map(directory::NamedLibrary::entry).collect();
        ldcache::write(&Sorted::new(&added).then(Sorted::new(&cache.entries)), cache.endian).unwrap();
    });
    let files = median(|| {
        let bytes = fs::read(root.join("etc/image.cache")).unwrap();
        let cache = ldcache::read(&bytes).unwrap();
        let driver = driver_libraries(&root.join("driver"));
        let added: Vec<_> = driver.iter().map(directory::NamedLibrary::entry).collect();
        let written = ldcache::write(&Sorted::new(&added).then(Sorted::new(&cache.entries)), cache.endian).unwrap();
        fs::write(root.join("etc/ours.cache"), written).unwrap();
    });
    let theirs = median(|| ldconfig(root, "both"));

    // The figures mean nothing if the two did not come to the same.
    let ours = fs::read(root.join("etc/ours.cache")).unwrap();
    let both = fs::read(root.join("etc/both.cache")).unwrap();
    let (ours, both) = (ldcache::read(&ours).unwrap(), ldcache::read(&both).unwrap());
    let in_root = |path: &Path| Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
    assert!(
        ours.entries
            .iter()
            .map(|e| in_root(e.path))
            .eq(both.entries.iter().map(|e| in_root(e.path)))
    );
    assert_eq!(both.entries.len(), count + DRIVER_LIBRARIES);

    let ratio = theirs.as_secs_f64() / files.as_secs_f64();
    println!("{count:>9} {memory:>14.1?} {files:>14.1?} {theirs:>14.1?} {ratio:>9.1}x");
}

/// One library, to be copied under other SONAMEs.
fn template(work: &Path) -> Vec<u8> {
    let (source, file) = (work.join("one.c"), work.join("one.so"));
    fs::write(&source, "int answer(void) { return 42; }\n").unwrap();
    let name = format!("-Wl,-soname,{PLACEHOLDER}");
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", &name, "-o"])
        .arg(&file)
        .arg(&source)
        .status();
    assert!(status.unwrap().success());
    fs::read(file).unwrap()
}

/// Puts a copy of the template, each with its own SONAME, in `directory` for each number.
fn libraries(template: &[u8], directory: &Path, numbers: std::ops::Range<usize>) {
    let at = template
        .windows(PLACEHOLDER.len())
        .position(|w| w == PLACEHOLDER.as_bytes())
        .unwrap();
    let mut bytes = template.to_vec();
    for number in numbers {
        let name = format!("libbench{number:05}.so.1");
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        fs::write(directory.join(name), &bytes).unwrap();
    }
}

/// A name that lives as long as the benchmark.
fn kept(name: OsString) -> &'static OsStr {
    Box::leak(name.into_boxed_os_str())
}

fn driver_libraries(path: &Path) -> Vec<directory::NamedLibrary<'static>> {
    let files: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let library = tranche_core::elf::read(File::open(file.path()).unwrap()).unwrap();
            let flags = library.flags.unwrap_or(AbiFlags::LIBC6);
            directory::File {
                name: kept(file.file_name()),
                is_link: false,
                soname: library.soname.map(kept),
                flags,
            }
        })
        .collect();
    directory::libraries(path, &files)
}

/// A full run without its auxiliary cache, as in a container that was just made.
fn ldconfig(root: &Path, name: &str) {
    let (conf, cache) = (format!("/etc/{name}.conf"), format!("/etc/{name}.cache"));
    let mut command = Command::new("/sbin/ldconfig");
    command
        .args(["-i", "-X", "-c", "new", "-r"])
        .arg(root)
        .args(["-f", &conf, "-C", &cache]);
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
}

fn median(mut work: impl FnMut()) -> Duration {
    work();
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}
