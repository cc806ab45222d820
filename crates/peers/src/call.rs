//! The task that calls one other node and sends it frames, as long as its own node lives.
//!
//! A turn takes all frames without entries and one piece of a frame with entries, and writes them
//! in one go; so the former never wait for more than a piece. Frames are written as bytes here, not
//! where they were left: that thread has better to do. A ping goes out twice a second. If nothing
//! answers for two seconds, the connection is as good as gone.

use crate::failure::{PeerError, PeerResult};
use crate::hello::{Welcome, Word};
use crate::link::{Link, lock};
use crate::outbox::Item;
use crate::packet::{self, Kind};
use crate::shared::Shared;
use crate::talk::{PATIENCE, Talk, lost};
use crate::trust;
use plinth_env::sync::{First, race};
use plinth_env::{Sleep, Stream};
use plinth_replication::{Frame, Message};
use plinth_types::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The first pause between two calls, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];
/// How often the other node is pinged.
const PING: Duration = Duration::from_millis(500);
/// How long nothing is heard of it before it is given up.
const SILENCE: Duration = Duration::from_secs(2);
/// Bytes received at a time: answers to pings, and to frames.
const RECEIVE: usize = 1024;
/// Turns before other tasks of the thread have theirs.
const TURNS: usize = 16;

/// Calls until the node ends.
pub(crate) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    let mut pause = PAUSES[0];
    let mut attempt = 0;
    let is_over = || shared.has_ended() || link.has_ended();
    while !is_over() {
        let place = link.place(attempt);
        let opening = race(open(&shared, &link, &place), shared.env.sleep(PATIENCE)).await;
        let why = match opening {
            First::Left(Ok((talk, version))) => {
                tracing::info!(node = link.node, address = place, "reached another node");
                pause = PAUSES[0];
                attempt = 0;
                link.outbox.set_connected(true);
                *lock(&link.failure) = None;
                let why = Conversation::new(shared.clone(), link.clone(), talk, version).await;
                link.outbox.set_connected(false);
                why
            }
            First::Left(Err(why)) => {
                attempt += 1;
                why
            }
            First::Right(()) => {
                attempt += 1;
                PeerError::Unreachable("it does not answer".to_owned())
            }
        };
        if is_over() {
            return;
        }
        note(&link, &why);
        let random = shared.env.random_u64() % (pause.as_millis() as u64 / 2).max(1);
        let pausing = shared.env.sleep(pause + Duration::from_millis(random));
        race(link.poke.wait(), pausing).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// Keeps why a node can't be reached, and tells it if it is news.
fn note(link: &Link, why: &PeerError) {
    let text = why.summary();
    let mut failure = lock(&link.failure);
    if failure.as_ref() != Some(&text) {
        tracing::warn!(
            node = link.node,
            address = link.address,
            why = text,
            "no connection to another node"
        );
        *failure = Some(text);
    }
}

/// Connects, and comes to know the other node. The version is that which both speak.
async fn open(shared: &Shared, link: &Link, place: &str) -> PeerResult<(Talk, u16)> {
    let stream = trust::connect(&shared.env, &shared.trust, place).await?;
    let mut talk = Talk::new(stream, Vec::new());
    let hello = shared.hello(link);
    let mut hello_bytes = Vec::new();
    hello.encode(&mut hello_bytes);
    talk.say(&hello_bytes).await?;
    let welcome = talk.hear(Welcome::decode).await?;
    if let Some(why) = welcome.refused {
        return Err(why.into());
    }
    if (welcome.cluster_id, welcome.node) != (hello.cluster_id, link.node) {
        let detail = format!("node {} of another cluster, or another node, is there", welcome.node);
        return Err(PeerError::Mismatch(detail));
    }
    let secret = &shared.standing.charter.secret;
    let [said, answered] = Welcome::parts(&hello_bytes, &welcome);
    if !secret.accepts(&welcome.proof, "welcome", &[&said, &answered]) {
        let what = "the node there doesn't know this cluster's secret";
        return Err(PeerError::Untrusted(what.to_owned()));
    }
    let mut proof = Vec::new();
    Word::Proof(secret.prove("caller", &[&said, &answered])).encode(&mut proof);
    talk.say(&proof).await?;
    match talk.hear(Word::decode).await? {
        Word::Verdict(Ok(())) => Ok((talk, welcome.version)),
        Word::Verdict(Err(why)) => Err(why.into()),
        Word::Removed => {
            shared.be_removed();
            Err(PeerError::Mismatch("this node was removed from the cluster".to_owned()))
        }
        _ => Err(PeerError::malformed("no verdict")),
    }
}

/// A connection while it lasts.
struct Conversation {
    shared: Arc<Shared>,
    link: Arc<Link>,
    stream: Stream,
    version: u16,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// A frame of which pieces are still to be sent, and how much was.
    long: Option<(Vec<u8>, usize)>,
    heard: Duration,
    tick: Sleep,
}

impl Conversation {
    fn new(shared: Arc<Shared>, link: Arc<Link>, talk: Talk, version: u16) -> Self {
        let (heard, tick) = (shared.env.now(), shared.env.sleep(Duration::ZERO));
        let Talk { stream, input } = talk;
        let (output, sent, long) = (Vec::new(), 0, None);
        Self { shared, link, stream, version, input, output, sent, long, heard, tick }
    }

    fn run(&mut self, context: &mut Context<'_>) -> PeerResult<()> {
        for _ in 0..TURNS {
            if self.shared.has_ended() || self.link.has_ended() {
                return Err(PeerError::Closed);
            }
            let mut moved = self.receive(context)?;
            self.look_at_clock(context)?;
            if self.output.is_empty() {
                self.collect();
            }
            moved |= self.send(context)?;
            if !moved && (!self.output.is_empty() || !self.link.outbox.wait(context.waker())) {
                return Ok(());
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }

    /// Moves what is to be sent next into the output.
    fn collect(&mut self) {
        while let Some(frame) = self.link.outbox.take_short() {
            if let Some(bytes) = self.encode(frame) {
                packet::put(&mut self.output, Kind::Whole, &bytes);
            }
        }
        if self.long.is_none() {
            let next = self.link.outbox.take_long();
            self.long = next.and_then(|frame| self.encode(frame)).map(|bytes| (bytes, 0));
        }
        let Some((bytes, at)) = &mut self.long else { return };
        let rest = &bytes[*at..];
        if *at == 0 && rest.len() <= packet::MOST {
            packet::put(&mut self.output, Kind::Whole, rest);
            self.long = None;
        } else if rest.len() <= packet::MOST {
            packet::put(&mut self.output, Kind::Last, rest);
            self.long = None;
        } else {
            packet::put(&mut self.output, Kind::Piece, &rest[..packet::MOST]);
            *at += packet::MOST;
        }
    }

    fn encode(&self, mut item: Item) -> Option<Vec<u8>> {
        match item.encode(self.version) {
            Ok(bytes) => {
                self.link.outbox.sent(bytes.len());
                Some(bytes)
            }
            Err(error) => {
                tracing::error!(node = self.link.node, %error, "a frame can't be sent");
                self.link.outbox.unsendable();
                None
            }
        }
    }

    fn send(&mut self, context: &mut Context<'_>) -> PeerResult<bool> {
        let mut moved = false;
        while self.sent < self.output.len() {
            match self.stream.poll_send(context, &self.output[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(lost(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => {
                    self.sent += sent;
                    moved = true;
                }
                Poll::Ready(Err(error)) => return Err(lost(error)),
                Poll::Pending => break,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            if let Poll::Ready(Err(error)) = self.stream.poll_flush(context) {
                return Err(lost(error));
            }
        }
        Ok(moved)
    }

    fn receive(&mut self, context: &mut Context<'_>) -> PeerResult<bool> {
        let mut buffer = [0; RECEIVE];
        match self.stream.poll_receive(context, &mut buffer) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => {
                return Err(PeerError::Unreachable(
                    "the other node closed the connection".to_owned(),
                ));
            }
            Poll::Ready(Ok(len)) => self.input.extend_from_slice(&buffer[..len]),
            Poll::Ready(Err(error)) => return Err(lost(error)),
        }
        while let Some((kind, payload)) = packet::split(&self.input)? {
            let len = packet::HEAD + payload.len();
            match kind {
                Kind::Pong => {}
                Kind::Whole => self.take(&Bytes::copy_from_slice(payload))?,
                _ => {
                    let detail = format!("{kind:?} of a node that was called");
                    return Err(PeerError::malformed(detail));
                }
            }
            self.input.drain(..len);
            self.heard = self.shared.env.now();
        }
        Ok(true)
    }

    /// Takes the answer to a frame.
    fn take(&self, bytes: &Bytes) -> PeerResult<()> {
        let frame = Frame::decode(bytes)?;
        let Message { from, to, .. } = frame.message;
        if (from, to) != (self.link.node, self.shared.standing.node) || !frame.entries.is_empty() {
            let node = self.link.node;
            let detail = format!("an answer from node {from} to node {to}, by node {node}");
            return Err(PeerError::malformed(detail));
        }
        self.link.outbox.received(bytes.len());
        if let Some(answer) = self.shared.deliver(frame) {
            self.link.outbox.push(Item::Frame(answer));
        }
        Ok(())
    }

    fn look_at_clock(&mut self, context: &mut Context<'_>) -> PeerResult<()> {
        while Pin::new(&mut self.tick).poll(context).is_ready() {
            let now = self.shared.env.now();
            if now.saturating_sub(self.heard) > SILENCE {
                return Err(PeerError::Unreachable("it does not answer any more".to_owned()));
            }
            packet::put(&mut self.output, Kind::Ping, &[]);
            self.tick = self.shared.env.sleep(PING);
        }
        Ok(())
    }
}

impl Future for Conversation {
    type Output = PeerError;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PeerError> {
        match self.get_mut().run(context) {
            Ok(()) => Poll::Pending,
            Err(why) => Poll::Ready(why),
        }
    }
}
