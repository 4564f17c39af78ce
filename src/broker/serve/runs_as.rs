//! The users of the host as whom the processes of rootless containers run, who need access to closed device nodes too.

use super::commands::Commands;
use super::peer::BrokerClient;
use std::fs;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::InitProcess;
use tranche_state::accounts::Account;
use tranche_state::mutex::lock;

/// The user of the host as whom `user` of the container runs whose init is `init`, if that is another one than the user
/// of `peer` and device nodes are closed. The kernel says what is mapped, and /etc/subuid whether the user of `peer`
/// may be it: a user namespace that root has made for this user may map anybody.
///
/// # Errors
/// Returns an error if the process could not open the nodes, or would open them as another user.
pub(super) fn other_user(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    init: &InitProcess,
    user: Option<u32>,
) -> Result<Option<u32>> {
    let Some(user) = user.filter(|_| commands.nodes(&[]).has_closed()) else {
        return Ok(None);
    };
    let path = format!("/proc/{}/uid_map", init.pid);
    let map = fs::read_to_string(&path).about(&path, "cannot be read")?;
    let refused = |what: String| {
        Error::failed(format!("user {user} of the container"), what)
            .hint("run the container's process as root of the container, which is you on the host")
    };
    let uid = mapped(&map, user).ok_or_else(|| refused("has no uid on the host".to_owned()))?;
    if uid == peer.uid {
        return Ok(None);
    }
    let account = commands.accounts.of(uid);
    match matches!(account, Account::User(_)) && account == commands.accounts.of(peer.uid) {
        true => Ok(Some(uid)),
        false => Err(refused(format!(
            "is uid {uid} on the host, which /etc/subuid does not give to you alone, so that it gets no device"
        ))),
    }
}

impl Commands<'_> {
    /// Remembers that `init` will become `uid`, until it is gone.
    pub(super) fn expect(&self, init: &InitProcess, uid: u32) {
        lock(&self.starting).push((init.clone(), uid));
    }
}

/// The uid on the host of `user` in a user namespace with this map (user_namespaces(7)), as root of the host reads it.
fn mapped(map: &str, user: u32) -> Option<u32> {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|word| word.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    let mut found = ranges.filter_map(|(inside, outside, count)| {
        let offset = user.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn a_user_is_found_in_the_range_that_has_it() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        let of = |user| mapped(map, user);
        assert_eq!(
            [of(0), of(1), of(1000), of(65536)],
            [Some(1000), Some(100_000), Some(100_999), Some(165_535)]
        );
        assert_eq!(of(65537), None);
        assert_eq!(mapped("0 4294967295 5\n", 1), None);
        assert_eq!(mapped("x\n", 0), None);
    }
}
