//! Passing on what is asked of series that another server owns: the request goes to the owner as it
//! came, and his answer back while it is made.
//!
//! The owner is found by his lease, and so is what proves to him that another server of the same
//! database asks: a secret that stands in the lease's row. It is as good as access to the database,
//! by which all the series could be read as well. Whoever asked has shown here that he may. A
//! server that is no owner (any more) says so, and passes nothing on a second time: whoever passed
//! it on looks again who it is, for some seconds, in which a lease that has run out is taken over.
//!
//! Where the series are divided this is so of each part, for what only an owner can do. Queries are
//! answered where they are asked; what they need of other servers' parts their stores ask for, in
//! questions that this passes on too.

use super::Hub;
use super::sight::metrics_of;
use crate::config::Among;
use crate::http::{Io, Whole};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use plinth_env::Stream;
use plinth_env::sync::{First, race};
use plinth_series::Holder;
use plinth_types::{Bytes, Error, MetricSet, Metrics, Result};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a request says that another server of the same database passes on.
pub(super) const LEASE: HeaderName = HeaderName::from_static("x-plinth-lease");
/// Which parts a request is about that is passed on.
const PARTS: HeaderName = HeaderName::from_static("x-plinth-parts");
/// Of which metrics there are series for whoever asked what is passed on, as `Metrics` in
/// hexadecimal, with commas between; and what the path begins with then, so that a server whose
/// program doesn't know that answers nothing.
const METRICS: HeaderName = HeaderName::from_static("x-plinth-metrics");
const WITHIN: &str = "/api/within";
/// Bytes of that header, at most: the other server reads no heads that are much longer.
const MAX_METRICS: usize = 64 << 10;
/// What the path begins with where the store of another server asks about a part.
pub(super) const PART: &str = "/api/part/";
/// What a server answers that doesn't own the series.
pub(super) const MOVED: StatusCode = StatusCode::MISDIRECTED_REQUEST;
/// How long connecting to the owner may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How often it is looked, while an owner says nothing, whether he is one still.
const LOOK: Duration = Duration::from_millis(250);
/// Connections to one address that are kept for the next questions.
const WAYS: usize = 8;
/// For how long nothing may come of an owner who is asked for what he has in memory, while he seems
/// to be one: longer than it takes him to take in a whole inbox.
const SILENT: Duration = Duration::from_secs(30);

/// The address at which others find this server's door of series.
pub(super) fn address(among: &Among, door: SocketAddr, is_secure: bool) -> String {
    let ip = among.machine.filter(|_| door.ip().is_unspecified()).unwrap_or(door.ip());
    let address = SocketAddr::new(ip, door.port());
    if is_secure { format!("{address}:tls") } else { address.to_string() }
}

/// What the owner answers.
///
/// # Errors
/// If he can't be reached, or is not the owner any more: whoever is should be asked.
pub(super) async fn ask(
    hub: &Hub,
    holder: &Holder,
    head: &Parts,
    body: &[u8],
) -> Result<Response<Incoming>> {
    let request = request(holder, head, body, None)?;
    send(hub, holder, request, || hub.slot.holder().as_ref() == Some(holder)).await
}

/// What the owner of these parts of the series answers, the first of which says whether he is that
/// still.
///
/// # Errors
/// As [`ask`].
pub(super) async fn ask_about(
    hub: &Hub,
    holder: &Holder,
    (head, body): (&Parts, &[u8]),
    parts: &[usize],
) -> Result<Response<Incoming>> {
    let request = request(holder, head, body, Some(parts))?;
    send(hub, holder, request, || is_owner_of(hub, holder, parts[0])).await
}

/// What the owner of a part says to a question of this server's store.
///
/// # Errors
/// As [`ask`].
pub(super) async fn question(
    hub: &Hub,
    holder: &Holder,
    part: usize,
    question: &[u8],
) -> Result<Vec<u8>> {
    let request = Request::post(format!("{PART}{part}"))
        .header(LEASE, hex(&holder.secret))
        .header(HOST, "localhost")
        .body(Whole(Bytes::copy_from_slice(question)))
        .map_err(|why| Error::internal_error().with_detail(why.to_string()))?;
    let is_still = || is_owner_of(hub, holder, part);
    let mut sender = match hub.slot.ways.take(&holder.address) {
        Some(sender) => sender,
        None => open(hub, &holder.address).await?,
    };
    let response = send_over(hub, &mut sender, request, is_still);
    let response = within(hub, response).await??;
    let status = response.status();
    let mut body = std::pin::pin!(response.into_body());
    let mut answer = Vec::new();
    loop {
        let frame = poll_fn(|context| body.as_mut().poll_frame(context));
        let Some(frame) = within(hub, as_long_as(hub, is_still, frame)).await?? else { break };
        let frame = frame.map_err(|why| Error::connection_failed().with_detail(why.to_string()))?;
        answer.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    // It was heard to its end, so the next question can go the same way.
    hub.slot.ways.put(&holder.address, sender);
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let why = String::from_utf8_lossy(&answer[..answer.len().min(1000)]).trim().to_owned();
    Err(Error::connection_failed().with_detail(why))
}

/// Connections to other servers on which questions of stores went, and the next ones may.
#[derive(Default)]
pub(super) struct Ways(Mutex<BTreeMap<String, Vec<SendRequest<Whole>>>>);

impl Ways {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<SendRequest<Whole>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One to this address that is open, if there is one.
    fn take(&self, address: &str) -> Option<SendRequest<Whole>> {
        let mut all = self.lock();
        let ways = all.get_mut(address)?;
        ways.retain(|way| !way.is_closed());
        ways.pop()
    }

    fn put(&self, address: &str, way: SendRequest<Whole>) {
        let mut all = self.lock();
        all.retain(|_, ways| {
            ways.retain(|way| !way.is_closed());
            !ways.is_empty()
        });
        let ways = all.entry(address.to_owned()).or_default();
        if ways.len() < WAYS && !way.is_closed() {
            ways.push(way);
        }
    }
}

/// What comes, unless nothing does for too long.
async fn within<T>(hub: &Hub, coming: impl Future<Output = T>) -> Result<T> {
    match race(coming, hub.env.sleep(SILENT)).await {
        First::Left(come) => Ok(come),
        First::Right(()) => Err(Error::connection_failed().with_detail("no answer")),
    }
}

/// What comes of an owner, as long as `is_still` says that he is worth waiting for.
async fn as_long_as<T>(
    hub: &Hub,
    is_still: impl Fn() -> bool,
    coming: impl Future<Output = T>,
) -> Result<T> {
    let mut coming = std::pin::pin!(coming);
    loop {
        match race(&mut coming, hub.env.sleep(LOOK)).await {
            First::Left(come) => return Ok(come),
            First::Right(()) if is_still() => {}
            First::Right(()) => {
                return Err(Error::connection_failed().with_detail("somebody else is the owner"));
            }
        }
    }
}

fn is_owner_of(hub: &Hub, holder: &Holder, part: usize) -> bool {
    hub.slot.parts().and_then(|parts| parts.holder(part)).as_ref() == Some(holder)
}

/// The parts that a request is about which another server has passed on.
pub(super) fn listed(headers: &HeaderMap) -> Option<Vec<usize>> {
    let list = headers.get(PARTS)?.to_str().ok()?;
    list.split(',').map(|part| part.parse().ok()).collect()
}

/// Takes the metrics that a request which was passed on is about from where [`request`] put them.
/// Whether it could be understood.
pub(super) fn unwrap<B>(request: &mut Request<B>) -> bool {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let Some(path) = path.strip_prefix(WITHIN) else { return true };
    let (Ok(path), Some(metrics)) = (path.parse(), told(request.headers())) else { return false };
    *request.uri_mut() = path;
    request.extensions_mut().insert(Arc::new(metrics));
    true
}

fn told(headers: &HeaderMap) -> Option<MetricSet> {
    let list = headers.get(METRICS)?.to_str().ok()?;
    let one = |text: &str| Metrics::parse(std::str::from_utf8(&unhexed(text)?).ok()?);
    Some(MetricSet::of(list.split(',').map(one).collect::<Option<Vec<_>>>()?))
}

/// A request as it is passed on.
fn request(
    holder: &Holder,
    head: &Parts,
    body: &[u8],
    parts: Option<&[usize]>,
) -> Result<Request<Whole>> {
    let mut path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let metrics = metrics_of(&head.extensions);
    if metrics.is_some() {
        path.insert_str(0, WITHIN);
    }
    let mut request = Request::builder().method(head.method.clone()).uri(path);
    if let Some(metrics) = metrics {
        let list: Vec<String> = metrics.iter().map(|one| hex(one.to_string().as_bytes())).collect();
        let list = list.join(",");
        if list.len() > MAX_METRICS {
            let why = "the names of the metrics that whoever asks has a right to are too long to be \
                       passed on: grant beginnings of them, as cpu.*";
            return Err(Error::attribute_too_large().with_detail(why));
        }
        request = request.header(METRICS, list);
    }
    request = request.header(LEASE, hex(&holder.secret)).header(HOST, "localhost");
    if let Some(parts) = parts {
        let list: Vec<String> = parts.iter().map(ToString::to_string).collect();
        request = request.header(PARTS, list.join(","));
    }
    for name in [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING] {
        for value in head.headers.get_all(&name) {
            request = request.header(&name, HeaderValue::clone(value));
        }
    }
    request
        .body(Whole(Bytes::copy_from_slice(body)))
        .map_err(|why| Error::internal_error().with_detail(why.to_string()))
}

/// What whoever is at the holder's address answers, as long as `is_still` says that he is worth
/// waiting for.
async fn send(
    hub: &Hub,
    holder: &Holder,
    request: Request<Whole>,
    is_still: impl Fn() -> bool,
) -> Result<Response<Incoming>> {
    let mut sender = open(hub, &holder.address).await?;
    send_over(hub, &mut sender, request, is_still).await
}

/// A new connection for requests to whoever is at this address.
async fn open(hub: &Hub, address: &str) -> Result<SendRequest<Whole>> {
    let stream = match race(connect(hub, address), hub.env.sleep(CONNECT)).await {
        First::Left(stream) => stream?,
        First::Right(()) => return Err(Error::connection_failed().with_detail("no answer")),
    };
    let (sender, connection) = http1::handshake::<_, Whole>(Io(stream)).await.map_err(failed)?;
    // It ends when nobody holds the way or the answer any more.
    drop(hub.env.spawn_network("pass on", async move {
        let _ = connection.await;
    }));
    Ok(sender)
}

async fn send_over(
    hub: &Hub,
    sender: &mut SendRequest<Whole>,
    request: Request<Whole>,
    is_still: impl Fn() -> bool,
) -> Result<Response<Incoming>> {
    let answering = async {
        sender.ready().await?;
        sender.send_request(request).await
    };
    let response = as_long_as(hub, is_still, answering).await?.map_err(failed)?;
    match response.status() {
        MOVED => Err(Error::connection_failed().with_detail("it isn't the owner")),
        _ => Ok(response),
    }
}

fn failed(why: hyper::Error) -> Error {
    Error::connection_failed().with_detail(why.to_string())
}

/// Bytes as text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that [`hex`] has written so.
fn unhexed(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let pairs = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    pairs.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok()).collect()
}

/// A connection to a door of series.
async fn connect(hub: &Hub, address: &str) -> Result<Stream> {
    let (bare, is_secure) =
        address.strip_suffix(":tls").map_or((address, false), |bare| (bare, true));
    let bare: SocketAddr = bare.parse().map_err(|_| {
        Error::connection_failed().with_detail(
            "the owner of the series answers no questions: it has no listener series-http",
        )
    })?;
    let stream = hub.env.sockets().connect(bare).await?;
    if !is_secure {
        return Ok(stream);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = hub.slot.among().and_then(|among| among.tls.as_ref()) {
        return plinth_tls::connect(&hub.env, tls, stream).await;
    }
    Err(Error::tls_error()
        .with_detail("the owner of the series speaks TLS, and this server has no certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder() -> Holder {
        Holder { name: "b".to_owned(), address: "127.0.0.1:1".to_owned(), secret: [7; 16] }
    }

    /// A request of whoever has these metrics, as the owner of the series gets it.
    fn passed_on(path: &str, metrics: Option<&[&str]>) -> Request<Whole> {
        let mut asked = Request::builder().uri(path).body(()).unwrap();
        if let Some(metrics) = metrics {
            let metrics = metrics.iter().map(|text| Metrics::parse(text).unwrap());
            asked.extensions_mut().insert(Arc::new(MetricSet::of(metrics)));
        }
        request(&holder(), &asked.into_parts().0, b"", None).unwrap()
    }

    #[test]
    fn the_owner_knows_which_metrics_there_are_for_whoever_asked() {
        let mut all = passed_on("/api/v1/labels?limit=1", None);
        assert!(unwrap(&mut all) && metrics_of(all.extensions()).is_none());
        let wanted = ["cpu.*", "a,b \u{e4}", "*"];
        let mut some = passed_on("/api/v1/labels?limit=1", Some(&wanted));
        // Who doesn't know what that is has no such path.
        assert!(some.uri().path().starts_with("/api/within/"), "{}", some.uri());
        assert!(unwrap(&mut some));
        assert_eq!(some.uri(), "/api/v1/labels?limit=1");
        let metrics = wanted.iter().map(|text| Metrics::parse(text).unwrap());
        assert_eq!(
            metrics_of(some.extensions()).map(|found| &**found),
            Some(&MetricSet::of(metrics))
        );
    }

    #[test]
    fn more_metrics_than_a_head_has_room_for_are_told_so() {
        let metric = |number: u32| Metrics::parse(&format!("a.metric.with.a.name.{number:08}"));
        let mut asked = Request::builder().uri("/api/v1/labels").body(()).unwrap();
        let metrics: MetricSet = MetricSet::of((0..2000).filter_map(metric));
        asked.extensions_mut().insert(Arc::new(metrics));
        let refused = request(&holder(), &asked.into_parts().0, b"", None).map(drop);
        assert!(refused.is_err_and(|why| why.to_string().contains("grant beginnings")));
    }

    #[test]
    fn what_does_not_say_which_metrics_is_not_answered_for_all() {
        for header in [None, Some(""), Some("6"), Some("zz"), Some("6370752e2a,"), Some("612a62")] {
            let mut request = passed_on("/api/v1/labels", Some(&["cpu"]));
            request.headers_mut().remove(METRICS);
            if let Some(header) = header {
                request.headers_mut().insert(METRICS, HeaderValue::from_static(header));
            }
            assert!(!unwrap(&mut request), "{header:?}");
        }
    }
}
