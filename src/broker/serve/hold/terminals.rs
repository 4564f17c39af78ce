//! A line on the terminals of a user, as write(1) and wall(1) put it there.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::io::{self, Write};
use std::path::Path;
use tranche_core::text::shown;

/// Where the kernel has the terminals of sessions (pts(4)).
pub(super) const TERMINALS: &str = "/dev/pts";

/// Writes `line` on each terminal of the user `uid` that takes messages (mesg(1)). A terminal that is full gets
/// nothing, so nobody can hold the broker up. Returns how many got it.
pub(super) fn tell(uid: u32, line: &str, terminals: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(terminals) else {
        return 0;
    };
    // A terminal in raw mode needs the return, and characters that it would obey are not for it.
    let text = format!("\r\ntranche: {}\r\n", shown(line));
    let names = entries.flatten().map(|entry| entry.file_name());
    let numbers = names.filter(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    numbers
        .filter(|name| write(uid, &text, &terminals.join(name)).unwrap_or(false))
        .count()
}

/// Returns whether the terminal is one of the user that takes messages.
fn write(uid: u32, text: &str, path: &Path) -> io::Result<bool> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let terminal = openat(CWD, path, flags, Mode::empty())?;
    let status = fstat(&terminal)?;
    let takes_messages = Mode::from_raw_mode(status.st_mode).contains(Mode::WGRP);
    let is_terminal = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    if status.st_uid != uid || !takes_messages || !is_terminal {
        return Ok(false);
    }
    std::fs::File::from(terminal).write_all(text.as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::until::until;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    /// A session of script(1), which keeps what its terminal shows.
    struct Session(Child);

    impl Session {
        fn new(uid: u32, mode: &str, shows: &Path) -> Self {
            let mut command = Command::new("setpriv");
            command.args([
                format!("--reuid={uid}"),
                format!("--regid={uid}"),
                "--clear-groups".into(),
            ]);
            let inside = format!("chmod {mode} \"$(tty)\" && echo begun; sleep 1000");
            command
                .args(["script", "--quiet", "--flush", "--command", &inside])
                .arg(shows);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            let session = Self(child);
            until("the session has begun", || text(shows).contains("begun"));
            session
        }
    }

    impl Drop for Session {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn text(file: &Path) -> String {
        fs::read(file).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn a_user_s_terminal_shows_the_line_if_it_takes_messages() {
        let test = "serve::hold::terminals::a_user_s_terminal_shows_the_line_if_it_takes_messages";
        let has_script = Path::new("/usr/bin/script").exists();
        if !nix::unistd::geteuid().is_root() || !has_script {
            println!("not run: {test}: not root, or script is not installed");
            return;
        }
        let top = tempfile::tempdir().unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o777)).unwrap();
        let file = |name: &str| top.path().join(name);
        let sessions = [
            (65533, "620", file("takes")),
            (65533, "600", file("refuses")),
            (65532, "620", file("other")),
        ];
        let _sessions = sessions.map(|(uid, mode, shows)| Session::new(uid, mode, &shows));
        let told = tell(65533, "held for longer\u{1b}[2J than 8h", Path::new(TERMINALS));
        assert!(told >= 1);
        until("the line is shown", || {
            text(&file("takes")).contains("tranche: held for longer")
        });
        assert!(!text(&file("takes")).contains('\u{1b}'), "{:?}", text(&file("takes")));
        for quiet in ["refuses", "other"] {
            assert!(!text(&file(quiet)).contains("tranche"), "{quiet}");
        }
        // What is no terminal is left alone.
        fs::write(file("7"), "").unwrap();
        fs::set_permissions(file("7"), Permissions::from_mode(0o666)).unwrap();
        nix::unistd::chown(&file("7"), Some(65533.into()), None).unwrap();
        assert_eq!(tell(65533, "held", top.path()), 0);
        assert_eq!(text(&file("7")), "");
    }
}
