//! What the programs show, and what the driver has.

use crate::draw::ON_DEMAND;
use crate::machine::Machine;
use crate::operation::{Profile, ROOT, What};
use crate::oracle::{Checked, Holder, broken};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One claim, as `tranche status --json` shows it to root.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) gpu: u8,
    pub(crate) key: String,
    pub(crate) shares: Vec<String>,
    /// What identifies its holder: the number of a program, or the name of anything else.
    pub(crate) by: By,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Known(Holder),
    Process(u64),
    /// An instance that was made for somebody who has not claimed it yet. It is left for half a minute.
    JustMade,
    /// The broker, which holds what it destroys, and for a moment more.
    Broker,
    Other(String),
}

impl Seen {
    /// What was given to somebody who asked for any device.
    pub(crate) fn any(&self) -> What {
        match self.gpu {
            ON_DEMAND => What::Instance(Profile::One),
            gpu => What::Whole(gpu),
        }
    }
}

/// All claims. An error is what `status` said.
pub(crate) fn claims(machine: &Machine) -> Result<Vec<Seen>, String> {
    let output = machine
        .command(ROOT, &["status", "--json", "--no-gpu"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!(
            "{}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let status: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    let all = status["claims"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().map(|claim| seen(machine, claim)).collect())
}

fn seen(machine: &Machine, claim: &Value) -> Seen {
    let key = claim["key"].as_str().unwrap_or_default().to_owned();
    let shares = claim["shares"].as_array().cloned().unwrap_or_default();
    let shares = shares
        .iter()
        .map(|share| share.as_str().unwrap_or_default().to_owned())
        .collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let number = |name: &str| name[1..].parse::<u8>().ok();
    let by = if let Some(pod) = text(&claim["pod"]["name"]) {
        number(&pod).map(Holder::Pod)
    } else if let Some(resource) = text(&claim["resource_claim"]["name"]) {
        number(&resource).map(Holder::Resource)
    } else if let Some(name) = text(&claim["name"]) {
        let (who, name) = name
            .split_once('.')
            .map_or((Some(ROOT), name.as_str()), |(who, name)| (who.parse().ok(), name));
        who.zip(number(name)).map(|(who, name)| Holder::Claim(who, name))
    } else if let Some(id) = text(&claim["container"]).or_else(|| text(&claim["container"]["id"])) {
        let parts = id[1..].split_once('-');
        parts.and_then(|(who, name)| Some(Holder::Container(who.parse().ok()?, name.parse().ok()?)))
    } else {
        None
    };
    let just_made = claim["cdi"]
        .as_str()
        .is_some_and(|cdi| cdi.contains("just made for somebody"));
    let by = match (by, claim["process"]["pid"].as_u64()) {
        _ if just_made => By::JustMade,
        (Some(holder), _) => By::Known(holder),
        (None, Some(pid)) if machine.broker_was(pid) => By::Broker,
        (None, Some(pid)) => By::Process(pid),
        (None, None) => By::Other(claim.to_string()),
    };
    Seen {
        gpu: machine.gpu(&key),
        key,
        shares,
        by,
    }
}

/// No share and no device is in two claims that are shown.
pub(crate) fn disjoint(all: &[Seen]) -> Checked {
    let mut taken: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for one in all {
        let of_device = taken.entry(&one.key).or_default();
        let before = of_device.len();
        let whole = one.shares.is_empty();
        if whole {
            of_device.insert("whole");
        }
        of_device.extend(one.shares.iter().map(String::as_str));
        let twice = of_device.len() != before + one.shares.len().max(1);
        let beside_whole = of_device.contains("whole") && of_device.len() > 1;
        if twice || beside_whole {
            return broken("promised twice", format!("{} is in two claims: {all:?}", one.key));
        }
    }
    Ok(())
}

/// The GPU instances that claims are on.
pub(crate) fn instances(all: &[Seen]) -> BTreeSet<u64> {
    let on = all.iter().filter(|one| one.gpu == ON_DEMAND);
    on.filter_map(|one| one.key.split('/').nth(1)?.parse().ok()).collect()
}

/// `claim gc` finds no specification without a claim, and nothing at all when it looks a second time: what has
/// ended may be found first by it, and what killed programs of root have left.
pub(crate) fn nothing_to_collect(machine: &Machine, root_was_killed: bool) -> Checked {
    let first = match root_was_killed {
        true => " removed",
        false => " released, 0 specifications removed",
    };
    for ending in [first, "0 claims released, 0 specifications removed"] {
        let output = machine.command(ROOT, &["claim", "gc"]).output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with(" WARN")).collect();
        if !output.status.success() || said.len() != 1 || !said[0].ends_with(ending) {
            return broken("something is left", format!("claim gc: {said:?}"));
        }
    }
    Ok(())
}
