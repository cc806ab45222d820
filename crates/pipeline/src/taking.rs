//! Rows from another member, for one that is too far behind for the log: one transfer, from the
//! first chunk to the last.
//!
//! This side asks, and asks again what doesn't come: how many chunks it has taken, and from which
//! key on it wants more. Chunks that have overtaken others wait for those; what arrives otherwise
//! than asked for is as good as lost. Chunks go to the disk one by one, so that no more of them are
//! in memory than may be under way.
//!
//! Always: what was taken is of one version, without a gap, or it is given up.

use crate::batch_lock::lock;
use crate::cluster::{MOST_UNDER_WAY, Parcel, Peers, Progress, RowsTaken, WINDOW_BYTES, window};
use crate::events;
use crate::failure::{NodeError, NodeResult};
use crate::generation::Import;
use crate::health::Health;
use crate::node::Node;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal};
use plinth_replication::{EntryId, NodeId, ParcelKind};
use plinth_storage::Chunk;
use plinth_types::system::SYSTEM_END;
use plinth_types::{Bytes, LogPosition, Version, probe};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

/// What doesn't come within this time is asked for again: at first, and at most. It is twice as
/// long as the last chunk took to come, since one that is on a slow way would only be sent twice;
/// before the first it is twice as long each time that this node has said nothing before.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);
/// Asked for so many times in vain, and somebody else is asked.
const TIMES: u32 = 6;
/// How often others are told from where on entries will be needed.
const HOLD: Duration = Duration::from_millis(500);
/// Whoever sends is asked for more when so many chunks were taken, fewer than may be under way by
/// anybody's reckoning; and behind each chunk that is taken after so long a time.
const SOME: u64 = 4;
const ASK: Duration = Duration::from_secs(1);
/// How often it is told how far it is.
const NEWS: Duration = Duration::from_secs(10);

/// Parcels that have arrived for a node that takes rows.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: Mutex<VecDeque<Parcel>>,
    wake: Signal,
}

impl Arrivals {
    /// Leaves a parcel, if those that wait leave room: what is lost is asked for again.
    pub fn push(&self, parcel: Parcel) {
        let mut waiting = lock(&self.waiting);
        let bytes: usize = waiting.iter().map(|one| one.payload.len()).sum();
        if waiting.len() < 2 * MOST_UNDER_WAY as usize && bytes < 2 * WINDOW_BYTES as usize {
            waiting.push_back(parcel);
            self.wake.notify();
        }
    }

    fn take(&self) -> Option<Parcel> {
        lock(&self.waiting).pop_front()
    }

    /// Whatever is left of an earlier transfer goes.
    fn clear(&self) {
        lock(&self.waiting).clear();
    }

    async fn next(&self) -> Parcel {
        loop {
            if let Some(parcel) = self.take() {
                return parcel;
            }
            self.wake.wait().await;
        }
    }

    /// The next parcel, waited for no longer than this.
    pub async fn within(&self, env: &Env, limit: Duration) -> Option<Parcel> {
        match race(self.next(), env.sleep(limit)).await {
            First::Left(parcel) => Some(parcel),
            First::Right(()) => None,
        }
    }
}

impl Transfer {
    /// Whether a chunk is one of those that come next, and there is room for it, as there always is
    /// for the very next one.
    fn may_use(&self, chunk: &Parcel) -> bool {
        let waiting: usize = self.ahead.values().map(|one| one.payload.len()).sum();
        let has_room = chunk.number == self.taken || waiting < 2 * WINDOW_BYTES as usize;
        has_room && (self.taken..self.taken.saturating_add(self.window)).contains(&chunk.number)
    }
}

/// What a node that takes rows has at hand.
pub(crate) struct Taker<'a> {
    pub env: &'a Env,
    pub node: &'a Node,
    pub peers: &'a dyn Peers,
    pub arrivals: &'a Arrivals,
    pub progress: &'a Progress,
    pub health: &'a Health,
}

/// How far a transfer has come.
struct Transfer {
    id: u64,
    source: NodeId,
    /// Rows are of no use before this entry: the log of whoever leads begins behind it.
    needed: u64,
    taken: u64,
    /// How many chunks may be under way.
    window: u64,
    asked: Asked,
    /// Chunks that have overtaken others, by number: no more than may be under way.
    ahead: BTreeMap<u64, Parcel>,
    key: Bytes,
    bytes: u64,
    import: Option<Import>,
    said: Said,
    wait: Wait,
}

/// When something was said last: how far it is, in the log; from where on entries will be needed,
/// to others.
struct Said {
    progress: Duration,
    hold: Duration,
}

/// What was asked for last.
struct Asked {
    kind: ParcelKind,
    /// How many chunks had been taken by then.
    taken: u64,
    at: Duration,
}

impl Asked {
    /// Whether it is time to ask for more, before whoever sends has to wait for that: some were
    /// taken, or the one that was asked for alone; or nothing was said for long.
    fn is_stale(&self, taken: u64, now: Duration) -> bool {
        self.kind == ParcelKind::AskAgain
            || taken - self.taken >= SOME
            || now.saturating_sub(self.at) >= ASK
    }
}

/// How long is waited for the next chunk.
struct Wait {
    /// When one came last, or the first was asked for.
    heard: Duration,
    /// Since when it is waited.
    since: Duration,
    patience: Duration,
    /// How often it was too long, one behind the other.
    silent: u32,
}

impl Wait {
    fn new(now: Duration, times: u32) -> Self {
        let patience = PATIENCE.saturating_mul(1 << times.min(8)).min(LONGEST_PATIENCE);
        Self { heard: now, since: now, patience, silent: 0 }
    }

    /// A chunk has come, whether or not it is of use: whoever sends is there.
    fn hear(&mut self, now: Duration) {
        let took = now.saturating_sub(self.heard);
        let patience = (2 * took).clamp(PATIENCE, LONGEST_PATIENCE);
        *self = Self { heard: now, since: now, patience, silent: 0 };
    }

    /// What is left of it: no more than the shortest, since something else may end it.
    fn left(&self, now: Duration) -> Duration {
        (self.since + self.patience).saturating_sub(now).min(PATIENCE)
    }

    fn is_over(&self, now: Duration) -> bool {
        now >= self.since + self.patience
    }

    /// It was too long. Whether it is worth asking again.
    fn miss(&mut self, now: Duration) -> bool {
        self.silent += 1;
        self.since = now;
        self.silent <= TIMES
    }
}

impl Taker<'_> {
    /// Takes all rows from this node, which was silent so many times. `None` if they are not needed
    /// any more: entries came after all, or the node closes.
    ///
    /// # Errors
    /// Why that node gives none, or they couldn't be kept. Nothing is left of them then.
    pub async fn take_from(
        &self,
        source: NodeId,
        needed: EntryId,
        times: u32,
    ) -> NodeResult<Option<Import>> {
        self.arrivals.clear();
        let (now, began) = (self.env.now(), self.env.wall_clock());
        let mut transfer = Transfer {
            id: self.env.random_u64(),
            source,
            needed: needed.index,
            taken: 0,
            window: window(self.node.replica.config.rows.chunk_bytes),
            asked: Asked { kind: ParcelKind::Ask, taken: 0, at: now },
            ahead: BTreeMap::new(),
            key: Bytes::new(),
            bytes: 0,
            import: None,
            said: Said { progress: now, hold: now },
            wait: Wait::new(now, times),
        };
        let taken = self.take_all(&mut transfer).await;
        match (taken, transfer.import) {
            (Ok(true), import) => {
                let (bytes, took) = (transfer.bytes, self.env.now().saturating_sub(now));
                self.progress.took_rows(RowsTaken { source, bytes, began, took });
                Ok(import)
            }
            (Ok(false), None) => Ok(None),
            (Err(error), None) => Err(error),
            (given_up, Some(import)) => {
                probe!("pipeline: rows taken in part are given up");
                // What can't be removed now is removed when the next import begins.
                let _ = import.abandon().await;
                given_up.map(|_| None)
            }
        }
    }

    /// Whether all rows were taken.
    async fn take_all(&self, transfer: &mut Transfer) -> NodeResult<bool> {
        self.ask(transfer, ParcelKind::Ask);
        while *transfer.key < *SYSTEM_END {
            let left = transfer.wait.left(self.env.now());
            let parcel = self.arrivals.within(self.env, left).await;
            if self.health.is_over() || self.node.is_over() || self.is_needless() {
                return Ok(false);
            }
            self.hold(transfer);
            let now = self.env.now();
            match parcel
                .filter(|parcel| (parcel.transfer, parcel.from) == (transfer.id, transfer.source))
            {
                // What others say is no news of this one.
                None if !transfer.wait.is_over(now) => {}
                None if transfer.wait.miss(now) => self.ask(transfer, ParcelKind::AskAgain),
                None => {
                    probe!("pipeline: who sent rows sends no more");
                    let detail = format!("node {} sends no more rows", transfer.source);
                    return Err(NodeError::Silent(detail.into()));
                }
                Some(parcel) if parcel.kind == ParcelKind::Chunk => {
                    transfer.wait.hear(now);
                    if transfer.may_use(&parcel) {
                        transfer.ahead.insert(parcel.number, parcel);
                    }
                    assert!(
                        transfer.ahead.len() as u64 <= transfer.window,
                        "chunks nobody asked for"
                    );
                    while let Some(next) = transfer.ahead.remove(&transfer.taken) {
                        self.keep(transfer, &next).await?;
                        // The disk's time is not theirs.
                        let now = self.env.now();
                        (transfer.wait.heard, transfer.wait.since) = (now, now);
                        if transfer.asked.is_stale(transfer.taken, now) {
                            self.ask(transfer, ParcelKind::Ask);
                        }
                    }
                }
                Some(parcel) if parcel.kind == ParcelKind::Refuse => {
                    let text = String::from_utf8_lossy(&parcel.payload).into_owned();
                    return Err(NodeError::Behind(Some(text.into())));
                }
                // Those are no answers.
                Some(_) => {}
            }
        }
        Ok(true)
    }

    /// Whether entries have come after all.
    fn is_needless(&self) -> bool {
        self.node.participant().is_none_or(|participant| participant.standing().behind.is_none())
    }

    /// Keeps a chunk.
    async fn keep(&self, transfer: &mut Transfer, parcel: &Parcel) -> NodeResult<()> {
        let chunk = Chunk::decode(&parcel.payload)?;
        if chunk.begin != transfer.key {
            let detail = "a chunk that doesn't begin where the one before it ended";
            return Err(NodeError::Damaged(detail.into()));
        }
        let import = match &mut transfer.import {
            Some(import) => import,
            None if chunk.at.index < transfer.needed => {
                let (has, needs) = (chunk.at.index, transfer.needed);
                let detail = format!("rows up to entry {has}, those up to {needs} are needed");
                return Err(NodeError::Behind(Some(detail.into())));
            }
            none => {
                let begun = Import::begin_beside(self.node, chunk.at).await?;
                self.progress.change(|now| {
                    (now.source, now.version) = (Some(transfer.source), chunk.at.version);
                    (now.taken_bytes, now.about_bytes, now.trouble) = (0, parcel.about, None);
                });
                transfer.said.hold = Duration::ZERO;
                none.insert(begun)
            }
        };
        import.take(&chunk).await?;
        assert_eq!(parcel.number, transfer.taken, "chunks are kept one behind the other");
        transfer.taken += 1;
        transfer.bytes += chunk.rows.data_len() as u64;
        transfer.key = chunk.end;
        self.progress.change(|now| now.taken_bytes = transfer.bytes);
        let now = self.env.now();
        if now.saturating_sub(transfer.said.progress) >= NEWS {
            transfer.said.progress = now;
            events::takes_rows(transfer.source, chunk.at.version, transfer.bytes, parcel.about);
        }
        Ok(())
    }

    fn ask(&self, transfer: &mut Transfer, kind: ParcelKind) {
        transfer.asked = Asked { kind, taken: transfer.taken, at: self.env.now() };
        let Some(membership) = self.node.membership() else { return };
        let bare = Parcel::bare(kind, membership.node, transfer.source, transfer.id);
        self.peers.send_parcel(Parcel {
            number: transfer.taken,
            about: self.node.replica.config.rows.chunk_bytes,
            index: transfer.needed,
            key: transfer.key.clone(),
            ..bare
        });
    }

    /// Has others keep the entries behind the rows, now and then.
    fn hold(&self, transfer: &mut Transfer) {
        let now = self.env.now();
        if let Some(LogPosition { version, .. }) = transfer.import.as_ref().map(Import::position)
            && now.saturating_sub(transfer.said.hold) >= HOLD
        {
            transfer.said.hold = now;
            hold(self.node, self.peers, transfer.id, version);
        }
    }
}

/// Has all others keep the entries behind this version for a while, and say how far they are.
pub(crate) fn hold(node: &Node, peers: &dyn Peers, transfer: u64, version: Version) {
    let Some(membership) = node.membership() else { return };
    let nodes = membership.members.nodes.iter().map(|node| node.id);
    for to in nodes.filter(|id| *id != membership.node) {
        let number = u64::try_from(version).unwrap_or(0);
        peers.send_parcel(Parcel {
            number,
            ..Parcel::bare(ParcelKind::Hold, membership.node, to, transfer)
        });
    }
}
