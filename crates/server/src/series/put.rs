//! OpenTSDB's `/api/put`: points as JSON, which become the lines that mean the same.
//!
//! The answer is OpenTSDB's: 204 when all of them are committed, 400 when some were refused and the
//! others are committed; with `summary` or `details` in the address it says how many, and why.

use super::Hub;
use super::bodies::{Held, NO_ROOM};
use super::write::{Told, decoded, fed};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use plinth_series::ingest::{Protocol, put_lines};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Largest body without its compression: it is read at once.
const MAX_BYTES: usize = 4 << 20;

/// Whether a request is answered here.
pub(super) fn owns(path: &str, method: &Method) -> bool {
    path == "/api/put" && method == Method::POST
}

fn failed(status: StatusCode, why: &str) -> Told {
    let text = json!({ "error": { "code": status.as_u16(), "message": why.trim_end() } });
    (status, text.to_string(), None)
}

/// Answers a request that is [`owns`].
pub(super) async fn answer(
    hub: &Hub,
    head: &Parts,
    body: &[u8],
    (sender, held): (IpAddr, &mut Held<'_>),
) -> Told {
    let opened = match hub.slot.takes().await {
        Ok(opened) => opened,
        Err(why) => return failed(StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    };
    let body = match decoded(hub, &head.headers, body, held).await {
        Ok(body) if body.len() <= MAX_BYTES => body,
        Ok(_) => {
            let why = format!("more than {MAX_BYTES} bytes of points at once");
            return failed(StatusCode::PAYLOAD_TOO_LARGE, &why);
        }
        Err((status, why)) => return failed(status, &why),
    };
    let lines = match put_lines(&body) {
        Ok(lines) => lines,
        Err(why) => return failed(StatusCode::BAD_REQUEST, &format!("no points: {why}")),
    };
    if !held.add(lines.len()) {
        return failed(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM);
    }
    let mut session = opened.puts.take(hub, Protocol::OpenTsdb, sender);
    let is_saved = fed(hub, &opened, &mut session, &lines).await.is_ok()
        && session.end(b"", &opened.store).await.is_ok();
    let (saved, refused) = (session.saved(), session.refused());
    hub.counts.add(saved, refused);
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    if !is_saved {
        return failed(StatusCode::SERVICE_UNAVAILABLE, &told);
    }
    opened.puts.put(session);
    let asked = head.uri.query().unwrap_or_default();
    let wants = |what: &str| asked.split('&').any(|part| part.split('=').next() == Some(what));
    let status = if refused == 0 { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    if wants("details") {
        let errors: Vec<Value> = told.lines().map(|why| json!({ "error": why })).collect();
        let text = json!({ "success": saved, "failed": refused, "errors": errors });
        return (status, text.to_string(), None);
    }
    match (wants("summary"), refused) {
        (true, _) => (status, json!({ "success": saved, "failed": refused }).to_string(), None),
        (false, 0) => (StatusCode::NO_CONTENT, String::new(), None),
        (false, _) => failed(status, &told),
    }
}
