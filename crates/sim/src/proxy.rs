//! Machines in between that cut and delay what real servers say to each other.
//!
//! ```text
//!   server 1 ──▶ proxy of server 2 ──▶ server 2        who calls is told by the first thing that servers say;
//!   client   ──▶       "           ──▶    "            clients say nothing of that kind, and are never cut off
//! ```
//!
//! A cut is one direction between two servers, whichever of them has called. What is sent meanwhile
//! waits, as behind a switch that is gone; a server that gives a connection up makes another one,
//! and nothing comes through that either.

use plinth_env::sync::race;
use plinth_env::{Env, Stream, Task};
use plinth_peers::hello::Hello;
use plinth_types::Result;
use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// How often it is looked whether something that was delayed is due, or a cut has been healed.
const TICK: Duration = Duration::from_millis(2);
/// So many bytes wait in one direction; then nothing more is taken.
const MOST: usize = 1 << 20;
/// Longest first message of a server.
const LONGEST_HELLO: usize = 16 << 10;

#[derive(Default)]
struct Rules {
    /// From which server to which nothing comes through.
    cut: BTreeSet<(u64, u64)>,
    delay: Duration,
}

/// A proxy for each server of a cluster. Servers are told by the numbers of their nodes, from 1.
pub struct Proxies {
    addresses: Vec<SocketAddr>,
    rules: Arc<Mutex<Rules>>,
    tasks: Vec<Task>,
}

fn lock(rules: &Mutex<Rules>) -> MutexGuard<'_, Rules> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxies {
    /// Stands before servers that listen at these addresses, on ports that are free.
    ///
    /// # Errors
    /// Those of listening.
    pub async fn stand(env: &Env, servers: &[SocketAddr]) -> Result<Self> {
        let rules = Arc::<Mutex<Rules>>::default();
        let (mut addresses, mut tasks) = (Vec::new(), Vec::new());
        for (at, server) in servers.iter().enumerate() {
            let listener = env.sockets().listen(SocketAddr::new(server.ip(), 0)).await?;
            addresses.push(listener.local_address());
            let (env, rules, server, called) = (env.clone(), rules.clone(), *server, at as u64 + 1);
            let accepting = env.clone();
            tasks.push(accepting.spawn_network("proxy", async move {
                while let Ok(stream) = listener.accept().await {
                    let connecting = env.clone();
                    let (env, rules) = (env.clone(), rules.clone());
                    drop(connecting.spawn_network("connection", async move {
                        let _ = connection(&env, &rules, stream, (server, called)).await;
                    }));
                }
            }));
        }
        Ok(Self { addresses, rules, tasks })
    }

    /// Where they listen, one for each server.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Nothing comes from one server to the other any more.
    pub fn cut(&self, from: u64, to: u64) {
        lock(&self.rules).cut.insert((from, to));
    }

    /// Everything between servers comes later by this.
    pub fn delay(&self, by: Duration) {
        lock(&self.rules).delay = by;
    }

    /// Everything comes through at once.
    pub fn heal(&self) {
        *lock(&self.rules) = Rules::default();
    }
}

impl std::fmt::Debug for Proxies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxies")
            .field("addresses", &self.addresses)
            .field("tasks", &self.tasks.len())
            .finish()
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Way {
    /// What waits, since when it may go.
    waiting: VecDeque<(Duration, Vec<u8>)>,
    len: usize,
    is_ended: bool,
}

impl Way {
    fn push(&mut self, due: Duration, bytes: &[u8]) {
        self.len += bytes.len();
        self.waiting.push_back((due, bytes.to_vec()));
    }

    /// Moves what can be moved; true once there will be nothing more.
    fn move_on(
        &mut self,
        context: &mut Context<'_>,
        (from, to): (&mut Stream, &mut Stream),
        (now, delay): (Duration, Duration),
    ) -> std::io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        while self.len < MOST && !self.is_ended {
            match from.poll_receive(context, &mut buffer)? {
                Poll::Ready(0) => self.is_ended = true,
                Poll::Ready(len) => self.push(now + delay, &buffer[..len]),
                Poll::Pending => break,
            }
        }
        while let Some((due, bytes)) = self.waiting.front_mut().filter(|(due, _)| *due <= now) {
            let due = *due;
            let Poll::Ready(sent) = to.poll_send(context, bytes)? else { break };
            self.len -= sent;
            let rest = bytes.split_off(sent);
            self.waiting.pop_front();
            if !rest.is_empty() {
                self.waiting.push_front((due, rest));
            }
        }
        let _ = to.poll_flush(context)?;
        Ok(self.is_ended && self.waiting.is_empty())
    }
}

/// Passes on what both sides say, until one of them ends.
async fn connection(
    env: &Env,
    rules: &Mutex<Rules>,
    mut caller: Stream,
    (server, called): (SocketAddr, u64),
) -> Result<()> {
    let mut first = Vec::new();
    let from = first_words(&mut caller, &mut first).await?;
    let mut target = env.sockets().connect(server).await?;
    let mut ways = [Way::default(), Way::default()];
    ways[0].push(env.now(), &first);
    loop {
        let moved = poll_fn(|context| {
            let (is_cut, delay) = {
                let rules = lock(rules);
                let is_cut = [(from, called), (called, from)].map(|pair| rules.cut.contains(&pair));
                (is_cut, if from == 0 { Duration::ZERO } else { rules.delay })
            };
            let clock = (env.now(), delay);
            let [there, back] = &mut ways;
            let there = match is_cut[0] {
                true => Ok(false),
                false => there.move_on(context, (&mut caller, &mut target), clock),
            };
            let back = match is_cut[1] {
                true => Ok(false),
                false => back.move_on(context, (&mut target, &mut caller), clock),
            };
            match (there, back) {
                (Ok(false), Ok(false)) => Poll::Pending,
                _ => Poll::Ready(()),
            }
        });
        if let plinth_env::sync::First::Left(()) = race(moved, env.sleep(TICK)).await {
            return Ok(());
        }
    }
}

/// Which server has called; 0 if it is a client, or a server that is no node yet.
async fn first_words(caller: &mut Stream, first: &mut Vec<u8>) -> Result<u64> {
    loop {
        match Hello::decode(first) {
            Ok(Some((hello, _))) => return Ok(hello.from),
            // Somebody who says something else.
            Err(_) => return Ok(0),
            Ok(None) if first.len() > LONGEST_HELLO => return Ok(0),
            Ok(None) => {}
        }
        let mut buffer = [0; 1024];
        let received = poll_fn(|context| caller.poll_receive(context, &mut buffer)).await;
        match received {
            Ok(len) if len > 0 => first.extend_from_slice(&buffer[..len]),
            _ => return Err(plinth_types::Error::connection_failed()),
        }
    }
}
