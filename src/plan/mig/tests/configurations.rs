//! Configurations as mig-parted and the GPU operator bring them, for all products: the instances are those that
//! mig-parted makes, but for the table of differences, and what is in use is kept.

use super::products::{PRODUCTS, product, with};
use crate::mig::mig_parted::{self, Configuration, NodeGpu};
use crate::mig::{ExactGpu, GpuWish, InstanceHolder, MigGpu, WishedInstance, plan};
use std::collections::BTreeMap;

/// How many pairs of a configuration and a product there are with the file's instances.
const SAME: usize = 74;

const FILE: &str = include_str!("configurations.yaml");

/// What tranche makes, and mig-parted refuses, because its names must be those of the driver: a name within a twentieth
/// of the memory of one profile alone means that profile, because drivers name the profile of one board differently.
const MADE_HERE_ONLY: &[(&str, &str, &str)] = &[
    ("all-1g.36gb", "h200", "4x1g.35gb"),
    ("all-2g.36gb", "h200", "3x2g.35gb"),
    ("all-3g.72gb", "h200", "2x3g.71gb"),
    ("all-4g.72gb", "h200", "1x4g.71gb"),
    ("all-7g.144gb", "h200", "1x7g.141gb"),
    ("all-1g.24gb.me", "b200", "1x1g.23gb+me"),
    ("all-1g.24gb", "b200", "4x1g.23gb"),
    ("all-1g.47gb", "b200", "4x1g.45gb"),
    ("all-2g.47gb", "b200", "3x2g.45gb"),
    ("all-3g.93gb", "b200", "2x3g.90gb"),
    ("all-4g.93gb", "b200", "1x4g.90gb"),
    ("all-7g.186gb", "b200", "1x7g.180gb"),
    ("all-7g.189gb", "b200", "1x7g.180gb"),
    ("all-1g.23gb.me", "rtx-pro-6000", "1x1g.24gb+me"),
    ("all-4g.93gb", "rtx-pro-6000", "1x4g.96gb"),
    ("all-4g.95gb", "rtx-pro-6000", "1x4g.96gb"),
];

/// All configurations of a file.
fn configurations(text: &str) -> Vec<Configuration> {
    // A name that does not exist is answered with some of those that do; all are in the text.
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("  ")?.strip_suffix(':')?;
        (!name.starts_with([' ', '#', '-'])).then(|| name.trim_matches('"').to_owned())
    });
    names
        .map(|name| mig_parted::read("f.yaml", text, Some(&name)).unwrap())
        .collect()
}

/// The instances that the configuration says for `gpu`: with the names of the file; `None` if no entry is for it.
fn wanted(configuration: &Configuration, gpu: &MigGpu) -> Option<BTreeMap<String, u32>> {
    let GpuWish::Instances(instances) = &configuration.entry(&NodeGpu::from(gpu))?.wish else {
        return Some(BTreeMap::new());
    };
    let count = |(one, count): (&WishedInstance, &u32)| (one.profile.to_string(), *count);
    Some(instances.iter().map(count).collect())
}

fn made(exact: &ExactGpu) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for one in &exact.instances {
        assert_eq!(one.compute.len(), 1, "{one:?}");
        *counts.entry(one.name.to_string()).or_insert(0) += 1;
    }
    counts
}

/// What the configurations lead to.
#[derive(Default)]
struct Compared {
    /// How many lead to the file's instances.
    same: usize,
    /// Those that lead to others, because the product lacks a name: the configuration, the product, and the instances.
    others: Vec<(String, String, String)>,
    /// Those that are refused though the product has all names, because the instances do not fit.
    too_many: Vec<(String, String)>,
}

/// Plans each configuration for each product.
fn compare(configurations: &[Configuration]) -> Compared {
    let mut compared = Compared::default();
    for (name, _) in PRODUCTS {
        let gpu = product(name);
        let has = |profile: &String| gpu.profiles.iter().any(|offered| offered.name.to_string() == *profile);
        for configuration in configurations {
            let Some(wanted) = wanted(configuration, &gpu) else {
                continue;
            };
            let row = (configuration.name.clone(), (*name).to_owned());
            match plan(&configuration.layouts(), std::slice::from_ref(&gpu), &[]) {
                Ok(exact) if wanted.keys().all(has) => {
                    assert_eq!(made(&exact[0]), wanted, "{row:?}");
                    compared.same += 1;
                }
                Ok(exact) => {
                    let made: Vec<String> = made(&exact[0]).iter().map(|(one, n)| format!("{n}x{one}")).collect();
                    compared.others.push((row.0, row.1, made.join(",")));
                }
                Err(error) if wanted.keys().all(has) => {
                    assert!(error.to_string().contains("at once"), "{row:?}: {error}");
                    compared.too_many.push(row);
                }
                // A profile that the product lacks: mig-parted refuses it, too.
                Err(_) => {}
            }
        }
    }
    compared
}

#[test]
fn the_instances_are_those_of_mig_parted_but_for_the_table() {
    let compared = compare(&configurations(FILE));
    let listed: Vec<(&str, &str, &str)> = compared
        .others
        .iter()
        .map(|(configuration, product, made)| (configuration.as_str(), product.as_str(), made.as_str()))
        .collect();
    assert_eq!(listed, MADE_HERE_ONLY);
    assert_eq!(compared.too_many, []);
    assert_eq!(compared.same, SAME);
}

/// From each configuration that fits, with every second instance in use, to each other one.
#[test]
fn nothing_that_is_in_use_is_touched() {
    let configurations = configurations(FILE);
    let (mut planned, mut refused) = (0, 0);
    for (name, _) in PRODUCTS {
        let empty = product(name);
        let targets: Vec<(&Configuration, ExactGpu)> = configurations
            .iter()
            .filter_map(|one| {
                let exact = plan(&one.layouts(), std::slice::from_ref(&empty), &[]).ok()?;
                Some((one, exact.into_iter().next()?))
            })
            .collect();
        for (from, state) in targets.iter().filter(|(_, state)| !state.instances.is_empty()) {
            let places: Vec<(String, u32)> = state
                .instances
                .iter()
                .map(|one| (one.name.to_string(), one.placement.start))
                .collect();
            let places: Vec<(&str, u32)> = places.iter().map(|(name, start)| (name.as_str(), *start)).collect();
            let gpu = with(&empty, &places);
            let busy: Vec<_> = gpu.instances.iter().step_by(2).collect();
            let holders: Vec<InstanceHolder> = busy
                .iter()
                .map(|one| InstanceHolder {
                    gpu: gpu.uuid.clone(),
                    instance: Some((one.id, None)),
                    who: format!("claim of {}", one.placement),
                })
                .collect();
            for (to, _) in &targets {
                let what = format!("{name}: {} to {}", from.name, to.name);
                match plan(&to.layouts(), std::slice::from_ref(&gpu), &holders) {
                    Ok(exact) => {
                        let gone = exact[0].destroyed(&gpu);
                        let is_busy = |id| busy.iter().any(|one| one.id == id);
                        assert!(!gone.iter().any(|(id, _)| is_busy(*id)), "{what}: {gone:?}");
                        planned += 1;
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(
                            error.contains("claim of ") && error.contains("in the way"),
                            "{what}: {error}"
                        );
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(planned > 100 && refused > 100, "{planned} planned, {refused} refused");
}
