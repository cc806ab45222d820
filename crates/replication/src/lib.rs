//! Consensus: which entries a majority of nodes has, and which node leads.
//!
//! ## Role
//! Two halves. A pure step ([`Core`]). Events come in: time passes, a message arrives, the leader
//! wants an entry, writes are durable. Work goes out ([`Work`]): entries to append or to void, a
//! promise to write down, messages to send, how far entries are committed. It does no I/O, takes no
//! lock, and reads no clock: the same events give the same work. And the task that does this work
//! ([`Member`]): on this node's log, and through whatever brings frames to other nodes ([`Peers`]).
//! Who leads has a [`ReplicatedLog`] for its term: the commit log that the pipeline stands on.
//! Whether this node still leads is proven beside the task, by a second pure step ([`Proving`]).
//!
//! ## Data structure
//! The algorithm is Raft's, by TiKV's crate `raft`, which nobody sees outside of this crate. What
//! it knows of an entry is its index and term: bodies stay in the log, and travel beside these
//! messages. Of the log it keeps the terms:
//!
//! ```text
//!   indices   1 . . . 40 | 41 . . 57 | 58 . 60      begins behind an entry, then runs of one term
//!   terms         3      |     4     |   7
//! ```
//!
//! ## Invariants (checked after each step of the simulation in `tests/`)
//! 1. At most one node leads in a term.
//! 2. A leader voids none of its own entries.
//! 3. Two logs that have an entry with the same index and term are the same up to there.
//! 4. An entry that was committed in a term is in the log of each leader of a later term.
//! 5. No two nodes hold different entries committed at the same index.
//! 6. What answers another node has been synced before it is sent: votes, and word of entries.
//!
//! ## Not here
//! Files (`log`), sockets, who is to be a member (`pipeline`). That a node needs rows, since the
//! leader's log begins behind its own, or is long and this node has nothing of it, is found here
//! ([`Standing::behind`]), and what they travel in is a [`Parcel`]; who sends and takes them is
//! `pipeline`.
//!
//! Read next: `core.rs`, `proving.rs`, `members.rs`, `message.rs`, `frame.rs`, `tests/cluster.rs`;
//! then `driver.rs`, `replicated.rs`, `tests/conformance.rs`.
#![forbid(unsafe_code)]

mod core;
mod driver;
mod failure;
mod frame;
mod inbox;
mod member;
mod members;
mod message;
mod parcel;
mod peers;
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub mod planted;
mod proofs;
mod proving;
mod raft_message;
mod replicated;
mod spoken;
mod stand;
mod terms;

pub use core::{Config, Core, Follower, Promise, Work};
pub use failure::{ReplicationError, ReplicationResult};
pub use inbox::Left;
pub use member::{Member, Standing};
pub use members::{MAX_ADDRESS, MAX_MEMBERS, MAX_VOTERS, MemberNode, Members, Part};
pub use message::{MAX_ENTRIES, MAX_FRAME, Message, MessageKind};
pub use parcel::{MAX_KEY, Parcel, ParcelKind};
pub use peers::{Doing, Frame, Peers, Records};
pub use proving::{Proving, Taken};
pub use replicated::ReplicatedLog;
pub use spoken::{HeldBack, Spoken};
pub use stand::{Role, Stand};
pub use terms::{EntryId, Terms};

/// A node: a number that is never 0 and never used again.
pub type NodeId = u64;
