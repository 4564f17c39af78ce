//! What is said to change is what happens when each name is asked for afterwards, with the real ledger.

use super::*;
use crate::reserve::{Reservation, Unoffered};
use crate::share::Wish;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Claim, ContainerName, HeldPart, Holder};
use tranche_core::types::{Device, Part, Subject};

/// How a policy of the test shares one GPU.
#[derive(Debug, Clone, Copy)]
enum Way {
    Plain,
    Turns(u32),
    Mps(u32),
    Named(u32, u32),
    Dedicated,
}

fn way() -> impl Strategy<Value = Way> {
    prop_oneof![
        Just(Way::Plain),
        (2..5_u32).prop_map(Way::Turns),
        (2..5_u32).prop_map(Way::Mps),
        (20..60_u32, 1..8_u32).prop_map(|(compute, memory)| Way::Named(compute, memory)),
        Just(Way::Dedicated),
    ]
}

/// A policy for the two GPUs of the host.
fn policy() -> impl Strategy<Value = Plan> {
    let whole = prop_oneof![Just("claim"), Just("open"), Just("hide")];
    ([way(), way()], whole).prop_map(|(ways, whole)| {
        let (mut turns, mut mps, mut dedicated) = (String::new(), String::new(), Vec::new());
        for (gpu, way) in ways.into_iter().enumerate() {
            let entry = |more: String| format!("    - {{name: nvidia.com/gpu, devices: [{gpu}], {more}}}\n");
            match way {
                Way::Plain => {}
                Way::Turns(of) => turns += &entry(format!("replicas: {of}")),
                Way::Mps(of) => mps += &entry(format!("replicas: {of}")),
                Way::Named(compute, memory) => {
                    mps += &entry(format!(
                        "shares: [{{name: big, compute: {compute}%, memory: {memory}Gi}}, {{name: small, compute: 20%, \
                         memory: 1Gi}}]"
                    ));
                }
                Way::Dedicated => dedicated.push(gpu),
            }
        }
        plan(&format!("  wholeDevice: {whole}\n"), &turns, &mps, &dedicated)
    })
}

fn plan(more: &str, turns: &str, mps: &str, dedicated: &[usize]) -> Plan {
    let section = |name: &str, resources: &str| match resources.is_empty() {
        true => String::new(),
        false => format!("  {name}:\n    resources:\n{resources}"),
    };
    let yaml = format!(
        "version: v1\nsharing:\n{more}{}{}{}",
        section("timeSlicing", turns),
        section("mps", mps),
        match dedicated {
            [] => String::new(),
            devices => format!("  dedicated: {{devices: {devices:?}}}\n"),
        }
    );
    let policy = crate::policy::read::parse("c.yaml", &yaml).unwrap().policy;
    crate::share::plan(&policy, &inventory()).unwrap()
}

fn inventory() -> Inventory {
    crate::sim::open("t4x2").unwrap()
}

/// The claims of a state directory, and what is compared on its machine.
struct Machine {
    dir: tempfile::TempDir,
    inventory: Inventory,
    state_dir: HostPath,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = HostPath::new(dir.path()).unwrap();
        let inventory = inventory();
        Self {
            dir,
            inventory,
            state_dir,
        }
    }

    /// The same machine with a ledger of its own.
    fn copy(&self) -> Self {
        let copy = Self::new();
        copy_dir(self.dir.path(), copy.dir.path());
        copy
    }

    fn claims(&self) -> Claims {
        Claims::open(self.dir.path()).unwrap()
    }

    fn host<'a>(&'a self, books: &'a Books) -> Host<'a> {
        static NOTHING: OutOfService = OutOfService {
            drained: Vec::new(),
            prohibited: Vec::new(),
            unreadable: None,
        };
        Host {
            inventory: &self.inventory,
            books,
            out_of_service: &NOTHING,
            state_dir: &self.state_dir,
        }
    }

    /// Whether a container that asks for it now gets it. It keeps it.
    fn enters(&self, entry: &ClaimEntry, id: usize) -> bool {
        let holder = Holder::Container(ContainerName {
            bundle: "/b".into(),
            id: format!("c{id}"),
        });
        self.claims().enter(entry, holder, Some(std::process::id())).is_ok()
    }

    /// Whether a container gets it after these claims have ended.
    fn enters_without(&self, entry: &ClaimEntry, ended: &[&Claim]) -> bool {
        let copy = self.copy();
        copy.claims().lock().unwrap().release_by_hand(ended, true).unwrap();
        copy.enters(entry, 1000)
    }

    /// Whether the plan reserves exactly that share; `None` if it is not a share that a person can name.
    fn reserves(&self, plan: &Plan, entry: &ClaimEntry) -> Option<bool> {
        let split = plan.devices.iter().find(|split| split.key == entry.device)?;
        let device: Device = split.device;
        let wish = match &entry.subject {
            Subject::Part(Part::Share(name), _) => Wish {
                names: vec![name.clone()],
                device: Some(device),
                ..Wish::default()
            },
            Subject::Part(Part::Whole, _) if split.method.is_whole() => Wish {
                device: Some(device),
                ..Wish::shares(1)
            },
            _ => return None,
        };
        let copy = self.copy();
        let reserved = plan.reserve(&copy.claims(), &Reservation::of("asked", wish), &Unoffered);
        Some(reserved.is_ok())
    }
}

fn copy_dir(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, from) = entry.map(|entry| (entry.file_name(), entry.path())).unwrap();
        let to = to.join(entry);
        match from.is_dir() {
            true => {
                std::fs::create_dir_all(&to).unwrap();
                std::fs::set_permissions(&to, from.metadata().unwrap().permissions()).unwrap();
                copy_dir(&from, &to);
            }
            false => drop(std::fs::copy(&from, &to).unwrap()),
        }
    }
}

/// Starts containers with names of `plan`, as far as they are granted.
fn hold(machine: &Machine, plan: &Plan, picks: &[prop::sample::Index], first: usize) {
    let books = machine.claims().books().unwrap();
    let (offers, _) = machine.host(&books).under(plan).unwrap();
    let entries: Vec<ClaimEntry> = offers.iter().filter_map(Offer::entry).collect();
    if entries.is_empty() {
        return;
    }
    for (number, pick) in picks.iter().enumerate() {
        machine.enters(pick.get(&entries), first + number);
    }
}

/// Whether a name of `offers` gives what `claim` holds.
fn is_offered(offers: &[Offer], claim: &Claim) -> bool {
    let gives = |entry: ClaimEntry| {
        let is_replica = || {
            let shares = claim.part.shares();
            let promise = entry.subject.promise();
            let below = |number: u32| number < entry.replicas;
            let is_one = |share: &tranche_core::ledger::HeldShare| {
                Some(share.promise) == promise && share.name.number().is_some_and(below)
            };
            matches!(entry.subject, Subject::Part(Part::Any, _)) && shares.iter().all(is_one)
        };
        entry.device == claim.device && (entry.subject.held().as_ref() == Some(&claim.part) || is_replica())
    };
    offers.iter().filter_map(Offer::entry).any(gives)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_said_to_change_is_what_happens(
        [earlier, before, after] in [policy(), policy(), policy()],
        old in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        new in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let machine = Machine::new();
        hold(&machine, &earlier, &old, 0);
        hold(&machine, &before, &new, 100);
        let claims = machine.claims();
        let books = claims.books().unwrap();
        let host = machine.host(&books);
        let difference = host.difference(&before, &after, claims.machine()).unwrap();
        let ((was, _), (is, _)) = (host.under(&before).unwrap(), host.under(&after).unwrap());

        for offer in &is {
            let said = difference.refused.iter().find(|refusal| refusal.offer == *offer);
            let Some(entry) = offer.entry() else {
                prop_assert!(said.is_none(), "{} needs no claim", offer.name);
                continue;
            };
            let is_granted = machine.enters_without(&entry, &[]);
            prop_assert!(machine.reserves(&after, &entry).is_none_or(|reserved| reserved == is_granted), "{}", offer.name);
            let same = was.iter().find(|one| one.name == offer.name && one.meaning == offer.meaning);
            let was_granted = same.and_then(Offer::entry).is_some_and(|entry| machine.enters_without(&entry, &[]));
            match said {
                None => prop_assert!(is_granted || same.is_some() && !was_granted, "{} is refused", offer.name),
                Some(refusal) => {
                    prop_assert!(!is_granted, "{} is granted", offer.name);
                    let Until { all, enough_of, otherwise } = &refusal.until;
                    prop_assert!(otherwise.is_none() && all.len() + enough_of.len() > 0, "{}", offer.name);
                    let named: Vec<&Claim> = all.iter().chain(enough_of).copied().collect();
                    prop_assert!(machine.enters_without(&entry, &named), "{} is still refused", offer.name);
                    for needed in all {
                        let others: Vec<&Claim> = books.claims().filter(|claim| claim != needed).collect();
                        prop_assert!(!machine.enters_without(&entry, &others), "{} needs less", offer.name);
                    }
                    for spared in enough_of {
                        let others: Vec<&Claim> = books.claims().filter(|claim| claim != spared).collect();
                        prop_assert!(machine.enters_without(&entry, &others), "{} needs more", offer.name);
                    }
                }
            }
        }
        for claim in books.claims().filter(|claim| claim.part != HeldPart::Whole) {
            let said = difference.not_offered.iter().any(|finding| finding.claim() == Some(claim));
            prop_assert_eq!(said, is_offered(&was, claim) && !is_offered(&is, claim), "{}", claim.who());
        }
        let names = |offers: &[Offer]| -> BTreeSet<String> { offers.iter().map(|offer| offer.name.clone()).collect() };
        let (was, is) = (names(&was), names(&is));
        prop_assert_eq!(names(&difference.appear), &is - &was);
        prop_assert_eq!(names(&difference.vanish), &was - &is);
        // The same policy changes nothing, whatever is held.
        prop_assert!(host.difference(&before, &before, claims.machine()).unwrap().is_empty());
    }
}
