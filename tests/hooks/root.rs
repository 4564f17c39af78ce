//! What `ContainerRoot` and `Directory` give to their callers, with `openat2` and without.

use crate::support::{old_kernel, own_mounts, rights};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tranche_core::root::{
    ContainerRoot, FileType, HostDirectory, Linked, MountOrigin, NotOwn, Permissions, RuntimeMount, read_host_proc,
};

/// A temporary directory with `root/` and, outside of it, `secret`.
fn scene() -> (tempfile::TempDir, ContainerRoot) {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("root")).unwrap();
    fs::write(top.path().join("secret"), "secret").unwrap();
    let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new("root")).unwrap();
    (top, root)
}

fn read(root: &ContainerRoot, path: &str, limit: u64) -> std::io::Result<Vec<u8>> {
    root.own_file(Path::new(path)).unwrap().read(limit)
}

/// Runs every other test of this module again in a process without `openat2`.
#[test]
fn the_same_without_openat2() {
    let rerun = std::thread::spawn(|| {
        old_kernel::lose_openat2();
        let mut all = Command::new(std::env::current_exe().unwrap());
        all.args(["root::", "--skip", "the_same_without_openat2"])
            .env("TRANCHE_TEST_NO_OPENAT2", "1")
            .output()
            .unwrap()
    });
    let output = rerun.join().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("test root::openat2_is_there_or_was_taken ... ok"),
        "{said}"
    );
}

#[test]
fn openat2_is_there_or_was_taken() {
    let taken = std::env::var_os("TRANCHE_TEST_NO_OPENAT2").is_some();
    // A kernel older than 5.6 has none to take: then both runs try the walk.
    if taken {
        assert!(!old_kernel::has_openat2());
    }
}

#[test]
fn a_file_is_read_through_links_that_stay_inside() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    fs::create_dir_all(at("etc/alternatives")).unwrap();
    fs::write(at("etc/alternatives/cache"), "content").unwrap();
    symlink("/etc/alternatives/../alternatives/cache", at("etc/cache")).unwrap();
    assert_eq!(read(&root, "/etc/cache", 7).unwrap(), b"content");
    assert_eq!(
        read(&root, "/etc/cache", 6).unwrap_err().kind(),
        ErrorKind::FileTooLarge
    );
    assert!(matches!(root.own_file(Path::new("/etc/none")), Err(NotOwn::Absent)));
    // From the directory, by name, a link is not followed at all.
    let etc = root.directory(Path::new("/etc")).unwrap();
    let link = etc.find(OsStr::new("cache")).unwrap();
    assert!(matches!(root.own(link), Err(NotOwn::Absent)));
    let inner = root.directory(Path::new("/etc/alternatives")).unwrap();
    let file = root.own(inner.find(OsStr::new("cache")).unwrap()).unwrap();
    assert_eq!(file.read(7).unwrap(), b"content");
}

#[test]
fn nothing_outside_is_read() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    symlink(top.path().join("secret"), at("absolute")).unwrap();
    symlink("../secret", at("relative")).unwrap();
    symlink("/../../secret", at("dots")).unwrap();
    for link in [
        "/absolute",
        "/relative",
        "/dots",
        "/../secret",
        "../secret",
        "/absolute/../../secret",
    ] {
        assert!(matches!(root.own_file(Path::new(link)), Err(NotOwn::Absent)), "{link}");
    }
}

#[test]
fn only_regular_files_are_opened() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    fs::create_dir(at("directory")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for name in ["fifo", "directory", "socket"] {
        let file = root.own_file(&Path::new("/").join(name));
        assert!(matches!(file, Err(NotOwn::Absent)), "{name}");
    }
    // A file that claims no size, as in /proc, and one that claims more than anyone could hold.
    fs::File::create(at("vast")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(
        read(&root, "/vast", 1 << 20).unwrap_err().kind(),
        ErrorKind::FileTooLarge
    );
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    let (directory, name) = root.make_parent(Path::new("/etc/ld.so.conf.d/x.conf")).unwrap();
    directory.replace(name, b"one", Permissions::new_file(0o644)).unwrap();
    let file = at("etc/ld.so.conf.d/x.conf");
    let first = fs::metadata(&file).unwrap();
    assert_eq!(
        (fs::read(&file).unwrap(), first.mode() & 0o7777),
        (b"one".to_vec(), 0o644)
    );
    directory.replace(name, b"two", Permissions::new_file(0o444)).unwrap();
    let second = fs::metadata(&file).unwrap();
    assert_eq!(
        (fs::read(&file).unwrap(), second.mode() & 0o7777),
        (b"two".to_vec(), 0o444)
    );
    assert_ne!(first.ino(), second.ino(), "a reader of the first still has the first");
    assert_eq!(directory.names(10).unwrap(), ["x.conf"], "nothing else is left");
}

#[test]
fn a_file_in_the_place_of_another_has_its_mode_and_owner() {
    if !rights::owns_machine("root::a_file_in_the_place_of_another_has_its_mode_and_owner") {
        return;
    }
    let (top, root) = scene();
    let file = top.path().join("root/file");
    let old = |mode: u32| {
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::chown(&file, Some(1234), Some(1235)).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    };
    let replaced = || {
        let permissions = root.own_file(Path::new("/file")).unwrap().permissions();
        let directory = root.own_directory(Path::new("/")).unwrap();
        directory.replace(OsStr::new("file"), b"new", permissions).unwrap();
        let now = fs::metadata(&file).unwrap();
        fs::remove_file(&file).unwrap();
        (now.mode() & 0o7777, now.uid(), now.gid())
    };
    old(0o640);
    assert_eq!(replaced(), (0o640, 1234, 1235));
    old(0o6755);
    assert_eq!(replaced(), (0o755, 1234, 1235), "no program runs as another user");
    // Where it cannot be given to its owner, everybody has at most what the others had. Capabilities are a thread's.
    for (before, after) in [(0o754, 0o444), (0o640, 0)] {
        old(before);
        let now = std::thread::scope(|threads| {
            let thread = threads.spawn(|| {
                caps::drop(None, caps::CapSet::Effective, caps::Capability::CAP_CHOWN).unwrap();
                replaced()
            });
            thread.join().unwrap()
        });
        assert_eq!(now, (after, 0, 0));
    }
}

#[test]
fn a_root_on_a_file_system_of_the_kernel_has_no_file_of_its_own() {
    let root = ContainerRoot::open(&HostDirectory::open(Path::new("/proc")).unwrap(), Path::new("self")).unwrap();
    assert!(matches!(root.own_file(Path::new("/stat")), Err(NotOwn::FileSystem)));
    let refused = root.own_directory(Path::new("/")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn what_is_mounted_in_the_root_is_written_or_read_only_as_the_engine_meant_it() {
    let test = "root::what_is_mounted_in_the_root_is_written_or_read_only_as_the_engine_meant_it";
    if !rights::can_mount(test) {
        return;
    }
    let tried = own_mounts::with_own_mounts(|| {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join("root").join(path);
        for path in ["new", "volume", "volume-2", "plain"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for path in ["new", "volume"] {
            mount(Some("tmpfs"), &at(path), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        }
        fs::write(at("volume/lib.so"), "").unwrap();
        symlink("/volume", at("link")).unwrap();
        symlink("/new", at("volume-link")).unwrap();
        let root = |mounts: &[(&str, MountOrigin)]| {
            let host = HostDirectory::open(top.path()).unwrap();
            let mounts = mounts.iter().map(|(path, origin)| RuntimeMount {
                at: path.into(),
                source: None,
                recursive: false,
                origin: *origin,
            });
            ContainerRoot::open(&host, Path::new("root"))
                .unwrap()
                .with_mounts(mounts.collect())
        };
        let (new, volume) = (("/new", MountOrigin::NewTmpfs), ("/volume", MountOrigin::Host));

        let owns = |mounts: &[(&str, MountOrigin)], path: &str| root(mounts).own_directory(Path::new(path)).is_ok();
        assert!(owns(&[new, volume], "/plain") && owns(&[new, volume], "/new"));
        assert!(!owns(&[new, volume], "/volume") && !owns(&[new, volume], "/link"));
        assert!(!owns(&[], "/new"), "nobody says that it is new");
        assert!(
            !owns(&[new, ("/new", MountOrigin::Host)], "/new"),
            "one of two says that it is not"
        );
        assert!(!owns(&[("/new", MountOrigin::Host), new], "/new"));

        let reads =
            |mounts: &[(&str, MountOrigin)], path: &str| root(mounts).readable_directory(Path::new(path)).is_ok();
        assert!(reads(&[volume], "/plain") && reads(&[volume], "/volume"));
        assert!(!reads(&[volume], "/link"), "a link of the image to a volume");
        assert!(!reads(&[], "/volume"));
        assert!(
            !reads(&[volume], "/volume-link"),
            "another path with the same beginning"
        );

        let opens = |mounts: &[(&str, MountOrigin)], path: &str| {
            let (root, path) = (root(mounts), Path::new(path));
            root.library(root.find(path).unwrap(), path).is_ok()
        };
        assert!(opens(&[volume], "/volume/lib.so"));
        assert!(!opens(&[volume], "/link/lib.so") && !opens(&[new], "/volume/lib.so"));

        let root = root(&[volume]);
        let found = root.find(Path::new("/volume/lib.so")).unwrap();
        let before = fs::metadata(at("volume/lib.so")).unwrap().mode();
        assert!(root.set_mode(&found, 0o777).is_err());
        assert_eq!(fs::metadata(at("volume/lib.so")).unwrap().mode(), before);
        let found = root.find(Path::new("/plain")).unwrap();
        root.set_mode(&found, 0o711).unwrap();
        assert_eq!(fs::metadata(at("plain")).unwrap().mode() & 0o7777, 0o711);
    });
    tried.unwrap();
}

#[test]
fn a_path_that_loops_leads_to_nothing_and_one_that_cannot_be_looked_up_is_an_error() {
    let (top, root) = scene();
    symlink("loop", top.path().join("root/loop")).unwrap();
    assert!(matches!(root.own_file(Path::new("/loop")), Err(NotOwn::Absent)));
    let long = "x".repeat(300);
    assert!(matches!(root.own_file(Path::new(&long)), Err(NotOwn::Unknown(_))));
}

#[test]
fn what_is_replaced_is_the_name_and_never_what_it_points_to() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    symlink(top.path().join("secret"), at("link")).unwrap();
    fs::hard_link(top.path().join("secret"), at("hard")).unwrap();
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    let top_of_root = root.own_directory(Path::new("/")).unwrap();
    for name in ["link", "hard", "fifo"] {
        top_of_root
            .replace(OsStr::new(name), b"ours", Permissions::new_file(0o600))
            .unwrap();
        assert_eq!(fs::read(at(name)).unwrap(), b"ours");
    }
    assert_eq!(fs::read(top.path().join("secret")).unwrap(), b"secret");
    fs::create_dir(at("directory")).unwrap();
    let error = top_of_root
        .replace(OsStr::new("directory"), b"ours", Permissions::new_file(0o600))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
    assert_eq!(top_of_root.names(10).unwrap(), ["directory", "fifo", "hard", "link"]);
}

#[test]
fn a_name_is_one_name() {
    let (_top, root) = scene();
    let directory = root.own_directory(Path::new("/")).unwrap();
    for name in ["", ".", "..", "a/b", "/a", "../secret"] {
        let name = OsStr::new(name);
        assert_eq!(
            directory.link(name, OsStr::new("t")).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(
            directory
                .replace(name, b"", Permissions::new_file(0o600))
                .unwrap_err()
                .kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(directory.find(name).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(directory.status(name).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(directory.names(0).unwrap(), Vec::<std::ffi::OsString>::new());
}

#[test]
fn a_link_is_made_once() {
    let (_top, root) = scene();
    let directory = root.own_directory(Path::new("/")).unwrap();
    let (name, target) = (OsStr::new("libcuda.so"), OsStr::new("libcuda.so.1"));
    assert_eq!(directory.link(name, target).unwrap(), Linked::Made);
    let inode = directory.status(name).unwrap().unwrap().st_ino;
    assert_eq!(directory.link(name, target).unwrap(), Linked::Already);
    assert_eq!(directory.status(name).unwrap().unwrap().st_ino, inode);
    assert_eq!(directory.link(name, OsStr::new("other")).unwrap(), Linked::Replaced);
    assert_eq!(directory.names(1).unwrap(), [name]);
    assert!(directory.status(OsStr::new("none")).unwrap().is_none());
}

#[test]
fn a_full_directory_listing_is_bounded() {
    let (top, root) = scene();
    for n in 0..5 {
        fs::write(top.path().join(format!("root/{n}")), "").unwrap();
    }
    let directory = root.own_directory(Path::new("/")).unwrap();
    assert_eq!(directory.names(5).unwrap().len(), 5);
    assert_eq!(directory.names(4).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn directories_are_made_inside_only() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    symlink("/b", at("a")).unwrap();
    fs::create_dir(at("b")).unwrap();
    root.make_directory(Path::new("/a/c/d")).unwrap();
    assert!(at("b/c/d").is_dir());
    symlink(top.path(), at("out")).unwrap();
    assert!(root.make_directory(Path::new("/out/made")).is_err());
    assert!(root.make_directory(Path::new("/b/none/../../../made")).is_err());
    assert!(!top.path().join("made").exists());
}

#[test]
fn the_same_directory_by_another_name_is_the_same() {
    let (top, root) = scene();
    symlink("root", top.path().join("alias")).unwrap();
    let here = HostDirectory::open(top.path()).unwrap();
    assert!(
        root.is_same_as(&ContainerRoot::open(&here, Path::new("alias")).unwrap())
            .unwrap()
    );
    assert!(
        !root
            .is_same_as(&ContainerRoot::open(&here, Path::new(".")).unwrap())
            .unwrap()
    );
}

/// A racing process swaps a directory of the image for a link to the host, as fast as it can.
#[test]
fn no_write_gets_out_in_a_race() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    fs::create_dir_all(at("usr/lib")).unwrap();
    fs::create_dir_all(top.path().join("host/lib")).unwrap();
    fs::set_permissions(top.path().join("host"), PermissionsExt::from_mode(0o777)).unwrap();
    symlink("../host", at("away")).unwrap();
    let stop = AtomicBool::new(false);
    let mut made = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat2(
                    AT_FDCWD,
                    &at("usr"),
                    AT_FDCWD,
                    &at("away"),
                    RenameFlags::RENAME_EXCHANGE,
                )
                .unwrap();
            }
        });
        for n in 0..3000 {
            let file = format!("/usr/lib/n{}", n % 7);
            let write = || -> std::io::Result<()> {
                let (directory, name) = root.make_parent(Path::new(&file))?;
                directory.replace(name, b"x", Permissions::new_file(0o600))?;
                directory.link(name, OsStr::new("t")).map(|_| ())
            };
            made += usize::from(write().is_ok());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(made > 0, "the race was never won by us");
    assert_eq!(fs::read_dir(top.path().join("host/lib")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(top.path().join("host")).unwrap().count(), 1);
}

#[test]
fn what_is_in_a_directory_is_known_by_kind_permissions_and_names() {
    let (top, root) = scene();
    let at = |path: &str| top.path().join("root").join(path);
    let directory = root.directory(Path::new("/")).unwrap();
    assert!(directory.entries(0).unwrap().is_empty());
    fs::create_dir_all(at("directory/below")).unwrap();
    fs::write(at("file"), "").unwrap();
    fs::write(at("twice"), "").unwrap();
    fs::hard_link(at("twice"), at("twin")).unwrap();
    symlink("file", at("link")).unwrap();
    mkfifo(&at("other"), Mode::S_IRWXU).unwrap();
    fs::set_permissions(at("file"), PermissionsExt::from_mode(0o4751)).unwrap();
    let entries = directory.entries(6).unwrap();
    assert_eq!((entries.len(), entries.is_empty()), (6, false));
    let mut kinds: Vec<_> = entries
        .iter()
        .map(|entry| {
            let found = directory.find(entry.name).unwrap();
            let status = fs::symlink_metadata(at(entry.name.to_str().unwrap())).unwrap();
            assert_eq!(found.device(), status.dev());
            assert_eq!(found.mode(), status.mode() & 0o7777);
            // Some file systems do not say the kind in the list.
            assert_eq!(entry.kind.unwrap_or(found.kind()), found.kind());
            (
                entry.name.to_str().unwrap().to_owned(),
                found.kind(),
                found.has_other_names(),
            )
        })
        .collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    let kinds: Vec<_> = kinds
        .iter()
        .map(|(name, kind, others)| (name.as_str(), *kind, *others))
        .collect();
    assert_eq!(
        kinds,
        [
            ("directory", FileType::Directory, false),
            ("file", FileType::File, false),
            ("link", FileType::Link, false),
            ("other", FileType::Other, false),
            ("twice", FileType::File, true),
            ("twin", FileType::File, true),
        ]
    );
    assert_eq!(directory.read_link(OsStr::new("link")).unwrap(), "file");
    let status = fs::metadata(at("")).unwrap();
    assert_eq!(directory.identity().unwrap(), (status.dev(), status.ino()));
    let link = directory.find(OsStr::new("link")).unwrap();
    assert_eq!(root.set_mode(&link, 0o777).unwrap_err().kind(), ErrorKind::InvalidInput);
    let twice = directory.find(OsStr::new("twice")).unwrap();
    assert!(
        root.set_mode(&twice, 0o777).is_err(),
        "the other name may be the host's"
    );
    let file = directory.find(OsStr::new("file")).unwrap();
    root.set_mode(&file, 0o640).unwrap();
    assert_eq!(fs::metadata(at("file")).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_root_is_the_hosts_or_it_is_not() {
    let (_top, root) = scene();
    assert!(!root.is_the_hosts().unwrap());
    let host = HostDirectory::open(Path::new("/")).unwrap();
    assert!(
        ContainerRoot::open(&host, Path::new("."))
            .unwrap()
            .is_the_hosts()
            .unwrap()
    );
    assert!(
        ContainerRoot::open(&host, Path::new("proc/version")).is_err(),
        "a file is no root"
    );
}

#[test]
fn a_directory_of_the_host_is_a_directory() {
    let (top, _root) = scene();
    symlink("root", top.path().join("link")).unwrap();
    let refused = HostDirectory::open(&top.path().join("secret")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotADirectory);
    HostDirectory::open(&top.path().join("link")).unwrap();
}

/// A file of /proc has the size 0, so only reading shows how large it is.
#[test]
fn a_file_that_does_not_say_its_size_is_read_up_to_the_limit() {
    let text = fs::read("/proc/version").unwrap();
    let read = |limit: usize| read_host_proc(&["version"], limit as u64);
    assert_eq!(read(text.len()).unwrap(), text);
    assert_eq!(read(text.len() + 1).unwrap(), text);
    assert_eq!(read(text.len() - 1).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(read(1).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

/// Otherwise a program of the image could reach the host by them.
#[test]
fn no_handle_is_inherited_by_another_program() {
    let (top, root) = scene();
    fs::write(top.path().join("root/file"), "").unwrap();
    fs::create_dir(top.path().join("root/directory")).unwrap();
    let host = HostDirectory::open(top.path()).unwrap();
    let below = HostDirectory::open(&top.path().join("root")).unwrap();
    let top_of_root = root.directory(Path::new("/")).unwrap();
    let found = below.find(OsStr::new("file")).unwrap();
    let file = root.own_file(Path::new("/file")).unwrap();
    let made = root.make_directory(Path::new("/directory/new")).unwrap();
    let inherited = |handle: &dyn std::os::fd::AsFd| {
        let flags = rustix::io::fcntl_getfd(handle.as_fd()).unwrap();
        !flags.contains(rustix::io::FdFlags::CLOEXEC)
    };
    let handles: [&dyn std::os::fd::AsFd; 7] = [&root, &host, &below, &top_of_root, &found, &file, &made];
    for (number, handle) in handles.into_iter().enumerate() {
        assert!(!inherited(handle), "{number}");
    }
    assert!(!inherited(&file.into_file()));
}
