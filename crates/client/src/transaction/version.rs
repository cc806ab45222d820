//! The version that a transaction reads at: fetched at the first read, with it if the endpoint can
//! ([`first_read`](crate::first_read)), or set by the user.
//!
//! A pinned one is kept besides, with the database as it was then: whoever has the version reads
//! there. So is what of the database isn't locked, if ranges of it are. That goes when the epoch
//! does to which it belongs; a reader of an epoch that is over may read elsewhere, and is not
//! heard.

use super::read_version::Question;
use super::reading::Reading;
use super::state::State;
use super::{Inner, Transaction};
use crate::endpoint::{Endpoint, ReadVersionReply, ReadVersionRequest};
use crate::first_read::FEW_KEYS;
use plinth_env::reply::{Reply, promise};
use plinth_types::{Bytes, Error, KeyList, KeySpace, Result, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Requests are held back for at least this long, or not at all.
const HELD_BACK: Duration = Duration::from_millis(5);

impl Transaction {
    /// The version at which the transaction reads.
    ///
    /// It includes everything that was acknowledged before it was asked for, which is when this is
    /// called or at the transaction's first read.
    pub fn get_read_version(&self) -> Reply<Version> {
        let epoch = {
            let state = self.inner.lock();
            let life = &state.life;
            if let Err(error) = life.check_deferred().and_then(|()| life.check_alive()) {
                return Reply::ready(Err(error));
            }
            life.epoch()
        };
        self.inner.version(epoch, false)
    }

    /// Has the transaction read at `version`. Only before its first read, and once: afterwards that
    /// is an error, `read_version_already_set`, which the next call tells. `version_invalid` if it
    /// is not positive.
    pub fn set_read_version(&self, version: Version) {
        self.inner.with(|state, _| {
            if state.life.is_deferred() {
                return;
            }
            let result = if !state.version.is_unset() {
                Err(Error::read_version_already_set())
            } else if state.options.version.pinned {
                Err(Error::client_invalid_operation()
                    .with_detail("a pinned snapshot has a version of its own"))
            } else if version <= 0 {
                Err(Error::version_invalid().with_detail(format!("{version}")))
            } else {
                state.version.fix(version);
                Ok(())
            };
            state.defer(result);
        });
    }
}

/// How a transaction begins to read.
pub(super) enum Begins {
    /// With these values: the version is known once they are.
    Reading(Reply<Vec<Option<Bytes>>>),
    /// At this version, which comes first.
    At(Reply<Version>),
}

fn request(state: &State, by_commit: bool) -> ReadVersionRequest {
    let options = &state.options;
    ReadVersionRequest {
        priority: options.version.priority,
        lock_aware: options.commit.lock_aware,
        causal_risky: options.version.causal_risky || by_commit,
        tags: options.version.tags.clone(),
        others: 0,
    }
}

impl Inner {
    /// The read version for an operation on keys: a tenant's keys are known only once the tenant
    /// is.
    pub(super) fn read_version(self: &Arc<Self>, epoch: u64) -> Reply<Version> {
        self.version_of_keys(epoch, false)
    }

    /// The same for a commit, which may have read nothing: then any version will do that isn't too
    /// old.
    pub(super) fn commit_version(self: &Arc<Self>, epoch: u64) -> Reply<Version> {
        self.version_of_keys(epoch, true)
    }

    fn version_of_keys(self: &Arc<Self>, epoch: u64, by_commit: bool) -> Reply<Version> {
        let Some(known) = self.tenant_known() else { return self.version(epoch, by_commit) };
        let (promise, reply) = promise();
        let inner = self.clone();
        known.on_complete(move |known| match known {
            Ok(()) => {
                inner.version(epoch, by_commit).on_complete(move |version| promise.send(version))
            }
            Err(error) => promise.send(Err(error)),
        });
        reply
    }

    /// The read version, fetched if it has not been.
    fn version(self: &Arc<Self>, epoch: u64, by_commit: bool) -> Reply<Version> {
        let (request, pins) = {
            let mut state = self.lock();
            if !state.life.is_in(epoch) {
                return Reply::ready(Err(Error::transaction_cancelled()));
            }
            if let Some(known) = state.version.ask() {
                return known;
            }
            (request(&state, by_commit), state.options.version.pinned)
        };
        self.fetch(epoch, request, pins)
    }

    /// Reads these keys first, together with the request for a version if nobody has made that yet;
    /// otherwise the version comes first.
    pub(super) fn begin_reading(
        self: &Arc<Self>,
        epoch: u64,
        space: KeySpace,
        keys: &KeyList,
    ) -> Begins {
        if keys.len() > FEW_KEYS || self.tenant_known().is_some() {
            return Begins::At(self.read_version(epoch));
        }
        let request = {
            let mut state = self.lock();
            let is_plain = !state.options.version.pinned && state.options.version.tags.is_empty();
            if !is_plain || !state.life.is_in(epoch) || !state.version.is_unset() {
                drop(state);
                return Begins::At(self.read_version(epoch));
            }
            let request = request(&state, false);
            let known = state.version.ask();
            assert!(known.is_none(), "nobody had asked for it");
            request
        };
        let Some(begun) = self.endpoint().begin_reading(&request, space, &self.stored(keys)) else {
            return Begins::At(self.fetch(epoch, request, false));
        };
        let (promise, reply) = promise();
        if let Some(listener) = begun.listener() {
            self.note_question(epoch, Question::Begin(listener));
        }
        let (inner, keys) = (self.clone(), keys.clone());
        begun.on_complete(move |begun| {
            let (granted, values) = match begun {
                Ok((granted, values)) => (Ok(granted), values),
                Err(error) => (Err(error), None),
            };
            match (inner.note_version(epoch, granted), values) {
                // Which of them are locked is found out below.
                (Ok(_), Some(values)) if !inner.reads_apart() => promise.send(Ok(values)),
                (Ok(version), _) => inner
                    .ask_at(version, space, &keys)
                    .on_complete(move |values| promise.send(values)),
                (Err(error), _) => promise.send(Err(error)),
            }
        });
        Begins::Reading(reply)
    }

    /// Asks for a read version.
    fn fetch(
        self: &Arc<Self>,
        epoch: u64,
        request: ReadVersionRequest,
        pins: bool,
    ) -> Reply<Version> {
        let tagged_since = (!request.tags.is_empty()).then(|| self.env().now());
        let mut answer = self.endpoint().read_version(request);
        if pins {
            answer = self.pin(epoch, answer);
        }
        if let Some(result) = answer.try_take() {
            return Reply::ready(self.note_version(epoch, result));
        }
        let reply = self.lock().version.wait();
        if let Some(listener) = answer.listener() {
            self.note_question(epoch, Question::Version(listener));
        }
        let inner = self.clone();
        answer.on_complete(move |result| {
            if let Some(since) = tagged_since {
                inner.note_held_back(epoch, since);
            }
            drop(inner.note_version(epoch, result));
        });
        reply
    }

    /// Whether reads are of something else than the whole database, which the lock tells.
    #[inline]
    pub(super) fn reads_apart(&self) -> bool {
        self.reads_apart.load(Ordering::Relaxed)
    }

    /// Where the version is read from: what is kept of it, if it is pinned, and what isn't locked
    /// of it.
    #[inline]
    pub(super) fn reading(&self) -> Reading<'_> {
        let reading = Reading::current(self.endpoint());
        if !self.reads_apart() {
            return reading;
        }
        let (pinned, locks) = self.lock().version.apart();
        reading.apart(pinned, locks)
    }

    /// Pins a version once a read version has been granted, so that locks and throttles hold for it
    /// too.
    fn pin(
        self: &Arc<Self>,
        epoch: u64,
        granted: Reply<ReadVersionReply>,
    ) -> Reply<ReadVersionReply> {
        let (promise, reply) = promise();
        let inner = self.clone();
        let lock_aware = self.lock().options.commit.lock_aware;
        granted.on_complete(move |granted| {
            if let Err(error) = granted {
                return promise.send(Err(error));
            }
            let pinning = inner.endpoint().pin_snapshot();
            pinning.on_complete(move |pinned| match pinned {
                Ok(pinned) => {
                    let request =
                        ReadVersionRequest { lock_aware, ..ReadVersionRequest::default() };
                    let version = pinned.endpoint.read_version(request);
                    inner.keep(epoch, pinned.endpoint);
                    version.on_complete(move |version| promise.send(version));
                }
                Err(error) => promise.send(Err(error)),
            });
        });
        reply
    }

    fn keep(&self, epoch: u64, pinned: Arc<dyn Endpoint>) {
        let mut state = self.lock();
        // Nobody would let it go of a transaction that is dead already.
        if state.life.is_in(epoch) && !state.life.is_dead() {
            let earlier = state.version.keep(pinned);
            // Readers learn of the version under the lock, later.
            self.reads_apart.store(true, Ordering::Relaxed);
            drop(state);
            drop(earlier);
        }
    }

    /// Notes how long a transaction with tags waited for its read version, if that is more than a
    /// way there and back.
    fn note_held_back(&self, epoch: u64, since: Duration) {
        let waited = self.env().now().saturating_sub(since);
        let mut state = self.lock();
        if state.life.is_in(epoch) && waited >= HELD_BACK {
            state.version.hold_back(waited);
        }
    }

    /// Notes what takes a question for the version back when the try ends; if it has ended
    /// meanwhile, the answer is heeded by nobody.
    fn note_question(&self, epoch: u64, question: Question) {
        let mut state = self.lock();
        if state.life.is_in(epoch) && !state.life.is_dead() {
            state.version.note_question(question);
        }
    }

    fn note_version(&self, epoch: u64, result: Result<ReadVersionReply>) -> Result<Version> {
        self.with(|state, after| {
            if !state.life.is_in(epoch) {
                return Err(Error::transaction_cancelled());
            }
            let result = state.version.note(result, after);
            if state.version.is_apart() {
                self.reads_apart.store(true, Ordering::Relaxed);
            }
            result
        })
    }
}
