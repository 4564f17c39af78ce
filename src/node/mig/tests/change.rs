//! Changes that fail, and processes that are killed on the way.

use super::model::{Fault, GPU, Killed, Model, empty, wanted};
use crate::mig::{MigJournal, change, finish};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::ExactGpu;

const OLD: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[1, 2]), ("2g.10gb", 4, &[2]), ("1g.5gb", 6, &[1])];
const NEW: &[(&str, u32, &[u32])] = &[("3g.20gb", 0, &[3]), ("3g.20gb", 4, &[1, 1, 1])];

fn changed(model: &Model, state_dir: &Path) -> Result<(), String> {
    let (before, target) = (model.has(), wanted(NEW));
    change(model, state_dir, &[before], &[target], &mut |_, _| {}).map_err(|error| error.to_string())
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
            let was_done = model.has() == wanted(NEW);
            let put_back = finish(&model, top.path(), &mut |_, _| {}).unwrap();
            assert_eq!(put_back, [GPU.parse().unwrap()]);
            let expected = if was_done { NEW } else { OLD };
            assert_eq!(model.has(), wanted(expected), "{fault:?} {at}");
            // The next one has nothing to do.
            assert_eq!(finish(&model, top.path(), &mut |_, _| {}).unwrap(), []);
        }
        assert!(kills > 6, "{kills}");
    }
}

#[test]
fn a_journal_stays_until_a_gpu_is_put_back() {
    let top = tempfile::tempdir().unwrap();
    MigJournal::new(vec![wanted(OLD)], vec![wanted(NEW)])
        .write(top.path())
        .unwrap();
    let model = Model::new(empty(), Some((2, Fault::Fails)));
    let error = finish(&model, top.path(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("the driver has failed"), "{error}");
    assert!(MigJournal::read(top.path()).unwrap().is_some());
    finish(&model, top.path(), &mut |_, _| {}).unwrap();
    assert_eq!(model.has(), wanted(OLD));
    assert_eq!(MigJournal::read(top.path()).unwrap(), None);
}

#[test]
fn a_driver_that_is_slow_to_see_an_end_is_waited_for() {
    let top = tempfile::tempdir().unwrap();
    let model = Model::with(&wanted(OLD), None);
    *model.lag.borrow_mut() = 5;
    changed(&model, top.path()).unwrap();
    assert_eq!(model.has(), wanted(NEW));
    *model.lag.borrow_mut() = 1000;
    let again = change(&model, top.path(), &[wanted(NEW)], &[wanted(OLD)], &mut |_, _| {}).unwrap_err();
    assert!(
        again.to_string().contains("the driver says that it is in use"),
        "{again}"
    );
}

#[test]
fn the_mode_changes_without_instances_only() {
    let top = tempfile::tempdir().unwrap();
    let off = ExactGpu {
        mode: MigMode::Disabled,
        ..wanted(&[])
    };
    let model = Model::with(&wanted(OLD), None);
    change(
        &model,
        top.path(),
        &[wanted(OLD)],
        std::slice::from_ref(&off),
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(model.has(), off);
    change(&model, top.path(), &[off], &[wanted(NEW)], &mut |_, _| {}).unwrap();
    assert_eq!(model.has(), wanted(NEW));
}
