//! Until when a name is refused.

use super::Offer;
use tranche_core::claims::ClaimEntry;
use tranche_core::ledger::{Book, Books, Claim, Holder, Refused, World};

/// What must happen before a name is granted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Until<'a> {
    /// The claims each of which must end: beside any of them it is refused.
    pub all: Vec<&'a Claim>,
    /// The claims of which enough must end: together they leave too little, and none of them is in the way alone.
    pub enough_of: Vec<&'a Claim>,
    /// Why it is refused even if nothing is held; `None` if it is not.
    pub otherwise: Option<String>,
}

impl Until<'_> {
    /// Whether it depends on the end of `claim`.
    pub fn names(&self, claim: &Claim) -> bool {
        self.all.iter().chain(&self.enough_of).any(|one| *one == claim)
    }
}

/// Until when `offer` is refused on a machine on which `books` are held; `None` if it is granted now. Those who wait
/// for it are not counted.
pub fn until<'a>(offer: &Offer, books: &'a Books, world: &impl World) -> Option<Until<'a>> {
    let entry = offer.entry()?;
    let gpu = entry.device.gpu();
    if let Some(damaged) = books.damaged.iter().find(|book| book.may_be_of(gpu)) {
        return Some(Until {
            otherwise: Some(damaged.error.to_string()),
            ..Until::default()
        });
    }
    let none_held = Book::new(gpu.clone()).without(books.out_of_service.clone());
    let Some(book) = books.books.iter().find(|book| book.gpu == *gpu) else {
        let otherwise = refused(&entry, none_held, &[], world)?.to_string();
        return Some(Until {
            otherwise: Some(otherwise),
            ..Until::default()
        });
    };
    // What a damaged line of the book holds stays in it.
    let mut empty = book.clone();
    let claims: Vec<&Claim> = book.claims.iter().collect();
    refused(&entry, empty.clone(), &[], world)?;
    empty.claims.clear();
    let otherwise = refused(&entry, empty.clone(), &[], world).map(|refused| refused.to_string());
    if otherwise.is_some() {
        return Some(Until {
            otherwise,
            ..Until::default()
        });
    }
    let is_in_the_way = |claim: &&Claim| refused(&entry, empty.clone(), &[claim], world).is_some();
    let (all, rest): (Vec<&Claim>, Vec<&Claim>) = claims.into_iter().partition(is_in_the_way);
    let enough_of = match refused(&entry, empty.clone(), &rest, world) {
        None => Vec::new(),
        Some(Refused::Misfit { beside, .. }) => rest.into_iter().filter(|claim| beside.contains(claim)).collect(),
        Some(_) => {
            let is_near = |claim: &&Claim| claim.device.overlaps(&entry.device);
            rest.into_iter().filter(is_near).collect()
        }
    };
    Some(Until {
        all,
        enough_of,
        otherwise: None,
    })
}

/// Why a new holder cannot enter, if `book` has `more` claims; `None` if it can.
fn refused(entry: &ClaimEntry, mut book: Book, more: &[&Claim], world: &impl World) -> Option<Refused> {
    book.claims.extend(more.iter().map(|claim| (*claim).clone()));
    let nobody = Holder::Process {
        program: "tranche policy diff".to_owned(),
        id: String::new(),
    };
    entry.enter(&mut book, entry.ask(nobody, None, 0), world).err()
}
