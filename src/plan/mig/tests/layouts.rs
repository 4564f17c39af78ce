//! What a person asks for, and what the answer is.

use super::products::{product, with};
use crate::mig::{ExactGpu, InstanceHolder, Layout, MigGpu, plan};
use tranche_core::types::GpuInstanceId;

/// The plan for `layouts`: `PROFILE@START …` for each GPU.
fn planned(layouts: &[&str], gpus: &[MigGpu], holders: &[InstanceHolder]) -> Result<Vec<String>, String> {
    let layouts: Vec<Layout> = layouts.iter().map(|layout| layout.parse().unwrap()).collect();
    let exact = plan(&layouts, gpus, holders).map_err(|error| error.to_string())?;
    Ok(exact.iter().map(shown).collect())
}

fn shown(exact: &ExactGpu) -> String {
    let one = |one: &crate::mig::ExactInstance| {
        let compute: Vec<String> = one.compute.iter().map(|c| c.slices.to_string()).collect();
        format!("{}@{}/{}", one.name, one.placement.start, compute.join("+"))
    };
    exact.instances.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn holder(gpu: &MigGpu, instance: u32, who: &str) -> InstanceHolder {
    InstanceHolder {
        gpu: gpu.uuid.clone(),
        instance: Some((GpuInstanceId(instance), None)),
        who: who.into(),
    }
}

#[test]
fn instances_are_placed_so_that_all_fit() {
    let gpu = [product("a100-40")];
    // Another 1g fits beside them. With the 3g in front, none would: unit 7 is no place for one.
    let expected = "2g.10gb@0/2 1g.5gb@2/1 3g.20gb@4/3";
    assert_eq!(planned(&["0:1g.5gb,2g.10gb,3g.20gb"], &gpu, &[]).unwrap(), [expected]);
    let full = planned(&["all:7x1g.5gb"], &gpu, &[]).unwrap();
    assert_eq!(full[0].split(' ').count(), 7);
    assert_eq!(
        planned(&["0:4g.20gb,3g.20gb"], &gpu, &[]).unwrap(),
        ["4g.20gb@0/4 3g.20gb@4/3"]
    );
}

#[test]
fn a_single_instance_is_put_where_it_costs_the_least() {
    let gpu = [product("a100-40")];
    // At 6 it takes nothing from the places of larger ones but one of 4g and 7g, which any place does.
    assert_eq!(planned(&["0:1g.5gb"], &gpu, &[]).unwrap(), ["1g.5gb@6/1"]);
    assert_eq!(planned(&["0:3g.20gb"], &gpu, &[]).unwrap(), ["3g.20gb@4/3"]);
    assert_eq!(planned(&["0:1g.5gb@2"], &gpu, &[]).unwrap(), ["1g.5gb@2/1"]);
}

#[test]
fn what_is_there_already_stays() {
    let gpu = [with(
        &product("a100-40"),
        &[("1g.5gb", 3), ("2g.10gb", 4), ("1g.5gb", 0)],
    )];
    assert_eq!(
        planned(&["0:1g.5gb,2g.10gb"], &gpu, &[]).unwrap(),
        ["1g.5gb@0/1 2g.10gb@4/2"]
    );
    let kept = planned(&["0:1g.5gb"], &gpu, &[holder(&gpu[0], 1, "a")]).unwrap();
    assert_eq!(kept, ["1g.5gb@3/1"]);
}

#[test]
fn compute_instances_fill_gpu_instances() {
    let gpu = [product("a100-40")];
    assert_eq!(planned(&["0:3x1c.3g.20gb"], &gpu, &[]).unwrap(), ["3g.20gb@4/1+1+1"]);
    assert_eq!(
        planned(&["0:1c.3g.20gb,2c.3g.20gb"], &gpu, &[]).unwrap(),
        ["3g.20gb@4/2+1"]
    );
    assert_eq!(
        planned(&["0:4x1c.3g.20gb"], &gpu, &[]).unwrap(),
        ["3g.20gb@0/1 3g.20gb@4/1+1+1"]
    );
    let error = planned(&["0:4c.3g.20gb"], &gpu, &[]).unwrap_err();
    assert!(error.contains("3g.20gb has 3 slices"), "{error}");
}

#[test]
fn the_fewest_holders_are_named() {
    let gpu = [with(
        &product("a100-40"),
        &[("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 4), ("1g.5gb", 6)],
    )];
    let holders: Vec<InstanceHolder> = [(1, "anna"), (2, "ben"), (3, "carla"), (4, "dora")]
        .map(|(instance, who)| holder(&gpu[0], instance, who))
        .to_vec();
    // One 3g and two 1g: in units 4 to 7, or in 0 to 3. Either way two have to go; in 0 to 3 those of 4 and 6 stay.
    let error = planned(&["0:3g.20gb,2x1g.5gb"], &gpu, &holders).unwrap_err();
    assert!(error.contains("anna, ben stand in the way"), "{error}");
    // What is used elsewhere is not in the way.
    assert!(planned(&["0:3g.20gb,2x1g.5gb"], &gpu, &holders[2..]).is_ok());
    // One that keeps the whole GPU keeps everything on it.
    let whole = InstanceHolder {
        instance: None,
        ..holders[0].clone()
    };
    let error = planned(&["0:3g.20gb"], &gpu, &[whole]).unwrap_err();
    assert!(error.contains("anna stands in the way"), "{error}");
}

#[test]
fn profiles_are_matched_by_what_they_are() {
    let mut gpu = product("b200");
    assert_eq!(planned(&["0:1g.24gb"], &[gpu.clone()], &[]).unwrap(), ["1g.23gb@6/1"]);
    let error = planned(&["0:1g.5gb"], &[gpu.clone()], &[]).unwrap_err();
    assert!(
        error.contains("has no profile 1g.5gb; NVIDIA B200 has 1g.45gb, 1g.23gb, 2g.45gb"),
        "{error}"
    );
    // On another product that name is another profile.
    let error = planned(&["0:1g.20gb"], &[product("h200")], &[]).unwrap_err();
    assert!(error.contains("has no profile 1g.20gb"), "{error}");
    gpu.profiles.clear();
    let error = planned(&["0:1g.5gb"], &[gpu], &[]).unwrap_err();
    assert!(error.contains("only while MIG mode is on"), "{error}");
}

#[test]
fn bad_layouts_are_refused_in_one_line() {
    let gpu = [product("a100-40")];
    for (layout, expected) in [
        (
            "3:1g.5gb",
            "names no GPU with MIG of this machine; expected all or one of 0",
        ),
        (
            "0:8x1g.5gb",
            "cannot have 8x1g.5gb at once; it can have at most 7x1g.5gb",
        ),
        ("0:2x4g.20gb", "cannot have 2x4g.20gb at once"),
        (
            "0:1g.5gb@7",
            "no 1g.5gb can begin at 7; its places are 1g.5gb@0, 1g.5gb@1, ",
        ),
        ("0:2x1g.5gb+me", "cannot have 2x1g.5gb+me at once"),
    ] {
        let error = planned(&[layout], &gpu, &[]).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    let error = planned(&["0:1g.5gb"], &[], &[]).unwrap_err();
    assert!(error.ends_with("names no GPU with MIG of this machine"), "{error}");
}

#[test]
fn the_last_layout_of_a_gpu_counts_and_others_stay_as_they_are() {
    let mut second = product("a100-40");
    second.uuid = "GPU-00000000-0000-4000-8000-000000000001".parse().unwrap();
    second.index = "1".parse().unwrap();
    let gpus = [product("a100-40"), second];
    assert_eq!(planned(&["0:1g.5gb"], &gpus, &[]).unwrap().len(), 1);
    let both = planned(&["all:7g.40gb", "1:1g.5gb"], &gpus, &[]).unwrap();
    assert_eq!(both, ["7g.40gb@0/7", "1g.5gb@6/1"]);
}

#[test]
fn mig_mode_is_turned_off_only_where_nobody_uses_the_gpu() {
    let gpu = with(&product("a100-40"), &[("1g.5gb", 0)]);
    let exact = plan(&["0:off".parse().unwrap()], std::slice::from_ref(&gpu), &[]).unwrap();
    assert_eq!(
        (exact[0].mode, exact[0].instances.len()),
        (crate::inventory::MigMode::Disabled, 0)
    );
    let error = planned(&["0:off"], std::slice::from_ref(&gpu), &[holder(&gpu, 1, "anna")]).unwrap_err();
    assert!(error.contains("gpu 0: anna stands in the way of the layout"), "{error}");
}
