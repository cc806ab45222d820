//! A connection from another node: who it is, and the frames that it sends.
//!
//! Nothing that arrives is believed before the caller has proven that it has the cluster's secret,
//! and with TLS has shown a certificate as nodes must. Then frames are taken, each of which must be
//! from that node and for this one. The first byte that no node would send ends the connection.
//!
//! How a new node gets into a cluster that has begun.
//!
//! ```text
//!   new node   calls members: take me in, I am at A ─────▶ the one that leads
//!                                                           calls A: there is an empty node, which listens there
//!                                                           commits that it is a member and follows
//!   makes its directory  ◀──── charter, its number, who the members are
//! ```
//!
//! The charter, with the secret in it, goes to whoever listens at A and nobody else, as when a
//! cluster is formed: with TLS both sides have shown certificates as nodes must; without, A is on
//! this machine, or operators have said that nodes may speak in the clear. A node that crashes on
//! the way asks again, and gets another number: the first one is never used.

use crate::failure::{PeerError, PeerResult};
use crate::hello::{Hello, Purpose, Stage, Welcome, Word};
use crate::link::{Link, Said};
use crate::outbox::Item;
use crate::packet::{self, Kind, Pieces};
use crate::secret::LEN;
use crate::shared::Shared;
use crate::talk::{PATIENCE, Talk, lost};
use crate::trust;
use plinth_env::sync::{First, race};
use plinth_env::{Sleep, Stream};
use plinth_replication::{Frame, NodeId, Parcel, Spoken};
use plinth_types::Bytes;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often it is looked whether the connection still counts.
const TICK: Duration = Duration::from_secs(1);
/// So many silent ticks, and the caller has gone: it pings more often than that.
const SILENT: u32 = 5;
/// How long it may take to take in a node, the making of its directory included.
const JOINING: Duration = Duration::from_secs(30);
/// Bytes received at a time.
const RECEIVE: usize = 128 << 10;
/// Turns before other tasks of the thread have theirs.
const TURNS: usize = 16;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Speaks with a caller until the connection ends.
pub(crate) async fn run(shared: Arc<Shared>, stream: Stream, first: Vec<u8>) {
    let from = stream.peer_address();
    let mut talk = Talk::new(stream, first);
    let why = match race(greet(&shared, &mut talk), shared.env.sleep(PATIENCE)).await {
        First::Left(Ok(Visit::Joins(address, spoken))) => {
            return join(&shared, talk, (&address, spoken)).await;
        }
        First::Left(Ok(Visit::Member(link, said))) => {
            let link = shared.meet(link);
            let session = Session::new(shared.clone(), link.clone(), talk, said);
            let number = session.number;
            let why = session.await;
            link.is_lost(number);
            if why.is_misbehaviour() {
                link.outbox.refused();
                tracing::warn!(node = link.node, %from, %why, "a node says what none should say");
            }
            return;
        }
        // It asked, and was answered.
        First::Left(Ok(Visit::Asked)) | First::Right(()) => return,
        First::Left(Err(why)) => why,
    };
    tracing::warn!(%from, %why, "a node is refused");
    let mut words = Vec::new();
    Welcome::refuse(why).encode(&mut words);
    race(talk.part(&words), shared.env.sleep(PATIENCE)).await;
}

/// What a caller wants.
enum Visit {
    /// To send frames, having said this of itself.
    Member(Arc<Link>, Said),
    /// To be taken in, at this address, with a program that speaks this.
    Joins(String, Spoken),
    /// To know how things stand here, which it was told.
    Asked,
}

/// Comes to know the caller.
async fn greet(shared: &Shared, talk: &mut Talk) -> PeerResult<Visit> {
    // The proof is over the hello as it was sent.
    let (hello, hello_bytes) = talk
        .hear(|bytes| {
            Ok(Hello::decode(bytes)?.map(|(hello, len)| ((hello, bytes[..len].to_vec()), len)))
        })
        .await?;
    shared.trust.check(&talk.stream)?;
    let standing = &shared.standing;
    let is_removed = hello.purpose == Purpose::Frames
        && hello.cluster_id == standing.charter.cluster_id
        && shared.was_removed(hello.from);
    let version = match hello.choose(shared.trust.spoken) {
        // No program that it could be given would have it take part again.
        Err(why) if is_removed => return Err(removed(hello.from, &why)),
        version => version?,
    };
    if hello.purpose != Purpose::Forming && !is_removed {
        may_be_member(shared, &hello)?;
    }
    let visit = match hello.purpose {
        Purpose::Forming | Purpose::Joining if hello.cluster != standing.charter.cluster => {
            return Err(PeerError::Mismatch(format!(
                "a server of the cluster {} is there, and the cluster file names {}",
                standing.charter.cluster, hello.cluster
            )));
        }
        Purpose::Forming => Visit::Asked,
        Purpose::Joining => Visit::Joins(hello.address.clone(), hello.spoken),
        Purpose::Frames if is_removed => Visit::Asked,
        Purpose::Frames => Visit::Member(known(shared, &hello)?, Said::of(&hello)),
    };
    let mut welcome = Welcome {
        version,
        refused: None,
        cluster_id: standing.charter.cluster_id,
        node: standing.node,
        stage: Stage::Begun,
        nonce: [0; LEN],
        proof: [0; LEN],
    };
    shared.env.fill_random(&mut welcome.nonce);
    let secret = &standing.charter.secret;
    let [said, answered] = Welcome::parts(&hello_bytes, &welcome);
    welcome.proof = secret.prove("welcome", &[&said, &answered]);
    let mut bytes = Vec::new();
    welcome.encode(&mut bytes);
    talk.say(&bytes).await?;
    if hello.purpose != Purpose::Frames {
        return Ok(visit);
    }
    let verdict = match talk.hear(Word::decode).await? {
        Word::Proof(proof) if secret.accepts(&proof, "caller", &[&said, &answered]) => Ok(()),
        _ => Err(PeerError::Untrusted("the caller doesn't know this cluster's secret".to_owned())),
    };
    let mut bytes = Vec::new();
    match (&verdict, &visit) {
        (Ok(()), Visit::Asked) => Word::Removed.encode(&mut bytes),
        _ => Word::Verdict(verdict.clone().map_err(Into::into)).encode(&mut bytes),
    }
    talk.say(&bytes).await?;
    if verdict.is_ok() {
        shared.is_heard_at(hello.from, &hello.address);
    }
    verdict.map(|()| visit)
}

/// Takes in a caller that asks for it, and says what has become of that.
async fn join(shared: &Arc<Shared>, mut talk: Talk, (address, spoken): (&str, Spoken)) {
    let verdict = match race(take_in(shared, address, spoken), shared.env.sleep(JOINING)).await {
        First::Left(verdict) => verdict,
        First::Right(()) => Err(PeerError::TimedOut),
    };
    match &verdict {
        Ok(node) => tracing::info!(node, address, "a new node was taken in"),
        // It asks everybody who leads, several times a second.
        Err(why) if why.is_behind() => {}
        Err(why) if shared.is_news_of(address, &why.summary()) => {
            tracing::warn!(address, %why, "a node can't be taken in");
        }
        Err(_) => {}
    }
    let mut bytes = Vec::new();
    Word::Verdict(verdict.map(drop).map_err(Into::into)).encode(&mut bytes);
    let _ = race(talk.say(&bytes), shared.env.sleep(PATIENCE)).await;
}

/// Calls a node that wants to join, takes it in, and gives it what it needs. Gives its number.
async fn take_in(shared: &Arc<Shared>, address: &str, spoken: Spoken) -> PeerResult<NodeId> {
    let Some(take_in) = shared.hooks.take_in.get() else {
        return Err(PeerError::Behind("this node is yet to begin".to_owned()));
    };
    let mut talk = match race(call_back(shared, address), shared.env.sleep(PATIENCE)).await {
        First::Left(talk) => talk?,
        First::Right(()) => {
            let detail = format!("nobody answers at {address}");
            return Err(PeerError::Unreachable(detail));
        }
    };
    let (node, members, index) = take_in(address.to_owned()).await?;
    // It may have risen since it was looked at; it doesn't any more while a member hasn't said what
    // it speaks.
    spoken.check(members.protocol)?;
    let mut bytes = Vec::new();
    let charter = shared.standing.charter.clone();
    Word::Join(charter, node, (*members).clone(), index).encode(&mut bytes);
    talk.say(&bytes).await?;
    match talk.hear(Word::decode).await? {
        Word::Verdict(verdict) => Ok(verdict.map(|()| node)?),
        _ => Err(PeerError::malformed("no verdict")),
    }
}

/// Whether there is an empty node at this address, of the same cluster file.
async fn call_back(shared: &Shared, address: &str) -> PeerResult<Talk> {
    let stream = trust::connect(&shared.env, &shared.trust, address).await?;
    if !shared.trust.may_speak_to(&stream) {
        let detail = format!(
            "{address} can be reached by other machines, and nodes speak in the clear there: give certificates, or allow it (--without-tls)"
        );
        return Err(PeerError::Untrusted(detail));
    }
    let mut talk = Talk::new(stream, Vec::new());
    let charter = &shared.standing.charter;
    let mut nonce = [0; LEN];
    shared.env.fill_random(&mut nonce);
    let hello = Hello {
        spoken: shared.trust.spoken,
        purpose: Purpose::Joining,
        cluster: charter.cluster.clone(),
        cluster_id: charter.cluster_id,
        from: shared.standing.node,
        to: 0,
        nonce,
        address: shared.own_address(),
        addresses: String::new(),
        window: shared.trust.window,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    talk.say(&bytes).await?;
    let welcome = talk.hear(Welcome::decode).await?;
    match welcome.refused {
        Some(why) => Err(why.into()),
        None if welcome.stage == Stage::Empty => Ok(talk),
        None => {
            let detail = format!("the server at {address} is a node already");
            Err(PeerError::Mismatch(detail))
        }
    }
}

/// Why a node is refused that is no member any more, and with which this one has no version of the
/// protocol in common.
fn removed(node: NodeId, why: &PeerError) -> PeerError {
    let why = why.summary();
    PeerError::Mismatch(format!(
        "node {node} was removed from the cluster; to have that server take part again, as a new node, start it with an empty directory and a \
         newer program ({why})"
    ))
}

/// Whether the caller's program can read what this cluster writes.
fn may_be_member(shared: &Shared, hello: &Hello) -> PeerResult<()> {
    let is_of_another =
        hello.purpose == Purpose::Frames && hello.cluster_id != shared.standing.charter.cluster_id;
    if is_of_another { Ok(()) } else { Ok(hello.spoken.check(shared.protocol())?) }
}

/// The link of a caller that says it is a member.
fn known(shared: &Shared, hello: &Hello) -> PeerResult<Arc<Link>> {
    let standing = &shared.standing;
    let refuse = |what: String| Err(PeerError::Mismatch(what));
    if hello.cluster_id != standing.charter.cluster_id {
        let [ours, theirs] = [&standing.charter.cluster, &hello.cluster];
        let what = if ours == theirs {
            "two clusters have that description and id: give each a cluster file of its own"
        } else {
            "one of both has the address of the other"
        };
        return refuse(format!(
            "this is a node of another cluster, {ours}, than that of the caller, {theirs} ({what})"
        ));
    }
    if hello.to != standing.node {
        return refuse(format!("this is node {}, not node {}", standing.node, hello.to));
    }
    match shared.link(hello.from).or_else(|| shared.newcomer(hello)) {
        Some(link) => Ok(link),
        None => refuse(format!("there is no node {} in this cluster", hello.from)),
    }
}

/// A connection while it lasts.
struct Session {
    shared: Arc<Shared>,
    link: Arc<Link>,
    stream: Stream,
    number: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    pieces: Pieces,
    /// Whether the caller takes answers on this connection.
    takes_answers: bool,
    silent: u32,
    tick: Sleep,
}

impl Session {
    fn new(shared: Arc<Shared>, link: Arc<Link>, talk: Talk, said: Said) -> Self {
        let number = link.is_called(said);
        // Whoever calls can be called.
        link.poke.notify();
        let tick = shared.env.sleep(TICK);
        let Talk { stream, input } = talk;
        let (output, pieces) = (Vec::new(), Pieces::default());
        let takes_answers = said.spoken.newest >= packet::ANSWERS_SINCE;
        Self { shared, link, stream, number, input, output, pieces, takes_answers, silent: 0, tick }
    }

    fn run(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> PeerResult<()> {
        self.handle(&[])?;
        for _ in 0..TURNS {
            self.look_at_clock(context)?;
            let moved = self.send(context)?;
            match self.stream.poll_receive(context, buffer) {
                Poll::Pending if moved => {}
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => {
                    return Err(PeerError::Unreachable("the caller has gone".to_owned()));
                }
                Poll::Ready(Ok(len)) => {
                    self.silent = 0;
                    self.handle(&buffer[..len])?;
                }
                Poll::Ready(Err(error)) => return Err(lost(error)),
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Handles all packets that have arrived, these bytes last. They are kept only as far as they
    /// are no whole packet yet.
    fn handle(&mut self, arrived: &[u8]) -> PeerResult<()> {
        if self.input.is_empty() {
            let used = self.handle_packets(arrived)?;
            self.input.extend_from_slice(&arrived[used..]);
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(arrived);
        let used = self.handle_packets(&input)?;
        input.drain(..used);
        self.input = input;
        Ok(())
    }

    /// Handles the whole packets that these bytes begin with: how many bytes they have.
    fn handle_packets(&mut self, input: &[u8]) -> PeerResult<usize> {
        let mut used = 0;
        while let Some((kind, payload)) = packet::split(&input[used..])? {
            used += packet::HEAD + payload.len();
            match kind {
                Kind::Ping => packet::put(&mut self.output, Kind::Pong, payload),
                Kind::Whole | Kind::Piece | Kind::Last => {
                    if let Some(bytes) = self.pieces.take(kind, payload)? {
                        self.take(bytes)?;
                    }
                }
                Kind::Pong => {
                    let detail = "an answer to a ping that nobody sent";
                    return Err(PeerError::malformed(detail));
                }
            }
        }
        if self.output.len() > RECEIVE {
            let detail = "pings and frames whose answers nobody takes";
            return Err(PeerError::malformed(detail));
        }
        Ok(used)
    }

    fn take(&mut self, bytes: Vec<u8>) -> PeerResult<()> {
        let len = bytes.len();
        let bytes = Bytes::from(bytes);
        let item = if Parcel::is_one(&bytes) {
            Item::Parcel(Parcel::decode(&bytes)?)
        } else {
            Item::Frame(Frame::decode(&bytes)?)
        };
        let (from, to) = match &item {
            Item::Frame(frame) => (frame.message.from, frame.message.to),
            Item::Parcel(parcel) => (parcel.from, parcel.to),
        };
        if (from, to) != (self.link.node, self.shared.standing.node) {
            let detail = format!("from node {from} to node {to}, by node {}", self.link.node);
            return Err(PeerError::malformed(detail));
        }
        self.link.outbox.received(len);
        match item {
            Item::Frame(frame) => {
                if let Some(answer) = self.shared.deliver(frame) {
                    self.answer(answer)?;
                }
            }
            Item::Parcel(parcel) => self.shared.deliver_parcel(parcel),
        }
        Ok(())
    }

    fn answer(&mut self, answer: Frame) -> PeerResult<()> {
        if !self.takes_answers {
            self.link.outbox.push(Item::Frame(answer));
            return Ok(());
        }
        let bytes = answer.encode()?;
        self.link.outbox.sent(bytes.len());
        packet::put(&mut self.output, Kind::Whole, &bytes);
        Ok(())
    }

    fn send(&mut self, context: &mut Context<'_>) -> PeerResult<bool> {
        let mut moved = false;
        while !self.output.is_empty() {
            match self.stream.poll_send(context, &self.output) {
                Poll::Ready(Ok(0)) => return Err(lost(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => drop(self.output.drain(..sent)),
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => break,
            }
            moved = true;
        }
        if let Poll::Ready(Err(error)) = self.stream.poll_flush(context) {
            return Err(lost(error));
        }
        Ok(moved)
    }

    fn look_at_clock(&mut self, context: &mut Context<'_>) -> PeerResult<()> {
        while Pin::new(&mut self.tick).poll(context).is_ready() {
            self.silent += 1;
            let is_newest = self.link.newest.load(Ordering::Acquire) == self.number;
            if !is_newest || self.shared.has_ended() {
                return Err(PeerError::Closed);
            }
            if self.silent >= SILENT {
                return Err(PeerError::Unreachable("the caller is silent".to_owned()));
            }
            self.tick = self.shared.env.sleep(TICK);
        }
        Ok(())
    }
}

impl Future for Session {
    type Output = PeerError;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PeerError> {
        let this = self.get_mut();
        let mut buffer = BUFFER.take();
        buffer.resize(RECEIVE, 0);
        let result = this.run(context, &mut buffer);
        BUFFER.set(buffer);
        match result {
            Ok(()) => Poll::Pending,
            Err(why) => Poll::Ready(why),
        }
    }
}
