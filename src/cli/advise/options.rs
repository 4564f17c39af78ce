//! Wishes from a file, and one wish from options.

use anyhow::{Result, bail};
use std::path::Path;
use tranche_core::error::Error;
use tranche_core::types::{MemorySize, Percent};
use tranche_plan::advise::{self, Latency, Trust, Wishes, Workload, WorkloadKind};
use tranche_plan::policy::read::text;

/// One wish.
#[derive(Debug, clap::Args)]
#[group(id = "one wish", multiple = true, conflicts_with = "file")]
pub(super) struct WishArgs {
    /// What the containers do: service, notebook or training
    #[arg(long)]
    kind: Option<WorkloadKind>,
    /// How many containers
    #[arg(long, value_name = "N", requires = "kind", value_parser = clap::value_parser!(u32).range(1..=512))]
    count: Option<u32>,
    /// The memory that each container needs: 7Gi, 7000Mi
    #[arg(long, value_name = "SIZE", requires = "kind")]
    memory: Option<MemorySize>,
    /// The compute that each container needs, in percent of a GPU: 40%
    #[arg(long, value_name = "PERCENT", requires = "kind")]
    compute: Option<Percent>,
    /// Whether a busy neighbour must not slow a container down: usual or bounded
    #[arg(long, requires = "kind")]
    latency: Option<Latency>,
    /// Each container wants a whole GPU while it works
    #[arg(long, requires = "kind")]
    whole_gpu: bool,
    /// So many tenants, who do not trust one another, have COUNT containers each
    #[arg(long, value_name = "N", requires = "kind", value_parser = clap::value_parser!(u32).range(2..=512))]
    tenants: Option<u32>,
}

impl WishArgs {
    /// The wish, once for each tenant.
    ///
    /// # Errors
    /// Returns a usage error if two of the options contradict each other.
    pub(super) fn wishes(&self) -> Result<Wishes> {
        let kind = self.kind.unwrap_or(WorkloadKind::Service);
        let one = |name: String, tenant: Option<String>| -> Result<Workload> {
            let count = self.count.unwrap_or(1);
            Ok(Workload {
                memory: self.memory,
                compute: self.compute,
                latency: self.latency.unwrap_or(Latency::Usual),
                whole_gpu: self.whole_gpu,
                tenant,
                ..Workload::new(name.parse()?, kind, count)
            })
        };
        let workloads = match self.tenants {
            None => vec![one(kind.to_string(), None)?],
            Some(tenants) => {
                let tenants = 1..=tenants;
                let named = tenants.map(|number| one(format!("{kind}{number}"), Some(format!("tenant{number}"))));
                named.collect::<Result<_>>()?
            }
        };
        let wishes = Wishes {
            file: "wish".to_owned(),
            trust: match self.tenants {
                None => Trust::Team,
                Some(_) => Trust::None,
            },
            workloads,
        };
        wishes.check()?;
        Ok(wishes)
    }
}

/// Reads the file, which may be as large as a policy.
///
/// # Errors
/// Returns an error if the file cannot be read, and the errors of [`advise::read`].
pub(super) fn read(file: &Path) -> Result<Wishes> {
    if matches!(file.try_exists(), Ok(false)) {
        let error = Error::failed(file.display(), "not found");
        bail!(error.hint("tranche advise --help has an example of such a file, and the options for one wish"));
    }
    Ok(advise::read(&file.display().to_string(), &text(file)?)?)
}
