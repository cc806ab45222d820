//! Plinth: an ordered, transactional key-value database with FoundationDB's API, in your own
//! process.
//!
//! ## Getting started
//! A database is opened, and asked to run transactions. A transaction reads and writes keys,
//! both any bytes, as if it were alone: if another one gets in its way it is run again. When it has
//! returned, what it wrote is on the disk.
//!
//! ```
//! use plinth::{Local, Result, tuple};
//!
//! # async fn example() -> Result<()> {
//! let node = Local::in_memory()?; // on disk: Local::open("./data")?
//! let db = node.database();
//!
//! // Keys are made of tuples, so that they sort as one would expect.
//! db.transact(async |tr| {
//!     for (name, score) in [("Ada", 1815), ("Grace", 1906), ("Barbara", 1939)] {
//!         tr.set(tuple::pack(&("score", name)), tuple::pack(&score));
//!     }
//!     Ok(())
//! })
//! .await?;
//!
//! // Reads and writes of one transaction belong together: nobody's points are lost.
//! let score = db
//!     .transact(async |tr| {
//!         let key = tuple::pack(&("score", "Ada"));
//!         let score: i64 = tr.get(&key).await?.map_or(Ok(0), |value| tuple::unpack(&value))?;
//!         tr.set(&key, tuple::pack(&(score + 10)));
//!         Ok(score + 10)
//!     })
//!     .await?;
//! assert_eq!(score, 1825);
//!
//! // Ranges are streams, in the order of the keys.
//! let names = db
//!     .transact(async |tr| {
//!         let mut rows = tr.range(tuple::range(&("score",)));
//!         let mut names = Vec::new();
//!         while let Some(row) = rows.next().await {
//!             let (_, name): (String, String) = tuple::unpack(&row?.key)?;
//!             names.push(name);
//!         }
//!         Ok(names)
//!     })
//!     .await?;
//! assert_eq!(names, ["Ada", "Barbara", "Grace"]);
//! node.close_async().await
//! # }
//! # plinth::block_on(example()).unwrap();
//! ```
//!
//! Any runtime will do, and none is needed:
//! [`transact_blocking`](Database::transact_blocking) takes an ordinary closure, and every
//! future has `wait()`.
//!
//! ```
//! # let db = plinth::Local::in_memory()?.into_database();
//! let visits = db.transact_blocking(|tr| {
//!     tr.add("visits", 1_u64.to_le_bytes()); // atomic: never conflicts
//!     tr.get("visits").wait()
//! })?;
//! assert_eq!(visits.as_deref(), Some(&1_u64.to_le_bytes()[..]));
//! # Ok::<(), plinth::Error>(())
//! ```
//!
//! | to | there is |
//! |---|---|
//! | open, check its health, close | [`Local`], [`Builder`] |
//! | run transactions; connect to a server | [`Database`] |
//! | verify every checksum of a directory, or bring out what is readable | [`check()`], [`salvage()`] |
//! | have all that is written to a directory encrypted | [`Builder::encryption`], [`Key`] (feature `encryption`) |
//! | read, write, watch, commit | [`Transaction`], [`RangeOptions`], [`RangeStream`], [`TransactionOption`] |
//! | make keys and values of data | [`mod@tuple`], [`Subspace`] |
//! | give parts of an application their own keys | [`directory`] |
//! | keep time series, and write points and keys in one transaction | `series::SeriesLayer` (feature `series`) |
//! | back it up and restore it | `backup`, `Builder::loader` (feature `backup`) |
//! | see what went wrong, and what to do | [`Error`], [`ErrorKind`], [`codes`]: FoundationDB's numbers |
//! | know what is too large | [`limits`] |
//!
//! ## Role
//! What a Rust application depends on: the database to open, what transactions are made with, and
//! the layers that every FoundationDB binding has.
//!
//! ## Data structure
//! Keys and values are bytes, sorted by key. The layers give the bytes a meaning:
//!
//! ```text
//!   directory    "app" / "users"         path -> a short prefix, chosen by the database
//!                     |
//!   subspace       \x15\x07              prefix | tuples
//!                     |
//!   tuple          ("ada", 1815)         \x02ada\x00\x16\x07\x17     sorts as the tuple does
//! ```
//!
//! ## Invariants
//! 1. The layers use the public API alone, and what they write is what FoundationDB's own bindings
//!    write.
//! 2. No input makes a layer panic: bytes that mean nothing are an [`Error`].
//! 3. Whoever holds a [`Database`] that is open here, or a transaction of one, holds it open.
//!
//! ## Not here
//! Transactions (`client`), the commit pipeline (`pipeline`), words and error numbers (`types`).
//! Read next: `local.rs`, [`mod@tuple`], [`subspace`], then [`directory`] with `layer.rs` and
//! `allocator.rs`.
#![forbid(unsafe_code)]

mod check;
pub mod directory;
mod local;
mod member;
#[cfg(feature = "backup")]
mod restore;
pub mod subspace;
pub mod tuple;

pub use check::{check, check_with, is_encrypted, read_key_file, salvage, salvage_with};
pub use directory::Directory;
pub use local::{Builder, Local};
pub use member::Member;
#[cfg(feature = "backup")]
pub use plinth_backup as backup;
pub use plinth_client as client;
#[cfg(feature = "net")]
pub use plinth_client::remote::{ClusterFile, RemoteOptions};
#[cfg(feature = "tls")]
pub use plinth_client::remote::{Source, TlsOptions};
pub use plinth_client::{
    ConflictRangeType, Database, DatabaseOption, Get, Mapped, MappedRangeResult, MappedRow,
    PinnedSnapshot, RangeOptions, RangeStream, ReadTransaction, Reply, Snapshot, StreamingMode,
    Tenant, TransactError, Transaction, TransactionOption,
};
pub use plinth_env::{Env, block_on};
#[cfg(feature = "fdb")]
pub use plinth_fdb as fdb;
pub use plinth_pipeline::cluster;
pub use plinth_pipeline::{
    BadKey, CheckReport, Compression, Corruption, EngineKind, Key, Keys, LongestWaits, NodeError,
    SalvageReport,
};
#[cfg(feature = "series")]
pub use plinth_series as series;
pub use plinth_types::atomic;
pub use plinth_types::error::ErrorPredicate;
pub use plinth_types::{
    Bytes, Error, ErrorKind, KeyRange, KeySelector, KeyValue, MutationType, RangeResult, Result,
    Rows, Version, Versionstamp, codes, key_after, limits, printable, strinc,
};
#[cfg(feature = "backup")]
pub use restore::DirectoryLoader;
pub use subspace::Subspace;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
