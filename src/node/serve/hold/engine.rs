//! The engine of a user, which stops a container so that a restart policy does not start it again.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use tranche_core::ledger::Holder;

/// Where packages put podman. The user chooses none of these.
const PODMAN: [&str; 2] = ["/usr/bin/podman", "/run/current-system/sw/bin/podman"];

/// With this program, systemd starts another one outside of the broker's unit. The unit takes away what a rootless
/// engine needs: homes, namespaces, and `newuidmap`, which has the setuid bit.
const SYSTEMD_RUN: &str = "/usr/bin/systemd-run";

/// Exists where systemd is the init (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// For how much longer than the grace the engine may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked whether the engine is done.
const TICK: Duration = Duration::from_millis(50);

/// A container of a user's own podman.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodmanContainer {
    user: u32,
    id: String,
}

impl PodmanContainer {
    /// The container of `holder`, if its bundle is where podman keeps it: `DRIVER-containers/ID/userdata`
    /// (containers/storage, store.go). The user has written both, so neither is more than a hint.
    pub(super) fn of(holder: &Holder) -> Option<Self> {
        let Holder::Rootless { user, name } = holder else {
            return None;
        };
        let is_id = name.id.len() == 64 && name.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let rest = name.bundle.strip_suffix("/userdata")?.strip_suffix(&name.id)?;
        (is_id && *user != 0 && rest.ends_with("-containers/")).then(|| Self {
            user: *user,
            id: name.id.clone(),
        })
    }

    /// Stops the container as its user, in a thread. The result comes once: a line says why it is not stopped.
    ///
    /// # Errors
    /// Returns a line if the machine has no podman or no account of the user.
    pub(super) fn stop(&self, grace: Duration) -> Result<Receiver<Result<(), String>>, String> {
        let podman = PODMAN.into_iter().find(|path| Path::new(path).exists());
        let podman = podman.ok_or("this machine has no podman")?;
        let found = nix::unistd::User::from_uid(self.user.into()).map_err(|error| error.to_string())?;
        let account = found.ok_or("the user has no account")?;
        let runtime = format!("/run/user/{}", self.user);
        let surroundings = Surroundings {
            uid: self.user,
            gid: account.gid.as_raw(),
            home: account.dir.to_str().ok_or("the user's home is no text")?.to_owned(),
            runtime_directory: Path::new(&runtime).is_dir().then_some(runtime),
        };
        let is_systemd = Path::new(BOOTED).is_dir() && Path::new(SYSTEMD_RUN).exists();
        let command = self.command(podman, &surroundings, grace, is_systemd);
        let (sender, result) = channel();
        spawn(move || {
            // Nobody may listen any more: the container has ended.
            let _ = sender.send(run(command, grace + PATIENCE));
        });
        Ok(result)
    }

    fn command(&self, podman: &str, user: &Surroundings, grace: Duration, is_systemd: bool) -> Command {
        let mut command;
        if is_systemd {
            let most = (grace + PATIENCE).as_secs();
            command = Command::new(SYSTEMD_RUN);
            command.args(["--quiet", "--collect", "--wait"]);
            command.args([format!("--uid={}", user.uid), format!("--gid={}", user.gid)]);
            command.arg(format!("--property=RuntimeMaxSec={most}"));
            command.args(user.variables().map(|(name, value)| format!("--setenv={name}={value}")));
            command.args(["--", podman]);
            command.env_clear();
        } else {
            command = Command::new(podman);
            // Without the groups of root: the standard library drops them with the user.
            command.uid(user.uid).gid(user.gid);
            command.env_clear().envs(user.variables());
        }
        let grace = grace.as_secs().to_string();
        command.args(["stop", "--time", &grace, &self.id]).current_dir("/");
        // What it says is of the user's choice, and is not for the journal.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// As whom, and with which variables, an engine runs.
struct Surroundings {
    uid: u32,
    gid: u32,
    home: String,
    runtime_directory: Option<String>,
}

impl Surroundings {
    fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let runtime = self.runtime_directory.as_deref();
        let fixed = [
            ("HOME", self.home.as_str()),
            (
                "PATH",
                "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin",
            ),
        ];
        fixed
            .into_iter()
            .chain(runtime.map(|directory| ("XDG_RUNTIME_DIR", directory)))
    }
}

/// Runs a command that may take this long.
fn run(mut command: Command, most: Duration) -> Result<(), String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
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
    use tranche_core::ledger::ContainerName;

    fn holder(user: u32, bundle: &str, id: &str) -> Holder {
        let (bundle, id) = (bundle.to_owned(), id.to_owned());
        Holder::Rootless {
            user,
            name: ContainerName { bundle, id },
        }
    }

    fn id() -> String {
        "0123456789abcdef".repeat(4)
    }

    #[test]
    fn only_a_bundle_of_podman_with_its_own_id_is_podman_s() {
        let id = id();
        let bundle = format!("/home/ann/.local/share/containers/storage/overlay-containers/{id}/userdata");
        let found = PodmanContainer::of(&holder(1000, &bundle, &id));
        assert_eq!(
            found,
            Some(PodmanContainer {
                user: 1000,
                id: id.clone()
            })
        );
        for (user, bundle, id) in [
            (0, bundle.as_str(), id.as_str()),
            (1000, "/run/user/1000/docker/x", &id),
            (1000, &bundle, &id[1..]),
            (1000, "/a/overlay-containers/--all/userdata", "--all"),
        ] {
            assert_eq!(PodmanContainer::of(&holder(user, bundle, id)), None, "{bundle} {id}");
        }
        let name = ContainerName { bundle, id };
        assert_eq!(PodmanContainer::of(&Holder::Container(name)), None);
    }

    #[test]
    fn podman_runs_as_the_user_with_nothing_of_the_broker_s() {
        let user = Surroundings {
            uid: 1000,
            gid: 100,
            home: "/home/ann".to_owned(),
            runtime_directory: Some("/run/user/1000".to_owned()),
        };
        let container = PodmanContainer { user: 1000, id: id() };
        let words = |is_systemd| {
            let command = container.command("/usr/bin/podman", &user, Duration::from_secs(9), is_systemd);
            let words = [command.get_program()].into_iter().chain(command.get_args());
            words.map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let own = ["/usr/bin/podman", "stop", "--time", "9", &id()];
        assert_eq!(words(false), own);
        let of_systemd = words(true);
        assert_eq!(of_systemd[0], SYSTEMD_RUN);
        for word in [
            "--uid=1000",
            "--gid=100",
            "--setenv=HOME=/home/ann",
            "--property=RuntimeMaxSec=29",
        ] {
            assert!(of_systemd.iter().any(|one| one == word), "{of_systemd:?}");
        }
        assert!(of_systemd.ends_with(&own.map(str::to_owned)), "{of_systemd:?}");
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let error = run(command, Duration::from_millis(100)).unwrap_err();
        assert!(error.starts_with("not done"), "{error}");
        assert_eq!(run(Command::new("true"), PATIENCE), Ok(()));
        assert!(run(Command::new("false"), PATIENCE).is_err());
    }
}
