//! TLS below the frames: certificates, whom to let in, and a stream that encrypts.
//!
//! ## Role
//! Lays TLS 1.3 (rustls, with the cryptography of `ring`) over a socket of `env`. What comes out is
//! an ordinary [`Stream`](plinth_env::Stream), so whoever speaks the protocol over it needs to know
//! nothing of TLS.
//!
//! ## Data structure
//! ```text
//!   TlsOptions ──load──▶ Identity (chain, key, authorities) ──▶ rustls configuration ──▶ session
//!   files, bytes,        PEM                                     + verifier (peers.rs)      │
//!   environment                                                                             ▼
//!                                    frames ◀──▶ Stream ◀──▶ TlsStream ◀── ciphertext ──▶ Stream (socket)
//! ```
//!
//! ## Invariants
//! 1. Who is let in is decided before a byte of what he says is read: a certificate is wanted of
//!    both sides, signed by one of the authorities of the CA file, as FoundationDB does. Names of
//!    hosts are not compared, because cluster files have IP addresses; `verify_peers` compares what
//!    is in the certificate instead.
//! 2. Whatever a failure is due to, both sides can say it: alerts are sent before the socket is
//!    closed, and read.
//! 3. No bytes from a socket make it panic, and it buffers at most a few of TLS's records for each
//!    connection.
//! 4. The world's servers, object stores for example, are the exception: `authorities.rs` compares
//!    their names, and trusts whom the system trusts.
//! 5. The time that certificates are held against is that of `env`.
//!
//! ## Not here
//! Time limits (who opened the connection has them), messages (`proto`), which addresses need TLS
//! (`server`, `client`).
//! Read next: `options.rs`, `identity.rs`, `verify.rs`, `stream.rs`, then the two ends
//! `acceptor.rs` and `connector.rs`.
#![forbid(unsafe_code)]

mod acceptor;
mod authorities;
mod connector;
mod identity;
#[cfg(feature = "make")]
pub mod make;
mod names;
mod options;
mod peers;
mod stream;
mod verify;
mod words;

pub use acceptor::{Acceptor, Purpose, Terms};
pub use authorities::Authorities;
pub use connector::connect;
pub use options::{Source, TlsOptions};
pub use peers::Rule;
