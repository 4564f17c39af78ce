//! The engine of a user, which stops a container so that a restart policy does not start it again.

use crate::as_user::UserProgram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::spawn;
use std::time::Duration;
use tranche_core::ledger::Holder;
use tranche_state::accounts::{AccountSources, Accounts};

/// Where packages put podman. The user chooses none of these.
const PODMAN: [&str; 2] = ["/usr/bin/podman", "/run/current-system/sw/bin/podman"];

/// For how much longer than the grace the engine may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Where podman finds the programs that it executes.
const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin";

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
    /// Returns a line if the machine has no podman.
    pub(super) fn stop(&self, grace: Duration) -> Result<Receiver<Result<(), String>>, String> {
        let podman = PODMAN.into_iter().find(|path| Path::new(path).exists());
        let podman = podman.ok_or("this machine has no podman")?;
        let container = self.clone();
        let (sender, result) = channel();
        spawn(move || {
            // Nobody may listen any more: the container has ended.
            let _ = sender.send(container.stop_now(podman, grace));
        });
        Ok(result)
    }

    fn stop_now(&self, podman: &str, grace: Duration) -> Result<(), String> {
        // NSS is asked by a program with a deadline.
        let login = Accounts::new(AccountSources::default()).login(self.user);
        let login = login.ok_or("the user has no account with a home")?;
        let runtime = format!("/run/user/{}", self.user);
        let mut variables = vec![("HOME", login.home.as_str()), ("PATH", PROGRAMS)];
        if Path::new(&runtime).is_dir() {
            variables.push(("XDG_RUNTIME_DIR", &runtime));
        }
        let stop = UserProgram {
            path: podman,
            arguments: &["stop", "--time", &grace.as_secs().to_string(), &self.id],
            variables: &variables,
        };
        stop.run(&login, grace + PATIENCE)
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
}
