//! How requests get to an object store: HTTP/1.1 over the sockets of `env`, TLS where the URL says
//! so, connections that are used again, and tries.
//!
//! A request is tried again when the store is at a loss for a moment (500, 502, 503, 504, 429,
//! 408), or nothing came back in time: later each time, and not before the store said
//! (`Retry-After`). Its answer is read whole before it is believed, so one that breaks off is tried
//! again too. Whatever has to be known about a request that may have been carried out twice is the
//! caller's matter.

use bytes::Bytes;
use hyper::body::Body;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue, RETRY_AFTER};
use hyper::rt::ReadBufCursor;
use hyper::{Response, StatusCode, Uri};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Stream, Task};
use plinth_tls::Authorities;
use plinth_types::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first pause before another try, and the longest; `Retry-After` may ask for a longer one, up
/// to [`MOST_ASKED`].
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
const MOST_ASKED: Duration = Duration::from_secs(60);
/// The most bytes of an answer that are taken.
const MOST_BYTES: usize = 1 << 30;
/// What a slow line needs for a body is allowed besides the time-out, at so many bytes a second.
const SLOWEST: u64 = 128 << 10;
/// How long a connection may take to say why it has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// Connections that wait for another request to the same place.
const IDLE: usize = 16;

/// How long is waited, and how often it is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Patience {
    pub connect: Duration,
    /// Without a byte.
    pub request: Duration,
    pub tries: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), request: Duration::from_secs(30), tries: 8 }
    }
}

/// Why a request has to be tried again.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// Connects stores to the sockets of `env`.
pub(super) struct Connector {
    pub env: Env,
    pub patience: Patience,
    /// What is told of tries that failed, while there is another.
    pub trouble: Trouble,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let (env, patience, trouble) = (self.env.clone(), self.patience, self.trouble.clone());
        let (idle, authorities) = Default::default();
        let shared = Shared { env, patience, trouble, idle, authorities };
        Ok(HttpClient::new(Service(Arc::new(shared))))
    }
}

/// A connection. Its own task knows why it ended: a certificate that isn't trusted, say.
struct Sender {
    requests: SendRequest<HttpRequestBody>,
    task: Task,
    ended: Ended,
}

/// Why a connection has ended, if something was wrong.
type Ended = Arc<Mutex<Option<String>>>;

impl Sender {
    /// An error of a request, with what is known of the connection.
    async fn told(&mut self, env: &Env, error: hyper::Error) -> Error {
        // A request that found the connection at its end says no more than that.
        if error.is_closed() || error.is_canceled() {
            let _ = race(&mut self.task, env.sleep(FAREWELL)).await;
        }
        failed(lock(&self.ended).take().unwrap_or_else(|| with_causes(&error)))
    }
}

/// An error with what led to it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

struct Shared {
    env: Env,
    patience: Patience,
    trouble: Trouble,
    /// Connections without a request under way, by scheme and authority.
    idle: Mutex<BTreeMap<String, Vec<Sender>>>,
    authorities: Mutex<Option<Arc<Authorities>>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Service(Arc<Shared>);

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

impl HttpService for Service {
    fn call<'s, 'a>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'a>>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move {
            let answered = self.0.answer(request).await;
            answered.map_err(|error| HttpError::new(HttpErrorKind::Unknown, Told(error)))
        })
    }
}

/// An error of ours, as others want it.
#[derive(Debug)]
struct Told(Error);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.summary())
    }
}

impl std::error::Error for Told {}

fn failed(what: impl fmt::Display) -> Error {
    Error::connection_failed().with_detail(what.to_string())
}

/// A whole answer.
type Answer = Response<Bytes>;

/// Whether another try may do better.
fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// How long the store asks to wait.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

impl Shared {
    /// Asks, again and again if need be.
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse> {
        let (parts, body) = request.into_parts();
        let (mut pause, mut tries) = (PAUSES[0], self.patience.tries.max(1));
        loop {
            let mut again = HttpRequest::new(body.clone());
            *again.method_mut() = parts.method.clone();
            *again.uri_mut() = parts.uri.clone();
            *again.headers_mut() = parts.headers.clone();
            let answered = self.once(again).await;
            tries -= 1;
            let asked = match &answered {
                Ok(answer) if tries > 0 && may_pass(answer.status()) => {
                    *lock(&self.trouble) = Some(format!("the store said {}", answer.status()));
                    retry_after(answer)
                }
                Err(error) if tries > 0 => {
                    *lock(&self.trouble) = Some(error.summary().to_string());
                    None
                }
                _ => {
                    *lock(&self.trouble) = None;
                    return answered.map(|answer| answer.map(HttpResponseBody::from));
                }
            };
            let jitter = Duration::from_millis(
                self.env.random_u64() % (pause.as_millis() as u64 / 2).max(1),
            );
            self.env.sleep(asked.unwrap_or_default().min(MOST_ASKED).max(pause + jitter)).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Asks once. A connection on which something went wrong isn't used again.
    async fn once(&self, mut request: HttpRequest) -> Result<Answer> {
        let uri = request.uri().clone();
        let authority = uri.authority().ok_or_else(|| failed("a request without a host"))?.clone();
        let is_secret = uri.scheme_str() == Some("https");
        let place = format!("{}://{authority}", if is_secret { "https" } else { "http" });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = Uri::try_from(path).map_err(failed)?;
        if !request.headers().contains_key(HOST) {
            let host = HeaderValue::from_str(authority.as_str()).map_err(failed)?;
            request.headers_mut().insert(HOST, host);
        }
        if !request.headers().contains_key(CONTENT_LENGTH) && request.method() != hyper::Method::GET
        {
            let len = request.body().content_length();
            request.headers_mut().insert(CONTENT_LENGTH, len.into());
        }
        let upload = Duration::from_secs(request.body().content_length() as u64 / SLOWEST);
        let mut sender = match self.take_idle(&place) {
            Some(sender) => sender,
            None => {
                let port = authority.port_u16().unwrap_or(if is_secret { 443 } else { 80 });
                let connecting = self.connect(authority.host(), port, is_secret);
                self.within(self.patience.connect, &place, "connecting", connecting).await?
            }
        };
        let asking = async {
            match sender.requests.send_request(request).await {
                Ok(answer) => Ok(answer),
                Err(error) => Err(sender.told(&self.env, error).await),
            }
        };
        let answer =
            self.within(self.patience.request + upload, &place, "a request", asking).await?;
        let (parts, mut body) = answer.into_parts();
        let mut contents = Vec::new();
        loop {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let frame = async { frame.await.transpose().map_err(failed) };
            let Some(frame) =
                self.within(self.patience.request, &place, "an answer", frame).await?
            else {
                break;
            };
            if let Ok(data) = frame.into_data() {
                if contents.len() + data.len() > MOST_BYTES {
                    return Err(failed(format!(
                        "{place}: an answer of more than {MOST_BYTES} bytes"
                    )));
                }
                contents.extend_from_slice(&data);
            }
        }
        if sender.requests.is_ready() || !sender.requests.is_closed() {
            self.keep_idle(place, sender);
        }
        Ok(Response::from_parts(parts, contents.into()))
    }

    /// # Errors
    /// `timed_out` if it takes longer.
    async fn within<T>(
        &self,
        time: Duration,
        place: &str,
        what: &str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match race(work, self.env.sleep(time)).await {
            First::Left(done) => done.map_err(|error| {
                let said = error.summary();
                Error::connection_failed().with_detail(format!("{place}: {said}"))
            }),
            First::Right(()) => {
                let detail = format!("{place}: {what} took longer than {} s", time.as_secs_f32());
                Err(Error::timed_out().with_detail(detail))
            }
        }
    }

    fn take_idle(&self, place: &str) -> Option<Sender> {
        let mut idle = lock(&self.idle);
        let waiting = idle.get_mut(place)?;
        while let Some(sender) = waiting.pop() {
            if sender.requests.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep_idle(&self, place: String, sender: Sender) {
        let mut idle = lock(&self.idle);
        let waiting = idle.entry(place).or_default();
        if waiting.len() < IDLE {
            waiting.push(sender);
        }
    }

    async fn connect(&self, host: &str, port: u16, is_secret: bool) -> Result<Sender> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = self.env.sockets().resolve(host, port).await?;
        let mut stream = self.env.connect_to_any(&addresses).await?;
        if is_secret {
            stream = self.authorities().await?.connect(host, stream)?;
        }
        let (requests, connection) = http1::handshake(Io(stream)).await.map_err(failed)?;
        let ended = Ended::default();
        let told = ended.clone();
        let task = self.env.spawn("backup-http", async move {
            if let Err(error) = connection.await {
                *lock(&told) = Some(with_causes(&error));
            }
        });
        let mut sender = Sender { requests, task, ended };
        match sender.requests.ready().await {
            Ok(()) => Ok(sender),
            Err(error) => Err(sender.told(&self.env, error).await),
        }
    }

    async fn authorities(&self) -> Result<Arc<Authorities>> {
        if let Some(known) = &*lock(&self.authorities) {
            return Ok(known.clone());
        }
        let loaded = Arc::new(Authorities::load(&self.env).await?);
        Ok(lock(&self.authorities).get_or_insert(loaded).clone())
    }
}

/// A stream as hyper wants it, without what it would take to read into memory that isn't
/// initialised.
struct Io(Stream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 16 << 10];
        let room = cursor.remaining().min(bytes.len());
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        cursor.put_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
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
