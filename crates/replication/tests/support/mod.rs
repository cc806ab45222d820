//! A cluster in memory, with an oracle that looks at it after every step.
//!
//! Each node has a core, what it has written, and what of that is synced. Messages are encoded,
//! delayed, lost, doubled, and decoded again; links fail in one direction; nodes lose power and
//! with it a suffix of what they had not synced. The oracle keeps what any node has ever told: who
//! led in which term, which entries are committed.

use std::collections::{BTreeMap, VecDeque};

use plinth_env::simulated::Random;
use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Core, EntryId, Members, Message, NodeId, Part, Promise, Proving, Role, Taken, Terms,
    Work,
};
use std::sync::Arc;

/// Something that a disk does.
#[derive(Clone, Debug)]
enum Op {
    Rewind(u64),
    Append(EntryId, bool),
    Promise(Promise),
}

/// What a log remembers.
#[derive(Clone, Debug)]
struct Disk {
    terms: Terms,
    promise: Promise,
}

impl Disk {
    fn take(&mut self, op: &Op) {
        match op {
            Op::Rewind(index) => self.terms.truncate(*index),
            Op::Append(entry, false) => self.terms.push(*entry),
            Op::Append(entry, true) => self.terms.push_members(*entry),
            Op::Promise(promise) => self.promise = *promise,
        }
    }
}

/// The most nodes that there ever are in a run.
const MOST: usize = 9;

fn address(id: NodeId) -> String {
    format!("node:{id}")
}

struct Node {
    /// `None`: it is down.
    core: Option<Core>,
    /// Beside the core, and told of how it stands at the latest before something is sent.
    proving: Option<Proving>,
    /// Reads that it was asked for, by round.
    asked: BTreeMap<u64, u64>,
    synced: Disk,
    written: Disk,
    /// Written and not synced: ticket, and what it wrote.
    unsynced: VecDeque<(u64, Vec<Op>)>,
    /// How far it has told entries to be committed since its start.
    told: u64,
    led: Option<u64>,
    /// Who is a member, as it has written it down; durable at once, if it gets there.
    members: (Members, u64),
    /// Its disk is lost, or it has been removed: it never comes back.
    is_gone: bool,
    /// Until then it does nothing, and what is sent to it waits.
    paused: u64,
}

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub loss: f64,
    pub double: f64,
    pub crash: f64,
    pub cut: f64,
    /// How likely a node that leads loses its power, or its links, at a step.
    pub unseat: f64,
    pub delay: u64,
    /// How likely a disk syncs at a step.
    pub sync: f64,
}

/// What happened: a simulation in which nothing does proves nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    pub elections: u64,
    pub committed: u64,
    pub rewinds: u64,
    pub crashes: u64,
    pub lost_ops: u64,
    pub reads: u64,
    pub changes: u64,
    /// Crashes before a change of members that was committed had been written down.
    pub unkept: u64,
    pub wiped: u64,
    pub led_and_left: u64,
}

/// What any node has ever told.
#[derive(Default)]
struct Oracle {
    leaders: BTreeMap<u64, NodeId>,
    /// For each entry the term of the one before it.
    chain: BTreeMap<EntryId, u64>,
    /// By index, from 1: the entry, and the term of the leader that committed it.
    committed: Vec<(EntryId, u64)>,
    /// Who became a member at which entry, as committed.
    members: Vec<(u64, Members)>,
    /// What entries say of members.
    contents: BTreeMap<EntryId, Members>,
}

pub struct Cluster {
    random: Random,
    seed: u64,
    nodes: Vec<Node>,
    planted: Planted,
    message_entries: usize,
    changes: bool,
    now: u64,
    sent: u64,
    /// By the time when it arrives.
    network: BTreeMap<(u64, u64), Vec<u8>>,
    /// Links that are cut, from one to another.
    cut: Vec<(NodeId, NodeId)>,
    oracle: Oracle,
    pub stats: Stats,
}

impl Cluster {
    pub fn new(seed: u64, size: usize, changes: bool, planted: Planted) -> Self {
        let mut random = Random::new(seed);
        let message_entries = [1, 1, 4, 1000][random.index(4)];
        let disk = Disk { terms: Terms::new(EntryId::default()), promise: Promise::default() };
        let members = Members::of_voters((1..=size as u64).map(|id| (id, address(id))));
        let node = |_| Node {
            members: (members.clone(), 0),
            is_gone: false,
            core: None,
            proving: None,
            asked: BTreeMap::new(),
            synced: disk.clone(),
            written: disk.clone(),
            unsynced: VecDeque::new(),
            told: 0,
            led: None,
            paused: 0,
        };
        let mut cluster = Self {
            random,
            seed,
            nodes: (0..size).map(node).collect(),
            planted,
            message_entries,
            changes,
            now: 0,
            sent: 0,
            network: BTreeMap::new(),
            cut: Vec::new(),
            oracle: Oracle { members: vec![(0, members.clone())], ..Oracle::default() },
            stats: Stats::default(),
        };
        (0..size).for_each(|at| cluster.start(at));
        cluster
    }

    fn start(&mut self, at: usize) {
        let config = Config {
            id: at as u64 + 1,
            members: self.nodes[at].members.0.clone(),
            members_index: self.nodes[at].members.1,
            seed: self.seed,
            heartbeat_ticks: 3,
            election_ticks: 10,
            message_entries: self.message_entries,
            most_log_bytes: u64::MAX,
            spoken: plinth_replication::Spoken::THIS,
            planted: self.planted,
        };
        if self.nodes[at].is_gone {
            return;
        }
        let node = &mut self.nodes[at];
        let core =
            Core::new(config, node.synced.terms.clone(), node.synced.promise).expect("a core");
        node.told = core.committed();
        let mut proving = Proving::new(core.id(), core.stand(), Arc::new(core.members().clone()));
        proving.plant(self.planted);
        (node.core, node.proving) = (Some(core), Some(proving));
    }

    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.core.take().is_none() {
            return;
        }
        node.proving = None;
        node.asked.clear();
        self.stats.crashes += 1;
        let ops: Vec<_> = node.unsynced.drain(..).flat_map(|(_, ops)| ops).collect();
        let kept = self.random.index(ops.len() + 1);
        self.stats.lost_ops += (ops.len() - kept) as u64;
        ops[..kept].iter().for_each(|op| node.synced.take(op));
        node.written = node.synced.clone();
        node.led = None;
    }

    /// One step, in this weather.
    pub fn step(&mut self, weather: &Weather) -> Result<(), String> {
        self.now += 1;
        let later = self.network.split_off(&(self.now + 1, 0));
        for bytes in std::mem::replace(&mut self.network, later).into_values() {
            self.deliver(&bytes, weather)?;
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].paused > self.now {
                continue;
            }
            // Clocks run at different speeds.
            if self.random.chance(0.95) {
                self.with(at, weather, Core::tick)?;
                let asked = self.nodes[at].proving.as_mut().map(Proving::tick).unwrap_or_default();
                self.send(asked, weather);
            }
            if self.random.chance(weather.sync) {
                self.sync(at, weather)?;
            }
            if self.random.chance(0.3) {
                self.with(at, weather, |core| {
                    core.propose();
                })?;
            }
            if self.random.chance(0.2) {
                self.read(at, weather)?;
            }
            if self.changes && self.random.chance(0.05) {
                self.change(at, weather)?;
            }
            if self.changes && self.random.chance(weather.crash / 10.0) {
                self.wipe(at);
            }
            let unseat = if self.nodes[at].led.is_some() { weather.unseat } else { 0.0 };
            if self.random.chance(weather.crash + unseat / 2.0) {
                self.crash(at);
            } else if self.random.chance(unseat / 2.0) {
                match self.random.index(2) {
                    0 => self.cut_off(at as u64 + 1),
                    // Longer than it takes others to elect somebody else.
                    _ => self.nodes[at].paused = self.now + 20 + self.random.below(60),
                }
            } else if self.nodes[at].core.is_none()
                && !self.nodes[at].is_gone
                && self.random.chance(0.05)
            {
                self.start(at);
                self.drain(at, weather)?;
            }
        }
        self.change_links(weather);
        Ok(())
    }

    fn change_links(&mut self, weather: &Weather) {
        if self.random.chance(weather.cut) {
            let size = self.nodes.len() as u64;
            let (one, other) = (1 + self.random.below(size), 1 + self.random.below(size));
            match self.random.index(3) {
                0 => self.cut.push((one, other)),
                1 => self.cut.extend([(one, other), (other, one)]),
                _ => self.cut_off(one),
            }
        }
        if self.random.chance(0.02) {
            self.cut.clear();
        }
    }

    /// A node hears nobody and is heard by nobody.
    fn cut_off(&mut self, one: NodeId) {
        let others = 1..=self.nodes.len() as u64;
        self.cut.extend(others.flat_map(|other| [(one, other), (other, one)]));
    }

    fn deliver(&mut self, bytes: &[u8], weather: &Weather) -> Result<(), String> {
        let message = Message::decode(bytes).map_err(|error| error.to_string())?;
        let at = message.to as usize - 1;
        if at >= self.nodes.len() {
            return Ok(());
        }
        if self.nodes[at].paused > self.now {
            self.sent += 1;
            let due = self.nodes[at].paused + 3 + self.random.below(20);
            self.network.insert((due, self.sent), bytes.to_vec());
            return Ok(());
        }
        let taken = self.nodes[at].proving.as_mut().map(|proving| proving.receive(&message));
        match taken {
            Some(Taken::Answer(answer)) => {
                self.send(vec![answer], weather);
                return Ok(());
            }
            Some(Taken::Counted) => return self.look_at_proofs(at),
            Some(Taken::No) | None => {}
        }
        let mut refused = None;
        self.with(at, weather, |core| refused = core.receive(&message).err())?;
        // A leader says that what a wiped node has acknowledged is committed.
        let refused = refused.filter(|_| self.planted != Planted::WipedNodeVotes);
        refused.map_or(Ok(()), |error| Err(format!("an honest message was refused: {error}")))
    }

    /// Does something with a node that is up, and then its work.
    fn with(
        &mut self,
        at: usize,
        weather: &Weather,
        act: impl FnOnce(&mut Core),
    ) -> Result<(), String> {
        let Some(core) = &mut self.nodes[at].core else { return Ok(()) };
        act(core);
        // Of a wiped node that is true.
        let forgotten = core.forgotten().filter(|_| self.planted == Planted::None);
        if let Some(forgotten) = forgotten {
            return Err(format!("an honest node is told that it has forgotten: {forgotten}"));
        }
        self.drain(at, weather)
    }

    fn read(&mut self, at: usize, weather: &Weather) -> Result<(), String> {
        let node = &mut self.nodes[at];
        let Some((number, messages)) = node.proving.as_mut().and_then(Proving::ask) else {
            return Ok(());
        };
        node.asked.insert(number, self.oracle.committed.len() as u64);
        self.send(messages, weather);
        self.look_at_proofs(at)
    }

    /// A proven read brings an index up to which it sees what was committed anywhere when it was
    /// asked.
    fn look_at_proofs(&mut self, at: usize) -> Result<(), String> {
        let (id, node) = (at as u64 + 1, &mut self.nodes[at]);
        while let Some((number, index)) = node.proving.as_mut().and_then(Proving::proven) {
            self.stats.reads += 1;
            let needed = node.asked.remove(&number).unwrap_or(0);
            if index < needed {
                return Err(format!(
                    "node {id} proves a read up to {index}, {needed} was committed when it was asked"
                ));
            }
        }
        Ok(())
    }

    /// A node publishes how it stands.
    fn publish(&mut self, at: usize) {
        let Node { core: Some(core), proving: Some(proving), asked, .. } = &mut self.nodes[at]
        else {
            return;
        };
        if proving.stand(core.stand()) {
            asked.clear();
        }
    }

    /// A disk syncs some of what was written.
    fn sync(&mut self, at: usize, weather: &Weather) -> Result<(), String> {
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return Ok(()) };
        let done = self.random.index(node.unsynced.len() + 1);
        let mut last = None;
        for (ticket, ops) in node.unsynced.drain(..done) {
            ops.iter().for_each(|op| node.synced.take(op));
            last = Some(ticket);
        }
        let Some(ticket) = last else { return Ok(()) };
        let messages = core.persisted(ticket);
        self.publish(at);
        self.send(messages, weather);
        self.drain(at, weather)
    }

    fn send(&mut self, messages: Vec<Message>, weather: &Weather) {
        for message in messages {
            let copies = 1 + usize::from(self.random.chance(weather.double));
            for _ in 0..copies {
                let is_cut = self.cut.contains(&(message.from, message.to));
                if is_cut || self.random.chance(weather.loss) {
                    continue;
                }
                self.sent += 1;
                let due = self.now + 1 + self.random.below(weather.delay);
                self.network.insert((due, self.sent), message.encode());
            }
        }
    }

    /// Does all of a node's work, and lets the oracle look.
    fn drain(&mut self, at: usize, weather: &Weather) -> Result<(), String> {
        loop {
            let Some(core) = &mut self.nodes[at].core else { return Ok(()) };
            let Some(work) = core.work() else { break };
            let sent = self.take_work(at, work)?;
            // Until something is sent others may meet what was published earlier.
            if !sent.is_empty() || self.random.chance(0.5) {
                self.publish(at);
            }
            self.send(sent, weather);
        }
        self.look_at_role(at)?;
        self.nodes[at].core.iter().for_each(Core::check_invariants);
        Ok(())
    }

    fn take_work(&mut self, at: usize, work: Work) -> Result<Vec<Message>, String> {
        let Work { ticket, rewind, append, promise, needs_sync, send, committed, members } = work;
        let id = at as u64 + 1;
        let node = &mut self.nodes[at];
        let term = node.core.as_ref().map_or(0, Core::term);
        let mut ops: Vec<_> = promise.map(Op::Promise).into_iter().collect();
        if let Some(index) = rewind {
            self.stats.rewinds += 1;
            if node.led == Some(term) {
                return Err(format!(
                    "node {id} leads in term {term} and voids entries behind {index}"
                ));
            }
            ops.push(Op::Rewind(index));
        }
        let terms =
            node.core.as_ref().map(|core| core.terms().members().to_vec()).unwrap_or_default();
        ops.extend(append.iter().map(|entry| Op::Append(*entry, terms.contains(&entry.index))));
        for op in &ops {
            let before = node.written.terms.last().term;
            node.written.take(op);
            if let Op::Append(entry, _) = op {
                let known = *self.oracle.chain.entry(*entry).or_insert(before);
                if known != before {
                    return Err(format!(
                        "{entry:?} follows term {before} at node {id}, {known} elsewhere"
                    ));
                }
            }
        }
        assert!(needs_sync || ops.is_empty(), "what is written needs a sync");
        if needs_sync {
            node.unsynced.push_back((ticket, ops));
        }
        if let Some(upto) = committed {
            // Whoever hears of it may ask at once.
            self.publish(at);
            self.look_at_committed(at, upto)?;
            if members {
                if self.random.chance(0.05) {
                    // Before it is written down.
                    self.stats.unkept += 1;
                    self.crash(at);
                } else {
                    self.take_effect(at, upto)?;
                }
            }
        }
        Ok(send)
    }

    fn look_at_committed(&mut self, at: usize, upto: u64) -> Result<(), String> {
        let id = at as u64 + 1;
        let told = std::mem::replace(&mut self.nodes[at].told, upto);
        let term = self.nodes[at].core.as_ref().map_or(0, Core::term);
        for index in told + 1..=upto {
            let found = self.nodes[at].written.terms.term_of(index);
            let entry =
                found.map(|term| EntryId { index, term }).ok_or("a committed entry isn't there")?;
            if let Some((known, _)) = self.oracle.committed.get(index as usize - 1) {
                if *known != entry {
                    return Err(format!(
                        "node {id} holds {entry:?} for committed, others {known:?}"
                    ));
                }
                continue;
            }
            self.look_at_majority(entry)?;
            self.oracle.committed.push((entry, term));
            self.stats.committed += 1;
        }
        Ok(())
    }

    fn look_at_role(&mut self, at: usize) -> Result<(), String> {
        let id = at as u64 + 1;
        let Node { core: Some(core), synced, written, led, .. } = &mut self.nodes[at] else {
            return Ok(());
        };
        let term = core.term();
        if core.role() != Role::Leader {
            *led = None;
            return Ok(());
        }
        // A sole voter says nothing before it has synced that it leads.
        if synced.promise.term < term || led.replace(term) == Some(term) {
            return Ok(());
        }
        self.stats.elections += 1;
        let other = *self.oracle.leaders.entry(term).or_insert(id);
        if other != id {
            return Err(format!("nodes {id} and {other} lead in term {term}"));
        }
        // One that begins late, after a newer leader has, need not have what that one committed.
        let earlier = self.oracle.committed.iter().filter(|(_, committed_in)| *committed_in < term);
        for (entry, committed_in) in earlier {
            if !written.terms.has(*entry) {
                return Err(format!(
                    "node {id} leads in term {term} without {entry:?}, committed in term {committed_in}"
                ));
            }
        }
        Ok(())
    }

    /// So many voters have a committed entry as it takes, by who was a member then: a leader may
    /// have counted both an entry with a change and those behind it before it took effect.
    fn look_at_majority(&self, entry: EntryId) -> Result<(), String> {
        // A disk that was lost since had it when it said so.
        let has = |id: NodeId| {
            self.nodes.get(id as usize - 1).is_some_and(|node| node.synced.terms.has(entry))
        };
        let earlier: Vec<_> =
            self.oracle.members.iter().rev().filter(|(at, _)| *at < entry.index).collect();
        if earlier.iter().take(2).any(|(_, members)| members.has_majority(has)) {
            return Ok(());
        }
        let on: Vec<_> = (1..=self.nodes.len() as u64).filter(|id| has(*id)).collect();
        let members = earlier.first().map(|(_, members)| members);
        Err(format!("{entry:?} is committed, and synced on {on:?} of {members:?}"))
    }

    /// A committed change of members takes effect at a node. A new node begins where the first one
    /// hears of it.
    fn take_effect(&mut self, at: usize, index: u64) -> Result<(), String> {
        let (entry, _) = self.oracle.committed[index as usize - 1];
        let members = self.oracle.contents[&entry].clone();
        if self.oracle.members.last().is_some_and(|(known, _)| *known < index) {
            self.stats.changes += 1;
            self.oracle.members.push((index, members.clone()));
        }
        let node = &mut self.nodes[at];
        node.members = (members.clone(), index);
        let Some(core) = &mut node.core else { return Ok(()) };
        let led = core.role() == Role::Leader;
        core.take_effect(members.clone()).map_err(|error| error.to_string())?;
        if let Some(proving) = &mut node.proving {
            proving.change_members(Arc::new(members.clone()));
        }
        self.stats.led_and_left += u64::from(led && core.role() != Role::Leader);
        while (self.nodes.len() as u64) < members.next_id - 1 {
            let disk = Disk { terms: Terms::new(EntryId::default()), promise: Promise::default() };
            self.nodes.push(Node {
                core: None,
                proving: None,
                asked: BTreeMap::new(),
                synced: disk.clone(),
                written: disk,
                unsynced: VecDeque::new(),
                told: 0,
                led: None,
                members: (members.clone(), index),
                is_gone: false,
                paused: 0,
            });
            self.start(self.nodes.len() - 1);
        }
        Ok(())
    }

    /// Whoever leads wants other members, now and then.
    fn change(&mut self, at: usize, weather: &Weather) -> Result<(), String> {
        let Some(core) = self.nodes[at].core.as_ref().filter(|core| core.role() == Role::Leader)
        else {
            return Ok(());
        };
        let (members, followers, last) =
            (core.members().clone(), core.followers(), core.terms().last().index);
        let is_near = |id: NodeId| {
            id == at as u64 + 1
                || followers.iter().any(|other| other.node == id && other.synced + 20 > last)
        };
        let learners: Vec<_> = members
            .nodes
            .iter()
            .filter(|node| node.part == Part::Learner)
            .map(|node| node.id)
            .collect();
        let is_gone =
            |id: &NodeId| self.nodes.get(*id as usize - 1).is_some_and(|node| node.is_gone);
        let next = if members.is_joint() {
            members.leave()
        } else {
            match self.random.index(4) {
                0 if self.nodes.len() < MOST => {
                    let id = members.next_id;
                    members.with_learner(&address(id))
                }
                1 if !learners.is_empty() => {
                    members.without_learner(learners[self.random.index(learners.len())])
                }
                _ => {
                    let mut voters: Vec<_> = members
                        .nodes
                        .iter()
                        .map(|node| node.id)
                        .filter(|id| is_near(*id) && !is_gone(id) && self.random.chance(0.6))
                        .collect();
                    voters.truncate(5);
                    let gone: Vec<_> = members
                        .voters()
                        .into_iter()
                        .filter(|id| is_gone(id) || self.random.chance(0.2))
                        .collect();
                    if voters.is_empty() || voters == members.voters() {
                        return Ok(());
                    }
                    members.enter(&voters, &gone)
                }
            }
        };
        let mut proposed = None;
        let contents = &mut self.oracle.contents;
        if let Some(core) = &mut self.nodes[at].core
            && let Ok(id) = core.propose_members(&next)
        {
            contents.insert(id, next);
            proposed = Some(id);
        }
        if proposed.is_some() { self.drain(at, weather) } else { Ok(()) }
    }

    /// A node's disk is lost, if the others can do without it. It never comes back under its
    /// number; or does, where that bug is planted.
    fn wipe(&mut self, at: usize) {
        let id = at as u64 + 1;
        let (as_of, members) = self.oracle.members.last().expect("it began with some").clone();
        // What comes may not be able to do without it.
        let is_changing =
            |node: &Node| node.written.terms.members().last().is_some_and(|at| *at > as_of);
        // Nor those who have yet to hear that they are a majority without it.
        let is_whole = |other: NodeId| {
            let node = self.nodes.get(other as usize - 1);
            other != id && node.is_some_and(|node| !node.is_gone && node.members.1 >= as_of)
        };
        if !members.has_majority(is_whole)
            || self.nodes[at].is_gone
            || self.nodes.iter().any(is_changing)
        {
            return;
        }
        self.stats.wiped += 1;
        self.crash(at);
        let node = &mut self.nodes[at];
        if self.planted == Planted::WipedNodeVotes {
            node.synced =
                Disk { terms: Terms::new(EntryId::default()), promise: Promise::default() };
            node.written = node.synced.clone();
        } else {
            node.is_gone = true;
        }
    }

    /// Everything works again: a leader must come, and everybody must come to have what it has.
    pub fn heal(&mut self) -> Result<(), String> {
        self.cut.clear();
        let fair = Weather::fair();
        for at in 0..self.nodes.len() {
            if self.nodes[at].core.is_none() {
                self.start(at);
            }
        }
        // What is under way may come to its end, and nothing new begins.
        self.changes = false;
        let before = self.oracle.committed.len();
        for _ in 0..400 {
            self.step(&fair)?;
        }
        if self.oracle.committed.len() <= before {
            let gone: Vec<_> =
                (1..).zip(&self.nodes).filter(|(_, node)| node.is_gone).map(|(id, _)| id).collect();
            let members = self.oracle.members.last();
            return Err(format!(
                "nothing is committed in fair weather by {members:?}, of which {gone:?} are gone"
            ));
        }
        let members = &self.oracle.members.last().expect("it began with some").1;
        let is_up =
            |(at, node): &(usize, &Node)| members.node(*at as u64 + 1).is_some() && !node.is_gone;
        let told: Vec<_> =
            self.nodes.iter().enumerate().filter(is_up).map(|(_, node)| node.told).collect();
        let (least, most) = (told.iter().min(), told.iter().max());
        if least.zip(most).is_none_or(|(least, most)| least + 50 < *most) {
            return Err(format!("nodes have come to {told:?}"));
        }
        Ok(())
    }
}

impl Weather {
    /// Nothing goes wrong.
    pub fn fair() -> Self {
        Self { loss: 0.0, double: 0.0, crash: 0.0, cut: 0.0, unseat: 0.0, delay: 2, sync: 0.9 }
    }

    /// Something of everything.
    pub fn foul(random: &mut Random) -> Self {
        let mut sometimes = |most: f64| {
            if random.chance(0.3) { 0.0 } else { most * random.below(100) as f64 / 100.0 }
        };
        let (loss, double, crash, cut) =
            (sometimes(0.2), sometimes(0.2), sometimes(0.02), sometimes(0.1));
        let unseat = sometimes(0.2);
        let delay = 1 + random.below(12);
        let sync = 0.05 + random.below(90) as f64 / 100.0;
        Self { loss, double, crash, cut, unseat, delay, sync }
    }
}

/// A run of so many steps, the weather changing every now and then.
pub fn run(seed: u64, steps: u64, changes: bool, planted: Planted) -> Result<Stats, String> {
    let mut random = Random::new(seed ^ 0x5EED);
    let size = [1, 3, 3, 3, 5][random.index(5)];
    let mut cluster = Cluster::new(seed, size, changes, planted);
    let mut weather = Weather::fair();
    for step in 0..steps {
        if step % 150 == 0 {
            weather = if random.chance(0.2) { Weather::fair() } else { Weather::foul(&mut random) };
        }
        cluster.step(&weather).map_err(|what| format!("step {step}: {what}"))?;
    }
    cluster.heal()?;
    Ok(cluster.stats)
}
