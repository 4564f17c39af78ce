//! The one order of all who wait (rules 1 and 2).

use super::RequestNumber;
use serde::{Deserialize, Serialize};

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester<A> {
    /// A container of root's engines, or a claim of root.
    Root,
    /// A user.
    User {
        /// Whose use counts.
        account: A,
        /// When the user's requests are served.
        served: Served,
    },
}

/// When the requests of a user are served. The later one is the more generous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Served {
    /// After those of all others.
    Last,
    /// By what the user has held lately.
    #[default]
    Usual,
}

impl<A: Copy + Ord> Requester<A> {
    /// The account of a user who asks.
    pub fn user(&self) -> Option<A> {
        match self {
            Self::User { account, .. } => Some(*account),
            Self::Root => None,
        }
    }

    /// Whether a user comes before those requests of root that came later, where root waits: one who is served last
    /// does so when the request is locked.
    pub(super) fn comes_before_later_root(&self, is_locked: bool) -> bool {
        match self {
            Self::User { served, .. } => is_locked || *served == Served::Usual,
            Self::Root => false,
        }
    }
}

/// A place in the order; the lesser one is served first. Between two requests of root, users have the same `after`.
struct Place {
    /// How many requests of root come first.
    after: usize,
    rank: Rank,
    /// Device-seconds that count.
    used: f64,
}

/// The order of those with the same number of root's requests ahead.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Locked,
    Usual,
    Last,
    Root,
}

/// Puts requests, each with whether it is locked, in their order. They come by their numbers. `used` is what an account
/// has held lately.
pub(super) fn of<A: Copy + Ord>(
    requests: impl Iterator<Item = (RequestNumber, Requester<A>, bool)> + Clone,
    root_waits: bool,
    used: impl Fn(A) -> f64,
) -> Vec<RequestNumber> {
    let of_root = requests
        .clone()
        .filter(|(_, requester, _)| *requester == Requester::Root);
    let of_root: Vec<RequestNumber> = of_root.map(|(number, ..)| number).collect();
    let before = |number: RequestNumber| of_root.partition_point(|root| *root < number);
    let place = |number: RequestNumber, requester: Requester<A>, is_locked: bool| {
        let after = match root_waits && requester.comes_before_later_root(is_locked) {
            true => before(number),
            false => of_root.len(),
        };
        match (requester, is_locked) {
            (Requester::Root, _) => Place::new(before(number), Rank::Root),
            (Requester::User { .. }, true) => Place::new(after, Rank::Locked),
            (
                Requester::User {
                    served: Served::Last, ..
                },
                false,
            ) => Place::new(after, Rank::Last),
            (Requester::User { account, .. }, false) => Place {
                used: used(account),
                ..Place::new(after, Rank::Usual)
            },
        }
    };
    let places = requests.map(|(number, requester, is_locked)| (place(number, requester, is_locked), number));
    let mut places: Vec<(Place, RequestNumber)> = places.collect();
    places.sort_by(|(one, number), (other, other_number)| {
        let by_root = one.after.cmp(&other.after).then(one.rank.cmp(&other.rank));
        by_root
            .then(one.used.total_cmp(&other.used))
            .then(number.cmp(other_number))
    });
    places.into_iter().map(|(_, number)| number).collect()
}

impl Place {
    const fn new(after: usize, rank: Rank) -> Self {
        Self { after, rank, used: 0.0 }
    }
}
