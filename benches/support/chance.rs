//! Numbers that look like chance, for simulations.

/// Numbers that depend on a seed only.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// From 0 to 1, without both.
    pub(crate) fn next(&mut self) -> f64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((x ^ (x >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Times between events that have no memory.
    pub(crate) fn wait(&mut self, mean: f64) -> f64 {
        -self.next().ln() * mean
    }
}
