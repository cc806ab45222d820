//! A database of several servers: which of them is asked what, and again when that comes to
//! nothing.
//!
//! ```text
//!   read version, commit, pin ──▶ the leader, as far as it is known        | each server: connections of its own,
//!   reads, watches, sizes     ──▶ the server at hand, see `choice`         | which give up at once when they are lost
//!                                        │
//!                                        ▼
//!   what waits is looked at every 50 ms (`steward`): nobody to ask yet? the leader is another one? silent for 250 ms?
//! ```
//! Most reads and read versions are left with a server's link, and become an operation (`op`) that
//! several servers are asked for only if that server fails: see `direct`.
//!
//! 1. A commit is sent once more only if no server has taken it: it never left, or whoever got it
//!    said that it doesn't lead (1037), or that its disk is broken (1510, 1521, 1522). When its
//!    connection is lost, or another server leads before it was answered, its fate is unknown
//!    (1021).
//! 2. Everything else may be asked of several servers, and the first answer counts.
//! 3. Of two servers that say who leads the one with the later term is right. One that says that
//!    nobody does is not heeded.
//! 4. Nothing fails because servers can't be reached: it waits, and the transaction's timeout ends
//!    it. Only when every server has refused this client for good (another cluster, no certificate)
//!    are those who wait told so.

mod choice;
mod direct;
mod op;
mod server;
mod steward;
mod waiting;
mod witnesses;

use super::cluster_file::{Address, ClusterFile};
use super::identity::Identity;
use super::{RemoteEndpoint, RemoteOptions, thread_number};
use choice::Choice;
use direct::Rest;
pub(super) use op::Whom;
use op::{Ask, Op};
use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, Signal};
use plinth_types::{Error, Located};
use server::Server;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use waiting::{Pending, Waiting};
use witnesses::Others;

/// Places for servers: as many as have a bit in what was tried.
const MOST_SERVERS: usize = 64;

/// How long after a cluster file couldn't be written it is tried again.
const REWRITE: Duration = Duration::from_secs(5);

/// The servers of a database.
pub(super) struct Cluster {
    env: Env,
    /// Those of the file, and behind them members that were heard of later. When all places are
    /// given, members that come get those of servers that are gone.
    servers: Vec<OnceLock<Server>>,
    options: RemoteOptions,
    database: Arc<Identity>,
    /// One at a time finds a place for a server that it has heard of.
    learning: Mutex<()>,
    /// Who leads, as far as is known.
    leader: Mutex<Leader>,
    file: Followed,
    waiting: Waiting,
    wake: Signal,
    closed: AtomicBool,
    choice: Choice,
    /// How many vote, as far as is known.
    voters: AtomicUsize,
}

/// A cluster file that names those who vote, as they change, and who is a member besides.
struct Followed {
    /// As it names the coordinators that were heard of last.
    newest: Mutex<ClusterFile>,
    /// Whether it is being written, or tried to.
    is_written: AtomicBool,
    /// Whether it is being read again.
    is_read: AtomicBool,
    /// The addresses of the members, as a server said last that knew who leads; none before.
    members: Mutex<Vec<String>>,
}

impl Followed {
    fn new(file: &ClusterFile) -> Self {
        let (is_written, is_read) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { newest: Mutex::new(file.clone()), is_written, is_read, members: Mutex::default() }
    }

    fn members(&self) -> MutexGuard<'_, Vec<String>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn newest(&self) -> MutexGuard<'_, ClusterFile> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who leads: the place of a server.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Leader {
    term: u64,
    at: Option<usize>,
}

impl Cluster {
    /// The servers that a file with several addresses names.
    pub(super) fn connect(
        env: &Env,
        file: &ClusterFile,
        options: &RemoteOptions,
        database: &Arc<Identity>,
    ) -> Arc<Self> {
        let server = |at| {
            let options = options.clone();
            Server::new(
                RemoteEndpoint::of_one(env, file.only(at), options, database.clone()),
                &file.addresses()[at],
            )
        };
        let place = |at| {
            let place = OnceLock::new();
            if at < file.addresses().len() {
                let _ = place.set(server(at));
            }
            place
        };
        let cluster = Arc::new(Self {
            env: env.clone(),
            servers: (0..MOST_SERVERS.max(file.addresses().len())).map(place).collect(),
            options: options.clone(),
            database: database.clone(),
            learning: Mutex::default(),
            leader: Mutex::default(),
            file: Followed::new(file),
            waiting: Waiting::new(options.connections),
            wake: Signal::new(),
            closed: AtomicBool::new(false),
            choice: Choice::new(env, options.connections, (file.addresses().len(), MOST_SERVERS)),
            voters: AtomicUsize::new(file.addresses().len()),
        });
        (0..file.addresses().len()).for_each(|at| cluster.is_joined(at));
        drop(env.spawn_network("steward", steward::run(cluster.clone())));
        cluster
    }

    /// Has read versions of the server at this place be counted by the others, and the others asked
    /// for what it doesn't answer.
    fn is_joined(self: &Arc<Self>, at: usize) {
        let others = || Box::new(Others::new(Arc::downgrade(self), at)) as _;
        let fallback = || Box::new(Rest::new(Arc::downgrade(self), at)) as _;
        self.server(at).endpoint().core.is_one_of_several(others, fallback);
    }

    /// Ends; who waits is told that nobody will answer.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify();
    }

    /// Asks one of the servers.
    pub(super) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        whom: Whom,
        ask: impl Fn(&RemoteEndpoint) -> Reply<T> + Send + Sync + 'static,
    ) -> Reply<T> {
        let (promise, reply) = promise();
        let ask: Ask<T> = Box::new(ask);
        let op = Op::new(whom, ask, promise);
        // A reply that is there needs nobody who looks after it.
        if !op.start(self) {
            let (place, sleeps) = self.waiting.insert(thread_number(&self.env), op.clone());
            if op.is_left_at(self, place) || sleeps {
                self.wake.notify();
            }
        }
        reply
    }

    fn leader(&self) -> Leader {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a server has said about who leads.
    pub(super) fn note(self: &Arc<Self>, at: usize, located: &Located) {
        self.server(at).introduce(located.node);
        if self.knows_members(at, located) {
            self.learn(located);
            self.follow_coordinators(located);
        }
        let place = located.leader.and_then(|leader| {
            // Servers that know nothing of each other have the same number.
            let itself = (leader == located.node).then_some(at);
            let by_address = || {
                let address = located.leader_address()?;
                self.servers().position(|server| *server.address() == *address)
            };
            let by_node = || self.servers().position(|server| server.node() == leader);
            // One that has moved was known by another address.
            itself.or_else(by_address).or_else(by_node)
        });
        let mut known = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_term = located.term == known.term;
        // Of itself a server knows where it is.
        let is_itself = located.term > 0 && place == Some(at);
        // One that knows of no leader may have a term of its own, cut off from those who have one.
        let is_newer = located.leader.is_some()
            && (located.term > known.term || is_of_term && (known.at.is_none() || is_itself));
        let is_news = known.at != place || !is_of_term;
        if is_newer && is_news {
            *known = Leader { term: located.term, at: place };
            drop(known);
            self.wake.notify();
        } else if known.at == Some(at) && place != Some(at) && located.term >= known.term {
            // It led, and doesn't any more.
            known.at = None;
        }
    }

    /// Whether a server can tell who is a member: it leads, or is of a later term than what is
    /// known; of one that follows its rows may be of before, unless nobody else is there.
    fn knows_members(&self, at: usize, located: &Located) -> bool {
        let known = self.leader();
        let leads = located.leader == Some(located.node);
        let is_leader_there = known.at.is_some_and(|it| it != at && self.server(it).is_up());
        located.term > known.term || located.term == known.term && (leads || !is_leader_there)
    }

    /// The servers that are known, in the order of their places.
    fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().map_while(OnceLock::get)
    }

    /// The cluster file, as it ought to be.
    pub(super) fn file(&self) -> ClusterFile {
        self.file.newest().clone()
    }

    /// The server with an address, whether it answers or not.
    pub(super) fn at(&self, address: &str) -> Option<&RemoteEndpoint> {
        let address = address.strip_suffix(":tls").unwrap_or(address);
        self.servers().find(|server| *server.address() == *address).map(Server::endpoint)
    }

    /// The server at a place that was given.
    fn server(&self, at: usize) -> &Server {
        self.servers[at].get().expect("a place is given once a server is there")
    }

    /// Finds a place for each member that no server is known to be: it may lead, or answer sooner.
    fn learn(self: &Arc<Self>, located: &Located) {
        if located.leader.is_some() && located.term > 0 {
            let addresses = located.members.iter().map(|member| member.address.clone()).collect();
            *self.file.members() = addresses;
        }
        if located.term > 0 {
            let addresses = located.members.iter().map(|member| member.address.as_str());
            self.find_places(&addresses.collect::<Vec<_>>());
        }
    }

    /// Finds a place for each address at which no server is known.
    fn find_places(self: &Arc<Self>, addresses: &[&str]) {
        let is_new = |address: &str| self.servers().all(|server| *server.address() != *address);
        if !addresses.iter().any(|address| is_new(address)) {
            return;
        }
        let _one = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file();
        for address in addresses.iter().filter(|address| is_new(address)) {
            let at = self.servers().count();
            let Some(file) = file.naming(&[(*address).to_owned()]) else { continue };
            let Some(place) = self.servers.get(at) else {
                self.replace(file, addresses);
                continue;
            };
            let endpoint = RemoteEndpoint::of_one(
                &self.env,
                file.only(0),
                self.options.clone(),
                self.database.clone(),
            );
            let _ = place.set(Server::new(endpoint, &file.addresses()[0]));
            self.is_joined(at);
        }
    }

    /// Gives the server of a file the place of one that is gone, if there is one: of nobody who is
    /// a member or named in the cluster file, nor of one of those for whom places are being found.
    fn replace(&self, file: ClusterFile, wanted: &[&str]) {
        let named: Vec<_> = self.file().addresses().iter().map(Address::bare).collect();
        let leader = self.leader().at;
        let is_free = |(at, server): &(usize, &Server)| {
            let address = server.address();
            let is_wanted = wanted.contains(&&*address) || named.iter().any(|it| **it == *address);
            leader != Some(*at) && !is_wanted && !self.is_member(server) && server.is_gone()
        };
        let mut free = self.servers().enumerate().filter(is_free);
        free.any(|(_, server)| server.give_way(file.clone()));
    }

    /// Finds places for the servers that the cluster file names by now, if it is of this cluster. A
    /// file may be slow to be read, so whoever asks doesn't wait for that.
    fn read_file_again(self: &Arc<Self>) {
        let file = self.file();
        if file.path().is_none() || self.file.is_read.swap(true, Ordering::AcqRel) {
            return;
        }
        let (env, cluster) = (self.env.clone(), Arc::downgrade(self));
        drop(self.env.spawn("cluster file", async move {
            let found = match file.path() {
                Some(path) => ClusterFile::read(&env, path).await.ok(),
                None => None,
            };
            let Some(cluster) = cluster.upgrade() else { return };
            if let Some(found) = found.filter(|found| found.key() == file.key()) {
                let addresses: Vec<String> = found.addresses().iter().map(Address::bare).collect();
                cluster.find_places(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
            }
            cluster.file.is_read.store(false, Ordering::Release);
        }));
    }

    /// Whether a server is a member, as far as is known.
    fn is_member(&self, server: &Server) -> bool {
        let members = self.file.members();
        members.is_empty() || members.iter().any(|address| **address == *server.address())
    }

    /// Has the cluster file name those who vote now, as FoundationDB does, if this client may write
    /// it.
    fn follow_coordinators(self: &Arc<Self>, located: &Located) {
        let votes = located.members.iter().filter(|member| member.votes);
        let voters: Vec<_> = votes.map(|member| member.address.clone()).collect();
        let next = {
            let mut file = self.file.newest();
            // Who doesn't know who leads may not know who votes either.
            let next =
                file.naming(&voters).filter(|_| located.leader.is_some() && located.term > 0);
            next.iter().for_each(|next| file.clone_from(next));
            next
        };
        if next.is_some() && !self.file.is_written.swap(true, Ordering::AcqRel) {
            drop(self.env.spawn_network("cluster file", rewrite(Arc::downgrade(self))));
        }
    }

    /// A server says that it doesn't lead, or can't be asked.
    fn leads_not(&self, at: usize) {
        let mut known = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if known.at == Some(at) {
            known.at = None;
        }
    }

    /// The server to ask, other than those in `tried` (a bit each); `None` if there is none to be
    /// asked now.
    fn choose(&self, whom: Whom, tried: u64) -> Option<usize> {
        if whom != Whom::Any {
            return self.leader().at.filter(|at| self.server(*at).is_up());
        }
        let latency = |at: usize| {
            let server = self.servers.get(at)?.get()?;
            let may_be_asked = tried & (1 << at) == 0 && server.is_up();
            may_be_asked.then(|| server.latency_us())
        };
        self.choice.choose(thread_number(&self.env), latency)
    }

    /// Whether there are servers that are none of those in `tried`, and can be asked now if they
    /// have to be.
    fn has_others(&self, tried: u64, at_once: bool) -> bool {
        let mut servers = self.servers().enumerate();
        servers.any(|(at, server)| tried & (1 << at) == 0 && (server.is_up() || !at_once))
    }

    /// Whether a member that is none of those in `lacking` may have what they lack: one that was
    /// removed, or that refuses this client, will not give it.
    fn may_have(&self, lacking: u64) -> bool {
        self.servers().enumerate().any(|(at, server)| {
            lacking & (1 << at) == 0 && server.refusal().is_none() && self.is_member(server)
        })
    }

    /// Why nobody will ever be reached, if every server has refused this client.
    fn refusal(&self) -> Option<Error> {
        self.servers().map(Server::refusal).collect::<Option<Vec<_>>>()?.pop()
    }

    /// Why no server can be reached, if that was tried with each and none was: what one of them
    /// says, if one does.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.servers().any(Server::is_up) {
            return None;
        }
        let failure = |server: &Server| server.endpoint().core.failure();
        let mut failures = self.servers().map(failure).collect::<Option<Vec<_>>>()?;
        failures.sort_by_key(|failed| failed.is_told);
        failures.pop().map(|failed| failed.why)
    }

    /// Why what is asked for waits at this moment, in words; see [`Endpoint::stalled`].
    ///
    /// [`Endpoint::stalled`]: crate::Endpoint::stalled
    pub(super) fn stalled(&self) -> Option<String> {
        if let Some(why) = self.failure() {
            return Some(format!("no server answers: {why}"));
        }
        let wants_leader = |op: &Arc<dyn Pending>| op.has_nobody() && !op.is_done();
        if self.choose(Whom::Leader, 0).is_some() || !self.waiting.any(wants_leader) {
            return None;
        }
        let away: Vec<_> =
            self.servers().filter(|server| !server.is_up()).map(Server::address).collect();
        Some(match away.len() {
            0 => "none of its servers leads".to_owned(),
            count => format!(
                "none of its servers leads; {count} of {} can't be reached ({})",
                self.servers().count(),
                away.join(", ")
            ),
        })
    }
}

/// Writes the cluster file, again and again until it says what it should: the status tells of it
/// meanwhile, see `status.rs`.
async fn rewrite(cluster: Weak<Cluster>) {
    let Some(env) = cluster.upgrade().map(|cluster| cluster.env.clone()) else { return };
    // Others on this machine may be at it.
    env.sleep(Duration::from_millis(env.random_u64() % 1000)).await;
    while let Some(cluster) =
        cluster.upgrade().filter(|cluster| !cluster.closed.load(Ordering::Acquire))
    {
        let file = cluster.file();
        let written = file.rewrite(&env).await.is_ok();
        // One that came meanwhile is written now, or has another task begun.
        if written && file == cluster.file() {
            return cluster.file.is_written.store(false, Ordering::Release);
        }
        drop(cluster);
        env.sleep(if written { Duration::ZERO } else { REWRITE }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::LocatedMember;

    fn located(node: u64, term: u64, leader: Option<u64>) -> Located {
        let member =
            |node: u64| LocatedMember { node, address: format!("127.0.0.1:{node}"), votes: true };
        Located { term, node, leader, members: (1..=3).map(member).collect() }
    }

    #[test]
    fn a_server_that_knows_of_no_leader_hides_none() {
        let env = Env::real();
        let file = ClusterFile::parse("a:b@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let cluster = Cluster::connect(&env, &file, &options, &Arc::new(Identity::new(&file)));
        let mut told = Vec::new();
        for (node, term, leader) in [
            (1, 5, Some(1)),
            // Cut off, with a term of its own.
            (2, 6, None),
            (3, 5, Some(1)),
            (3, 7, Some(3)),
            // Of before.
            (1, 5, Some(1)),
        ] {
            cluster.note(node as usize - 1, &located(node, term, leader));
            told.push(cluster.leader());
        }
        let [first, third] = [Leader { term: 5, at: Some(0) }, Leader { term: 7, at: Some(2) }];
        assert_eq!(told, [first, first, first, third, third]);
        // Who leads no more has said so, and is found again if it does all the same.
        cluster.leads_not(2);
        cluster.note(1, &located(2, 8, None));
        assert_eq!(cluster.leader().at, None);
        cluster.note(0, &located(1, 7, Some(3)));
        assert_eq!(cluster.leader(), third);
        cluster.close();
    }

    /// It was looked for at the place where it had been, and waited for there until the next term.
    #[test]
    fn a_leader_that_has_moved_is_found_at_its_new_address_whoever_names_it() {
        let env = Env::real();
        let file = ClusterFile::parse("a:b@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let cluster = Cluster::connect(&env, &file, &options, &Arc::new(Identity::new(&file)));
        cluster.note(1, &located(2, 5, Some(2)));
        assert_eq!(cluster.leader(), Leader { term: 5, at: Some(1) });
        let mut moved = located(1, 7, Some(2));
        moved.members[1].address = "127.0.0.1:4".to_owned();
        cluster.note(0, &moved);
        assert_eq!(cluster.leader(), Leader { term: 7, at: Some(3) });
        // One that hasn't heard of it names the place where it was; it knows better itself.
        cluster.note(0, &located(1, 8, Some(2)));
        assert_eq!(cluster.leader(), Leader { term: 8, at: Some(1) });
        let itself = Located { node: 2, term: 8, ..moved };
        cluster.note(3, &itself);
        cluster.note(0, &located(1, 8, Some(2)));
        assert_eq!(cluster.leader(), Leader { term: 8, at: Some(3) });
        cluster.close();
    }
}
