//! The workloads, by name.
//!
//! Each is a small module: what it is called, what it does, what it is held against. They come in
//! groups: the tests of FoundationDB's benchmarking guide for one core and for a cluster, those of
//! its performance page, those of its page of key performance indicators, and our own.

mod adjacent;
mod aged;
mod backup;
mod budget;
mod bulk_load;
mod cached;
mod catch_up;
mod changes;
mod checkpoint;
mod cluster;
mod concurrency;
mod device;
mod failover;
mod growth;
mod larger;
mod latency;
mod memory;
mod mix;
mod mixed;
mod over_time;
mod range;
mod read;
mod restart;
mod restore;
mod scaling;
mod second_site;
mod series;
mod series_queries;
mod sustained;
mod three_nodes;
mod throughput;
mod turns;
mod uncached;
mod watched;
mod write;

pub use crate::load::{Load, load};
pub use mix::set_random;

use crate::host::{Cluster, Host};
use crate::outcome::{Measurement, Outcome};
use crate::{Bench, Error, Result};
use std::path::Path;

/// A workload that can be run by name.
pub struct Workload {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where it comes from.
    pub group: Group,
    /// Whether it takes so long that it runs only when named, or with `all`.
    pub long: bool,
    /// Runs it.
    pub run: fn(&Bench) -> Result<Outcome>,
}

/// Where a workload comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// FoundationDB's benchmarking guide, for one core.
    Guide,
    /// The same, for a cluster of twelve machines.
    Cluster,
    /// FoundationDB's performance page.
    Performance,
    /// FoundationDB's page of key performance indicators.
    Kpi,
    /// Our own.
    Own,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Guide, Self::Cluster, Self::Performance, Self::Kpi, Self::Own];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guide => "guide",
            Self::Cluster => "cluster",
            Self::Performance => "performance",
            Self::Kpi => "kpi",
            Self::Own => "own",
        }
    }
}

/// All workloads, in the order in which they run: memory as the load left it, reads, then writes.
pub const ALL: &[Workload] = &[
    memory::AT_REST,
    bulk_load::BULK_LOAD,
    read::READ,
    read::ONE_THREAD,
    scaling::SCALING,
    cluster::READ,
    cached::CACHED,
    range::RANGE,
    range::SIZES,
    latency::READ,
    mixed::MIXED,
    cluster::MIXED,
    throughput::THROUGHPUT,
    concurrency::CONCURRENCY,
    latency::PARTS,
    latency::COMMIT,
    latency::TRANSACTION,
    over_time::RANDOM_90_10,
    over_time::RANDOM_50_50,
    write::WRITE_1,
    write::WRITE_2,
    write::WRITE_3,
    write::WRITE_1000,
    cluster::WRITE,
    adjacent::ADJACENT,
    checkpoint::CHECKPOINT,
    backup::BACKUP,
    restore::RESTORE,
    changes::CHANGES,
    second_site::DR,
    failover::FAILOVER,
    catch_up::CATCH_UP,
    three_nodes::THREE_NODES,
    aged::AGED,
    larger::LARGER,
    growth::GROWTH,
    restart::RESTART,
    sustained::SUSTAINED,
    budget::BUDGET,
    uncached::UNCACHED,
    series::NAMES,
    series::ROWS,
    series::DICTIONARY,
    series::OPENTSDB,
    series_queries::QUERIES,
];

/// Servers of one cluster in a directory, `servers` of them, each apart from the others if that is
/// wanted.
fn cluster_of(
    host: &dyn Host,
    directory: &Path,
    (servers, is_apart): (usize, bool),
) -> Result<Box<dyn Cluster>> {
    host.cluster(directory, servers, is_apart).map_err(|error| match error.detail() {
        Some(why) if error == plinth_types::Error::unsupported_operation() => {
            Error::Skipped(why.to_owned())
        }
        _ => Error::Database(error),
    })
}

/// A measurement joined to the sum of those before it.
fn join(sum: Option<Measurement>, more: Measurement) -> Measurement {
    match sum {
        Some(sum) => sum.and(&more),
        None => more,
    }
}

/// The workloads that these names stand for, in the order in which they run. `all` is every one,
/// `published` those of FoundationDB's pages, `guide`, `cluster`, `performance`, `kpi` and `own`
/// one group, `default` the guide's and our own but the long ones.
pub fn select(names: &[impl AsRef<str>]) -> Result<Vec<&'static Workload>> {
    let matches = |workload: &Workload, name: &str| match name {
        "all" => true,
        "default" => !workload.long && matches!(workload.group, Group::Guide | Group::Own),
        // The older name of it stays good.
        "published" | "seeds" => workload.group != Group::Own,
        name => workload.name == name || workload.group.name() == name,
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
    use crate::report::{IN_REPORTS, place_in_reports};
    use std::collections::BTreeSet;

    #[test]
    fn every_workload_has_its_place_in_reports() {
        let places: BTreeSet<Option<usize>> =
            ALL.iter().map(|workload| place_in_reports(workload.name)).collect();
        assert_eq!(places, (0..ALL.len()).map(Some).collect());
        assert_eq!(IN_REPORTS.len(), ALL.len(), "a workload that has gone keeps no place");
    }

    #[test]
    fn names_and_groups_select_workloads_in_their_order() {
        let names = |wanted: &[&str]| {
            select(wanted).unwrap().iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["all"]).len(), ALL.len());
        assert_eq!(names(&["guide"]), ["read", "range", "90-10", "write1", "write2", "write3"]);
        assert_eq!(names(&["write1", "read", "read"]), ["read", "write1"]);
        assert!(
            !names(&["default"]).contains(&"sustained")
                && !names(&["default"]).contains(&"throughput")
        );
        assert_eq!(names(&["cluster"]), ["cluster-read", "cluster-90-10", "cluster-write"]);
        assert_eq!(names(&["published", "own"]).len(), ALL.len());
        let error = select(&["read", "raed"]).err().unwrap().to_string();
        assert!(error.contains("raed") && error.contains("write-1000"), "{error}");
    }
}
