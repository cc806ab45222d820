//! A machine between clients and a server that has commits arrive twice.
//!
//! It understands frames. Of most commits a double is sent: right behind the first on the same
//! connection, beside it on a connection of its own, after it was answered, or after its connection
//! broke. The double's answer is heard here alone.
//!
//! ```text
//!   client ◀── requests, answers ──▶ between ◀── first: everything; doubles under ids of their own ──▶ server
//!                                       └─────── second: doubles ─────────────────────────────────────▶
//! ```
//!
//! What nodes of a cluster say to each other passes as it is.
//!
//! What always holds: of each pair at most one is answered that it has committed. A client that is
//! told of a conflict because its double was faster tries again, and a transaction that reads no
//! mark of its own would take effect once more; where such clients are, doubles come
//! [later](Doubles::Later).

use plinth_env::simulated::{Random, Simulation};
use plinth_env::{Env, Stream};
use plinth_peers::Mesh;
use plinth_proto::frame::{self, HEADER, Kind, MAX_REPLY, MAX_REQUEST, NO_ID};
use plinth_proto::{Hello, Request, Welcome, reply};
use plinth_types::{CommitReply, Error, Result, probe};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Ids of doubles; clients count theirs from 0.
const DOUBLE: u32 = 1 << 31;
/// Of so many commits in ten a double is sent.
const DOUBLED: f64 = 0.8;
/// Bytes that are received at a time.
const RECEIVE: usize = 4096;

/// When doubles come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubles {
    /// Once the first was answered, or its connection broke.
    Later,
    /// At any time; of commits with an idempotency id, whose clients read no mark, later.
    AnyTime,
}

/// What became of doubled commits.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// How many answers each commit of which a double was sent had, and how many of them said that
    /// it has committed.
    pub commits: BTreeMap<u32, (u32, u32)>,
    /// How many doubles committed in place of the first.
    pub overtaken: u64,
    /// What must not be, and was.
    pub violation: Option<String>,
}

/// The machine between.
pub struct Between {
    /// Where clients connect to it.
    pub address: SocketAddr,
    /// The machine, and the one that second connections come from.
    pub machines: [Env; 2],
    tally: Arc<Mutex<Tally>>,
}

impl Between {
    /// Stands between clients and a server that is, or will be, at `server`.
    pub fn stand(sim: &Simulation, server: SocketAddr, doubles: Doubles) -> Self {
        // Each server has machines of its own.
        let machines = ["between", "double"].map(|name| sim.process(&format!("{name} {server}")));
        let address = SocketAddr::new(sim.ip(&machines[0]), server.port());
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let accepting =
            accept(machines.clone(), [address, server], doubles, sim.random(), tally.clone());
        drop(machines[0].spawn("between", accepting));
        Self { address, machines, tally }
    }

    /// What must not be, and was.
    pub fn violation(&self) -> Option<String> {
        lock(&self.tally).violation.clone()
    }

    /// What became of doubled commits so far.
    pub fn tally(&self) -> Tally {
        lock(&self.tally).clone()
    }
}

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Between").field("address", &self.address).finish_non_exhaustive()
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(
    [env, other]: [Env; 2],
    [address, server]: [SocketAddr; 2],
    doubles: Doubles,
    mut random: Random,
    tally: Arc<Mutex<Tally>>,
) {
    let listening = env.sockets().listen(address).await;
    let Ok(listener) = listening else {
        lock(&tally).violation = Some(format!("nobody can stand at {address}"));
        return;
    };
    loop {
        let Ok(client) = listener.accept().await else { continue };
        let (theirs, other, tally, random) =
            (env.clone(), other.clone(), tally.clone(), random.split());
        drop(env.spawn("pass on", async move {
            let first = theirs.sockets().connect(server).await;
            let second = other.sockets().connect(server).await;
            if let (Ok(first), Ok(second)) = (first, second) {
                Pair::new([client, first, second], doubles, random, tally).run().await;
            }
        }));
    }
}

/// One stream until it breaks, with what was received and what is to be sent.
struct Side {
    stream: Option<Stream>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Side {
    fn new(stream: Stream) -> Self {
        Self { stream: Some(stream), input: Vec::new(), output: Vec::new() }
    }

    /// Receives and sends what it can; says whether anything moved.
    fn turn(&mut self, context: &mut Context<'_>) -> bool {
        let mut buffer = [0; RECEIVE];
        let mut moved = false;
        while let Some(stream) = &mut self.stream {
            match stream.poll_receive(context, &mut buffer) {
                Poll::Ready(Ok(more @ 1..)) => self.input.extend_from_slice(&buffer[..more]),
                Poll::Ready(_) => self.stream = None,
                Poll::Pending => break,
            }
            moved = true;
        }
        while let Some(stream) = &mut self.stream
            && !self.output.is_empty()
        {
            match stream.poll_send(context, &self.output) {
                Poll::Ready(Ok(sent @ 1..)) => drop(self.output.drain(..sent)),
                Poll::Ready(_) => self.stream = None,
                Poll::Pending => break,
            }
            moved = true;
        }
        moved
    }

    /// The next frame, whole: its id, its kind and its bytes.
    fn frame(&mut self, max_body: usize) -> Result<Option<(u32, u8, Vec<u8>)>> {
        let Some(frame) = frame::split(&self.input, max_body)? else { return Ok(None) };
        let (id, kind, len) = (frame.id, frame.kind, frame.len());
        Ok(Some((id, kind, self.input.drain(..len).collect())))
    }
}

/// One connection of a client, and the two that are made of it.
struct Pair {
    client: Side,
    first: Side,
    second: Side,
    /// Whether the client is another node.
    is_peer: bool,
    greeted: bool,
    /// Whether each of the two has been welcomed.
    welcomed: [bool; 2],
    /// Numbers of commits that have a double, by their ids at the client.
    under_way: BTreeMap<u32, u32>,
    /// Doubles that come once the first is answered, by its number.
    waiting: BTreeMap<u32, Vec<u8>>,
    doubles: Doubles,
    random: Random,
    tally: Arc<Mutex<Tally>>,
}

impl Pair {
    fn new(
        streams: [Stream; 3],
        doubles: Doubles,
        random: Random,
        tally: Arc<Mutex<Tally>>,
    ) -> Self {
        let [client, first, second] = streams.map(Side::new);
        let (under_way, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self {
            client,
            first,
            second,
            is_peer: false,
            greeted: false,
            welcomed: [false; 2],
            under_way,
            waiting,
            doubles,
            random,
            tally,
        }
    }

    async fn run(mut self) {
        let passed = poll_fn(|context| self.pass(context)).await;
        // The client sees its connection break, and its doubles arrive all the same.
        (self.client.stream, self.first.stream) = (None, None);
        if self.is_peer {
            return;
        }
        for double in std::mem::take(&mut self.waiting).into_values() {
            probe!("link: double after its connection broke");
            self.second.output.extend(double);
        }
        let ended = match passed {
            Ok(()) => poll_fn(|context| self.end(context)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            lock(&self.tally).violation = Some(format!("one of two sides said nonsense: {error}"));
        }
    }

    /// Passes on what comes until the client's connection, or the first of the two, has ended.
    fn pass(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let mut moved = self.client.turn(context);
            moved |= self.first.turn(context);
            moved |= self.second.turn(context);
            self.is_peer |= !self.greeted && Mesh::is_peer(&self.client.input) == Some(true);
            if self.is_peer {
                self.first.output.append(&mut self.client.input);
                self.client.output.append(&mut self.first.input);
                self.second.stream = None;
            }
            let heard = [self.greet(), self.hear_client(), self.hear_first(), self.hear_second()];
            heard.into_iter().collect::<Result<()>>()?;
            if self.client.stream.is_none() || self.first.stream.is_none() {
                return Poll::Ready(Ok(()));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    /// Sends what is left to the second connection, and hears what comes back until it ends.
    fn end(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while self.second.turn(context) {
            self.greet()?;
            self.hear_second()?;
        }
        if self.second.stream.is_some() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Both connections are greeted as the client greets, and the first one's welcome is the
    /// client's.
    fn greet(&mut self) -> Result<()> {
        if !self.greeted && Mesh::is_peer(&self.client.input) != Some(false) {
            return Ok(());
        }
        if !self.greeted
            && let Some((_, len)) = Hello::decode(&self.client.input)?
        {
            let hello: Vec<u8> = self.client.input.drain(..len).collect();
            self.first.output.extend_from_slice(&hello);
            self.second.output.extend(hello);
            self.greeted = true;
        }
        if !self.welcomed[0]
            && let Some((_, len)) = Welcome::decode(&self.first.input)?
        {
            self.client.output.extend(self.first.input.drain(..len));
            self.welcomed[0] = true;
        }
        if !self.welcomed[1]
            && let Some((_, len)) = Welcome::decode(&self.second.input)?
        {
            self.second.input.drain(..len);
            self.welcomed[1] = true;
        }
        Ok(())
    }

    /// Requests go to the first connection; of most commits a double goes somewhere, some time.
    fn hear_client(&mut self) -> Result<()> {
        while self.greeted
            && let Some((id, kind, bytes)) = self.client.frame(MAX_REQUEST)?
        {
            if kind != Kind::Commit as u8 || !self.random.chance(DOUBLED) {
                self.first.output.extend(bytes);
                continue;
            }
            let number = {
                let mut tally = lock(&self.tally);
                let number = tally.commits.len() as u32;
                tally.commits.insert(number, (0, 0));
                number
            };
            self.under_way.insert(id, number);
            let mut double = bytes.clone();
            frame::set_id(&mut double, DOUBLE | number);
            let is_later = self.doubles == Doubles::Later || has_idempotency_id(&bytes)?;
            self.first.output.extend(bytes);
            match self.random.below(3) {
                0 if !is_later => self.first.output.extend(double),
                1 if !is_later => self.second.output.extend(double),
                _ => drop(self.waiting.insert(number, double)),
            }
        }
        Ok(())
    }

    fn hear_first(&mut self) -> Result<()> {
        while self.welcomed[0]
            && let Some((id, kind, bytes)) = self.first.frame(MAX_REPLY)?
        {
            if id & DOUBLE != 0 && id != NO_ID {
                self.count(id & !DOUBLE, kind, &bytes, true);
                continue;
            }
            if let Some(number) = self.under_way.remove(&id) {
                self.count(number, kind, &bytes, false);
                if let Some(double) = self.waiting.remove(&number) {
                    probe!("link: double after its answer");
                    self.second.output.extend(double);
                }
            }
            self.client.output.extend(bytes);
        }
        Ok(())
    }

    fn hear_second(&mut self) -> Result<()> {
        while self.welcomed[1]
            && let Some((id, kind, bytes)) = self.second.frame(MAX_REPLY)?
        {
            if id != NO_ID {
                self.count(id & !DOUBLE, kind, &bytes, true);
            }
        }
        Ok(())
    }

    fn count(&self, number: u32, kind: u8, bytes: &[u8], is_double: bool) {
        let has_committed = kind == Kind::CommitReply as u8
            && matches!(reply::commit(&bytes[HEADER..]), Ok(CommitReply::Committed { .. }));
        let mut tally = lock(&self.tally);
        let tally = &mut *tally;
        let (answers, committed) = tally.commits.entry(number).or_default();
        *answers += 1;
        *committed += u32::from(has_committed);
        if *committed > 1 {
            tally.violation =
                Some("a commit that arrived twice was answered twice that it has committed".into());
        }
        tally.overtaken += u64::from(is_double && has_committed);
    }
}

/// Whether a commit, which is a whole frame, has an idempotency id.
fn has_idempotency_id(frame: &[u8]) -> Result<bool> {
    match frame::split(frame, MAX_REQUEST)?.map(|frame| Request::decode(&frame)).transpose()? {
        Some(Request::Commit(commit)) => Ok(commit.idempotency_id.is_some()),
        _ => Err(Error::client_invalid_operation().with_detail("a commit that is none")),
    }
}
