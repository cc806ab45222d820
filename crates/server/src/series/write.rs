//! Points that come as requests: InfluxDB's line protocol and Prometheus' remote write, versions 1
//! and 2.
//!
//! A request is answered when its points are committed. Lines or series that are wrong are named in
//! an answer 400, or 403 if some are of metrics that no right covers, and the others are taken, as
//! both protocols have it; an answer of 500 or more says that nothing is known to be committed, and
//! senders repeat. What sessions remember of names is kept from one request to the next.

use super::Hub;
use super::bodies::{Held, NO_ROOM};
use super::gzip;
use super::opened::Opened;
use super::waiting::Sender;
use crate::answers::why_refused;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, header};
use plinth_series::ingest::{Clock, MAX_LINE_BYTES, Protocol, RemoteWrite, Session};
use std::borrow::Cow;

/// Largest body as it is sent.
pub(super) const MAX_BODY: usize = 32 << 20;
/// Bytes of a message that are expanded at once on a thread that others need too; more have one of
/// their own.
const AT_ONCE: usize = 256 << 10;
/// Bytes of lines, and lines, that are read before others have their turn on the thread: some
/// tenths of a millisecond's.
const PIECE_LINES: usize = 1000;
const PIECE: usize = 128 << 10;
const _: () = assert!(PIECE > 2 * MAX_LINE_BYTES, "a piece has a whole line");

/// What InfluxDB's clients are told: the version whose requests are understood.
pub(super) const INFLUX_VERSION: &str = "1.8.0-plinth";

/// Whether a path is one of InfluxDB's, whose clients look for its version in every answer.
pub(super) fn is_influx(path: &str) -> bool {
    matches!(path, "/write" | "/api/v2/write" | "/query" | "/ping" | "/health" | "/ready")
}

/// Whether a request is answered here.
pub(super) fn owns(path: &str, method: &Method) -> bool {
    match path {
        "/write" | "/api/v2/write" | "/api/v1/write" => method == Method::POST,
        "/query" => method == Method::POST || method == Method::GET,
        "/ping" | "/health" | "/ready" => method == Method::GET || method == Method::HEAD,
        _ => false,
    }
}

/// How many samples, native histograms and exemplars were written.
pub(super) type Written = [u64; 3];

/// A status, and a text that is empty, or JSON, or says what is wrong; and what was written, where
/// the sender is told that.
pub(super) type Told = (StatusCode, String, Option<Written>);

/// Answers a request that is [`owns`].
pub(super) async fn answer(
    hub: &Hub,
    head: &Parts,
    body: &[u8],
    (sender, held): (&Sender, &mut Held),
) -> Told {
    let headers = &head.headers;
    let path = head.uri.path();
    let takes_points = path.ends_with("write");
    let opened = match hub.slot.takes().await {
        Err(why) if takes_points => {
            let why = why.to_string();
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let text = if path == "/api/v1/write" { why + "\n" } else { json(status, &why) };
            return (status, text, None);
        }
        opened => opened.ok(),
    };
    let (status, text) = match (path, &opened) {
        ("/ping", _) => (StatusCode::NO_CONTENT, String::new()),
        ("/health" | "/ready", _) => match (path, why_ill(hub).await) {
            (_, Some(why)) => {
                let text =
                    serde_json::json!({ "name": "plinth", "status": "fail", "message": why });
                (StatusCode::SERVICE_UNAVAILABLE, format!("{text}\n"))
            }
            ("/health", None) => {
                (StatusCode::OK, "{\"name\":\"plinth\",\"status\":\"pass\"}\n".to_owned())
            }
            (_, None) => (StatusCode::OK, "{\"status\":\"ready\"}\n".to_owned()),
        },
        ("/query", _) => influx_query(head.uri.query().unwrap_or_default().as_bytes(), body),
        ("/api/v1/write", Some(opened)) => {
            return remote_write(hub, opened, headers, body, (sender, held)).await;
        }
        (_, Some(opened)) => {
            influx(hub, opened, head.uri.query().unwrap_or_default(), headers, body, (sender, held))
                .await
        }
        (_, None) => (StatusCode::NOT_FOUND, String::new()),
    };
    (status, text, None)
}

/// What Prometheus' clients are told who look whether anything is here, and whether it is ready.
pub(super) async fn greeting(hub: &Hub, path: &str) -> (StatusCode, String) {
    let why = if path == "/-/ready" { why_ill(hub).await } else { None };
    match why {
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n"),
        None => (StatusCode::OK, "Plinth answers queries of time series here.\n".to_owned()),
    }
}

/// Why points are neither taken nor asked for here, if so: as the health of the server's own port
/// says it.
async fn why_ill(hub: &Hub) -> Option<String> {
    if let Some(error) = hub.asking.pulse.refusal() {
        return Some(format!("{}: {} ({})", why_refused(&error), error.name(), error.code()));
    }
    if let Err(why) = hub.slot.takes_now() {
        return Some(why.to_string());
    }
    // What was opened before somebody locked the database stays open.
    hub.asking.pulse.lock().await.map(|lock| lock.to_string())
}

/// The content type of an answer.
pub(super) fn kind(text: &str) -> &'static str {
    if text.starts_with('{') { "application/json" } else { "text/plain; charset=utf-8" }
}

/// Whether a message of remote write is one of version 2, by the type of its content; `None` if it
/// is of neither version.
fn is_second(headers: &HeaderMap) -> Option<bool> {
    let kind = headers.get(header::CONTENT_TYPE).map_or(Some(""), |kind| kind.to_str().ok())?;
    let mut parameters = kind.split(';').skip(1).map(str::trim);
    match parameters.find_map(|parameter| parameter.strip_prefix("proto=")) {
        None | Some("prometheus.WriteRequest") => Some(false),
        Some("io.prometheus.write.v2.Request") => Some(true),
        Some(_) => None,
    }
}

async fn remote_write(
    hub: &Hub,
    opened: &Opened,
    headers: &HeaderMap,
    body: &[u8],
    (sender, held): (&Sender, &mut Held),
) -> Told {
    let Some(is_second) = is_second(headers) else {
        let why = "prometheus.WriteRequest and io.prometheus.write.v2.Request are understood\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, why.to_owned(), None);
    };
    let written = |written: Written| is_second.then_some(written);
    let mut message = match message(hub, is_second, body, held).await {
        Ok(message) => message,
        Err((status, why)) => return (status, why + "\n", written([0; 3])),
    };
    let mut session = opened.waiting.take(hub, Protocol::Influx(clock(hub, 1)), sender);
    while !session.take_remote_write(&mut message) {
        if !between(hub, opened, &mut session, held).await {
            return (StatusCode::SERVICE_UNAVAILABLE, told(hub, &session), written([0; 3]));
        }
    }
    let (status, text, saved) = end(hub, opened, session, b"").await;
    (status, text, written(saved.unwrap_or_default()))
}

/// The message of remote write in a body, which `held` holds.
async fn message(
    hub: &Hub,
    is_second: bool,
    body: &[u8],
    held: &mut Held,
) -> Result<RemoteWrite, gzip::Refusal> {
    let wrong = |why| (StatusCode::BAD_REQUEST, why);
    let no_room = || (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned());
    let len = RemoteWrite::bytes_of(body).map_err(wrong)?;
    if !held.add(len) {
        return Err(no_room());
    }
    let decode = if is_second { RemoteWrite::decode_second } else { RemoteWrite::decode };
    let message = if len <= AT_ONCE {
        decode(body).map_err(wrong)?
    } else {
        let body = body.to_vec();
        let name = ("remote write", body.len());
        let read = hub.bodies.apart(&hub.env, name, move || decode(&body)).await;
        read.ok_or_else(no_room)?.map_err(wrong)?
    };
    // With the places of its texts.
    if !held.add(message.bytes().saturating_sub(len)) {
        return Err(no_room());
    }
    Ok(message)
}

/// What is done when a session has taken some of a request, and there is more of it: what waits is
/// saved if that is enough, and others have their turn. Whether it can go on; the session has said
/// why not.
pub(super) async fn between(
    hub: &Hub,
    opened: &Opened,
    session: &mut Session,
    held: &mut Held,
) -> bool {
    if !held.has_in_hand(session.in_hand()) {
        session.give_up(&plinth_series::Error::Behind);
        return false;
    }
    if session.wants_save() && session.save(&opened.store).await.is_err() {
        return false;
    }
    held.has_in_hand(session.in_hand());
    hub.env.give_way().await;
    true
}

async fn influx(
    hub: &Hub,
    opened: &Opened,
    query: &str,
    headers: &HeaderMap,
    body: &[u8],
    (sender, held): (&Sender, &mut Held),
) -> (StatusCode, String) {
    let unit = match unit(query) {
        Ok(unit) => unit,
        Err(why) => return (StatusCode::BAD_REQUEST, json(StatusCode::BAD_REQUEST, &why)),
    };
    let body = match decoded(hub, headers, body, held).await {
        Ok(body) => body,
        Err((status, why)) => return (status, json(status, &why)),
    };
    let mut session = opened.waiting.take(hub, Protocol::Influx(clock(hub, unit)), sender);
    let Some(at) = fed(hub, opened, (&mut session, held), &body).await else {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return (status, json(status, &told(hub, &session)));
    };
    let (status, text, _) = end(hub, opened, session, &body[at..]).await;
    (status, if text.is_empty() { text } else { json(status, &text) })
}

/// Feeds a session with a body, and saves what it takes of it: how many bytes of whole lines there
/// were. `None` if the store fails, or there is no room, which the session has to say.
pub(super) async fn fed(
    hub: &Hub,
    opened: &Opened,
    (session, held): (&mut Session, &mut Held),
    body: &[u8],
) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + piece(&body[at..]);
        at += session.feed(&body[at..end]);
        if !session.wants_save() && end == body.len() {
            return Some(at);
        }
        // Lines that make no sense are work too, and none of them is ever saved.
        if !between(hub, opened, session, held).await {
            return None;
        }
    }
}

/// Bytes of a body that are read at a time.
fn piece(body: &[u8]) -> usize {
    let piece = &body[..body.len().min(PIECE)];
    let ends = piece.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    ends.take(PIECE_LINES).nth(PIECE_LINES - 1).unwrap_or(piece.len())
}

/// Commits what a session took, and says how that went, and what is committed.
pub(super) async fn end(hub: &Hub, opened: &Opened, mut session: Session, rest: &[u8]) -> Told {
    let result = session.end(rest, &opened.store).await;
    let status = match (result, session.refused()) {
        (Err(_), _) => StatusCode::SERVICE_UNAVAILABLE,
        (Ok(()), 0) => StatusCode::NO_CONTENT,
        (Ok(()), _) if session.was_denied() => StatusCode::FORBIDDEN,
        (Ok(()), _) => StatusCode::BAD_REQUEST,
    };
    let (text, saved) = match status {
        // Nobody can say what of it is durable: all is to be sent again.
        StatusCode::SERVICE_UNAVAILABLE => {
            hub.counts.add(session.saved(), session.refused());
            (String::from_utf8_lossy(session.replies()).into_owned(), None)
        }
        _ => {
            let (histograms, exemplars) = session.saved_records();
            let written = [session.saved() - histograms, histograms, exemplars];
            (told(hub, &session), Some(written))
        }
    };
    hub.described.take(session.take_metadata());
    opened.waiting.put(session);
    (status, text, saved)
}

/// What a session has to say, which is the last that is heard of it.
fn told(hub: &Hub, session: &Session) -> String {
    hub.counts.add(session.saved(), session.refused());
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    if told.is_empty() || session.saved() == 0 {
        return told;
    }
    format!("partial write: {} points were taken; {told}", session.saved())
}

/// What InfluxDB's clients are told, with the name that it has for such an error.
pub(super) fn json(status: StatusCode, why: &str) -> String {
    let why = why.trim_end();
    let code = match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        _ => "invalid",
    };
    serde_json::json!({ "code": code, "error": why, "message": why }).to_string() + "\n"
}

/// What senders ask of a database before they send to it; which one is of no matter here, so each
/// is there when it is made. Queries in InfluxDB's own languages are not answered.
fn influx_query(url: &[u8], form: &[u8]) -> (StatusCode, String) {
    let parameters = [url, form].into_iter().flat_map(plinth_series::form_pairs);
    let asked = parameters
        .filter(|(name, _)| name == "q")
        .map(|(_, value)| value)
        .next()
        .unwrap_or_default();
    let words: Vec<String> =
        asked.split_whitespace().take(2).map(str::to_ascii_uppercase).collect();
    let result = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["CREATE", "DATABASE"] => serde_json::json!({ "statement_id": 0 }),
        ["SHOW", "DATABASES"] => {
            let none = serde_json::json!([{ "name": "databases", "columns": ["name"] }]);
            serde_json::json!({ "statement_id": 0, "series": none })
        }
        _ => {
            let why = "InfluxQL is not answered here; ask /api/v1/query or /api/query";
            return (StatusCode::BAD_REQUEST, json(StatusCode::BAD_REQUEST, why));
        }
    };
    (StatusCode::OK, serde_json::json!({ "results": [result] }).to_string() + "\n")
}

pub(super) fn clock(hub: &Hub, unit: i64) -> Clock {
    let now = i64::try_from(hub.env.wall_clock().as_nanos()).unwrap_or(i64::MAX);
    Clock { unit, now }
}

/// The unit of times that a request names.
fn unit(query: &str) -> Result<i64, String> {
    let named = query.split('&').find_map(|part| part.strip_prefix("precision="));
    match named.unwrap_or("ns") {
        "ns" | "n" | "" => Ok(1),
        "us" | "u" => Ok(1000),
        "ms" => Ok(1_000_000),
        "s" => Ok(1_000_000_000),
        "m" => Ok(60_000_000_000),
        "h" => Ok(3_600_000_000_000),
        other => Err(format!("precision={other} is none of ns, us, ms, s, m, h")),
    }
}

/// A body without its compression, which `held` holds if it had any.
pub(super) async fn decoded<'a>(
    hub: &Hub,
    headers: &HeaderMap,
    body: &'a [u8],
    held: &mut Held,
) -> Result<Cow<'a, [u8]>, gzip::Refusal> {
    match headers.get(header::CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
        None | Some(b"identity" | b"") => Ok(body.into()),
        Some(b"gzip") => gzip::expand(&hub.env, body, held).await.map(Cow::Owned),
        Some(_) => {
            let why = "a body may be compressed by gzip, and not otherwise".to_owned();
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
        }
    }
}
