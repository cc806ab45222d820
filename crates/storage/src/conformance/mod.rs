//! What every storage engine must do: the suite that each of them runs.
//!
//! [`test_all`] runs the named scenarios and then random programs against [`model::Model`], a map with
//! versions that is too simple to be wrong. A failure panics and names the seed; [`random::run`] with that
//! seed repeats it.

pub mod model;
pub mod random;
mod scenarios;

use crate::Storage;
use plinth_types::{LogPosition, Version};

/// Makes an empty store at a version.
pub type Make<'m> = &'m dyn Fn(Version) -> Box<dyn Storage>;

/// Where in an imagined log the batch of a version lies: neither index nor term can be taken for anything else.
fn position(version: Version) -> LogPosition {
    let number = u64::try_from(version).expect("versions are not negative");
    LogPosition { index: 1000 + 3 * number, term: 1 + number / 10, version }
}

/// Runs everything: the scenarios, and `programs` random programs of `steps` steps each.
///
/// # Panics
/// If the engine does something else than it must.
pub fn test_all(make: Make<'_>, programs: u64, steps: usize) {
    scenarios::run_all(make);
    for seed in 0..programs {
        random::run(make, seed, steps);
    }
}
