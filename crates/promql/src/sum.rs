//! A sum that loses nothing to rounding.

/// A sum with what rounding took from it (Kahan's, in Neumaier's form).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sum {
    pub(crate) sum: f64,
    pub(crate) lost: f64,
}

impl Sum {
    pub(crate) fn new(sum: f64) -> Self {
        Self { sum, lost: 0.0 }
    }

    pub(crate) fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        self.lost = match sum {
            sum if sum.is_infinite() => 0.0,
            sum if self.sum.abs() >= value.abs() => self.lost + ((self.sum - sum) + value),
            sum => self.lost + ((value - sum) + self.sum),
        };
        self.sum = sum;
    }

    /// Adds another sum, with what it lost.
    pub(crate) fn join(&mut self, other: Self) {
        self.add(other.sum);
        if other.lost != 0.0 {
            self.add(other.lost);
        }
    }

    pub(crate) fn total(self) -> f64 {
        if self.sum.is_infinite() { self.sum } else { self.sum + self.lost }
    }
}
