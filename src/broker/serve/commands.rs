//! What the broker does for each request.

use super::peer::BrokerClient;
use super::queue::UserQueue;
use super::turns::{self, TurnDesk};
use super::{ServeOptions, entry, kubernetes, mig, on_demand, own, program, times};
use crate::control::MachineControl;
use crate::facts::{Facts, HostFacts};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tranche_core::broker::{EndClientsRequest, LeaveRequest, MigMakeRequest, PrepareRequest};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::InitProcess;
use tranche_core::ledger::process::Machine;
use tranche_core::types::DeviceKey;
use tranche_plan::policy::Access;
use tranche_plan::share::Method;
use tranche_protocol::{
    CalendarRequest, DraDevicesRequest, GiveUpRequest, ListRequest, MigRestoreRequest, MpsRequest, OffersRequest,
    PolicyRequest, ReleaseRequest, Request, ReserveRequest, StatusRequest, UnprepareClaimRequest,
};
use tranche_state::access::{Enforcement, KeptNodes};
use tranche_state::accounts::Accounts;
use tranche_state::mutex::lock;
use tranche_state::public_status::PublicStatus;
use tranche_state::turn_tries;

/// What requests are answered with.
pub(super) struct Commands<'a> {
    pub(super) options: &'a ServeOptions,
    pub(super) control: &'a dyn MachineControl,
    pub(super) host: &'a dyn HostFacts,
    /// Who is counted by the limits.
    pub(super) accounts: &'a Accounts,
    /// A byte that is written here wakes the thread that compares the machine with the ledger.
    wake: &'a UnixStream,
    /// What status.json has.
    pub(super) shown: Mutex<Option<PublicStatus>>,
    /// The users of the host that starting containers of users will become.
    pub(super) starting: Mutex<Vec<(InitProcess, u32)>>,
    /// What was wrong with device nodes when they were kept last.
    nodes_wrong: Mutex<BTreeSet<String>>,
    /// One layout is applied at a time.
    pub(super) mig: Mutex<()>,
    /// Requests that come at once do not each have all claims in memory: one reads them at a time.
    pub(super) reading: Mutex<()>,
    /// Users who wait.
    pub(super) queue: UserQueue,
    /// What was found last of the GPUs on which instances are made for resource claims.
    pub(super) divided: Mutex<Option<kubernetes::DividedGpus>>,
    /// Devices that their holders have by turns.
    pub(super) turns: TurnDesk,
}

impl<'a> Commands<'a> {
    pub(super) fn new(
        options: &'a ServeOptions,
        control: &'a dyn MachineControl,
        host: &'a dyn HostFacts,
        accounts: &'a Accounts,
        wake: &'a UnixStream,
    ) -> Result<Self> {
        Ok(Self {
            options,
            control,
            host,
            accounts,
            wake,
            shown: Mutex::new(None),
            starting: Mutex::default(),
            nodes_wrong: Mutex::default(),
            mig: Mutex::new(()),
            reading: Mutex::new(()),
            queue: UserQueue::default(),
            divided: Mutex::new(None),
            turns: TurnDesk::new()?,
        })
    }

    /// Does what `peer` asks for, if this user may ask for it. Returns the value of `ok` in the answer.
    ///
    /// # Errors
    /// Returns the error that the client gets. It has nothing about the claims of other users.
    pub(super) fn run(&self, peer: &BrokerClient, client: &UnixStream, request: Request) -> Result<Value> {
        match request {
            Request::Prepare(PrepareRequest { device }) => {
                owner_alone(peer, "prepare")?;
                let prepared = self.make_ready(&device);
                self.wake();
                prepared.map(|()| json!({}))
            }
            Request::EndClients(EndClientsRequest { container }) => {
                owner_alone(peer, "end-clients")?;
                let ended = self.control.end_clients(&container)?;
                Ok(json!({ "clients": ended }))
            }
            Request::Mps(request) => {
                owner_alone(peer, "mps")?;
                self.mps(&request)
            }
            Request::Enter(request) => self.opened(entry::enter(self, peer, client, &request)),
            Request::Leave(LeaveRequest { container }) => entry::leave(self, peer, container),
            Request::Claim(request) => self.opened(own::claim(self, peer, client, request)),
            Request::Run(request) => self.opened(program::run(self, peer, client, &request)),
            Request::Release(ReleaseRequest { what, force }) => own::release(self, peer, &what, force),
            Request::Turn(request) => turns::put_aside(self, peer, &request),
            Request::FirstTurn(request) => turns::first_turn(self, peer, &request),
            Request::List(ListRequest {}) => own::list(self, peer),
            Request::Status(StatusRequest {}) => {
                self.write_status()?;
                own::list(self, peer)
            }
            Request::ReserveTime(request) => times::reserve(self, peer, request),
            Request::CancelTime(request) => times::cancel(self, peer, &request),
            Request::Calendar(CalendarRequest {}) => times::show(self, peer),
            Request::Offers(OffersRequest {}) => {
                owner_alone(peer, "offers")?;
                kubernetes::offers(self)
            }
            Request::Reserve(ReserveRequest { pod, devices }) => {
                owner_alone(peer, "reserve")?;
                kubernetes::reserve(self, &pod, &devices)
            }
            Request::GiveUp(GiveUpRequest { pod, devices }) => {
                owner_alone(peer, "give-up")?;
                kubernetes::give_up(self, &pod, &devices)
            }
            Request::Policy(PolicyRequest { text }) => {
                owner_alone(peer, "policy")?;
                kubernetes::policy(self, text.as_deref())
            }
            Request::DraDevices(DraDevicesRequest {}) => {
                owner_alone(peer, "dra-devices")?;
                kubernetes::dra_devices(self)
            }
            Request::PrepareClaim(request) => {
                owner_alone(peer, "prepare-claim")?;
                kubernetes::prepare_claim(self, &request)
            }
            Request::UnprepareClaim(UnprepareClaimRequest { uid }) => {
                owner_alone(peer, "unprepare-claim")?;
                kubernetes::unprepare_claim(self, &uid)
            }
            Request::Mig(request) => {
                owner_alone(peer, "mig")?;
                mig::change(self, |host| crate::mig::apply(host, &request))
            }
            Request::MigRestore(MigRestoreRequest {}) => {
                owner_alone(peer, "mig-restore")?;
                mig::change(self, crate::mig::restore)
            }
            Request::MigMake(MigMakeRequest { profile }) => {
                owner_alone(peer, "mig-make")?;
                let made = on_demand::make(self, &profile)?;
                self.wake();
                serde_json::to_value(made).about("broker", "cannot write its answer")
            }
        }
    }

    /// Makes `device` ready for all claims that the ledger has on it.
    ///
    /// # Errors
    /// Returns why the claims cannot be served.
    pub(super) fn make_ready(&self, device: &DeviceKey) -> Result<()> {
        let facts = self.facts();
        let split = facts
            .iter()
            .flat_map(|facts| &facts.plan.devices)
            .find(|split| split.key == *device);
        match split.map(|split| (&split.method, &split.product)) {
            Some((Method::Turns(turns), product)) => {
                let access = facts.as_ref().map_or(Access::Open, |facts| facts.plan.access);
                if Enforcement::on(&self.options.host, access)? != Enforcement::InForce {
                    let error = Error::failed(device, "is given by turns, and access: enforce is not in force");
                    return Err(error.hint("run: tranche system protect; it is in force after the next boot"));
                }
                let driver = facts.iter().find_map(|facts| facts.inventory.driver.as_ref());
                if !turns.settings.assume_tested
                    && let Err(why) = turn_tries::read(self.state_dir())?.rate(driver, product)
                {
                    let hint =
                        "run tranche turns try, or set assumeTested: true below sharing.turns to rely on the driver";
                    return Err(Error::failed(device, why).hint(hint));
                }
                self.turns.wait_ready(device)
            }
            Some((Method::TimeSlicing(_) | Method::Mps(_) | Method::Dedicated(_), _)) | None => {
                self.control.prepare(device)
            }
        }
    }

    fn mps(&self, request: &MpsRequest) -> Result<Value> {
        match request {
            MpsRequest::Start { device } => self.control.start(device),
            MpsRequest::Stop { device, force } => self.control.stop(device, *force),
            MpsRequest::Restart { device } => self.control.restart(device),
            MpsRequest::Status => {
                return Ok(json!({ "devices": self.control.devices(), "problems": self.control.unreadable() }));
            }
        }?;
        self.wake();
        self.write_status()?;
        Ok(json!({}))
    }

    /// Lets the machine be compared with the ledger soon: from now on something of it may be changed, and has to be
    /// watched.
    pub(super) fn wake(&self) {
        // If the socket is full, the thread wakes anyway.
        let _ = (&mut &*self.wake).write(&[0]);
    }

    pub(super) fn facts(&self) -> Result<Arc<Facts>> {
        self.host.now()
    }

    /// The device nodes of the machine, with what is known of containers that start.
    pub(super) fn nodes<'n>(&'n self, starting: &'n [(InitProcess, u32)]) -> KeptNodes<'n> {
        KeptNodes {
            starting,
            host: &self.options.host,
            state_dir: self.state_dir(),
            accounts: self.accounts,
        }
    }

    /// Gives the device nodes the lists that follow from the ledger. What is wrong is logged once, while it lasts.
    pub(super) fn keep_nodes(&self) {
        let Ok(facts) = self.facts() else { return };
        let starting = {
            let mut starting = lock(&self.starting);
            if !starting.is_empty() {
                let machine = Machine::here();
                let is_alive = |init: &InitProcess| machine.as_ref().is_ok_and(|machine| !machine.has_ended(init));
                starting.retain(|(init, _)| is_alive(init));
            }
            starting.clone()
        };
        let kept = self.nodes(&starting).keep(&facts.inventory, &facts.plan);
        let wrong = kept.unwrap_or_else(|error| vec![error]);
        let wrong: BTreeSet<String> = wrong.iter().map(|error| line(error)).collect();
        let before = std::mem::replace(&mut *lock(&self.nodes_wrong), wrong.clone());
        wrong.difference(&before).for_each(|line| tracing::warn!("{line}"));
    }

    /// `granted`, when the user who has it may open its nodes.
    fn opened(&self, granted: Result<Value>) -> Result<Value> {
        if granted.is_ok() {
            self.keep_nodes();
        }
        granted
    }

    /// Whether the policy limits for how long users may hold something.
    pub(super) fn limits_time(&self) -> bool {
        self.facts().is_ok_and(|facts| facts.plan.users.limits_time())
    }

    pub(super) fn state_dir(&self) -> &Path {
        &self.options.state_dir
    }

    /// The ledger as `peer` may use it.
    pub(super) fn claims(&self, peer: &BrokerClient) -> Result<Claims> {
        peer.caller().claims(self.state_dir())
    }
}

fn owner_alone(peer: &BrokerClient, command: &str) -> Result<()> {
    match peer.is_owner() {
        true => Ok(()),
        false => Err(Error::failed(command, "only root may ask for this")),
    }
}
