//! Watching a key: the call, and what it may watch.

use super::state::State;
use super::write_set::max_writable_key_size;
use super::{Inner, Transaction};
use crate::endpoint::Pinned;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Error, Result, system};
use std::sync::Arc;

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
            Ok((id, state.life.epoch(), reply))
        });
        let (id, epoch, reply) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Reply::ready(Err(error)),
        };
        let inner = self.clone();
        self.get(key, false).on_complete(move |value| {
            inner.with(|state, after| {
                if state.life.is_in(epoch) {
                    state.watches.note_value(id, value, inner.database(), after);
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
