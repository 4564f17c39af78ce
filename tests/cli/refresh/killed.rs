//! A refresh that is killed, or that has no room to write, leaves each file old or new, and never an old host.json that
//! looks current.

use super::*;

/// Calls that change a file, in a program that is linked with any C library.
const CHANGING: [&str; 9] = [
    "write",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "fsync",
    "fchmod",
    "flock",
];

/// How often each call of one refresh is made.
fn calls(bed: &Bed) -> Vec<(&'static str, usize)> {
    let trace = bed.at("trace");
    let set = CHANGING.map(|name| format!("?{name}")).join(",");
    let mut command = behind(bed, &["-o", trace.to_str().unwrap(), "-e", &format!("trace={set}")]);
    assert!(command.output().unwrap().status.success());
    let text = fs::read_to_string(trace).unwrap();
    let count = |name: &str| text.lines().filter(|line| line.contains(&format!(" {name}("))).count();
    CHANGING.into_iter().map(|name| (name, count(name))).collect()
}

/// The refresh, behind strace.
fn behind(bed: &Bed, options: &[&str]) -> Command {
    let refresh = bed.command("sim:hgx-h200", &[]);
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq"])
        .args(options)
        .arg(refresh.get_program())
        .args(refresh.get_args())
        .env_clear();
    command
}

#[test]
fn a_refresh_that_is_killed_leaves_old_or_new_files_and_says_which() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run(
            "refresh::killed::a_refresh_that_is_killed_leaves_old_or_new_files_and_says_which",
            "no strace",
        );
    }
    let bed = Bed::new();
    bed.share(RENAMED);
    let reset = || {
        bed.refreshed("sim:t4x2");
        let files = bed.files();
        assert_eq!(files.len(), 3, "{:?}", files.keys());
        files
    };
    reset();
    let calls = calls(&bed);
    let new = bed.files();
    let mut mixed = 0;
    for (name, count) in calls {
        for when in 1..=count {
            let old = reset();
            let trace = format!("trace={name}");
            let inject = format!("inject={name}:signal=KILL:when={when}");
            let output = behind(&bed, &["-o", "/dev/null", "-e", &trace, "-e", &inject])
                .output()
                .unwrap();
            assert_eq!(
                output.status.code(),
                None,
                "killed before {name} {when}, and strace with it"
            );
            let at = format!("{name} {when}");
            let now = bed.files();
            let seen = |name: &str| now.get(name).map(String::as_str);
            let specs = ["tranche.yaml", "tranche-gpu.shared.yaml"];
            for name in specs {
                assert!(
                    seen(name) == Some(&old[name]) || seen(name) == Some(&new[name]),
                    "{at}: {name}"
                );
            }
            for name in now.keys() {
                let is_temporary = name.starts_with(".tranche.") && name.ends_with(".tmp");
                assert!(old.contains_key(name) || is_temporary, "{at}: {name}");
            }
            let all_old = specs.iter().all(|name| seen(name) == Some(&old[*name]));
            let all_new = specs.iter().all(|name| seen(name) == Some(&new[*name]));
            match HostFile::read(&bed.state()) {
                Ok(file) if file.inventory.gpus.len() == 2 => assert!(all_old, "{at}"),
                Ok(file) => assert!(all_new && file.inventory.gpus.len() == 8, "{at}"),
                Err(HostFileError::Stale { changed, .. }) => {
                    assert_eq!(changed.kind, SourceKind::Specification, "{at}");
                    mixed += 1;
                }
                Err(error) => panic!("{at}: {error}"),
            }
            bed.refreshed("sim:hgx-h200");
            let after = bed.files();
            assert_eq!(after.len(), 3, "{at}: {:?}", after.keys());
            specs
                .iter()
                .for_each(|name| assert_eq!(after[*name], new[*name], "{at}"));
            assert_eq!(bed.host_file().inventory.gpus.len(), 8);
        }
    }
    assert!(mixed >= 2, "{mixed}: the test has seen the time between two files");
}

#[test]
fn a_full_or_read_only_disk_leaves_all_files_as_they_were() {
    let test = "refresh::killed::a_full_or_read_only_disk_leaves_all_files_as_they_were";
    for small in ["cdi", "state"] {
        let bed = Bed::new();
        bed.share(RENAMED);
        fs::create_dir_all(bed.at("cdi")).unwrap();
        fs::create_dir_all(bed.state()).unwrap();
        let line = |inventory: &str| {
            let command = bed.command(inventory, &[]);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words
                .map(|word| word.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let (old, new) = (line("sim:t4x2"), line("sim:hgx-h200"));
        let (dir, top) = (
            bed.at(small).display().to_string(),
            bed.directory.path().display().to_string(),
        );
        let script = format!(
            "mount -t tmpfs -o size=256k,mode=755 tmpfs {dir} || exit 9
             {old} || exit 1
             mkdir {top}/kept && cp -a {top}/cdi {top}/state {top}/kept || exit 8
             dd if=/dev/zero of={dir}/fill bs=4k count=1000 2> /dev/null
             {new} && exit 2
             rm {dir}/fill
             diff -r {top}/cdi {top}/kept/cdi && diff -r {top}/state {top}/kept/state || exit 3
             mount -o remount,ro {dir} || exit 9
             {new} && exit 4
             diff -r {top}/cdi {top}/kept/cdi && diff -r {top}/state {top}/kept/state || exit 5
             mount -o remount,rw {dir} || exit 9
             {new} || exit 6"
        );
        let output = Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-c", &script])
            .output()
            .unwrap();
        let said = said(&output);
        if said.code == Some(9) || said.err.contains("unshare") {
            return skip::not_run(test, "may not mount");
        }
        assert_eq!(said.code, Some(0), "{small}: {said:?}");
        assert!(
            said.err.contains("No space left on device") && said.err.contains("Read-only file system"),
            "{said:?}"
        );
        assert_eq!(
            said.err.matches("tranche: ").count(),
            2,
            "one line for each failure: {said:?}"
        );
    }
}
