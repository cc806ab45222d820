//! Tests of the whole resolver.
//!
//! `model` has random histories, decided by the resolver and by a list that is looked through;
//! `edges` the rules one by one, as a reader of the rules would try them; `memory` what is
//! forgotten and given back. The parts have tests of their own beside these.

mod edges;
mod memory;
mod model;
mod parts;
mod random;

use crate::{Resolver, Transaction, Verdict};
use plinth_types::{Conflicts, Version};

/// A transaction that reads at `read_version`. A range is written `begin..end`, a single key by
/// itself.
fn transaction(read_version: Version, reads: &[&str], writes: &[&str]) -> Conflicts {
    let mut conflicts = Conflicts { read_version, ..Conflicts::default() };
    for (texts, list) in [(reads, &mut conflicts.reads), (writes, &mut conflicts.writes)] {
        for text in texts {
            match text.split_once("..") {
                Some((begin, end)) => list.push(begin.as_bytes(), end.as_bytes()),
                None => list.push_single(text.as_bytes()),
            }
        }
    }
    conflicts
}

/// What becomes of these transactions as a batch, with positions.
fn resolve(resolver: &mut Resolver, version: Version, transactions: &[Conflicts]) -> Vec<Verdict> {
    let batch: Vec<_> =
        transactions.iter().map(|conflicts| Transaction { conflicts, report: true }).collect();
    let mut verdicts = vec![Verdict::TooOld; 3];
    resolver.resolve(version, &batch, &mut verdicts);
    resolver.check_invariants();
    verdicts
}

fn conflict(reads: &[usize]) -> Verdict {
    Verdict::Conflict { reads: reads.to_vec() }
}
