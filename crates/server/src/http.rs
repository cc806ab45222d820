//! HTTP: the transport of everything that answers it, over hyper.
//!
//! What is asked and answered stands behind it, as a [`Site`]: the console, and queries of time
//! series; here are the sockets. A connection may be used for many requests. Its other side has a
//! deadline whenever it is its turn: for a request to arrive wholly, for the answer to be taken; so
//! neither half a request nor an answer that nobody takes keeps anything. Heads are bounded by
//! hyper's buffer, bodies by whoever reads them, connections by a number: beyond it one whose turn
//! it is makes room for the newcomer (`crowd.rs`), so that no number of half requests keeps a probe
//! from its answer. Where all of them are being answered, nobody can make room: then a newcomer has
//! a place among a few more, and may ask there whether anybody is here, and nothing else.
//!
//! ```text
//!   accepted ─▶ first bytes ─┬─ a probe: answered here, by threads that go first, and closed
//!                            └─ anything else: a thread that lets those of keys go first
//! ```
//! So a probe waits neither for what others have asked nor for processors that keys need: whoever
//! looks after a server ends one that doesn't answer within a second. Over TLS all of it happens
//! behind: a handshake costs as much as a hundred requests for keys.

use crate::crowd::{Waited, who_makes_room};
use crate::door::Door;
use crate::rights::{Identity, Rights};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Stream};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use target::{Bodiless, Requests};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

mod target;

/// How often deadlines are looked at, and whether the server is stopping.
const TICK: Duration = Duration::from_millis(250);
/// How long accepting pauses when the system has no room for another connection.
const BREATH: Duration = Duration::from_millis(50);
/// What answers the requests that come through a door.
pub(crate) trait Site: Send + Sync + 'static {
    /// How answers are sent.
    type Answer: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static;
    /// What its connections may cost.
    const BOUNDS: Bounds;

    fn env(&self) -> &Env;
    /// Told when nothing more is to be accepted.
    fn stop(&self) -> &Signal;
    fn is_stopping(&self) -> bool;
    /// By which it is judged who asks, if anybody is.
    fn rights(&self) -> Option<&Rights>;
    /// Answers. The other side's time runs as `patience` was left; while it is not its turn it has
    /// to be stopped.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        patience: Arc<Patience>,
    ) -> impl Future<Output = Response<Self::Answer>> + Send;
}

/// What the connections of a site may cost.
pub(crate) struct Bounds {
    /// How many at a time.
    pub(crate) connections: usize,
    /// How many more, of those who come while all of them are being answered: for probes.
    pub(crate) probes: usize,
    /// What one keeps of a request's head and of an answer that is being sent.
    pub(crate) buffer: usize,
    /// How long one may be without a whole request.
    pub(crate) idle: Duration,
    /// Whether who has closed its half still gets its answer; if not, it has gone away, and the
    /// work for it ends.
    pub(crate) half_close: bool,
    /// Paths by which it is asked whether anybody is here: answers that cost next to nothing. A
    /// connection that begins with one is answered at once, and closed.
    pub(crate) asked_first: &'static [&'static str],
}

/// Answers until told to stop.
pub(crate) async fn serve<S: Site>(site: Arc<S>, door: Door) {
    let open = Arc::new(Places::default());
    loop {
        match race(site.stop().wait(), door.accept()).await {
            First::Left(()) => return,
            First::Right(Err(_)) => site.env().sleep(BREATH).await,
            First::Right(Ok(stream)) => admit(&site, &open, stream, door.is_secure()),
        }
    }
}

/// The places of a door: the usual ones, and those for probes.
#[derive(Default)]
struct Places {
    usual: Slots,
    probes: Slots,
}

impl Places {
    /// As [`Slots::enter`], among the probes if there is no other place.
    fn enter(&self, address: IpAddr, patience: &Arc<Patience>, bounds: &Bounds) -> Option<u64> {
        let usual = self.usual.enter(address, patience, bounds.connections);
        usual.or_else(|| {
            patience.is_for_probes.store(true, Ordering::Relaxed);
            self.probes.enter(address, patience, bounds.probes)
        })
    }

    fn leave(&self, number: u64, patience: &Arc<Patience>) {
        let slots = if patience.is_for_probes() { &self.probes } else { &self.usual };
        slots.leave(number, patience);
    }
}

/// Connections by number: where each comes from, and how long it has for what it is to do.
#[derive(Default)]
struct Slots(Mutex<BTreeMap<u64, (IpAddr, Arc<Patience>)>>);

impl Slots {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (IpAddr, Arc<Patience>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, in the place of another one if there are `most`; gives its number.
    /// `None` if all of them are being answered.
    fn enter(&self, address: IpAddr, patience: &Arc<Patience>, most: usize) -> Option<u64> {
        let mut slots = self.lock();
        let mut displaced = None;
        if slots.len() >= most {
            let since = |patience: &Patience| patience.waited_since();
            let waited: Vec<_> = slots
                .iter()
                .filter_map(|(number, (address, patience))| {
                    Some(Waited { number: *number, address: *address, since: since(patience)? })
                })
                .collect();
            displaced = slots.remove(&who_makes_room(&waited)?);
        }
        let number = slots.last_key_value().map_or(0, |(last, _)| last + 1);
        slots.insert(number, (address, patience.clone()));
        drop(slots);
        if let Some((_, patience)) = displaced {
            patience.displaced.notify();
        }
        Some(number)
    }

    /// The connection has ended. Its number may be another's by now, if it made room for that.
    fn leave(&self, number: u64, patience: &Arc<Patience>) {
        let mut slots = self.lock();
        if slots.get(&number).is_some_and(|(_, known)| Arc::ptr_eq(known, patience)) {
            slots.remove(&number);
        }
    }
}

/// Gives a connection its task, unless too many are being answered.
fn admit<S: Site>(site: &Arc<S>, open: &Arc<Places>, stream: Stream, is_secure: bool) {
    let address = stream.peer_address().ip();
    let met = site.rights().map_or(Identity::at(address), |rights| rights.meet(&stream));
    let patience = Arc::new(Patience::new(site.env(), met));
    patience.set(S::BOUNDS.idle);
    let Some(number) = open.enter(address, &patience, &S::BOUNDS) else { return };
    let (site, open) = (site.clone(), open.clone());
    let env = site.env().clone();
    let first = async move {
        let begun = race(begin(stream, S::BOUNDS.asked_first), overdue(&site, &patience)).await;
        let begun = match begun {
            First::Left(begun) => begun,
            First::Right(()) => None,
        };
        let Some(begun) = begun else { return open.leave(number, &patience) };
        let (is_probe, env) = (begun.is_probe, site.env().clone());
        let connection = async move {
            converse(site, begun, &patience).await;
            open.leave(number, &patience);
        };
        match is_probe || is_secure {
            true => connection.await,
            false => drop(env.spawn_network_behind(usize::MAX, "http", connection)),
        }
    };
    drop(match is_secure {
        true => env.spawn_network_behind(usize::MAX, "http", first),
        false => env.spawn_network("http", first),
    });
}

/// A connection, and what it has said.
struct Begun {
    stream: Stream,
    head: Vec<u8>,
    /// It asks whether anybody is here, and for nothing else.
    is_probe: bool,
}

/// Waits for the first bytes of a connection. `None` if there is none any more.
async fn begin(mut stream: Stream, paths: &[&str]) -> Option<Begun> {
    let (mut head, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        let arrived = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.ok()?;
        head.extend_from_slice(&buffer[..arrived]);
        let asked = asks(&head, paths);
        if let Some(is_probe) = asked.or((arrived == 0).then_some(false)) {
            return Some(Begun { stream: stream.detached().ok()?, head, is_probe });
        }
    }
}

/// Whether a connection that begins so asks for one of these paths, and for no more at once; `None`
/// while it may yet.
fn asks(head: &[u8], paths: &[&str]) -> Option<bool> {
    let mut may = false;
    for method in ["GET ", "HEAD "] {
        for path in paths {
            let line = [method.as_bytes(), path.as_bytes(), b" "].concat();
            if head.starts_with(&line) {
                // Who asks for more at once has it all from one thread, in its order.
                let end = head.windows(4).position(|end| end == b"\r\n\r\n");
                return Some(end.is_none_or(|end| end + 4 == head.len()));
            }
            may |= line.starts_with(head);
        }
    }
    (!may).then_some(false)
}

/// Waits until a connection has to go: it has had its time, another one needs its place, or the
/// server stops.
async fn overdue<S: Site>(site: &Arc<S>, patience: &Patience) {
    while !site.is_stopping() && !patience.has_passed() {
        if let First::Left(()) = race(patience.displaced.wait(), site.env().sleep(TICK)).await {
            return;
        }
    }
}

/// Requests and their answers, until the other side has no more of them. What goes wrong on the
/// socket is its affair.
async fn converse<S: Site>(site: Arc<S>, begun: Begun, patience: &Arc<Patience>) {
    if let Some(rights) = site.rights() {
        rights.settle(patience.other_side()).await;
    }
    let bodiless = Bodiless::default();
    let service = service_fn(|request: Request<Incoming>| {
        if request.body().is_end_stream() {
            bodiless.count();
        }
        let answer = site.clone().answer(request, patience.clone());
        async move {
            let mut answer = answer.await;
            if patience.is_for_probes() {
                // Whoever comes again may find a place of another kind.
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(S::BOUNDS.buffer)
        .auto_date_header(false)
        .half_close(S::BOUNDS.half_close)
        .keep_alive(!begun.is_probe)
        .serve_connection(Requests::new(begun.stream, begun.head, bodiless.clone()), service);
    race(connection, overdue(&site, patience)).await;
}

/// When the server's patience with a connection ends, and since when it has any, in milliseconds of
/// the environment's clock.
pub(crate) struct Patience {
    env: Env,
    other_side: Identity,
    at: AtomicU64,
    since: AtomicU64,
    /// It has a place where it may ask for little: it can be told to make room at any time.
    is_for_probes: AtomicBool,
    /// It had to make room.
    displaced: Signal,
}

impl Patience {
    /// One that has ended.
    pub(crate) fn new(env: &Env, other_side: Identity) -> Self {
        let (at, since) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_for_probes = AtomicBool::new(false);
        Self { env: env.clone(), other_side, at, since, is_for_probes, displaced: Signal::new() }
    }

    /// The other side has so long for what comes next.
    pub(crate) fn set(&self, within: Duration) {
        let now = self.env.now();
        for (known, time) in [(&self.at, now + within), (&self.since, now)] {
            known.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Who is at the other side, before he has shown anything.
    pub(crate) fn other_side(&self) -> &Identity {
        &self.other_side
    }

    /// Since when it is the other side's turn, if it is.
    fn waited_since(&self) -> Option<u64> {
        (self.at.load(Ordering::Relaxed) != u64::MAX).then(|| self.since.load(Ordering::Relaxed))
    }

    /// It isn't the other side that has to hurry now; a probe's time goes on.
    pub(crate) fn stop(&self) {
        if !self.is_for_probes() {
            self.at.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Whether it may ask for nothing but whether anybody is here.
    pub(crate) fn is_for_probes(&self) -> bool {
        self.is_for_probes.load(Ordering::Relaxed)
    }

    fn has_passed(&self) -> bool {
        self.env.now().as_millis() > u128::from(self.at.load(Ordering::Relaxed))
    }
}

/// A body that is there as a whole.
pub(crate) struct Whole(pub(crate) Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// A stream as hyper wants it, without what it would take to read into memory that isn't
/// initialised.
pub(crate) struct Io<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> hyper::rt::Read for Io<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 4096];
        let room = cursor.remaining().min(bytes.len());
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Io<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
