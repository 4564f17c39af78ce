//! A tenant who can write the pipe directory cannot cut off its neighbours for long.

use crate::bed::{Bed, Client, UNEQUAL};
use crate::support::engines::{self, Engine, run_podman_in};
use crate::support::skip;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use tranche_broker::control::MachineControl;

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Asserts that the daemon is the same, and that clients find it.
#[track_caller]
fn assert_repaired(bed: &Bed, pid: u32, inodes: &[(String, u64)], what: &str) {
    for (name, before) in inodes {
        assert_eq!(inode(&bed.pipe().join(name)), *before, "{what}: {name}");
    }
    assert_eq!(bed.daemons()[0], pid, "{what}");
    assert!(Client::attach(bed).limits.contains("percentage 20.0"), "{what}");
}

fn inodes(bed: &Bed) -> Vec<(String, u64)> {
    let entries = fs::read_dir(bed.pipe()).unwrap().map(Result::unwrap);
    let named = |entry: fs::DirEntry| {
        (
            entry.file_name().into_string().unwrap(),
            entry.metadata().unwrap().ino(),
        )
    };
    let mut inodes: Vec<_> = entries.map(named).collect();
    inodes.sort();
    assert_eq!(inodes.len(), 1, "{inodes:?}");
    inodes
}

#[test]
fn what_was_removed_or_replaced_in_the_pipe_directory_is_put_back() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let (pid, before) = (bed.pid(&control), inodes(&bed));
    let secret = bed.at("secret");
    fs::write(&secret, "secret").unwrap();
    type Attack<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let attacks: [Attack; 5] = [
        ("removed", Box::new(|_| {})),
        ("a file", Box::new(|path| fs::write(path, "x").unwrap())),
        ("a link", Box::new(|path| symlink(&secret, path).unwrap())),
        (
            "a directory",
            Box::new(|path| {
                fs::create_dir_all(path.join("deep/er")).unwrap();
                symlink(&secret, path.join("deep/link")).unwrap();
            }),
        ),
        (
            "another socket",
            Box::new(|path| std::mem::forget(UnixListener::bind(path).unwrap())),
        ),
    ];
    for (what, attack) in &attacks {
        for (name, _) in &before {
            let path = bed.pipe().join(name);
            fs::remove_file(&path).unwrap();
            attack(&path);
        }
        assert!(control.tick().is_some(), "{what}");
        assert_repaired(&bed, pid, &before, what);
        assert_eq!(bed.device(&control).problems, Vec::<String>::new(), "{what}");
    }
    // A claim repairs, too, before it is granted.
    fs::remove_file(bed.pipe().join("control")).unwrap();
    control.prepare(bed.key()).unwrap();
    assert_repaired(&bed, pid, &before, "a claim");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    // The next broker knows which entries are the daemon's.
    drop(control);
    fs::remove_file(bed.pipe().join("control")).unwrap();
    std::mem::forget(UnixListener::bind(bed.pipe().join("control")).unwrap());
    let control = bed.control();
    assert!(control.tick().is_some());
    assert_repaired(&bed, pid, &before, "the next broker");
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_container_that_removes_the_socket_cuts_its_neighbours_off_until_the_next_look() {
    let engine = Engine::PodmanCrun;
    if let Some(why) = engine.missing() {
        let test = "control::pipes::a_container_that_removes_the_socket_cuts_its_neighbours_off_until_the_next_look";
        return skip::not_run(test, &why);
    }
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let (pid, before) = (bed.pid(&control), inodes(&bed));
    let podman = engines::Bed::new();
    let image = podman.image(engine);
    let run = |options: &str, script: &str| {
        let mount = format!("{}:/tmp/nvidia-mps{options}", bed.pipe().display());
        let command = ["sh", "-c", script];
        run_podman_in(&podman, engine, &image, &[], &podman.specs(), &["-v", &mount], &command)
    };
    let output = run(
        "",
        "busybox rm -r /tmp/nvidia-mps/* && busybox mkdir /tmp/nvidia-mps/control",
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(bed.pipe().join("control").is_dir());
    assert!(control.tick().is_some());
    assert_repaired(&bed, pid, &before, "writable");
    let output = run(":ro", "busybox rm /tmp/nvidia-mps/control");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Read-only file system"));
    assert_repaired(&bed, pid, &before, "read-only");
}
