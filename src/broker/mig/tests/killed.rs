//! Orders whose process is killed: what it leaves is finished by the next one.

use super::apply::{Daemons, key, order, reserve, user};
use super::model::{Fault, Killed, Model, empty, had, wanted};
use crate::mig::{MigJournal, MigOrder, MigTools, OnDemandInstances, Record, SavedLayouts};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tranche_core::claims::Claims;
use tranche_core::types::DeviceKey;
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::{ExactGpu, Placement};
use tranche_state::node_users::NodeUser;

const OLD: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("2g.10gb", 4, &[2])];
const NEW: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("3g.20gb", 4, &[3])];

/// Calls `work` with the tools of a process that uses `model`.
fn with_tools<T>(
    model: &Model,
    state_dir: &Path,
    systemctl: Option<&Path>,
    users: &[NodeUser],
    work: impl FnOnce(&MigTools<'_>) -> T,
) -> T {
    let claims = Claims::open(state_dir).unwrap();
    work(&MigTools {
        machine: model,
        control: &Daemons::default(),
        claims: &claims,
        state_dir,
        users: &|_| Ok(users.to_vec()),
        systemctl: systemctl.map(PathBuf::from),
    })
}

/// Whether the process that applies `order` was killed.
fn is_killed(model: &Model, state_dir: &Path, order: &MigOrder) -> bool {
    let applied = || with_tools(model, state_dir, None, &[], |tools| tools.apply(order).map(drop));
    match catch_unwind(AssertUnwindSafe(applied)) {
        Ok(applied) => {
            applied.unwrap();
            false
        }
        Err(killed) => {
            assert!(killed.is::<Killed>());
            true
        }
    }
}

/// What the next process does.
fn finish(model: &Model, state_dir: &Path) {
    *model.killed_at_look.borrow_mut() = None;
    with_tools(model, state_dir, None, &[], |tools| tools.finish()).unwrap();
    assert_eq!(MigJournal::read(state_dir).unwrap(), None);
    assert_eq!(Claims::open(state_dir).unwrap().books().unwrap().damaged.len(), 0);
}

fn saved(state_dir: &Path) -> SavedLayouts {
    SavedLayouts::read(state_dir).unwrap()
}

#[test]
fn what_the_gpu_has_is_what_the_next_boot_makes() {
    let mut forward = 0;
    for look in 0.. {
        let top = tempfile::tempdir().unwrap();
        let model = Model::with(&wanted(&[]), None);
        assert!(!is_killed(&model, top.path(), &order(wanted(OLD))));
        let model = Model::killed_at_look(model.gpu.into_inner(), look);
        if !is_killed(&model, top.path(), &order(wanted(NEW))) {
            break;
        }
        finish(&model, top.path());
        let saved = saved(top.path());
        assert_eq!(saved.gpus[0].layout, model.has(), "look {look}");
        assert_eq!(saved.gpus[0].instances, model.gpu.borrow().instances, "look {look}");
        if model.has() == wanted(NEW) {
            forward += 1;
            assert_eq!(saved.previous, [wanted(OLD)]);
        } else {
            assert_eq!(model.has(), wanted(OLD));
        }
    }
    // After the last change, when it is recorded, and when the answer is made.
    assert_eq!(forward, 3);
}

/// Two instances that a boot has ended have each other's numbers afterwards.
#[test]
fn what_is_reserved_follows_once_however_often_it_is_finished() {
    let ended = || {
        let mut gpu = empty();
        (gpu.mode.current, gpu.mode.pending) = (MigMode::Disabled, MigMode::Disabled);
        gpu
    };
    let restore = MigOrder {
        may_change_mode: true,
        ..order(wanted(NEW))
    };
    let (low, high, restored) = {
        let model = Model::new(ended(), None);
        assert!(!is_killed(&model, tempfile::tempdir().unwrap().path(), &restore));
        (key(&model, 0), key(&model, 4), had(&model.gpu.borrow()))
    };
    for look in 0.. {
        let top = tempfile::tempdir().unwrap();
        let mut before = restored.clone();
        let (a, b) = (before.instances[0].placement, before.instances[1].placement);
        (before.instances[0].placement, before.instances[1].placement) = (b, a);
        let mut layouts = SavedLayouts::default();
        layouts.record(Vec::new(), [before]);
        layouts.write(top.path()).unwrap();
        let claims = Claims::open(top.path()).unwrap();
        reserve(&claims, &low, 1);
        reserve(&claims, &high, 2);
        let model = Model::killed_at_look(ended(), look);
        let was_killed = is_killed(&model, top.path(), &restore);
        let journal = MigJournal::read(top.path()).unwrap();
        finish(&model, top.path());
        if model.has() != wanted(NEW) {
            assert!(!is_killed(&model, top.path(), &restore));
        }
        let of = |number: u32| -> DeviceKey {
            let books = claims.books().unwrap();
            let mut found = books.claims().filter(|claim| {
                claim
                    .name
                    .as_ref()
                    .is_some_and(|name| name.contains(&format!("train-{number}")))
            });
            found.next().unwrap().device.clone()
        };
        let places = (key(&model, 4), key(&model, 0));
        assert_eq!((of(1), of(2)), places, "look {look}");
        // One that is killed after everything was recorded records it once more.
        if let Some(journal) = journal.filter(|_| model.has() == wanted(NEW)) {
            journal.write(top.path()).unwrap();
            finish(&model, top.path());
            assert_eq!((of(1), of(2)), places, "look {look}");
        }
        if !was_killed {
            break;
        }
    }
}

#[test]
fn an_instance_on_demand_is_known_whenever_its_maker_is_killed() {
    let place = Placement { start: 4, size: 2 };
    let by_hand: &[(&str, u32, &[u32])] = &[("1g.5gb", 0, &[1])];
    let target = wanted(&[("1g.5gb", 0, &[1]), ("2g.10gb", 4, &[2])]);
    let make = MigOrder {
        record: Record::OnDemand(place),
        ..order(target.clone())
    };
    let mut made = 0;
    for look in 0.. {
        let top = tempfile::tempdir().unwrap();
        let model = Model::killed_at_look(Model::with(&wanted(by_hand), None).gpu.into_inner(), look);
        let was_killed = is_killed(&model, top.path(), &make);
        finish(&model, top.path());
        let known = OnDemandInstances::read(top.path()).unwrap().made;
        let is_made = model.has() == target;
        assert!(is_made || model.has() == wanted(by_hand), "look {look}");
        // What was there before is never one of them.
        let devices: Vec<DeviceKey> = known.into_iter().map(|one| one.device).collect();
        let expected = if is_made { vec![key(&model, 4)] } else { Vec::new() };
        assert_eq!(devices, expected, "look {look}");
        // Nor does the next boot make it.
        assert_eq!(saved(top.path()), SavedLayouts::default());
        made += u32::from(is_made);
        if !was_killed {
            break;
        }
    }
    assert!(made > 2, "{made}");
}

/// A systemctl that writes down what it is called with.
fn systemctl(dir: &Path) -> PathBuf {
    let program = dir.join("systemctl");
    let text = format!("#!/bin/sh\necho \"$@\" >>{}\n", dir.join("calls").display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn services_that_were_stopped_are_started_whenever_the_process_is_killed() {
    let monitor = "nvidia-dcgm.service";
    let off = ExactGpu {
        mode: MigMode::Disabled,
        ..wanted(&[])
    };
    let to_off = MigOrder {
        may_change_mode: true,
        services: vec![monitor.to_owned()],
        ..order(off)
    };
    for fault in [None, Some(Fault::KilledBefore), Some(Fault::KilledAfter)] {
        let mut stopped = 0;
        for at in 0.. {
            let top = tempfile::tempdir().unwrap();
            let systemctl = systemctl(top.path());
            let calls = || fs::read_to_string(top.path().join("calls")).unwrap_or_default();
            let state_dir = top.path().join("state");
            fs::create_dir(&state_dir).unwrap();
            let gpu = Model::with(&wanted(OLD), None).gpu.into_inner();
            let model = match fault {
                Some(fault) => Model::new(gpu, Some((at, fault))),
                None => Model::killed_at_look(gpu, at),
            };
            // The monitor has the GPU open until it is stopped.
            let users = |_: &_| {
                let is_stopped = calls().lines().last() == Some("stop nvidia-dcgm.service");
                Ok(if is_stopped {
                    Vec::new()
                } else {
                    vec![user(7, "nv-hostengine", Some(monitor))]
                })
            };
            let claims = Claims::open(&state_dir).unwrap();
            let tools = MigTools {
                machine: &model,
                control: &Daemons::default(),
                claims: &claims,
                state_dir: &state_dir,
                users: &users,
                systemctl: Some(systemctl.clone()),
            };
            let ended = catch_unwind(AssertUnwindSafe(|| tools.apply(&to_off).map(drop).unwrap()));
            *model.killed_at_look.borrow_mut() = None;
            tools.finish().unwrap();
            assert_eq!(MigJournal::read(&state_dir).unwrap(), None);
            let calls = calls();
            if !calls.is_empty() {
                stopped += 1;
                let started = "start --no-block nvidia-dcgm.service";
                assert_eq!(calls.lines().last(), Some(started), "{fault:?} {at}: {calls}");
            }
            if ended.is_ok() {
                break;
            }
        }
        assert!(stopped > 3, "{fault:?}: {stopped}");
    }
}
