//! All samples of one text, by family.

use super::catalogue::{ALL, CLAIM, Family, FamilyKind};
use super::names::{Containers, Naming};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::openmetrics::{END, head, labels};

/// Samples, by family.
#[derive(Debug, Default)]
pub struct Exposition {
    samples: BTreeMap<&'static str, Vec<Sample>>,
}

#[derive(Debug)]
struct Sample {
    /// The values of the family's labels, in their order.
    labels: Vec<String>,
    value: f64,
}

impl Exposition {
    /// Adds a sample. `labels` are the values of the family's labels, in their order. Of two samples with the same
    /// labels, the first stays: a series has one value.
    pub fn add(&mut self, family: Family, labels: &[&str], value: f64) {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        let samples = self.samples.entry(family.name).or_default();
        if samples.iter().all(|sample| sample.labels != labels) {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            samples.push(Sample { labels, value });
        }
    }

    /// As [`Exposition::add`], if there is a value.
    pub fn add_some(&mut self, family: Family, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.add(family, labels, value);
        }
    }

    /// The whole text, with the names of `naming`. A family without samples is left out.
    pub fn text(&self, naming: &Naming) -> String {
        let mut text = String::new();
        let containers = self.containers();
        for family in ALL {
            let Some(samples) = self.samples.get(family.name) else {
                continue;
            };
            let known = naming.known(family);
            let (name, factor, help) = known.map_or((family.name, 1.0, family.help), |known| {
                (known.name, known.factor, known.help)
            });
            text.push_str(&head(name, family.kind, help));
            let suffix = match family.kind {
                FamilyKind::Gauge | FamilyKind::Histogram => "",
                FamilyKind::Counter => "_total",
            };
            // What has two names here can have one name there: the compute instances of one GPU instance.
            let mut written = BTreeSet::new();
            for sample in samples {
                let pairs = naming.labels(family, &sample.labels, &containers);
                let labels = labels(pairs.iter().map(|(label, value)| (*label, value.as_str())));
                if written.insert(labels.clone()) {
                    text.push_str(&format!("{name}{suffix}{labels} {}\n", sample.value * factor));
                }
            }
        }
        text.push_str(END);
        text
    }

    /// The containers of claims that may be named.
    fn containers(&self) -> Containers<'_> {
        let claims = self.samples.get(CLAIM.name).into_iter().flatten();
        claims
            .filter_map(|sample| match &sample.labels[..] {
                [device, shares, _, _, id, name] if !id.is_empty() => {
                    Some(((device.as_str(), shares.as_str()), (id.as_str(), name.as_str())))
                }
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{BUILD, MEMORY, RESTARTS, WAITERS};
    use super::*;

    #[test]
    fn a_family_has_its_type_its_unit_and_its_samples() {
        let mut exposition = Exposition::default();
        exposition.add(MEMORY, &["a\"b\\c\nd"], 17_179_869_184.0);
        exposition.add(MEMORY, &["a\"b\\c\nd"], 1.0);
        exposition.add(RESTARTS, &["x"], 2.0);
        exposition.add_some(BUILD, &["1"], None);
        exposition.add(WAITERS, &[], 0.0);
        assert_eq!(
            exposition.text(&Naming::OWN),
            format!(
                "# TYPE tranche_device_memory_bytes gauge\n# UNIT tranche_device_memory_bytes bytes\n\
                 # HELP tranche_device_memory_bytes {}\n\
                 tranche_device_memory_bytes{{device=\"a\\\"b\\\\c\\nd\"}} 17179869184\n\
                 # TYPE tranche_waiters gauge\n# HELP tranche_waiters {}\ntranche_waiters 0\n\
                 # TYPE tranche_mps_daemon_restarts counter\n# HELP tranche_mps_daemon_restarts {}\n\
                 tranche_mps_daemon_restarts_total{{device=\"x\"}} 2\n# EOF\n",
                MEMORY.help, WAITERS.help, RESTARTS.help
            )
        );
        assert_eq!(Exposition::default().text(&Naming::OWN), "# EOF\n");
    }
}
