//! The ledger on a real disk: cut off at every byte, shared by many threads, damaged.

use super::*;
use crate::ledger::process::Machine;
use crate::ledger::{Ask, Bounds, ClaimState, ContainerName, HeldPart, Holder, InitProcess, World};
use crate::programs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

fn key() -> DeviceKey {
    "GPU-11111111".parse().unwrap()
}

fn ask(machine: &Machine, share: &str, id: &str) -> Ask {
    Ask {
        device: key(),
        part: HeldPart::share(share.parse().unwrap(), "1/10".parse().unwrap()),
        bounds: Bounds::default(),
        asked_as: None,
        name: None,
        holder: Holder::Container(name(id)),
        process: Some(machine.process(std::process::id()).unwrap()),
        state: ClaimState::Held,
        once: true,
        for_root: false,
        alone: false,
        uid: 0,
        ttl: None,
        spec_file: None,
    }
}

fn name(id: &str) -> ContainerName {
    ContainerName {
        bundle: "/b".into(),
        id: id.into(),
    }
}

fn take(ledger: &Ledger, machine: &Machine, share: &str, id: &str) -> LedgerResult<()> {
    let ask = ask(machine, share, id);
    ledger
        .lock()?
        .change(&key(), |book| Ok((book.take(&ask, machine)?, Change::Made)))
}

fn release(ledger: &Ledger, id: &str) -> LedgerResult<usize> {
    // As poststop does it, when the container's process is gone.
    let machine = Gone(Machine::here().unwrap());
    ledger.lock().unwrap().change(&key(), |book| {
        Ok((book.release(&Holder::Container(name(id)), 0, &machine), Change::Made))
    })
}

/// This machine, where every process has ended.
struct Gone(Machine);

impl World for Gone {
    fn is_gone(&self, _: &InitProcess) -> bool {
        true
    }
    fn lives(&self, _: &InitProcess) -> bool {
        false
    }
    fn now(&self) -> u64 {
        self.0.now()
    }
    fn uptime(&self) -> u64 {
        self.0.uptime()
    }
}

fn claims(dir: &Path) -> usize {
    Ledger::open(dir)
        .unwrap()
        .books()
        .unwrap()
        .books
        .iter()
        .map(|b| b.claims.len())
        .sum()
}

/// What a process leaves that is killed while it writes is a part of the new file. tests/cli/claim_verbs/killed.rs
/// kills the programs themselves before each of their system calls.
#[test]
fn a_new_file_that_is_cut_off_at_any_byte_changes_nothing() {
    let machine = Machine::here().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    take(&ledger, &machine, "a", "first").unwrap();
    let (book, new) = (
        dir.path().join("ledger/GPU-11111111.claims"),
        dir.path().join("ledger/new"),
    );
    let before = std::fs::read(&book).unwrap();
    take(&ledger, &machine, "b", "second").unwrap();
    let after = std::fs::read(&book).unwrap();
    for cut in 0..=after.len() {
        std::fs::write(&book, &before).unwrap();
        std::fs::write(&new, &after[..cut]).unwrap();
        assert_eq!(claims(dir.path()), 1, "cut at {cut}");
        assert!(take(&ledger, &machine, "a", "third").is_err(), "cut at {cut}");
        take(&ledger, &machine, "b", "second").unwrap();
        assert_eq!(std::fs::read(&book).unwrap().len(), after.len(), "cut at {cut}");
        assert_eq!(release(&ledger, "second").unwrap(), 1, "cut at {cut}");
        // A book that is itself cut off says so; only one that lacks nothing can be read.
        std::fs::write(&book, &after[..cut]).unwrap();
        let all = ledger.books().unwrap();
        assert_eq!(
            (all.books.len(), all.damaged.len()),
            if cut == after.len() { (1, 0) } else { (0, 1) },
            "{cut}"
        );
    }
}

/// What opening the ledger below `state` says.
fn refused(state: &Path) -> String {
    Ledger::open(state).unwrap_err().to_string()
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_others_may_enter_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger");
    Ledger::open(dir.path()).unwrap();
    mode(&ledger, 0o755);
    let line = refused(dir.path());
    assert!(line.contains("has mode 0755") && line.contains("chmod 0700"), "{line}");
    assert!(!line.contains("another program"), "{line}");
    std::fs::remove_dir(&ledger).unwrap();
    std::fs::write(&ledger, "").unwrap();
    assert!(refused(dir.path()).contains("is not a directory"));
    std::fs::remove_file(&ledger).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    mode(elsewhere.path(), 0o700);
    std::os::unix::fs::symlink(elsewhere.path(), &ledger).unwrap();
    assert!(
        refused(dir.path()).contains("is not a directory"),
        "a link leads elsewhere"
    );
    assert!(std::fs::read_dir(elsewhere.path()).unwrap().next().is_none());
}

#[test]
fn a_state_directory_that_others_could_replace_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let (parent, state) = (top.path().join("parent"), top.path().join("parent/state"));
    std::fs::create_dir_all(&state).unwrap();
    Ledger::open(&state).unwrap();
    for (path, bits, fits) in [
        (&state, 0o777, false),
        (&state, 0o775, false),
        (&state, 0o1777, true),
        (&state, 0o755, true),
        (&parent, 0o777, false),
        (&parent, 0o1777, true),
        (&parent, 0o755, true),
    ] {
        mode(path, bits);
        let opened = Ledger::open(&state);
        assert_eq!(opened.is_ok(), fits, "{} {bits:o}", path.display());
        if let Err(error) = opened {
            let line = error.to_string();
            assert!(line.contains(&format!("has mode {bits:04o}")), "{line}");
            assert!(line.starts_with(&path.display().to_string()), "{line}");
            assert!(Ledger::existing(&state).is_err());
            mode(path, 0o755);
        }
    }
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&parent, Some(65534), None).unwrap();
        assert!(refused(&state).contains("belongs to user 65534"), "{}", refused(&state));
        std::os::unix::fs::chown(&parent, Some(0), None).unwrap();
        // A link of root's is followed, and a link of another user's is not: that user could turn it.
        let link = top.path().join("link");
        std::os::unix::fs::symlink("parent/../parent", &link).unwrap();
        Ledger::open(&link.join("state")).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        assert!(refused(&link.join("state")).contains("belongs to user 65534"));
    }
}

#[test]
fn a_link_that_is_put_in_the_ledgers_place_later_leads_no_write_elsewhere() {
    let machine = Machine::here().unwrap();
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    mode(elsewhere.path(), 0o700);
    let ledger = Ledger::open(dir.path()).unwrap();
    std::fs::rename(dir.path().join("ledger"), dir.path().join("away")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("ledger")).unwrap();
    take(&ledger, &machine, "a", "one").unwrap();
    assert!(std::fs::read_dir(elsewhere.path()).unwrap().next().is_none());
    assert!(dir.path().join("away/GPU-11111111.claims").exists());
}

/// What somebody puts in the place of one of the ledger's files.
fn put(kind: &str, place: &Path, secret: &Path) {
    use nix::sys::stat::Mode;
    match kind {
        "link" => std::os::unix::fs::symlink(secret, place).unwrap(),
        "dangling link" => std::os::unix::fs::symlink(secret.with_file_name("made"), place).unwrap(),
        "hard link" => std::fs::hard_link(secret, place).unwrap(),
        "FIFO" => nix::unistd::mkfifo(place, Mode::S_IRWXU).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(place).unwrap()),
        "another user's" => {
            std::fs::write(place, "").unwrap();
            std::os::unix::fs::chown(place, Some(65534), None).unwrap();
        }
        "directory" => std::fs::create_dir(place).unwrap(),
        "left" => std::fs::write(place, "half a bo".repeat(1000)).unwrap(),
        _ => unreachable!("{kind}"),
    }
}

#[test]
fn what_is_in_the_place_of_a_file_is_neither_waited_for_nor_written() {
    const KINDS: [&str; 8] = [
        "link",
        "dangling link",
        "hard link",
        "FIFO",
        "socket",
        "another user's",
        "directory",
        "left",
    ];
    let machine = Machine::here().unwrap();
    for kind in KINDS {
        if kind == "another user's" && !nix::unistd::geteuid().is_root() {
            continue;
        }
        for name in ["lock", "new", "GPU-11111111.claims"] {
            let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let secret = outside.path().join("secret");
            std::fs::write(&secret, "as it was").unwrap();
            let ledger = Ledger::open(dir.path()).unwrap();
            take(&ledger, &machine, "a", "one").unwrap();
            let place = dir.path().join("ledger").join(name);
            std::fs::remove_file(&place).ok();
            put(kind, &place, &secret);
            let taken = take(&ledger, &machine, "b", "two");
            // A new file is made beside whatever has its name, and an old lock is a lock. All else says what it is.
            let works = name == "new" && kind != "directory" || name == "lock" && kind == "left";
            assert_eq!(taken.is_ok(), works, "{name} is a {kind}: {taken:?}");
            if works {
                let book = ledger.book(key().gpu()).unwrap();
                assert_eq!(book.claims.len(), 2, "{name} is a {kind}");
            } else {
                let line = taken.unwrap_err().to_string();
                assert!(line.starts_with(&place.display().to_string()), "{kind}: {line}");
            }
            assert_eq!(
                std::fs::read_to_string(&secret).unwrap(),
                "as it was",
                "{name} is a {kind}"
            );
            assert_eq!(
                std::fs::read_dir(outside.path()).unwrap().count(),
                1,
                "{name} is a {kind}"
            );
        }
    }
}

#[test]
fn what_is_not_a_book_is_refused_and_left() {
    let machine = Machine::here().unwrap();
    let dir = tempfile::tempdir().unwrap();
    take(&Ledger::open(dir.path()).unwrap(), &machine, "a", "first").unwrap();
    let file = dir.path().join("ledger/GPU-11111111.claims");
    let good = std::fs::read_to_string(&file).unwrap();
    let newer = good.replace("tranche-ledger 3 ", "tranche-ledger 4 ");
    let changed = good.replace("\theld\t", "\treserved\t");
    let unknown = record::with_checksum(&good.replace("\theld\t", "\theld\tmore\t"));
    let other = record::with_checksum(&good.replace("GPU-11111111", "GPU-22222222"));
    let line = good.lines().nth(1).unwrap();
    let twice = record::with_checksum(&good.replace("\nend 1", &format!("\n{line}\nend 2")));
    for (bad, says) in [
        (&good[..good.len() / 2], "line 2 is not valid"),
        ("", "line 1 is not valid"),
        (newer.as_str(), "format 4"),
        (changed.as_str(), "line 3 is not valid"),
        (unknown.as_str(), "line 2 is not valid"),
        (other.as_str(), "of another GPU"),
        (twice.as_str(), "exclude one another"),
    ] {
        std::fs::write(&file, bad).unwrap();
        let e = take(&Ledger::open(dir.path()).unwrap(), &machine, "b", "second")
            .unwrap_err()
            .to_string();
        assert!(e.contains(says) && e.contains("GPU-11111111.claims"), "{e}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), bad, "left as it was found");
        let mut ask = ask(&machine, "b", "second");
        ask.device = "GPU-99999999".parse().unwrap();
        let ledger = Ledger::open(dir.path()).unwrap();
        let took = ledger
            .lock()
            .unwrap()
            .change(&ask.device, |book| Ok((book.take(&ask, &machine), Change::Made)));
        assert_eq!(took.unwrap(), Ok(()), "another GPU is as it was");
        let all = ledger.books().unwrap();
        assert_eq!((all.books.len(), all.damaged.len()), (1, 1));
    }
}

#[test]
fn two_threads_of_many_never_both_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|i| {
                scope.spawn(move || {
                    let machine = Machine::here().unwrap();
                    let ledger = Ledger::open(path).unwrap();
                    take(&ledger, &machine, "a", &format!("c{i}")).is_ok()
                })
            })
            .collect();
        threads.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
    });
    assert_eq!(wins, 1);
}

/// The names and modes of the files in the ledger below `state`.
fn files(state: &Path) -> Vec<(String, u32)> {
    let mut files: Vec<_> = std::fs::read_dir(state.join("ledger"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn its_files_are_its_owners_and_a_book_without_claims_is_no_file() {
    let machine = Machine::here().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    take(&ledger, &machine, "a", "one").unwrap();
    let [book, kept, lock] = ["GPU-11111111.claims", "kept-was-read", "lock"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(files(dir.path()), [book, kept.clone(), lock.clone()]);
    assert_eq!(release(&ledger, "one").unwrap(), 1);
    assert_eq!(files(dir.path()), [kept, lock]);
}

#[test]
fn a_state_directory_is_made_to_start_with_and_not_to_look() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("lib/tranche");
    assert!(Ledger::existing(&state).unwrap().is_none());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    Ledger::open(&state).unwrap();
    assert!(Ledger::existing(&state).unwrap().is_some());
    std::fs::remove_dir(state.join("ledger")).unwrap();
    assert!(Ledger::existing(&state).unwrap().is_none());
}

#[test]
fn as_many_links_are_followed_as_by_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let link = |n: u32| dir.path().join(format!("link{n}"));
    std::fs::create_dir(link(0)).unwrap();
    for n in 1..=41 {
        std::os::unix::fs::symlink(format!("link{}", n - 1), link(n)).unwrap();
    }
    Ledger::open(&link(40)).unwrap();
    assert!(link(0).join("ledger").is_dir());
    assert!(std::fs::metadata(link(40)).is_ok() && std::fs::metadata(link(41)).is_err());
    assert!(refused(&link(41)).contains("too many symbolic links"));
    std::os::unix::fs::symlink("circle", dir.path().join("circle")).unwrap();
    assert!(refused(&dir.path().join("circle")).contains("too many symbolic links"));
}

#[test]
fn a_book_that_cannot_be_read_may_be_of_the_gpu_in_its_name_or_of_any() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    take(&ledger, &Machine::here().unwrap(), "a", "one").unwrap();
    for (name, text, gpu, hint) in [
        (
            "GPU-22222222.claims",
            "tranche-ledger 4 x",
            Some("GPU-22222222"),
            "a newer tranche",
        ),
        ("MIG-22222222.claims", "x", None, "remove it when"),
        ("GPU-22222222.claims", "x", Some("GPU-22222222"), "remove it when"),
    ] {
        let file = dir.path().join("ledger").join(name);
        std::fs::write(&file, format!("{text}\n")).unwrap();
        let all = ledger.books().unwrap();
        let [damaged] = &all.damaged[..] else {
            panic!("{name}: {all:?}")
        };
        assert_eq!(damaged.gpu.as_ref().map(GpuUuid::as_str), gpu, "{name}");
        assert!(damaged.may_be_of(&"GPU-22222222".parse().unwrap()), "{name}");
        assert_eq!(damaged.may_be_of(key().gpu()), gpu.is_none(), "{name}");
        let line = damaged.to_string();
        assert!(line.contains(hint), "{line}");
        let errors: Vec<String> = all.errors().map(Error::to_string).collect();
        assert_eq!(errors, [line]);
        let holders: Vec<String> = all.claims().map(Claim::who).collect();
        assert_eq!(holders, ["container one"], "what can be read is not hidden");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_change_of_every_book_writes_those_that_changed() {
    let machine = Machine::here().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    take(&ledger, &machine, "a", "one").unwrap();
    for (change, left) in [(Change::None, 1), (Change::Made, 0)] {
        let clear = |book: &mut Book| {
            book.claims.clear();
            change
        };
        let wrong = ledger.lock().unwrap().change_each(clear).unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(claims(dir.path()), left, "{change:?}");
    }
}

/// A user has a ledger of his own, below directories of root. As root, this test runs itself again as another user.
#[test]
fn a_user_has_a_ledger_below_directories_of_root() {
    use std::os::unix::fs::chown;
    const AGAIN: &str = "TRANCHE_TEST_LEDGER_OF_USER";
    if nix::unistd::geteuid().is_root() {
        let top = tempfile::tempdir().unwrap();
        mode(top.path(), 0o755);
        // A checkout may be where that user may not go.
        let program = top.path().join("tests");
        programs::install(std::env::current_exe().unwrap(), &program);
        let state = top.path().join("state");
        std::fs::create_dir(&state).unwrap();
        chown(&state, Some(65534), Some(65534)).unwrap();
        let output = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args([
                "--exact",
                "ledger::store::tests::a_user_has_a_ledger_below_directories_of_root",
            ])
            .env(AGAIN, &state)
            .current_dir("/")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        let line = refused(&state);
        assert!(line.contains("belongs to user 65534"), "{line}");
        chown(&state, Some(0), Some(0)).unwrap();
        let line = refused(&state);
        assert!(line.contains("is not a directory of the user who runs this"), "{line}");
        return;
    }
    let made = tempfile::tempdir().unwrap();
    let state = std::env::var_os(AGAIN).map_or(made.path().to_owned(), Into::into);
    let ledger = Ledger::open(&state).unwrap();
    take(&ledger, &Machine::here().unwrap(), "a", "one").unwrap();
    assert_eq!(claims(&state), 1);
}
