//! The workloads, by name.
//!
//! Each is a small module: what it is called, what it does, what it is held against. `guide` are the six
//! single-core tests of FoundationDB's benchmarking guide; the others are the rest of our own speed table.

mod memory;
mod mixed;
mod range;
mod read;
mod scaling;
mod sustained;
mod write;

pub use memory::{Load, load};

use crate::outcome::Outcome;
use crate::{Bench, Error, Result};

/// A workload that can be run by name.
pub struct Workload {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Whether it is one of the guide's six.
    pub guide: bool,
    /// Whether it takes so long that it runs only when named, or with `all`.
    pub long: bool,
    /// Runs it.
    pub run: fn(&Bench) -> Result<Outcome>,
}

/// All workloads, in the order in which they run: memory as the load left it, reads, then writes.
pub const ALL: &[Workload] = &[
    memory::AT_REST,
    read::READ,
    read::ONE_THREAD,
    scaling::SCALING,
    range::RANGE,
    mixed::MIXED,
    write::WRITE_1,
    write::WRITE_2,
    write::WRITE_3,
    write::WRITE_1000,
    sustained::SUSTAINED,
];

/// The order in which reports show them: the guide's, in its order, then ours.
const IN_REPORTS: [&str; 11] = [
    "write1",
    "write2",
    "write3",
    "read",
    "90-10",
    "range",
    "read-1-thread",
    "scaling",
    "write-1000",
    "sustained",
    "memory",
];

/// The place of a workload in reports.
pub(crate) fn place_in_reports(name: &str) -> usize {
    IN_REPORTS.iter().position(|known| *known == name).unwrap_or(IN_REPORTS.len())
}

/// The workloads that these names stand for, in the order in which they run. `all` is every one, `guide` the
/// guide's six, `default` every one that isn't long.
pub fn select(names: &[impl AsRef<str>]) -> Result<Vec<&'static Workload>> {
    let matches = |workload: &Workload, name: &str| match name {
        "all" => true,
        "default" => !workload.long,
        "guide" => workload.guide,
        name => workload.name == name,
    };
    for name in names.iter().map(AsRef::as_ref) {
        if !ALL.iter().any(|workload| matches(workload, name)) {
            let known: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
            return Err(Error::UnknownWorkload { name: name.to_owned(), known: known.join(", ") });
        }
    }
    let wanted = |workload: &&Workload| names.iter().any(|name| matches(workload, name.as_ref()));
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_its_place_in_reports() {
        let mut places: Vec<usize> = ALL.iter().map(|workload| place_in_reports(workload.name)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..IN_REPORTS.len()).collect::<Vec<_>>());
    }

    #[test]
    fn names_and_groups_select_workloads_in_their_order() {
        let names = |wanted: &[&str]| {
            select(wanted).unwrap().iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["all"]).len(), ALL.len());
        assert_eq!(names(&["guide"]), ["read", "range", "90-10", "write1", "write2", "write3"]);
        assert_eq!(names(&["write1", "read", "read"]), ["read", "write1"]);
        assert!(!names(&["default"]).contains(&"sustained"));
        let error = select(&["read", "raed"]).err().unwrap().to_string();
        assert!(error.contains("raed") && error.contains("write-1000"), "{error}");
    }
}
