//! The simulated network: listeners, connections, and what stands between two machines.
//!
//! A connection is two ends; what one end writes lies in the other's inbox with the time at which
//! it arrives, in order. While the way from one machine to the other is blocked (a cut, or a
//! clog that ends by itself) nothing arrives, and nothing is lost either: that is what TCP makes of
//! it. A connection breaks when a process dies, when the plan or a test says so, or when an end is
//! dropped.
//!
//! Pure state: what a reader or writer would have to wait for is a time or a waker here; the timers
//! and handles are in `simulated/sockets`. Datagrams have `mailboxes.rs` to themselves.

mod mailboxes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::task::Waker;
use std::time::Duration;

use super::random::Random;

/// How the network between the machines of a simulation behaves. Given with
/// [`Simulation::set_network`](crate::simulated::Simulation::set_network), at any time.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkPlan {
    /// The shortest time that bytes are under way.
    pub latency_min: Duration,
    /// The longest time, unless the way is clogged.
    pub latency_max: Duration,
    /// The probability, for each write, that the way clogs.
    pub clog: f64,
    /// How long it stays so, at most.
    pub clog_max: Duration,
    /// The probability, for each write, that the connection breaks. What was under way is lost.
    pub close: f64,
    /// How long connecting is tried when nothing answers, and how long it takes, at most, until the
    /// other end of a connection notices that a machine has lost its power.
    pub silence_max: Duration,
    /// How many bytes one end may have written that the other has not read. Datagrams beyond it are
    /// lost.
    pub window: usize,
    /// The probability, for each datagram, that it is lost.
    pub lose: f64,
    /// The probability, for each datagram, that it arrives twice.
    pub repeat: f64,
}

impl Default for NetworkPlan {
    fn default() -> Self {
        Self {
            latency_min: Duration::from_micros(50),
            latency_max: Duration::from_micros(500),
            clog: 0.0,
            clog_max: Duration::from_secs(5),
            close: 0.0,
            silence_max: Duration::from_secs(10),
            window: 64 * 1024,
            lose: 0.0,
            repeat: 0.0,
        }
    }
}

impl NetworkPlan {
    /// How long something is under way.
    pub(crate) fn latency(&self, random: &mut Random) -> Duration {
        up_to(random, self.latency_min, self.latency_max)
    }
}

fn up_to(random: &mut Random, from: Duration, to: Duration) -> Duration {
    Duration::from_nanos(random.in_range(from.as_nanos() as u64..to.as_nanos() as u64 + 1))
}

/// The address of a machine.
pub(crate) fn ip_of(process: usize) -> IpAddr {
    let process = process as u32 + 1;
    Ipv4Addr::from_bits(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + process).into()
}

/// One end of a connection.
pub(crate) struct End {
    process: usize,
    address: SocketAddr,
    inbox: VecDeque<Chunk>,
    /// Bytes in the inbox.
    buffered: usize,
    /// When the last of them arrives; nothing arrives before it any more.
    last_arrival: Duration,
    /// When it gets to know that the other end has written all it will.
    end_at: Option<Duration>,
    /// When it gets to know that the connection is broken.
    broken_at: Option<Duration>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Its handle has been dropped.
    gone: bool,
}

struct Chunk {
    at: Duration,
    bytes: Vec<u8>,
    read: usize,
}

type Connection = [End; 2];

/// An end, by number of connection and side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndId {
    pub(crate) connection: u64,
    pub(crate) side: usize,
}

impl EndId {
    pub(crate) fn other(self) -> Self {
        Self { side: 1 - self.side, ..self }
    }
}

struct Listening {
    process: usize,
    backlog: VecDeque<EndId>,
    acceptors: Vec<Waker>,
}

/// Those to be woken, which the caller does outside of the lock.
pub(crate) type Wakers = Vec<Waker>;

pub(crate) struct Network {
    pub(crate) plan: NetworkPlan,
    listeners: BTreeMap<SocketAddr, Listening>,
    mailboxes: BTreeMap<SocketAddr, mailboxes::Mailbox>,
    connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    next_port: u16,
    /// Ways (from, to) on which nothing arrives.
    cuts: BTreeSet<(usize, usize)>,
    /// Ways (from, to) on which nothing arrives before a time.
    clogs: BTreeMap<(usize, usize), Duration>,
}

/// What reading or writing comes to.
pub(crate) enum Outcome<T> {
    Done(T),
    /// There is no connection (any more); others may have to be told.
    Broken(Wakers),
    /// Nothing before this time; `None` if somebody else has to act first.
    Wait(Option<Duration>),
}

fn pair(one: usize, two: usize) -> (usize, usize) {
    (one.min(two), one.max(two))
}

impl Network {
    pub(crate) fn new() -> Self {
        Self {
            plan: NetworkPlan::default(),
            listeners: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
            next_port: 32_768,
            cuts: BTreeSet::new(),
            clogs: BTreeMap::new(),
        }
    }

    /// Listens on an address, a free port if it names none. `None` if it is in use.
    pub(crate) fn listen(&mut self, process: usize, mut address: SocketAddr) -> Option<SocketAddr> {
        address.set_ip(ip_of(process));
        if address.port() == 0 {
            address.set_port(self.free_port(address.ip()));
        }
        if self.listeners.contains_key(&address) {
            return None;
        }
        let listening = Listening { process, backlog: VecDeque::new(), acceptors: Vec::new() };
        self.listeners.insert(address, listening);
        Some(address)
    }

    fn free_port(&mut self, ip: IpAddr) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(32_768);
            if !self.listeners.contains_key(&SocketAddr::new(ip, port)) {
                return port;
            }
        }
    }

    /// Stops listening; who waits in the backlog is turned away.
    pub(crate) fn stop_listening(
        &mut self,
        address: SocketAddr,
        now: Duration,
        random: &mut Random,
    ) -> Wakers {
        let Some(listening) = self.listeners.remove(&address) else { return Vec::new() };
        let mut wakers = listening.acceptors;
        for end in listening.backlog {
            wakers.extend(self.close(end, now, random));
        }
        wakers
    }

    /// The next connection that waits at a listener; with nobody there the waker is kept.
    pub(crate) fn accept(&mut self, address: SocketAddr, waker: &Waker) -> Outcome<EndId> {
        let Some(listening) = self.listeners.get_mut(&address) else {
            return Outcome::Broken(Vec::new());
        };
        if let Some(end) = listening.backlog.pop_front() {
            return Outcome::Done(end);
        }
        if !listening.acceptors.iter().any(|known| known.will_wake(waker)) {
            listening.acceptors.push(waker.clone());
        }
        Outcome::Wait(None)
    }

    /// A new connection to a listener, which gets the other end. `None` if nobody listens there.
    pub(crate) fn connect(
        &mut self,
        process: usize,
        to: SocketAddr,
        now: Duration,
    ) -> Option<(EndId, Wakers)> {
        let ip = ip_of(process);
        let from = SocketAddr::new(ip, self.free_port(ip));
        let listening = self.listeners.get_mut(&to)?;
        let connection = self.next_connection;
        self.next_connection += 1;
        let end = |process, address| End {
            process,
            address,
            inbox: VecDeque::new(),
            buffered: 0,
            last_arrival: now,
            end_at: None,
            broken_at: None,
            reader: None,
            writer: None,
            gone: false,
        };
        self.connections.insert(connection, [end(process, from), end(listening.process, to)]);
        listening.backlog.push_back(EndId { connection, side: 1 });
        Some((EndId { connection, side: 0 }, std::mem::take(&mut listening.acceptors)))
    }

    /// The machine that listens at an address.
    pub(crate) fn machine_at(address: SocketAddr, processes: usize) -> Option<usize> {
        (0..processes).find(|process| ip_of(*process) == address.ip())
    }

    pub(crate) fn address(&self, end: EndId) -> Option<SocketAddr> {
        Some(self.end(end)?.address)
    }

    fn end(&self, end: EndId) -> Option<&End> {
        self.connections.get(&end.connection).map(|ends| &ends[end.side])
    }

    fn ends(&mut self, end: EndId) -> Option<(&mut End, &mut End)> {
        let [one, two] = self.connections.get_mut(&end.connection)?;
        Some(if end.side == 0 { (one, two) } else { (two, one) })
    }

    /// When something that is due at `at` gets from one machine to the other; `None` while that way
    /// is cut.
    fn passes(&self, from: usize, to: usize, at: Duration) -> Option<Duration> {
        if self.cuts.contains(&(from, to)) {
            return None;
        }
        Some(self.clogs.get(&(from, to)).map_or(at, |until| at.max(*until)))
    }

    /// Whether nothing gets from one machine to the other at this time.
    pub(crate) fn is_blocked(&self, from: usize, to: usize, now: Duration) -> bool {
        self.passes(from, to, now) != Some(now)
    }

    /// Reads into `buffer` what has arrived: 0 bytes at the end.
    pub(crate) fn read(
        &mut self,
        id: EndId,
        now: Duration,
        buffer: &mut [u8],
    ) -> Outcome<(usize, Wakers)> {
        let Some((end, other)) =
            self.connections.get(&id.connection).map(|ends| (&ends[id.side], &ends[1 - id.side]))
        else {
            return Outcome::Broken(Vec::new());
        };
        let due = |at: Duration| self.passes(other.process, end.process, at);
        if end.broken_at.and_then(due).is_some_and(|at| at <= now) {
            return Outcome::Broken(Vec::new());
        }
        let next = end.inbox.front().map(|chunk| chunk.at).or(end.end_at);
        match next.and_then(due) {
            Some(at) if at <= now => {}
            // Whichever comes first: bytes, or the news that none will.
            at => return Outcome::Wait(at.into_iter().chain(end.broken_at.and_then(due)).min()),
        }
        let Some((end, other)) = self.ends(id) else { return Outcome::Broken(Vec::new()) };
        let mut read = 0;
        while let Some(chunk) =
            end.inbox.front_mut().filter(|chunk| chunk.at <= now && read < buffer.len())
        {
            let part = (chunk.bytes.len() - chunk.read).min(buffer.len() - read);
            buffer[read..read + part].copy_from_slice(&chunk.bytes[chunk.read..chunk.read + part]);
            read += part;
            chunk.read += part;
            if chunk.read == chunk.bytes.len() {
                end.inbox.pop_front();
            }
        }
        end.buffered -= read;
        Outcome::Done((read, other.writer.take().into_iter().collect()))
    }

    /// Sends a part of `bytes`, as much as the window takes.
    pub(crate) fn write(
        &mut self,
        id: EndId,
        now: Duration,
        bytes: &[u8],
        random: &mut Random,
    ) -> Outcome<(usize, Wakers)> {
        let latency = self.plan.latency(random);
        let (window, breaks, clogs) =
            (self.plan.window, random.chance(self.plan.close), random.chance(self.plan.clog));
        let Some((end, other)) = self.end(id).zip(self.end(id.other())) else {
            return Outcome::Broken(Vec::new());
        };
        let due = end.broken_at.and_then(|at| self.passes(other.process, end.process, at));
        let way = (end.process, other.process);
        if due.is_some_and(|at| at <= now) {
            return Outcome::Broken(Vec::new());
        }
        if other.buffered >= window {
            return Outcome::Wait(due);
        }
        if breaks {
            return Outcome::Broken(self.break_connection(id.connection, now));
        }
        if clogs {
            let until = now + up_to(random, Duration::ZERO, self.plan.clog_max);
            self.clogs.insert(way, until);
        }
        let Some((end, other)) = self.ends(id) else { return Outcome::Broken(Vec::new()) };
        let mut sent = bytes.len().min(window - other.buffered);
        // A write may take less than it could at any time.
        if sent > 1 && random.chance(0.05) {
            sent = 1 + random.index(sent - 1);
        }
        let arrival = other.last_arrival.max(now + latency);
        if other.gone {
            // The answer to what reaches a closed end is that there is no connection.
            end.broken_at.get_or_insert(arrival + latency);
        } else {
            other.last_arrival = arrival;
            other.buffered += sent;
            other.inbox.push_back(Chunk { at: arrival, bytes: bytes[..sent].to_vec(), read: 0 });
        }
        Outcome::Done((sent, other.reader.take().into_iter().collect()))
    }

    /// Says that this end has written all it will.
    pub(crate) fn shut_down(&mut self, id: EndId, now: Duration, random: &mut Random) -> Wakers {
        let latency = self.plan.latency(random);
        let Some((_, other)) = self.ends(id) else { return Vec::new() };
        other.last_arrival = other.last_arrival.max(now + latency);
        other.end_at.get_or_insert(other.last_arrival);
        other.reader.take().into_iter().collect()
    }

    /// Drops an end. The other reads what was sent; what it writes from some time on breaks the
    /// connection.
    pub(crate) fn close(&mut self, id: EndId, now: Duration, random: &mut Random) -> Wakers {
        let mut wakers = self.shut_down(id, now, random);
        let latency = self.plan.latency(random);
        let Some((end, other)) = self.ends(id) else { return wakers };
        end.gone = true;
        let unread = !end.inbox.is_empty();
        end.inbox.clear();
        end.buffered = 0;
        if unread {
            // As TCP has it: data that nobody will read resets the connection.
            let at = other.last_arrival.max(now + latency);
            other.broken_at.get_or_insert(at);
        }
        wakers.extend(other.writer.take());
        if other.gone {
            self.connections.remove(&id.connection);
        }
        wakers
    }

    /// Drops an end such that the other is told that the connection broke, and not that this was
    /// all.
    pub(crate) fn reset(&mut self, id: EndId, now: Duration, random: &mut Random) -> Wakers {
        let latency = self.plan.latency(random);
        let Some((end, other)) = self.ends(id) else { return Vec::new() };
        end.gone = true;
        end.inbox.clear();
        end.buffered = 0;
        if other.end_at.is_none() {
            other.broken_at.get_or_insert(other.last_arrival.max(now + latency));
        }
        let wakers = other.reader.take().into_iter().chain(other.writer.take()).collect();
        if other.gone {
            self.connections.remove(&id.connection);
        }
        wakers
    }

    /// Keeps the waker of a reader or writer that has to wait.
    pub(crate) fn keep(&mut self, id: EndId, reads: bool, waker: &Waker) -> Option<Waker> {
        let (end, _) = self.ends(id)?;
        let place = if reads { &mut end.reader } else { &mut end.writer };
        place.replace(waker.clone())
    }

    /// Breaks a connection on both ends; what is under way is lost.
    fn break_connection(&mut self, connection: u64, now: Duration) -> Wakers {
        let Some(ends) = self.connections.get_mut(&connection) else { return Vec::new() };
        let mut wakers = Vec::new();
        for end in ends {
            end.broken_at = Some(end.broken_at.map_or(now, |at| at.min(now)));
            end.inbox.clear();
            end.buffered = 0;
            wakers.extend(end.reader.take());
            wakers.extend(end.writer.take());
        }
        wakers
    }

    /// Breaks the connections between two machines.
    pub(crate) fn break_between(&mut self, one: usize, two: usize, now: Duration) -> Wakers {
        self.between(one, two)
            .into_iter()
            .flat_map(|connection| self.break_connection(connection, now))
            .collect()
    }

    fn between(&self, one: usize, two: usize) -> Vec<u64> {
        let wanted = pair(one, two);
        let is_theirs = |ends: &Connection| pair(ends[0].process, ends[1].process) == wanted;
        self.connections
            .iter()
            .filter(|(_, ends)| is_theirs(ends))
            .map(|(connection, _)| *connection)
            .collect()
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    /// Ends a cut or clog. Those who waited because of it are woken.
    pub(crate) fn heal(&mut self, one: usize, two: usize) -> Wakers {
        self.cuts.remove(&(one, two));
        self.cuts.remove(&(two, one));
        self.clogs.remove(&(one, two));
        self.clogs.remove(&(two, one));
        let mut wakers = Vec::new();
        for connection in self.between(one, two) {
            for end in self.connections.get_mut(&connection).into_iter().flatten() {
                wakers.extend(end.reader.take());
                wakers.extend(end.writer.take());
            }
        }
        wakers
    }

    pub(crate) fn clog(&mut self, one: usize, two: usize, until: Duration) {
        for way in [(one, two), (two, one)] {
            let clog = self.clogs.entry(way).or_default();
            *clog = (*clog).max(until);
        }
    }

    /// A process ends. The other ends of its connections get to know it soon if its machine goes
    /// on, and sometime if it has lost its power.
    pub(crate) fn process_ended(
        &mut self,
        process: usize,
        power: bool,
        now: Duration,
        random: &mut Random,
    ) -> Wakers {
        let ended: Vec<_> =
            self.listeners.extract_if(.., |_, listening| listening.process == process).collect();
        let mut wakers: Wakers =
            ended.into_iter().flat_map(|(_, listening)| listening.acceptors).collect();
        wakers.extend(self.close_mailboxes(process));
        let plan = self.plan.clone();
        let mut over = Vec::new();
        for (connection, ends) in &mut self.connections {
            for side in 0..2 {
                if ends[side].process != process {
                    continue;
                }
                let delay = match power {
                    true => up_to(random, plan.latency_min, plan.silence_max),
                    false => plan.latency(random),
                };
                let [end, other] = ends;
                let (end, other) = if side == 0 { (end, other) } else { (other, end) };
                end.gone = true;
                wakers.extend(end.reader.take());
                wakers.extend(end.writer.take());
                other.broken_at.get_or_insert(now + delay);
                wakers.extend(other.reader.take());
                wakers.extend(other.writer.take());
            }
            if ends.iter().all(|end| end.gone) {
                over.push(*connection);
            }
        }
        for connection in over {
            self.connections.remove(&connection);
        }
        wakers
    }
}
