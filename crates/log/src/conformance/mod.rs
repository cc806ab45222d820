//! What every implementation of [`CommitLog`] must do: the suite that each of them runs.
//!
//! [`test_all`] runs named scenarios in simulated worlds, over whatever a [`Site`] makes. A failure
//! panics and names the scenario; it is the same each time. What only a log on one node's files
//! does (segments, damage, torn tails) is tested beside that.

mod crashes;
mod following;
mod writing;

use std::sync::Arc;

use plinth_env::Env;
use plinth_env::simulated::Simulation;
use plinth_types::Version;

use crate::commit_log::{CommitLog, LogReader, LogView};
use crate::entry::Entry;
use crate::failure::LogResult;
use crate::position::Position;

/// Where an implementation keeps one log, in a simulated world. Calls run the world until they are
/// done.
pub trait Site {
    /// The world.
    fn world(&self) -> &Simulation;

    /// The process in which the log's user runs.
    fn process(&self) -> Env;

    /// Makes a new log that begins behind this entry (index, term, version); `(0, 0, 0)`: from
    /// nothing.
    fn create(&mut self, beginning: (u64, u64, Version)) -> Box<dyn CommitLog>;

    /// Opens it again, as far as it is committed, in a new term. Before, everything that had it
    /// open loses its power, or its process.
    fn crash_and_open(&mut self) -> Box<dyn CommitLog>;

    /// Opens it again after a clean close.
    ///
    /// # Errors
    /// What opening gives.
    fn open(&mut self) -> LogResult<Box<dyn CommitLog>>;
}

/// Makes a site with segments (or whatever an implementation throws away at once) of about so many
/// bytes, in a world of this seed.
pub type Make<'m> = &'m dyn Fn(u64, u64) -> Box<dyn Site>;

/// Runs every scenario, those with crashes for so many seeds.
///
/// # Panics
/// If the log does something else than it must.
pub fn test_all(make: Make<'_>, seeds: u64) {
    writing::run_all(make);
    following::run_all(make);
    crashes::run_all(make, seeds);
}

/// A body that says which version it belongs to, in every byte.
fn body(version: Version, len: usize) -> Vec<u8> {
    let bytes = version.to_le_bytes();
    (0..len).map(|place| bytes[place % bytes.len()] ^ place.to_le_bytes()[0]).collect()
}

/// A log with its site, and shorthands.
struct Bench {
    site: Box<dyn Site>,
    log: Box<dyn CommitLog>,
    view: Arc<dyn LogView>,
}

impl Bench {
    /// A new log whose lease is as long as a scenario needs.
    fn new(make: Make<'_>, seed: u64, segment_bytes: u64) -> Self {
        let mut site = make(seed, segment_bytes);
        let log = site.create((0, 0, 0));
        let mut bench = Self { view: log.view(), log, site };
        bench.extend_lease(1_000_000);
        bench
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.site.world().run_until(future)
    }

    fn extend_lease(&mut self, upto: Version) {
        let Self { site, log, view } = self;
        site.world().run_until(async {
            let position = log.extend_lease(upto).await.expect("a lease");
            view.sync(position).await.expect("a committed lease");
        });
        assert!(view.committed().lease >= upto, "a lease holds once it is committed");
    }

    /// Appends an entry, without committing it.
    fn append(&mut self, version: Version, len: usize) -> Position {
        let Self { site, log, .. } = self;
        let body = body(version, len);
        site.world().run_until(async { log.append(version, &[&body]).await }).expect("an append")
    }

    fn commit(&mut self, version: Version, len: usize) -> Position {
        let position = self.append(version, len);
        self.run(self.view.sync(position)).expect("a commit");
        assert!(
            self.view.committed().position >= position && self.view.committed().version >= version
        );
        self.log.check_invariants();
        position
    }

    /// The committed entries from a version on, checked against what was appended.
    fn read(&self, from: Version) -> LogResult<Vec<Entry>> {
        let mut reader = self.view.reader(from);
        self.run(read_all(&mut *reader))
    }

    fn versions(&self, from: Version) -> Vec<Version> {
        self.read(from).expect("entries").iter().map(|entry| entry.version).collect()
    }

    /// Lets background tasks do what they have to do.
    fn rest(&self) {
        self.site.world().run_for(std::time::Duration::from_secs(1));
    }

    /// Whether what was appended is committed without anybody driving.
    fn commits_by_itself(&self) -> bool {
        self.rest();
        self.view.committed().position == self.log.written()
    }

    /// Has the log do what it does when there is nothing to commit.
    fn tend(&mut self) {
        let Self { site, log, .. } = self;
        site.world().run_until(log.mark_durable()).expect("a mark");
        self.rest();
    }

    /// The log after a clean close.
    fn reopened(self) -> Self {
        let Self { mut site, log, .. } = self;
        site.world().run_until(log.close()).expect("a close");
        let log = site.open().expect("a closed log opens");
        Self { view: log.view(), log, site }
    }

    /// The log after a crash.
    fn crashed(self) -> Self {
        let Self { mut site, log, view } = self;
        drop((log, view));
        let log = site.crash_and_open();
        Self { view: log.view(), log, site }
    }
}

async fn read_all(reader: &mut dyn LogReader) -> LogResult<Vec<Entry>> {
    let mut entries = Vec::<Entry>::new();
    while let Some(entry) = reader.next().await? {
        check(entries.last(), &entry);
        entries.push(entry);
    }
    Ok(entries)
}

/// Whether an entry is whole and may follow that one.
fn check(before: Option<&Entry>, entry: &Entry) {
    assert_eq!(
        entry.body,
        body(entry.version, entry.body.len()),
        "body of version {}",
        entry.version
    );
    if let Some(before) = before {
        assert!(
            entry.index > before.index
                && entry.version > before.version
                && entry.term >= before.term
        );
    }
}
