//! The way of clients to a cluster: commits and read versions to whoever leads, reads to anybody.
//!
//! A stand-in for the product's own client. Messages take time; a node that is asked and doesn't
//! lead says so, and the next one is asked; one that says nothing for long is given up, and what
//! became of a commit isn't known then. A client may well ask a node that only believes that it
//! leads: what that answers is what the oracles look at. For every other version the client asks
//! itself whether the node leads, as the product's does.

use super::wires::Wires;
use crate::link::LATEST;
use crate::stage::lock;
use plinth_client::{
    Begun, Description, Endpoint, Pinned, ReadVersionReply, ReadVersionRequest, first_read,
};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::sync::{First, race};
use plinth_replication::NodeId;
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, RangeRead, RangeResult, Result, Standing, Version, probe,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a node may say nothing, at most: clients differ in that.
const PATIENCE: Duration = Duration::from_secs(3);
/// The shortest.
const IMPATIENCE: Duration = Duration::from_millis(200);
/// For so many milliseconds votes are waited for.
const VOTES: usize = 50;
/// How often a request is sent before its client is told why it can't be answered.
const TRIES: usize = 40;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Version,
    Commit,
    Read,
    Watch,
}

/// Who answered last, and who did before that.
struct Leader {
    newest: NodeId,
    former: NodeId,
}

/// The clients' end.
#[derive(Clone)]
pub(super) struct Router {
    pub env: Env,
    pub wires: Arc<Wires>,
    leader: Arc<Mutex<Leader>>,
    may_lose_answers: bool,
}

/// Asks an endpoint for something, as often as it takes.
type Ask<T> = Arc<dyn Fn(&dyn Endpoint) -> Reply<T> + Send + Sync>;

impl Router {
    pub fn new(env: Env, wires: Arc<Wires>, may_lose_answers: bool) -> Self {
        Self {
            env,
            wires,
            leader: Arc::new(Mutex::new(Leader { newest: 1, former: 1 })),
            may_lose_answers,
        }
    }

    fn any(&self) -> NodeId {
        let members = self.wires.members();
        members[(self.env.random_u64() % members.len() as u64) as usize]
    }

    /// Mostly who answered last. A client that has heard nothing yet asks who did before, and some
    /// know nothing.
    fn likely_leader(&self) -> NodeId {
        match self.env.random_u64() % 8 {
            0 => self.any(),
            1 => lock(&self.leader).former,
            _ => lock(&self.leader).newest,
        }
    }

    /// A node has answered as only who leads does.
    fn leads(&self, id: NodeId) {
        let mut leader = lock(&self.leader);
        if leader.newest != id {
            *leader = Leader { newest: id, former: leader.newest };
        }
    }

    async fn travel(&self) {
        let time = Duration::from_micros(20 + self.env.random_u64() % 300);
        self.env.sleep(time).await;
    }

    /// What a node answers; `None` if it is down. Its silence is a broken connection.
    async fn ask_one<T: Send + 'static>(
        &self,
        id: NodeId,
        ask: &Ask<T>,
        what: What,
    ) -> Option<Result<T>> {
        self.travel().await;
        let patience = self.patience(what, id);
        // Nothing of a node is held while it is waited for: it may die meanwhile.
        let reply = match self.wires.is_stopped(id) {
            false => ask(&*self.wires.line(id)?),
            true => self.ask_when_it_goes_on(id, ask.clone(), patience),
        };
        let answer = match race(reply, self.env.sleep(patience)).await {
            First::Left(answer) => answer,
            First::Right(()) => Err(Error::connection_failed()),
        };
        self.travel().await;
        Some(answer)
    }

    /// Mostly as long as it takes to see that nothing comes, sometimes much longer.
    fn patience(&self, what: What, id: NodeId) -> Duration {
        // Who reads at a version to come, or watches, is told nothing for long.
        if what == What::Watch || (what == What::Read && !self.wires.is_stopped(id)) {
            return PATIENCE;
        }
        let random = self.env.random_u64();
        let span = if random.is_multiple_of(4) { PATIENCE - IMPATIENCE } else { 3 * IMPATIENCE };
        IMPATIENCE + Duration::from_micros((random >> 8) % span.as_micros() as u64)
    }

    /// What is sent to a stopped node waits for it to go on, until soon after its sender has given
    /// up.
    fn ask_when_it_goes_on<T: Send + 'static>(
        &self,
        id: NodeId,
        ask: Ask<T>,
        patience: Duration,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        let (this, until) = (self.clone(), self.env.now() + patience + LATEST / 2);
        drop(self.env.spawn("waiting request", async move {
            while this.wires.is_stopped(id) {
                if this.env.now() > until {
                    return;
                }
                this.env.sleep(Duration::from_millis(1)).await;
            }
            if let Some(line) = this.wires.line(id) {
                ask(&*line).on_complete(move |result| promise.send(result));
            }
        }));
        reply
    }

    async fn ask<T: Send + 'static>(self, ask: Ask<T>, what: What, answer: Promise<T>) {
        let to_leader = matches!(what, What::Version | What::Commit);
        let mut last = Error::process_behind();
        let mut id = if to_leader { self.likely_leader() } else { self.any() };
        for _ in 0..TRIES {
            match self.ask_one(id, &ask, what).await {
                None => {}
                Some(Err(error)) if is_elsewhere(&error, what == What::Commit) => {
                    // Who has no broken disk is waited for.
                    let is_told = !of_its_disk().contains(&error);
                    last = if is_told { error } else { last };
                }
                Some(result) => {
                    if to_leader && result.is_ok() {
                        self.leads(id);
                    }
                    return answer.send(result);
                }
            }
            id = self.any();
            self.env.sleep(Duration::from_millis(10)).await;
        }
        answer.send(Err(last));
    }

    /// A version that the client counts the votes for; `None` if they are too few.
    async fn counted(self, request: ReadVersionRequest) -> Option<ReadVersionReply> {
        let leader = self.likely_leader();
        let said = Arc::new(Mutex::new(Vec::new()));
        for other in self.wires.members().into_iter().filter(|id| *id != leader) {
            let (this, said) = (self.clone(), said.clone());
            drop(self.env.spawn("vote", async move {
                let ask: Ask<Standing> = Arc::new(|node: &dyn Endpoint| {
                    Reply::ready(node.standing().ok_or_else(Error::process_behind))
                });
                if let Some(Ok(standing)) = this.ask_one(other, &ask, What::Version).await {
                    lock(&said).push(standing);
                }
            }));
        }
        let ask: Ask<_> =
            Arc::new(move |node: &dyn Endpoint| node.counted_read_version(request.clone()));
        let (answer, quorum) = self.ask_one(leader, &ask, What::Version).await?.ok()?;
        let Some(quorum) = quorum else { return Some(answer) };
        for _ in 0..VOTES {
            if quorum.is_met(&lock(&said)) {
                probe!("link: votes for a read version are counted");
                return Some(answer);
            }
            self.env.sleep(Duration::from_millis(1)).await;
        }
        probe!("link: too few votes for a read version");
        None
    }

    fn begin<T: Send + 'static>(
        &self,
        what: What,
        ask: impl Fn(&dyn Endpoint) -> Reply<T> + Send + Sync + 'static,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        drop(self.env.spawn("request", self.clone().ask(Arc::new(ask), what, promise)));
        reply
    }

    fn read<T: Send + 'static>(
        &self,
        ask: impl Fn(&dyn Endpoint) -> Reply<T> + Send + Sync + 'static,
    ) -> Reply<T> {
        self.begin(What::Read, ask)
    }
}

/// What a node says whose disk is broken, or holds something damaged: it has done nothing.
fn of_its_disk() -> [Error; 3] {
    [Error::io_error(), Error::io_timeout(), Error::file_corrupt()]
}

/// Whether another node may answer. A commit is sent again only if it certainly took no effect.
fn is_elsewhere(error: &Error, is_commit: bool) -> bool {
    let refused = [Error::process_behind(), Error::shutdown_in_progress()];
    let broken = [
        Error::broken_promise(),
        Error::connection_failed(),
        Error::future_version(),
        Error::internal_error(),
    ];
    refused.contains(error)
        || of_its_disk().contains(error)
        || (!is_commit && broken.contains(error))
}

impl Endpoint for Router {
    fn env(&self) -> &Env {
        &self.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        if self.env.random_u64().is_multiple_of(2) {
            return self.begin(What::Version, move |node| node.read_version(request.clone()));
        }
        let (promise, reply) = promise();
        let this = self.clone();
        drop(self.env.spawn("request", async move {
            match this.clone().counted(request.clone()).await {
                Some(answer) => promise.send(Ok(answer)),
                None => {
                    let ask: Ask<_> =
                        Arc::new(move |node: &dyn Endpoint| node.read_version(request.clone()));
                    this.ask(ask, What::Version, promise).await;
                }
            }
        }));
        reply
    }

    fn begin_reading(
        &self,
        request: &ReadVersionRequest,
        space: KeySpace,
        keys: &KeyList,
    ) -> Option<Reply<Begun>> {
        if self.env.random_u64().is_multiple_of(2) {
            return None;
        }
        let (lock_aware, keys) = (request.lock_aware, keys.clone());
        let granted = self.read_version(request.clone());
        let newest = self.read(move |node| node.get_newest(lock_aware, space, &keys));
        Some(first_read::join(granted, newest, |hit| {
            if hit {
                probe!("link: a first read is of use");
            }
        }))
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        let keys = keys.clone();
        self.read(move |node| node.get_many(version, space, &keys))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        let selector = selector.clone();
        self.read(move |node| node.get_key(version, space, &selector))
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        let read = read.clone();
        self.read(move |node| node.get_range(version, space, &read))
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.begin(What::Commit, move |node| node.commit(request.clone()))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.begin(What::Watch, move |node| node.watch(key.clone(), value.clone(), version))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.read(move |node| node.range_size(range.clone()))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.read(move |node| node.split_points(range.clone(), chunk))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        let key = key.to_vec();
        self.read(move |node| node.addresses_for_key(&key))
    }

    fn describe(&self) -> Description {
        Description::default()
    }

    fn status_json(&self) -> Reply<String> {
        self.read(|node| node.status_json())
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        // What one node lacks, others may have, though they can't be reached now.
        self.read(move |node| {
            let (promise, reply) = promise();
            node.read_changes(request).on_complete(move |result| {
                promise.send(result.map_err(|error| match error == Error::wrong_shard_server() {
                    true => Error::process_behind().with_detail(error.to_string()),
                    false => error,
                }));
            });
            reply
        })
    }

    /// One node's: what is read of it afterwards doesn't travel, and fails when that node dies.
    fn pin_snapshot(&self) -> Reply<Pinned> {
        self.read(|node| node.pin_snapshot())
    }

    fn may_lose_answers(&self) -> bool {
        self.may_lose_answers
    }
}
