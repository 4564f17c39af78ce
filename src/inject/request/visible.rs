//! The devices that an environment names: `NVIDIA_VISIBLE_DEVICES`, and the variables of the swarm resource.

use std::collections::BTreeSet;

use super::collect::list;
use super::environment::Environment;
use super::{LONGEST_SHOWN, VISIBLE};
use tranche_core::text::cut;
use tranche_plan::policy::RuntimeSettings;

/// The devices that an environment names.
pub(super) struct VisibleDevices<'a> {
    /// The variable that names them.
    pub(super) by: String,
    /// As they are written.
    pub(super) names: Vec<&'a str>,
    /// A line about a variable that does not get what it asks for.
    pub(super) note: Option<String>,
}

impl<'a> VisibleDevices<'a> {
    /// What `environment` names. docker sets `NVIDIA_VISIBLE_DEVICES` for `--gpus`, and no other variable counts then.
    /// The variables of the swarm resource that are set count all together.
    pub(super) fn of(environment: &Environment<'a>, settings: &RuntimeSettings) -> Self {
        let usual = environment.get(VISIBLE).map(|text| list(text).collect::<Vec<_>>());
        let of_swarm = settings.swarm_resource.iter().map(String::as_str);
        let of_swarm: Vec<&str> = of_swarm.filter(|name| environment.get(name).is_some()).collect();
        let found = |by: &str, names, note| Self {
            by: by.to_owned(),
            names,
            note,
        };
        let swarm = of_swarm.first().filter(|_| !environment.is_by_gpus(VISIBLE));
        let Some(swarm) = swarm else {
            let legacy = || environment.is_legacy().then(|| vec!["all"]);
            return found(VISIBLE, usual.or_else(legacy).unwrap_or_default(), None);
        };
        let values = of_swarm.iter().filter_map(|name| environment.get(name));
        let named: Vec<&str> = values.flat_map(list).collect();
        let Some(usual) = usual else {
            return found(swarm, named, None);
        };
        let narrower = narrower(&named, &usual);
        let note = (narrower != named).then(|| {
            let [one, other] = [(*swarm, &named), (VISIBLE, &usual)]
                .map(|(name, value)| cut(&format!("{name}={}", value.join(",")), LONGEST_SHOWN));
            format!("{one} gives only what {other} gives as well, because an image can set either variable")
        });
        found(swarm, narrower, note)
    }
}

/// What both lists give. Nothing marks the container of a swarm's service, so each of the two variables may be the
/// image's: the first one as well as the second one can only take devices away.
fn narrower<'a>(one: &[&'a str], other: &[&'a str]) -> Vec<&'a str> {
    for word in ["void", "none"] {
        if [one, other].iter().any(|names| word_of(names) == Some(word)) {
            return vec![word];
        }
    }
    match (word_of(one), word_of(other)) {
        (_, Some(_)) => one.to_vec(),
        (Some(_), _) => other.to_vec(),
        (None, None) => {
            let others: BTreeSet<&str> = other.iter().copied().collect();
            one.iter().copied().filter(|name| others.contains(name)).collect()
        }
    }
}

/// The word that takes the place of the other names of a list.
fn word_of<'a>(names: &[&'a str]) -> Option<&'a str> {
    let void = names.iter().find(|name| **name == "void");
    let word = void.or_else(|| names.iter().find(|name| matches!(**name, "all" | "none")));
    word.copied()
}
