use super::*;
use tranche_core::error::{Kind, line};
use tranche_core::types::{MemorySize, MigIndex};
use tranche_plan::inventory::{Architecture, ComputeMode, Inventory, VirtualizationMode};
use tranche_plan::mig::{Layout, described};
use tranche_plan::policy::read;
use tranche_plan::share::{Grade, plan};
use tranche_plan::sim;

const ALL: Allowed = Allowed {
    modes: true,
    layout: true,
};
const NOTHING: Allowed = Allowed {
    modes: false,
    layout: false,
};

fn uuid(inventory: &Inventory, gpu: usize) -> String {
    inventory.gpus[gpu].uuid.to_string()
}

fn tried(way: &str, inventory: &Inventory, gpu: usize, allowed: Allowed) -> Result<Setup, String> {
    let mig = described(inventory).0;
    let device = uuid(inventory, gpu);
    setup(way.parse().unwrap(), &device, inventory, &mig, allowed).map_err(|error| line(&error))
}

#[test]
fn names_are_read_as_they_are_written() {
    let names = Way::ALL.map(|way| way.to_string());
    let known = "solo ts2 ts2-short ts2-long mps2 mps-50-50 mps-80-20 mig-2 mig-mps";
    assert_eq!(names.join(" "), known);
    for name in names
        .iter()
        .map(String::as_str)
        .chain(["ts2-medium", "mps-95-5", "mps-1-99"])
    {
        assert_eq!(name.parse::<Way>().unwrap().to_string(), name);
    }
    for bad in ["", "mps-50-60", "mps-100-0", "mps-050-50", "ts3", "ts2-default", "SOLO"] {
        assert!(bad.parse::<Way>().is_err(), "{bad}");
    }
    assert_eq!(Split::new(0).or(Split::new(100)), None);
}

/// What a seat is, in a few words.
fn shown(setup: &Setup) -> Vec<String> {
    let words = |value: Option<String>| value.unwrap_or("-".to_owned());
    let one = |seat: &Seat| {
        let memory = words(seat.memory.map(|memory| memory.mib().to_string()));
        let compute = words(seat.compute.map(|compute| compute.to_string()));
        let g = &seat.guarantees;
        let grades = [&g.memory, &g.compute, &g.bandwidth, &g.faults].map(|one| one.grade.as_str());
        format!(
            "{} {} {memory} {compute} {}",
            seat.device.cdi_name(),
            seat.share,
            grades.join(" ")
        )
    };
    setup.seats.iter().map(one).collect()
}

#[test]
fn each_way_has_the_shares_and_limits_of_its_name() {
    let h200 = sim::open("hgx-h200").unwrap();
    for (way, seats) in [
        ("solo", vec!["0 whole 143771 100% hard hard hard hard"]),
        (
            "ts2",
            vec!["0 0 - - none none none soft", "0 1 - - none none none soft"],
        ),
        (
            "ts2-short",
            vec!["0 0 - - none none none soft", "0 1 - - none none none soft"],
        ),
        (
            "mps2",
            vec!["0 first - - none none none none", "0 second - - none none none none"],
        ),
        (
            "mps-50-50",
            vec![
                "0 first 64696 50% soft soft none none",
                "0 second 64696 50% soft soft none none",
            ],
        ),
        (
            "mps-80-20",
            vec![
                "0 first 103515 80% soft soft none none",
                "0 second 25878 20% soft soft none none",
            ],
        ),
        (
            "mps-95-5",
            vec![
                "0 first 122205 95% soft soft none none",
                "0 second 5750 5% soft soft none none",
            ],
        ),
        (
            "mig-2",
            vec![
                "0:0 whole 71168 100% hard hard hard hard",
                "0:1 whole 71168 100% hard hard hard hard",
            ],
        ),
        (
            "mig-mps",
            vec![
                "0:0 first 32025 50% advisory advisory none none",
                "0:0 second 32025 50% advisory advisory none none",
            ],
        ),
    ] {
        let setup = tried(way, &h200, 0, ALL).unwrap();
        assert_eq!(shown(&setup), seats, "{way}");
        assert_eq!(setup.layout.is_some(), way.starts_with("mig"), "{way}");
        // The usual reader and the usual planner make the same shares, without a word of warning.
        let read = read::parse("p.yaml", &setup.policy).unwrap();
        assert_eq!(read.warnings, Vec::<String>::new(), "{way}");
        if setup.layout.is_none() {
            let plan = plan(&read.policy, &h200).unwrap();
            assert_eq!(
                (plan.absent.len(), plan.notes.len(), plan.devices.len()),
                (0, 0, 1),
                "{way}"
            );
            let names: Vec<String> = plan.devices[0].shares.names().map(|name| name.to_string()).collect();
            let seats = setup.seats.iter().map(|seat| seat.share.to_string());
            assert_eq!(names, seats.collect::<Vec<_>>(), "{way}");
        }
    }
}

#[test]
fn compute_modes_and_turns_are_kept_unless_the_person_allowed_changes() {
    let mut t4 = sim::open("t4x2").unwrap();
    let kept = tried("mps-50-50", &t4, 1, NOTHING).unwrap();
    assert!(kept.policy.contains("computeMode: keep"));
    assert!(kept.policy.contains(&uuid(&t4, 1)) && shown(&kept)[0].ends_with("advisory advisory none none"));
    assert!(
        tried("mps-50-50", &t4, 1, ALL)
            .unwrap()
            .policy
            .contains("computeMode: exclusive")
    );
    let turns = tried("ts2-short", &t4, 0, NOTHING).unwrap_err();
    assert!(
        turns.contains("--change-modes") && turns.starts_with("ts2-short: "),
        "{turns}"
    );
    assert!(
        tried("ts2-short", &t4, 0, ALL)
            .unwrap()
            .policy
            .contains("interval: short")
    );
    t4.gpus[0].compute_mode = Some(ComputeMode::ExclusiveProcess);
    let error = tried("ts2", &t4, 0, ALL).unwrap_err();
    assert!(
        error.contains("the compute mode of gpu 0 is EXCLUSIVE_PROCESS; set it with nvidia-smi"),
        "{error}"
    );
    assert!(tried("mps2", &t4, 0, NOTHING).is_ok() && tried("solo", &t4, 0, NOTHING).is_ok());
    t4.gpus[0].compute_mode = Some(ComputeMode::Prohibited);
    assert!(Way::ALL.iter().all(|way| tried(&way.to_string(), &t4, 0, ALL).is_err()));
}

#[test]
fn what_a_machine_cannot_do_is_refused_with_the_reason() {
    let mut t4 = sim::open("t4x2").unwrap();
    assert!(
        tried("mig-2", &t4, 0, ALL)
            .unwrap_err()
            .contains("cannot be divided by MIG")
    );
    t4.gpus[0].virtualization = Some(VirtualizationMode::Vgpu);
    let vgpu = tried("ts2-long", &t4, 0, ALL).unwrap_err();
    assert!(vgpu.contains("a vGPU guest cannot set the length of a turn"), "{vgpu}");
    // A guest cannot set the exclusive mode: the planner lowers the grade.
    let guest = tried("mps-50-50", &t4, 0, ALL).unwrap();
    assert_eq!(guest.seats[0].guarantees.compute.grade, Grade::Advisory);
    t4.gpus[0].architecture = Some(Architecture::Pascal);
    for way in ["mps2", "mps-50-50", "mps-80-20"] {
        let pascal = tried(way, &t4, 0, ALL).unwrap_err();
        assert!(
            pascal.starts_with(&format!("{way}: ")) && pascal.contains("before Volta"),
            "{pascal}"
        );
        assert!(!pascal.contains('\n') && !pascal.contains("policy:"), "{pascal}");
    }
    assert!(tried("ts2", &t4, 0, NOTHING).is_ok());
    let error = setup(Way::Solo, "GPU-00000000-ffff", &t4, &[], ALL).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}

#[test]
fn a_driver_without_limits_of_memory_gets_shares_without_them() {
    let mut t4 = sim::open("t4x2").unwrap();
    t4.driver.as_mut().unwrap().version = "450.80.02".parse().unwrap();
    let setup = tried("mps-80-20", &t4, 0, NOTHING).unwrap();
    assert!(!setup.policy.contains("memory"), "{}", setup.policy);
    assert_eq!(
        setup
            .seats
            .iter()
            .map(|seat| (seat.memory, seat.compute.unwrap().get()))
            .collect::<Vec<_>>(),
        [(None, 80), (None, 20)]
    );
}

#[test]
fn layouts_need_leave_and_are_those_of_the_planner() {
    let h200 = sim::open("hgx-h200").unwrap();
    let error = tried("mig-2", &h200, 3, NOTHING).unwrap_err();
    let layout = format!("{}:2x3g.71gb", uuid(&h200, 3));
    assert!(
        error.contains(&format!("needs the layout {layout}, which --change-layout allows")),
        "{error}"
    );
    let setup = tried("mig-2", &h200, 3, ALL).unwrap();
    assert_eq!(setup.layout, Some(layout));
    assert!(setup.layout.unwrap().parse::<Layout>().is_ok());
    assert!(setup.policy.contains("\"3:0\", \"3:1\""), "{}", setup.policy);
}

#[test]
fn the_ways_of_a_machine_are_those_it_can_and_those_it_cannot() {
    let t4 = sim::open("t4x2").unwrap();
    let (possible, refused) = setups(&uuid(&t4, 0), &t4, &[], NOTHING).unwrap();
    let names: Vec<String> = possible.iter().map(|setup| setup.way.to_string()).collect();
    assert_eq!(names.join(" "), "solo ts2 mps2 mps-50-50 mps-80-20");
    let refused: Vec<String> = refused.iter().map(|one| format!("{}: {}", one.way, one.why)).collect();
    assert_eq!(refused.len(), 4);
    assert_eq!(refused[2], "mig-2: gpu 0 cannot be divided by MIG");
    assert!(setups("GPU-00000000-ffff", &t4, &[], ALL).is_err());
}

#[test]
fn instances_that_exist_are_used_as_they_are() {
    let mut a100 = sim::open("dgx-a100-mig").unwrap();
    for (gpu, way, why) in [
        (0, "solo", ":off, which --change-layout allows"),
        (0, "ts2", ":off, which --change-layout allows"),
        (0, "mig-2", ":2x3g.20gb, which --change-layout allows"),
        (7, "mig-mps", ":2x3g.20gb, which --change-layout allows"),
    ] {
        let error = tried(way, &a100, gpu, NOTHING).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(tried(way, &a100, gpu, ALL).unwrap().layout.is_some(), "{way}");
    }
    // An instance that a person names is shared as a GPU is.
    let instance = a100.gpus[1].mig_devices[0].uuid.clone().unwrap().to_string();
    let on = |way: Way| setup(way, &instance, &a100, &[], NOTHING);
    let shared = on(Way::Mps(Split(50))).unwrap();
    assert_eq!(shared.seats[0].device.mig, Some(MigIndex(0)));
    assert_eq!(shared.seats[0].instance_sms, Some(42));
    assert_eq!(shared.seats[0].memory.map(MemorySize::mib), Some(9043));
    assert!(on(Way::TimeSlicing(Interval::Default)).is_ok() && on(Way::Solo).is_ok());
    assert!(line(&on(Way::MigHalves).unwrap_err()).contains("is an instance of MIG already"));
    // Two equal halves that exist need no leave, and have their UUIDs in the policy.
    let one = a100.gpus[1].mig_devices[0].clone();
    let mut other = one.clone();
    other.index = MigIndex(1);
    other.gpu_instance.0 = 1;
    other.uuid = Some("MIG-11111111-2222-3333-4444-555555555555".parse().unwrap());
    a100.gpus[1].mig_devices = vec![one, other];
    let halves = tried("mig-2", &a100, 1, NOTHING).unwrap();
    assert_eq!(halves.layout, None);
    assert!(halves.policy.contains("MIG-11111111-2222"), "{}", halves.policy);
    assert_eq!(halves.seats.len(), 2);
}

#[test]
fn every_way_on_every_built_in_machine_is_planned_or_refused_in_one_line() {
    for sim in sim::ALL {
        let inventory = sim::open(sim.name).unwrap();
        for gpu in 0..inventory.gpus.len() {
            for (way, allowed) in Way::ALL.iter().flat_map(|way| [(way, ALL), (way, NOTHING)]) {
                match tried(&way.to_string(), &inventory, gpu, allowed) {
                    Ok(setup) => {
                        let seats = if *way == Way::Solo { 1 } else { 2 };
                        assert_eq!(setup.seats.len(), seats, "{} gpu {gpu} {way}", sim.name);
                        assert!(allowed == ALL || setup.layout.is_none());
                    }
                    Err(why) => assert!(!why.contains('\n') && why.starts_with(&format!("{way}: ")), "{why}"),
                }
            }
        }
    }
}
