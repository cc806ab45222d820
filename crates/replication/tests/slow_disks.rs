//! Elections and entries where disks are slow, or a node is short: somebody leads, and what he is
//! given is committed.
//!
//! Time is counted in ticks. Messages take one; a sync takes as many as the trial says.

use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Core, EntryId, Members, Message, MessageKind, Promise, Role, Spoken, Terms,
};
use std::collections::BTreeSet;

const HEARTBEAT: usize = 5;
const ELECTION: usize = 20;

/// Three nodes and their disks.
struct World {
    nodes: Vec<Core>,
    now: u64,
    /// How long a sync takes.
    sync: u64,
    /// When which node has synced what.
    due: Vec<(u64, usize, u64)>,
    mail: Vec<Message>,
    /// Whose syncs take longer.
    slow: Option<(usize, u64)>,
    /// Who neither hears nor is heard.
    cut: BTreeSet<u64>,
    /// How many bytes each is told that its log has.
    log_bytes: u64,
    /// Who was told to take rows.
    told_rows: BTreeSet<u64>,
}

impl World {
    fn new(seed: u64, sync: u64) -> Self {
        let members = Members::of_voters((1..=3).map(|id| (id, format!("node:{id}"))));
        let config = |id| Config {
            id,
            members: members.clone(),
            members_index: 0,
            seed,
            heartbeat_ticks: HEARTBEAT,
            election_ticks: ELECTION,
            message_entries: 1000,
            most_log_bytes: 1000,
            spoken: Spoken::THIS,
            planted: Planted::None,
        };
        let node =
            |id| Core::new(config(id), Terms::new(EntryId::default()), Promise::default()).unwrap();
        let (due, mail, cut, told_rows) = Default::default();
        let nodes = (1..=3).map(node).collect();
        Self { nodes, now: 0, sync, due, mail, slow: None, cut, log_bytes: 0, told_rows }
    }

    fn tick(&mut self) {
        self.now += 1;
        let (now, mut mail) = (self.now, std::mem::take(&mut self.mail));
        mail.retain(|one| !self.cut.contains(&one.from) && !self.cut.contains(&one.to));
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.look_at_size(self.log_bytes);
            node.tick();
            let (done, later) = std::mem::take(&mut self.due)
                .into_iter()
                .partition(|(due, of, _)| *of == at && *due <= now);
            self.due = later;
            for (_, _, ticket) in Vec::from_iter::<Vec<(u64, usize, u64)>>(done) {
                self.mail.extend(node.persisted(ticket));
            }
            let id = node.id();
            for message in mail.iter().filter(|message| message.to == id) {
                if message.kind == MessageKind::Behind {
                    self.told_rows.insert(message.to);
                }
                node.receive(message).unwrap();
            }
            while let Some(work) = node.work() {
                self.mail.extend(work.send);
                if work.needs_sync {
                    let slow = self.slow.filter(|(slow, _)| *slow == at);
                    let sync = slow.map_or(self.sync, |(_, ticks)| ticks);
                    self.due.push((now + sync, at, work.ticket));
                }
            }
            node.check_invariants();
        }
    }

    /// Whoever leads commits an entry of its own.
    fn commit(&mut self, ticks: u64) -> Option<usize> {
        let mut proposed: Option<(usize, EntryId)> = None;
        for _ in 0..ticks {
            self.tick();
            let leads = |node: &Core| node.role() == Role::Leader && !self.cut.contains(&node.id());
            let leader = self.nodes.iter().position(leads);
            proposed = proposed.filter(|(at, entry)| {
                self.nodes[*at].role() == Role::Leader && self.nodes[*at].term() == entry.term
            });
            match (proposed, leader) {
                (None, Some(at)) => proposed = Some((at, self.nodes[at].propose().unwrap())),
                (Some((at, entry)), _) if self.nodes[at].committed() >= entry.index => {
                    return Some(at);
                }
                _ => {}
            }
        }
        None
    }
}

/// A vote takes two syncs, one behind the other: with disks that were slower than the timeout of an
/// election each term ended before its candidate heard that it was elected.
#[test]
fn an_election_ends_however_slow_disks_are() {
    for sync in [1, 15, 30, 60, 100] {
        for seed in 0..20 {
            let mut world = World::new(seed, sync);
            let leader = world.commit(60 * sync + 500);
            assert!(leader.is_some(), "syncs of {sync} ticks, seed {seed}: {:?}", world.nodes);
        }
    }
}

/// A node that is elected at once has nobody wait longer the next time.
#[test]
fn a_leader_is_missed_as_soon_as_ever_once_there_was_one() {
    for seed in 0..20 {
        let mut world = World::new(seed, 30);
        let leader = world.commit(5_000).expect("a leader");
        world.sync = 1;
        for _ in 0..100 {
            world.tick();
        }
        world.cut.insert(leader as u64 + 1);
        let next = world.commit(8 * ELECTION as u64);
        assert!(next.is_some_and(|next| next != leader), "seed {seed}: {next:?}");
    }
}

/// Two nodes have filled a long log, and one of them goes. The third, which votes and has no entry
/// at all, was told to take rows up to an entry that nobody's tables could come to without it.
#[test]
fn a_voter_without_entries_is_sent_them_however_long_the_log_is() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2);
        world.cut.insert(3);
        let leader = world.commit(1_000).expect("a leader");
        world.log_bytes = 1_000_000;
        for _ in 0..5 {
            assert_eq!(world.commit(1_000), Some(leader), "seed {seed}");
        }
        world.cut = BTreeSet::from([2 - leader as u64]);
        let goes_on = world.commit(3_000);
        assert!(goes_on.is_some(), "seed {seed}: {:?}", world.nodes);
        assert!(world.nodes[2].terms().last().index > 0, "seed {seed}: it has entries");
        assert_eq!(world.told_rows, BTreeSet::new(), "seed {seed}");
    }
}

/// Answers to heartbeats overtake syncs, and each of them had a leader send a follower with a slow
/// disk the same entries again.
#[test]
fn a_follower_with_a_slow_disk_is_not_sent_the_same_with_each_heartbeat() {
    let mut world = World::new(3, 2);
    let leader = world.commit(1_000).expect("a leader");
    let slow = (leader + 1) % 3;
    // It was away for a while, so nothing is known of what it has.
    world.cut.insert(slow as u64 + 1);
    for _ in 0..20 {
        world.commit(1_000).expect("a commit");
    }
    world.cut.clear();
    world.slow = Some((slow, 400));
    let (mut sent, mut ticks) = (0, 0);
    while world.nodes[slow].committed() < world.nodes[leader].committed() {
        world.tick();
        let is_sent = |one: &&Message| {
            one.kind == MessageKind::Append && one.to == slow as u64 + 1 && !one.entries.is_empty()
        };
        sent += world.mail.iter().filter(is_sent).count();
        ticks += 1;
        assert!(ticks < 5_000, "it doesn't catch up");
    }
    assert!(sent <= 2 + ticks / 20, "{sent} appends in {ticks} ticks");
}
