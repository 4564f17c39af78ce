//! Tests that measure times.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Measures up to three times. A busy machine wakes processes late now and then; what is wrong is wrong each time.
pub fn measured(measure: impl Fn()) {
    for _ in 0..2 {
        if catch_unwind(AssertUnwindSafe(&measure)).is_ok() {
            return;
        }
    }
    measure();
}
