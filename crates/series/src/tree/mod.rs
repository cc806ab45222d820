//! One series as an append-only B+tree, whose nodes never change once they are written.
//!
//! A node is named by its level and its index there; leaves are level 0. The node at (level, index)
//! has the children (level - 1, index × 64 ...), so no node holds an address. Each child's
//! [`Summary`] stands in its parent, which makes an aggregate over years a handful of nodes. As
//! long as a node has no parent yet, its summary stands on its own as a *twig*:
//!
//! ```text
//!   level 2   twigs: 0                               what a query begins with: all twigs, highest level first,
//!   level 1   nodes: 0 .. 63      twigs: 64 65       which is also the order of time
//!   level 0   leaves 0 ................. 4223        twigs: 4160 .. 4223
//! ```
//!
//! Sealing a leaf writes the leaf and its twig; the 64th twig of a level turns all of them into a
//! node and that node's twig. So a restart needs the twigs alone, of which there are at most 63 a
//! level, and nothing is ever rewritten. Where nodes and twigs are kept is said by [`Nodes`].

mod read;
mod summary;
#[cfg(test)]
mod tests;

pub use read::{Direction, Groups, Piece, Scan, Span, Walk, aggregate};
pub use summary::Summary;

use crate::codec;
use crate::error::{Error, Result};
use crate::value::Points;
use plinth_types::Bytes;
use std::future::Future;

/// Children of a full node.
pub const FANOUT: u64 = 64;

/// Levels that a tree can have: 64^10 leaves are more than there are nanoseconds.
pub const MAX_LEVEL: u8 = 10;

/// Which node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// 0 for a leaf.
    pub level: u8,
    /// Counted from the beginning of the series.
    pub index: u64,
}

impl Address {
    fn leaf(index: u64) -> Self {
        Self { level: 0, index }
    }

    /// The address of the child at `place`.
    fn child(self, place: u64) -> Self {
        Self {
            level: self.level.saturating_sub(1),
            index: self.index.saturating_mul(FANOUT).saturating_add(place),
        }
    }
}

/// A node or a leaf without what is in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Twig {
    /// Which node.
    pub address: Address,
    /// All that is below it.
    pub summary: Summary,
}

/// Where a tree's nodes and twigs are kept.
pub trait Nodes {
    /// The bytes of a node; `None` if it is not there.
    fn node(&self, address: Address) -> impl Future<Output = Result<Option<Bytes>>> + Send;

    /// The twigs of one level, or of all levels, ascending by level and index.
    fn twigs(&self, level: Option<u8>) -> impl Future<Output = Result<Vec<Twig>>> + Send;

    /// Spans whose points were deleted, ascending, not overlapping. Nodes that lie within one may
    /// be gone.
    fn masks(&self) -> impl Future<Output = Result<Vec<Span>>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
}

/// Something that has to be written for a tree to grow. All that one append gives back belongs
/// together.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// A node that is new.
    Node(Address, Vec<u8>),
    /// A twig that is new; [`encode_summaries`] makes its bytes.
    Twig(Twig),
    /// The twigs of this level are in a node now, and go.
    Fold(u8),
}

/// What whoever appends to a tree knows of it.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Trunk {
    leaves: u64,
    last: Option<i64>,
}

impl Trunk {
    /// What is known of a tree.
    pub async fn open(nodes: &impl Nodes) -> Result<Self> {
        Self::of(&nodes.twigs(None).await?)
    }

    /// What the twigs of a tree say, all of them in their order.
    pub(crate) fn of(twigs: &[Twig]) -> Result<Self> {
        let covered = |twig: &Twig| {
            let width = FANOUT.checked_pow(u32::from(twig.address.level));
            width.and_then(|width| width.checked_mul(twig.address.index.checked_add(1)?))
        };
        let mut trunk = Self::default();
        for twig in twigs {
            let leaves = covered(twig)
                .ok_or_else(|| Error::damaged("a twig", "an index beyond all leaves"))?;
            trunk.leaves = trunk.leaves.max(leaves);
            trunk.last = trunk.last.max(Some(twig.summary.last.time));
        }
        trunk.check(twigs)?;
        Ok(trunk)
    }

    /// Fails if twigs are missing: what is written next would lie over what is there.
    fn check(&self, twigs: &[Twig]) -> Result<()> {
        let mut twigs = twigs.iter().map(|twig| twig.address);
        for level in 0..=MAX_LEVEL {
            let nodes = self.leaves.checked_div(FANOUT.saturating_pow(u32::from(level)));
            let nodes = nodes.unwrap_or_default();
            let first = if level == MAX_LEVEL { 0 } else { nodes - nodes % FANOUT };
            for index in first..nodes {
                let found = twigs.next();
                if found != Some(Address { level, index }) {
                    let why = format!("twig {index} of level {level} expected, {found:?} found");
                    return Err(Error::damaged("a tree", why));
                }
            }
        }
        match twigs.next() {
            None => Ok(()),
            Some(more) => Err(Error::damaged("a tree", format!("{more:?} is in a node already"))),
        }
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> u64 {
        self.leaves
    }

    /// The time of the newest point.
    pub fn last(&self) -> Option<i64> {
        self.last
    }

    /// Counts `points` as the next leaf, which was sealed before: what [`append`](Self::append)
    /// makes of the trunk, and no writes.
    pub fn pass(&mut self, points: &Points) {
        if let Some(last) = points.times.last() {
            self.leaves += 1;
            self.last = Some(*last);
        }
    }

    /// Seals `points` (some, all of them later than any before) as the next leaf. The writes must
    /// be visible to `nodes` before the next append.
    pub async fn append(&mut self, nodes: &impl Nodes, points: &Points) -> Result<Vec<Write>> {
        let Some(summary) = Summary::of(points) else { return Ok(Vec::new()) };
        assert!(
            self.last.is_none_or(|last| last < summary.first.time),
            "a leaf is later than the one before"
        );
        let mut grown = Twig { address: Address::leaf(self.leaves), summary };
        let mut writes = vec![Write::Node(grown.address, codec::encode(points))];
        while grown.address.index % FANOUT == FANOUT - 1 && grown.address.level < MAX_LEVEL {
            let level = grown.address.level;
            let mut children = nodes.twigs(Some(level)).await?;
            children.push(grown);
            grown = parent(&children)?;
            let summaries: Vec<Summary> = children.iter().map(|twig| twig.summary).collect();
            writes.push(Write::Fold(level));
            writes.push(Write::Node(grown.address, encode_summaries(level + 1, &summaries)));
        }
        writes.push(Write::Twig(grown));
        self.leaves += 1;
        self.last = Some(summary.last.time);
        Ok(writes)
    }
}

/// The twig above all twigs of a level, which have to be the 64 neighbours that belong together.
fn parent(children: &[Twig]) -> Result<Twig> {
    let Some(first) = children.first() else {
        return Err(Error::damaged("a tree", "a level without twigs"));
    };
    let Address { level, index } = first.address;
    let neighbours =
        children.iter().zip(index..).all(|(twig, index)| twig.address == Address { level, index });
    if !neighbours || children.len() as u64 != FANOUT || index % FANOUT != 0 {
        let why = format!("{FANOUT} twigs from {index} on expected in level {level}, others found");
        return Err(Error::damaged("a tree", why));
    }
    let mut summary = first.summary;
    children[1..].iter().for_each(|twig| summary.add(&twig.summary));
    Ok(Twig { address: Address { level: level + 1, index: index / FANOUT }, summary })
}

pub use summary::{decode_summaries, decode_summary, encode_summaries};
