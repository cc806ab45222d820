//! Watches: a promise that a key's value has changed.
//!
//! A watch goes through: *reading* the value (as of this transaction, own writes included);
//! *remembering* it until the transaction commits; then it is *armed* at the endpoint, and belongs
//! to the transaction no longer. Own writes that change the value fire it at once.

use super::state::{After, State};
use super::tasks::Task;
use super::writes::max_writable_key_size;
use super::{Inner, Transaction};
use crate::database::WatchPermit;
use crate::endpoint::{Endpoint, Pinned};
use bytes::Bytes;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Error, Result, Version, system};
use std::sync::Arc;
use std::time::Duration;

/// How long a watch waits before it asks again after the database gave it up.
const REARM_DELAY: Duration = Duration::from_secs(1);

/// The watches of a transaction that is not committed.
#[derive(Default)]
pub(crate) struct WatchList {
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

impl Transaction {
    /// Completes once the value of `key` is another than it is for this transaction now.
    ///
    /// It is armed when the transaction commits, and from then on independent of it; until then it
    /// fails together with it. A change back in a short time may go unnoticed. Dropping the reply
    /// gives the watch up.
    ///
    /// # Errors
    /// `too_many_watches`; `watches_disabled` without read-your-writes; those of a read and of
    /// commit.
    pub fn watch(&self, key: impl AsRef<[u8]>) -> Reply<()> {
        self.inner.watch(key.as_ref())
    }
}

impl Inner {
    fn watch(self: &Arc<Self>, key: &[u8]) -> Reply<()> {
        let prepared = self.with(|state, after| {
            state.check(after)?;
            self.check_watch(state, key)?;
            let (promise, reply) = promise();
            let id = state.watches.add(key, promise);
            Ok((id, state.life.epoch, reply))
        });
        let (id, epoch, reply) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Reply::ready(Err(error)),
        };
        let inner = self.clone();
        self.get(key, false).on_complete(move |value| {
            inner.with(|state, after| {
                if state.life.epoch == epoch {
                    state.watches.note_value(id, value, &inner, after);
                }
            });
        });
        reply
    }

    fn check_watch(&self, state: &State, key: &[u8]) -> Result<()> {
        if state.options.ryw_disabled {
            return Err(Error::watches_disabled());
        }
        if state.options.version.pinned {
            return Err(Pinned::has_no_watches());
        }
        let is_metadata_version = *key == *system::METADATA_VERSION;
        if key >= system::SYSTEM_END
            || (key >= state.options.max_read_key() && !is_metadata_version && self.api(300))
        {
            return Err(Error::key_outside_legal_range());
        }
        let most = max_writable_key_size(key, state.options.access.raw);
        if key.len() > most {
            return Err(
                Error::key_too_large().with_detail(format!("{} bytes, at most {most}", key.len()))
            );
        }
        Ok(())
    }
}

impl WatchList {
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    fn add(&mut self, key: &[u8], promise: Promise<()>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let key = Bytes::copy_from_slice(key);
        self.watches.push(Watch { id, key, promise, value: None, written: None, permit: None });
        id
    }

    fn note_value(
        &mut self,
        id: u64,
        value: Result<Option<Bytes>>,
        inner: &Inner,
        after: &mut After,
    ) {
        let Some(at) = self.watches.iter().position(|watch| watch.id == id) else { return };
        let watch = &mut self.watches[at];
        let noted = value.and_then(|value| {
            let changed = watch.written.as_ref().is_some_and(|written| *written != value);
            watch.value = Some(value);
            if !changed {
                watch.permit = Some(inner.database().begin_watch()?);
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
    pub(crate) fn written(&mut self, key: &[u8], value: Option<&[u8]>, after: &mut After) {
        self.fire_if(after, |watch| {
            if watch.key[..] != *key {
                return false;
            }
            watch.note_write(value)
        });
    }

    /// Notes that own writes removed the keys of a range.
    pub(crate) fn cleared(&mut self, begin: &[u8], end: &[u8], after: &mut After) {
        self.fire_if(after, |watch| {
            watch.key[..] >= *begin && watch.key[..] < *end && watch.note_write(None)
        });
    }

    /// Notes that own writes changed a key by an atomic operation.
    pub(crate) fn touched(&mut self, key: &[u8], after: &mut After) {
        self.fire_if(after, |watch| watch.key[..] == *key);
    }

    fn fire_if(&mut self, after: &mut After, mut changed: impl FnMut(&mut Watch) -> bool) {
        for watch in self.watches.extract_if(.., |watch| changed(watch)) {
            after.reply(watch.promise, Ok(()));
        }
    }

    pub(crate) fn fail_all(&mut self, error: &Error, after: &mut After) {
        for watch in self.watches.drain(..) {
            after.reply(watch.promise, Err(error.clone()));
        }
    }

    /// Arms the watches: the transaction has committed at `version`, or only read at it.
    pub(super) fn start(&mut self, inner: &Inner, version: Version, after: &mut After) {
        for watch in self.watches.drain(..) {
            let endpoint = inner.database().endpoint().clone();
            let key = if watch.key[..] == *system::METADATA_VERSION {
                watch.key.clone()
            } else {
                [inner.prefix(), &watch.key].concat().into()
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
