//! Rows for members that are too far behind for the log: what this node gives to others.
//!
//! ```text
//!   the one behind                                   this node: any that has applied what is asked for
//!   ask(transfer, 0 taken) ──────────────────────▶   pins a version
//!                          ◀──── chunk 0, 1, .. 84
//!   ask(transfer, 4 taken) ──────────────────────▶
//!                          ◀──── chunk 85, .. 88           never more than a window beyond what was taken
//!   ask again(4 taken)     ──────────────────────▶
//!                          ◀──── chunk 4                   and no other until it was taken
//!   hold(version)          ──────────────────────▶   keeps the log from there on, to a bound
//! ```
//!
//! The one that is behind asks, again and again; this node has no more to do than to answer the
//! newest question. So whatever is lost on the way costs a pause, and one that went away costs a
//! pinned version until it is noticed. One task gives chunks, by turns, so that several that ask
//! cost no more memory than one, and at a [pace](super::pace) while somebody commits.
//!
//! Rows that can be pinned reach as far as the window's beginning with the engine `ssd`, and that
//! moves with versions alone. So where nobody commits, whoever leads has the version move when its
//! rows don't reach far enough.
//!
//! Always: all chunks of a transfer are of one version, and of rows that are committed.

use super::pace::Pace;
use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use crate::replica::Replica;
use plinth_env::Signal;
use plinth_env::sync::race;
use plinth_replication::{Member, NodeId, Parcel, ParcelKind, Peers};
use plinth_storage::PinnedVersion;
use plinth_storage::chunk::MOST_CHUNK_BYTES;
use plinth_types::system::SYSTEM_END;
use plinth_types::{Bytes, Version, probe};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of chunks that may be under way to a node, about, and the least and the most chunks.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
pub(crate) const MOST_UNDER_WAY: u64 = 128;
const LEAST_UNDER_WAY: u64 = 8;
/// How many times what is kept for others anyhow may be kept for those.
pub(super) const JOINING_TIMES: u64 = 4;
/// How many nodes are given rows at a time.
const MOST: usize = 2;
/// Who has said nothing for so long wants nothing any more.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is looked who that is.
const PERIOD: Duration = Duration::from_millis(500);

/// How many chunks of this length may be under way to a node.
pub(crate) fn window(chunk_bytes: u64) -> u64 {
    (WINDOW_BYTES / chunk_bytes.max(1)).clamp(LEAST_UNDER_WAY, MOST_UNDER_WAY)
}

/// What other nodes have asked for.
#[derive(Default)]
pub(crate) struct Giving {
    /// The newest of each kind of question: only that counts.
    asked: Mutex<BTreeMap<(NodeId, bool), Parcel>>,
    /// From which version on a node needs entries, and when it said so.
    holds: Mutex<BTreeMap<NodeId, (Version, Duration)>>,
    wake: Signal,
}

/// A node that is given rows.
struct Transfer {
    id: u64,
    pinned: Box<dyn PinnedVersion>,
    /// Bytes of entries that this node had written by then.
    written: u64,
    /// The chunk that comes next, and where it begins.
    next: u64,
    key: Bytes,
    /// Chunks before this one may be sent.
    allowed: u64,
    chunk_bytes: usize,
    about: u64,
    asked_at: Duration,
}

impl Giving {
    /// A parcel of another node, for this one that has rows. Never waits.
    pub fn receive(&self, parcel: Parcel, now: Duration) {
        let holds = parcel.kind == ParcelKind::Hold;
        if holds {
            let version = Version::try_from(parcel.number).unwrap_or(Version::MAX);
            lock(&self.holds).insert(parcel.from, (version, now));
        }
        lock(&self.asked).insert((parcel.from, holds), parcel);
        self.wake.notify();
    }

    /// The oldest version behind which a node needs entries.
    pub fn held(&self, now: Duration) -> Option<Version> {
        let mut holds = lock(&self.holds);
        holds.retain(|_, (_, said)| now.saturating_sub(*said) < SILENCE);
        holds.values().map(|(version, _)| *version).min()
    }

    fn take(&self) -> Vec<Parcel> {
        std::mem::take(&mut *lock(&self.asked)).into_values().collect()
    }
}

/// Who gives rows.
pub(super) struct Giver {
    /// Has the version move, if this node leads and nobody commits.
    pub move_version: Box<dyn Fn() + Send + Sync>,
    pub replica: Arc<Replica>,
    pub member: Arc<Member>,
    pub peers: Arc<dyn Peers>,
    pub giving: Arc<Giving>,
}

/// Gives rows to whoever asks, until the node closes or fails.
pub(super) async fn run(this: Giver) {
    let health = &this.replica.health;
    let mut transfers = BTreeMap::new();
    let mut pace = Pace::new(this.replica.config.rows.bytes_per_second);
    // Who was given a chunk last.
    let mut last = 0;
    while !health.is_over() {
        let is_due = transfers.values().any(Transfer::is_due);
        let pause = if is_due { wait(&this, &transfers, &mut pace) } else { PERIOD };
        if !pause.is_zero() {
            let news = race(this.giving.wake.wait(), this.replica.env.sleep(pause));
            race(health.until_over(), news).await;
        }
        let had_none = transfers.is_empty();
        for parcel in this.giving.take() {
            answer(&this, &mut transfers, parcel).await;
        }
        if had_none && !transfers.is_empty() {
            pace.begin();
        }
        let now = this.replica.env.now();
        transfers.retain(|_, transfer| now.saturating_sub(transfer.asked_at) < SILENCE);
        let mut due: Vec<NodeId> =
            transfers.iter().filter(|(_, one)| one.is_due()).map(|(node, _)| *node).collect();
        due.sort_by_key(|node| (*node <= last, *node));
        for node in due {
            if !wait(&this, &transfers, &mut pace).is_zero() {
                break;
            }
            let Some(transfer) = transfers.get_mut(&node) else { continue };
            last = node;
            match transfer.give(&this, node).await {
                Ok(bytes) => pace.spend(bytes, this.replica.env.now()),
                Err(error) => {
                    probe!("pipeline: rows can't be given any more");
                    let id = transfer.id;
                    transfers.remove(&node);
                    refuse(&this, node, id, &error);
                }
            }
        }
    }
}

/// How long it is until a chunk may go. Where much was written since rows were begun with, what is
/// kept behind them is nearly all that is kept: then they go at once.
fn wait(this: &Giver, transfers: &BTreeMap<NodeId, Transfer>, pace: &mut Pace) -> Duration {
    let (written, now) = (this.replica.counters.bytes_written.get(), this.replica.env.now());
    pace.look(written, now);
    let most = this.replica.config.follower_log_bytes.saturating_mul(JOINING_TIMES) / 2;
    let is_pressed = |one: &Transfer| written.saturating_sub(one.written) > most;
    if transfers.values().any(is_pressed) { Duration::ZERO } else { pace.wait(now) }
}

async fn answer(this: &Giver, transfers: &mut BTreeMap<NodeId, Transfer>, parcel: Parcel) {
    let (node, us) = (parcel.from, this.member.id());
    match parcel.kind {
        ParcelKind::Hold => {
            let standing = this.member.standing();
            if standing.behind.is_some() {
                // It lacks more than it knows of.
                return;
            }
            // Whoever begins to lead has all that was committed, and doesn't know yet how much that
            // is.
            let begins = standing.leader == Some(us) && standing.leads.is_none();
            let held = Parcel {
                index: if begins { standing.last_index } else { standing.committed_index },
                ..Parcel::bare(ParcelKind::Held, us, node, parcel.transfer)
            };
            this.peers.send_parcel(held);
        }
        ParcelKind::Ask | ParcelKind::AskAgain => {
            let known = transfers.get_mut(&node).filter(|transfer| transfer.id == parcel.transfer);
            let asked = match known {
                Some(transfer) => {
                    transfer.ask(&parcel, this.replica.env.now());
                    Ok(())
                }
                None => begin(this, transfers, &parcel).await,
            };
            if let Err(error) = asked {
                refuse(this, node, parcel.transfer, &error);
            }
        }
        // Those are for a node that takes rows.
        ParcelKind::Chunk | ParcelKind::Refuse | ParcelKind::Held => {}
    }
}

async fn begin(
    this: &Giver,
    transfers: &mut BTreeMap<NodeId, Transfer>,
    parcel: &Parcel,
) -> NodeResult<()> {
    let refuse = |what: String| Err(NodeError::Behind(Some(what.into())));
    let us = this.member.id();
    if parcel.number != 0 {
        return refuse(format!("node {us} doesn't know that transfer any more"));
    }
    if this.member.standing().behind.is_some() {
        return refuse(format!("node {us} needs rows itself"));
    }
    transfers.remove(&parcel.from);
    if transfers.len() >= MOST {
        return refuse(format!("node {us} gives rows to {MOST} others"));
    }
    let pinning = this.replica.writer().pin();
    let pinned = pinning.await?;
    let at = pinned.position();
    if at.index < parcel.index {
        (this.move_version)();
        return refuse(format!(
            "node {us} has rows up to entry {}, those up to {} are needed",
            at.index, parcel.index
        ));
    }
    let about = pinned.range_size(&[], SYSTEM_END);
    let written = this.replica.counters.bytes_written.get();
    crate::events::gives_rows(parcel.from, at.version, about);
    let mut transfer = Transfer {
        id: parcel.transfer,
        pinned,
        written,
        next: 0,
        key: Bytes::new(),
        allowed: 0,
        chunk_bytes: 0,
        about,
        asked_at: Duration::ZERO,
    };
    transfer.ask(parcel, this.replica.env.now());
    transfers.insert(parcel.from, transfer);
    assert!(transfers.len() <= MOST, "rows are given to {} nodes", transfers.len());
    Ok(())
}

fn refuse(this: &Giver, node: NodeId, transfer: u64, error: &NodeError) {
    let text = error.summary();
    let text = text.as_bytes();
    let payload = Bytes::copy_from_slice(&text[..text.len().min(1000)]);
    let bare = Parcel::bare(ParcelKind::Refuse, this.member.id(), node, transfer);
    this.peers.send_parcel(Parcel { payload, ..bare });
}

impl Transfer {
    fn ask(&mut self, parcel: &Parcel, now: Duration) {
        self.asked_at = now;
        self.chunk_bytes =
            usize::try_from(parcel.about).unwrap_or(usize::MAX).clamp(1, MOST_CHUNK_BYTES);
        let is_again = parcel.kind == ParcelKind::AskAgain;
        if is_again || parcel.number > self.next {
            (self.next, self.key) = (parcel.number, parcel.key.clone());
        }
        // What is asked for again may be under way still, and all that was sent behind it.
        self.allowed = match is_again {
            true => parcel.number.saturating_add(1),
            false => self.allowed.max(parcel.number.saturating_add(window(parcel.about))),
        };
    }

    /// Whether a chunk may be sent, and is there.
    fn is_due(&self) -> bool {
        self.next < self.allowed && *self.key < *SYSTEM_END
    }

    /// Sends the next chunk: how many bytes of rows it has.
    async fn give(&mut self, this: &Giver, node: NodeId) -> NodeResult<usize> {
        let chunk = self.pinned.export(&self.key, SYSTEM_END, self.chunk_bytes).await?;
        assert!(chunk.begin == self.key && chunk.end > self.key, "a chunk that leads nowhere");
        let payload = Bytes::from(chunk.encode());
        let (number, about, bytes) = (self.next, self.about, chunk.rows.data_len());
        (self.next, self.key) = (self.next + 1, chunk.end);
        let bare = Parcel::bare(ParcelKind::Chunk, this.member.id(), node, self.id);
        this.replica.counters.rows_given_bytes.add(payload.len() as u64);
        this.peers.send_parcel(Parcel { number, about, payload, ..bare });
        Ok(bytes)
    }
}
