//! A claim that is made beforehand: the reservation that it asks for, and the file that offers it to engines.

use super::{file, sweep};
use crate::replace;
use std::path::Path;
use tranche_core::claims::remove;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::{Claim, is_start_name};
use tranche_core::text::some;
use tranche_core::types::{CdiKind, HostPath, QualifiedName, RequestedDevice, Selection, ShareName};
use tranche_plan::cdi::build;
use tranche_plan::cdi::encode::{Format, encode};
use tranche_plan::derive::{self, HookOptions, Options, Sharing};
use tranche_plan::inventory::Inventory;
use tranche_plan::reserve::{Offer, Reservation};
use tranche_plan::share::{Fit, Plan, Share, SplitDevice, Wish};
use tranche_protocol::ClaimRequest;

/// The name of the claim `name` for engines.
///
/// # Errors
/// Returns a usage error if CDI does not allow the name, or if it is one that starts of containers use or that means
/// devices (`all`, `0`).
pub fn device_name(name: &str) -> Result<QualifiedName> {
    let refused = |what: &str| Error::usage(format!("claim {name}"), what).hint("choose another name");
    if is_start_name(name) {
        return Err(refused("is a name that starts of containers use"));
    }
    if is_reserved(name) {
        return Err(refused("is a word or a number that means devices elsewhere"));
    }
    CdiKind::of_claim(name).parse()
}

/// The reservation of what `request` asks for.
///
/// # Errors
/// Returns a usage error if the device is not shared by `plan`, or if a size is asked for and no share has one.
pub fn reservation(request: &ClaimRequest, inventory: &Inventory, plan: &Plan) -> Result<Reservation> {
    if request.memory.is_some_and(|m| m.mib() == 0) {
        let error = Error::usage("--memory 0", "a claim needs some memory");
        return Err(error.hint("leave the option out for a share of any size"));
    }
    let device = request
        .device
        .as_ref()
        .and_then(RequestedDevice::named)
        .map(|selector| {
            let device = inventory.catalogue().get(selector)?;
            Ok::<_, Error>(plan.shared(device, format_args!("device {selector}"))?.device)
        });
    let has_amount = request.memory.is_some() || request.compute.is_some() || request.shares.is_some();
    let asked = match request.device == Some(RequestedDevice::Any) && !has_amount && request.names.is_empty() {
        true => Wish::whole(Selection::default()),
        false => Wish::default(),
    };
    let wish = Wish {
        memory: request.memory,
        compute: request.compute,
        names: request.names.clone(),
        shares: request.shares.map(|n| n as usize).or(asked.shares),
        device: device.transpose()?,
        select: request.select.clone(),
        ..asked
    };
    refuse_sizeless(plan, &wish)?;
    Ok(Reservation {
        once: request.once,
        for_root: request.for_root,
        ttl: request.ttl,
        ..Reservation::of(&request.name, wish)
    })
}

/// Whether a claim of this name belongs to a user other than root: `1000.train`. The broker makes these names, so that
/// users do not take names from one another or from root.
pub fn is_of_user(name: &str) -> bool {
    let uid = name.split_once('.').map(|(uid, _)| uid).unwrap_or_default();
    !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether engines and commands take `name` for devices, as `NVIDIA_VISIBLE_DEVICES` has them: `all`, `none`, `void`,
/// an index. The number of a user before it changes nothing.
fn is_reserved(name: &str) -> bool {
    let own = match is_of_user(name) {
        true => name.split_once('.').map_or(name, |(_, own)| own),
        false => name,
    };
    ["all", "none", "void", ShareName::ANY].contains(&own) || own.bytes().all(|byte| byte.is_ascii_digit())
}

/// What was found for a claim, in a sentence.
pub fn describe(found: &Fit, plan: &Plan) -> String {
    if plan.split(found.device).is_some_and(|split| split.method.is_whole()) {
        return format!("{}: the whole device", found.device);
    }
    let memory = found.memory.map(|m| format!(", {m}")).unwrap_or_default();
    let compute = found
        .compute
        .map(|c| format!(", up to {c} compute"))
        .unwrap_or_default();
    let names: Vec<&str> = found.shares.iter().map(|s| s.as_str()).collect();
    let word = if names.len() == 1 { "share" } else { "shares" };
    format!("{}: {word} {}{memory}{compute}", found.device, some(&names))
}

/// Refuses a wish for a size if none of the shares that may serve it has a limit: it could never be fulfilled.
fn refuse_sizeless(plan: &Plan, wish: &Wish) -> Result<()> {
    let asked = |split: &&SplitDevice| wish.is_about(split);
    let mut asked = plan.devices.iter().filter(asked).peekable();
    if asked.peek().is_none() {
        return Ok(());
    }
    let shares: Vec<&Share> = asked.flat_map(|split| split.shares.distinct()).collect();
    let (option, what) = if wish.memory.is_some() && shares.iter().all(|s| s.memory.is_none()) {
        ("--memory", "memory")
    } else if wish.compute.is_some() && shares.iter().all(|s| s.compute.is_none()) {
        ("--compute", "compute")
    } else {
        return Ok(());
    };
    Err(Error::usage(
        option,
        format!("no share of the policy has a limit of {what}: shares under time-slicing have no size"),
    )
    .hint("request a number of shares with --shares, or split the device under mps"))
}

/// The specification by which engines know a claim.
#[derive(Debug)]
pub struct ClaimFile<'a> {
    request: &'a ClaimRequest,
    inventory: &'a Inventory,
    sharing: &'a Sharing,
    hook: HostPath,
    dir: &'a Path,
    file: HostPath,
}

impl<'a> ClaimFile<'a> {
    /// The file for the claim `request` in `dir`. Its hooks are in the program `hook`.
    ///
    /// # Errors
    /// Returns an error if `dir` has no absolute path.
    pub fn new(
        request: &'a ClaimRequest,
        inventory: &'a Inventory,
        sharing: &'a Sharing,
        hook: HostPath,
        dir: &'a Path,
    ) -> Result<Self> {
        // Absolute, because hooks that use this path run in other directories.
        let file = file(dir, &request.name);
        let file = HostPath::new(std::path::absolute(&file).about(file.display(), "has no absolute path")?)?;
        Ok(Self {
            request,
            inventory,
            sharing,
            hook,
            dir,
            file,
        })
    }
}

impl Offer for ClaimFile<'_> {
    fn sweep(&self, claims: &[&Claim]) -> Result<()> {
        let state_dir = Path::new(self.sharing.state_dir.as_str());
        sweep(self.dir, claims, state_dir)?;
        match std::fs::symlink_metadata(self.file.as_path()) {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::failed(
                &self.file,
                "exists already, and does not belong to a claim in this ledger",
            )
            .hint("choose another name, or remove the file if it is not needed")),
        }
    }

    fn publish(&self, fit: &Fit) -> Result<Option<String>> {
        let options = Options {
            hook: Some(HookOptions::at(self.hook.clone())),
            sharing: Some(self.sharing.clone()),
            ..Options::default()
        };
        let derived = derive::claim(self.inventory, &options, fit, &self.request.name, &self.file)?;
        let (spec, _) = build(&derived, self.request.cdi_version)?;
        let header = format!("Made by tranche {}", env!("CARGO_PKG_VERSION"));
        let text = encode(&spec, Format::Yaml, &[header])?;
        replace::write(self.file.as_path(), &text)?;
        Ok(Some(self.file.to_string()))
    }

    fn withdraw(&self) -> Result<()> {
        remove(self.file.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_devices_is_not_one_of_a_claim() {
        for name in ["all", "any", "none", "void", "0", "12", "1000.all", "1000.3"] {
            let line = tranche_core::error::line(&device_name(name).unwrap_err());
            assert!(line.contains(&format!("claim {name}: is a word or a number")), "{line}");
        }
        for name in ["all-of-them", "train1", "1000.a3", "0x1", "any.1"] {
            assert!(device_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_of_users_begin_with_the_user() {
        for name in ["1000.train", "0.x", "65534.a.b"] {
            assert!(is_of_user(name), "{name}");
        }
        for name in ["train", "a.b", "1000", ".x", "1000-train", "1a.x"] {
            assert!(!is_of_user(name), "{name}");
        }
    }
}
