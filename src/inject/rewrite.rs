//! From a container's configuration to one with the devices that it asks for.

use super::request::{self, ImexRequest, Request, RequestSource, WantedWait};
use super::resolve::{self, ResolvedRequest};
use super::{CallingEngine, clean, document, gone, on_demand, require};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tranche_core::call::ClaimCall;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::ledger::{Claim, ContainerName, Holder, OutOfService};
use tranche_core::root::is_in_user_namespace;
use tranche_core::types::{DeviceKey, HostPath, WaitTime};
use tranche_plan::cdi::{self, ContainerEdits, inject};
use tranche_plan::derive::{self, ContainerError, DeviceChoice, HookOptions, Mode, Options, ReservedShares, Sharing};
use tranche_plan::edits::Edits;
use tranche_plan::host_file::{HostFile, HostFileSeen};
use tranche_plan::policy::RuntimeSettings;
use tranche_plan::reserve::{
    OfExamined, Reservation, Unoffered, explain as explain_reserve, findings, held_unsplit, list,
};
use tranche_plan::share::{Plan, Wish};

/// The start of a container.
pub struct RewriteContext<'a> {
    /// What the owner of the machine decided about requests.
    pub settings: &'a RuntimeSettings,
    /// The state directory of tranche.
    pub state_dir: &'a Path,
    /// What is known of the host. Called only for a container that asks for something.
    pub host: &'a dyn Fn() -> Result<HostFile>,
    /// The engine that starts it.
    pub caller: CallingEngine,
    /// The container; `None` if its name is not known yet.
    pub container: Option<ContainerName>,
    /// The process that creates the container, and with which a reservation ends. Without it, a reservation ends after
    /// a minute.
    pub process: Option<u32>,
    /// Writes what is known of the host anew, by a refresh with these arguments.
    pub refresh: &'a dyn Fn(&[String]) -> Result<()>,
    /// Gets what the container does not get in the way in which it asked for it.
    pub remark: &'a dyn Fn(Error),
}

/// Gives the container of `config` what it asks for, and reserves its shares. Returns the new configuration; `None` if
/// the container asks for nothing, and the old one stays as it is. Mounts of the driver's files that a container can do
/// without are removed if they are gone.
///
/// # Errors
/// Returns an error if the container asks for something that it cannot get. Then nothing is reserved.
pub fn rewrite(config: &[u8], context: &RewriteContext<'_>) -> Result<Option<Vec<u8>>> {
    let new = rewrite_request(config, context)?;
    let less = gone::without(new.as_deref().unwrap_or(config), context);
    Ok(less.or(new))
}

/// As [`rewrite`], for what the container asks for.
fn rewrite_request(config: &[u8], context: &RewriteContext<'_>) -> Result<Option<Vec<u8>>> {
    let mut asked = request::of(config, context.settings, context.caller)?;
    if asked.request.is_none() {
        report(asked.notes, context);
        return without_limits_of_tenant(config);
    }
    let mut seen = HostFileSeen::now(context.state_dir);
    let mut host = (context.host)()?;
    // The settings may be the defaults, because the host was not known when they were read.
    let settings = RuntimeSettings {
        mode: context.settings.mode,
        ..host.runtime.clone()
    };
    if settings != *context.settings {
        asked = request::of(config, &settings, context.caller)?;
    }
    report(asked.notes, context);
    let Some(mut request) = asked.request else {
        return without_limits_of_tenant(config);
    };
    let mut document = document::parse(config)?;
    let mut ledger = StartLedger::open(context.state_dir, &host)?;
    if ledger.serves(&document, context.container.as_ref())? {
        // Another program of tranche, such as podman's precreate hook, has reserved what this start needs.
        return Ok(None);
    }
    if on_demand::make(&mut request, context.state_dir)? {
        seen = HostFileSeen::now(context.state_dir);
        host = (context.host)()?;
        ledger = StartLedger::open(context.state_dir, &host)?;
    }
    let (wait, shortened) = wait(&request, &host);
    report(shortened.into_iter().collect(), context);
    let injection = Injection {
        wait,
        request: &request,
        host: &host,
        seen: &seen,
        ledger: &ledger,
        context,
    };
    injection.apply(&mut document)?;
    document::bytes(&document).map(Some)
}

/// The configuration of a container that asks for nothing here. An engine may have added a claim by itself, from a
/// specification: then the limits that the tenant or the image set are removed, and those of the share stay. `None` if
/// the configuration stays as it is.
///
/// # Errors
/// Returns an error if a configuration that may have such a claim does not parse.
fn without_limits_of_tenant(config: &[u8]) -> Result<Option<Vec<u8>>> {
    if !clean::may_have_claim(config) {
        return Ok(None);
    }
    let mut document = document::parse(config)?;
    match clean::remove_limits(&mut document) {
        true => document::bytes(&document).map(Some),
        false => Ok(None),
    }
}

/// How long the start waits: what the container asks for takes precedence over the policy's `wait`, as far as the owner
/// of the machine lets somebody who asks in that way hold others up. Says so if it is shorter than asked for.
fn wait(request: &Request, host: &HostFile) -> (WaitTime, Option<String>) {
    let of_policy = host.plan.wait;
    let Some(WantedWait { time, source }) = request.wait else {
        return (of_policy, None);
    };
    let (key, most) = match source {
        RequestSource::Environment => ("environment", host.runtime.max_wait.environment),
        RequestSource::Annotation | RequestSource::Volume => ("annotation", host.runtime.max_wait.annotation),
    };
    // A container that asks for no time may wait as long as the policy says.
    let most = most.max(of_policy);
    let note = || format!("a wait of {time} is shortened to {most}, because others wait behind it (maxWait.{key})");
    (time.min(most), (time > most).then(note))
}

fn report(notes: Vec<String>, context: &RewriteContext<'_>) {
    for note in notes {
        (context.remark)(Error::failed("request", note));
    }
}

/// Withdraws what was reserved for the start from `config`, which [`rewrite`] returned, because nobody gets it.
///
/// # Errors
/// Returns an error if the ledger cannot be written.
pub fn withdraw(config: &[u8], state_dir: &Path) -> Result<()> {
    let names = clean::start_claims(&document::parse(config)?);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match Claims::existing(state_dir)?.filter(|_| !names.is_empty()) {
        Some(claims) => Ok(claims.withdraw(&names)?),
        None => Ok(()),
    }
}

/// The ledger, if there is one or if the plan needs one.
pub(super) struct StartLedger {
    claims: Option<Claims>,
    /// Devices that the plan does not split and of which something is held under an earlier policy.
    pub(super) held: BTreeSet<DeviceKey>,
    pub(super) out_of_service: OutOfService,
}

impl StartLedger {
    pub(super) fn open(state_dir: &Path, host: &HostFile) -> Result<Self> {
        let claims = match host.plan.devices.is_empty() {
            // A rootless engine has no part in root's ledger.
            _ if is_in_user_namespace() => None,
            true => Claims::existing(state_dir)?,
            false => Some(Claims::open(state_dir)?),
        };
        // The engine, which started this process.
        let claims = claims.map(|claims| claims.called_by(1));
        let mut held = BTreeSet::new();
        if let Some(claims) = &claims {
            let books = claims.books()?;
            let found = findings(&host.plan, &books.books);
            held = held_unsplit(&found, &books, host.inventory.gpus.iter().map(|gpu| &gpu.uuid));
        }
        Ok(Self {
            claims,
            held,
            out_of_service: OutOfService::read(state_dir),
        })
    }

    /// Whether `config` has claims that exist and were made for the start of `container`, or of one whose name was not
    /// known. Another container of the same bundle, or of a copy of it, has claims of its own.
    fn serves(&self, config: &Value, container: Option<&ContainerName>) -> Result<bool> {
        let names = clean::start_claims(config);
        let Some(claims) = self.claims.as_ref().filter(|_| !names.is_empty()) else {
            return Ok(false);
        };
        let books = claims.books()?.books;
        let is_for_this = |claim: &Claim| match &claim.holder {
            Holder::Person => true,
            Holder::Container(name) => Some(name) == container,
            Holder::Rootless { .. } | Holder::Process { .. } => false,
            Holder::Pod(_) | Holder::ResourceClaim(_) => false,
        };
        let exists = |name: &String| books.iter().any(|book| book.named(name).is_some_and(is_for_this));
        Ok(names.iter().all(exists))
    }
}

/// What is injected into one container.
struct Injection<'a> {
    request: &'a Request,
    /// How long the start waits for what others hold.
    wait: WaitTime,
    host: &'a HostFile,
    /// `host.json` as it was before it was read.
    seen: &'a HostFileSeen,
    ledger: &'a StartLedger,
    context: &'a RewriteContext<'a>,
}

impl Injection<'_> {
    fn apply(&self, config: &mut Value) -> Result<()> {
        let reservation = |wish: Wish| {
            let holder = self.context.container.clone().map_or(Holder::Person, Holder::Container);
            Reservation::for_start(wish, holder, self.context.process)
        };
        let resolved = resolve::resolve(
            self.request,
            self.host,
            &self.ledger.held,
            &self.ledger.out_of_service,
            &reservation,
        )?;
        let mut edits = self.beside_gpus()?;
        // Everything that can fail without a claim comes before the claim.
        let reserved = self.reserve(&resolved.reservations)?;
        let done = self
            .of_gpus(&resolved, &reserved)
            .and_then(|of_gpus| edits.merge(&of_gpus))
            .and_then(|()| self.inject(config, resolved.specified, &edits));
        if done.is_err() {
            self.withdraw(&reserved)?;
        }
        done
    }

    /// The edits for what is asked for in addition to GPUs.
    fn beside_gpus(&self) -> Result<Edits> {
        let mut all = Edits::default();
        for mode in &self.request.modes {
            all.merge(&self.what_there_is(*mode)?)?;
        }
        match &self.request.imex {
            ImexRequest::All => all.merge(&self.what_there_is(Mode::Imex)?)?,
            ImexRequest::Channels(channels) if channels.is_empty() => {}
            ImexRequest::Channels(channels) => {
                let channels = channels.iter().map(|id| DeviceChoice::Channel(*id)).collect();
                all.merge(&self.all_of(Mode::Imex, channels)?)?;
            }
        }
        let config = resolve::is_meant(self.request.mig_config.as_ref(), self.host)?;
        let monitor = resolve::is_meant(self.request.mig_monitor.as_ref(), self.host)?;
        if config || monitor {
            all.merge(&derive::mig_access(
                &self.host.inventory,
                &self.options(None),
                config,
                monitor,
            )?)?;
        }
        Ok(all)
    }

    /// The edits of the device `all` of `mode`; none, with a remark, if this host has nothing of it. As with NVIDIA's
    /// runtime, such a container starts: images that can use GPUDirect Storage ask for it on every host.
    fn what_there_is(&self, mode: Mode) -> Result<Edits> {
        match self.all_of(mode, Vec::new()) {
            Err(error) if error.kind() == Kind::Nothing => {
                let object =
                    request::switch(mode).map_or("every IMEX channel".to_owned(), |name| format!("{name}=enabled"));
                let what = Error::failed(object, "has no effect, and the container starts without it");
                (self.context.remark)(what.from_source(error));
                Ok(Edits::default())
            }
            edits => edits,
        }
    }

    /// The edits of the device `all` of `mode`, with `devices` alone if there are any.
    fn all_of(&self, mode: Mode, devices: Vec<DeviceChoice>) -> Result<Edits> {
        let options = Options {
            mode,
            devices,
            ..self.options(None)
        };
        let derived = derive::derive(&self.host.inventory, &options)?;
        let mut edits = derived.common;
        for device in derived.devices.iter().filter(|device| device.name.as_str() == "all") {
            edits.merge(&device.edits)?;
        }
        Ok(edits)
    }

    /// The edits of whole devices and reserved shares, with the driver's files.
    fn of_gpus(&self, resolved: &ResolvedRequest, reserved: &[ReservedShares]) -> Result<Edits> {
        let devices = resolved
            .plain
            .iter()
            .copied()
            .chain(reserved.iter().map(|one| one.fit.device));
        match require::check(&self.request.requirements, &resolve::facts(self.host, devices)) {
            Err(error) if !self.request.requirements_bind => (self.context.remark)(error),
            checked => checked?,
        }
        if !resolved.driver {
            return Ok(Edits::default());
        }
        let sharing = Sharing {
            plan: Arc::new(Plan {
                wait: self.wait,
                ..self.host.plan.clone()
            }),
            held: self.ledger.held.clone(),
            out_of_service: self.ledger.out_of_service.clone(),
            state_dir: HostPath::new(self.context.state_dir)?,
        };
        let options = self.options(Some(sharing));
        let derived = derive::container(&self.host.inventory, &options, &resolved.plain, reserved);
        let derived = derived.map_err(|error| match error {
            ContainerError::Failed(error) => error,
            mps @ ContainerError::NotBesideMps { .. } => Error::usage("request", mps),
        })?;
        let mut edits = derived.common;
        for device in &derived.devices {
            edits.merge(&device.edits)?;
        }
        Ok(edits)
    }

    fn options(&self, sharing: Option<Sharing>) -> Options {
        let settings = &self.host.runtime;
        let mut hook = HookOptions::at(self.host.hook.clone());
        hook.disabled.extend(settings.disabled_hooks.iter().copied());
        Options {
            hook: Some(hook),
            capabilities: self.request.capabilities.clone(),
            additional_gids: settings.additional_gids,
            sharing,
            ..Options::default()
        }
    }

    /// Changes `config`.
    fn inject(&self, config: &mut Value, specified: ContainerEdits, edits: &Edits) -> Result<()> {
        clean::remove_nvidia_hook(config);
        clean::remove_start_claims(config);
        clean::remove_mounts(config, &self.request.request_mounts);
        // What the engine has resolved before, and a claim hook of an earlier pass.
        clean::remove_limits(config);
        let mut all = specified;
        all.append(&cdi::build::edits(edits));
        if all.hooks.iter().any(|hook| ClaimCall::of_hook(&hook.args).is_some()) {
            clean::remove_every_limit(config);
        }
        // The variable that asked keeps its value: a later start from this configuration asks for the same again.
        all.env.retain(|entry| !entry.starts_with("NVIDIA_VISIBLE_DEVICES="));
        all.hooks.retain(|hook| !clean::has_hook(config, hook));
        let rules = clean::count_rules(config);
        inject::apply(config, &all, &inject::host_node)?;
        clean::remove_repeated_rules(config, rules);
        Ok(())
    }

    /// Reserves what is asked for, all or nothing.
    fn reserve(&self, reservations: &[Reservation]) -> Result<Vec<ReservedShares>> {
        let asked: Vec<&str> = reservations.iter().filter_map(|one| one.asked_as.as_deref()).collect();
        let asked = asked.join(", ");
        let Some(claims) = self.ledger.claims.as_ref().filter(|_| !reservations.is_empty()) else {
            return match reservations.is_empty() {
                true => Ok(Vec::new()),
                false if is_in_user_namespace() => Err(Error::failed(
                    asked,
                    "in a user's own engine, this runtime reserves no shares",
                )
                .hint("ask for the share by its CDI name, with --device; its hook gets it from the broker")),
                false => Err(Error::usage(asked, "the policy of this host splits no device")
                    .hint("write a sharing section into /etc/tranche/config.yaml, and run tranche cdi refresh")),
            };
        };
        let plan = &self.host.plan;
        let offer = OfExamined {
            offer: Unoffered,
            inventory: &self.host.inventory,
            seen: self.seen,
        };
        let taken = plan
            .reserve_all_waiting(claims, reservations, &offer, self.wait.get())
            .map_err(|error| explain_reserve(asked, error, list))?;
        let taken = taken.into_iter().zip(reservations);
        Ok(taken
            .map(|((fit, _), reservation)| ReservedShares {
                claim: reservation.name.clone(),
                asked_as: reservation.asked_as.clone(),
                fit,
            })
            .collect())
    }

    /// Withdraws what was reserved for a start that fails.
    fn withdraw(&self, reserved: &[ReservedShares]) -> Result<()> {
        let names: Vec<&str> = reserved.iter().map(|one| one.claim.as_str()).collect();
        match self.ledger.claims.as_ref().filter(|_| !names.is_empty()) {
            Some(claims) => Ok(claims.withdraw(&names)?),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
