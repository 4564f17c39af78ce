//! Notices changes of directories by inotify(7), and a new `kubelet.sock`.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};
use tracing::warn;

/// Reports names that were created, replaced or removed in directories.
struct Changes {
    fd: AsyncFd<OwnedFd>,
}

/// Of one name in a directory.
struct Change {
    name: OsString,
    /// Whether it is there now.
    is_new: bool,
}

impl Changes {
    fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // Deprecated for types that refer to another open file later. An OwnedFd never does.
        #[expect(deprecated, reason = "its successor is an unsafe function with that one condition")]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd })
    }

    /// Watches a directory. A directory that is watched already stays so; one that was made anew is another one.
    fn watch(&self, dir: &Path) {
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM | WatchFlags::DELETE;
        // It may not exist yet, or not be readable; the caller also looks from time to time.
        let _ = inotify::add_watch(self.fd.get_ref(), dir, what | WatchFlags::ONLYDIR);
    }

    /// Waits for changes.
    async fn next(&self) -> io::Result<Vec<Change>> {
        loop {
            let mut ready = self.fd.readable().await?;
            if let Ok(changes) = ready.try_io(|fd| Self::read(fd.get_ref())) {
                return changes;
            }
        }
    }

    fn read(fd: &OwnedFd) -> io::Result<Vec<Change>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut changes = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => changes.push(Change {
                    name: OsString::from_vec(event.file_name().map_or_else(Vec::new, |name| name.to_bytes().to_vec())),
                    is_new: event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO),
                }),
                Err(Errno::AGAIN) if !changes.is_empty() => break,
                Err(e) => return Err(e.into()),
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        Ok(changes)
    }
}

/// Waits for changes, or for ever if the kernel has no more watches to give.
async fn next(changes: Option<&Changes>) -> Vec<Change> {
    match changes {
        Some(changes) => match changes.next().await {
            Ok(changes) => changes,
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

fn start() -> Option<Changes> {
    let started = Changes::new();
    if let Err(e) = &started {
        warn!("inotify does not work, so that changes are noticed later: {e}");
    }
    started.ok()
}

/// What happened in the directory of device plugins, as numbers that grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many times there was a new kubelet.
    pub kubelets: u64,
    /// How many times anything changed.
    pub changes: u64,
}

/// What tells one socket from another. The number of its inode alone does not: a file system gives a new file the
/// number of one that was just removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Watches the directory of device plugins for a new `kubelet.sock`. Runs until the receivers are gone.
pub async fn kubelet(dir: PathBuf, poll: Duration, seen: watch::Sender<Seen>) {
    follow(start(), dir, poll, seen).await;
}

async fn follow(changes: Option<Changes>, dir: PathBuf, poll: Duration, seen: watch::Sender<Seen>) {
    let socket = dir.join(crate::kubelet::SOCKET);
    let mut before = Identity::of(&socket);
    loop {
        if let Some(changes) = &changes {
            changes.watch(&dir);
        }
        let happened = tokio::select! {
            happened = next(changes.as_ref()) => happened,
            () = sleep(poll) => Vec::new(),
            () = seen.closed() => return,
        };
        let now = Identity::of(&socket);
        let is_made = happened
            .iter()
            .any(|change| change.is_new && change.name == crate::kubelet::SOCKET);
        let is_new = is_made || (now.is_some() && now != before);
        before = now;
        seen.send_modify(|seen| {
            seen.kubelets += u64::from(is_new);
            seen.changes += 1;
        });
    }
}

/// Watches the broker's directories: a change of status.json, host.json or a book of the ledger may change what is
/// offered. Runs until the receivers are gone.
pub async fn state(dir: PathBuf, poll: Duration, seen: watch::Sender<u64>) {
    let changes = start();
    loop {
        if let Some(changes) = &changes {
            changes.watch(&dir);
            changes.watch(&dir.join("ledger"));
        }
        let until = tokio::time::Instant::now() + poll;
        tokio::select! {
            happened = next(changes.as_ref()) => {
                if happened.iter().any(|change| concerns_offers(&change.name)) {
                    seen.send_modify(|seen| *seen += 1);
                }
            }
            () = sleep_until(until) => {}
            () = seen.closed() => return,
        }
    }
}

/// Watches directories for any change; if nothing is reported, `poll` counts as one. Runs until the receivers are gone.
pub async fn directories(dirs: Vec<PathBuf>, poll: Duration, seen: watch::Sender<u64>) {
    let changes = start();
    loop {
        if let Some(changes) = &changes {
            dirs.iter().for_each(|dir| changes.watch(dir));
        }
        tokio::select! {
            _ = next(changes.as_ref()) => {}
            () = sleep(poll) => {}
            () = seen.closed() => return,
        }
        seen.send_modify(|seen| *seen += 1);
    }
}

/// Whether a name in the state directory or the ledger says something of the offers. Every command that looks at the
/// ledger may make its lock, and files with other names are written before they are renamed.
fn concerns_offers(name: &std::ffi::OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !bytes.is_empty() && bytes != b"lock" && !bytes.starts_with(b".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const LONG: Duration = Duration::from_secs(600);

    async fn wait(seen: &mut watch::Receiver<Seen>, wanted: impl Fn(&Seen) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(60), seen.wait_for(wanted)).await;
        waited.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_new_kubelet_is_noticed_by_inotify_or_by_the_time_of_its_socket() {
        let soon = Duration::from_millis(5);
        for (changes, poll) in [(start(), LONG), (None, soon)] {
            let top = tempfile::tempdir().unwrap();
            let socket = top.path().join("kubelet.sock");
            let first = UnixListener::bind(&socket).unwrap();
            let (send, mut seen) = watch::channel(Seen::default());
            let following = follow(changes, top.path().to_owned(), poll, send);
            tokio::pin!(following);
            // Until it has looked once.
            let _ = tokio::time::timeout(10 * soon, &mut following).await;
            assert_eq!(seen.borrow().kubelets, 0);
            drop(first);
            fs::remove_file(&socket).unwrap();
            let _second = UnixListener::bind(&socket).unwrap();
            tokio::select! {
                () = wait(&mut seen, |seen| seen.kubelets > 0) => {}
                () = following => {}
            }
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_made_later_is_watched() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("device-plugins");
        let (send, mut seen) = watch::channel(Seen::default());
        tokio::spawn(kubelet(dir.clone(), Duration::from_millis(5), send));
        wait(&mut seen, |seen| seen.changes > 0).await;
        fs::create_dir(&dir).unwrap();
        let _socket = UnixListener::bind(dir.join("kubelet.sock")).unwrap();
        wait(&mut seen, |seen| seen.kubelets > 0).await;
    }

    #[tokio::test]
    async fn a_change_of_the_offers_is_noticed() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("ledger")).unwrap();
        for (from, to) in [(".s.tmp", "status.json"), ("ledger/.b.tmp", "ledger/0")] {
            let (send, mut seen) = watch::channel(0);
            tokio::spawn(state(top.path().to_owned(), LONG, send));
            let change = async {
                loop {
                    fs::write(top.path().join(from), "").unwrap();
                    fs::rename(top.path().join(from), top.path().join(to)).unwrap();
                    sleep(Duration::from_millis(5)).await;
                }
            };
            let noticed = seen.wait_for(|seen| *seen > 0);
            tokio::select! {
                noticed = tokio::time::timeout(Duration::from_secs(60), noticed) => drop(noticed.unwrap().unwrap()),
                () = change => {}
            }
        }
    }

    #[test]
    fn locks_and_files_that_are_being_written_are_no_changes() {
        for (name, concerns) in [
            ("status.json", true),
            ("0-3", true),
            ("lock", false),
            (".x.tmp", false),
            ("", false),
        ] {
            assert_eq!(concerns_offers(name.as_ref()), concerns, "{name}");
        }
    }
}
