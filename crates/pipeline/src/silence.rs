//! A disk that doesn't answer: no call fails, and whatever waits for one waits on.
//!
//! What goes wrong is told by errors; this is the other way in which a disk, or what is between it
//! and us, lets everybody down. Whoever looks after the database is told for how long which call
//! has been under way, once that is longer than any disk that works takes, until it is answered.
//!
//! | where | who waits | told after |
//! |---|---|---|
//! | a write or a sync of a segment of the log | commits, at once | [`COMMITS`] |
//! | anything else in the log's directory | commits, once the segment is full | [`BEHIND`] |
//! | tables (`ssd`) | commits, once the window is full: they are refused then | [`BEHIND`] |
//! | a checkpoint (`memory`) | nobody; the log grows | [`BEHIND`] |
//!
//! Always: one call is told of, the one that lasts longest; what each place is for decides what
//! follows, not the call.

use crate::directory::Directory;
use crate::failure::NodeError;
use crate::replica::Replica;
use crate::store::tables_path;
use plinth_env::Silence;
use plinth_log::is_segment;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a call may take that commits wait for.
const COMMITS: Duration = Duration::from_secs(5);
/// How long one may take that is done behind them, more of it at a time.
const BEHIND: Duration = Duration::from_secs(15);

const _: () = assert!(COMMITS.as_nanos() < BEHIND.as_nanos());

impl Replica {
    /// The call that the log waits for, if that is for too long.
    pub fn log_silence(&self) -> Option<NodeError> {
        let log = self.directory.as_ref()?.log_path();
        let urgent = |operation: &str, path: &Path| {
            matches!(operation, "write" | "sync") && path.starts_with(&log) && is_segment(path)
        };
        let urgent = self.env.files().silence(urgent).filter(|silence| silence.lasts >= COMMITS);
        urgent.map(silent).or_else(|| self.silence_behind(|_| log.clone()))
    }

    /// The call that a checkpoint waits for, if that is for too long.
    pub fn checkpoint_silence(&self) -> Option<NodeError> {
        self.silence_behind(Directory::checkpoint_path)
    }

    /// Why tables can't be written or merged at the moment, if so: an error, or a disk that doesn't
    /// answer.
    pub fn tables_trouble(&self) -> Option<NodeError> {
        let failing = self.storage.trouble().map(NodeError::from);
        failing.or_else(|| self.silence_behind(|directory| tables_path(&directory.path)))
    }

    /// For how long the call lasts that the disk has not answered for longest, of all that change
    /// something in the database's directory.
    pub fn silent_for(&self) -> Duration {
        let Some(Directory { root, .. }) = &self.directory else { return Duration::ZERO };
        let silence = self.env.files().silence(|_, path| path.starts_with(root));
        silence.map_or(Duration::ZERO, |silence| silence.lasts)
    }

    fn silence_behind(&self, place: impl Fn(&Directory) -> PathBuf) -> Option<NodeError> {
        let place = place(self.directory.as_ref()?);
        let silence = self.env.files().silence(|_, path| path.starts_with(&place))?;
        (silence.lasts >= BEHIND).then(|| silent(silence))
    }
}

fn silent(silence: Silence) -> NodeError {
    NodeError::DiskSilent(silence.to_string().into())
}
