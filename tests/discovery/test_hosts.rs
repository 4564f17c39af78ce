//! The test hosts themselves: each can be built, its libraries and its ld.so.cache are what real tools take for real
//! ones, and the fake NVML answers as `nvml.json` says, and fails in each way that it can.

use crate::support::{fake_host, skip};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, elf};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fake_host::manifest::{self, Entry};
use fake_host::stub_elf::Machine;
use fake_host::{Host, build, hosts, names};

fn entries(name: &str) -> Vec<Entry> {
    manifest::parse(&fs::read_to_string(hosts().join(name).join("host.txt")).unwrap()).unwrap()
}

fn each_host(test: impl Fn(&str, &Host)) {
    let names = names().unwrap();
    assert!(names.len() >= 15, "{names:?}");
    for name in names {
        let directory = tempfile::tempdir().unwrap();
        test(
            &name,
            &build(&name, directory.path()).unwrap_or_else(|why| panic!("{name}: {why}")),
        );
    }
}

/// SONAME of an ELF file, by another road than the one that discovery takes.
fn soname<Elf: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<(String, elf::Machine)> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let entry = entries.iter().find(|e| e.tag(endian) == elf::DT_SONAME)?;
    let offset = entry.val(endian);
    let name = strings.get(u32::try_from(offset).ok()?).ok()?;
    Some((String::from_utf8_lossy(name).into_owned(), header.e_machine(endian)))
}

#[test]
fn every_host_has_what_its_manifest_says() {
    each_host(|name, host| {
        let may_not: BTreeSet<PathBuf> = host.not_made.iter().map(|n| n.path.clone()).collect();
        for entry in entries(name) {
            let (path, is): (_, fn(&fs::Metadata) -> bool) = match &entry {
                Entry::Dir(path) => (path, fs::Metadata::is_dir),
                Entry::Link { path, .. } => (path, fs::Metadata::is_symlink),
                Entry::Char { path, .. } => (path, |m| m.file_type().is_char_device()),
                Entry::Sock(path) => (path, |m| m.file_type().is_socket()),
                Entry::File { path, .. } | Entry::Text { path, .. } | Entry::Bin(path) | Entry::Nvml(path) => {
                    (path, fs::Metadata::is_file)
                }
                Entry::Lib(library) => (&library.path, fs::Metadata::is_file),
                Entry::LdCache(_) => continue,
            };
            if may_not.contains(path) {
                continue;
            }
            let place = host.path(path.to_str().unwrap());
            let metadata = fs::symlink_metadata(&place).unwrap_or_else(|e| panic!("{name}: {}: {e}", path.display()));
            assert!(is(&metadata), "{name}: {entry:?} is {metadata:?}");
        }
        if let Some(missing) = host.not_made.first() {
            skip::not_run("device nodes of test hosts", &format!("{name}: {}", missing.why));
        }
    });
}

#[test]
fn device_numbers_agree_with_proc_devices() {
    each_host(|name, host| {
        let devices = fs::read_to_string(host.path("/proc/devices")).unwrap();
        let numbers: BTreeSet<u64> = devices
            .lines()
            .filter_map(|l| l.split_whitespace().next()?.parse().ok())
            .collect();
        for entry in entries(name) {
            if let Entry::Char { path, major, .. } = entry {
                assert!(
                    numbers.contains(&major),
                    "{name}: {}: no major {major} in /proc/devices",
                    path.display()
                );
            }
        }
    });
}

#[test]
fn every_library_says_its_soname_and_machine() {
    each_host(|name, host| {
        for entry in entries(name) {
            let (path, wanted) = match entry {
                Entry::Lib(library) => {
                    let machine = match library.machine {
                        Machine::X86_64 => elf::EM_X86_64,
                        Machine::I386 => elf::EM_386,
                        Machine::Aarch64 => elf::EM_AARCH64,
                    };
                    (library.path, (library.soname, Some(machine)))
                }
                Entry::Nvml(path) => (path, ("libnvidia-ml.so.1".to_owned(), None)),
                _ => continue,
            };
            let file = host.path(path.to_str().unwrap());
            let bytes = fs::read(&file).unwrap();
            let found = soname::<elf::FileHeader64<Endianness>>(&bytes)
                .or_else(|| soname::<elf::FileHeader32<Endianness>>(&bytes))
                .unwrap_or_else(|| panic!("{name}: {}: no SONAME", path.display()));
            assert_eq!(found.0, wanted.0, "{name}: {}", path.display());
            assert!(
                wanted.1.is_none_or(|m| m == found.1),
                "{name}: {}: {:?}",
                path.display(),
                found.1
            );
            let link = file.with_file_name(&found.0);
            assert_eq!(
                link.canonicalize().unwrap(),
                file.canonicalize().unwrap(),
                "{name}: {}",
                link.display()
            );
        }
    });
}

#[test]
fn readelf_reads_a_stub_library() {
    let directory = tempfile::tempdir().unwrap();
    let host = build("workstation-rtx4090", directory.path()).unwrap();
    for library in [
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/i386-linux-gnu/libcuda.so.1",
    ] {
        let Ok(output) = Command::new("readelf")
            .args(["-dhlSW", "--dyn-syms"])
            .arg(host.path(library))
            .output()
        else {
            return skip::not_run("readelf_reads_a_stub_library", "no readelf");
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Library soname: [libcuda.so.1]"), "{text}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn ldconfig_reads_each_cache_and_its_files_exist() {
    const LDCONFIG: &str = "/sbin/ldconfig";
    if !Path::new(LDCONFIG).exists() {
        return skip::not_run("ldconfig_reads_each_cache_and_its_files_exist", "no /sbin/ldconfig");
    }
    each_host(|name, host| {
        for entry in entries(name) {
            let Entry::LdCache(cache) = entry else { continue };
            let root = host.path(cache.root.to_str().unwrap());
            let output = Command::new(LDCONFIG)
                .arg("-p")
                .arg("-C")
                .arg(root.join("etc/ld.so.cache"))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success(),
                "{name}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let paths: Vec<&str> = text
                .lines()
                .filter_map(|l| l.split_once(" => "))
                .map(|(_, path)| path)
                .collect();
            assert!(
                text.starts_with(&format!("{} libs found", paths.len())),
                "{name}: {text}"
            );
            assert!(!paths.is_empty(), "{name}");
            for path in paths {
                assert!(root.join(path.trim_start_matches('/')).exists(), "{name}: {path}");
            }
        }
    });
}

/// glibc searches the cache by halves, so a wrong order loses libraries here and there.
#[test]
fn a_cache_is_in_the_order_that_the_loader_expects() {
    let directory = tempfile::tempdir().unwrap();
    let host = build("workstation-rtx4090", directory.path()).unwrap();
    let Ok(output) = Command::new("/sbin/ldconfig")
        .arg("-p")
        .arg("-C")
        .arg(host.path("/etc/ld.so.cache"))
        .output()
    else {
        return skip::not_run("a_cache_is_in_the_order_that_the_loader_expects", "no /sbin/ldconfig");
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    let place = |name| {
        names
            .iter()
            .position(|n| *n == name)
            .unwrap_or_else(|| panic!("{name} is not in {names:?}"))
    };
    // From the last name to the first: `_` is after `.`, lower case after upper.
    assert!(place("libnvoptix.so.1") < place("libnvidia-ml.so.1"));
    assert!(place("libnvidia-ml.so.1") < place("libcuda.so.1"));
    assert!(place("libGLX_nvidia.so.0") < place("libGLX.so.0"));
    assert!(place("libcuda.so.1") < place("libGLX.so.0"));
}

#[test]
fn an_unknown_host_and_a_full_directory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let unknown = build("no-such-host", directory.path()).unwrap_err();
    assert!(
        unknown.contains("no such test host") && unknown.contains("gb200"),
        "{unknown}"
    );
    build("no-driver", directory.path()).unwrap();
    let full = build("no-driver", directory.path()).unwrap_err();
    assert!(full.contains("not empty"), "{full}");
    let line = manifest::parse("# a host\nlibrary /usr/lib/libcuda.so").unwrap_err();
    assert_eq!(line, "line 2: cannot read `library /usr/lib/libcuda.so`");
}
