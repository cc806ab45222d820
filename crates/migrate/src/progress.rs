//! What a migration is told, and how far it is.

use crate::sum::Sum;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How a migration is done.
#[derive(Clone)]
pub struct Settings {
    /// Nobody else can write the source, as when its directory was opened by this process: nothing
    /// has to be proven then.
    pub source_is_exclusive: bool,
    /// Lock the source once most of it has been copied, read all of it again under the lock, and
    /// leave it locked: for moving an application, and for sources written without conflict ranges.
    pub lock_source: bool,
    /// Threads that copy.
    pub workers: usize,
    /// About how many bytes of rows are copied in one transaction.
    pub piece_bytes: u64,
    /// How many bytes the last step may read at one version: what can be read well within five
    /// seconds.
    pub cut_bytes: u64,
    /// How often what is copied is proven to be unchanged; well within five seconds.
    pub beat: Duration,
    /// After how many rounds it is given up.
    pub rounds: usize,
    /// Set it to end early; another run goes on from there.
    pub stop: Arc<AtomicBool>,
    /// Told how far it is, from any thread.
    pub watcher: Option<Watcher>,
    /// How often it is told, at most; zero: after every piece.
    pub show_every: Duration,
}

/// Is told how far a migration is.
pub type Watcher = Arc<dyn Fn(&Progress) + Send + Sync>;

impl Default for Settings {
    fn default() -> Self {
        Self {
            source_is_exclusive: false,
            lock_source: false,
            workers: 4,
            piece_bytes: 512 << 10,
            cut_bytes: 32 << 20,
            beat: Duration::from_millis(500),
            rounds: 50,
            stop: Arc::default(),
            watcher: None,
            show_every: Duration::from_millis(200),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("source_is_exclusive", &self.source_is_exclusive)
            .field("lock_source", &self.lock_source)
            .field("workers", &self.workers)
            .field("piece_bytes", &self.piece_bytes)
            .field("cut_bytes", &self.cut_bytes)
            .field("beat", &self.beat)
            .field("rounds", &self.rounds)
            .field("show_every", &self.show_every)
            .finish_non_exhaustive()
    }
}

/// What a migration is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Copying what has not been copied, or has changed since.
    Copying,
    /// Reading the destination and comparing sums.
    Verifying,
}

/// How far a migration is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Into how many pieces the key space is cut by now.
    pub pieces: usize,
    /// How many of them are the same on both sides, as far as is known.
    pub clean_pieces: usize,
    /// Their rows.
    pub copied: Sum,
    /// Bytes of rows read from the source.
    pub bytes_read: u64,
    /// Bytes of rows read from the destination, for comparison.
    pub bytes_verified: u64,
}
