//! examples/claim.rs: a caller outside the crate holds a share and gives it back.

#[path = "../../examples/claim.rs"]
#[expect(dead_code, reason = "its main is that of a program")]
mod example;

use tranche_core::ledger::Ledger;

#[test]
fn a_caller_outside_the_crate_holds_a_share_and_gives_it_back() {
    let state_dir = tempfile::tempdir().unwrap();
    let held = example::hold_a_quarter(state_dir.path()).unwrap();
    assert_eq!(held, "claim train (pod research/train-0) holds share 0");
    let books = Ledger::open(state_dir.path()).unwrap().books().unwrap();
    assert!(books.books.is_empty() && books.damaged.is_empty(), "{books:?}");
}
