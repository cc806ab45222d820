//! OpenTSDB's `/api/put`: points as JSON, each of which is taken or refused for itself.
//!
//! The answer is OpenTSDB's: 204 when all of them are committed, 400 when some were refused and the
//! others are committed; with `summary` or `details` in the address it says how many, and with
//! `details` which they are, and why. Where the body is no JSON nothing is taken.

use super::Hub;
use super::bodies::{Held, NO_ROOM};
use super::waiting::Sender;
use super::write::{Told, between, clock, decoded};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use plinth_series::ingest::{Protocol, PutPoints};
use serde_json::{Value, json};

/// Bytes of a body that are read at once on a thread that others need too; more have one of their
/// own.
const AT_ONCE: usize = 64 << 10;
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
    (sender, held): (&Sender, &mut Held),
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
    // Of a body of so many bytes they have twice as many at most.
    if !held.add(2 * body.len()) {
        return failed(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM);
    }
    let points = if body.len() <= AT_ONCE {
        PutPoints::of(&body)
    } else {
        let body = body.into_owned();
        let name = ("opentsdb put", body.len());
        match hub.bodies.apart(&hub.env, name, move || PutPoints::of(&body)).await {
            Some(points) => points,
            None => return failed(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM),
        }
    };
    let mut points = match points {
        Ok(points) => points,
        Err(why) => return failed(StatusCode::BAD_REQUEST, &format!("no points: {why}")),
    };
    let mut session = opened.puts.take(hub, Protocol::OpenTsdb, sender);
    session.tell_time(clock(hub, 1).now);
    let mut goes_on = true;
    while goes_on && !session.take_put(&mut points) {
        goes_on = between(hub, &opened, &mut session, held).await;
    }
    let is_saved = goes_on && session.end(b"", &opened.store).await.is_ok();
    let saved = session.saved();
    hub.counts.add(saved, session.refused());
    // Of series that there may not be the session says so, and no more.
    let told = String::from_utf8_lossy(session.replies()).into_owned();
    if !is_saved {
        return failed(StatusCode::SERVICE_UNAVAILABLE, &told);
    }
    let was_denied = session.was_denied();
    opened.puts.put(session);
    reported(head.uri.query().unwrap_or_default(), (saved, was_denied), &points, &told)
}

/// What is said of a request of which so many points are committed, and some perhaps refused for
/// want of a right.
fn reported(asked: &str, (saved, was_denied): (u64, bool), points: &PutPoints, told: &str) -> Told {
    let wants = |what: &str| asked.split('&').any(|part| part.split('=').next() == Some(what));
    let refused = points.points().saturating_sub(saved);
    let status = match refused {
        0 => StatusCode::OK,
        _ if was_denied => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    if wants("details") {
        let of_points = points.told().iter();
        let of_points = of_points.map(|(point, why)| json!({ "datapoint": point, "error": why }));
        let of_series = told.lines().map(|why| json!({ "error": why }));
        let errors: Vec<Value> = of_points.chain(of_series).collect();
        let text = json!({ "success": saved, "failed": refused, "errors": errors });
        return (status, text.to_string(), None);
    }
    if wants("summary") {
        return (status, json!({ "success": saved, "failed": refused }).to_string(), None);
    }
    if refused == 0 {
        return (StatusCode::NO_CONTENT, String::new(), None);
    }
    let of_points = points.told().first().map(|(_, why)| why.as_str());
    let of_series = told.lines().next();
    let first = if was_denied { of_series.or(of_points) } else { of_points.or(of_series) };
    let all = points.points();
    let why = format!(
        "{refused} of {all} points were refused ({}), the others are stored: ?details says which",
        first.unwrap_or_default()
    );
    failed(status, &why)
}
