//! Whatever takes bytes from outside, as functions that a fuzzer can call.
//!
//! ## Role
//! Each target is a function of bytes that must come back, whatever they are: no panic, no endless
//! loop, and what the target says besides holds (what was decoded is encoded to the same again, the
//! server still serves others). They are run in three ways: by cargo-fuzz (`fuzz/`, a workspace of
//! its own, which needs a nightly compiler), by `plinth-fuzz TARGET SECONDS`, a plain loop over
//! mutations, and by the tests of this crate, which put the whole corpus through them each time.
//!
//! ## Data structure
//! ```text
//!   fuzz/corpus/TARGET/*     small files: valid ones (`seeds`), what clients were heard to say
//!          │                 (`record`), and each that a fuzzer found worth keeping
//!          │
//!          ├─▶ cargo fuzz run TARGET      guided by coverage
//!          ├─▶ plinth-fuzz TARGET 60      `mutate`, from a seed
//!          └─▶ tests/corpus.rs            each file as it is, and some mutations of it
//! ```
//!
//! ## Invariants
//! 1. A target depends on its bytes alone: what needs a clock, a network or random numbers runs in
//!    simulation.
//! 2. A valid message can be reached by mutating bytes: where there is a checksum, the target
//!    writes it.
//!
//! ## Not here
//! Our own files on disk: each format has its own tests with flipped bits. The settings' file,
//! which belongs to a program: its target stands in `fuzz/`, its corpus is read by `cli`'s tests.
//! Read next: `decoders.rs`, `rights.rs`, `nodes.rs`, `series.rs`, `files.rs`, `served.rs`, then
//! `mutate.rs`, `record.rs`.
#![forbid(unsafe_code)]

mod decoders;
mod files;
mod gzip;
mod mutate;
mod nodes;
mod record;
mod rights;
mod rules;
mod seeds;
mod series;
mod served;

pub use mutate::Mutator;
pub use record::record;
pub use seeds::seeds;

/// A function that must come back, whatever its bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called, and its folder of the corpus.
    pub name: &'static str,
    /// The function.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 26] = [
    Target { name: "frames", run: decoders::frames },
    Target { name: "requests", run: decoders::requests },
    Target { name: "replies", run: decoders::replies },
    Target { name: "greetings", run: decoders::greetings },
    Target { name: "cluster_file", run: decoders::cluster_file },
    Target { name: "quotas", run: decoders::quotas },
    Target { name: "grants", run: rights::grants },
    Target { name: "tokens", run: rights::tokens },
    Target { name: "tls_peers", run: decoders::tls_peers },
    Target { name: "connection", run: served::connection },
    Target { name: "http", run: served::http },
    Target { name: "gzip", run: gzip::gzip },
    Target { name: "series_lines", run: series::lines },
    Target { name: "series_remote_write", run: series::remote_write },
    Target { name: "series_import", run: series::import },
    Target { name: "series_otlp", run: series::otlp },
    Target { name: "series_query", run: series::query },
    Target { name: "series_promql", run: series::promql },
    Target { name: "series_rules", run: rules::rules },
    Target { name: "series_scrape", run: files::scrape },
    Target { name: "series_parquet", run: files::parquet },
    Target { name: "replication_messages", run: nodes::messages },
    Target { name: "replication_frames", run: nodes::frames },
    Target { name: "peers_words", run: nodes::words },
    Target { name: "log_bodies", run: nodes::log_bodies },
    Target { name: "chunks", run: nodes::chunks },
];

/// The target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
