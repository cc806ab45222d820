//! A node as a member of a cluster: its part in the agreement on one log, and a leader for a term
//! now and then.
//!
//! ## Role
//! The same replica as everywhere, on a log that a majority of nodes agrees on (crate
//! `replication`). A member follows: it applies what is committed, and answers reads. In the terms
//! in which it leads it has a leader besides, which takes commits and gives read versions.
//!
//! ## Data structure
//! ```text
//!   frames of others ──▶ ┌ replication: Member ┐ ──▶ frames to others
//!                        │  driver, core, log  │
//!                        └──┬───────────────┬──┘
//!          committed entries│               │ leads in term T
//!                           ▼               ▼
//!        apply.rs: Replica::apply      term.rs: until everything before T is applied; far ahead with versions;
//!           │    one path, leader       a Leader on the log of term T; its first entry; ready. Until T is over.
//!           │    or not                     │
//!           └──▶ answers its batches ───────┘
//! ```
//!
//! ## Invariants
//! 1. Entries are applied by one task, in the order of the log, when they are known committed and
//!    not before; a restart applies what its log says is committed, and leaves the rest to the
//!    leader.
//! 2. A leader gives no read version and takes no commit before everything of former terms is
//!    applied, and an entry of its own. What was read before that is older than any transaction may
//!    be: so it begins without a resolver's memory.
//! 3. Every read version is proven: a majority said after the request came that this node leads,
//!    and what was committed then has been applied. Or an entry was committed meanwhile, which says
//!    the same.
//! 4. Versions move by entries alone, so that every node can serve every read version. A leader
//!    whose newest version has fallen behind the clock commits an entry without mutations before it
//!    gives a read version.
//! 5. A term that ends answers everybody who waits: what was appended has an unknown fate (1021),
//!    what was not may be sent to the next leader (1037).
//!
//! ## Not here
//! Who votes for whom (`replication`), sockets (whoever gives [`plinth_replication::Peers`]). How a
//! member that is too far behind for the log takes rows in, and is opened with them, stands in
//! `host.rs`; what it is given in `giving.rs`.
//! Read next: `participant.rs`, `apply.rs`, `term.rs`, `upkeep.rs`, `giving.rs`; `membership.rs`,
//! `plan.rs`, `members.rs`.

mod apply;
mod giving;
mod members;
mod membership;
mod pace;
mod participant;
mod plan;
mod posted;
mod progress;
mod stalls;
mod tasks;
mod term;
mod upkeep;

pub(crate) use giving::{MOST_UNDER_WAY, WINDOW_BYTES, window};
pub(crate) use members::removed;
pub(crate) use membership::{FILE_NAME, Keeper, UNFINISHED_NAME, read, write};
pub use membership::{Membership, Voter};
pub use participant::Leadership;
pub(crate) use participant::Participant;
pub(crate) use plinth_replication::Standing;
pub use plinth_replication::{Frame, MemberNode, Members, Parcel, Part, Peers, Spoken};
pub(crate) use progress::{CatchingUp, Progress, RowsTaken, Stage};
pub(crate) use tasks::start as start_tasks;
pub(crate) use upkeep::keep_for_followers;
