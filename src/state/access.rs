//! Keeps the device nodes of a machine as the policy wants them (`sharing.access`): closed but for those who hold
//! something, or open again.
//!
//! The lists are written whole from the ledger, under its lock: the last writer has read it last. So the broker, a
//! refresh and a command may do so at once, and the next one repairs what one that was killed has left.

mod module_option;
mod node;
mod opened;
pub mod seat;

pub use module_option::ModuleOption;
pub use opened::Opened;

use crate::accounts::{Account, Accounts};
use crate::replace;
use std::path::{Path, PathBuf};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim, Holder, InitProcess};
use tranche_host::examine::HostOptions;
use tranche_host::{Roots, driver_params};
use tranche_plan::access::{NodeParams, Opener, nodes};
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::Access;
use tranche_plan::share::Plan;

/// The file in the state directory that exists while tranche has closed nodes. It is gone after a boot, as they are.
const CLOSED: &str = "nodes-closed";

/// Whether nodes are closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enforcement {
    /// The policy leaves them open.
    #[default]
    Off,
    /// The policy closes them, and the driver opens them again at each start of CUDA: its module does not have the
    /// option `NVreg_ModifyDeviceFiles=0`.
    NotInForce,
    /// They are closed.
    InForce,
}

impl Enforcement {
    /// What `access` is with a driver that has these parameters.
    pub fn of(access: Access, params: NodeParams) -> Self {
        match (access, params.modifies) {
            (Access::Open, _) => Self::Off,
            (Access::Enforce, true) => Self::NotInForce,
            (Access::Enforce, false) => Self::InForce,
        }
    }

    /// What `access` is on `host`.
    ///
    /// # Errors
    /// Returns an error if the driver's parameters cannot be read.
    pub fn on(host: &HostOptions, access: Access) -> Result<Self> {
        Ok(match access {
            Access::Open => Self::Off,
            Access::Enforce => Self::of(access, params(host)?),
        })
    }
}

/// What the driver that is loaded on `host` does with nodes.
///
/// # Errors
/// Returns an error if that cannot be read.
pub fn params(host: &HostOptions) -> Result<NodeParams> {
    Ok(NodeParams::parse(&driver_params(&Roots::new(&host.roots)?)?))
}

/// The machine whose nodes are kept.
#[derive(Debug)]
pub struct KeptNodes<'a> {
    /// Where its parts are.
    pub host: &'a HostOptions,
    /// Where the ledger is.
    pub state_dir: &'a Path,
    /// Its users.
    pub accounts: &'a Accounts,
    /// The users of the host that the inits of rootless containers become, as long as they have not.
    pub starting: &'a [(InitProcess, u32)],
}

impl KeptNodes<'_> {
    /// Gives each node of `inventory` the owner, the mode and the list that it has under `plan`. Nodes of another
    /// machine, and those of a policy that has never closed any, are left alone. Returns what is wrong with single
    /// nodes and names; the others are as they should be.
    ///
    /// # Errors
    /// Returns an error if the driver's parameters or the ledger cannot be read. Nodes that are closed stay closed.
    pub fn keep(&self, inventory: &Inventory, plan: &Plan) -> Result<Vec<Error>> {
        if !self.host.is_here() {
            return Ok(Vec::new());
        }
        let mark = self.mark();
        if plan.access == Access::Open && !mark.exists() {
            return Ok(Vec::new());
        }
        let params = params(self.host)?;
        let is_closed = Enforcement::of(plan.access, params) == Enforcement::InForce;
        if !is_closed && !mark.exists() {
            return Ok(Vec::new());
        }
        // NSS may take its time: the ledger is not locked meanwhile.
        let (monitors, mut wrong) = match is_closed {
            true => self.accounts.monitors(&plan.monitors),
            false => Default::default(),
        };
        let claims = Claims::existing(self.state_dir)?;
        let inits = claims
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |claims| self.inits(claims))?;
        let locked = claims.as_ref().map(Claims::lock).transpose()?;
        let books = locked
            .as_ref()
            .map_or_else(|| Ok(Books::default()), |locked| locked.books())?;
        match (is_closed, mark.exists()) {
            (true, false) => replace::write(&mark, "")?,
            // Somebody has opened them meanwhile: from then on they are not tranche's to change.
            (false, false) => return Ok(Vec::new()),
            (_, true) => {}
        }
        let openers: Vec<Opener> = books.claims().filter_map(|claim| opener(claim, &inits)).collect();
        let opened = match is_closed {
            true => plan.clone(),
            false => Plan::default(),
        };
        for kept in nodes(inventory, &opened, &openers, &monitors) {
            // Somebody may hold what cannot be read.
            if is_closed
                && kept
                    .gpu
                    .is_some_and(|gpu| books.damaged.iter().any(|book| book.may_be_of(&gpu.uuid)))
            {
                continue;
            }
            wrong.extend(node::set(&kept, params).err());
        }
        if !is_closed && wrong.is_empty() {
            replace::remove(&mark)?;
        }
        Ok(wrong)
    }

    /// Opens the nodes that are closed, whatever the policy says: tranche is being removed.
    ///
    /// # Errors
    /// As [`KeptNodes::keep`].
    pub fn open_all(&self, inventory: &Inventory) -> Result<Vec<Error>> {
        self.keep(inventory, &Plan::default())
    }

    /// Whether tranche has closed nodes since the machine started.
    pub fn has_closed(&self) -> bool {
        self.mark().exists()
    }

    /// Whether nodes are closed of which users hold something: the lists are to be changed when they do not any more.
    pub fn has_openers(&self) -> bool {
        let books = || {
            Claims::existing(self.state_dir)?
                .map(|claims| claims.books())
                .transpose()
        };
        let is_of_user = |books: Option<Books>| books.is_some_and(|books| books.claims().any(|claim| claim.uid != 0));
        self.has_closed() && books().is_ok_and(is_of_user)
    }

    fn mark(&self) -> PathBuf {
        self.state_dir.join(CLOSED)
    }

    /// The inits of rootless containers that run, or will run, as a subordinate uid of their user. NSS may be asked
    /// whose it is.
    fn inits(&self, claims: &Claims) -> Result<Vec<(InitProcess, u32)>> {
        let books = claims.books()?;
        let rootless = books
            .claims()
            .filter(|claim| matches!(claim.holder, Holder::Rootless { .. }));
        let running = rootless.filter_map(|claim| {
            let init = claim.process.as_ref()?;
            let uid = user_of(init.pid).filter(|uid| *uid != claim.uid)?;
            let is_same = !claims.machine().has_ended(init);
            let account = self.accounts.of(uid);
            let is_own = matches!(account, Account::User(_)) && account == self.accounts.of(claim.uid);
            (is_same && is_own).then(|| (init.clone(), uid))
        });
        Ok(running.chain(self.starting.iter().cloned()).collect())
    }
}

/// The users who may open the device of `claim`; `None` if it is root's.
fn opener(claim: &Claim, inits: &[(InitProcess, u32)]) -> Option<Opener> {
    let is_init = |init: &InitProcess| {
        let process = claim.process.as_ref();
        process.is_some_and(|process| (process.pid, process.start) == (init.pid, init.start))
    };
    let more = inits.iter().filter(|(init, _)| is_init(init)).map(|(_, uid)| *uid);
    (claim.uid != 0).then(|| Opener {
        device: claim.device.clone(),
        uids: more.chain([claim.uid]).collect(),
    })
}

/// The effective user of a process of this machine; `None` if it has ended.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
