//! A second site: a database that follows another one through a stream of its changes, and can take
//! its place.
//!
//! ## Role
//! An [`Agent`] reads the first database as any client does and applies to the second what is
//! committed there. The second one is locked meanwhile, and readable by transactions that are aware
//! of the lock. [`switch()`] lets the two change places, [`abort()`] makes both free,
//! [`abort_second`] the second one when the first is gone.
//!
//! ## Data structure
//! ```text
//!   first: who is written                                 second: who follows, locked
//!   ─────────────────────                                 ───────────────────────────
//!   \xff/changes/stream/ \0dr/ID  a stream of changes     \xff/dbLocked                 ID
//!   \xff\x02/plinth/dr/from/TAG   where it goes           \xff\x02/plinth/dr/to/head    what it follows, and what is wanted
//!                                                         \xff\x02/plinth/dr/to/place   what it holds: position, copied up to
//!      rows, a round at a version ──┐                     \xff\x02/plinth/dr/to/agent   which run of an agent may write it
//!      batches of changes ──────────┴──▶ agent ──▶        rows and place in one transaction
//!
//!   keys    ""            copied           round            end     what of a change at version v is applied, at a position P < v:
//!           ├───────────────┼────────────────┼───────────────┤
//!               all of it       if v > R          nothing           R: the version at which the round was read; it ends when P >= R
//! ```
//!
//! ## Invariants
//! 1. The second holds, below `copied`, exactly what the first held at the position; when
//!    everything is copied it is *whole* there.
//! 2. A position is committed with what leads to it, and each transaction is fenced by the run of
//!    the agent that made it. So a kill at any instant loses nothing and applies nothing twice.
//! 3. A version of the first is applied by one transaction. It always fits: a version of the
//!    first's log has 4 MiB of transactions, or one transaction, and each was allowed to be there.
//!    Of a FoundationDB one may not fit, which is told.
//! 4. At most one of the two takes writes of users who don't know about locks; versionstamps go on
//!    rising over a switch.
//! 5. Each step of a switch or an end is a transaction of one database that finds out whether it
//!    was done already.
//!
//! ## Not here
//! What a stream of changes is (`client`, `pipeline`), command lines (`cli`), files (`backup`).
//! Read next: `rows.rs`, `follow.rs`, `copy.rs`, `apply.rs`, `sides.rs`, `abort.rs`, `capture.rs`,
//! `handover.rs`, then `agent.rs`; `docs/second-site.md` for users.
#![forbid(unsafe_code)]

mod abort;
mod agent;
mod apply;
mod capture;
mod copy;
mod follow;
mod handover;
mod lease;
mod rows;
mod sides;
mod sites;
mod start;
mod status;
mod switch;
mod system;
mod wait;
mod watch;

pub use abort::{Freed, abort, abort_second};
pub use agent::{Agent, Control, Ending};
pub use capture::lock_of;
pub use rows::{DEFAULT_TAG, Leftover};
pub use sites::Sites;
pub use start::{StartSettings, set_paused, start};
pub use status::{Copied, Phase, Status, status};
pub use switch::switch;
pub use wait::{Waits, wait};
pub use watch::Watch;
