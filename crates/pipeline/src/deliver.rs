//! The task that answers whoever reads streams: one for all of them, so that a reader that waits
//! costs a place in a list.
//!
//! For each stream a few places in the log are kept where readers stopped, so that a consumer which
//! goes on doesn't have to be found again, also beside another one. A request is answered as soon
//! as there is a batch, or when it has waited for a while: an answer without batches says how far
//! everything was looked at, which is how a consumer gets on over entries that are not its own. A
//! node that hears of no leader can't say that there is nothing: others may have committed without
//! it, and are to be asked.

use crate::batch::entry_mutations;
use crate::changes::{Request, over};
use crate::failure::{NodeError, NodeResult};
use crate::replica::Replica;
use crate::space::Level;
use plinth_env::reply::Promise;
use plinth_env::sync::race;
use plinth_log::LogReader;
use plinth_types::changes::cut;
use plinth_types::mutation::Mutations;
use plinth_types::{
    ChangeBatch, Changes, ChangesRequest, Error, KeyRange, MutationList, Version, planted, probe,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a request waits before it is answered without a batch.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a place in the log is kept for a consumer that doesn't ask.
const IDLE: Duration = Duration::from_secs(5);
/// How many places are kept for a stream, and for all.
const PLACES: [usize; 2] = [4, 64];
/// How long what a stream held back on a full disk has to go before another one has to give way.
const GOING: Duration = Duration::from_secs(3);
/// Bytes of entries that are looked at for one request before others have their turn.
const TURN_BYTES: usize = 8 << 20;
/// Most bytes of an answer, but for a batch that is larger by itself.
const MOST_BYTES: usize = 8 << 20;

/// A place in the log.
struct Cursor {
    reader: Box<dyn LogReader>,
    /// An entry that was read and whose version nobody may see yet.
    pending: Option<plinth_log::Entry>,
    used: Duration,
}

struct Waiting {
    request: ChangesRequest,
    promise: Promise<Changes>,
    until: Duration,
    /// Up to where there was nothing for it.
    looked: Version,
}

/// What becomes of a request.
enum Outcome {
    Answer(NodeResult<Changes>),
    /// There is nothing for it yet.
    Wait,
    /// It has had its turn, and there is more to look at.
    GoOn,
}

struct Server {
    replica: Arc<Replica>,
    /// For each stream, by the first version that is to come from there.
    cursors: BTreeMap<(u64, Version), Cursor>,
    waiting: Vec<Waiting>,
}

/// Answers until the node closes.
pub(crate) async fn run(replica: Arc<Replica>) {
    let mut server =
        Server { replica: replica.clone(), cursors: BTreeMap::new(), waiting: Vec::new() };
    let streams = &replica.streams;
    let mut patient_until = Duration::ZERO;
    loop {
        let due = race(streams.until_due(), replica.health.until_over());
        match server.pause(replica.env.now()) {
            Some(pause) => drop(race(due, replica.env.sleep(pause)).await),
            None => drop(due.await),
        }
        if replica.health.is_over() {
            break;
        }
        let now = replica.env.now();
        if streams.is_used()
            && replica.space.level() == Level::Kept
            && now >= patient_until
            && replica.space.look(0).await == Level::Kept
            && streams.give_way()
        {
            patient_until = now + GOING;
        }
        server.take_requests();
        server.serve_all().await;
    }
    let failure = Error::from(replica.health.failure().unwrap_or_else(over));
    let left = streams.end().into_iter().map(|request| request.promise);
    left.chain(server.waiting.into_iter().map(|waiting| waiting.promise))
        .for_each(|promise| promise.send(Err(failure.clone())));
}

impl Server {
    /// How long nothing is due; `None`: for ever.
    fn pause(&self, now: Duration) -> Option<Duration> {
        let waits = self.waiting.iter().map(|waiting| waiting.until);
        let idle = self.cursors.values().map(|cursor| cursor.used + IDLE);
        // Somebody has to look at the disk, too.
        let look = self.replica.streams.is_used().then_some(now + PATIENCE);
        waits
            .chain(idle)
            .chain(look)
            .min()
            .map(|due| due.saturating_sub(now).max(Duration::from_millis(1)))
    }

    fn take_requests(&mut self) {
        let requests = self.replica.streams.take_requests();
        let until = self.replica.env.now() + PATIENCE;
        self.waiting.extend(requests.into_iter().map(|Request { request, promise }| Waiting {
            request,
            promise,
            until,
            looked: request.from.saturating_sub(1),
        }));
    }

    async fn serve_all(&mut self) {
        let streams = self.replica.streams.clone();
        streams.await_entries(true);
        let mut left = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            if waiting.promise.is_cancelled() {
                continue;
            }
            let outcome =
                self.serve(&mut waiting).await.unwrap_or_else(|error| Outcome::Answer(Err(error)));
            match outcome {
                Outcome::Answer(answer) => {
                    waiting.promise.send(answer.map_err(Error::from));
                }
                Outcome::Wait => left.push(waiting),
                Outcome::GoOn => {
                    streams.look();
                    left.push(waiting);
                }
            }
        }
        self.waiting = left;
        streams.await_entries(!self.waiting.is_empty());
        let now = self.replica.env.now();
        self.cursors.retain(|_, cursor| cursor.used + IDLE > now);
    }

    /// Looks for what a request wants.
    async fn serve(&mut self, waiting: &mut Waiting) -> NodeResult<Outcome> {
        let now = self.replica.env.now();
        let (is_late, request) = (now >= waiting.until, waiting.request);
        let newest = self.replica.newest();
        if request.from.saturating_sub(1) > newest {
            // This node lags: it may not even know the stream yet.
            return Ok(match is_late {
                true => Outcome::Answer(Err(NodeError::Future)),
                false => Outcome::Wait,
            });
        }
        let ranges = self.replica.streams.ranges_of(&request)?;
        let found = self.look(request, waiting.looked, newest, &ranges).await;
        let found = found.map_err(|error| self.replica.streams.failed(request.stream, error))?;
        let Found { batches, upto, is_end } = found;
        assert!(upto <= newest, "a stream is told of {upto}, and nobody may read beyond {newest}");
        waiting.looked = upto;
        // Others may commit what this node doesn't hear of.
        let is_cut_off = self.replica.health.leaderless_for(now).is_some();
        if batches.is_empty() && !is_late {
            if !is_end {
                return Ok(Outcome::GoOn);
            }
            if request.wait || is_cut_off {
                return Ok(Outcome::Wait);
            }
        }
        if batches.is_empty() && is_cut_off {
            probe!("pipeline: a node that is cut off doesn't say that there is nothing new");
            let detail = "this node hears of no leader, so there may be changes that it lacks";
            return Err(NodeError::Behind(Some(detail.into())));
        }
        Ok(Outcome::Answer(Ok(Changes { batches, upto, newest })))
    }

    async fn look(
        &mut self,
        request: ChangesRequest,
        looked: Version,
        newest: Version,
        ranges: &[KeyRange],
    ) -> NodeResult<Found> {
        let (from, now) = (looked + 1, self.replica.env.now());
        // One that fails is not put back.
        let mut cursor = match self.cursors.remove(&(request.stream, from)) {
            Some(cursor) => Cursor { used: now, ..cursor },
            None => {
                let reader = self.replica.streams.reader(request.stream, from)?;
                Cursor { reader, pending: None, used: now }
            }
        };
        let most = request.bytes.clamp(1, MOST_BYTES);
        let (mut batches, mut bytes, mut seen) = (Vec::new(), 0, 0);
        let mut is_end = false;
        let mut upto = looked;
        while bytes < most && seen < TURN_BYTES {
            let entry = match cursor.pending.take() {
                Some(entry) => Some(entry),
                None => cursor.reader.next().await?,
            };
            let Some(entry) = entry.filter(|entry| {
                let is_visible = entry.version <= newest;
                if !is_visible {
                    cursor.pending = Some(entry.clone());
                }
                is_visible
            }) else {
                (is_end, upto) = (true, newest.max(upto));
                break;
            };
            seen += entry.body.len();
            assert!(entry.version > upto, "version {} comes behind {upto}", entry.version);
            upto = entry.version;
            let mutations = changes_in(&entry, ranges)?;
            let is_skipped = planted!("a version of a stream is skipped") && batches.len() == 3;
            if !mutations.is_empty() && !is_skipped {
                bytes += mutations.as_bytes().len();
                batches.push(ChangeBatch { version: entry.version, mutations });
            }
        }
        assert!(upto >= looked, "a look at the log goes back from {looked} to {upto}");
        self.put_back((request.stream, upto + 1), cursor);
        Ok(Found { batches, upto, is_end })
    }

    /// Keeps a place in the log. Where there are too many, the one that wasn't used for longest
    /// goes.
    fn put_back(&mut self, place: (u64, Version), cursor: Cursor) {
        self.cursors.insert(place, cursor);
        let of_it = (place.0, Version::MIN)..=(place.0, Version::MAX);
        for (range, most) in
            [(of_it, PLACES[0]), ((0, Version::MIN)..=(u64::MAX, Version::MAX), PLACES[1])]
        {
            let used = |(place, cursor): (&(u64, Version), &Cursor)| (cursor.used, *place);
            let oldest = self.cursors.range(range.clone()).map(used).min();
            if self.cursors.range(range).count() > most
                && let Some((_, place)) = oldest
            {
                self.cursors.remove(&place);
            }
        }
        assert!(self.cursors.len() <= PLACES[1], "more places in the log are kept than may be");
    }
}

/// What a look at the log has found.
struct Found {
    batches: Vec<ChangeBatch>,
    upto: Version,
    /// There is nothing more that anybody may see.
    is_end: bool,
}

fn changes_in(entry: &plinth_log::Entry, ranges: &[KeyRange]) -> NodeResult<MutationList> {
    let all = entry_mutations(&entry.body).map_err(|error| {
        NodeError::Damaged(format!("log entry {}: {error}", entry.index).into())
    })?;
    let mut mutations = MutationList::new();
    cut(Mutations::of(&all), ranges, &mut mutations);
    Ok(mutations)
}
