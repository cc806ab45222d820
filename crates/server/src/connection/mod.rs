//! One connection: a task that receives, has requests carried out, and sends, all on one thread.
//!
//! A turn handles everything that has arrived, collects what others have answered meanwhile, and
//! writes it all at once. The buffers of a turn belong to the thread, so that a connection at rest
//! holds nothing but its socket; what could not be finished (half a frame, replies that the client
//! doesn't take) stays with the connection and is accounted for.

mod holds;
mod operator;
mod requests;
mod snapshots;
mod watches;

use crate::counters::Figures;
use crate::memory::{Charge, UNCOUNTED};
use crate::outbox::{Order, Outbox};
use crate::shared::Shared;
use holds::Holds;
use plinth_env::Stream;
use plinth_proto::frame::{self, MAX_REQUEST};
use plinth_proto::{Hello, Welcome, reply};
use plinth_types::{Error, Result};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use watches::Watches;

/// Bytes received at a time.
const RECEIVE: usize = 64 << 10;
/// Output buffers up to this size are kept by the thread.
const KEEP: usize = 1 << 20;
/// Turns of one connection before others on its thread have theirs.
const TURNS: usize = 16;
/// How long a client has to close after the server's last words.
const LINGER: Duration = Duration::from_secs(2);
/// How TLS begins: a record with a handshake, of any version that there will be.
const TLS_BEGINS: [u8; 2] = [0x16, 0x03];

/// The buffers of a thread that serves connections.
#[derive(Default)]
struct Buffers {
    input: Vec<u8>,
    output: Vec<u8>,
}

thread_local! {
    static BUFFERS: Cell<Buffers> = const { Cell::new(Buffers { input: Vec::new(), output: Vec::new() }) };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The client has not said who it is.
    Greeting,
    Open,
    /// Everything is answered, nothing is handled any more: what is in the output is sent.
    Closing,
    /// All is sent. What still arrives is thrown away until the client closes too: were it left
    /// unread, the system would take the last words back.
    Lingering,
}

/// Why a connection ends at once.
struct Gone;

/// The task of one connection.
pub(crate) struct Connection {
    stream: Stream,
    shared: Arc<Shared>,
    outbox: Arc<Outbox>,
    number: u64,
    phase: Phase,
    /// The version of the protocol that it speaks.
    version: u16,
    /// Received and not handled: half a frame, or more while the output is full.
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output has been sent.
    sent: usize,
    watches: Watches,
    holds: Holds,
    counted: Figures,
}

impl Connection {
    /// A connection that `number` stands for in the registry. `first` is what has been received of
    /// it.
    pub(crate) fn new(
        stream: Stream,
        first: Vec<u8>,
        shared: Arc<Shared>,
        outbox: Arc<Outbox>,
        number: u64,
    ) -> Self {
        outbox.expect_within(&shared.env, shared.config.limits.greeting);
        Self {
            stream,
            shared,
            outbox,
            number,
            phase: Phase::Greeting,
            version: 0,
            input: first,
            output: Vec::new(),
            sent: 0,
            watches: Watches::default(),
            holds: Holds::default(),
            counted: Figures { accepted: 1, ..Figures::default() },
        }
    }

    /// Turn after turn, until nothing more can be done now or the connection has ended.
    fn run(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Result<Poll<()>, Gone> {
        for _ in 0..TURNS {
            self.collect(context)?;
            let mut moved = self.send(context)?;
            if self.phase == Phase::Closing && self.output.is_empty() {
                self.outbox.expect_within(&self.shared.env, LINGER);
                self.phase = Phase::Lingering;
            }
            if self.phase == Phase::Lingering {
                moved |= self.linger(context, buffer)?;
            }
            if self.may_handle() {
                moved |= self.handle_held();
            }
            if self.may_handle() {
                moved |= self.receive(context, buffer)?;
            }
            if !moved {
                return Ok(Poll::Pending);
            }
        }
        context.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Takes what others have answered, and what they tell this connection to do.
    fn collect(&mut self, context: &Context<'_>) -> Result<(), Gone> {
        let mut fired = Vec::new();
        let (order, answered) = self.outbox.collect(&mut self.output, &mut fired, context.waker());
        self.holds.in_flight -= answered;
        self.holds.is_tight = self.shared.memory.is_tight();
        fired.into_iter().for_each(|id| self.look_at_watch(id));
        let is_ending = matches!(self.phase, Phase::Closing | Phase::Lingering);
        match order {
            Order::Close(_) | Order::CutOff { .. } if is_ending => return Err(Gone),
            // It may have greeted meanwhile.
            Order::Leave if self.phase == Phase::Greeting => return Err(Gone),
            Order::GoOn | Order::Leave => {}
            Order::Finish if is_ending => {}
            Order::Finish if self.holds.in_flight == Charge::default() => {
                self.phase = Phase::Closing
            }
            Order::Finish => {}
            Order::Close(why) => {
                self.shared.doors.bursts.closed(self.outbox.peer, &why);
                self.end_because(&why);
            }
            Order::CutOff { answers } => self.cut_off(answers)?,
        }
        Ok(())
    }

    /// Throws away what arrives after the end.
    fn linger(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Result<bool, Gone> {
        if let Poll::Ready(Err(_)) = self.stream.poll_finish(context) {
            return Err(Gone);
        }
        match self.stream.poll_receive(context, buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0) | Err(_)) => Err(Gone),
            Poll::Ready(Ok(_)) => Ok(true),
        }
    }

    /// Whether more requests may be handled: replies and requests under way are within their
    /// bounds.
    fn may_handle(&self) -> bool {
        let limits = &self.shared.config.limits;
        // Whoever has nothing under way and nothing to take may always ask, so that everybody gets
        // on, and nobody needs to be woken when there is room again.
        let (output, in_flight) = if self.holds.is_tight {
            (UNCOUNTED, 1)
        } else {
            (limits.output_bytes, limits.in_flight_bytes)
        };
        matches!(self.phase, Phase::Greeting | Phase::Open)
            && self.output.len() - self.sent < output
            && self.holds.in_flight.sum() < in_flight
            && !self.shared.is_stopping()
    }

    /// Sends what is ready; says whether anything left.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, Gone> {
        let mut moved = false;
        while self.sent < self.output.len() {
            match self.stream.poll_send(context, &self.output[self.sent..]) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Err(Gone),
                Poll::Ready(Ok(sent)) => {
                    self.sent += sent;
                    self.counted.bytes_out += sent as u64;
                    moved = true;
                }
                Poll::Pending => break,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
            if let Poll::Ready(Err(_)) = self.stream.poll_flush(context) {
                return Err(Gone);
            }
        }
        Ok(moved)
    }

    /// Receives what has arrived and handles it; says whether there was anything.
    fn receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Result<bool, Gone> {
        match self.stream.poll_receive(context, buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0) | Err(_)) => Err(Gone),
            Poll::Ready(Ok(len)) => {
                self.counted.bytes_in += len as u64;
                let received = &buffer[..len];
                if self.input.is_empty() {
                    let used = self.handle_all(received);
                    self.input.extend_from_slice(&received[used..]);
                } else {
                    self.input.extend_from_slice(received);
                    self.handle_held();
                }
                Ok(true)
            }
        }
    }

    /// Handles what was received before; says whether that was anything.
    fn handle_held(&mut self) -> bool {
        if self.input.len() < frame::wanted(&self.input).min(frame::HEADER + MAX_REQUEST + 1)
            && self.phase == Phase::Open
        {
            return false;
        }
        let mut input = std::mem::take(&mut self.input);
        let used = self.handle_all(&input);
        if used < input.len() {
            input.drain(..used);
            self.input = input;
        }
        used > 0
    }

    /// Handles the frames that `bytes` begin with, as far as may be; says how many bytes that were.
    fn handle_all(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && self.may_handle() {
            if self.phase == Phase::Greeting {
                match self.greet(&bytes[used..]) {
                    Ok(Some(len)) => used += len,
                    Ok(None) => break,
                    Err(error) => self.refuse(error),
                }
                continue;
            }
            match frame::split(&bytes[used..], MAX_REQUEST) {
                Ok(Some(frame)) => {
                    self.handle(&frame);
                    used += frame.len();
                }
                Ok(None) => break,
                Err(error) => self.end_because(&error),
            }
        }
        // Of a connection that ends nothing is read any more.
        if matches!(self.phase, Phase::Greeting | Phase::Open) { used } else { bytes.len() }
    }

    /// Answers the hello that `bytes` begin with.
    fn greet(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        if bytes.starts_with(&TLS_BEGINS) {
            return Err(Error::tls_error().with_detail(
                "the client speaks TLS, and the server does not: the address in its cluster file must not end in :tls",
            ));
        }
        let Some((hello, len)) = Hello::decode(bytes)? else { return Ok(None) };
        let offered = self.shared.config.limits.protocol;
        let version = hello.choose_up_to(offered)?;
        let ours = &self.shared.place.cluster;
        if !hello.cluster.is_empty() && hello.cluster != *ours {
            return Err(Error::connection_string_invalid().with_detail(format!(
                "the cluster file says {:?}, the server there is {ours:?}",
                hello.cluster
            )));
        }
        let welcome = Welcome::accept(&hello, version, &*self.shared.place.cluster_id);
        Welcome { newest: offered, ..welcome }.encode(&mut self.output);
        self.version = version;
        self.outbox.introduce(&hello.name);
        self.shared.connections.greeted(self.number);
        self.phase = Phase::Open;
        Ok(Some(len))
    }

    /// Ends the connection before it began.
    fn refuse(&mut self, error: Error) {
        self.shared.doors.bursts.refused(self.outbox.peer, &error);
        self.counted.refused += 1;
        Welcome::refuse(error).encode(&mut self.output);
        self.phase = Phase::Closing;
    }

    /// Ends the connection, with last words once what is in the output has been sent.
    fn end_because(&mut self, why: &Error) {
        match self.phase {
            Phase::Open => reply::put_failure(&mut self.output, frame::NO_ID, why),
            _ => self.shared.doors.bursts.refused(self.outbox.peer, why),
        }
        self.phase = Phase::Closing;
    }

    fn patience(&self) -> Duration {
        let limits = &self.shared.config.limits;
        if self.phase == Phase::Greeting { limits.greeting } else { limits.silence }
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut buffers = BUFFERS.take();
        buffers.input.resize(RECEIVE, 0);
        if this.output.is_empty() {
            std::mem::swap(&mut this.output, &mut buffers.output);
        }
        let mut polled = this.run(context, &mut buffers.input);
        match this.settle() {
            Ok(true) => context.waker().wake_by_ref(),
            Ok(false) => {}
            Err(Gone) => polled = Err(Gone),
        }
        if this.output.is_empty() {
            std::mem::swap(&mut this.output, &mut buffers.output);
            this.output = Vec::new();
            if buffers.output.capacity() > KEEP {
                buffers.output = Vec::new();
            }
        }
        BUFFERS.set(buffers);
        polled.unwrap_or(Poll::Ready(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.outbox.close(self.holds.in_flight);
        self.shared.heavy.forget(self.number);
        self.shared.memory.change(self.holds.accounted, 0);
        self.shared.connections.leave(self.number);
    }
}
