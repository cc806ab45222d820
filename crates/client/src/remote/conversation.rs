//! A connection while it lasts: its task sends what was left with the link and hands out the
//! answers.
//!
//! A turn receives everything that has arrived, tells those who waited, who may ask for more at
//! once, and then sends all of it in one write. If the server is silent although somebody waits, it
//! is pinged; silent for longer, it is gone.

use super::cluster_file::Address;
use super::counting::PATIENCE;
use super::link::Link;
use super::refusal::Failed;
use super::slots::Pending;
use plinth_env::{Sleep, Stream};
use plinth_proto::frame::{self, Kind, MAX_REPLY};
use plinth_proto::{Hello, Welcome, reply};
use plinth_types::Error;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How often the conversation looks whether the server is alive.
const TICK: Duration = Duration::from_secs(1);
/// After so many silent ticks the server is pinged if somebody waits, and if nobody does.
const PING_AFTER: [u32; 2] = [2, 15];
/// So many silent ticks after a ping it is gone.
const GONE_AFTER: u32 = 6;
/// Bytes received at a time.
const RECEIVE: usize = 256 << 10;
/// Turns before other tasks of the thread have theirs.
const TURNS: usize = 16;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection that was opened.
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// What arrived behind the welcome.
    pub(super) rest: Vec<u8>,
    /// The version of the protocol that both speak.
    pub(super) version: u16,
}

/// Connects and greets.
pub(super) async fn open(link: &Link, address: &Address) -> Result<Opened, Failed> {
    let stream = connected(link, address).await?;
    let place = stream.peer_address();
    let mut stream = if address.tls { secured(link, stream).await? } else { stream };
    let mut hello = Vec::new();
    Hello::new(link.target.given().key(), link.options.name.clone()).encode(&mut hello);
    // What TLS has to say about it stands in the system's error.
    let lost =
        |error: std::io::Error| match error.get_ref().and_then(|why| why.downcast_ref::<Error>()) {
            Some(why) => why.clone(),
            None => Error::connection_failed().with_detail(format!("{place}: {error}")),
        };
    let mut sent = 0;
    poll_fn(|context| {
        while sent < hello.len() {
            sent += ready!(stream.poll_send(context, &hello[sent..]))?;
        }
        Poll::Ready(Ok(()))
    })
    .await
    .map_err(lost)?;
    let mut received = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some((welcome, len)) = Welcome::decode(&received)? {
            if let Some(why) = welcome.refused {
                return Err(Failed { why, is_told: true });
            }
            received.drain(..len);
            let Welcome { cluster_id, version, .. } = welcome;
            link.check_database(cluster_id, address).await?;
            return Ok(Opened { stream, rest: received, version });
        }
        let len =
            poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.map_err(lost)?;
        if len == 0 {
            let what = format!("{place} closed the connection");
            return Err(Error::connection_failed().with_detail(what).into());
        }
        received.extend_from_slice(&buffer[..len]);
    }
}

/// A connection to whichever of a server's addresses takes it first.
async fn connected(link: &Link, address: &Address) -> plinth_types::Result<Stream> {
    let places = address.resolve(&link.env).await?;
    if places.is_empty() {
        return Err(Error::lookup_failed().with_detail(address.to_string()));
    }
    Ok(link.env.connect_to_any(&places).await?)
}

#[cfg(feature = "tls")]
async fn secured(link: &Link, stream: Stream) -> plinth_types::Result<Stream> {
    plinth_tls::connect(&link.env, &link.options.tls, stream).await
}

#[cfg(not(feature = "tls"))]
async fn secured(_: &Link, _: Stream) -> plinth_types::Result<Stream> {
    Err(Error::tls_error().with_detail("this build has no TLS (feature `tls` of plinth-client)"))
}

/// Runs until the connection is over, and says why.
pub(super) struct Conversation {
    link: Arc<Link>,
    stream: Stream,
    /// Half a frame.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    tick: Sleep,
    /// Ticks since something was received.
    silent: u32,
    pinged_at: Option<u32>,
    /// Until read versions that others are to agree to are looked at.
    patience: Option<Sleep>,
    is_over: Option<Error>,
}

impl Conversation {
    pub(super) fn new(link: Arc<Link>, stream: Stream, rest: Vec<u8>) -> Self {
        let tick = link.env.sleep(TICK);
        let (output, sent, silent) = (Vec::new(), 0, 0);
        Self {
            link,
            stream,
            input: rest,
            output,
            sent,
            tick,
            silent,
            pinged_at: None,
            patience: None,
            is_over: None,
        }
    }

    fn run(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Error> {
        self.link.at_work();
        for _ in 0..TURNS {
            if let Err(error) = self.look_at_clock(context) {
                return Poll::Ready(error);
            }
            let received = match self.receive(context, buffer) {
                Ok(received) => received,
                Err(error) => return Poll::Ready(error),
            };
            if self.link.collect(&mut self.output, context.waker()) {
                return Poll::Ready(Error::operation_cancelled());
            }
            if self.patience.is_none() && self.link.has_counts() {
                self.patience = Some(self.link.env.sleep(PATIENCE));
            }
            match self.send(context) {
                Ok(sent) if !sent && !received => return Poll::Pending,
                Ok(_) => {}
                Err(error) => return Poll::Ready(error),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        let mut moved = false;
        while self.sent < self.output.len() {
            match self.stream.poll_send(context, &self.output[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(lost("nothing can be sent")),
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
            if self.output.capacity() > RECEIVE {
                self.output = Vec::new();
            }
            if let Poll::Ready(Err(error)) = self.stream.poll_flush(context) {
                return Err(lost(error));
            }
        }
        Ok(moved)
    }

    fn receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Result<bool, Error> {
        let len = match self.stream.poll_receive(context, buffer) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => {
                return Err(self.is_over.take().unwrap_or_else(|| lost("the server closed it")));
            }
            Poll::Ready(Ok(len)) => len,
            Poll::Ready(Err(error)) => {
                return Err(self.is_over.take().unwrap_or_else(|| lost(error)));
            }
        };
        (self.silent, self.pinged_at) = (0, None);
        if self.input.is_empty() {
            let used = self.hand_out(&buffer[..len])?;
            self.input.extend_from_slice(&buffer[used..len]);
            return Ok(true);
        }
        self.input.extend_from_slice(&buffer[..len]);
        if self.input.len() >= frame::wanted(&self.input).min(frame::HEADER + MAX_REPLY + 1) {
            let mut input = std::mem::take(&mut self.input);
            let used = self.hand_out(&input)?;
            if used < input.len() {
                input.drain(..used);
                self.input = input;
            }
        }
        Ok(true)
    }

    /// Tells those who wait for the replies that `bytes` begin with; says how many bytes those are.
    fn hand_out(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut used = 0;
        let (mut frames, mut said) = (Vec::new(), Vec::new());
        while let Some(frame) = frame::split(&bytes[used..], MAX_REPLY)? {
            used += frame.len();
            if frame.id == frame::NO_ID && frame.kind == Kind::Failure as u8 {
                self.is_over = Some(reply::failure(frame.body));
                continue;
            }
            if frame.kind == Kind::Waits as u8 {
                said.push((frame.id, reply::waits(frame.body)?));
                continue;
            }
            frames.push(frame);
        }
        if !said.is_empty() {
            self.link.hear_waits(said.into_iter());
        }
        let mut waiting: Vec<Option<Pending>> = Vec::with_capacity(frames.len());
        self.link.take(frames.iter().map(|frame| frame.id), &mut waiting);
        if let Some(fallback) = self.link.fallback.get().filter(|_| !frames.is_empty()) {
            fallback.has_answered();
        }
        for (frame, pending) in frames.iter().zip(waiting) {
            let Some(pending) = pending else { continue };
            if frame.kind == Kind::Failure as u8 {
                self.link.is_refused(frame.body);
                self.link.give_up(pending, &reply::failure(frame.body));
            } else {
                pending.answer.complete(frame.kind, frame.body);
            }
        }
        Ok(used)
    }

    /// Pings a server that is silent, and gives up one that stays so; looks after those who wait
    /// for others to agree that it leads.
    fn look_at_clock(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        while let Some(patience) = &mut self.patience
            && Pin::new(patience).poll(context).is_ready()
        {
            let waits = self.link.look_at_counts();
            self.patience = waits.then(|| self.link.env.sleep(PATIENCE));
        }
        while Pin::new(&mut self.tick).poll(context).is_ready() {
            self.tick = self.link.env.sleep(TICK);
            self.silent += 1;
            match self.pinged_at {
                Some(at) if self.silent >= at + GONE_AFTER => {
                    return Err(lost("the server is silent"));
                }
                Some(_) => {}
                None => {
                    let [waiting, idle] = PING_AFTER;
                    if self.silent >= if self.link.is_waiting() { waiting } else { idle } {
                        self.pinged_at = Some(self.silent);
                        self.link.ping();
                    }
                }
            }
        }
        Ok(())
    }
}

impl Future for Conversation {
    type Output = Error;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Error> {
        let this = self.get_mut();
        super::keep_to(this.link.number);
        let mut buffer = BUFFER.take();
        buffer.resize(RECEIVE, 0);
        let polled = this.run(context, &mut buffer);
        BUFFER.set(buffer);
        polled
    }
}

fn lost(why: impl std::fmt::Display) -> Error {
    Error::connection_failed().with_detail(why.to_string())
}
