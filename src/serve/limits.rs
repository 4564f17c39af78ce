//! How many connections are served at the same time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most connections in all: each has a file descriptor and a thread, and a process usually may have 1,024 descriptors.
const ALL: usize = 768;

/// The most connections of users other than root together: the other places are root's.
const USERS: usize = 192;

/// The most connections of one user other than root.
const ONE_USER: usize = 8;

/// The connections that are being served, by user.
#[derive(Debug, Default)]
pub(super) struct ConnectionPlaces(Mutex<HashMap<u32, usize>>);

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace<'a> {
    places: &'a ConnectionPlaces,
    uid: u32,
}

impl ConnectionPlaces {
    /// A place for a connection of `uid`; `None` if this user has taken all.
    pub(super) fn take(&self, uid: u32) -> Option<ConnectionPlace<'_>> {
        let mut taken = self.lock();
        let all: usize = taken.values().sum();
        let of_root = taken.get(&0).copied().unwrap_or(0);
        let own = taken.get(&uid).copied().unwrap_or(0);
        let is_free = match uid {
            0 => all < ALL,
            _ => all < ALL && all - of_root < USERS && own < ONE_USER,
        };
        is_free.then(|| {
            taken.insert(uid, own + 1);
            ConnectionPlace { places: self, uid }
        })
    }

    /// Whether no connection is served.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().values().all(|count| *count == 0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        // Nothing fails while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPlace<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.uid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_a_few_places_and_root_has_its_own() {
        let places = ConnectionPlaces::default();
        let mut taken: Vec<ConnectionPlace<'_>> = (0..ONE_USER).map(|_| places.take(7).unwrap()).collect();
        assert!(places.take(7).is_none());
        let others = (1000..).map_while(|uid| places.take(uid));
        taken.extend(others);
        assert_eq!(taken.len(), USERS, "all users together");
        assert!(places.take(8).is_none());
        let of_root: Vec<ConnectionPlace<'_>> = std::iter::from_fn(|| places.take(0)).collect();
        assert_eq!(of_root.len(), ALL - USERS);
        drop(of_root);
        assert!(places.take(8).is_none(), "root's places are root's");
        taken.remove(0);
        assert!(places.take(7).is_some());
        drop(taken);
        assert!(places.is_empty());
        assert!(places.lock().is_empty(), "users who are gone take no memory");
    }

    #[test]
    fn root_leaves_the_places_of_users_when_it_is_done() {
        let places = ConnectionPlaces::default();
        let of_root: Vec<ConnectionPlace<'_>> = std::iter::from_fn(|| places.take(0)).collect();
        assert_eq!(of_root.len(), ALL);
        assert!(places.take(7).is_none());
        drop(of_root);
        assert!(places.take(7).is_some());
    }
}
