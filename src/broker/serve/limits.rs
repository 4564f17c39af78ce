//! How many connections are open at the same time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tranche_state::accounts::Account;
use tranche_state::mutex::lock;

/// How many connections may be open at the same time.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// In all.
    all: usize,
    /// Of users other than root together: the other places are root's.
    users: usize,
    /// Of one account other than root's.
    one_account: usize,
}

/// Connections that are served. Each has a file descriptor and a thread, and a process usually may have 1,024
/// descriptors.
const SERVED: Most = Most {
    all: 768,
    users: 192,
    one_account: 8,
};

/// Requests that give something back, of clients whose other places are all taken. They end by themselves.
const GIVING_BACK: Most = Most {
    all: 64,
    users: 48,
    one_account: 16,
};

/// The connections that are open, by account.
#[derive(Debug)]
pub(super) struct ConnectionPlaces {
    most: Most,
    taken: Mutex<HashMap<Account, usize>>,
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace<'a> {
    places: &'a ConnectionPlaces,
    account: Account,
}

impl ConnectionPlaces {
    /// Places for connections that are served.
    pub(super) fn to_serve() -> Self {
        Self::new(SERVED)
    }

    /// Places for what is given back beyond those.
    pub(super) fn to_give_back() -> Self {
        Self::new(GIVING_BACK)
    }

    fn new(most: Most) -> Self {
        Self {
            most,
            taken: Mutex::default(),
        }
    }

    /// A place for a connection of `account`; `None` if it has taken all.
    pub(super) fn take(&self, account: Account) -> Option<ConnectionPlace<'_>> {
        let mut taken = self.lock();
        let all: usize = taken.values().sum();
        let of_root = taken.get(&Account::Owner).copied().unwrap_or(0);
        let own = taken.get(&account).copied().unwrap_or(0);
        let is_free = match account {
            Account::Owner => all < self.most.all,
            Account::User(_) | Account::Shared => {
                all < self.most.all && all - of_root < self.most.users && own < self.most.one_account
            }
        };
        is_free.then(|| {
            taken.insert(account, own + 1);
            ConnectionPlace { places: self, account }
        })
    }

    /// Whether no connection is open.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().values().all(|count| *count == 0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Account, usize>> {
        lock(&self.taken)
    }
}

impl Drop for ConnectionPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.account) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.account)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_a_few_places_and_root_has_its_own() {
        let places = ConnectionPlaces::to_serve();
        let mut taken: Vec<ConnectionPlace<'_>> = (0..SERVED.one_account)
            .map(|_| places.take(Account::User(7)).unwrap())
            .collect();
        assert!(places.take(Account::User(7)).is_none());
        let others = (1000..).map_while(|uid| places.take(Account::User(uid)));
        taken.extend(others);
        assert_eq!(taken.len(), SERVED.users, "all users together");
        assert!(places.take(Account::User(8)).is_none());
        let of_root: Vec<ConnectionPlace<'_>> = std::iter::from_fn(|| places.take(Account::Owner)).collect();
        assert_eq!(of_root.len(), SERVED.all - SERVED.users);
        drop(of_root);
        assert!(places.take(Account::User(8)).is_none(), "root's places are root's");
        taken.remove(0);
        assert!(places.take(Account::User(7)).is_some());
        drop(taken);
        assert!(places.is_empty());
        assert!(places.lock().is_empty(), "users who are gone take no memory");
    }

    #[test]
    fn root_leaves_the_places_of_users_when_it_is_done() {
        let places = ConnectionPlaces::to_serve();
        let of_root: Vec<ConnectionPlace<'_>> = std::iter::from_fn(|| places.take(Account::Owner)).collect();
        assert_eq!(of_root.len(), SERVED.all);
        assert!(places.take(Account::User(7)).is_none());
        drop(of_root);
        assert!(places.take(Account::User(7)).is_some());
    }
}
