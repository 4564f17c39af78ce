//! How a program outside this crate reserves, uses and releases a share: a broker, a device plugin, a container
//! runtime.
//!
//! ```text
//! cargo run --example claim
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::error::Error;
use std::path::Path;
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Holder, PodName};
use tranche_plan::reserve::{Reservation, Unoffered};
use tranche_plan::share::{self, Wish};
use tranche_plan::{policy, sim};

const POLICY: &str = "
version: v1
sharing:
  mps:
    resources:
    - {name: nvidia.com/gpu, devices: [1], replicas: 4}
";

/// Holds a quarter of GPU 1 of a built-in host for a pod, and gives it back. Returns what was held.
pub(crate) fn hold_a_quarter(state_dir: &Path) -> Result<String, Box<dyn Error>> {
    let policy = policy::read::parse("policy.yaml", POLICY)?.policy;
    let plan = share::plan(&policy, &sim::open("t4x2")?)?;
    let claims = Claims::open(state_dir)?;
    let (_, claim) = plan.reserve(&claims, &Reservation::of("train", Wish::shares(1)), &Unoffered)?;
    let pod = Holder::Pod(PodName {
        namespace: "research".into(),
        name: "train-0".into(),
    });
    claims.enter(&ClaimEntry::reserved("train", &claim), pod.clone(), None)?;
    let books = claims.books()?.books;
    let held = books.iter().flat_map(|book| &book.claims);
    let held: Vec<String> = held.map(|c| format!("{} holds {}", c.who(), c.part)).collect();
    claims.release(&pod, Some(&claim.device), None)?;
    Ok(held.join("\n"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let state_dir = tempfile::tempdir()?;
    println!("{}", hold_a_quarter(state_dir.path())?);
    Ok(())
}
