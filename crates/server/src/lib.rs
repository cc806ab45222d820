//! The server: any database, offered to many clients over sockets.
//!
//! ## Role
//! Takes an `Endpoint` (the same that a client in the process would use) and serves it on
//! listeners: frames in, calls of the endpoint, frames out; and, where it is asked to and the
//! feature `series` is on, points of time series in (`series/mod.rs`). It decides who may connect,
//! how much may be under way, and what a request may say; what the request means is the endpoint's
//! business.
//!
//! ## Data structure
//! ```text
//!   door (listener, TLS) ──accept──▶ a task per connection, on one reactor for good
//!                          │ receive: all that has arrived      ┌─ ready at once: a read from memory ─┐
//!                          │ handle each frame ──▶ endpoint ────┤                                     ▼
//!                          │                                    ├─ later: commit, watch ──▶ outbox ──▶ output
//!                          │                                    └─ long: status, cuts ──▶ heavy ──▶ outbox
//!                          │ send: all that is ready, in one write                  (wakes the task)
//!                          ▼
//!   registry: every connection's outbox, for stopping, deadlines, counting
//! ```
//!
//! ## Invariants
//! 1. A read that memory can answer is answered on the thread that received it, and leaves with all
//!    others that became ready in the same turn. What takes milliseconds is carried out elsewhere,
//!    one after the other (`heavy.rs`); what moves much waits for its turn among its kind
//!    (`lane.rs`); and points and HTTP have threads of their own, which let those of keys go first.
//! 2. A connection holds at most a stated number of bytes, all of them together too, the answers
//!    that it is owed among them; who takes no answers is asked no more questions, and who holds
//!    the most while memory is short is cut off (`memory.rs`).
//! 3. No bytes from a socket make the server panic. A frame that is whole but says nonsense is
//!    answered with an error; bytes that are no frame end the connection, with an error that says
//!    why.
//! 4. Without TLS (feature `tls`) it listens on loopback only, unless told otherwise in so many
//!    words; and with TLS too, if clients needn't show certificates.
//! 5. While rights are configured every door asks what whoever is there may (`rights/mod.rs`);
//!    while there are quotas, what he has to keep to (`quotas/mod.rs`).
//! 6. Stopping answers what is under way before it closes.
//!
//! ## Not here
//! The bytes of messages (`proto`), transactions (`client`), the commit pipeline (`pipeline`),
//! command lines (`cli`).
//! Read next: `server.rs`, then `connection/mod.rs`, `connection/requests.rs`, `outbox.rs`.
#![forbid(unsafe_code)]

mod answers;
mod audit;
mod config;
mod connection;
mod console;
mod counters;
mod crowd;
mod door;
mod events;
mod exposition;
#[doc(hidden)]
pub mod fuzzed;
mod guard;
mod heavy;
mod http;
mod lane;
mod members;
mod memory;
mod metrics;
mod nodes;
mod outbox;
mod page;
mod place;
mod quotas;
mod reach;
mod registry;
mod renewal;
mod rights;
#[cfg(feature = "series")]
mod series;
#[cfg(not(feature = "series"))]
#[path = "without_series.rs"]
mod series;
mod server;
mod shared;
mod snapshots;
mod status;
mod token;
mod wanted;

#[cfg(feature = "series")]
pub use config::{Among, RulesConfig};
pub use config::{
    ConsoleConfig, Limits, PROTOCOLS, Pages, RightsConfig, SeriesConfig, ServerConfig, Usual,
};
pub use counters::Figures;
pub use page::Page;
#[cfg(feature = "tls")]
pub use plinth_tls::{Source, TlsOptions};
#[cfg(feature = "series")]
pub use series::{check_scraping, is_of_a_server};
pub use server::Server;
