//! What the broker knows of the host: from `host.json`, or by looking itself as `tranche plan` does.

use super::{Facts, HostFacts};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tranche_core::error::{Error, Result, line};
use tranche_host::examine;
use tranche_plan::derive::HookOptions;
use tranche_plan::host_file::{self, HostFile, HostFileError, HostSource, SourceKind};
use tranche_state::mutex::lock;
use tranche_state::planning::own_hook;
use tranche_state::planning::{self, PlanOptions, PolicyOptions};
use tranche_state::renew;

/// For how long a failure, or an incomplete result, is repeated: users must not make the broker examine the host again
/// and again.
const FAILURE_LASTS: Duration = Duration::from_secs(5);

/// The host of a broker.
#[derive(Debug)]
pub struct HostNow {
    options: PlanOptions,
    known: Mutex<Known>,
}

#[derive(Debug)]
enum Known {
    Nothing,
    /// Why the host could not be examined, when, and `host.json` as it was then.
    Failed {
        at: Instant,
        error: String,
        written: HostSource,
    },
    /// The facts, the files that they were made from, and when.
    Facts(Arc<Facts>, Vec<HostSource>, Instant),
}

impl HostNow {
    /// The host, of which nothing is known yet. What is found does not depend on who started the broker.
    pub fn new(options: PlanOptions) -> Self {
        Self {
            options: PlanOptions {
                host: options.host.without_environment(),
                ..options
            },
            known: Mutex::new(Known::Nothing),
        }
    }

    fn examine(&self) -> Result<(Facts, Vec<HostSource>)> {
        let state_dir = &self.options.state_dir;
        // Options that name another host or policy are about a machine that host.json does not describe.
        let is_usual = self.options.host.is_here() && self.options.policy.file.is_none();
        if is_usual && let Some(file) = self.refreshed() {
            let mut sources = file.sources;
            sources.push(written(state_dir));
            let facts = Facts {
                wrong_policy: file.wrong_policy,
                ..Facts::new(file.inventory, Arc::new(file.plan), file.hook)
            };
            return Ok((facts, sources));
        }
        let policies = self.options.policy.candidates().into_iter();
        // As they are before the host is examined: what changes meanwhile is seen the next time.
        let mut sources: Vec<_> = policies.map(|file| HostSource::now(SourceKind::Policy, file)).collect();
        sources.push(written(state_dir));
        let inventory = examine::quietly(&self.options.host)?;
        let of = |policy: &PolicyOptions| planning::of(&inventory, &self.options.with_policy(policy));
        let (sharing, wrong_policy) = planning::in_force(&self.options.policy, state_dir, of)?;
        if let Some(wrong) = &wrong_policy {
            tracing::warn!("{wrong}");
        }
        let plan = sharing.map(|sharing| sharing.plan).unwrap_or_default();
        let hook = own_hook().unwrap_or_else(|| HookOptions::default().path);
        let facts = Facts {
            wrong_policy,
            ..Facts::new(inventory, plan, hook)
        };
        Ok((facts, sources))
    }
}

impl HostNow {
    /// What the last refresh found. Nothing is promised by a policy whose specifications are not written: where the
    /// host or the policy has changed since, they are written first.
    fn refreshed(&self) -> Option<HostFile> {
        let state_dir = &self.options.state_dir;
        match HostFile::read(state_dir) {
            Err(HostFileError::Stale { .. }) => {
                if let Err(error) = renew::specifications(state_dir, &[]) {
                    tracing::warn!("{}", line(&error));
                }
                HostFile::read(state_dir).ok()
            }
            read => read.ok(),
        }
    }
}

/// The file by which a refresh says that the host has changed.
fn written(state_dir: &Path) -> HostSource {
    HostSource::now(SourceKind::Specification, state_dir.join(host_file::NAME))
}

impl HostFacts for HostNow {
    fn now(&self) -> Result<Arc<Facts>> {
        let mut known = lock(&self.known);
        match &*known {
            // What is missing, because the driver was being replaced for example, may come without a sign.
            Known::Facts(facts, _, at) if !facts.inventory.degraded.is_empty() && at.elapsed() >= FAILURE_LASTS => {}
            Known::Facts(facts, sources, _) if sources.iter().all(HostSource::is_unchanged) => {
                return Ok(Arc::clone(facts));
            }
            Known::Failed { at, error, written } if at.elapsed() < FAILURE_LASTS && written.is_unchanged() => {
                return Err(Error::failed("host", error));
            }
            _ => {}
        }
        let written = written(&self.options.state_dir);
        match self.examine() {
            Ok((facts, sources)) => {
                let facts = Arc::new(facts);
                *known = Known::Facts(Arc::clone(&facts), sources, Instant::now());
                Ok(facts)
            }
            Err(error) => {
                let error = line(&error);
                *known = Known::Failed {
                    at: Instant::now(),
                    error: error.clone(),
                    written,
                };
                Err(Error::failed("host", error))
            }
        }
    }
}
