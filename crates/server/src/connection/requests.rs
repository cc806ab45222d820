//! What each request does: a call of the endpoint, and its answer into the output, now or by way of
//! the outbox.
//!
//! Nothing here waits. An answer that is there is written at once; one that isn't leaves the
//! connection charged with the request and the largest reply that it can have (`memory.rs`) until
//! it comes. What a request may say is checked by `guard` before the endpoint sees it.

use super::Connection;
use crate::audit;
use crate::guard;
use crate::memory::{self, Charge, REQUEST_OVERHEAD};
use crate::outbox::{Watch, WatchBell};
use crate::status;
use plinth_client::{Endpoint, Newest, Priority, ReadVersionReply, ReadVersionRequest};
use plinth_env::Reply;
use plinth_proto::frame::{Frame, Kind, RANGE_LOCKS};
use plinth_proto::request::{IN_PARTS, WHOLE_KEYS};
use plinth_proto::{MOST_TOGETHER, ReadVersion, Request, reply};
use plinth_types::quotas::Of;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Quorum, RangeRead, RangeResult, Result, Version,
};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Keys of which the values are read first, and at most at a time: four times as many each time, as
/// long as all of them come to less than a reply. Of large values thirty-two were read at once, of
/// which three fit.
const KEYS_AT_A_TIME: [usize; 2] = [4, 32];

/// A range is cut into so many pieces as quickly as it is read.
const FEW_PIECES: i64 = 64;

/// How an answer is written.
type Put<T> = fn(&mut Vec<u8>, u32, &T);

fn put_read_version(out: &mut Vec<u8>, id: u32, answer: &ReadVersionReply) {
    let (metadata, locks) = (answer.metadata_version.as_deref(), answer.range_locks.as_ref());
    reply::put_read_version(out, id, answer.version, metadata, locks);
}

fn put_counted_version(
    out: &mut Vec<u8>,
    id: u32,
    (answer, quorum): &(ReadVersionReply, Option<Quorum>),
) {
    let (metadata, locks) = (answer.metadata_version.as_deref(), answer.range_locks.as_ref());
    reply::put_counted_version(out, id, quorum.as_ref(), answer.version, metadata, locks);
}

fn put_get_newest(out: &mut Vec<u8>, id: u32, (at, values): &Newest) {
    let (metadata, locks) = (at.metadata_version.as_deref(), at.range_locks.as_ref());
    reply::put_get_newest(out, id, values, at.version, metadata, locks);
}

/// For a client that wouldn't leave locked ranges alone.
fn put_read_version_unless_locked(out: &mut Vec<u8>, id: u32, answer: &ReadVersionReply) {
    match answer.range_locks {
        None => put_read_version(out, id, answer),
        Some(_) => reply::put_failure(out, id, &locked_ranges()),
    }
}

/// What a client is told that knows no locked ranges while there are any.
pub(super) fn locked_ranges() -> Error {
    Error::database_locked()
        .with_detail("ranges of it are, and this client is too old to leave those alone")
}

impl Connection {
    /// Carries out the request in a frame.
    pub(super) fn handle(&mut self, frame: &Frame<'_>) {
        self.turn.counted.requests += 1;
        self.turn.has_asked |= frame.kind != Kind::Ping as u8;
        let id = frame.id;
        let done = self
            .knows(frame.kind)
            .and_then(|()| Request::decode(frame))
            .and_then(|request| self.begin(id, request, frame.len()));
        if let Err(error) = done {
            self.fail(id, &error);
        }
    }

    /// Whether the version of the protocol that was agreed on has requests of this kind, or nobody
    /// knows them.
    fn knows(&self, kind: u8) -> Result<()> {
        let since = Kind::from_code(kind).map_or(0, Kind::since);
        if since <= self.access.version {
            return Ok(());
        }
        Err(Error::unsupported_operation().with_detail(format!(
            "requests of kind {kind} came with version {since} of the protocol, and this connection speaks {}",
            self.access.version
        )))
    }

    pub(super) fn fail(&mut self, id: u32, error: &Error) {
        self.turn.counted.failures += 1;
        reply::put_failure(&mut self.output, id, error);
    }

    /// The database as far as it may be used for a request.
    #[inline]
    fn endpoint_for(&mut self, request: &Request) -> Result<Arc<dyn Endpoint>> {
        match request {
            // Where the servers are, and which of them leads, is known to whoever has the cluster
            // file, and a snapshot's name to whoever has pinned it.
            Request::Ping | Request::Cancel | Request::Locate | Request::Standing => {}
            Request::Release(_) | Request::Token(_) => {}
            // As HTTP does, a member that has no rows yet says how far it is.
            Request::Status if self.shared.doors.rights.is_alone() => {}
            Request::Status | Request::Clients | Request::Disconnect(_) | Request::Reboot(_) => {
                self.check_operator()?;
            }
            _ => return self.endpoint(),
        }
        Ok(self.shared.endpoint.clone())
    }

    fn begin(&mut self, id: u32, request: Request, len: usize) -> Result<()> {
        if self.shared.doors.quotas.are_there() {
            return self.keep_to_quotas(id, request, len);
        }
        self.carry_out(id, request, len)
    }

    pub(super) fn carry_out(&mut self, id: u32, request: Request, len: usize) -> Result<()> {
        let endpoint = self.endpoint_for(&request)?;
        match request {
            Request::GetMany { version, space, keys } => {
                return self.get_many(&*endpoint, id, (version, space), &keys, len);
            }
            Request::ReadVersion(request) => self.read_version(&*endpoint, id, request, len),
            Request::CountedVersion(request) => self.counted_version(&*endpoint, id, request, len),
            Request::GetNewest { lock_aware, space, keys } => {
                self.turn.counted.reads += keys.len() as u64;
                let answer = endpoint.get_newest(lock_aware, space, &keys);
                let answer = self.charge_newest(&keys, answer);
                let charge = Charge::new(len, memory::values(keys.len()));
                self.answer(id, answer, charge, put_get_newest);
            }
            Request::Standing => self.standing(&*endpoint, id)?,
            Request::GetRange { version, space, read } => {
                return self.get_range(&*endpoint, id, (version, space), read, len);
            }
            Request::GetKey { version, space, selector } => {
                return self.get_key(&*endpoint, id, (version, space), &selector, len);
            }
            Request::Commit(request) => self.commit(&*endpoint, id, *request, len)?,
            Request::Watch { key, value, version } => {
                self.watch(&*endpoint, id, (key, value), version)?
            }
            Request::Cancel => {
                self.turn.watches += 1;
                if self.watches.remove(id) {
                    self.fail(id, &Error::operation_cancelled());
                }
            }
            Request::RangeSize(range) => self.range_size(&*endpoint, id, range, len),
            Request::SplitPoints { range, chunk } => {
                self.split_points(endpoint, id, range, chunk, len)
            }
            Request::Addresses(key) => {
                self.check_key(&key)?;
                let addresses = &self.shared.place.addresses;
                reply::put_list(&mut self.output, id, Kind::AddressesReply, addresses);
            }
            Request::Status => self.status(id, len),
            Request::Ping => reply::put_pong(&mut self.output, id),
            Request::Pin { lease_ms } => self.pin(id, lease_ms, len)?,
            Request::Renew { snapshot, lease_ms } => self.renew(id, &snapshot, lease_ms)?,
            Request::Release(snapshot) => self.release(id, &snapshot),
            Request::InSnapshot { snapshot, read } => {
                return self.read_in(id, &snapshot, *read, len);
            }
            Request::Locate => {
                let located = endpoint.located().unwrap_or_else(|| self.shared.place.located());
                reply::put_located(&mut self.output, id, &located);
            }
            Request::Changes(request) => self.changes(&*endpoint, id, request, len),
            Request::Clients => self.clients(id, len),
            Request::Disconnect(client) => self.disconnect(id, &client)?,
            Request::Reboot(address) => self.reboot(id, &address),
            Request::Token(token) => self.access.show(token),
        }
        Ok(())
    }

    fn standing(&mut self, endpoint: &dyn Endpoint, id: u32) -> Result<()> {
        let Some(standing) = endpoint.standing() else {
            let detail = "this server is no member of a cluster that could follow one";
            return Err(Error::unsupported_operation().with_detail(detail));
        };
        reply::put_standing(&mut self.output, id, &standing);
        Ok(())
    }

    fn commit(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        request: CommitRequest,
        len: usize,
    ) -> Result<()> {
        guard::commit(&request)?;
        self.turn.counted.commits += 1;
        let bill = self.bill_commit(&request);
        let what = audit::what(&request);
        let mut answer = endpoint.commit(request);
        if let Some(bill) = bill {
            answer = self.charge_commit(bill, answer);
        }
        if let Some(what) = what {
            answer = self.shared.doors.audit.follow(what, self.who(), answer);
        }
        self.holds.note_commit(&answer, len);
        self.answer(id, answer, Charge::new(len, len), |out, id, reply: &CommitReply| {
            reply::put_commit(out, id, reply);
        });
        Ok(())
    }

    fn status(&mut self, id: u32, len: usize) {
        let is_often = self.turn.asks_often(self.shared.env.now());
        let answer = status::document(&self.shared, self.number, is_often);
        let charge = Charge::new(len, memory::LIST);
        self.answer(id, answer, charge, |out, id, document: &Arc<str>| {
            reply::put_status(out, id, document);
        });
    }

    #[inline]
    pub(super) fn get_many(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        (version, space): (Version, KeySpace),
        keys: &KeyList,
        len: usize,
    ) -> Result<()> {
        if keys.len() > WHOLE_KEYS && self.access.version >= IN_PARTS {
            return self.get_first_of_many(endpoint, id, (version, space), keys, len);
        }
        self.turn.counted.reads += keys.len() as u64;
        let mut answer = self.charge_values(keys, false, endpoint.get_many(version, space, keys));
        match answer.try_take() {
            Some(Ok(values)) => reply::put_get_many(&mut self.output, id, &values),
            Some(Err(error)) => return Err(error),
            None => {
                let charge = Charge::new(len, memory::values(keys.len()));
                self.answer(id, answer, charge, |out, id, values: &Vec<_>| {
                    reply::put_get_many(out, id, values);
                });
            }
        }
        Ok(())
    }

    /// Reads the first keys, as many as one reply has room for, a few at a time: what the reply has
    /// no room for isn't read.
    fn get_first_of_many(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        (version, space): (Version, KeySpace),
        keys: &KeyList,
        len: usize,
    ) -> Result<()> {
        let mut values: Vec<Option<Bytes>> = Vec::with_capacity(keys.len());
        let [mut at_a_time, most] = KEYS_AT_A_TIME;
        while values.len() < keys.len() {
            let end = keys.len().min(values.len() + at_a_time);
            at_a_time = (4 * at_a_time).min(most);
            let mut answer = endpoint.get_many(version, space, &keys.slice(values.len()..end));
            match answer.try_take() {
                Some(Ok(more)) => values.extend(more),
                Some(Err(error)) if values.is_empty() => return Err(error),
                // What follows is asked for again, and waited for then.
                Some(Err(_)) => break,
                None if values.is_empty() => {
                    // Where it has to be waited for, for more of them at once.
                    let end = keys.len().min(most);
                    let first = keys.slice(0..end);
                    let answer = endpoint.get_many(version, space, &first);
                    let answer = self.charge_values(&first, true, answer);
                    self.turn.counted.reads += end as u64;
                    let charge = Charge::new(len, memory::values(end));
                    self.answer(id, answer, charge, |out, id, values: &Vec<_>| {
                        reply::put_get_many(out, id, &values[..reply::fitting(values)]);
                    });
                    return Ok(());
                }
                None => break,
            }
            let fitting = reply::fitting(&values);
            if fitting < values.len() {
                values.truncate(fitting);
                break;
            }
        }
        self.turn.counted.reads += values.len() as u64;
        self.charge_values_now(keys, &values);
        reply::put_get_many(&mut self.output, id, &values);
        Ok(())
    }

    pub(super) fn get_key(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        (version, space): (Version, KeySpace),
        selector: &KeySelector,
        len: usize,
    ) -> Result<()> {
        guard::selector(selector)?;
        self.turn.counted.reads += 1;
        let answer = self.charge_key(endpoint.get_key(version, space, selector));
        let charge = Charge::new(len, memory::ONE_KEY);
        self.answer(id, answer, charge, |out, id, key: &Bytes| reply::put_get_key(out, id, key));
        Ok(())
    }

    pub(super) fn range_size(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        range: KeyRange,
        len: usize,
    ) {
        let answer = endpoint.range_size(range);
        self.answer(id, answer, Charge::new(len, memory::SMALL), |out, id, size| {
            reply::put_number(out, id, Kind::RangeSizeReply, *size);
        });
    }

    pub(super) fn split_points(
        &mut self,
        endpoint: Arc<dyn Endpoint>,
        id: u32,
        range: KeyRange,
        chunk: i64,
        len: usize,
    ) {
        // The estimate comes from memory; if it doesn't, the pieces are as small as asked for.
        let size = endpoint.range_size(range.clone()).try_take().and_then(Result::ok).unwrap_or(0);
        let chunk = guard::chunk(chunk, size);
        let answer = if size / chunk <= FEW_PIECES {
            endpoint.split_points(range, chunk)
        } else {
            self.shared.turns.heavy.submit(self.number, move || endpoint.split_points(range, chunk))
        };
        let answer = self.charge_points(answer);
        self.answer(id, answer, Charge::new(len, memory::LIST), |out, id, points: &Vec<Bytes>| {
            reply::put_list(out, id, Kind::SplitPointsReply, &guard::points(points, memory::LIST));
        });
    }

    pub(super) fn get_range(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        (version, space): (Version, KeySpace),
        mut read: RangeRead,
        len: usize,
    ) -> Result<()> {
        guard::range(&mut read)?;
        self.turn.counted.ranges += 1;
        let mut answer = self.charge_rows(endpoint.get_range(version, space, &read));
        match answer.try_take() {
            Some(Ok(result)) => {
                self.turn.counted.rows += result.rows.len() as u64;
                put_range(&mut self.output, id, &result);
            }
            Some(Err(error)) => return Err(error),
            None => self.answer(id, answer, Charge::new(len, memory::rows(&read)), put_range),
        }
        Ok(())
    }

    /// One that waits is charged with little: most wait for nothing, and the streams of a node are
    /// read one after the other. What comes is held against the server's bound before its reply is
    /// built, since all who wait get theirs with the same commit.
    fn changes(&mut self, endpoint: &dyn Endpoint, id: u32, request: ChangesRequest, len: usize) {
        let bytes = request.bytes.min(memory::CHANGES);
        let charge = Charge::new(len, if request.wait { memory::CHANGES / 16 } else { bytes });
        let answer = endpoint.read_changes(ChangesRequest { bytes, ..request });
        let answer = self.charge_changes(answer);
        self.answer_sized(id, answer, charge, Changes::bytes, |out, id, changes: &Changes| {
            if let Err(error) = reply::put_changes(out, id, changes) {
                reply::put_failure(out, id, &error);
            }
        });
    }

    fn read_version(&mut self, endpoint: &dyn Endpoint, id: u32, request: ReadVersion, len: usize) {
        let (request, charge) = self.begins(request, len);
        let answer = endpoint.read_version(request);
        let put = if self.access.version < RANGE_LOCKS {
            put_read_version_unless_locked
        } else {
            put_read_version
        };
        self.answer(id, answer, charge, put);
    }

    fn counted_version(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        request: ReadVersion,
        len: usize,
    ) {
        let (request, charge) = self.begins(request, len);
        let answer = endpoint.counted_read_version(request);
        self.answer(id, answer, charge, put_counted_version);
    }

    /// Counts the transactions that begin: what the endpoint is asked, and what that costs while it
    /// waits.
    fn begins(&mut self, request: ReadVersion, len: usize) -> (ReadVersionRequest, Charge) {
        let count = request.count.clamp(1, MOST_TOGETHER);
        self.turn.counted.read_versions += 1;
        self.turn.counted.transactions += u64::from(count);
        // Held back, each of them waits by itself.
        let each = REQUEST_OVERHEAD + request.tags.len() * size_of::<Bytes>();
        let mut charge = Charge::new(len, memory::SMALL);
        charge.request += each * (count - 1) as usize;
        let request = ReadVersionRequest {
            priority: match request.priority {
                0 => Priority::Batch,
                1 => Priority::Default,
                _ => Priority::Immediate,
            },
            lock_aware: request.lock_aware,
            causal_risky: request.causal_risky,
            tags: request.tags,
            others: count - 1,
        };
        (request, charge)
    }

    /// Writes an answer that is there; has one that isn't come by way of the outbox.
    pub(super) fn answer<T: Send + 'static>(
        &mut self,
        id: u32,
        answer: Reply<T>,
        charge: Charge,
        put: Put<T>,
    ) {
        self.answer_sized(id, answer, charge, |_| 0, put);
    }

    /// The same for one whose reply may be larger than it was charged with, and how large that will
    /// be.
    fn answer_sized<T: Send + 'static>(
        &mut self,
        id: u32,
        mut answer: Reply<T>,
        charge: Charge,
        size: fn(&T) -> usize,
        put: Put<T>,
    ) {
        match answer.try_take() {
            Some(Ok(value)) => put(&mut self.output, id, &value),
            Some(Err(error)) => self.fail(id, &error),
            None => {
                let outbox = self.outbox.clone();
                self.holds.in_flight += charge;
                answer.on_complete(move |result| {
                    let len = result.as_ref().map_or(0, size);
                    outbox.answer(charge, len, |out| match result {
                        Ok(value) => put(out, id, &value),
                        Err(error) => reply::put_failure(out, id, &error),
                    });
                });
            }
        }
    }

    fn watch(
        &mut self,
        endpoint: &dyn Endpoint,
        id: u32,
        (key, value): (Bytes, Option<Bytes>),
        version: Version,
    ) -> Result<()> {
        guard::key(&key)?;
        self.turn.watches += 1;
        if self.watches.len() >= self.shared.config.limits.watches {
            let detail = format!("a connection has at most {} at the server", self.watches.len());
            return Err(Error::too_many_watches().with_detail(detail));
        }
        if self.watches.contains(id) {
            let detail = format!("the id {id} belongs to a watch that waits");
            return Err(Error::client_invalid_operation().with_detail(detail));
        }
        // Before a quota is told, which may be that of a tenant.
        self.check_key(&key)?;
        let counted = self.count(Of::Watches).map_err(|why| {
            Error::too_many_watches().with_detail(format!("{why}, and so many wait"))
        })?;
        let bytes = key.len() + value.as_ref().map_or(0, Bytes::len) + REQUEST_OVERHEAD;
        let reply = endpoint.watch(key.clone(), value, version);
        let token = self.access.shown().clone();
        self.watches.insert(id, Watch { key, token, reply, bytes, counted });
        self.look_at_watch(id);
        Ok(())
    }

    /// Answers a watch that has fired; has this connection woken by one that hasn't.
    pub(super) fn look_at_watch(&mut self, id: u32) {
        let Some(watch) = self.watches.get_mut(id) else { return };
        let bell = Waker::from(Arc::new(WatchBell { outbox: self.outbox.clone(), id }));
        let Poll::Ready(result) = Pin::new(&mut watch.reply).poll(&mut Context::from_waker(&bell))
        else {
            return;
        };
        self.watches.remove(id);
        match result {
            Ok(version) => reply::put_number(&mut self.output, id, Kind::WatchReply, version),
            Err(error) => self.fail(id, &error),
        }
    }
}

fn put_range(out: &mut Vec<u8>, id: u32, result: &RangeResult) {
    reply::put_get_range(out, id, result);
}
