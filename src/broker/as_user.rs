//! Runs a program as a user: for the broker, which is root.
//!
//! Where systemd is the init, the program is a transient unit of it, outside of the unit of the broker, which lacks
//! what a rootless engine needs: homes, namespaces, and programs with the setuid bit (`newuidmap`). Elsewhere it is a
//! child in a cgroup of its own below the broker's, if one of version 2 can be made there, and else in the broker's.

use crate::own_cgroup::OwnCgroup;
use std::path::Path;
use std::process::Child;
use std::sync::Once;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tranche_core::execute::{Program, is_under_systemd};
use tranche_state::accounts::Login;

/// With this program, systemd starts another one.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// How often it is looked whether the program is done.
const TICK: Duration = Duration::from_millis(50);

/// A program that is run as a user. What it prints is of the user's choice, and is dropped.
#[derive(Debug)]
pub(crate) struct UserProgram<'a> {
    /// Its path.
    pub(crate) path: &'a str,
    /// Its arguments.
    pub(crate) arguments: &'a [&'a str],
    /// Its environment.
    pub(crate) variables: &'a [(&'a str, &'a str)],
}

impl UserProgram<'_> {
    /// Runs it to its end, at most for `most`.
    ///
    /// # Errors
    /// Returns a line if it cannot be started, fails, or is not done in time; it has then been killed.
    pub(crate) fn run(&self, login: &Login, most: Duration) -> Result<(), String> {
        if is_under_systemd() && Path::new(SYSTEMD_RUN).exists() {
            let mut unit = Program::new(SYSTEMD_RUN);
            unit.args(self.words_of_unit(login, most));
            return end(unit.spawn().map_err(|error| error.to_string())?, most);
        }
        let mut program = Program::new(self.path);
        program
            .args(self.arguments)
            .envs(self.variables.iter().copied())
            .as_user(&login.user);
        let cgroup = OwnCgroup::for_program();
        let _own = match cgroup {
            Some((own, processes)) => {
                program.in_cgroup(processes);
                Some(own)
            }
            None => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tracing::warn!(
                        "no cgroup of version 2 can be made here, so programs that run as users count to the broker's \
                         cgroup"
                    );
                });
                None
            }
        };
        end(program.spawn().map_err(|error| error.to_string())?, most)
    }

    /// The arguments of systemd-run(1). systemd itself finds the groups of the user (systemd.exec(5), `User=`).
    fn words_of_unit(&self, login: &Login, most: Duration) -> Vec<String> {
        let mut words: Vec<String> = ["--quiet", "--collect", "--wait"].map(str::to_owned).into();
        words.push(format!("--uid={}", login.user.uid));
        words.push(format!("--gid={}", login.user.gid));
        for property in [
            &format!("RuntimeMaxSec={}", most.as_secs()),
            "WorkingDirectory=/",
            "StandardInput=null",
            "StandardOutput=null",
            "StandardError=null",
        ] {
            words.push(format!("--property={property}"));
        }
        words.extend(
            self.variables
                .iter()
                .map(|(name, value)| format!("--setenv={name}={value}")),
        );
        words.extend(["--", self.path].map(str::to_owned));
        words.extend(self.arguments.iter().map(|word| (*word).to_owned()));
        words
    }
}

/// Waits for the end of a program that may take this long.
fn end(mut child: Child, most: Duration) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if begun.elapsed() < most => sleep(TICK),
            Ok(None) => {
                // It may have ended by itself just now.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {} s", most.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::execute::AsUser;

    fn login(uid: u32, gid: u32) -> Login {
        Login {
            user: AsUser {
                uid,
                gid,
                groups: vec![gid],
            },
            home: "/home/ann".to_owned(),
        }
    }

    #[test]
    fn a_unit_of_systemd_is_the_user_s_and_ends_in_time() {
        let program = UserProgram {
            path: "/usr/bin/podman",
            arguments: &["stop", "--time", "9"],
            variables: &[("HOME", "/home/ann")],
        };
        let words = program.words_of_unit(&login(1000, 100), Duration::from_secs(29));
        for word in [
            "--uid=1000",
            "--gid=100",
            "--setenv=HOME=/home/ann",
            "--property=RuntimeMaxSec=29",
            "--property=StandardOutput=null",
        ] {
            assert!(words.iter().any(|one| one == word), "{words:?}");
        }
        let own = ["--", "/usr/bin/podman", "stop", "--time", "9"].map(str::to_owned);
        assert!(words.ends_with(&own), "{words:?}");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let run = |path, arguments: &[&str], most| {
            let child = {
                let mut program = Program::new(path);
                program.args(arguments).env("PATH", "/usr/bin:/bin");
                program.spawn().unwrap()
            };
            end(child, most)
        };
        let error = run("/bin/sleep", &["1000"], Duration::from_millis(100)).unwrap_err();
        assert!(error.starts_with("not done"), "{error}");
        assert_eq!(run("/bin/true", &[], Duration::from_secs(60)), Ok(()));
        assert!(run("/bin/false", &[], Duration::from_secs(60)).is_err());
    }
}
