//! An endpoint for somebody who may a part: each request is judged before the database sees it.
//!
//! Always: what isn't judged here isn't passed on. A method that the trait gets anew does what the
//! trait says of itself, which never reaches the endpoint below.
//!
//! Read next: `plinth_types::rights::coverage`, which says what may be asked.

use super::known::tenant_prefix;
use plinth_client::{Description, Endpoint, Newest, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::rights::Coverage;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, Quorum, RangeRead, RangeResult, Result, Version, strinc,
    system,
};
use std::sync::Arc;

/// An endpoint as far as somebody may use it.
#[derive(Clone)]
pub(crate) struct Guarded {
    below: Arc<dyn Endpoint>,
    coverage: Arc<Coverage>,
}

impl Guarded {
    pub(crate) fn new(below: Arc<dyn Endpoint>, coverage: Arc<Coverage>) -> Self {
        Self { below, coverage }
    }

    /// Answers with what `ask` gives, if that may be asked.
    fn if_may<T>(&self, may: Result<()>, ask: impl FnOnce(&dyn Endpoint) -> Reply<T>) -> Reply<T> {
        match may {
            Ok(()) => ask(&*self.below),
            Err(why) => Reply::ready(Err(why)),
        }
    }

    /// Tenants' ids by their names: each is told to whom its keys are open, so that nobody learns
    /// which others there are.
    fn ids(&self, version: Version, space: KeySpace, keys: &KeyList) -> Reply<Vec<Option<Bytes>>> {
        let coverage = self.coverage.clone();
        let judge = move |ids: Vec<Option<Bytes>>| {
            let is_open = |id: &Option<Bytes>| {
                let prefix = tenant_prefix(id.as_deref()?)?;
                coverage.check_range(&prefix, &strinc(&prefix)?).ok()
            };
            if ids.iter().all(|id| is_open(id).is_some()) {
                return Ok(ids);
            }
            Err(Error::permission_denied().with_detail("no grant covers a tenant of this name"))
        };
        map(self.below.get_many(version, space, keys), judge)
    }

    /// The key at which a bound of a range read stands, if it is one between keys.
    fn bound(space: KeySpace, selector: &KeySelector) -> Option<Bytes> {
        (selector.offset == 1).then(|| place(space, selector))
    }

    /// Follows the selectors of a range read first, so that the range itself can be judged.
    fn get_range_of_selectors(
        &self,
        version: Version,
        space: KeySpace,
        read: &RangeRead,
        done: Promise<RangeResult>,
    ) {
        let (this, mut read) = (self.clone(), read.clone());
        let begin = self.follow(version, space, &read.begin);
        begin.on_complete(move |begin| {
            let begin = match begin {
                Ok(begin) => begin,
                Err(why) => return done.send(Err(why)),
            };
            let end = this.follow(version, space, &read.end);
            end.on_complete(move |end| {
                let end = match end {
                    Ok(end) => end,
                    Err(why) => return done.send(Err(why)),
                };
                // Whether they ran off the keys needn't be told apart from having come just there:
                // then the answer depends on a little more, which may be read too.
                let read_to_begin = read.begin.offset < 1 && begin.is_empty();
                let read_through_end = read.end.offset > 1 && end[..] >= *space.end();
                read.begin = KeySelector::first_greater_or_equal(begin);
                read.end = KeySelector::first_greater_or_equal(end);
                this.get_range(version, space, &read).on_complete(move |result| {
                    done.send(result.map(|result| RangeResult {
                        read_to_begin,
                        read_through_end,
                        ..result
                    }));
                });
            });
        });
    }

    /// Where a bound of a range read is.
    fn follow(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        match Self::bound(space, selector) {
            Some(key) => Reply::ready(Ok(key)),
            None => self.get_key(version, space, selector),
        }
    }
}

/// Whether a read in a range is refused whatever the database has.
pub(crate) fn refuses_range(coverage: &Coverage, space: KeySpace, read: &RangeRead) -> bool {
    if coverage.has_space(space) {
        return false;
    }
    let bounds = [&read.begin, &read.end];
    match bounds.map(|selector| Guarded::bound(space, selector)) {
        [Some(begin), Some(end)] => coverage.check_range(&begin, &end).is_err(),
        _ => bounds
            .iter()
            .any(|selector| selector.offset != 1 && refuses_selector(coverage, space, selector)),
    }
}

/// Whether a selector is refused wherever it leads.
pub(crate) fn refuses_selector(
    coverage: &Coverage,
    space: KeySpace,
    selector: &KeySelector,
) -> bool {
    coverage.check_begins(&place(space, selector), selector.offset >= 1).is_err()
}

/// The place between keys at which a selector begins.
fn place(space: KeySpace, selector: &KeySelector) -> Bytes {
    selector.clone().normalized().key.min(Bytes::from_static(space.end()))
}

/// Of the ranges that are locked those that may be known.
fn cut(coverage: &Coverage, at: ReadVersionReply) -> ReadVersionReply {
    let range_locks = at.range_locks.and_then(|locks| coverage.cut_locks(&locks));
    ReadVersionReply { range_locks, ..at }
}

/// What `judge` makes of an answer.
fn map<T: Send + 'static, U: Send + 'static>(
    mut reply: Reply<T>,
    judge: impl FnOnce(T) -> Result<U> + Send + 'static,
) -> Reply<U> {
    if let Some(answer) = reply.try_take() {
        return Reply::ready(answer.and_then(judge));
    }
    let (done, judged) = promise();
    reply.on_complete(move |answer| done.send(answer.and_then(judge)));
    judged
}

impl Endpoint for Guarded {
    fn env(&self) -> &Env {
        self.below.env()
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        if let Err(why) = self.coverage.check_anything() {
            return Reply::ready(Err(why));
        }
        let coverage = self.coverage.clone();
        map(self.below.read_version(request), move |at| Ok(cut(&coverage, at)))
    }

    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        if let Err(why) = self.coverage.check_anything() {
            return Reply::ready(Err(why));
        }
        let coverage = self.coverage.clone();
        map(self.below.counted_read_version(request), move |(at, quorum)| {
            Ok((cut(&coverage, at), quorum))
        })
    }

    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        // A tenant's name, say, is asked for once more then, at a version.
        let may = keys.iter().try_for_each(|key| self.coverage.check_key(key));
        if let Err(why) = self.coverage.check_anything().and(may) {
            return Reply::ready(Err(why));
        }
        let coverage = self.coverage.clone();
        map(self.below.get_newest(lock_aware, space, keys), move |(at, values)| {
            Ok((cut(&coverage, at), values))
        })
    }

    fn get_many_calls_back(&self) -> bool {
        self.below.get_many_calls_back()
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        let may = keys.iter().try_for_each(|key| self.coverage.check_key(key));
        if may.is_err()
            && !self.coverage.is_nothing()
            && keys.iter().all(|key| key.starts_with(system::TENANT_NAMES))
        {
            return self.ids(version, space, keys);
        }
        self.if_may(may, |below| below.get_many(version, space, keys))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let (place, forward) = (place(space, selector), selector.offset >= 1);
        if let Err(why) = self.coverage.check_begins(&place, forward) {
            return Reply::ready(Err(why));
        }
        let coverage = self.coverage.clone();
        map(self.below.get_key(version, space, selector), move |found| {
            coverage.check_led(space, &place, forward, &found).map(|()| found)
        })
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        if self.coverage.has_space(space) {
            return self.below.get_range(version, space, read);
        }
        match (Self::bound(space, &read.begin), Self::bound(space, &read.end)) {
            (Some(begin), Some(end)) => {
                let may = self.coverage.check_range(&begin, &end);
                self.if_may(may, |below| below.get_range(version, space, read))
            }
            _ => {
                let (done, reply) = promise();
                self.get_range_of_selectors(version, space, read, done);
                reply
            }
        }
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        if let Err(why) = self.coverage.check_commit(&request) {
            return Reply::ready(Err(why));
        }
        self.below.commit(request).map(|outcome| outcome.map_err(untold))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.if_may(self.coverage.check_key(&key), |below| below.watch(key, value, version))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        let may = self.coverage.check_range(&range.begin, &range.end);
        self.if_may(may, |below| below.range_size(range))
    }

    fn range_footprint(&self, range: KeyRange) -> Reply<i64> {
        let may = self.coverage.check_range(&range.begin, &range.end);
        self.if_may(may, |below| below.range_footprint(range))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        let may = self.coverage.check_range(&range.begin, &range.end);
        self.if_may(may, |below| below.split_points(range, chunk))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.if_may(self.coverage.check_key(key), |below| below.addresses_for_key(key))
    }

    fn describe(&self) -> Description {
        self.below.describe()
    }

    fn located(&self) -> Option<Located> {
        self.below.located()
    }

    fn status_json(&self) -> Reply<String> {
        let may = self.coverage.check_operator("the status");
        self.if_may(may, |below| below.status_json())
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        if let Err(why) = self.coverage.check_anything() {
            return Reply::ready(Err(why));
        }
        let coverage = self.coverage.clone();
        map(self.below.pin_snapshot(), move |Pinned { version, endpoint }| {
            Ok(Pinned { version, endpoint: Arc::new(Self::new(endpoint, coverage)) })
        })
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        let may = self.coverage.check_operator("streams of changes");
        self.if_may(may, |below| below.read_changes(request))
    }

    fn series_prefix(&self) -> &'static [u8] {
        self.below.series_prefix()
    }

    fn is_over(&self) -> bool {
        self.below.is_over()
    }

    fn may_lose_answers(&self) -> bool {
        self.below.may_lose_answers()
    }
}

/// What a commit fails with, without the bounds of a locked range, which may lie elsewhere.
fn untold(error: Error) -> Error {
    let locked = Error::transaction_rejected_range_locked();
    if error == locked { locked } else { error }
}
