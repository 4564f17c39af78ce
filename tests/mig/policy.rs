//! Layouts that the policy has.

use crate::bed::Bed;

const POLICY: &str = "version: v1\nmig:\n  layout:\n  - 0:3g.20gb,1g.5gb\n  - 3:7x1g.5gb\n";

#[test]
fn without_a_layout_the_one_of_the_policy_is_applied() {
    let bed = Bed::new("dgx-a100-mig");
    let before = bed.layouts();
    let said = bed.tranche(&["mig", "apply", "--yes"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.err
            .contains("--layout: is not given, and the policy has no layout"),
        "{said:?}"
    );
    bed.policy(POLICY);
    let plan = bed.tranche(&["mig", "plan"]);
    assert_eq!(plan.code, Some(4), "{plan:?}");
    let applied = bed.tranche(&["mig", "apply", "--yes"]);
    assert_eq!((applied.code, applied.out), (Some(0), plan.out), "{}", applied.err);
    assert_eq!(bed.layout(0), "1g.5gb@0,3g.20gb@4");
    assert!(bed.layout(3).starts_with("1g.5gb@0,1g.5gb@1,"), "{}", bed.layout(3));
    assert_eq!(bed.layouts()[1..3], before[1..3]);
    assert_eq!(bed.tranche(&["mig", "plan"]).code, Some(0));
}

#[test]
fn a_layout_that_contradicts_the_policy_is_refused() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy(POLICY);
    let before = bed.layouts();
    let said = bed.tranche(&["mig", "apply", "--yes", "--layout", "1:empty", "--layout", "0:7g.40gb"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let expected = "gives it 1g.5gb,3g.20gb, and not 7g.40gb; change the policy";
    assert!(
        said.err.contains("gpu 0: the policy ") && said.err.contains(expected),
        "{said:?}"
    );
    let errors = said.err.lines().filter(|line| line.starts_with("tranche: "));
    assert_eq!(errors.count(), 1, "{said:?}");
    assert_eq!(bed.layouts(), before);
    // The same instances may be given with their places, and other GPUs are free.
    bed.apply("0:3g.20gb@0,1g.5gb@4");
    assert_eq!(bed.layout(0), "1g.5gb@4,3g.20gb@0");
    bed.apply("1:2g.10gb");
}

#[test]
fn a_boot_makes_the_layouts_of_the_policy_and_those_that_were_saved() {
    let bed = Bed::new("dgx-a100-mig");
    bed.apply("1:2g.10gb@2");
    bed.apply("0:3g.20gb@0,1g.5gb@5");
    bed.policy(POLICY);
    bed.lose_instances();
    assert_eq!((bed.layout(0), bed.layout(1)), ("empty".into(), "empty".into()));
    let restored = bed.tranche(&["mig", "restore"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    // Where the policy says the same as what was saved, at the same places.
    assert_eq!(
        (bed.layout(0), bed.layout(1)),
        ("1g.5gb@5,3g.20gb@0".into(), "2g.10gb@2".into())
    );
    assert!(bed.layout(3).starts_with("1g.5gb@0,1g.5gb@1,"), "{}", bed.layout(3));
    assert_eq!(bed.tranche(&["mig", "plan"]).code, Some(0));
}

#[test]
fn one_gpu_that_cannot_have_its_layout_keeps_no_other_from_it() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nmig:\n  layout:\n  - 0:9g.90gb\n  - 3:2g.10gb\n");
    let restored = bed.tranche(&["mig", "restore"]);
    assert_eq!(restored.code, Some(2), "{restored:?}");
    assert!(restored.err.contains("gpu 0"), "{restored:?}");
    assert!(bed.layout(3).starts_with("2g.10gb@"), "{}", bed.layout(3));
}
