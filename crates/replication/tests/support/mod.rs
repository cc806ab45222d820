//! A cluster in memory, with an oracle that looks at it after every step.
//!
//! Each node has a core, what it has written, and what of that is synced. Messages are encoded, delayed, lost,
//! doubled, and decoded again; links fail in one direction; nodes lose power and with it a suffix of what they had
//! not synced. The oracle keeps what any node has ever told: who led in which term, which entries are committed.

use std::collections::{BTreeMap, VecDeque};

use plinth_env::simulated::Random;
use plinth_replication::planted::Planted;
use plinth_replication::{Config, Core, EntryId, Message, NodeId, Promise, Role, Terms, Work};

/// Something that a disk does.
#[derive(Clone, Debug)]
enum Op {
    Rewind(u64),
    Append(EntryId),
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
            Op::Append(entry) => self.terms.push(*entry),
            Op::Promise(promise) => self.promise = *promise,
        }
    }
}

struct Node {
    /// `None`: it is down.
    core: Option<Core>,
    synced: Disk,
    written: Disk,
    /// Written and not synced: ticket, and what it wrote.
    unsynced: VecDeque<(u64, Vec<Op>)>,
    /// How far it has told entries to be committed since its start.
    told: u64,
    led: Option<u64>,
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
}

/// What any node has ever told.
#[derive(Default)]
struct Oracle {
    leaders: BTreeMap<u64, NodeId>,
    /// For each entry the term of the one before it.
    chain: BTreeMap<EntryId, u64>,
    /// By index, from 1: the entry, and the term of the leader that committed it.
    committed: Vec<(EntryId, u64)>,
    /// By number: up to where entries were committed when it was asked.
    reads: BTreeMap<u64, u64>,
}

pub struct Cluster {
    random: Random,
    seed: u64,
    nodes: Vec<Node>,
    planted: Planted,
    message_entries: usize,
    voters: Vec<NodeId>,
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
    pub fn new(seed: u64, size: usize, planted: Planted) -> Self {
        let mut random = Random::new(seed);
        let message_entries = [1, 1, 4, 1000][random.index(4)];
        let disk = Disk { terms: Terms::new(EntryId::default()), promise: Promise::default() };
        let node = |_| Node {
            core: None,
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
            voters: (1..=size as u64).collect(),
            now: 0,
            sent: 0,
            network: BTreeMap::new(),
            cut: Vec::new(),
            oracle: Oracle::default(),
            stats: Stats::default(),
        };
        (0..size).for_each(|at| cluster.start(at));
        cluster
    }

    fn start(&mut self, at: usize) {
        let config = Config {
            id: at as u64 + 1,
            voters: self.voters.clone(),
            learners: Vec::new(),
            seed: self.seed,
            heartbeat_ticks: 3,
            election_ticks: 10,
            message_entries: self.message_entries,
            planted: self.planted,
        };
        let node = &mut self.nodes[at];
        let core = Core::new(config, node.synced.terms.clone(), node.synced.promise).expect("a core");
        node.told = core.committed();
        node.core = Some(core);
    }

    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.core.take().is_none() {
            return;
        }
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
            let unseat = if self.nodes[at].led.is_some() { weather.unseat } else { 0.0 };
            if self.random.chance(weather.crash + unseat / 2.0) {
                self.crash(at);
            } else if self.random.chance(unseat / 2.0) {
                match self.random.index(2) {
                    0 => self.cut_off(at as u64 + 1),
                    // Longer than it takes others to elect somebody else.
                    _ => self.nodes[at].paused = self.now + 20 + self.random.below(60),
                }
            } else if self.nodes[at].core.is_none() && self.random.chance(0.05) {
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
        if self.nodes[at].paused > self.now {
            self.sent += 1;
            let due = self.nodes[at].paused + 3 + self.random.below(20);
            self.network.insert((due, self.sent), bytes.to_vec());
            return Ok(());
        }
        let mut refused = None;
        self.with(at, weather, |core| refused = core.receive(&message).err())?;
        refused.map_or(Ok(()), |error| Err(format!("an honest message was refused: {error}")))
    }

    /// Does something with a node that is up, and then its work.
    fn with(&mut self, at: usize, weather: &Weather, act: impl FnOnce(&mut Core)) -> Result<(), String> {
        let Some(core) = &mut self.nodes[at].core else { return Ok(()) };
        act(core);
        self.drain(at, weather)
    }

    fn read(&mut self, at: usize, weather: &Weather) -> Result<(), String> {
        let (number, needed) = (self.now * 100 + at as u64, self.oracle.committed.len() as u64);
        self.oracle.reads.insert(number, needed);
        self.with(at, weather, |core| {
            core.read(number);
        })
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
            self.send(sent, weather);
        }
        self.look_at_role(at)?;
        self.nodes[at].core.iter().for_each(Core::check_invariants);
        Ok(())
    }

    fn take_work(&mut self, at: usize, work: Work) -> Result<Vec<Message>, String> {
        let Work { ticket, rewind, append, promise, needs_sync, send, committed, reads } = work;
        let id = at as u64 + 1;
        let node = &mut self.nodes[at];
        let term = node.core.as_ref().map_or(0, Core::term);
        let mut ops: Vec<_> = promise.map(Op::Promise).into_iter().collect();
        if let Some(index) = rewind {
            self.stats.rewinds += 1;
            if node.led == Some(term) {
                return Err(format!("node {id} leads in term {term} and voids entries behind {index}"));
            }
            ops.push(Op::Rewind(index));
        }
        ops.extend(append.iter().map(|entry| Op::Append(*entry)));
        for op in &ops {
            let before = node.written.terms.last().term;
            node.written.take(op);
            if let Op::Append(entry) = op {
                let known = *self.oracle.chain.entry(*entry).or_insert(before);
                if known != before {
                    return Err(format!("{entry:?} follows term {before} at node {id}, {known} elsewhere"));
                }
            }
        }
        assert!(needs_sync || ops.is_empty(), "what is written needs a sync");
        if needs_sync {
            node.unsynced.push_back((ticket, ops));
        }
        if let Some(upto) = committed {
            self.look_at_committed(at, upto)?;
        }
        for (number, index) in reads {
            self.stats.reads += 1;
            let needed = self.oracle.reads.get(&number).copied().unwrap_or(0);
            if index < needed {
                return Err(format!(
                    "node {id} proves a read up to {index}, {needed} was committed when it was asked"
                ));
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
            let entry = found.map(|term| EntryId { index, term }).ok_or("a committed entry isn't there")?;
            if let Some((known, _)) = self.oracle.committed.get(index as usize - 1) {
                if *known != entry {
                    return Err(format!("node {id} holds {entry:?} for committed, others {known:?}"));
                }
                continue;
            }
            let copies = self.nodes.iter().filter(|node| node.synced.terms.has(entry)).count();
            if copies * 2 <= self.nodes.len() {
                return Err(format!("{entry:?} is committed, and synced on {copies} nodes"));
            }
            self.oracle.committed.push((entry, term));
            self.stats.committed += 1;
        }
        Ok(())
    }

    fn look_at_role(&mut self, at: usize) -> Result<(), String> {
        let id = at as u64 + 1;
        let Node { core: Some(core), written, led, .. } = &mut self.nodes[at] else { return Ok(()) };
        let term = core.term();
        if core.role() != Role::Leader {
            *led = None;
            return Ok(());
        }
        if led.replace(term) == Some(term) {
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

    /// Everything works again: a leader must come, and everybody must come to have what it has.
    pub fn heal(&mut self) -> Result<(), String> {
        self.cut.clear();
        let fair = Weather::fair();
        for at in 0..self.nodes.len() {
            if self.nodes[at].core.is_none() {
                self.start(at);
            }
        }
        let before = self.oracle.committed.len();
        for _ in 0..400 {
            self.step(&fair)?;
        }
        if self.oracle.committed.len() <= before {
            return Err("nothing is committed in fair weather".to_string());
        }
        let told: Vec<_> = self.nodes.iter().map(|node| node.told).collect();
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
        let (loss, double, crash, cut) = (sometimes(0.2), sometimes(0.2), sometimes(0.02), sometimes(0.1));
        let unseat = sometimes(0.2);
        let delay = 1 + random.below(12);
        let sync = 0.05 + random.below(90) as f64 / 100.0;
        Self { loss, double, crash, cut, unseat, delay, sync }
    }
}

/// A run of so many steps, the weather changing every now and then.
pub fn run(seed: u64, steps: u64, planted: Planted) -> Result<Stats, String> {
    let mut random = Random::new(seed ^ 0x5EED);
    let size = [1, 3, 3, 3, 5][random.index(5)];
    let mut cluster = Cluster::new(seed, size, planted);
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
