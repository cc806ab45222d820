//! HTTP for people and for the programs that watch: the transport, over hyper.
//!
//! What is asked and answered stands in `console`; here are the sockets. A connection may be used for many requests. It
//! has a deadline at all times: for a request to arrive wholly, to be answered, for the answer to be taken; so neither
//! half a request nor an answer that nobody takes keeps anything. Heads are bounded by hyper's buffer, bodies by whoever
//! reads them, connections by a number.

use crate::console;
use crate::door::Door;
use crate::server::Shared;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use plinth_env::sync::{First, race};
use plinth_types::Bytes;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection keeps of a request's head and of an answer that is being sent.
const BUFFER: usize = 16 << 10;
/// How long a connection may be without a whole request.
const IDLE: Duration = Duration::from_secs(15);
/// How long answering one may take.
const ANSWERING: Duration = Duration::from_secs(30);
/// How often deadlines are looked at, and whether the server is stopping.
const TICK: Duration = Duration::from_millis(250);
/// Connections at a time.
const CONNECTIONS: usize = 128;

/// Text made anew for each request, such as a node's measurements.
#[derive(Clone)]
pub struct Page(Arc<dyn Fn() -> String + Send + Sync>);

impl Page {
    /// The page that `make` gives.
    pub fn new(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn text(&self) -> String {
        (self.0)()
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Page")
    }
}

/// Answers until told to stop.
pub(crate) async fn serve(shared: Arc<Shared>, door: Door) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        match race(shared.stops.http.wait(), door.accept()).await {
            First::Left(()) => return,
            First::Right(Err(_)) => shared.env.sleep(Duration::from_millis(50)).await,
            First::Right(Ok(stream)) => admit(&shared, &open, stream),
        }
    }
}

/// Gives a connection its task, if there are not too many.
fn admit(
    shared: &Arc<Shared>,
    open: &Arc<AtomicUsize>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) {
    if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
        open.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (theirs, open) = (shared.clone(), open.clone());
    drop(shared.env.spawn_network("http", async move {
        converse(theirs, stream).await;
        open.fetch_sub(1, Ordering::Relaxed);
    }));
}

/// Requests and their answers, until the other side has no more of them. What goes wrong on the socket is its affair.
async fn converse(shared: Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let deadline = Arc::new(Deadline::default());
    deadline.set(&shared, IDLE);
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, deadline) = (shared.clone(), deadline.clone());
        async move {
            deadline.set(&shared, ANSWERING);
            let answer: Response<Whole> = console::answer(shared.clone(), request).await;
            deadline.set(&shared, IDLE);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER)
        .auto_date_header(false)
        .half_close(true)
        .serve_connection(Io(stream), service);
    race(connection, overdue(shared.clone(), deadline.clone())).await;
}

/// Waits until the deadline has passed, or the server stops.
async fn overdue(shared: Arc<Shared>, deadline: Arc<Deadline>) {
    while !shared.is_stopping() && !deadline.has_passed(&shared) {
        shared.env.sleep(TICK).await;
    }
}

/// When a connection's patience ends, in milliseconds of the environment's clock.
#[derive(Default)]
struct Deadline(AtomicU64);

impl Deadline {
    fn set(&self, shared: &Shared, within: Duration) {
        let at = (shared.env.now() + within).as_millis();
        self.0.store(u64::try_from(at).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn has_passed(&self, shared: &Shared) -> bool {
        shared.env.now().as_millis() > u128::from(self.0.load(Ordering::Relaxed))
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

/// A stream as hyper wants it, without what it would take to read into memory that isn't initialised.
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
