//! Files that are not part of the log yet: the next segment, and spares that can become one.
//!
//! Segments are as large as the disk allows: where little of it is free, beyond what others are to
//! find, they are small, and few that nobody needs are kept. So a log that is let go of gives its
//! room back soon. Who makes them and takes them away is `upkeep.rs`.

use std::path::Path;
use std::sync::Arc;

use plinth_env::{Env, Open};
use plinth_format::Keys;
use plinth_types::probe;

use crate::config::LogConfig;
use crate::failure::{LogError, LogResult};
use crate::format::{HEADER_COPIES, RECORDS_START};
use crate::segment::{Segment, read_copy, spare_path};

/// The segment that comes after the one being written to.
#[derive(Default)]
pub(crate) enum Next {
    /// Nobody has asked for it yet.
    #[default]
    None,
    /// It is to be made, or is being made.
    Wanted {
        /// An append waits for it.
        urgent: bool,
    },
    Ready(Prepared),
    Failed(LogError),
}

/// A segment that nothing has been written to, or nothing that counts.
pub(crate) struct Prepared {
    pub(crate) segment: Arc<Segment>,
    /// Up to where a write that failed may have left bytes.
    pub(crate) dirty: u64,
}

impl Prepared {
    pub(crate) fn new(segment: Segment) -> Self {
        Self { segment: Arc::new(segment), dirty: RECORDS_START }
    }
}

/// A file that can become a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) serial: u64,
    pub(crate) bytes: u64,
}

/// How much of the disk the log may take.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Bytes that others are to find free.
    pub(crate) keep_free: u64,
    /// Bytes that were free beyond these when it was last looked.
    pub(crate) left: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { keep_free: 0, left: u64::MAX }
    }
}

impl Room {
    /// The largest segment that is made: an eighth of what is left, so that the room of a full one
    /// is small beside it.
    pub(crate) fn segment_bytes(&self, config: &LogConfig) -> u64 {
        config.max_segment_bytes.min(self.left / 8).max(config.first_segment_bytes)
    }

    /// How many bytes of files are kept for later use.
    pub(crate) fn spare_bytes(&self, config: &LogConfig) -> u64 {
        config.spare_bytes.min(self.left / 8)
    }
}

/// What the log's upkeep has, and how it stands.
#[derive(Default)]
pub(crate) struct Upkeep {
    pub(crate) next: Next,
    pub(crate) spares: Vec<Spare>,
    pub(crate) room: Room,
    /// A segment couldn't be taken away; not tried again until consumers pop again.
    pub(crate) is_stuck: bool,
    /// The log is being closed: nothing new is begun.
    pub(crate) is_closing: bool,
    /// The task runs.
    pub(crate) is_running: bool,
    /// The task that notes how far the log is durable runs.
    pub(crate) is_marking: bool,
}

/// The spares found at a start. One that was last sealed by another key than the newest, or by none
/// though there is one, is removed: it would keep what it has on the disk.
pub(crate) async fn adopt_spares(
    env: &Env,
    dir: &Path,
    serials: &[u64],
    keys: &Keys,
) -> LogResult<Vec<Spare>> {
    let mut spares = Vec::new();
    for serial in serials.iter().copied() {
        let path = spare_path(dir, serial);
        let file = env.files().open(&path, Open::Read).await?;
        let is_fit = keys.is_none()
            || read_copy(&file, HEADER_COPIES[0], keys)
                .await?
                .is_ok_and(|(_, cipher)| !cipher.is_outdated(keys));
        if is_fit {
            spares.push(Spare { serial, bytes: file.len().await? });
        } else {
            probe!("log: spare of another key removed");
            env.files().remove(&path).await?;
        }
    }
    Ok(spares)
}
