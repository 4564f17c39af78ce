//! What the model has found, made small: each is done again before anything new is tried.

use crate::life::Life;
use crate::machine::Machine;
use crate::operation::{Act, Disk, Place, Profile, ROOT, Rules, Step, What};
use crate::reserving::Killed;
use crate::support::{own_mounts, rights};
use Act::{Boot, Create, KillAt, Pause, Prepare, Release, Reserve, Rest, Up};

/// Whether there is one order for all who wait, and who waits is looked at again when the policy changes: what
/// needs it is left out until then, here and in [`crate::weights::DEFAULT`].
pub(crate) const ONE_ORDER: bool = true;

/// `TRANCHE_TEST_MODEL_WEIGHTS=all` tries it all the same.
pub(crate) fn has_one_order() -> bool {
    ONE_ORDER || std::env::var_os("TRANCHE_TEST_MODEL_WEIGHTS").is_some_and(|weights| weights == "all")
}

const ANN: u32 = 60_001;
const BOB: u32 = 60_002;
const EVE: u32 = 60_003;

fn lives(test: &str, steps: &[Act]) {
    if !rights::owns_machine(&format!("model::known::{test}")) {
        return;
    }
    let steps: Vec<Step> = steps
        .iter()
        .map(|act| Step {
            act: act.clone(),
            overlaps: false,
        })
        .collect();
    let lived = own_mounts::with_own_mounts(|| {
        let mut machine = Machine::new();
        let mut life = Life::new(&mut machine);
        let (_, checked) = life.live(&steps);
        if std::env::var_os("TRANCHE_TEST_MODEL_TRACE").is_some() {
            println!("{}", life.trace());
        }
        if let Err(violation) = checked {
            panic!("{}: {}\n{}", violation.rule, violation.text, life.trace());
        }
    });
    if let Err(panic) = lived {
        std::panic::resume_unwind(panic);
    }
}

fn create(who: u32, name: u8, gpu: u8, shares: u8, wait: u8) -> Act {
    Create {
        who,
        name,
        what: if shares == 0 {
            What::Whole(gpu)
        } else {
            What::Shares(gpu, shares)
        },
        wait,
    }
}

fn root_waits(root_waits: bool) -> Act {
    Act::Rules(Rules {
        root_waits,
        reserve_for: 20,
        quota: 8,
    })
}

#[test]
fn what_cannot_be_kept_is_not_held_and_what_is_kept_outlives_a_boot() {
    let reserve = Reserve {
        pod: 0,
        what: What::Shares(4, 2),
    };
    let prepare = Prepare {
        claim: 0,
        what: What::Shares(7, 2),
    };
    let full = Act::Disk {
        place: Place::Kept,
        disk: Disk::Full,
    };
    let well = Act::Disk {
        place: Place::Kept,
        disk: Disk::Well,
    };
    lives(
        "what_cannot_be_kept_is_not_held_and_what_is_kept_outlives_a_boot",
        &[
            full,
            reserve.clone(),
            reserve.clone(),
            prepare.clone(),
            prepare.clone(),
            Rest,
            well,
            reserve,
            prepare,
            Boot,
            Up,
            Rest,
        ],
    );
}

#[test]
fn an_instance_does_not_outlive_its_claim_whenever_the_broker_is_killed() {
    let made = Create {
        who: ROOT,
        name: 0,
        what: What::Instance(Profile::Two),
        wait: 0,
    };
    let released = Release { who: ROOT, name: 0 };
    let mut steps = Vec::new();
    for call in ["nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy"] {
        let kill = KillAt { call };
        steps.extend([
            made.clone(),
            kill,
            released.clone(),
            Pause { milliseconds: 600 },
            Up,
            Rest,
        ]);
    }
    lives(
        "an_instance_does_not_outlive_its_claim_whenever_the_broker_is_killed",
        &steps,
    );
}

/// What was made is recorded when there is room again, without anybody who asks for an instance.
#[test]
fn an_instance_that_could_not_be_recorded_does_not_stay() {
    let full = Act::Disk {
        place: Place::State,
        disk: Disk::Full,
    };
    let well = Act::Disk {
        place: Place::State,
        disk: Disk::Well,
    };
    let prepare = Prepare {
        claim: 0,
        what: What::Instance(Profile::One),
    };
    let mut steps = Vec::new();
    for name in 0..4 {
        // What ends leaves a little room.
        steps.extend([
            create(ROOT, name, 5 + name % 2, 0, 0),
            full.clone(),
            Release { who: ROOT, name },
        ]);
        steps.extend([prepare.clone(), well.clone(), Act::Unprepare { claim: 0 }, Rest]);
    }
    lives("an_instance_that_could_not_be_recorded_does_not_stay", &steps);
}

/// It was destroyed, and the specifications and the broker still had it as a free device.
#[test]
fn an_instance_that_was_destroyed_is_not_promised_before_the_specifications_are_written() {
    let specs = |disk| Act::Disk {
        place: Place::Specs,
        disk,
    };
    let made = Create {
        who: ROOT,
        name: 0,
        what: What::Instance(Profile::Two),
        wait: 0,
    };
    let mut steps = Vec::new();
    for (name, is_killed) in [(0, false), (1, true), (2, false)] {
        steps.extend([
            made.clone(),
            specs(Disk::ReadOnly),
            Release { who: ROOT, name: 0 },
            Pause { milliseconds: 1500 },
        ]);
        if is_killed {
            // What it held is free with its end.
            steps.extend([Act::Kill { after: 0 }, specs(Disk::Well), Up]);
        }
        let what = What::Any;
        let (who, wait) = (ANN, 0);
        steps.extend([specs(Disk::Well), Create { who, name, what, wait }, Rest]);
    }
    lives(
        "an_instance_that_was_destroyed_is_not_promised_before_the_specifications_are_written",
        &steps,
    );
}

/// A broker that was killed had half destroyed it, and the next one puts it back and destroys it: both times, the file
/// that shows the host has no such instance.
#[test]
fn an_instance_that_was_put_back_and_destroyed_is_not_promised() {
    let mut steps = Vec::new();
    for (name, milliseconds) in (0..6).zip([50, 100, 150, 200, 250, 300]) {
        steps.extend([
            KillAt {
                call: "nvmlGpuInstanceDestroy",
            },
            Create {
                who: ROOT,
                name: 0,
                what: What::Instance(Profile::Two),
                wait: 0,
            },
            Release { who: ROOT, name: 0 },
            Pause { milliseconds: 300 },
            Up,
            Pause { milliseconds },
            Create {
                who: EVE,
                name,
                what: What::Any,
                wait: 0,
            },
            Rest,
            Release { who: EVE, name },
            Rest,
        ]);
    }
    lives("an_instance_that_was_put_back_and_destroyed_is_not_promised", &steps);
}

/// What is made after a boot gets the numbers of an instance that the boot has ended, whose claim is still promised.
#[test]
fn an_instance_at_the_place_of_a_lost_one_is_left_to_the_holder_of_that() {
    let one = What::Instance(Profile::One);
    let prepare = Prepare { claim: 0, what: one };
    let create = |name| Create {
        who: ROOT,
        name,
        what: one,
        wait: 0,
    };
    let steps = [
        prepare.clone(),
        Rest,
        Boot,
        Up,
        create(0),
        Rest,
        prepare,
        Rest,
        Release { who: ROOT, name: 0 },
        Act::Unprepare { claim: 0 },
        Rest,
    ];
    lives(
        "an_instance_at_the_place_of_a_lost_one_is_left_to_the_holder_of_that",
        &steps,
    );
}

#[test]
fn who_hangs_up_and_waits_again_keeps_things_free_once() {
    if !has_one_order() {
        return;
    }
    let restless = Act::Rejoin {
        who: EVE,
        what: What::Shares(4, 3),
        times: 25,
    };
    lives(
        "who_hangs_up_and_waits_again_keeps_things_free_once",
        &[
            create(BOB, 0, 4, 2, 0),
            Pause { milliseconds: 300 },
            restless,
            create(BOB, 1, 4, 1, 60),
            Rest,
        ],
    );
}

/// Two orders that disagree: the one that was first by arrival is last by use.
#[test]
fn root_and_users_who_wait_for_the_same_do_not_wait_for_one_another() {
    if !has_one_order() {
        return;
    }
    lives(
        "root_and_users_who_wait_for_the_same_do_not_wait_for_one_another",
        &[
            root_waits(true),
            create(BOB, 0, 7, 2, 0),
            create(ANN, 0, 4, 4, 0),
            Pause { milliseconds: 1000 },
            create(BOB, 1, 4, 3, 60),
            Pause { milliseconds: 300 },
            create(ROOT, 0, 4, 3, 60),
            Pause { milliseconds: 300 },
            create(EVE, 0, 4, 3, 60),
            Pause { milliseconds: 600 },
            Release { who: ANN, name: 0 },
            Rest,
        ],
    );
}

/// Equal shares that nobody had named were all free or none: with a reserved one, its user got another one, and others
/// got none.
#[test]
fn a_reserved_share_is_its_user_s_and_the_others_are_given() {
    let reserve = Act::Promise {
        who: ANN,
        what: What::Shares(4, 1),
        ahead: 6,
        lasts: 2,
        killed: Killed::Nothing,
    };
    lives(
        "a_reserved_share_is_its_user_s_and_the_others_are_given",
        &[
            reserve,
            Act::Clock { slots: 4 },
            create(BOB, 0, 4, 3, 0),
            create(EVE, 0, 4, 1, 60),
            create(ANN, 0, 4, 1, 0),
            Rest,
            Release { who: ANN, name: 0 },
            // Its end.
            Act::Clock { slots: 8 },
            Rest,
        ],
    );
}

/// Another's time begins when one's own ends, and what is kept before it does not shorten one's own.
#[test]
fn a_reserved_device_is_its_user_s_until_the_end_although_another_time_follows() {
    let promise = |who, ahead| Act::Promise {
        who,
        what: What::Whole(6),
        ahead,
        lasts: 3,
        killed: Killed::Nothing,
    };
    lives(
        "a_reserved_device_is_its_user_s_until_the_end_although_another_time_follows",
        &[
            promise(ANN, 1),
            promise(BOB, 4),
            Act::Clock { slots: 2 },
            create(EVE, 0, 6, 0, 0),
            create(ANN, 0, 6, 0, 0),
            Rest,
        ],
    );
}

/// Its user comes when it is given up, and releases it: nothing is kept for the rest of the time.
#[test]
fn what_its_user_has_taken_too_late_is_kept_for_nobody() {
    let promise = Act::Promise {
        who: ANN,
        what: What::Whole(5),
        ahead: 1,
        lasts: 6,
        killed: Killed::Nothing,
    };
    lives(
        "what_its_user_has_taken_too_late_is_kept_for_nobody",
        &[
            promise,
            Act::Clock { slots: 3 },
            create(ANN, 0, 5, 0, 0),
            create(BOB, 0, 5, 0, 60),
            Release { who: ANN, name: 0 },
            Rest,
        ],
    );
}

/// It is destroyed when nobody uses it, and was kept for its reserved time, or lost before.
#[test]
fn an_instance_that_was_made_on_demand_is_not_reserved() {
    let promise = |who| Act::Promise {
        who,
        what: What::Any,
        ahead: 2,
        lasts: 5,
        killed: Killed::Nothing,
    };
    let made = Create {
        who: ROOT,
        name: 0,
        what: What::Instance(Profile::One),
        wait: 0,
    };
    lives(
        "an_instance_that_was_made_on_demand_is_not_reserved",
        &[
            made,
            promise(ANN),
            promise(BOB),
            promise(EVE),
            Release { who: ROOT, name: 0 },
            Rest,
        ],
    );
}

/// The limit of a user who waits is raised.
#[test]
fn who_may_hold_more_by_a_new_policy_is_served() {
    if !has_one_order() {
        return;
    }
    let any = Create {
        who: BOB,
        name: 1,
        what: What::Any,
        wait: 60,
    };
    lives(
        "who_may_hold_more_by_a_new_policy_is_served",
        &[
            create(BOB, 0, 7, 3, 0),
            create(BOB, 2, 4, 1, 0),
            any,
            Pause { milliseconds: 300 },
            root_waits(false),
            Rest,
        ],
    );
}
