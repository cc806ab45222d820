//! One connection: a task that receives, has requests carried out, and sends, all on one thread.
//!
//! A turn handles everything that has arrived, collects what others have answered meanwhile, and
//! writes it all at once. The buffers of a turn belong to the thread, so that a connection at rest
//! holds nothing but its socket; what could not be finished (half a frame, replies that the client
//! doesn't take) stays with the connection and is accounted for.

mod access;
mod dues;
mod holds;
mod operator;
mod requests;
mod snapshots;
mod watches;

use crate::counters::Figures;
use crate::memory::{Charge, UNCOUNTED};
use crate::outbox::{Order, Outbox};
use crate::rights::Identity;
use crate::shared::Shared;
use access::Access;
use holds::Holds;
use plinth_env::Stream;
use plinth_proto::frame::{self, MAX_REQUEST};
use plinth_proto::{Hello, Kind, Welcome, reply};
use plinth_types::{Error, Result};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use watches::Watches;

/// Bytes received at a time.
const RECEIVE: usize = 64 << 10;
/// Output buffers up to this size are kept by the thread.
const KEEP: usize = 1 << 20;
/// Turns of one connection before others on its thread have theirs.
const TURNS: usize = 16;
/// Bytes received, answered and sent after which a connection waits for its turn among those who
/// move as much: so many take about a fifth of a millisecond.
const FILL: u64 = 256 << 10;
/// Watches begun or dropped in a turn after which a connection waits for its turn in the same way.
const MANY_WATCHES: usize = 64;
/// Who asks for the status twice within this time asks often.
const OFTEN: Duration = Duration::from_millis(50);
/// Bytes of a request for values from which on it may be answered with many: some 25 keys.
const MANY_KEYS: usize = 512;
/// Bytes of a request that takes as long to read as many others.
const LONG: usize = 256 << 10;
/// Bytes sent at a time: the system copies them, and has the other side receive them if that is on
/// the same machine.
const SEND: usize = 128 << 10;
/// How long a client has to close after the server's last words.
const LINGER: Duration = Duration::from_secs(2);
/// Watches that are dropped in a turn.
const DROPPED: usize = 4 * MANY_WATCHES;
/// Who was in the lane within this time is one of those who move much, whatever it asks for now.
const OF_THE_CROWD: Duration = Duration::from_secs(1);
/// Nothing is expected of one that has left.
const LEAVING: Duration = Duration::from_secs(86_400);
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
    /// The client has gone, or all has been said: its watches are dropped, some in each turn.
    Left,
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
    /// Received and not handled: half a frame, or more while the output is full.
    input: Vec<u8>,
    output: Vec<u8>,
    /// How much of the output has been sent.
    sent: usize,
    watches: Watches,
    holds: Holds,
    access: Access,
    turn: Turn,
}

/// What a connection does in its turns, and when it has the next one.
struct Turn {
    /// What is to be added to the server's figures.
    counted: Figures,
    lane: Standing,
    /// Since when it has one that was given to it in the lane and isn't passed on.
    began: Option<Duration>,
    /// When it was in the lane last.
    in_lane: Option<Duration>,
    /// Whether it has asked for anything in this turn.
    has_asked: bool,
    /// It is to go if there is nothing to do.
    makes_room: bool,
    /// Watches begun or ended in this turn.
    watches: usize,
    /// When it asked for the status last.
    asked_status: Option<Duration>,
}

impl Turn {
    /// It asks for the status: whether it has done so just before.
    fn asks_often(&mut self, now: Duration) -> bool {
        let last = self.asked_status.replace(now);
        last.is_some_and(|last| now.saturating_sub(last) < OFTEN)
    }
}

/// How a connection stands to the lane of those who move much.
enum Standing {
    /// It has moved little and is asked for little.
    Out,
    /// It has moved its fill, or is asked for much, and goes there behind this turn.
    Going,
    /// It waits there until it is called.
    Waiting,
    /// It was, and lets the others on its thread go first.
    Called(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// It has its turn.
    OnTurn,
}

/// Whether it may take as long to carry out what a frame asks for as a hundred others.
fn may_be_much(frame: &frame::Frame<'_>) -> bool {
    let (len, is) = (frame.body.len(), |kind: Kind| frame.kind == kind as u8);
    let is_read = is(Kind::GetMany) || is(Kind::GetNewest) || is(Kind::InSnapshot);
    len > LONG || is_read && len > MANY_KEYS || is(Kind::Status)
}

impl Connection {
    /// A connection that `number` stands for in the registry. `first` is what has been received of
    /// it, `who` is at its other end.
    pub(crate) fn new(
        stream: Stream,
        first: Vec<u8>,
        shared: Arc<Shared>,
        outbox: Arc<Outbox>,
        (number, who): (u64, Identity),
    ) -> Self {
        outbox.expect_within(&shared.env, shared.config.limits.greeting);
        let access = Access::of(who);
        Self {
            stream,
            shared,
            outbox,
            number,
            phase: Phase::Greeting,
            input: first,
            output: Vec::new(),
            sent: 0,
            watches: Watches::default(),
            holds: Holds::default(),
            access,
            turn: Turn {
                counted: Figures { accepted: 1, ..Figures::default() },
                lane: Standing::Out,
                began: None,
                in_lane: None,
                has_asked: false,
                makes_room: false,
                watches: 0,
                asked_status: None,
            },
        }
    }

    /// Turn after turn, until nothing more can be done now or the connection has ended.
    fn run(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Result<Poll<()>, Gone> {
        let before = self.moved();
        (self.turn.watches, self.turn.has_asked) = (0, false);
        for _ in 0..TURNS {
            if self.moved().saturating_sub(before) >= FILL {
                self.turn.lane = Standing::Going;
            }
            if matches!(self.turn.lane, Standing::Going) {
                // What was answered leaves now: it would be memory for as long as others take.
                self.send(context)?;
                return Ok(Poll::Pending);
            }
            self.collect(context)?;
            let mut moved = self.serve_waiting(context);
            moved |= self.send(context)?;
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
            // Not if something has come meanwhile.
            if std::mem::take(&mut self.turn.makes_room) && !moved && self.is_idle() {
                let detail = "the server has as many connections as it may, and this one was idle";
                self.end_because(&Error::connection_failed().with_detail(detail));
                continue;
            }
            if !moved {
                return Ok(Poll::Pending);
            }
        }
        context.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    /// Bytes that were received, answered and sent in these turns: what is answered and not sent
    /// counts once, what is sent twice.
    fn moved(&self) -> u64 {
        self.turn.counted.bytes_in
            + 2 * self.turn.counted.bytes_out
            + (self.output.len() - self.sent) as u64
    }

    /// Takes what others have answered, and what they tell this connection to do.
    fn collect(&mut self, context: &Context<'_>) -> Result<(), Gone> {
        let mut fired = Vec::new();
        let (order, answered) = self.outbox.collect(&mut self.output, &mut fired, context.waker());
        self.holds.in_flight -= answered;
        self.holds.is_tight = self.shared.memory.is_tight();
        self.heed_rights();
        self.heed_quotas();
        fired.into_iter().for_each(|id| self.look_at_watch(id));
        let is_ending = matches!(self.phase, Phase::Closing | Phase::Lingering);
        match order {
            Order::Close(_) | Order::CutOff { .. } if is_ending => return Err(Gone),
            // It may have greeted meanwhile.
            Order::Leave if self.phase == Phase::Greeting => return Err(Gone),
            Order::MakeRoom => self.turn.makes_room = true,
            Order::GoOn | Order::Leave => {}
            Order::Finish if is_ending => {}
            Order::Finish
                if self.holds.in_flight == Charge::default() && !self.access.dues.waits() =>
            {
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

    /// Whether more requests may be handled: there is room for them, also for such as wait.
    fn may_handle(&self) -> bool {
        self.has_room() && !self.access.dues.is_full() && !self.shared.is_stopping()
    }

    /// Whether more requests may be carried out: it doesn't wait for its turn, and replies and
    /// requests under way are within their bounds.
    fn has_room(&self) -> bool {
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
            && !matches!(self.turn.lane, Standing::Going)
    }

    /// Sends what is ready; says whether anything left.
    fn send(&mut self, context: &mut Context<'_>) -> Result<bool, Gone> {
        let mut moved = false;
        while self.sent < self.output.len() {
            let end = self.output.len().min(self.sent + SEND);
            match self.stream.poll_send(context, &self.output[self.sent..end]) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Err(Gone),
                Poll::Ready(Ok(sent)) => {
                    self.sent += sent;
                    self.turn.counted.bytes_out += sent as u64;
                    moved = true;
                    if self.turn.counted.bytes_out >= FILL {
                        break;
                    }
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
                self.turn.counted.bytes_in += len as u64;
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
                    let is_out = matches!(self.turn.lane, Standing::Out);
                    if is_out && may_be_much(&frame) {
                        self.turn.lane = Standing::Going;
                        break;
                    }
                    self.handle(&frame);
                    used += frame.len();
                    if self.turn.watches >= MANY_WATCHES {
                        self.turn.lane = Standing::Going;
                    }
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
                "the cluster file says {:?}, the server there is {ours:?}: it has another database, or the file is an \
                 old one; take the file that the server has (fdb.cluster in its directory), or mend the address",
                hello.cluster
            )));
        }
        if self.shared.doors.rights.are_kept() {
            self.access.note_certificate(self.stream.peer_certificate());
        }
        self.enter()?;
        let welcome = Welcome::accept(&hello, version, &*self.shared.place.cluster_id);
        Welcome { newest: offered, ..welcome }.encode(&mut self.output);
        self.access.version = version;
        self.outbox.introduce(&hello.name);
        self.shared.connections.greeted(self.number);
        self.phase = Phase::Open;
        Ok(Some(len))
    }

    /// Ends the connection before it began.
    fn refuse(&mut self, error: Error) {
        self.shared.doors.bursts.refused(self.outbox.peer, &error);
        self.turn.counted.refused += 1;
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

    /// Waits for the turn of one that is in the lane.
    fn await_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.turn.lane, Standing::Waiting) {
            if !self.shared.turns.lane.is_called(self.number) {
                return Poll::Pending;
            }
            let env = self.shared.env.clone();
            self.turn.lane = Standing::Called(Box::pin(async move { env.give_way().await }));
        }
        if let Standing::Called(way) = &mut self.turn.lane {
            ready!(way.as_mut().poll(context));
            self.turn.lane = Standing::OnTurn;
            let now = self.shared.env.now();
            match self.shared.turns.lane.rest(now, Duration::ZERO) {
                Some(_) => self.turn.began = Some(now),
                None => self.shared.turns.lane.done(),
            }
        }
        Poll::Ready(())
    }

    /// Tells the lane that somebody asks for little, if it matters and he isn't of those there.
    fn note_asked(&self) {
        let lane = &self.shared.turns.lane;
        if !self.turn.has_asked || !matches!(self.turn.lane, Standing::Out) || !lane.is_crowded() {
            return;
        }
        let now = self.shared.env.now();
        let is_of_the_crowd = |at| now.saturating_sub(at) < OF_THE_CROWD;
        if !self.turn.in_lane.is_some_and(is_of_the_crowd) {
            lane.note_asked(now);
        }
    }

    /// Has the next one in the lane called once the lane has rested behind this turn.
    fn pass_turn_on(&mut self) {
        let Some(began) = self.turn.began.take() else { return };
        let now = self.shared.env.now();
        let rest = self.shared.turns.lane.rest(now, now.saturating_sub(began));
        // The lane alone: whoever ends a server with all it has may take long, and must not be the
        // thread that all timers need.
        let lane = self.shared.turns.lane.clone();
        let at = now + rest.unwrap_or_default();
        self.shared.env.call_at(at, move || lane.done()).detach();
    }

    /// Drops what it watches: all at once takes milliseconds if that is much, and others wait.
    fn leave(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_awaited = self.shared.is_stopping() || self.shared.memory.is_short();
        self.watches.drop_some(if is_awaited { usize::MAX } else { DROPPED });
        if self.watches.len() == 0 {
            self.turn.lane = Standing::Out;
            return Poll::Ready(());
        }
        if self.phase != Phase::Left {
            self.phase = Phase::Left;
            self.let_go();
            self.watches.count_no_more();
            self.outbox.expect_within(&self.shared.env, LEAVING);
            let _ = self.stream.poll_finish(context);
        }
        self.account();
        self.turn.lane = Standing::Waiting;
        self.shared.turns.lane.enter(self.number, context.waker());
        Poll::Pending
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
        if this.await_turn(context).is_pending() {
            return Poll::Pending;
        }
        let polled = match this.phase {
            Phase::Left => this.leave(context),
            _ => this.take_turn(context),
        };
        this.pass_turn_on();
        polled
    }
}

impl Connection {
    /// All that a turn is.
    fn take_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut buffers = BUFFERS.take();
        buffers.input.resize(RECEIVE, 0);
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, &mut buffers.output);
        }
        let mut polled = self.run(context, &mut buffers.input);
        match self.settle() {
            Ok(true) => context.waker().wake_by_ref(),
            Ok(false) => {}
            Err(Gone) => polled = Err(Gone),
        }
        if self.output.is_empty() {
            std::mem::swap(&mut self.output, &mut buffers.output);
            self.output = Vec::new();
            if buffers.output.capacity() > KEEP {
                buffers.output = Vec::new();
            }
        }
        BUFFERS.set(buffers);
        if matches!(self.turn.lane, Standing::Going) && matches!(polled, Ok(Poll::Pending)) {
            self.turn.in_lane = Some(self.shared.env.now());
            self.turn.lane = Standing::Waiting;
            self.shared.turns.lane.enter(self.number, context.waker());
            return Poll::Pending;
        }
        self.note_asked();
        self.turn.lane = Standing::Out;
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) | Err(Gone) => self.leave(context),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        match self.turn.lane {
            Standing::Waiting => self.shared.turns.lane.leave(self.number),
            Standing::Called(_) => self.shared.turns.lane.done(),
            Standing::Out | Standing::Going | Standing::OnTurn => {}
        }
        if self.turn.began.is_some() {
            self.shared.turns.lane.done();
        }
        self.let_go();
        self.shared.memory.change(self.holds.accounted, 0);
        self.shared.connections.leave(self.number);
    }
}
