//! The watches of a transaction that is not committed.
//!
//! A watch goes through: *reading* the value (as of this transaction, own writes included);
//! *remembering* it until the transaction commits; then it is *armed* at the endpoint, and belongs
//! to the transaction no longer. Own writes that change the value fire it at once.

use super::after::After;
use super::tasks::Task;
use crate::database::{Database, WatchPermit};
use crate::endpoint::Endpoint;
use bytes::Bytes;
use plinth_env::reply::Promise;
use plinth_types::{Error, Result, Version, system};
use std::sync::Arc;
use std::time::Duration;

/// How long a watch waits before it asks again after the database gave it up.
const REARM_DELAY: Duration = Duration::from_secs(1);

/// The watches of a transaction that is not committed.
#[derive(Default)]
pub(super) struct WatchList {
    watches: Vec<Watch>,
    next_id: u64,
}

struct Watch {
    id: u64,
    key: Bytes,
    promise: Promise<()>,
    /// The value when the watch was called, once it has been read.
    value: Option<Option<Bytes>>,
    /// The value that own writes gave it since.
    written: Option<Option<Bytes>>,
    permit: Option<WatchPermit>,
}

impl WatchList {
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Begins to watch a key whose value is still read; gives its number.
    pub(super) fn add(&mut self, key: &[u8], promise: Promise<()>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let key = Bytes::copy_from_slice(key);
        self.watches.push(Watch { id, key, promise, value: None, written: None, permit: None });
        id
    }

    /// Notes the value that a watch goes by.
    pub(super) fn note_value(
        &mut self,
        id: u64,
        value: Result<Option<Bytes>>,
        database: &Database,
        after: &mut After,
    ) {
        let Some(at) = self.watches.iter().position(|watch| watch.id == id) else { return };
        let watch = &mut self.watches[at];
        let noted = value.and_then(|value| {
            let changed = watch.written.as_ref().is_some_and(|written| *written != value);
            watch.value = Some(value);
            if !changed {
                watch.permit = Some(database.begin_watch()?);
            }
            Ok(changed)
        });
        let result = match noted {
            Ok(false) => return,
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let watch = self.watches.remove(at);
        after.reply(watch.promise, result);
    }

    /// Notes that own writes gave a key a value, or removed it.
    pub(super) fn written(&mut self, key: &[u8], value: Option<&[u8]>, after: &mut After) {
        self.fire_if(after, |watch| {
            if watch.key[..] != *key {
                return false;
            }
            watch.note_write(value)
        });
    }

    /// Notes that own writes removed the keys of a range.
    pub(super) fn cleared(&mut self, begin: &[u8], end: &[u8], after: &mut After) {
        self.fire_if(after, |watch| {
            watch.key[..] >= *begin && watch.key[..] < *end && watch.note_write(None)
        });
    }

    /// Notes that own writes changed a key by an atomic operation.
    pub(super) fn touched(&mut self, key: &[u8], after: &mut After) {
        self.fire_if(after, |watch| watch.key[..] == *key);
    }

    fn fire_if(&mut self, after: &mut After, mut changed: impl FnMut(&mut Watch) -> bool) {
        for watch in self.watches.extract_if(.., |watch| changed(watch)) {
            after.reply(watch.promise, Ok(()));
        }
    }

    pub(super) fn fail_all(&mut self, error: &Error, after: &mut After) {
        for watch in self.watches.drain(..) {
            after.reply(watch.promise, Err(error.clone()));
        }
    }

    /// Arms the watches: the transaction has committed at `version`, or only read at it.
    pub(super) fn start(
        &mut self,
        endpoint: &Arc<dyn Endpoint>,
        prefix: &[u8],
        version: Version,
        after: &mut After,
    ) {
        for watch in self.watches.drain(..) {
            let endpoint = endpoint.clone();
            let key = if watch.key[..] == *system::METADATA_VERSION {
                watch.key.clone()
            } else {
                [prefix, &watch.key].concat().into()
            };
            after.call(move || {
                let Watch { promise, value, permit, .. } = watch;
                Task::detached(
                    wait_for_change(endpoint, key, value.flatten(), version, permit),
                    promise,
                );
            });
        }
    }
}

impl Watch {
    /// Whether a write changes the value.
    fn note_write(&mut self, value: Option<&[u8]>) -> bool {
        let differs = |known: &Option<Option<Bytes>>| {
            known.as_ref().is_some_and(|known| known.as_deref() != value)
        };
        if differs(&self.written) || differs(&self.value) {
            return true;
        }
        self.written = Some(value.map(Bytes::copy_from_slice));
        false
    }
}

/// Asks the endpoint to watch, again and again while it gives up for reasons of its own.
async fn wait_for_change(
    endpoint: Arc<dyn Endpoint>,
    key: Bytes,
    value: Option<Bytes>,
    version: Version,
    _permit: Option<WatchPermit>,
) -> Result<()> {
    loop {
        match endpoint.watch(key.clone(), value.clone(), version).await {
            Ok(_) => return Ok(()),
            Err(error) if matches!(error.code(), 1001 | 1004 | 1009 | 1026 | 1029 | 1037) => {
                endpoint.env().sleep(REARM_DELAY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::reply::{Reply, promise};

    fn watched(list: &mut WatchList, key: &[u8]) -> Reply<()> {
        let (promise, reply) = promise();
        list.add(key, promise);
        reply
    }

    #[test]
    fn own_writes_fire_what_they_change() {
        let (mut list, mut after) = (WatchList::default(), After::default());
        let mut replies = [b"a", b"b", b"c"].map(|key| watched(&mut list, key));
        // Before the value is known, a write is remembered; another one than that changes it.
        list.written(b"a", Some(b"1"), &mut after);
        list.written(b"a", Some(b"1"), &mut after);
        list.written(b"b", Some(b"1"), &mut after);
        list.cleared(b"b", b"c", &mut after);
        list.touched(b"c", &mut after);
        after.run();
        assert_eq!(replies.each_mut().map(|reply| reply.try_take().is_some()), [false, true, true]);
        let mut after = After::default();
        list.fail_all(&Error::transaction_cancelled(), &mut after);
        after.run();
        assert_eq!(replies[0].try_take(), Some(Err(Error::transaction_cancelled())));
        assert!(list.is_empty());
    }
}
