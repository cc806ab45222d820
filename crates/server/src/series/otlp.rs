//! OpenTelemetry's metrics over HTTP: what its SDKs and collectors send, in protocol buffers or in
//! JSON, compressed by gzip or not.
//!
//! The answer is that of OTLP, in the encoding of the request: 200 when all that is taken is
//! committed, with the number of points that are not and why; 400 of what is no request; 503 when
//! nothing is known to be committed, and the sender should send again.

use super::Hub;
use super::bodies::{Held, NO_ROOM};
use super::opened::Opened;
use super::waiting::Sender;
use super::write::{between, clock, decoded};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, header};
use plinth_series::ingest::otlp::{NoRequest, refusal, reply};
use plinth_series::ingest::{OtlpMetrics, Protocol, Session};
use std::borrow::Cow;

/// Bytes of JSON that are read at once on a thread that others need too; more have one of their
/// own.
const AT_ONCE: usize = 64 << 10;
/// Bytes that a sender is told of what was wrong.
const TOLD: usize = 4 << 10;

/// Codes of gRPC, which stand in refusals.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNAVAILABLE: u32 = 14;

/// Whether a request is answered here: at OpenTelemetry's own path, and at that of Prometheus.
pub(super) fn owns(path: &str, method: &Method) -> bool {
    matches!(path, "/v1/metrics" | "/api/v1/otlp/v1/metrics") && method == Method::POST
}

/// A status, a content type, and the text or message.
pub(super) type Told = (StatusCode, &'static str, Vec<u8>);

/// How a request is encoded, and its answer will be.
#[derive(Clone, Copy)]
struct Encoding {
    is_json: bool,
}

impl Encoding {
    /// That of a content type, or `None` for any other one.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE).map_or(Some(""), |kind| kind.to_str().ok())?;
        let kind = kind.split(';').next().unwrap_or_default().trim();
        match kind {
            "application/x-protobuf" => Some(Self { is_json: false }),
            "application/json" => Some(Self { is_json: true }),
            _ => None,
        }
    }

    fn told(self, status: StatusCode, bytes: Vec<u8>) -> Told {
        let kind = if self.is_json { "application/json" } else { "application/x-protobuf" };
        (status, kind, bytes)
    }

    fn refused(self, status: StatusCode, why: &str) -> Told {
        let code = match status {
            StatusCode::SERVICE_UNAVAILABLE => UNAVAILABLE,
            StatusCode::PAYLOAD_TOO_LARGE => RESOURCE_EXHAUSTED,
            StatusCode::FORBIDDEN => PERMISSION_DENIED,
            _ => INVALID_ARGUMENT,
        };
        self.told(status, refusal(code, why.trim_end(), self.is_json))
    }
}

/// Answers a request that is [`owns`].
pub(super) async fn answer(
    hub: &Hub,
    head: &Parts,
    body: &[u8],
    (sender, held): (&Sender, &mut Held),
) -> Told {
    let Some(encoding) = Encoding::of(&head.headers) else {
        let why = "application/x-protobuf or application/json is expected\n";
        return (
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "text/plain; charset=utf-8",
            why.as_bytes().to_vec(),
        );
    };
    let opened = match hub.slot.takes().await {
        Ok(opened) => opened,
        Err(why) => return encoding.refused(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    };
    let mut message = match read(hub, encoding, head, body, held).await {
        Ok(message) => message,
        Err((status, why)) => return encoding.refused(status, &why),
    };
    let session = opened.waiting.take(hub, Protocol::Influx(clock(hub, 1)), sender);
    take(hub, encoding, &opened, (&mut message, held), session).await
}

/// The request in a body.
async fn read<'b>(
    hub: &Hub,
    encoding: Encoding,
    head: &Parts,
    body: &'b [u8],
    held: &mut Held,
) -> Result<OtlpMetrics<'b>, (StatusCode, String)> {
    let body = decoded(hub, &head.headers, body, held).await?;
    if !encoding.is_json {
        return Ok(OtlpMetrics::of(body));
    }
    // A text with escapes is put together in memory of the reader's own, once more at most.
    if !held.add(body.len()) {
        return Err(no_room());
    }
    let message = if body.len() <= AT_ONCE {
        OtlpMetrics::of_json(&body, &mut |more| held.add(more))
    } else {
        let (text, mut its) = (body.into_owned(), hub.bodies.hold());
        let name = ("otlp json", text.len());
        let work = move || (OtlpMetrics::of_json(&text, &mut |more| its.add(more)), its);
        match hub.bodies.apart(&hub.env, name, work).await {
            Some((message, its)) => {
                held.join(its);
                message
            }
            None => Err(NoRequest::NoRoom),
        }
    };
    message.map_err(|why| match why {
        NoRequest::NoRoom => no_room(),
        NoRequest::Wrong(why) => {
            (StatusCode::BAD_REQUEST, format!("the body is no request: {why}"))
        }
    })
}

fn no_room() -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned())
}

/// Takes a request in and commits it, and says how that went.
async fn take(
    hub: &Hub,
    encoding: Encoding,
    opened: &Opened,
    (message, held): (&mut OtlpMetrics<'_>, &mut Held),
    mut session: Session,
) -> Told {
    let mut failed = false;
    while !failed && !session.take_otlp(message) {
        failed = !between(hub, opened, &mut session, held).await;
    }
    failed = failed || session.end(b"", &opened.store).await.is_err();
    let told = said(session.replies());
    // Series that there may not be are counted besides what was wrong in the request itself.
    let unsaved = session.refused().saturating_sub(message.told());
    let rejected = (message.rejected() + unsaved).min(message.points());
    hub.counts.add(session.saved(), rejected);
    if failed {
        return encoding.refused(StatusCode::SERVICE_UNAVAILABLE, &told);
    }
    let saved = session.saved();
    let was_denied = session.was_denied();
    hub.described.take(session.take_metadata());
    opened.waiting.put(session);
    match message.broken() {
        Some(why) => {
            let why = format!("{why}; {saved} samples before that were taken");
            encoding.refused(StatusCode::BAD_REQUEST, &why)
        }
        // As long as some are taken it is OTLP's way to say so with a success.
        None if was_denied && saved == 0 => encoding.refused(StatusCode::FORBIDDEN, &told),
        None => encoding.told(StatusCode::OK, reply(rejected, &told, encoding.is_json)),
    }
}

/// What was wrong, as one text that is not too long.
fn said(replies: &[u8]) -> String {
    let text = String::from_utf8_lossy(&replies[..replies.len().min(TOLD)]);
    let text: Cow<'_, str> = match text.rsplit_once('\n') {
        Some((whole, _)) if replies.len() > TOLD => format!("{whole}\n...").into(),
        _ => text,
    };
    text.trim_end().replace('\n', "; ")
}
