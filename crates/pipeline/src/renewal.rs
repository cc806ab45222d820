//! Files that another key has sealed than the newest, or none though there is one.
//!
//! Whoever is opened with a new key, or the first one, writes nothing more with what was before,
//! and has what was written with it written anew: the log by letting it go, checkpoints and tables
//! by writing others in their place. Here stands how much is left of it, and who is told.
//!
//! ```text
//!   opened ──▶ log goes on in a new segment        ──▶ a checkpoint, or flushes ──▶ older segments go
//!          └─▶ a checkpoint is written at once (memory); each table is written anew (ssd)
//!                                                                  │ nothing is left:
//!                                                                  ▼ the keys before are needed no more
//! ```

use crate::events;
use crate::replica::Replica;
use serde_json::{Value, json};

/// How many files are outdated, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Outdated {
    pub log: (u64, u64),
    pub data: (u64, u64),
}

impl Outdated {
    /// Those of a node, as it is now.
    pub fn of(replica: &Replica) -> Self {
        let log = replica.log.as_ref().map_or((0, 0), |log| log.outdated());
        Self { log, data: replica.storage.outdated() }
    }

    /// Files.
    pub fn files(&self) -> u64 {
        self.log.0 + self.data.0
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.log.1 + self.data.1
    }
}

/// What is told of encryption in the status document.
pub(crate) fn shown(replica: &Replica) -> Value {
    let (keys, left) = (replica.config.keys(), Outdated::of(replica));
    let id = |id: plinth_format::crypt::KeyId| id.to_string();
    let names = |(files, bytes): (u64, u64)| json!({ "bytes": bytes, "files": files });
    json!({
        "key": keys.newest().map(id),
        "older_keys": keys.ids().skip(1).map(id).collect::<Vec<_>>(),
        "older_keys_needed": left.files() > 0,
        "outdated": { "data": names(left.data), "log": names(left.log) },
    })
}

/// Sees to it that what is outdated is written anew, and says when it is.
pub(crate) struct Renewal {
    is_pending: bool,
    /// A checkpoint is wanted, however small the log is.
    wants_checkpoint: bool,
}

impl Renewal {
    /// Of a node that was just opened.
    pub fn begin(replica: &Replica) -> Self {
        let left = Outdated::of(replica);
        let is_pending = left.files() > 0;
        if is_pending {
            events::is_renewed(replica.config.keys().newest(), left.files(), left.bytes());
        }
        Self { is_pending, wants_checkpoint: is_pending }
    }

    /// Whether a checkpoint is due for it.
    pub fn wants_checkpoint(&self) -> bool {
        self.wants_checkpoint
    }

    /// A checkpoint of all that there was at the beginning is durable.
    pub fn has_checkpoint(&mut self) {
        self.wants_checkpoint = false;
    }

    /// Looks whether anything is left.
    pub fn look(&mut self, replica: &Replica) {
        if self.is_pending && Outdated::of(replica).files() == 0 {
            self.is_pending = false;
            events::was_renewed(replica.config.keys().newest());
        }
    }
}
