//! The task of a member: it feeds the core with events, and does the core's work on log and
//! network.
//!
//! One event at a time; behind each all work that came of it, in the order that [`Work`] has.
//! Writes happen here; syncs in tasks beside it, which put their end into the queue as an event, so
//! that many appends are in flight. Bodies of entries never pass through the core: of one that this
//! node proposed the event has it, of one that came from the leader the frame, and what is sent is
//! read from the log again, the newest from memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plinth_env::Env;
use plinth_env::reply::Promise;
use plinth_env::sync::race;
use plinth_log::{
    Entry, EntryHead, EntryKind, EntryReader, LogError, LogResult, Position, ReplicaLog, Syncer,
    Vote,
};
use plinth_types::{Bytes, Version, planted, probe};

use crate::NodeId;
use crate::core::{Core, Follower, Work};
use crate::failure::{ReplicationError, ReplicationResult};
use crate::frame::checksum;
use crate::inbox::{Event, Inbox, Left, Progress};
use crate::members::Members;
use crate::message::{Message, MessageKind};
use crate::peers::{Frame, Peers, Records};
use crate::proofs::{Proofs, not_leading};
use crate::stand::{Role, Stand};
use crate::terms::EntryId;

/// How often the core is told that time passes.
const TICK: Duration = Duration::from_millis(10);
/// A leader that has waited for its disk for so long lets another one lead: nothing is committed
/// meanwhile.
const STALLED: Duration = Duration::from_millis(500);
/// How soon a leader that gave way for that does so again.
const NOT_AGAIN: Duration = Duration::from_secs(15);
/// A node that was heard of within this time is there.
const ACTIVE: Duration = Duration::from_millis(700);
/// How often a write is tried again that found the disk full.
const ROOM: Duration = Duration::from_millis(100);
/// How many syncs may be in flight.
pub(crate) const SYNCS: usize = 2;
/// Bytes of bodies that one frame has, about: one entry may be longer.
const FRAME_BYTES: usize = 1 << 20;

/// An entry that this node proposes.
struct Proposal {
    id: EntryId,
    kind: EntryKind,
    version: Version,
    body: Bytes,
    answer: Promise<Position, LogError>,
}

/// Where the bodies are of what the core wants to be appended.
#[derive(Default)]
struct Bodies {
    proposal: Option<Proposal>,
    received: VecDeque<Entry>,
    /// Who has proposed what is written by now.
    written: Vec<(Promise<Position, LogError>, LogResult<Position>)>,
}

impl Bodies {
    /// Tells whoever has proposed something that it is written.
    fn answer(&mut self) {
        self.written.drain(..).for_each(|(answer, written)| answer.send(written));
    }
}

pub(crate) struct Driver {
    env: Env,
    core: Core,
    log: ReplicaLog,
    peers: Arc<dyn Peers>,
    records: Arc<dyn Records>,
    inbox: Arc<Inbox>,
    /// For each node that entries are sent to, where they are read.
    readers: BTreeMap<NodeId, EntryReader>,
    /// Where it publishes how it stands.
    proofs: Arc<Proofs>,
    stand: Stand,
    syncing: Syncing,
    leading: Leading,
    /// The disk is full, and entries wait for room.
    full: Option<LogError>,
}

/// What is to be synced.
#[derive(Default)]
struct Syncing {
    /// Since when the disk has synced nothing of what it is to sync, and the last of that.
    stalled: Option<(Duration, u64)>,
    /// The newest work that was to be synced.
    ticket: u64,
    /// When a leader began last to give way because of that.
    gave_way: Option<Duration>,
}

impl Syncing {
    /// Whether a leader whose disk stalls may give way now: for a while, since who is to lead may
    /// lack entries, and then not for long, since disks may be slow by turns.
    fn gives_way(&mut self, now: Duration) -> bool {
        match self.gave_way.filter(|then| now < *then + NOT_AGAIN) {
            Some(then) => now < then + STALLED,
            None => {
                self.gave_way = Some(now);
                true
            }
        }
    }

    /// This is to be synced.
    fn want(&mut self, ticket: u64, now: Duration) {
        let since = self.stalled.map_or(now, |(since, _)| since);
        (self.stalled, self.ticket) = (Some((since, ticket)), ticket);
    }

    /// This has been.
    fn done(&mut self, ticket: u64, now: Duration) {
        self.stalled = self.stalled.filter(|(_, last)| ticket < *last).map(|(_, last)| (now, last));
    }

    /// Whether the disk has synced nothing for too long.
    fn is_stalled(&self, now: Duration) -> bool {
        self.stalled.is_some_and(|(since, _)| now > since + STALLED)
    }
}

/// What is known while this node leads.
#[derive(Default)]
struct Leading {
    /// When each node was heard of last.
    heard: BTreeMap<NodeId, Duration>,
    /// The first index of the term in which this node leads.
    begun: Option<EntryId>,
}

impl Driver {
    pub(crate) fn new(
        env: &Env,
        core: Core,
        log: ReplicaLog,
        (peers, records): (Arc<dyn Peers>, Arc<dyn Records>),
        (inbox, proofs): (Arc<Inbox>, Arc<Proofs>),
    ) -> Self {
        let (env, readers, stand) = (env.clone(), BTreeMap::new(), core.stand());
        Self {
            env,
            core,
            log,
            peers,
            records,
            inbox,
            readers,
            proofs,
            stand,
            syncing: Syncing::default(),
            leading: Leading::default(),
            full: None,
        }
    }

    pub(crate) async fn run(mut self) {
        self.tell();
        self.tell_members();
        self.recall_last().await;
        let mut next_tick = self.env.now() + TICK;
        loop {
            let mut bodies = Bodies::default();
            match self.inbox.take() {
                Some(Event::Close(answer)) => return self.close(answer).await,
                Some(event) => self.handle(event, &mut bodies).await,
                None => {
                    race(self.inbox.wake.wait(), self.env.sleep_until(next_tick)).await;
                }
            }
            if self.env.now() >= next_tick {
                next_tick = self.env.now() + TICK;
                self.core.forget(self.log.first_index() - 1);
                self.core.look_at_size(self.log.view().bytes());
                self.core.tick();
                self.publish();
                self.proofs.tick();
                self.give_way();
                let followers = self.followers();
                let progress = Progress {
                    lags: self.core.lags(&followers).into(),
                    followers: followers.into(),
                    committed_index: self.core.committed(),
                    last_index: self.core.terms().last().index,
                };
                self.inbox.with(|told| told.progress = progress);
            }
            let worked = self.work(&mut bodies).await;
            bodies.answer();
            if let Err(error) = worked {
                if let Some(answer) = self.inbox.take_close() {
                    return self.close(answer).await;
                }
                probe!("replication: a member fails");
                self.fail(bodies, &error);
                return;
            }
        }
    }

    /// Has another node lead whose disk is faster, if this one's stalls. Where all are as slow
    /// commits go on as fast as that, and an election would only keep them waiting.
    fn give_way(&mut self) {
        let now = self.env.now();
        if !self.syncing.is_stalled(now) {
            return;
        }
        // Others have synced an entry of this term: none is thrown away unseen.
        let has_begun = self.core.stand().committed.is_some();
        if has_begun && self.core.is_behind_another_disk() && self.syncing.gives_way(now) {
            probe!("replication: a leader whose disk stalls gives way");
            self.core.hand_over();
        }
    }

    /// The other nodes. `raft` forgets of whom it has heard whenever it looks whether they are a
    /// majority.
    fn followers(&mut self) -> Vec<Follower> {
        let (now, mut followers) = (self.env.now(), self.core.followers());
        for follower in &mut followers {
            // Of one that has had no time to answer it isn't known that it is gone.
            let heard = self.leading.heard.entry(follower.node).or_insert(now);
            if follower.is_active {
                *heard = now;
            }
            follower.is_active = now < *heard + ACTIVE;
        }
        self.leading
            .heard
            .retain(|node, _| followers.iter().any(|follower| follower.node == *node));
        followers
    }

    async fn close(self, answer: Promise<(), LogError>) {
        let cause = LogError::Closed("this node takes no more part in its cluster".into());
        let left = Left { promised: self.log.promised(), terms: self.core.terms().clone() };
        self.inbox.with(|told| told.end.left = Some(left));
        self.inbox.end(&cause);
        self.proofs.end(&cause);
        drop(self.readers);
        answer.send(self.log.close().await);
    }

    fn fail(self, bodies: Bodies, cause: &LogError) {
        if let Some(proposal) = bodies.proposal {
            proposal.answer.send(Err(cause.clone()));
        }
        self.inbox.end(cause);
        self.proofs.end(cause);
    }

    async fn handle(&mut self, event: Event, bodies: &mut Bodies) {
        match event {
            Event::Frame(frame) => {
                // A frame that no honest node sends is as good as lost.
                if frame.is_whole() && self.take(&frame).await.is_ok() {
                    bodies.received = frame.entries.into();
                } else {
                    probe!("replication: a frame is refused");
                }
            }
            Event::Append { term, kind, version, body, answer } => {
                match self.propose(term, kind, version, &body) {
                    Ok(Some((id, version))) => {
                        bodies.proposal = Some(Proposal { id, kind, version, body, answer });
                    }
                    Ok(None) => answer.send(Ok(self.log.last_position())),
                    Err(error) => answer.send(Err(error)),
                }
            }
            Event::Mark(answer) => {
                let marked = self.log.begin_mark().await;
                if let Ok(Some(position)) = marked {
                    // Whatever was to be synced has been: the same ticket again.
                    self.inbox.want_sync(self.syncing.ticket, position);
                }
                answer.send(marked.map(drop));
            }
            Event::Synced(ticket) => {
                self.syncing.done(ticket, self.env.now());
                let messages = self.core.persisted(ticket);
                self.send(messages).await;
            }
            Event::Campaign => self.core.campaign(),
            Event::HandOver => self.core.hand_over(),
            Event::Close(answer) => answer.send(Ok(())),
        }
    }

    /// Gives the core a message, with the checksums of those entries that it is to compare.
    async fn take(&mut self, frame: &Frame) -> ReplicationResult<()> {
        let Frame { message, entries, before } = frame;
        let sum = |entry: EntryId| {
            let Some(at) = entry.index.checked_sub(message.index + 1) else { return *before };
            let entry = entries.get(usize::try_from(at).ok()?)?;
            Some(sum_of(entry))
        };
        let shared = self.core.shared(message, self.log.first_index()).into_iter();
        let theirs: Vec<_> = shared.filter_map(|entry| Some((entry, sum(entry)?))).collect();
        let unknown = |(entry, _): &&(EntryId, u32)| self.core.sum_of(*entry).is_none();
        if let Some((first, _)) = theirs.iter().find(unknown)
            && let Some((last, _)) = theirs.iter().rfind(unknown)
        {
            self.recall(first.index, last.index).await;
        }
        self.core.receive_checked(message, &theirs)
    }

    /// Has the core know the checksums of these entries, as far as they can be read.
    async fn recall(&mut self, from: u64, upto: u64) {
        probe!("replication: checksums of entries are read from the disk");
        // The log may have let go of some meanwhile.
        let from = from.max(self.log.first_index());
        let (mut reader, mut sums) = (self.log.entries(from), Vec::new());
        while reader.next_index() <= upto {
            let Ok(Some(entry)) = reader.next().await else { break };
            sums.push(sum_of(&entry));
        }
        self.core.recall_sums(from, &sums);
    }

    /// The last entry's checksum, before anything is waited for: in the first append of a leader,
    /// and in the first that a follower compares, it is the one that is asked for. A log finds an
    /// entry by a way through its file.
    async fn recall_last(&mut self) {
        let EntryId { index, .. } = self.core.terms().last();
        if index >= self.log.first_index() {
            self.recall(index, index).await;
        }
    }

    /// Whether an entry's checksum has to be read from the log, and can be.
    fn is_to_be_recalled(&self, entry: EntryId) -> bool {
        let is_here = entry.index >= self.log.first_index() && self.core.terms().has(entry);
        is_here && self.core.sum_of(entry).is_none()
    }

    /// The checksum of the entry before those of an append that has none, if that is here.
    async fn sum_before(&mut self, message: &Message) -> Option<u32> {
        let before = message.before();
        if self.is_to_be_recalled(before) {
            self.recall(before.index, before.index).await;
        }
        self.core.sum_of(before)
    }

    /// Proposes an entry; `None` if it is a lease that reaches no further than the last.
    fn propose(
        &mut self,
        term: u64,
        kind: EntryKind,
        version: Option<Version>,
        body: &Bytes,
    ) -> LogResult<Option<(EntryId, Version)>> {
        if self.core.role() != Role::Leader || self.core.term() != term {
            return Err(not_leading());
        }
        let (last, lease) = (self.log.last_version(), self.log.last_lease());
        if let Some(version) = version
            && (version <= last || version > lease)
        {
            let detail = format!(
                "entry at version {version}: the last is at {last}, the lease ends at {lease}"
            );
            return Err(LogError::Version(detail));
        }
        if kind == EntryKind::Lease
            && body.first_chunk().is_none_or(|upto| Version::from_le_bytes(*upto) <= lease)
        {
            return Ok(None);
        }
        let id = match kind {
            EntryKind::Members => {
                // What it is among in a batch may be sent again.
                let refused = |error: ReplicationError| LogError::Behind(error.to_string());
                self.core.propose_members(&Members::of_entry(body)?).map_err(refused)?
            }
            _ => self.core.propose().ok_or_else(not_leading)?,
        };
        Ok(Some((id, version.unwrap_or(last))))
    }

    /// Does everything that came of an event.
    async fn work(&mut self, bodies: &mut Bodies) -> LogResult<()> {
        if self.leading.begun.is_some() && self.core.role() != Role::Leader {
            // Whoever waits for what it appended is told now, not behind the sync of a promise.
            self.tell();
        }
        if let Some(forgotten) = self.core.forgotten() {
            match forgotten {
                ReplicationError::Lost(_) => {
                    probe!("replication: a member has what the cluster has lost");
                }
                _ => probe!("replication: a member has lost what it acknowledged"),
            }
            return Err(forgotten.clone().into());
        }
        while let Some(work) = self.core.work() {
            self.do_work(work, bodies).await?;
            self.full = None;
        }
        self.tell();
        if self.env.is_simulated() {
            self.core.check_invariants();
            self.log.check_invariants();
        }
        Ok(())
    }

    async fn do_work(&mut self, work: Work, bodies: &mut Bodies) -> LogResult<()> {
        let leads = self.core.role() == Role::Leader;
        if let Some(promise) = work.promise {
            let commit = promise.commit.max(self.log.promised().commit);
            let vote = Vote { term: promise.term, vote: promise.vote, commit };
            while let Err(error) = self.log.write_vote(vote).await {
                self.wait_for_room(error).await?;
            }
        }
        if let Some(index) = work.rewind {
            probe!("replication: entries that lost are voided");
            while let Err(error) = self.log.rewind(index).await {
                self.wait_for_room(error).await?;
            }
        }
        for id in work.append {
            self.append(id, bodies, leads).await?;
        }
        if work.needs_sync {
            self.syncing.want(work.ticket, self.env.now());
            if planted!("entries are acknowledged before they are synced") {
                self.inbox.post(Event::Synced(work.ticket));
            } else {
                self.inbox.want_sync(work.ticket, self.log.written());
            }
        }
        // Whoever waits for a commit waits longer than those who hear of it from here.
        if let Some(index) = work.committed.filter(|_| !work.members) {
            self.commit(index)?;
        }
        self.send(work.send).await;
        bodies.answer();
        if let Some(index) = work.committed.filter(|_| work.members) {
            self.change_members(index).await?;
            self.commit(index)?;
        }
        Ok(())
    }

    /// Entries up to this one are committed. Whoever hears of that may ask any node at once for
    /// what there is: what proofs rely on is published before.
    fn commit(&mut self, index: u64) -> LogResult<()> {
        self.publish();
        self.log.commit(index)?;
        self.proofs.settle();
        Ok(())
    }

    /// Appends an entry, and waits for room if the disk is full. Whoever has proposed it is told at
    /// once that its fate is unknown: it is appended when there is room.
    async fn write(
        &mut self,
        head: EntryHead,
        body: &[u8],
        answer: &mut Option<Promise<Position, LogError>>,
    ) -> LogResult<Position> {
        loop {
            let written = self.log.append(head, &[body]).await;
            if let Err(error) = &written
                && self.may_wait_for_room(error)
            {
                let detail =
                    format!("the disk of the leader is full, so another one is to lead: {error}");
                if let Some(answer) = answer.take() {
                    answer.send(Err(LogError::Unknown(detail)));
                }
                self.wait_for_room(error.clone()).await?;
                continue;
            }
            if written.is_ok() {
                self.core.note_sum(head.index, checksum(&head, body));
            }
            // Whoever gets the position may ask about it at once.
            self.tell();
            return written;
        }
    }

    /// Whether a write that failed has left nothing behind, and succeeds once there is room on the
    /// disk.
    fn may_wait_for_room(&self, error: &LogError) -> bool {
        error.is_disk_full() && self.log.view().check().is_ok() && !self.inbox.is_to_close()
    }

    /// Waits a moment for room on the disk. A leader ceases to be one: it can't commit. Nothing is
    /// said to others meanwhile, so they elect another one.
    ///
    /// # Errors
    /// The one that it is given, if room wouldn't help.
    async fn wait_for_room(&mut self, error: LogError) -> LogResult<()> {
        if !self.may_wait_for_room(&error) {
            return Err(error);
        }
        probe!("replication: a member waits for room on its disk");
        self.core.step_down();
        self.full = Some(error);
        self.tell();
        self.inbox.refuse(&not_leading());
        race(self.inbox.wake.wait(), self.env.sleep(ROOM)).await;
        Ok(())
    }

    /// A change of members is committed: it is written down, and takes effect, before anybody is
    /// told of it.
    async fn change_members(&mut self, index: u64) -> LogResult<()> {
        let found = self.log.entries(index).next().await?;
        let Some(entry) = found.filter(|entry| entry.index == index) else {
            let detail = format!("entry {index} is committed, and is not there");
            return Err(LogError::Internal(detail));
        };
        let members = Members::of_entry(&entry.body)?;
        // Before it is written down: a program that can read what comes next begins here.
        self.core.spoken().check(members.protocol)?;
        while let Err(error) = self.records.keep(&members, index).await {
            self.wait_for_room(error).await?;
        }
        self.core.take_effect(members)?;
        probe!("replication: a change of members takes effect");
        self.readers.retain(|node, _| self.core.members().node(*node).is_some());
        self.tell_members();
        Ok(())
    }

    /// Tells who is a member.
    fn tell_members(&self) {
        let (members, index) = (Arc::new(self.core.members().clone()), self.core.members_index());
        self.proofs.change_members(&members);
        self.peers.members(&members);
        self.inbox.change(|told| told.members = (members, index));
    }

    /// Publishes how this node stands, which others rely on before they hear of it: see
    /// [`Proving`](crate::Proving).
    fn publish(&mut self) {
        let stand = self.core.stand();
        if stand != self.stand {
            self.stand = stand;
            self.proofs.stand(stand);
        }
    }

    /// `leads`: this node led when that was decided; on a full disk it may have ceased to.
    async fn append(&mut self, id: EntryId, bodies: &mut Bodies, leads: bool) -> LogResult<()> {
        let EntryId { index, term } = id;
        let previous = self.log.last_version();
        let head = |kind, version, committed| EntryHead {
            kind,
            index,
            term,
            version,
            previous,
            committed,
        };
        let committed = self.log.view().committed().version;
        if let Some(proposal) = bodies.proposal.take_if(|proposal| proposal.id == id) {
            let head = head(proposal.kind, proposal.version, committed);
            let mut answer = Some(proposal.answer);
            let written = self.write(head, &proposal.body, &mut answer).await;
            // Told once others are on their way to have it, too, who take longer.
            bodies.written.extend(answer.map(|answer| (answer, written.clone())));
            return written.map(drop);
        }
        while let Some(entry) = bodies.received.pop_front() {
            if (entry.index, entry.term) == (index, term) {
                return self.write(entry.head(), &entry.body, &mut None).await.map(drop);
            }
        }
        if !leads {
            let detail =
                format!("entry {index} of term {term} is to be appended, and nobody has sent it");
            return Err(LogError::Internal(detail));
        }
        self.leading.begun = Some(id);
        self.write(head(EntryKind::Begin, previous, committed), &[], &mut None).await.map(drop)
    }

    /// Sends messages, with the entries that they speak of.
    async fn send(&mut self, messages: Vec<Message>) {
        self.publish();
        for message in messages {
            if message.kind != MessageKind::Append || message.entries.is_empty() {
                let before = match message.kind {
                    MessageKind::Append => self.sum_before(&message).await,
                    _ => None,
                };
                self.peers.send(Frame { message, entries: Vec::new(), before });
                continue;
            }
            for frame in self.frames(message).await {
                self.peers.send(frame);
            }
        }
    }

    /// An append as one frame or several, none too long. What can't be read is not sent: it is
    /// asked for again.
    async fn frames(&mut self, message: Message) -> Vec<Frame> {
        let to_be_recalled = self.is_to_be_recalled(message.before());
        let from = message.index + u64::from(!to_be_recalled);
        let reader = self.readers.entry(message.to).or_insert_with(|| self.log.entries(from));
        reader.go_to(from);
        if to_be_recalled {
            match reader.next().await {
                Ok(Some(entry)) => {
                    self.core.recall_sums(entry.index, &[sum_of(&entry)]);
                }
                _ => reader.go_to(message.index + 1),
            }
        }
        let mut before = self.core.sum_of(message.before());
        let mut frames: Vec<Frame> = Vec::new();
        let mut bytes = usize::MAX;
        let (mut index, mut log_term) = (message.index, message.log_term);
        for term in message.entries.iter().copied() {
            let entry = match reader.next().await {
                Ok(Some(entry)) if entry.term == term => entry,
                Err(error) if error.is_damage() => {
                    self.core.cannot_send(message.to, reader.next_index());
                    break;
                }
                _ => break,
            };
            if bytes >= FRAME_BYTES {
                let message = Message { index, log_term, entries: Vec::new(), ..message.clone() };
                before = last_entry(&frames).map(sum_of).or(before);
                frames.push(Frame { message, entries: Vec::new(), before });
                bytes = 0;
            }
            (index, log_term) = (entry.index, entry.term);
            bytes += entry.body.len();
            if let Some(frame) = frames.last_mut() {
                frame.message.entries.push(term);
                frame.entries.push(entry);
            }
        }
        // What is sent next comes behind it.
        if let Some(last) = last_entry(&frames)
            && self.is_to_be_recalled(EntryId { index: last.index, term: last.term })
        {
            self.core.recall_sums(last.index, &[sum_of(last)]);
        }
        frames
    }

    /// Tells what has become of this node.
    fn tell(&mut self) {
        let leads = self.core.role() == Role::Leader;
        if !leads {
            self.leading.begun = None;
        }
        self.publish();
        let begun = self
            .leading
            .begun
            .filter(|begun| self.core.committed() >= begun.index)
            .map(|begun| begun.term);
        let (written, lease) = (self.log.last_position(), self.log.last_lease());
        let (term, leader, behind) = (self.core.term(), self.core.leader(), self.core.behind());
        let full = &self.full;
        let is_news = self.inbox.with(|told| {
            if told.end.cause.is_none() {
                // That grows with each entry, and nobody waits for it.
                (told.last.position, told.last.lease) = (written, lease);
            }
            told.full != *full
                || (told.leads, told.term, told.leader, told.behind)
                    != (begun, term, leader, behind)
        });
        if is_news {
            self.inbox.tell(|told| {
                told.elections += u64::from(told.term != term);
                (told.leads, told.term) = (begun, term);
                (told.leader, told.behind) = (leader, behind);
                told.full.clone_from(full);
            });
        }
    }
}

/// The last entry of these frames.
fn last_entry(frames: &[Frame]) -> Option<&Entry> {
    frames.last()?.entries.last()
}

fn sum_of(entry: &Entry) -> u32 {
    checksum(&entry.head(), &entry.body)
}

/// Syncs what is due, again and again, until the member ends.
pub(crate) async fn sync(inbox: Arc<Inbox>, syncer: Syncer) {
    while inbox.check().is_ok() {
        let Some((ticket, position)) = inbox.take_due() else {
            inbox.sync_due.wait().await;
            continue;
        };
        match syncer.sync(position).await {
            Ok(()) => inbox.post(Event::Synced(ticket)),
            Err(error) => inbox.end(&error),
        }
    }
    // Others like it wait too.
    inbox.sync_due.notify();
}
