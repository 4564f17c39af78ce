//! How much of what repeats is done: `make test` does samples, `make test-all` and CI everything.

use std::env::var_os;

/// Whether everything is done (`TRANCHE_TEST_ALL=1`).
pub fn is_all() -> bool {
    var_os("TRANCHE_TEST_ALL").is_some_and(|value| value == "1")
}

/// `few`, or `all` where everything is done.
pub fn number<T>(few: T, all: T) -> T {
    if is_all() { all } else { few }
}

/// At most `few` of `all`, from its beginning to its end at equal distances, or each of them where everything is done.
pub fn of<T>(few: usize, all: impl IntoIterator<Item = T>) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let step = number(all.len().div_ceil(few.max(1)).max(1), 1);
    all.into_iter().step_by(step).collect()
}
