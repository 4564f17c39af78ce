//! Changes that fail, and processes that are killed on the way.

use super::model::{Fault, Killed, Model, empty, had, journal, wanted};
use crate::mig::{MigJournal, Settled, change, settle};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tranche_core::error::Result;
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::{ExactGpu, GpuInstance, ProfileId};

const OLD: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[1, 2]), ("2g.10gb", 4, &[2]), ("1g.5gb", 6, &[1])];
const NEW: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("3g.20gb", 4, &[1, 1, 1])];

/// Changes it, and removes the journal unless it has to stay.
fn change_to(model: &Model, state_dir: &Path, to: ExactGpu) -> Result<(), String> {
    let journal = journal(had(&model.gpu.borrow()), to);
    let changed = change(model, state_dir, &journal, &mut |_, _| {});
    if !changed.as_ref().is_err_and(|unchanged| unchanged.is_unfinished) {
        MigJournal::remove(state_dir).unwrap();
    }
    changed.map_err(|unchanged| unchanged.error.to_string())
}

fn changed(model: &Model, state_dir: &Path) -> Result<(), String> {
    change_to(model, state_dir, wanted(NEW))
}

/// Settles the journal that a killed process has left.
fn finish(model: &Model, state_dir: &Path) -> Result<Option<Settled>> {
    let Some(journal) = MigJournal::read(state_dir)? else {
        return Ok(None);
    };
    let settled = settle(model, &journal, &mut |_, _| {})?;
    MigJournal::remove(state_dir)?;
    Ok(Some(settled))
}

#[test]
fn a_layout_is_reached_and_leaves_no_journal() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    assert_eq!(model.has(), wanted(OLD));
    let kept = model.gpu.borrow().instances[0].id;
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
    assert_eq!(MigJournal::read(top.path()).unwrap(), None);
    // The GPU instance that both layouts have is the same one.
    assert!(model.gpu.borrow().instances.iter().any(|one| one.id == kept));
    // There is nothing left to do.
    *model.changes.borrow_mut() = 0;
    changed(&model, top.path()).unwrap();
    assert_eq!(*model.changes.borrow(), 0);
}

#[test]
fn a_change_that_fails_anywhere_leaves_what_there_was() {
    let changes = {
        let model = Model::with(&wanted(OLD), None);
        changed(&model, tempfile::tempdir().unwrap().path()).unwrap();
        *model.changes.borrow()
    };
    assert!(changes > 6, "{changes}");
    for fault in [Fault::Fails, Fault::Lies] {
        for at in 0..changes {
            let top = tempfile::tempdir().unwrap();
            let model = Model::with(&wanted(OLD), Some((at, fault)));
            let error = changed(&model, top.path()).unwrap_err();
            assert!(
                error.ends_with("everything was put back as it was"),
                "{fault:?} {at}: {error}"
            );
            assert_eq!(model.has(), wanted(OLD), "{fault:?} {at}");
            assert_eq!(MigJournal::read(top.path()).unwrap(), None);
        }
    }
}

#[test]
fn a_process_that_is_killed_anywhere_leaves_what_there_was_or_what_is_wanted() {
    for fault in [Fault::KilledBefore, Fault::KilledAfter] {
        let mut kills = 0;
        for at in 0.. {
            let top = tempfile::tempdir().unwrap();
            let model = Model::with(&wanted(OLD), Some((at, fault)));
            let ended = catch_unwind(AssertUnwindSafe(|| changed(&model, top.path())));
            let Err(killed) = ended else { break };
            assert!(killed.is::<Killed>());
            kills += 1;
            let (expected, settled) = match model.has() == wanted(NEW) {
                true => (NEW, Settled::Reached),
                false => (OLD, Settled::PutBack),
            };
            assert_eq!(finish(&model, top.path()).unwrap(), Some(settled));
            assert_eq!(model.has(), wanted(expected), "{fault:?} {at}");
        }
        assert!(kills > 6, "{kills}");
    }
}

#[test]
fn a_gpu_that_falls_off_halfway_is_put_back_when_it_answers_again() {
    for at in [0, 3, 6] {
        let top = tempfile::tempdir().unwrap();
        let model = Model::with(&wanted(OLD), Some((at, Fault::Lost)));
        let error = changed(&model, top.path()).unwrap_err();
        let lines = error.lines().count();
        assert!(
            lines == 1 && error.contains("could not be put back") && error.contains("the GPU is lost"),
            "{error}"
        );
        // Nothing is forgotten meanwhile.
        assert!(
            finish(&model, top.path())
                .unwrap_err()
                .to_string()
                .contains("the GPU is lost")
        );
        assert!(MigJournal::read(top.path()).unwrap().is_some());
        *model.is_lost.borrow_mut() = false;
        assert_eq!(finish(&model, top.path()).unwrap(), Some(Settled::PutBack));
        assert_eq!(model.has(), wanted(OLD), "{at}");
    }
}

#[test]
fn a_journal_stays_until_a_gpu_is_put_back() {
    let top = tempfile::tempdir().unwrap();
    let before = had(&Model::with(&wanted(OLD), None).gpu.borrow());
    journal(before, wanted(NEW)).write(top.path()).unwrap();
    let model = Model::new(empty(), Some((2, Fault::Fails)));
    let error = finish(&model, top.path()).unwrap_err();
    assert!(error.to_string().contains("the driver has failed"), "{error}");
    assert!(MigJournal::read(top.path()).unwrap().is_some());
    finish(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(OLD));
    assert_eq!(MigJournal::read(top.path()).unwrap(), None);
}

/// Between the kill and the next start, somebody creates an instance by hand.
#[test]
fn what_somebody_has_created_meanwhile_is_left() {
    for (there, expected) in [
        // Half of the way: the instance of 2 slices is not put back, because its place is taken.
        (
            &[("3g.20gb", 0, &[3][..])][..],
            &[("3g.20gb", 0, &[1, 2][..]), ("1g.5gb", 6, &[1])][..],
        ),
        // The target but for what was created by hand.
        (
            &[("3g.20gb", 0, &[3][..]), ("1g.5gb", 6, &[1])][..],
            &[("3g.20gb", 0, &[3][..]), ("1g.5gb", 6, &[1])][..],
        ),
    ] {
        let top = tempfile::tempdir().unwrap();
        let before = had(&Model::with(&wanted(OLD), None).gpu.borrow());
        let target = wanted(&[("3g.20gb", 0, &[3]), ("1g.5gb", 6, &[1])]);
        journal(before, target).write(top.path()).unwrap();
        let model = Model::with(&wanted(there), None);
        let strange = GpuInstance {
            id: tranche_core::types::GpuInstanceId(99),
            profile: ProfileId(19),
            placement: tranche_plan::mig::Placement { start: 4, size: 1 },
            compute: Vec::new(),
        };
        model.gpu.borrow_mut().instances.push(strange.clone());
        finish(&model, top.path()).unwrap();
        let mut expected = wanted(expected);
        let by_hand = &wanted(&[("1g.5gb", 4, &[])]).instances;
        expected.instances.extend(by_hand.iter().cloned());
        expected.instances.sort_by_key(|one| one.placement);
        assert_eq!(model.has(), expected);
        assert!(model.gpu.borrow().instances.contains(&strange));
    }
}

#[test]
fn a_driver_that_is_slow_to_see_an_end_is_waited_for() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    *model.lag.borrow_mut() = 5;
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
    *model.lag.borrow_mut() = 1000;
    let again = change_to(&model, top.path(), wanted(OLD)).unwrap_err();
    assert!(again.contains("the driver says that it is in use"), "{again}");
}

#[test]
fn the_mode_changes_without_instances_only() {
    let top = tempfile::tempdir().unwrap();
    let off = ExactGpu {
        mode: MigMode::Disabled,
        ..wanted(&[])
    };
    let model = Model::with(&wanted(OLD), None);
    change_to(&model, top.path(), off.clone()).unwrap();
    assert_eq!(model.has(), off);
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
}
