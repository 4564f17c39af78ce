//! What `hook prepare` makes of an image's `ld.so.cache`, and what it has to look at for it. With `--library` the
//! specification says what the cache needs to know of a library, and the file is not opened.

use crate::support::{scene, skip, stub_elf};
use std::fs;
use std::process::Command;

use scene::{LIBDIR, Scene};
use serde_json::{Value, json};
use stub_elf::{Machine, library};
use tranche_core::ldcache::Sorted;

/// A glibc image in whose library directory these files are mounted, each with this content.
fn image(mounted: &[(&str, &[u8])]) -> Scene {
    let scene = Scene::new();
    fs::create_dir_all(scene.image("/lib64")).unwrap();
    fs::write(scene.image("/lib64/ld-linux-x86-64.so.2"), "").unwrap();
    fs::create_dir_all(scene.image("/etc")).unwrap();
    fs::create_dir_all(scene.image(LIBDIR)).unwrap();
    // Known to the cache, so that only what is mounted is looked at.
    let own = format!("{LIBDIR}/libown.so.1");
    let flags = tranche_core::ldcache::AbiFlags::X86_64;
    let entry = tranche_core::ldcache::CacheEntry::new("libown.so.1".as_ref(), own.as_ref(), flags);
    let cache = tranche_core::ldcache::write(&Sorted::new(&[entry]), object::endian::Endianness::Little).unwrap();
    fs::write(scene.image("/etc/ld.so.cache"), cache).unwrap();
    mount(&scene, &mounted.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, content) in mounted {
        fs::write(scene.image(LIBDIR).join(name), content).unwrap();
    }
    scene
}

/// Writes a configuration that mounts files of these names.
fn mount(scene: &Scene, names: &[&str]) {
    let bind = |name: &&str| json!({"destination": format!("{LIBDIR}/{name}"), "type": "bind", "options": ["bind"]});
    let mounts: Vec<Value> = names.iter().map(bind).collect();
    scene.configure(json!({"root": {"path": "rootfs"}, "mounts": mounts}));
}

/// Runs the hook, and gives what the cache has then but for the image's own.
fn cached(scene: &Scene, arguments: &[&str]) -> Vec<String> {
    let libdir = format!("--ldcache-dir={LIBDIR}");
    scene.prepare(&[&[libdir.as_str()], arguments].concat()).silent();
    let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    let cache = tranche_core::ldcache::read(&bytes).unwrap();
    let lines = cache.entries.iter().map(crate::ldcache::line);
    lines.filter(|line| !line.starts_with("libown")).collect()
}

fn known(bits: u32, name: &str, soname: &str) -> String {
    format!("--library={bits}::{LIBDIR}/{name}::{soname}")
}

#[test]
fn a_library_that_the_specification_describes_is_not_opened() {
    // What is in the file would be no library, and would be passed over.
    let scene = image(&[("libcuda.so.580.1", b"x"), ("libcuda32.so.580.1", b"x")]);
    let arguments = [
        known(64, "libcuda.so.580.1", "libcuda.so.1"),
        known(32, "libcuda32.so.580.1", "libcuda32.so.1"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(
        cached(&scene, &arguments),
        [
            format!("libcuda32.so.1 (libc6) => {LIBDIR}/libcuda32.so.580.1"),
            format!("libcuda.so.1 (libc6,x86-64) => {LIBDIR}/libcuda.so.580.1"),
        ]
    );
}

#[test]
fn described_and_opened_give_the_same() {
    let content = library("libcuda.so.1", Machine::X86_64).unwrap();
    let plain = library("libplain.so.580.1", Machine::X86_64).unwrap();
    let mounted: [(&str, &[u8]); 2] = [("libcuda.so.580.1", &content), ("libplain.so.580.1", &plain)];
    let link = |target: &str, name: &str| format!("--link={target}::{LIBDIR}/{name}");
    let links = [
        link("libcuda.so.580.1", "libcuda.so.1"),
        link("libcuda.so.1", "libcuda.so"),
    ];
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    let opened = cached(&image(&mounted), &links);
    assert_eq!(opened.len(), 3, "{opened:?}");
    let described = [
        known(64, "libcuda.so.580.1", "libcuda.so.1"),
        known(64, "libplain.so.580.1", "libplain.so.580.1"),
    ];
    let described: Vec<&str> = described.iter().map(String::as_str).collect();
    let scene = image(&mounted);
    assert_eq!(cached(&scene, &[&links[..], &described].concat()), opened);
    let again = cached(&scene, &[&links[..], &described].concat());
    assert_eq!(again, opened, "at the next start on the same root");
}

#[test]
fn a_specification_may_be_older_or_newer_than_the_driver() {
    let content = library("libnew.so.1", Machine::X86_64).unwrap();
    let scene = image(&[("libnew.so.590.1", &content), ("libempty.so.580.1", b"")]);
    // Described and not mounted, described and mounted as another's empty file, mounted and not described.
    fs::write(scene.image(LIBDIR).join("libimage.so.580.1"), "the image's own").unwrap();
    let arguments = [
        known(64, "libgone.so.580.1", "libgone.so.1"),
        known(64, "libempty.so.580.1", "libempty.so.1"),
        known(64, "libimage.so.580.1", "libimage.so.1"),
        known(128, "libnew.so.590.1", "libother.so.1"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let expected = [format!("libnew.so.1 (libc6,x86-64) => {LIBDIR}/libnew.so.590.1")];
    assert_eq!(cached(&scene, &arguments), expected);

    // The configuration says that it is mounted, and a later mount lies over the directory: it is not there.
    mount(&scene, &["libgone.so.580.1", "libnew.so.590.1"]);
    assert_eq!(cached(&scene, &arguments), expected);
}

#[test]
fn a_file_that_is_mounted_under_its_own_name_is_not_looked_at_and_any_other_is() {
    let source =
        |path: &str| json!({"destination": format!("{LIBDIR}/libcuda.so.580.1"), "source": path, "type": "bind"});
    let driver = source("/usr/lib64/libcuda.so.580.1");
    let tmpfs = json!({"destination": format!("{LIBDIR}/libcuda.so.580.1"), "type": "tmpfs"});
    let described = [known(64, "libcuda.so.580.1", "libcuda.so.1")];
    let cached_with = |mounts: &[&Value]| {
        // A mount that the test cannot make, so what a look would find is another's empty file.
        let scene = image(&[("libcuda.so.580.1", b"")]);
        scene.configure(json!({"root": {"path": "rootfs"}, "mounts": mounts}));
        cached(&scene, &[&described[0]])
    };
    let expected = [format!("libcuda.so.1 (libc6,x86-64) => {LIBDIR}/libcuda.so.580.1")];
    assert_eq!(cached_with(&[&driver]), expected);
    // The user has mounted something else under this name, so that programs do not find the library.
    assert_eq!(cached_with(&[&source("/dev/null")]), [""; 0]);
    assert_eq!(cached_with(&[&driver, &source("/tmp/empty")]), [""; 0]);
    assert_eq!(cached_with(&[&driver, &tmpfs]), [""; 0]);
}

/// The look-ups of paths in the root that the hook asks the kernel for, by strace's count.
fn look_ups(scene: &Scene, arguments: &[&str]) -> Option<usize> {
    let log = scene.at("strace");
    let state = scene.at("state.json");
    fs::write(&state, scene.state()).unwrap();
    let mut command = Command::new("strace");
    command.args(["-e", "trace=openat2", "-o"]).arg(&log);
    command
        .arg(env!("CARGO_BIN_EXE_tranche-oci"))
        .args(["hook", "prepare", "--state-dir"]);
    command
        .arg(scene.state_dir())
        .args(arguments)
        .stdin(fs::File::open(&state).unwrap());
    let output = command.output().ok()?;
    let text = fs::read_to_string(&log).ok()?;
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text.matches("openat2(").count())
}

#[test]
fn a_cache_with_sixty_thousand_spellings_of_a_directory_costs_a_bounded_number_of_look_ups() {
    let content = library("libcuda.so.1", Machine::X86_64).unwrap();
    let scene = image(&[("libcuda.so.580.1", &content)]);
    // Each leads to the library directory, and is another text.
    let spelling = |number: u32| -> String {
        let dots: String = (0..16)
            .map(|bit| if number >> bit & 1 == 1 { ".//" } else { "./" })
            .collect();
        format!("/{dots}{}/libown.so.{number}", LIBDIR.trim_start_matches('/'))
    };
    let paths: Vec<String> = (0..60_000).map(spelling).collect();
    let flags = tranche_core::ldcache::AbiFlags::X86_64;
    let entries: Vec<_> = paths
        .iter()
        .map(|path| tranche_core::ldcache::CacheEntry::new("libown.so".as_ref(), path.as_ref(), flags))
        .collect();
    let cache = tranche_core::ldcache::write(&Sorted::new(&entries), object::endian::Endianness::Little).unwrap();
    fs::write(scene.image("/etc/ld.so.cache"), cache).unwrap();
    let libdir = format!("--ldcache-dir={LIBDIR}");
    let Some(count) = look_ups(&scene, &[&libdir]) else {
        return skip::not_run(
            "loader_cache::a_cache_with_sixty_thousand_spellings",
            "strace cannot be run",
        );
    };
    assert!((1..400).contains(&count), "{count}");
    let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    let cache = tranche_core::ldcache::read(&bytes).unwrap();
    assert_eq!(cache.entries.len(), 60_001);
    assert_eq!(
        cache
            .entries
            .iter()
            .filter(|e| e.soname == "libcuda.so.1" && e.flags == flags)
            .count(),
        1
    );
}

#[test]
fn an_entry_that_cannot_be_used_is_left_out_and_counted() {
    let prepared = |change: &dyn Fn(&mut [u8])| {
        let scene = image(&[]);
        fs::write(scene.image(LIBDIR).join("libcuda.so.1"), "").unwrap();
        mount(&scene, &["libcuda.so.1"]);
        let mut bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
        change(&mut bytes);
        fs::write(scene.image("/etc/ld.so.cache"), bytes).unwrap();
        let (libdir, known) = (
            format!("--ldcache-dir={LIBDIR}"),
            known(64, "libcuda.so.1", "libcuda.so.1"),
        );
        let ended = scene.prepare(&[&libdir, &known]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr
    };
    // The only entry follows a header of 48 bytes; where its name begins is its second field (dl-cache.h).
    let line = prepared(&|bytes| bytes[52..56].fill(0xff));
    assert!(
        line.contains("/etc/ld.so.cache: 1 of its entries cannot be used and are left out: entry 0: "),
        "{line}"
    );
    // The table of processor levels, which no entry needs.
    assert_eq!(prepared(&|bytes| bytes[32..36].fill(0xff)), "");
}

/// A library in a directory of its own, for an image whose cache knows nothing of it.
fn with_driver() -> (Scene, &'static str) {
    let scene = image(&[]);
    scene.image_directory("/opt/driver");
    let content = library("libcuda.so.1", Machine::X86_64).unwrap();
    fs::write(scene.image("/opt/driver/libcuda.so.1"), content).unwrap();
    (scene, "--ldcache-dir=/opt/driver")
}

#[test]
fn only_what_the_image_does_not_configure_is_written_for_a_later_ldconfig() {
    for (own, written) in [
        ("/opt/other\n", Some("/opt/driver\n")),
        ("# none\n /opt/driver \n", None),
    ] {
        let (scene, driver) = with_driver();
        scene.image_directory("/etc/ld.so.conf.d");
        fs::write(scene.image("/etc/ld.so.conf.d/own.conf"), own).unwrap();
        scene.prepare(&[driver]).silent();
        let ours = fs::read_to_string(scene.image("/etc/ld.so.conf.d/00-tranche.conf")).ok();
        assert_eq!(ours.as_deref(), written, "{own}");
    }
    // ldconfig reads no file of another name. The hook's own file, from the start before, is written again.
    let (scene, driver) = with_driver();
    let ours = scene.image("/etc/ld.so.conf.d/00-tranche.conf");
    scene.image_directory("/etc/ld.so.conf.d");
    fs::write(scene.image("/etc/ld.so.conf.d/own.conf.bak"), "/opt/driver\n").unwrap();
    for _ in 0..2 {
        scene.prepare(&[driver]).silent();
        assert_eq!(fs::read_to_string(&ours).unwrap(), "/opt/driver\n");
    }
    // A file with a second name may be the host's.
    fs::write(scene.image("/etc/ld.so.conf.d/one.conf"), "/opt/driver\n").unwrap();
    fs::hard_link(
        scene.image("/etc/ld.so.conf.d/one.conf"),
        scene.image("/etc/ld.so.conf.d/two.conf"),
    )
    .unwrap();
    let ended = scene.prepare(&[driver]);
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (
            0,
            "tranche-oci: hook prepare: /etc/ld.so.conf.d: 2 files are ignored, because they are not the image's own\n"
        )
    );
    assert_eq!(fs::read_to_string(&ours).unwrap(), "/opt/driver\n");
    // Nothing is written for an image without this directory, and what has its name is reported.
    let (scene, driver) = with_driver();
    scene.prepare(&[driver]).silent();
    assert!(!scene.image("/etc/ld.so.conf.d").exists());
    fs::write(scene.image("/etc/ld.so.conf.d"), "").unwrap();
    let ended = scene.prepare(&[driver]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert!(
        ended.code == 0
            && lines.len() == 1
            && lines[0].contains("/etc/ld.so.conf.d: directories of libraries not written: "),
        "{}",
        ended.stderr
    );
}

/// Writes the image's cache, with these libraries of its library directory in it.
fn write_cache(scene: &Scene, names: &[&str]) {
    let paths: Vec<String> = names.iter().map(|name| format!("{LIBDIR}/{name}")).collect();
    let flags = tranche_core::ldcache::AbiFlags::X86_64;
    let entries: Vec<_> = names
        .iter()
        .zip(&paths)
        .map(|(name, path)| tranche_core::ldcache::CacheEntry::new(name.as_ref(), path.as_ref(), flags))
        .collect();
    let cache = tranche_core::ldcache::write(&Sorted::new(&entries), object::endian::Endianness::Little).unwrap();
    fs::write(scene.image("/etc/ld.so.cache"), cache).unwrap();
}

/// The paths of a library in the cache, the one that a program gets first.
fn paths_of(scene: &Scene, soname: &str) -> Vec<String> {
    let bytes = fs::read(scene.image("/etc/ld.so.cache")).unwrap();
    let cache = tranche_core::ldcache::read(&bytes).unwrap();
    let entries = cache.entries.iter().filter(|entry| entry.soname == soname);
    entries.map(|entry| entry.path.display().to_string()).collect()
}

#[test]
fn of_the_libraries_in_the_cache_only_those_that_another_driver_left_go() {
    let scene = image(&[("libcuda.so.1", b"x")]);
    let names = [
        ("libown.so.1", None, true),
        ("libown.so.12", None, true),
        ("libown.so.1.2.3", Some("content"), true),
        ("libnvidia-gone.so.550.54.14", None, false),
        ("libnvidia-empty.so.535.54", Some(""), false),
        ("libnvidia-own.so.550.54.14", Some("content"), true),
    ];
    write_cache(&scene, &names.map(|(name, _, _)| name));
    for (name, content, _) in names {
        if let Some(content) = content {
            fs::write(scene.image(LIBDIR).join(name), content).unwrap();
        }
    }
    let known = known(64, "libcuda.so.1", "libcuda.so.1");
    scene.prepare(&[&format!("--ldcache-dir={LIBDIR}"), &known]).silent();
    for (name, _, stays) in names {
        assert_eq!(paths_of(&scene, name).len(), usize::from(stays), "{name}");
    }
    assert_eq!(paths_of(&scene, "libcuda.so.1"), [format!("{LIBDIR}/libcuda.so.1")]);
}

#[test]
fn a_directory_that_is_missing_and_one_that_is_a_file_are_told_apart() {
    let (scene, driver) = with_driver();
    fs::write(scene.image("/opt/file"), "").unwrap();
    let ended = scene.prepare(&[driver, "--ldcache-dir=/opt/none", "--ldcache-dir=/opt/file"]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!((ended.code, lines.len()), (0, 2), "{}", ended.stderr);
    assert!(
        lines[0].ends_with("/opt/none: not in the container, left out"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("/opt/file: left out: "), "{}", lines[1]);
    assert_eq!(paths_of(&scene, "libcuda.so.1"), ["/opt/driver/libcuda.so.1"]);
}

/// NVIDIA's hook that finds CUDA's compatibility libraries runs before the one that makes the cache.
#[test]
fn compatibility_libraries_that_one_hook_finds_go_first_in_the_cache_of_the_next() {
    let (scene, _) = with_driver();
    let compat = "/usr/local/cuda/compat";
    for directory in [compat, "/etc/ld.so.conf.d"] {
        scene.image_directory(directory);
    }
    let stub = library("libcuda.so.1", Machine::X86_64).unwrap();
    let newer = scene.image(compat).join("libcuda.so.590.44.01");
    fs::write(&newer, stub).unwrap();
    let record = scene.image("/etc/ld.so.conf.d/00-compat-tranche.conf");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
        command
            .arg("hook")
            .args(arguments)
            .arg("--state-dir")
            .arg(scene.state_dir());
        command.env_clear().current_dir(scene.image("/"));
        scene::run(command, scene.state().as_bytes()).silent();
    };
    let first = || {
        run(&["update-ldcache", "--folder", "/opt/driver"]);
        paths_of(&scene, "libcuda.so.1").remove(0)
    };
    let enable = ["enable-cuda-compat", "--host-driver-version=580.95.05"];
    run(&enable);
    assert_eq!(fs::read_to_string(&record).unwrap(), format!("{compat}\n"));
    assert_eq!(first(), format!("{compat}/libcuda.so.590.44.01"));
    // Now the image has one for an older driver.
    fs::rename(&newer, scene.image(compat).join("libcuda.so.575.57.08")).unwrap();
    run(&enable);
    assert!(!record.exists());
    fs::remove_file(scene.image("/etc/ld.so.cache")).unwrap();
    assert_eq!(first(), "/opt/driver/libcuda.so.1");
    // What is not one absolute path was not written by the hook.
    for text in [
        "usr/local/cuda/compat\n",
        "/usr/local/cuda/compat\n/opt\n",
        "/usr/local/cuda/compat",
    ] {
        fs::write(&record, text).unwrap();
        assert_eq!(first(), "/opt/driver/libcuda.so.1", "{text:?}");
    }
}

#[test]
fn what_has_no_name_of_a_library_does_not_get_into_the_cache() {
    let content = library("libcuda.so.1", Machine::X86_64).unwrap();
    let program = library("libprogram.so.1", Machine::X86_64).unwrap();
    let scene = image(&[("libcuda.so.580.1", &content), ("program", &program)]);
    let links = [
        format!("--link=libcuda.so.580.1::{LIBDIR}/cuda"),
        format!("--link=libcuda.so.580.1::{LIBDIR}/libcuda.so"),
    ];
    let cached = cached(&scene, &[&links[0], &links[1]]);
    let sonames: Vec<_> = cached.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(sonames, ["libcuda.so.1", "libcuda.so"], "{cached:?}");
}

#[test]
fn files_of_an_image_without_a_cache_are_opened_up_to_a_limit() {
    let (scene, driver) = with_driver();
    for number in 0..4096 {
        fs::write(scene.image(&format!("/opt/driver/liba{number}.so")), "x").unwrap();
    }
    let ended = scene.prepare(&[driver]);
    let says = "more than 4096 libraries that the image's ld.so.cache lacks; the rest is left out";
    assert!(ended.code == 0 && ended.stderr.contains(says), "{}", ended.stderr);
}
