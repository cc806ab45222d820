//! Connections between the nodes of a cluster.
//!
//! ## Role
//! Brings the frames of consensus ([`plinth_replication::Peers`]) from node to node, over sockets
//! of `env`, so for real and in the simulation. It makes sure whose frames they are: each
//! connection begins with both sides proving that they know the cluster's secret, and with TLS they
//! show certificates besides. Nodes listen where clients do; the first bytes tell who it is, and
//! whoever accepts connections hands those of nodes on to [`Mesh::receive`].
//!
//! ## Data structure
//! ```text
//!   consensus ──Peers::send──▶ outbox of a node ──▶ its task (call.rs) ══packets══▶ session.rs ──deliver──▶ consensus there
//!                              | short frames      connects, again and again         checks each frame
//!                              | long frames       pings
//! ```
//! Before there is a cluster its nodes form one: [`forming`]. A new node is taken in by whoever
//! leads: `session.rs`.
//!
//! A [`Charter`] says what a cluster was founded with; each node keeps it as a file beside its data
//! ([`Standing`]).
//!
//! ## Invariants
//! 1. No frame is taken from anybody who hasn't proven to be the node that the frame names.
//! 2. What waits for a node is bounded, whether it is slow or gone; so is what a caller makes this
//!    node hold.
//! 3. A frame without entries waits for a piece of another one at most, never for all of it.
//! 4. No bytes from a socket make it panic; the first that no node would send end the connection.
//!
//! ## Not here
//! What frames say (`replication`), listening, clients (`server`).
//! Read next: `hello.rs`, `mesh.rs`, `shared.rs`, `call.rs`, `session.rs`, `outbox.rs`; then
//! `forming/mod.rs`.
#![forbid(unsafe_code)]

mod call;
pub mod charter;
mod failure;
pub mod forming;
pub mod hello;
mod link;
mod mesh;
mod outbox;
pub mod packet;
pub mod secret;
mod session;
mod shared;
mod talk;
mod trust;

pub use charter::{Charter, Peer, Standing};
pub use failure::{PeerError, PeerResult};
pub use mesh::{Mesh, PeerStatus};
pub use outbox::Figures;
pub use secret::Secret;
pub use shared::{TakeIn, TakenIn};
pub use trust::Trust;
