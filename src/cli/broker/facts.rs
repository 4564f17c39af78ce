//! What the broker knows of the host: from `host.json`, or by looking itself as `tranche plan` does.

use crate::cli::cdi::hook_beside_us;
use crate::cli::look;
use crate::cli::sharing::{self, SharingArgs};
use crate::derive::HookOptions;
use crate::error::{Error, Result, line};
use crate::facts::{Facts, HostFacts};
use crate::host_file::{self, HostFile, HostSource, SourceKind};
use crate::mutex::lock;
use crate::policy::read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// For how long a failure is repeated: users must not make the broker examine the host again and again.
const FAILURE_LASTS: Duration = Duration::from_secs(5);

/// The host of this broker.
pub(super) struct HostNow {
    args: SharingArgs,
    known: Mutex<Known>,
}

enum Known {
    Nothing,
    Failed {
        at: Instant,
        error: String,
    },
    /// The facts, and the files that they were made from.
    Facts(Arc<Facts>, Vec<HostSource>),
}

impl HostNow {
    pub(super) fn new(mut args: SharingArgs) -> Self {
        // What is found must not depend on who started the broker.
        args.look.ignore_environment = true;
        Self {
            args,
            known: Mutex::new(Known::Nothing),
        }
    }

    fn examine(&self) -> anyhow::Result<(Facts, Vec<HostSource>)> {
        let state_dir = &self.args.state.state_dir;
        // Options that name another host or policy are about a machine that host.json does not describe.
        let is_usual = self.args.host.is_here() && self.args.config.config.is_none();
        if is_usual && let Ok(file) = HostFile::read(state_dir) {
            let mut sources = file.sources;
            sources.push(written(state_dir));
            let facts = Facts {
                inventory: file.inventory,
                plan: file.plan,
                hook: file.hook,
            };
            return Ok((facts, sources));
        }
        let policy = self.args.config.config.clone();
        let policy = policy.unwrap_or_else(|| read::DEFAULT_FILE.into());
        // As they are before the host is examined: what changes meanwhile is seen the next time.
        let sources = vec![HostSource::now(SourceKind::Policy, policy), written(state_dir)];
        let inventory = look::quietly(&self.args.host, &self.args.look)?;
        let sharing = sharing::of(&inventory, &self.args)?;
        let facts = Facts {
            inventory,
            plan: sharing.map(|sharing| sharing.plan).unwrap_or_default(),
            hook: hook_beside_us().unwrap_or_else(|| HookOptions::default().path),
        };
        Ok((facts, sources))
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
            Known::Facts(facts, sources) if sources.iter().all(HostSource::is_unchanged) => {
                return Ok(Arc::clone(facts));
            }
            Known::Failed { at, error } if at.elapsed() < FAILURE_LASTS => return Err(Error::failed("host", error)),
            _ => {}
        }
        match self.examine() {
            Ok((facts, sources)) => {
                let facts = Arc::new(facts);
                *known = Known::Facts(Arc::clone(&facts), sources);
                Ok(facts)
            }
            Err(error) => {
                let error = line(error.as_ref());
                *known = Known::Failed {
                    at: Instant::now(),
                    error: error.clone(),
                };
                Err(Error::failed("host", error))
            }
        }
    }
}
