//! The cases of tests/data/advise/cases.yaml.

use super::*;
use std::collections::BTreeMap;
use tranche_core::types::MemorySize;

const CASES: &str = include_str!("../../../../tests/data/advise/cases.yaml");

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    host: Host,
    wishes: String,
    #[serde(default)]
    gets: BTreeMap<String, [String; 2]>,
    #[serde(default)]
    says: Vec<String>,
    fails: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    sim: String,
    gpus: Option<Vec<u32>>,
    product: Option<String>,
    architecture: Option<Architecture>,
    memory: Option<u64>,
    driver: Option<String>,
    mig: Option<bool>,
    virtualization: Option<VirtualizationMode>,
}

impl Host {
    fn inventory(&self) -> Inventory {
        let mut inventory = machine(&self.sim, self.gpus.as_deref());
        for gpu in &mut inventory.gpus {
            if let Some(product) = &self.product {
                gpu.name.clone_from(product);
            }
            gpu.architecture = self.architecture.or(gpu.architecture);
            gpu.memory = self.memory.map(MemorySize::from_mib).or(gpu.memory);
            gpu.virtualization = self.virtualization.or(gpu.virtualization);
            gpu.mig = gpu.mig.filter(|_| self.mig != Some(false));
        }
        if let (Some(version), Some(driver)) = (&self.driver, &mut inventory.driver) {
            driver.version = version.parse().unwrap();
        }
        inventory
    }
}

/// Everything that the advice says.
fn said(advice: &Advice) -> String {
    let choices = advice.choices.iter().map(|choice| {
        let worth = choice.worth.unwrap();
        format!(
            "{} {} memory: {} compute: {} bandwidth: {} faults: {}",
            choice.reason, choice.source, worth.memory, worth.compute, worth.bandwidth, worth.faults
        )
    });
    let others = advice.runners_up.iter();
    let others = others.map(|one| format!("{}: {} gives up {}", one.wish, one.way, one.gives_up));
    let all = choices
        .chain(others)
        .chain(advice.notes.clone())
        .chain(advice.mig_layouts.clone());
    all.chain([advice.policy.clone()]).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_case_gets_the_expected_way_by_the_expected_rule() {
    let cases: Vec<Case> = serde_saphyr::from_str(CASES).unwrap();
    assert_eq!(cases.len(), 40);
    let mut wrong = Vec::new();
    for case in &cases {
        let advice = advised(&case.host.inventory(), &case.wishes);
        match (advice, &case.fails) {
            (Err(error), Some(words)) => {
                let error = line(&error);
                if !error.contains(words.as_str()) || error.contains('\n') {
                    wrong.push(format!("{}: {error}", case.case));
                }
            }
            (Ok(advice), None) => {
                let gets = advice
                    .choices
                    .iter()
                    .map(|one| (one.wish.clone(), [one.way.to_string(), one.rule.to_owned()]));
                let gets: BTreeMap<String, [String; 2]> = gets.collect();
                if gets != case.gets {
                    wrong.push(format!("{}: {gets:?}\n{}", case.case, said(&advice)));
                }
                let said = said(&advice);
                let missing = case.says.iter().filter(|words| !said.contains(words.as_str()));
                wrong.extend(missing.map(|words| format!("{}: does not say {words}:\n{said}", case.case)));
            }
            (Ok(advice), Some(_)) => wrong.push(format!("{}: advice:\n{}", case.case, said(&advice))),
            (Err(error), None) => wrong.push(format!("{}: {}", case.case, line(&error))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A rule that no case reaches might as well be wrong.
#[test]
fn each_rule_is_chosen_in_a_case() {
    let cases: Vec<Case> = serde_saphyr::from_str(CASES).unwrap();
    let chosen: Vec<&str> = cases
        .iter()
        .flat_map(|case| case.gets.values())
        .map(|[_, rule]| rule.as_str())
        .collect();
    for rule in rules::RULES {
        assert!(chosen.contains(&rule.id), "{}", rule.id);
        let is_one_sentence = !rule.reason.contains(". ") && !rule.reason.ends_with('.');
        assert!(is_one_sentence && !rule.ways.is_empty(), "{}", rule.id);
    }
}

#[test]
fn a_service_does_not_wait() {
    let two = machine("t4x2", None);
    let wish = |kind: &str| {
        advised(
            &two,
            &format!("wishes: [{{name: a, kind: {kind}, count: 3, wholeGpu: true}}]"),
        )
    };
    assert_eq!(wish("notebook").unwrap().choices[0].way, Way::Waiting);
    let error = line(&wish("service").unwrap_err());
    assert!(
        error.contains("dedicated with waiting: a service never ends"),
        "{error}"
    );
}
