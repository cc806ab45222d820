//! A connection that sends points on lines: received, taken in, saved, answered, in turns.
//!
//! As long as there is more to receive, points wait for those behind them until they are some
//! thousand, so that a series gets several of them at once.
//!
//! Half a line is all that a connection at rest holds besides its session; what it receives into
//! belongs to the thread. When the sender has said all (it closes its direction) everything is
//! committed before the connection is closed, so whoever reads to the end knows that it is durable.
//! So a connection ends in order only then, or behind a line that says why not all was taken. Any
//! other is broken off, and Graphite's even behind such a line, as its senders look for none: so
//! that nobody forgets it, each is from the start on, whatever ends it.

use super::Hub;
use super::callers::Caller;
use super::events;
use super::opened::Opened;
use super::throttle::{Known, Payer};
use super::write::clock;
use crate::rights::{Identity, Judged};
use plinth_env::Stream;
use plinth_env::sync::{First, race};
use plinth_series::SeriesStore;
use plinth_series::ingest::{MAX_LINE_BYTES, Protocol, Session};
use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bytes received at a time: few enough to stay in the processor's own cache until they are read.
const RECEIVE: usize = 128 << 10;
/// Replies that wait for the sender to take them; beyond, it is not read.
const REPLIES: usize = 128 << 10;
/// How long a sender has to take the last replies and to close; and when it is the server that
/// ends.
const FAREWELL: Duration = Duration::from_secs(10);
const HASTE: Duration = Duration::from_secs(1);
/// What a sender is told that hasn't said all when the server ends.
const ENDS: &str = "the server stops, and takes nothing more; what was acknowledged is durable";

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Serves a connection until its sender has said all, the store fails, or the server stops. It is
/// one that breaks when it is dropped.
pub(super) async fn converse(hub: &Hub, stream: Stream, protocol: Protocol, caller: &Caller) {
    let mut session = hub.session(protocol, stream.peer_address().ip());
    let met = hub.access.rights().meet(&stream);
    hub.access.rights().settle(&met).await;
    let taker = match race(caller.stop.wait(), hub.slot.takes()).await {
        First::Left(()) => return,
        First::Right(Ok(opened)) => Some(opened),
        First::Right(Err(why)) => {
            session.refuse(&why);
            None
        }
    };
    let mut connection = Connection {
        stream,
        met,
        session,
        taker,
        held: Vec::new(),
        counted: (0, 0),
        judged: Judged::default(),
        known: Known::default(),
        is_gone: false,
        is_new: true,
        said: 0,
    };
    let mut is_whole = false;
    if connection.taker.is_some() {
        // Who made room for another goes at once, whatever it waits for: what cannot be saved now
        // would be memory, and there would be more of them than there may be connections.
        let received = race(connection.receive_all(hub, caller), caller.until_displaced()).await;
        is_whole = matches!(received, First::Left(true));
    }
    connection.count(hub);
    if connection.is_gone || caller.is_displaced() {
        return;
    }
    let patience = if hub.is_stopping() { HASTE } else { FAREWELL };
    let in_order = is_whole || protocol != Protocol::Graphite;
    race(connection.say_farewell(in_order), hub.env.sleep(patience)).await;
}

/// What requests of HTTP begin with. None of the protocols on lines has a message that does.
const VERBS: [&[u8]; 9] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
];

/// Whether a request of HTTP begins like this: any page in a browser can send one here, whose body
/// would be taken for lines.
fn is_http(bytes: &[u8]) -> bool {
    VERBS.iter().any(|verb| bytes.starts_with(verb))
}

/// Whether one may, once there is more of it.
fn may_be_http(bytes: &[u8]) -> bool {
    VERBS.iter().any(|verb| verb.starts_with(bytes) || bytes.starts_with(verb))
}

/// So far into what a connection says it may turn out to be a request of HTTP.
const HEAD: usize = 16 << 10;

/// Whether a line names a host, as each request of HTTP has one that does, whatever its verb. What
/// has more behind it is a point of Graphite's.
fn names_host(bytes: &[u8]) -> bool {
    bytes.split_inclusive(|byte| *byte == b'\n').any(|line| {
        let Some((name, host)) = line.split_at_checked(b"host:".len()) else { return false };
        let is_whole = line.ends_with(b"\n") && !host.trim_ascii().contains(&b' ');
        is_whole && name.eq_ignore_ascii_case(b"host:")
    })
}

/// Who is at the other side.
fn identity(stream: &Stream, met: &Identity) -> Identity {
    let certificate = stream.peer_certificate().map(Arc::from);
    Identity { certificate, ..met.clone() }
}

enum Received {
    /// What was held, and more behind it: so many bytes of a buffer, and of what was held.
    Bytes(Vec<u8>, usize, usize),
    /// Nothing, as yet, and points wait to be saved.
    NothingMore,
    End,
    Gone,
}

struct Connection {
    stream: Stream,
    /// Who is at the other side, but for the certificate.
    met: Identity,
    session: Session,
    /// Where its points go.
    taker: Option<Arc<Opened>>,
    /// Received and not taken: the beginning of a line.
    held: Vec<u8>,
    /// Points and refusals that were counted for all to see.
    counted: (u64, u64),
    judged: Judged,
    known: Known,
    /// Nobody hears the last replies.
    is_gone: bool,
    /// It is not known yet whether this is a request of HTTP.
    is_new: bool,
    /// Bytes that it has said.
    said: usize,
}

impl Connection {
    /// Whether what it says now is a request of HTTP.
    fn speaks_http(&self, bytes: &[u8]) -> bool {
        self.is_new && is_http(bytes) || self.said < HEAD && names_host(bytes)
    }

    /// Takes points in until the sender has said all or is gone, the store fails, or the server
    /// stops. What went wrong is among the last replies; whether nothing did, and all is durable.
    async fn receive_all(&mut self, hub: &Hub, caller: &Caller) -> bool {
        let is_stopped = loop {
            // The signal is looked at here too: what is always ready would never wait for it.
            if hub.is_stopping() {
                break true;
            }
            if self.wait_for_quota(hub, caller).await.is_err() {
                break false;
            }
            match race(caller.stop.wait(), poll_fn(|context| self.poll_receive(context))).await {
                First::Left(()) => break true,
                First::Right(Received::Gone) => {
                    self.is_gone = true;
                    break false;
                }
                First::Right(Received::End) => {
                    let rest = std::mem::take(&mut self.held);
                    let Ok(store) = self.store(hub).await else { return false };
                    return self.session.end(&rest, &store).await.is_ok();
                }
                First::Right(Received::Bytes(buffer, len, _))
                    if self.speaks_http(&buffer[..len]) =>
                {
                    events::http_on_lines(self.stream.peer_address());
                    BUFFER.set(buffer);
                    // Nothing is promised to whoever speaks it.
                    return true;
                }
                First::Right(Received::Bytes(buffer, len, _))
                    if self.is_new && may_be_http(&buffer[..len]) =>
                {
                    self.held.extend_from_slice(&buffer[..len]);
                    BUFFER.set(buffer);
                    caller.heard(hub.env.now(), false, true);
                }
                First::Right(Received::Bytes(buffer, len, was_held)) => {
                    self.is_new = false;
                    self.said = self.said.saturating_add(len - was_held);
                    if let Some(payer) = self.payer(hub) {
                        payer.pay(len - was_held);
                    }
                    match self.take(hub, buffer, len).await {
                        Ok(lines) => caller.heard(hub.env.now(), lines, !self.held.is_empty()),
                        Err(_) => break false,
                    }
                }
                First::Right(Received::NothingMore) => {
                    if self.save(hub).await.is_err() {
                        break false;
                    }
                }
            }
        };
        let _ = self.save(hub).await;
        if is_stopped {
            self.session.break_off(ENDS);
        }
        false
    }

    /// Waits while its sender is over his quota, with nothing in hand.
    async fn wait_for_quota(&mut self, hub: &Hub, caller: &Caller) -> plinth_series::Result<()> {
        while let Some(payer) = self.payer(hub) {
            if payer.owes().is_some() {
                // It is not the sender who has to hurry.
                caller.is_held_back(hub.env.now());
                self.save(hub).await?;
            }
            let delays = hub.access.throttle.delays(&payer);
            match race(caller.stop.wait(), delays).await {
                First::Right(true) => {}
                // It is looked at next.
                First::Left(()) => {
                    caller.stop.notify();
                    break;
                }
                First::Right(false) => break,
            }
        }
        Ok(())
    }

    /// Who pays for what it receives, if anybody has to. Whoever has a certificate has shown it
    /// once something has come.
    fn payer(&mut self, hub: &Hub) -> Option<Payer> {
        if self.is_new {
            return None;
        }
        let Self { known, stream, met, .. } = self;
        hub.access.throttle.sender(known, || identity(stream, met))
    }

    /// Sends replies, and receives unless too many of them wait.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Received> {
        if self.poll_send(context).is_err() {
            return Poll::Ready(Received::Gone);
        }
        if self.session.replies().len() > REPLIES {
            return self.nothing_more();
        }
        let mut buffer = BUFFER.take();
        let held = self.held.len();
        if buffer.len() < held + RECEIVE {
            buffer.resize(held + RECEIVE, 0);
        }
        buffer[..held].copy_from_slice(&self.held);
        let received = self.stream.poll_receive(context, &mut buffer[held..]);
        match received {
            Poll::Ready(Ok(len)) if len > 0 => {
                self.held.clear();
                return Poll::Ready(Received::Bytes(buffer, held + len, held));
            }
            _ => BUFFER.set(buffer),
        }
        match received {
            Poll::Pending => self.nothing_more(),
            Poll::Ready(Ok(_)) => Poll::Ready(Received::End),
            Poll::Ready(Err(_)) => Poll::Ready(Received::Gone),
        }
    }

    /// Waits, but not with points in hand.
    fn nothing_more(&self) -> Poll<Received> {
        if self.session.has_points() { Poll::Ready(Received::NothingMore) } else { Poll::Pending }
    }

    /// Takes in what was received, and holds what is no whole line; says whether there were any.
    /// Points wait for those behind them, until they are many or nothing more comes.
    async fn take(
        &mut self,
        hub: &Hub,
        buffer: Vec<u8>,
        len: usize,
    ) -> plinth_series::Result<bool> {
        let mut at = 0;
        loop {
            self.session.tell_time(clock(hub, 1).now);
            at += self.session.feed(&buffer[at..len]);
            if !self.session.wants_save() {
                break;
            }
            self.save(hub).await?;
        }
        debug_assert!(len - at <= MAX_LINE_BYTES + 1, "less than a line is left");
        self.held.extend_from_slice(&buffer[at..len]);
        BUFFER.set(buffer);
        Ok(at > 0)
    }

    /// Saves what was taken in, if that is anything.
    async fn save(&mut self, hub: &Hub) -> plinth_series::Result<()> {
        if !self.session.has_points() {
            return Ok(());
        }
        let mut held = hub.bodies.hold();
        if !held.add(self.session.in_hand()) {
            self.session.give_up(&plinth_series::Error::Behind);
            return Err(plinth_series::Error::Behind);
        }
        let store = self.store(hub).await?;
        let saved = self.session.save(&store).await;
        self.count(hub);
        saved
    }

    /// The store that takes points now. It may have become another one: what was posted so far is
    /// in its memory then before what comes, as it was sent. What a store had in memory whose
    /// series were lost is lost too, so the sender is told, and sends it again.
    async fn store(&mut self, hub: &Hub) -> plinth_series::Result<SeriesStore> {
        let followed = self.follow(hub).await;
        if let Err(why) = &followed {
            self.session.refuse(why);
        }
        followed
    }

    async fn follow(&mut self, hub: &Hub) -> plinth_series::Result<SeriesStore> {
        // Something has come by now, so whoever has a certificate has shown it.
        let (stream, met) = (&self.stream, &self.met);
        let metrics = hub.check_sender(&mut self.judged, || identity(stream, met))?;
        self.session.restrict(metrics);
        let now = hub.slot.takes_now()?;
        if let Some(taker) = self.taker.take_if(|taker| !Arc::ptr_eq(taker, &now)) {
            if let Some(why) = taker.store.lost() {
                return Err(why);
            }
            taker.store.sync().await?;
            now.store.take_in().await?;
            self.session.move_on();
        }
        let store = now.store.clone();
        self.taker = Some(now);
        Ok(store)
    }

    /// Counts what was taken and refused since it did so last.
    fn count(&mut self, hub: &Hub) {
        let now = (self.session.saved(), self.session.refused());
        let before = std::mem::replace(&mut self.counted, now);
        hub.counts.add(now.0 - before.0, now.1 - before.1);
    }

    /// Sends what can be sent now.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), ()> {
        while !self.session.replies().is_empty() {
            match self.stream.poll_send(context, self.session.replies()) {
                Poll::Ready(Ok(count)) if count > 0 => self.session.sent(count),
                Poll::Ready(_) => return Err(()),
                Poll::Pending => return Ok(()),
            }
        }
        match self.stream.poll_flush(context) {
            Poll::Ready(Err(_)) => Err(()),
            _ => Ok(()),
        }
    }

    /// Sends the last replies; if it ends `in_order` it says that there are no more, and waits for
    /// the other side to close: what it still sends is thrown away, since the system would take the
    /// replies back if it were left unread.
    async fn say_farewell(&mut self, in_order: bool) {
        let mut rest = [0; 4096];
        poll_fn(|context| {
            if self.poll_send(context).is_err() {
                return Poll::Ready(());
            }
            if !self.session.replies().is_empty() {
                return Poll::Pending;
            }
            if !in_order {
                return Poll::Ready(());
            }
            self.stream.break_when_dropped(false);
            if ready!(self.stream.poll_finish(context)).is_err() {
                return Poll::Ready(());
            }
            loop {
                match ready!(self.stream.poll_receive(context, &mut rest)) {
                    Ok(count) if count > 0 => {}
                    _ => return Poll::Ready(()),
                }
            }
        })
        .await;
    }
}
