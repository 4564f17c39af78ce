//! What a request means on this host: devices, shares to reserve, and devices of other specifications.

use super::request::{self, MigAccess, Request, RequestSource, WantedDevice};
use super::require::{RequiredGpu, RequirementFacts};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use tranche_core::call::ClaimCall;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{OutOfService, WhyOut};
use tranche_core::text::candidates;
use tranche_core::types::{CdiKind, Device, DeviceKey, DevicePart, Part, QualifiedName, ShareName, Subject};
use tranche_plan::cdi::registry::Registry;
use tranche_plan::cdi::{ContainerEdits, inject, unresolvable};
use tranche_plan::guarded::GuardedDevices;
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::{Catalogue, HostDevice};
use tranche_plan::policy::ClaimsFromEnvironment;
use tranche_plan::reserve::Reservation;
use tranche_plan::share::{SplitDevice, Wish};

/// What a request means on this host.
#[derive(Debug, Default)]
pub(super) struct ResolvedRequest {
    /// Devices that the container gets whole.
    pub(super) plain: Vec<Device>,
    /// Shares to reserve, one entry for each device or for any device.
    pub(super) reservations: Vec<Reservation>,
    /// Edits of devices that CDI specifications on this host define.
    pub(super) specified: ContainerEdits,
    /// Whether the container gets the driver's files by a plain device, a share, or because it asks for them alone.
    pub(super) driver: bool,
}

/// Works out what `request` means. `held` are the devices of which something is held under an earlier policy: `all`
/// contains none of them, and none of those in `out_of_service`. `reservation` makes a reservation for this start.
///
/// # Errors
/// Returns a usage error for a device or a share that does not exist; it says which ones there are, or where they were
/// searched. Returns the refusal of a claim that the environment may not ask for, and of a device of a specification
/// with nodes of a device that is split, dedicated or held.
pub(super) fn resolve(
    request: &Request,
    host: &HostFile,
    held: &BTreeSet<DeviceKey>,
    out_of_service: &OutOfService,
    reservation: &dyn Fn(Wish) -> Result<Reservation>,
) -> Result<ResolvedRequest> {
    let mut resolver = Resolver {
        request,
        host,
        catalogue: host.inventory.catalogue(),
        held,
        out_of_service,
        guarded: GuardedDevices::of(&host.plan, held, &host.inventory),
        registry: OnceCell::new(),
        reservation,
        plain: Vec::new(),
        shares: BTreeMap::new(),
        any: Vec::new(),
        names: Vec::new(),
        driver_only: request.driver_only,
    };
    for wanted in &request.devices {
        resolver.add(wanted)?;
    }
    let mut reservations: Vec<Reservation> = resolver.shares.into_values().collect();
    reservations.append(&mut resolver.any);
    if let Some(size) = &request.size {
        let device = size
            .device
            .as_ref()
            .map(|selector| resolver.catalogue.get(selector))
            .transpose()?;
        let wish = Wish {
            memory: size.memory,
            compute: size.compute,
            shares: size.shares.and_then(|number| usize::try_from(number).ok()),
            device: device.map(HostDevice::device),
            select: request.select.clone(),
            ..Wish::default()
        };
        let of = device.map_or("any device".to_owned(), |device| device.to_string());
        let asked_as = Some(format!("{} of {of}", wish.text()));
        reservations.push(Reservation {
            asked_as,
            ..reservation(wish)?
        });
    }
    let registry = resolver.registry.get();
    let found = resolver.names.iter().filter_map(|name| registry?.find(name));
    let specified = inject::collect(found.map(|found| (&found.file.spec, found.device)));
    Ok(ResolvedRequest {
        driver: !resolver.plain.is_empty() || !reservations.is_empty() || resolver.driver_only,
        plain: resolver.plain,
        reservations,
        specified,
    })
}

struct Resolver<'a> {
    host: &'a HostFile,
    request: &'a Request,
    catalogue: Catalogue<'a>,
    held: &'a BTreeSet<DeviceKey>,
    out_of_service: &'a OutOfService,
    guarded: GuardedDevices,
    /// Read only if a request needs it.
    registry: OnceCell<Registry>,
    reservation: &'a dyn Fn(Wish) -> Result<Reservation>,
    plain: Vec<Device>,
    /// The shares of each device.
    shares: BTreeMap<Device, Reservation>,
    /// One for each whole device that is not named.
    any: Vec<Reservation>,
    names: Vec<QualifiedName>,
    driver_only: bool,
}

impl<'a> Resolver<'a> {
    fn add(&mut self, wanted: &WantedDevice) -> Result<()> {
        match wanted {
            WantedDevice::All => self.all(),
            WantedDevice::Any => self.any(),
            WantedDevice::Part(DevicePart { device, part }) => {
                let device = self.catalogue.get_in_any_case(device)?;
                self.part(device, part)
            }
            WantedDevice::Cdi(name) => self.cdi(name),
        }
    }

    /// Every device that is neither split nor dedicated nor held.
    fn all(&mut self) -> Result<()> {
        let is_held = |device: &HostDevice<'_>| self.held.iter().any(|held| held.overlaps(&device.key()));
        let is_free = |device: &HostDevice<'_>| self.host.plan.split(device.device()).is_none() && !is_held(device);
        let (out, free): (Vec<_>, Vec<_>) = self
            .catalogue
            .usable()
            .filter(is_free)
            .partition(|device| self.why_out(*device).is_some());
        if free.is_empty() {
            if let Some(device) = out.first() {
                return self.check_in_service(*device);
            }
            let names: Vec<String> = self.catalogue.usable().map(HostDevice::name).collect();
            if names.is_empty() {
                return Err(Error::usage("device all", "this host has no GPU"));
            }
            let what = "this host has no device that is neither split nor dedicated";
            let hint = format!("ask for one of {}, or for a share of it", candidates("", &names));
            return Err(Error::usage("device all", what).hint(hint));
        }
        free.into_iter().for_each(|device| self.push(device.device()));
        Ok(())
    }

    /// One more free device, whole. A container that asks for more than the policy gives whole is refused at once: each
    /// costs a reservation, and an environment may ask for a hundred thousand.
    fn any(&mut self) -> Result<()> {
        let name = CdiKind::nvidia_gpu().device(ShareName::ANY.parse()?);
        let wish = Wish::whole(self.request.select.clone());
        let most = self
            .host
            .plan
            .devices
            .iter()
            .filter(|split| wish.is_about(split))
            .count();
        if most > 0 && self.any.len() >= most {
            let what = "asked for more often than there are devices that can serve it";
            return Err(Error::usage(name, what).hint(format!("ask for at most {most}")));
        }
        self.any.push(Reservation {
            asked_as: Some(name.to_string()),
            ..(self.reservation)(wish)?
        });
        Ok(())
    }

    fn push(&mut self, device: Device) {
        if !self.plain.contains(&device) {
            self.plain.push(device);
        }
    }

    fn why_out(&self, device: HostDevice<'_>) -> Option<WhyOut> {
        self.out_of_service.why(&device.key())
    }

    /// Refuses a device that is out of service and that nothing claims. A claim is refused by the ledger.
    fn check_in_service(&self, device: HostDevice<'_>) -> Result<()> {
        let Some(why) = self.why_out(device) else {
            return Ok(());
        };
        let others = self.catalogue.usable().filter(|other| self.why_out(*other).is_none());
        let others: Vec<String> = others.map(HostDevice::name).collect();
        let error = Error::failed(device, why);
        Err(match others.is_empty() {
            true => error.hint("this host has no other device"),
            false => error.hint(format!("other devices: {}", candidates("", &others))),
        })
    }

    /// A part of `device`. The whole of a dedicated device is reserved as its only share, so that a start can wait for
    /// it.
    fn part(&mut self, device: HostDevice<'_>, part: &Part) -> Result<()> {
        let is_dedicated = |split: &SplitDevice| split.method.is_whole();
        if *part == Part::Whole && !self.host.plan.split(device.device()).is_some_and(is_dedicated) {
            self.check_in_service(device)?;
            self.push(device.device());
            return Ok(());
        }
        let asked_as = format!("{}={}", CdiKind::nvidia_gpu(), part.name_of(device.name()));
        self.share(device, part, asked_as)
    }

    fn share(&mut self, device: HostDevice<'_>, part: &Part, asked_as: String) -> Result<()> {
        let reservation = match self.shares.entry(device.device()) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => place.insert((self.reservation)(Wish::default())?),
        };
        reservation.wish.add(&self.host.plan, device, part, &asked_as)?;
        // Once each: it is recorded in the ledger, and a request may repeat a name as often as an environment is long.
        match &mut reservation.asked_as {
            Some(known) if known.split(", ").any(|one| one == asked_as) => {}
            Some(known) => known.extend([", ", asked_as.as_str()]),
            none => *none = Some(asked_as),
        }
        Ok(())
    }

    /// A device by its CDI name: a share of the plan, a device of a specification on this host, or a device that
    /// tranche knows without a specification. Where the plan splits or dedicates a device, the names of NVIDIA's kind
    /// mean what the plan says, whatever a specification defines under them.
    fn cdi(&mut self, name: &QualifiedName) -> Result<()> {
        if name.kind == CdiKind::claim() {
            self.refuse_claim_of_environment(name)?;
        }
        if let Some((device, part)) = self.share_of_plan(name) {
            return self.share(device, &part, name.to_string());
        }
        if !self.guarded.is_empty() && self.own(name)? {
            return Ok(());
        }
        let dirs = &self.host.runtime.spec_dirs;
        let registry = self.registry.get_or_init(|| Registry::read(dirs));
        if let Some(found) = registry.find(name) {
            let edits = [&found.file.spec.edits, &found.device.edits];
            let claims = edits.iter().flat_map(|edits| &edits.hooks);
            let mut claims = claims.filter_map(|hook| ClaimCall::of_hook(&hook.args));
            if claims.any(|call| matches!(call.subject, Subject::Claim(..))) {
                self.refuse_claim_of_environment(name)?;
            }
            if let Some(open) = self
                .guarded
                .open_node(edits.into_iter())
                .filter(|_| !self.is_unchecked(name))
            {
                let object = format!("{name} of {}", found.file.path.display());
                return Err(open
                    .refusal(object)
                    .and_hint(format!("or list {} in runtime.uncheckedKinds of the policy", name.kind)));
            }
            self.names.push(name.clone());
            return Ok(());
        }
        if self.own(name)? {
            return Ok(());
        }
        let registry = self.registry.get_or_init(|| Registry::read(dirs));
        Err(unresolvable(&name.to_string(), registry, dirs))
    }

    /// Adds the device that `name` means without a specification. Returns false if it means none.
    fn own(&mut self, name: &QualifiedName) -> Result<bool> {
        if name.kind != CdiKind::nvidia_gpu() {
            return Ok(false);
        }
        if name.device.as_str() == "none" {
            self.driver_only = true;
            return Ok(true);
        }
        match WantedDevice::of_name(name.device.as_str()) {
            Some(WantedDevice::All) => self.all()?,
            Some(WantedDevice::Any) => self.any()?,
            Some(WantedDevice::Part(DevicePart {
                device,
                part: Part::Whole,
            })) => match self.catalogue.find(&device) {
                Some(device) => self.part(device, &Part::Whole)?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the owner of the machine lets devices of this kind have nodes of split and dedicated devices.
    fn is_unchecked(&self, name: &QualifiedName) -> bool {
        match &self.host.runtime.unchecked_kinds {
            Some(kinds) => kinds.contains(&name.kind),
            None => self.request.is_privileged && name.kind == CdiKind::nvidia_management(),
        }
    }

    /// Refuses a claim that was made beforehand if the environment asks for it and may not: the image can set it.
    fn refuse_claim_of_environment(&self, name: &QualifiedName) -> Result<()> {
        let may = self.host.runtime.claims_from_environment == ClaimsFromEnvironment::Always;
        if may || self.request.source != RequestSource::Environment {
            return Ok(());
        }
        let what = "a claim is not taken from the environment, which the image can set (claimsFromEnvironment: never)";
        let claim = name.device.as_str();
        Err(Error::usage(name, what).hint(format!(
            "ask with --device {name}, or with the mount -v /dev/null:{}",
            request::claim_mount(claim)
        )))
    }

    /// The share of the plan that `name` means under the kind of its device's shares.
    fn share_of_plan(&self, name: &QualifiedName) -> Option<(HostDevice<'a>, Part)> {
        let DevicePart { device, part } = name.device.as_str().parse().ok()?;
        let device = self.catalogue.find(&device)?;
        let split = self.host.plan.split(device.device())?;
        (split.kind == name.kind && part != Part::Whole).then_some((device, part))
    }
}

/// What requirements are checked against: the driver, and the GPUs of `devices`.
pub(super) fn facts(host: &HostFile, devices: impl Iterator<Item = Device>) -> RequirementFacts {
    let catalogue = host.inventory.catalogue();
    let driver = host.inventory.driver.as_ref();
    let gpus = devices
        .filter_map(|device| catalogue.at(device))
        .map(|one| RequiredGpu {
            label: one.to_string(),
            arch: one.gpu.compute_capability,
            brand: brand(&one.gpu.name).map(str::to_owned),
        });
    RequirementFacts {
        driver: driver.map(|driver| driver.version.clone()),
        cuda: driver.and_then(|driver| driver.cuda),
        gpus: gpus.collect(),
    }
}

/// The brand of a GPU, as far as its product name says it. For others the brand is not known, and then a condition on
/// it holds.
fn brand(product: &str) -> Option<&'static str> {
    let brands = [
        ("GeForce", "geforce"),
        ("Tesla", "tesla"),
        ("Quadro", "quadro"),
        ("TITAN", "titan"),
    ];
    brands
        .into_iter()
        .find(|(word, _)| product.contains(word))
        .map(|(_, brand)| brand)
}

/// Whether a request for MIG access concerns any device of this host.
///
/// # Errors
/// Returns a usage error if it names a device that this host does not have.
pub(super) fn is_meant(access: Option<&MigAccess>, host: &HostFile) -> Result<bool> {
    match access {
        None => Ok(false),
        Some(MigAccess::All) => Ok(true),
        Some(MigAccess::Devices(devices)) => {
            let catalogue = host.inventory.catalogue();
            devices
                .iter()
                .try_for_each(|selector| catalogue.get(selector).map(drop))?;
            Ok(!devices.is_empty())
        }
    }
}
