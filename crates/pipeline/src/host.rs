//! A member for as long as its process lives: opened, and opened again on rows of another member
//! when it was too far behind for the log. It serves once it has what it missed while it was away.
//!
//! ```text
//!   opened ──▶ entries that it missed, up to where whoever leads had the log when it was asked: it serves nothing
//!      │
//!      ▼
//!   follows ──▶ the leader's log begins behind what this one has
//!      ▲            │  it serves nothing; it votes on
//!      │            ▼
//!      │        rows of another member, chunk by chunk ──▶ gen-2/ beside gen-1/          taking.rs, generation.rs
//!      │            │  any that has them; if it goes away, another one, from the first chunk on
//!      │            ▼
//!      │        closed; what it promised goes into the log of gen-2/; IDENTITY: 2; gen-1/ goes; opened
//!      │            │
//!      │            ▼
//!      └─────── entries behind the rows, until it is as far as the others
//! ```
//!
//! Clients and connections know the [`Host`], and never notice that the node behind it is another
//! one: they are refused while there is none that could answer, as by a node that is behind, and go
//! elsewhere.
//!
//! Always: at any instant the directory has one state that counts, whole; a crash leaves the old
//! one, which takes rows again, or the new one, which goes on from there. Neither has forgotten a
//! promise of the member.

use crate::cluster::{CatchingUp, Leadership, Membership, Parcel, Peers, Progress, Stage};
use crate::config::NodeConfig;
use crate::endpoint::InProcess;
use crate::events;
use crate::failure::{NodeError, NodeResult};
use crate::generation::Import;
use crate::health::Health;
use crate::metrics::LongestWaits;
use crate::node::Node;
use crate::taking::{self, Arrivals, Taker};
use crate::worker;
use plinth_client::{Description, Endpoint, Newest, Pinned, ReadVersionReply, ReadVersionRequest};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Reply, Task};
use plinth_replication::{EntryId, Frame, NodeId, ParcelKind};
use plinth_types::{
    Bytes, Changes, ChangesRequest, CommitReply, CommitRequest, Error, KeyList, KeyRange,
    KeySelector, KeySpace, Located, Quorum, RangeRead, RangeResult, Standing, Version, planted,
    probe,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// After rows couldn't be had from anybody, it is tried again after so long.
const PAUSE: Duration = Duration::from_millis(500);
/// How often it is looked whether entries have come as far as others have them.
const LOOK: Duration = Duration::from_millis(200);
/// So many entries behind whoever leads a node serves: they are some milliseconds' work.
const CLOSE: u64 = 64;
/// Who gets no entries for so long, and no word of whoever leads, serves what it has: maybe nobody
/// does.
const LONELY: Duration = Duration::from_secs(5);

/// A member of a cluster. Dropping the last handle closes it.
pub struct Host {
    inner: Arc<Inner>,
    task: Mutex<Option<Task>>,
}

struct Inner {
    env: Env,
    dir: PathBuf,
    config: NodeConfig,
    peers: Arc<dyn Peers>,
    seat: RwLock<InProcess>,
    progress: Arc<Progress>,
    arrivals: Arrivals,
    health: Health,
}

impl Host {
    /// Opens a member's directory, and takes part in its cluster; see [`Node::open_member`].
    ///
    /// # Errors
    /// As those there.
    pub async fn open(
        env: &Env,
        dir: &Path,
        config: NodeConfig,
        peers: Arc<dyn Peers>,
    ) -> NodeResult<Arc<Self>> {
        let progress = Arc::new(Progress::default());
        progress.begin(Stage::Entries, env.now());
        let links = (peers.clone(), progress.clone());
        let node = Node::open_telling(env, dir, config.clone(), links).await?;
        let inner = Arc::new(Inner {
            env: env.clone(),
            dir: dir.to_path_buf(),
            config,
            peers,
            seat: RwLock::new(node.endpoint()),
            progress,
            arrivals: Arrivals::default(),
            health: Health::default(),
        });
        let task = env.spawn("catch up", inner.clone().run());
        Ok(Arc::new(Self { inner, task: Mutex::new(Some(task)) }))
    }

    /// The node, as it is now.
    pub fn node(&self) -> Arc<Node> {
        self.inner.node()
    }

    /// The way to it for a client in this process.
    pub fn endpoint(self: &Arc<Self>) -> HostEndpoint {
        HostEndpoint { host: self.clone() }
    }

    /// A frame of another member has arrived; see [`Node::receive`].
    pub fn receive(&self, frame: Frame) {
        self.node().receive(frame);
    }

    /// The same, on a connection that takes an answer back; see [`Node::receive_and_answer`].
    #[must_use = "somebody waits for the answer"]
    pub fn receive_and_answer(&self, frame: Frame) -> Option<Frame> {
        self.node().receive_and_answer(frame)
    }

    /// A parcel of another member has arrived, which may be lost or doubled on its way as a frame
    /// may.
    pub fn receive_parcel(&self, parcel: Parcel) {
        match parcel.kind {
            ParcelKind::Chunk | ParcelKind::Refuse | ParcelKind::Held => {
                self.inner.arrivals.push(parcel)
            }
            ParcelKind::Ask | ParcelKind::AskAgain | ParcelKind::Hold => {
                self.node().receive_parcel(parcel)
            }
        }
    }

    /// Who the members are: see [`Node::membership`].
    pub fn membership(&self) -> Option<Membership> {
        self.node().membership()
    }

    /// Takes a new node in: see [`Node::take_in`].
    ///
    /// # Errors
    /// As there.
    pub async fn take_in(&self, address: &str) -> NodeResult<Membership> {
        self.node().take_in(address).await
    }

    /// This node is no member any more: see [`Node::be_removed`].
    pub fn be_removed(&self) {
        self.node().be_removed();
    }

    /// A member is at another address: see [`Node::note_move`].
    pub fn note_move(&self, member: u64, address: &str) {
        self.node().note_move(member, address);
    }

    /// Who leads, as far as this node knows.
    pub fn leadership(&self) -> Leadership {
        self.node().leadership()
    }

    /// Whether it serves nothing, because it takes in rows or entries that it lacks.
    pub fn is_catching_up(&self) -> bool {
        // Who leads has everything, whether or not it has been noticed.
        self.inner.progress.is_under_way() && !self.leadership().is_ready
    }

    /// Gives the leader's part to another member; see [`Node::hand_over`].
    pub async fn hand_over(&self) {
        self.node().hand_over().await;
    }

    /// Why the member takes no more part, if something broke.
    pub fn failure(&self) -> Option<NodeError> {
        self.inner.health.failure().or_else(|| self.node().failure())
    }

    /// What held up commits longest since this was last asked.
    pub fn take_longest_waits(&self) -> LongestWaits {
        self.node().take_longest_waits()
    }

    /// All measurements of the node, in Prometheus' text format (version 0.0.4).
    pub fn metrics_text(&self) -> String {
        self.node().metrics_text()
    }

    /// Writes a checkpoint now and gives its version.
    ///
    /// # Errors
    /// Those of files.
    pub async fn checkpoint(&self) -> NodeResult<Version> {
        self.node().checkpoint().await
    }

    /// Panics if what the node believes of itself contradicts itself. For simulations.
    pub fn check_invariants(&self) {
        self.node().check_invariants();
    }

    /// Stops; see [`Node::close`].
    ///
    /// # Errors
    /// As those there.
    pub async fn close(&self) -> NodeResult<()> {
        self.inner.health.begin_closing();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // One that panicked has nothing more to do either.
            let _ = task.await;
        }
        let closed = self.node().close().await;
        self.inner.health.failure().map_or(closed, Err)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.inner.env.is_simulated() || worker::is_worker_thread() {
            self.inner.health.begin_closing();
        } else {
            // Nobody is left to tell; what was acknowledged is durable whether or not this
            // succeeds.
            drop(plinth_env::block_on(self.close()));
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("dir", &self.inner.dir).finish_non_exhaustive()
    }
}

impl Inner {
    fn node(&self) -> Arc<Node> {
        self.seat.read().unwrap_or_else(PoisonError::into_inner).node().clone()
    }

    /// Gets what was missed before it was opened, then rows whenever they are needed, until the
    /// member closes or fails.
    async fn run(self: Arc<Self>) {
        let _watched = Watched(self.clone());
        self.come_back().await;
        while !self.health.is_over() {
            let node = self.node();
            let Some(participant) = node.participant() else { return };
            let behind = participant.member.until(|standing| standing.behind);
            let needed = match race(self.health.until_over(), behind).await {
                First::Right(Ok(needed)) => needed,
                // It closes; or the node ended, which says so itself.
                First::Left(()) | First::Right(Err(_)) => return,
            };
            self.catch_up(node, needed).await;
        }
    }

    /// What it missed while it was away it can't know: it serves once whoever leads has said how
    /// far the log is, and it is there.
    async fn come_back(&self) {
        self.entries().await;
        let done = self.progress.end().filter(|done| done.lacked > CLOSE && !self.health.is_over());
        if let Some(done) = done {
            probe!("pipeline: a member has the entries that it missed");
            events::has_entries(
                self.node().replica.newest(),
                self.env.now().saturating_sub(done.began),
            );
        }
    }

    async fn catch_up(&self, node: Arc<Node>, needed: EntryId) {
        probe!("pipeline: a member needs rows");
        assert!(!planted!("the task that catches up panics"), "planted");
        self.progress.begin(Stage::Rows, self.env.now());
        let (us, last) = node
            .participant()
            .map_or((0, 0), |member| (member.node, member.standing().committed_index));
        events::needs_rows(us, last, needed.index);
        node.replica.watches.end(&self.refusal());
        let taken = self.rows(&node, needed).await;
        if let Some(import) = taken {
            self.progress.change(|now| now.stage = Stage::Opening);
            if let Err(error) = self.replace(node, import).await {
                return self.health.fail(error);
            }
        }
        self.progress.change(|now| now.stage = Stage::Entries);
        self.entries().await;
        if let Some(done) = self.progress.end()
            && !self.health.is_over()
        {
            let took = self.env.now().saturating_sub(done.began);
            events::has_rows(self.node().replica.newest(), done.taken_bytes, took);
        }
    }

    /// All rows, from whoever has them; `None` if they aren't needed after all.
    async fn rows(&self, node: &Arc<Node>, needed: EntryId) -> Option<Import> {
        let taker = Taker {
            env: &self.env,
            node,
            peers: &*self.peers,
            arrivals: &self.arrivals,
            progress: &self.progress,
            health: &self.health,
        };
        let mut last_trouble = None;
        // How often each said nothing.
        let mut silent = BTreeMap::new();
        loop {
            let mut sources = sources(node);
            sources.sort_by_key(|source| silent.contains_key(source));
            for source in sources {
                let times = silent.get(&source).copied().unwrap_or(0);
                match taker.take_from(source, needed, times).await {
                    Ok(taken) => return taken,
                    Err(error) => {
                        match error {
                            NodeError::Silent(_) => silent.insert(source, times + 1),
                            _ => silent.remove(&source),
                        };
                        self.progress.change(|now| {
                            (now.source, now.taken_bytes) = (None, 0);
                            now.trouble = Some(error.clone());
                        });
                        let text = error.to_string();
                        if last_trouble.as_ref() != Some(&text) {
                            events::cannot_take_rows(&error);
                            last_trouble = Some(text);
                        }
                    }
                }
            }
            race(self.health.until_over(), self.env.sleep(PAUSE)).await;
            if self.health.is_over() || node.is_over() {
                return None;
            }
        }
    }

    /// Puts the new state in the place of the old one.
    async fn replace(&self, node: Arc<Node>, mut import: Import) -> NodeResult<()> {
        let at = import.position();
        node.close().await?;
        let left = node.participant().and_then(|participant| participant.member.left());
        let lock = node.replica.directory.as_ref().map(|directory| directory.lock.clone());
        let (Some(left), Some(lock)) = (left, lock) else {
            return Err(NodeError::Internal("a member that was closed left nothing".into()));
        };
        let begin = left.terms.begins_behind();
        let given = if begin.index > at.index
            || left.terms.has(EntryId { index: at.index, term: at.term })
        {
            probe!("pipeline: entries came before the rows were put in place");
            let _ = import.abandon().await;
            0
        } else {
            import.promise(left.promised);
            import.put_in_place().await?;
            at.version
        };
        let links = (self.peers.clone(), self.progress.clone());
        let opened =
            Node::open_member_again(&self.env, (&self.dir, lock), self.config.clone(), links);
        let opened = opened.await?;
        if let (Some(before), Some(now)) = (node.participant(), opened.participant())
            && let Some(here) = before.here()
        {
            now.note_move(now.node, &here);
        }
        let newest = opened.replica.newest();
        // Where entries came after all it waits for them again: what it was told last of how many
        // are committed may be in no record.
        assert!(newest >= given, "a member with rows of version {given} has those of {newest}");
        *self.seat.write().unwrap_or_else(PoisonError::into_inner) = opened.endpoint();
        Ok(())
    }

    /// Waits until this member has applied the entries that whoever leads had when it was asked, or
    /// nearly all that there are; the others keep them for it meanwhile. Neither load nor a cluster
    /// without a leader keeps it waiting for ever.
    async fn entries(&self) {
        let node = self.node();
        let Some(participant) = node.participant() else { return };
        let mut known = node.leadership();
        let mut wait = Wait::new(&self.env);
        let mut has = 0;
        while !self.health.is_over() && !node.is_over() && participant.standing().behind.is_none() {
            let now = self.env.now();
            if known.is_ready || now.saturating_sub(wait.heard) > LONELY {
                return;
            }
            if wait.asked.is_none_or(|asked| now.saturating_sub(asked) >= LOOK) {
                wait.asked = Some(now);
                taking::hold(&node, &*self.peers, wait.question, node.replica.newest());
            }
            let news = race(
                self.arrivals.within(&self.env, LOOK),
                participant.until_leadership_other_than(known),
            );
            match race(self.health.until_over(), news).await {
                First::Left(()) => return,
                First::Right(First::Right(leadership)) => {
                    // What another one said, or this one before it led, is no word of whoever
                    // leads.
                    known = leadership;
                    wait = Wait { heard: wait.heard, ..Wait::new(&self.env) };
                }
                First::Right(First::Left(parcel)) => wait.hear(&self.env, parcel, known.leader),
            }
            let committed = participant.standing().committed_index;
            if committed > has {
                (has, wait.heard) = (committed, self.env.now());
            }
            if let Some((_, newest)) = wait.end {
                self.tell_lack(participant.node, newest.saturating_sub(committed));
            }
            if wait.is_over(committed) {
                let applied =
                    participant.until_applied(participant.member.view().committed().version);
                race(race(self.health.until_over(), node.replica.health.until_over()), applied)
                    .await;
                return;
            }
        }
    }

    /// So many entries are missing.
    fn tell_lack(&self, us: NodeId, entries: u64) {
        self.progress.change(|now| {
            if now.lacked <= CLOSE && entries > CLOSE {
                events::lacks_entries(us, entries);
            }
            (now.entries_behind, now.lacked) = (Some(entries), now.lacked.max(entries));
        });
    }

    /// What clients are told by a member that has no state to serve.
    fn refusal(&self) -> NodeError {
        let what = match self.progress.get() {
            Some(CatchingUp { stage: Stage::Entries, entries_behind: Some(entries), .. }) => {
                format!("this node is catching up, {entries} entries behind")
            }
            Some(CatchingUp { stage: Stage::Entries, entries_behind: None, .. }) => {
                "this node is catching up, and nobody has told yet how far the others are"
                    .to_owned()
            }
            now => {
                let stage = now.map_or("", |now| now.stage());
                format!("this node is too far behind and catches up ({stage})")
            }
        };
        NodeError::Behind(Some(format!("{what}: others of its cluster answer").into()))
    }
}

/// A task that panics has left its work undone: the member takes no part any more, and says so,
/// instead of being closed for ever and well.
struct Watched(Arc<Inner>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let detail = "the task that catches up with others panicked; this node takes no part";
            self.0.health.fail(NodeError::Internal(detail.into()));
        }
    }
}

/// What a member that waits for entries knows of how many there are.
struct Wait {
    /// By this number answers to its questions are known.
    question: u64,
    asked: Option<Duration>,
    /// How far whoever leads had the log when it answered first, and last.
    end: Option<(u64, u64)>,
    /// When there was last a sign of others.
    heard: Duration,
}

impl Wait {
    fn new(env: &Env) -> Self {
        Self { question: env.random_u64(), asked: None, end: None, heard: env.now() }
    }

    /// Somebody answers, maybe. Those that follow may lack as much, and not know it: whoever leads
    /// has what was committed.
    fn hear(&mut self, env: &Env, parcel: Option<Parcel>, leader: Option<NodeId>) {
        let is_answer = |it: &Parcel| it.transfer == self.question && it.kind == ParcelKind::Held;
        if let Some(held) = parcel.filter(|it| is_answer(it) && Some(it.from) == leader) {
            self.end = Some((self.end.map_or(held.index, |(first, _)| first), held.index));
            self.heard = env.now();
        }
    }

    /// Whether there are enough entries.
    fn is_over(&self, committed: u64) -> bool {
        self.end.is_some_and(|(first, newest)| committed >= first || committed + CLOSE >= newest)
    }
}

/// Whom to ask for rows: those that follow, then whoever leads, who has enough to do.
fn sources(node: &Node) -> Vec<NodeId> {
    let Some(membership) = node.membership() else { return Vec::new() };
    let leader = node.leadership().leader;
    let mut others: Vec<_> = membership.members.nodes.iter().map(|node| node.id).collect();
    others.retain(|id| *id != membership.node);
    others.sort_by_key(|id| Some(*id) == leader);
    others
}

/// A member, reached by function calls, whichever node it is at the moment. The member lives as
/// long as its endpoints.
#[derive(Clone)]
pub struct HostEndpoint {
    host: Arc<Host>,
}

impl HostEndpoint {
    /// The member.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn with<T>(&self, ask: impl FnOnce(&InProcess) -> T) -> T {
        ask(&self.host.inner.seat.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks for something about rows, which a member that catches up hasn't.
    fn ask<T>(&self, ask: impl FnOnce(&InProcess) -> Reply<T>) -> Reply<T> {
        if self.host.is_catching_up() {
            return Reply::ready(Err(self.host.inner.refusal().into()));
        }
        self.with(ask)
    }
}

impl Endpoint for HostEndpoint {
    fn env(&self) -> &Env {
        &self.host.inner.env
    }

    fn read_version(&self, request: ReadVersionRequest) -> Reply<ReadVersionReply> {
        self.ask(|node| node.read_version(request))
    }

    fn counted_read_version(
        &self,
        request: ReadVersionRequest,
    ) -> Reply<(ReadVersionReply, Option<Quorum>)> {
        self.ask(|node| node.counted_read_version(request))
    }

    fn standing(&self) -> Option<Standing> {
        self.with(Endpoint::standing)
    }

    fn get_newest(&self, lock_aware: bool, space: KeySpace, keys: &KeyList) -> Reply<Newest> {
        self.ask(|node| node.get_newest(lock_aware, space, keys))
    }

    fn get_many(
        &self,
        version: Version,
        space: KeySpace,
        keys: &KeyList,
    ) -> Reply<Vec<Option<Bytes>>> {
        self.ask(|node| node.get_many(version, space, keys))
    }

    fn get_key(&self, version: Version, space: KeySpace, selector: &KeySelector) -> Reply<Bytes> {
        self.ask(|node| node.get_key(version, space, selector))
    }

    fn get_range(&self, version: Version, space: KeySpace, read: &RangeRead) -> Reply<RangeResult> {
        self.ask(|node| node.get_range(version, space, read))
    }

    fn commit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.ask(|node| node.commit(request))
    }

    fn watch(&self, key: Bytes, value: Option<Bytes>, version: Version) -> Reply<Version> {
        self.ask(|node| node.watch(key, value, version))
    }

    fn range_size(&self, range: KeyRange) -> Reply<i64> {
        self.ask(|node| node.range_size(range))
    }

    fn range_footprint(&self, range: KeyRange) -> Reply<i64> {
        self.ask(|node| node.range_footprint(range))
    }

    fn split_points(&self, range: KeyRange, chunk: i64) -> Reply<Vec<Bytes>> {
        self.ask(|node| node.split_points(range, chunk))
    }

    fn addresses_for_key(&self, key: &[u8]) -> Reply<Vec<String>> {
        self.with(|node| node.addresses_for_key(key))
    }

    fn describe(&self) -> Description {
        self.with(Endpoint::describe)
    }

    fn located(&self) -> Option<Located> {
        self.with(Endpoint::located)
    }

    fn newest_here(&self) -> plinth_types::Result<Version> {
        if self.host.is_catching_up() {
            return Err(self.host.inner.refusal().into());
        }
        self.with(Endpoint::newest_here)
    }

    fn status_json(&self) -> Reply<String> {
        self.with(Endpoint::status_json)
    }

    fn pin_snapshot(&self) -> Reply<Pinned> {
        self.ask(Endpoint::pin_snapshot)
    }

    fn read_changes(&self, request: ChangesRequest) -> Reply<Changes> {
        self.ask(|node| node.read_changes(request))
    }

    fn refusal(&self) -> Option<Error> {
        if self.host.is_catching_up() {
            return Some(self.host.inner.refusal().into());
        }
        self.with(Endpoint::refusal)
    }

    fn is_over(&self) -> bool {
        self.host.inner.health.is_over()
    }

    fn may_lose_answers(&self) -> bool {
        !planted!("a member says that it loses no answers")
    }
}

#[cfg(test)]
mod tests {
    use super::{CLOSE, Wait};
    use plinth_env::simulated::Simulation;

    /// A log that grows as fast as a member follows would keep it away for ever, if only its newest
    /// end counted.
    #[test]
    fn enough_is_what_there_was_first_or_nearly_what_there_is() {
        let mut wait = Wait::new(&Simulation::new(1).process("node"));
        assert!(!wait.is_over(u64::MAX - CLOSE), "nobody has said anything");
        wait.end = Some((1_000, 5_000));
        assert!(!wait.is_over(999));
        assert!(wait.is_over(1_000));
        wait.end = Some((1_000, 1_010));
        assert!(!wait.is_over(1_010 - CLOSE - 1));
        assert!(wait.is_over(1_010 - CLOSE));
    }
}
