//! Numbers that look like chance. `TRANCHE_TEST_SEED` sets with which they begin.

/// The next ones; they are the same for one seed.
pub(crate) struct Chance {
    seed: u64,
    now: u64,
}

impl Chance {
    pub(crate) fn new() -> Self {
        let seed = std::env::var("TRANCHE_TEST_SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
        Self { seed, now: seed }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// A number below `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        // xorshift64.
        self.now ^= self.now << 13;
        self.now ^= self.now >> 7;
        self.now ^= self.now << 17;
        self.now % most
    }
}
