//! What every storage engine must do: the suite that each of them runs.
//!
//! [`test_all`] runs the named scenarios and then random programs against [`model::Model`], a map
//! with versions that is too simple to be wrong. A failure panics and names the seed;
//! [`random::run`] with that seed repeats it.

pub mod model;
pub mod random;
mod scenarios;

use crate::{Changed, Reader, Writer};
use plinth_types::{LogPosition, MutationList, Version};
use std::ops::Deref;
use std::sync::Arc;

/// Makes an empty store at a version.
pub type Make<'m> = &'m dyn Fn(Version) -> Box<dyn Writer>;

/// Both sides of a store.
struct Store {
    writer: Box<dyn Writer>,
    reader: Arc<dyn Reader>,
}

impl Store {
    fn new(make: Make<'_>, version: Version) -> Self {
        let writer = make(version);
        Self { reader: writer.reader(), writer }
    }

    fn apply(&mut self, version: Version, list: &MutationList, changed: Changed<'_>) {
        let prepared =
            self.writer.prepare(&mut list.iter()).wait().expect("what is needed can be read");
        self.writer.apply(prepared, position(version), &mut list.iter(), changed);
    }

    fn forget_before(&mut self, version: Version, budget: usize) -> bool {
        self.writer.forget_before(version, budget)
    }
}

impl Deref for Store {
    type Target = dyn Reader;

    fn deref(&self) -> &Self::Target {
        &*self.reader
    }
}

/// Where in an imagined log the batch of a version lies: neither index nor term can be taken for
/// anything else.
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
