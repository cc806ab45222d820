//! Random numbers of tests, the same each time.

/// A generator, by its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// All 64 bits, of which the lowest are hardly random.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// A number below another.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.bits() >> 33) % end
    }
}
