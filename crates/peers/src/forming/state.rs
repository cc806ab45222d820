//! What a node knows of the others while a cluster is formed, and what follows from it.

use super::Shared;
use crate::charter::Standing;
use crate::hello::Stage;
use std::collections::BTreeMap;
use std::time::Duration;

/// What was last heard of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Nothing: why.
    Nothing(String),
    /// How far it is, and with which cluster.
    Is(Stage, [u8; 16]),
}

/// What a node knows.
#[derive(Default, Debug)]
pub(super) struct State {
    pub(super) standing: Option<Standing>,
    /// The other nodes that were asked, by address.
    pub(super) seen: BTreeMap<String, Seen>,
    /// Why it was not taken in, the last time that it asked.
    pub(super) not_taken_in: Option<String>,
    /// Since when everybody who was asked said that he doesn't lead.
    pub(super) leaderless_since: Option<Duration>,
    pub(super) is_over: bool,
}

impl State {
    fn others<'a>(
        &'a self,
        shared: &'a Shared,
    ) -> impl Iterator<Item = (&'a str, Option<&'a Seen>)> {
        let others = shared.wish.addresses.iter().filter(|address| **address != shared.wish.own);
        others.map(|address| (address.as_str(), self.seen.get(address)))
    }

    /// Whether this node may make a charter: it is the first, and all others are there and empty.
    pub(super) fn may_found(&self, shared: &Shared) -> bool {
        let is_empty = |seen: Option<&Seen>| matches!(seen, Some(Seen::Is(Stage::Empty, _)));
        shared.wish.may_found()
            && shared.is_first()
            && self.standing.is_none()
            && self.others(shared).all(|(_, seen)| is_empty(seen))
    }

    /// Whether the cluster of this node's charter has begun, or may: somebody else says so, or this
    /// is the first node and all others have the charter.
    pub(super) fn may_begin(&self, shared: &Shared) -> bool {
        let Some(standing) = &self.standing else { return false };
        let ours = standing.charter.cluster_id;
        // Only what was proven with the charter's secret is noted with its cluster: see `ask.rs`.
        let has_begun =
            self.others(shared).any(|(_, seen)| seen == Some(&Seen::Is(Stage::Begun, ours)));
        let have_it = |(_, seen)| seen == Some(&Seen::Is(Stage::Chartered, ours));
        has_begun || (shared.is_first() && self.others(shared).all(have_it))
    }

    /// Whether the node at an address is to be sent the charter.
    pub(super) fn is_to_be_sent(&self, shared: &Shared, address: &str) -> bool {
        let is_empty = matches!(self.seen.get(address), Some(Seen::Is(Stage::Empty, _)));
        shared.is_first()
            && self.standing.as_ref().is_some_and(|standing| !standing.begun)
            && is_empty
    }

    /// What people should know; `None` until every other node was asked once.
    pub(super) fn words(&self, shared: &Shared) -> Option<String> {
        let ours = self.standing.as_ref().map(|standing| standing.charter.cluster_id);
        let mut missing = Vec::new();
        for (address, seen) in self.others(shared) {
            match seen? {
                Seen::Nothing(why) => missing.push(format!("{address} ({why})")),
                Seen::Is(Stage::Begun, theirs) if ours.is_none() => {
                    let why = self.not_taken_in.as_deref().unwrap_or("it asks for that");
                    return Some(format!(
                        "the cluster {} ({}) has begun without this directory, {}: it waits to be taken in, as a new node ({why})",
                        shared.wish.cluster,
                        hexadecimal(theirs),
                        shared.wish.dir.display()
                    ));
                }
                Seen::Is(Stage::Chartered | Stage::Begun, theirs)
                    if ours.is_some_and(|ours| ours != *theirs)
                        || (ours.is_none() && shared.is_first()) =>
                {
                    missing.push(format!(
                        "{address} (its directory was made for another cluster, {}, which this server doesn't know: if there is \
                         nothing of value in it, remove it there)",
                        hexadecimal(theirs)
                    ));
                }
                Seen::Is(..) => {}
            }
        }
        if let Some(why) = shared.wish.why_not_found() {
            missing.insert(
                0,
                format!(
                    "a cluster that has begun, to be taken in; it can't begin one itself: {why}"
                ),
            );
        }
        Some(match missing.is_empty() {
            true => "waits for the servers of the cluster to agree".to_owned(),
            false => format!("waits for {}", missing.join(", ")),
        })
    }
}

fn hexadecimal(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
