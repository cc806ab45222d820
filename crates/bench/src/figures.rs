//! The figures to compare with: the seeds' published ones, FoundationDB measured, what we ask of ourselves.
//!
//! "Published" is the benchmarking guide: one process on one core of an E3-1240. "FoundationDB" is the
//! best cell of the row when version 7.3 ran on a machine of two virtual cores, its client on the same
//! two. A requirement is a multiple of that best cell, and in no case less than the published figure.

/// What one figure is held against. All in the unit of the figure.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Target {
    /// What the seeds publish for one core.
    pub published: Option<f64>,
    /// The best that FoundationDB gave when measured.
    pub foundationdb: Option<f64>,
    /// What we require of ourselves.
    pub required: Option<f64>,
    /// What we would like.
    pub goal: Option<f64>,
    /// Whether a smaller figure is the better one.
    pub smaller_is_better: bool,
}

impl Target {
    /// Nothing to compare with.
    pub const NONE: Self =
        Self { published: None, foundationdb: None, required: None, goal: None, smaller_is_better: false };

    /// Compared with both, and held to neither.
    pub const fn peers(published: f64, foundationdb: f64) -> Self {
        Self { published: Some(published), foundationdb: Some(foundationdb), ..Self::NONE }
    }

    /// So many times FoundationDB, and never below the published figure.
    pub const fn times(published: f64, foundationdb: f64, required: f64, goal: f64) -> Self {
        Self {
            required: Some((required * foundationdb).max(published)),
            goal: Some((goal * foundationdb).max(published)),
            ..Self::peers(published, foundationdb)
        }
    }

    /// At least so much.
    pub const fn at_least(required: f64, goal: f64) -> Self {
        Self { required: Some(required), goal: Some(goal), ..Self::NONE }
    }

    /// At most so much.
    pub const fn at_most(required: f64, goal: f64) -> Self {
        Self { smaller_is_better: true, ..Self::at_least(required, goal) }
    }

    /// Whether `value` is as good as `bound`.
    pub fn reaches(&self, value: f64, bound: f64) -> bool {
        if self.smaller_is_better { value <= bound } else { value >= bound }
    }
}

/// One client, one write a transaction: commits a second.
pub const WRITE_1: Target = Target::times(917.0, 885.0, 5.0, 8.0);
/// The mean commit of one client, in times of a synced write of the same bytes.
pub const WRITE_1_SYNCS: Target = Target::at_most(2.0, 1.5);
/// One client, ten writes a transaction.
pub const WRITE_2: Target = Target::peers(8_650.0, 6_300.0);
/// A hundred clients, ten writes a transaction.
pub const WRITE_3: Target = Target::times(46_000.0, 57_000.0, 5.0, 8.0);
/// A thousand clients, against what FoundationDB gives a hundred.
pub const WRITE_1000: Target = Target::times(46_000.0, 57_000.0, 7.0, 10.0);
/// A hundred clients, ten reads a transaction.
pub const READ: Target = Target::times(305_000.0, 68_000.0, 10.0, 20.0);
/// A hundred clients, nine reads and a write a transaction: operations a second.
pub const MIXED: Target = Target::times(107_000.0, 48_000.0, 5.0, 8.0);
/// A hundred clients, ranges of 1000 keys: keys a second.
pub const RANGE: Target = Target::times(3_600_000.0, 3_800_000.0, 3.0, 7.0);
/// Ten reads a transaction on one thread: reads a second.
pub const READ_ONE_THREAD: Target = Target::at_least(1_000_000.0, 1_500_000.0);
/// The same with ten million rows.
pub const READ_ONE_THREAD_LARGE: Target = Target::at_least(1_000_000.0, 1_000_000.0);
/// How far reads scale from one thread to two, as a part of how far a read-only map scales.
pub const READ_SCALING: Target = Target::at_least(0.9, 1.0);
/// Writes for minutes on end; FoundationDB's figure is its best over one minute.
pub const SUSTAINED: Target = Target { foundationdb: Some(44_000.0), ..Target::NONE };
/// The slowest slice, as a part of the first minute.
pub const SUSTAINED_LOWEST: Target = Target::at_least(0.7, 0.9);

/// Memory at rest, in bytes a key, for so many bytes of key and value a key.
pub fn memory_at_rest(data: f64) -> Target {
    Target::at_most(1.6 * data + 64.0, 1.3 * data + 48.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_is_a_multiple_of_the_best_and_never_below_the_published_figure() {
        assert_eq!((WRITE_1.required, WRITE_1.goal), (Some(4_425.0), Some(7_080.0)));
        assert_eq!((READ.required, RANGE.required), (Some(680_000.0), Some(11_400_000.0)));
        assert_eq!(Target::times(100.0, 1.0, 2.0, 200.0).required, Some(100.0));
        assert!(WRITE_1.reaches(4_425.0, 4_425.0) && !WRITE_1.reaches(4_424.0, 4_425.0));
        assert!(WRITE_1_SYNCS.reaches(1.9, 2.0) && !WRITE_1_SYNCS.reaches(2.1, 2.0));
    }
}
