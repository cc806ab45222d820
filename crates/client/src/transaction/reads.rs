//! Reads of one key: `get` and `get_key`, and the snapshot view.
//!
//! What a read sees of the transaction's own writes, and which conflict range it adds, is settled
//! when it is called, not when it is answered. A key that own writes determine never leaves the
//! process.

use super::after::After;
use super::get::Get;
use super::ranges::View;
use super::state::State;
use super::write_set::{Own, max_existing_key_size};
use super::{Inner, Transaction};
use crate::conflicts;
use crate::merge::Source;
use crate::range::RangeOptions;
use crate::special_keys;
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{Error, KeyList, KeyRange, KeySelector, KeySpace, RangeResult, Result, system};
use std::sync::Arc;

impl Transaction {
    /// The value of `key`, `None` if it doesn't exist.
    ///
    /// The read is noted at once, and travels with others noted since the last one was sent; see
    /// [`Get`].
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Get {
        self.inner.get(key.as_ref(), false)
    }

    /// The key that `selector` describes; empty before the first key, and after the last one the
    /// end of what the transaction may read: `\xff`, or `\xff\xff` with access to system keys.
    pub fn get_key(&self, selector: KeySelector) -> Reply<Bytes> {
        self.inner.get_key(selector, false)
    }

    /// Reads of the same version that add no conflict ranges: what they read, others may change
    /// meanwhile.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { transaction: self }
    }

    /// The addresses, `ip:port` each, of the servers that store `key`. (Before API version 630 an
    /// option is needed to get the ports.)
    pub fn addresses_for_key(&self, key: impl AsRef<[u8]>) -> Reply<Vec<String>> {
        let key = key.as_ref().to_vec();
        let with_port = self.inner.api(630) || self.inner.lock().options.include_port;
        self.inner.estimate(
            move |inner| {
                let addresses =
                    inner.endpoint().addresses_for_key(&[inner.prefix(), &key].concat());
                if with_port {
                    addresses
                } else {
                    map(addresses, |found| {
                        found.iter().map(|address| without_port(address)).collect()
                    })
                }
            },
            |_| Ok(()),
        )
    }

    /// About how many bytes the keys from `begin` up to `end` and their values have.
    pub fn estimated_range_size(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Reply<i64> {
        match range_of(begin.as_ref(), end.as_ref()) {
            Err(error) => Reply::ready(Err(error)),
            Ok(range) => self.inner.estimate(
                move |inner| inner.endpoint().range_size(inner.prefixed(&range)),
                |_| Ok(()),
            ),
        }
    }

    /// Keys that cut the range from `begin` up to `end` into chunks of about `chunk` bytes: both of
    /// them, and keys between.
    pub fn split_points(
        &self,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
        chunk: i64,
    ) -> Reply<Vec<Bytes>> {
        let (begin, end) = (begin.as_ref(), end.as_ref());
        let range = match range_of(begin, end) {
            Err(error) => return Reply::ready(Err(error)),
            Ok(range) => range,
        };
        if begin == end {
            let key = Bytes::copy_from_slice(begin);
            return self.inner.estimate(move |_| Reply::ready(Ok(vec![key])), |_| Ok(()));
        }
        let bounds = range.clone();
        self.inner.estimate(
            move |inner| {
                let prefix = inner.prefix().len();
                let points = inner.endpoint().split_points(inner.prefixed(&range), chunk);
                if prefix == 0 {
                    return points;
                }
                map(points, move |points| {
                    let bare = |key: Bytes| {
                        key.get(prefix..).map(Bytes::copy_from_slice).unwrap_or_default()
                    };
                    points.into_iter().map(bare).collect()
                })
            },
            move |state| {
                let max = state.options.max_read_key();
                if bounds.begin[..] > *max || bounds.end[..] > *max {
                    return Err(Error::key_outside_legal_range());
                }
                Ok(())
            },
        )
    }
}

/// The range, unless it is inverted.
fn range_of(begin: &[u8], end: &[u8]) -> Result<KeyRange> {
    if begin > end {
        return Err(Error::inverted_range());
    }
    Ok(KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end)))
}

/// The reply with its value changed.
fn map<T: Send + 'static, U: Send + 'static>(
    reply: Reply<T>,
    f: impl FnOnce(T) -> U + Send + 'static,
) -> Reply<U> {
    let (promise, mapped) = plinth_env::reply::promise();
    reply.on_complete(move |result| promise.send(result.map(f)));
    mapped
}

/// The host of `host:port`.
fn without_port(address: &str) -> String {
    let end = address.rfind(']').map(|end| end + 1).or_else(|| address.find(':'));
    address[..end.unwrap_or(address.len())].to_owned()
}

/// Reads that add no conflict ranges; see [`Transaction::snapshot`].
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    transaction: &'a Transaction,
}

impl Snapshot<'_> {
    pub(crate) fn transaction(&self) -> &Transaction {
        self.transaction
    }

    /// As [`Transaction::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Get {
        self.transaction.inner.get(key.as_ref(), true)
    }

    /// As [`Transaction::get_key`].
    pub fn get_key(&self, selector: KeySelector) -> Reply<Bytes> {
        self.transaction.inner.get_key(selector, true)
    }

    /// As [`Transaction::get_range`].
    pub fn get_range(&self, range: impl Into<RangeOptions>) -> Reply<RangeResult> {
        self.transaction.inner.get_range(range.into(), true)
    }
}

impl State {
    /// What own writes say about a key that is read now; that they can't say is noted.
    fn own_write(&mut self, key: &[u8], snapshot: bool) -> Result<Own> {
        if self.is_blind(snapshot) {
            return Ok(Own::Untouched);
        }
        self.writes
            .own(key, self.options.bypass_unreadable)
            .inspect_err(|error| self.reads.fail(error))
    }
}

impl Inner {
    #[inline]
    pub(super) fn get(self: &Arc<Self>, key: &[u8], snapshot: bool) -> Get {
        if key.first() == Some(&0xff) {
            return self.get_system(key, snapshot);
        }
        let mut after = After::default();
        let mut state = self.lock();
        let get = match state.check(&mut after) {
            Ok(()) => self.get_checked(&mut state, key, snapshot),
            Err(error) => Get::ready(Err(error)),
        };
        drop(state);
        after.run();
        get
    }

    fn get_checked(self: &Arc<Self>, state: &mut State, key: &[u8], snapshot: bool) -> Get {
        if key.len() > max_existing_key_size(key) {
            return Get::ready(Ok(None));
        }
        let operations = match state.own_write(key, snapshot) {
            Ok(Own::Untouched) => None,
            Ok(Own::Known(value)) => return Get::ready(Ok(value)),
            Ok(Own::Dependent(operations)) => Some(operations),
            Err(error) => return Get::ready(Err(error)),
        };
        let at = state.push_get(key, !snapshot);
        Get::batched(self.clone(), at, state.version.known().is_some(), operations)
    }

    #[cold]
    fn get_system(self: &Arc<Self>, key: &[u8], snapshot: bool) -> Get {
        if key >= system::SYSTEM_END && special_keys::is_read(self.api_version(), key) {
            return Get::reply(self.special_get(key));
        }
        let mut after = After::default();
        let mut state = self.lock();
        let is_metadata_version = *key == *system::METADATA_VERSION;
        let get = match state.check(&mut after) {
            Err(error) => Get::ready(Err(error)),
            Ok(()) if !state.options.may_read(key) && !is_metadata_version => {
                Get::ready(Err(Error::key_outside_legal_range()))
            }
            Ok(()) if is_metadata_version => match state.own_write(key, snapshot) {
                Err(error) => Get::ready(Err(error)),
                Ok(Own::Known(value)) => Get::ready(Ok(value)),
                Ok(Own::Untouched | Own::Dependent(_)) => {
                    state.reads.touch();
                    let epoch = state.life.epoch();
                    drop(state);
                    let read = self.clone().get_metadata_version(epoch, snapshot);
                    let get = Get::reply(self.launch(epoch, true, read));
                    after.run();
                    return get;
                }
            },
            Ok(()) => self.get_checked(&mut state, key, snapshot),
        };
        drop(state);
        after.run();
        get
    }

    /// The metadata version comes with the read version, so that nothing has to be asked for it.
    async fn get_metadata_version(
        self: Arc<Self>,
        epoch: u64,
        snapshot: bool,
    ) -> Result<Option<Bytes>> {
        let version = self.read_version(epoch).await?;
        let known = self.lock().version.metadata();
        let value = match known {
            Some(value) => value,
            None => {
                let mut keys = KeyList::new();
                keys.push(system::METADATA_VERSION);
                let values = self.reading().get_many(version, KeySpace::System, &keys).await?;
                values.into_iter().next().flatten()
            }
        };
        self.with(|state, _| {
            if state.life.is_in(epoch) && !snapshot {
                state.reads.add_key(system::METADATA_VERSION);
            }
        });
        Ok(value)
    }

    fn get_key(self: &Arc<Self>, selector: KeySelector, snapshot: bool) -> Reply<Bytes> {
        let mut after = After::default();
        let mut state = self.lock();
        let prepared = state.check(&mut after).and_then(|()| {
            if selector.key[..] > *state.options.max_read_key() {
                return Err(Error::key_outside_legal_range());
            }
            state.reads.touch();
            Ok(self.view(&mut state, snapshot))
        });
        drop(state);
        after.run();
        match prepared {
            Err(error) => Reply::ready(Err(error)),
            Ok(view) => {
                let epoch = view.epoch();
                self.launch(epoch, true, view.get_key(selector.normalized(), snapshot))
            }
        }
    }

    /// A call to the endpoint that reads no version of the database.
    fn estimate<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Inner) -> Reply<T> + Send + 'static,
        check: impl FnOnce(&State) -> Result<()>,
    ) -> Reply<T> {
        let mut after = After::default();
        let mut state = self.lock();
        let checked = state.check(&mut after).and_then(|()| check(&state));
        let epoch = state.life.epoch();
        drop(state);
        after.run();
        if let Err(error) = checked {
            return Reply::ready(Err(error));
        }
        if let Some(known) = self.tenant_known() {
            let inner = self.clone();
            return self.launch(epoch, false, async move {
                known.await?;
                ask(&inner).await
            });
        }
        let reply = ask(self);
        if reply.is_ready() { reply } else { self.launch(epoch, false, reply) }
    }

    /// The range as the endpoint has it.
    fn prefixed(&self, range: &KeyRange) -> KeyRange {
        let prefix = self.prefix();
        KeyRange::new([prefix, &range.begin].concat(), [prefix, &range.end].concat())
    }
}

impl View {
    async fn get_key(self, selector: KeySelector, snapshot: bool) -> Result<Bytes> {
        let key = match self.plain() {
            Some(space) => {
                let version = self.version().await?;
                let key = self.find(version, space, &selector).await?;
                if key[..] > *self.max_key() { Bytes::from_static(self.max_key()) } else { key }
            }
            None => self.resolve(&selector).await?.key,
        };
        if !snapshot {
            let (begin, end) = conflicts::of_get_key(&selector, &key);
            self.add_conflict(&begin, &end);
        }
        self.add_cost(key.len());
        Ok(key)
    }
}
