//! Points as VictoriaMetrics takes them: its lines of JSON, which `/api/v1/export` gives, and
//! Prometheus' text format; with `extra_label` and `timestamp` as it has them.
//!
//! The answer 204 says that all is committed; 400 names what was wrong, and the rest is committed.

use super::Hub;
use super::bodies::{Held, NO_ROOM};
use super::waiting::Sender;
use super::write::{Told, between, clock, decoded, end, fed};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use plinth_series::ingest::{Clock, ImportLines, Protocol, ReadLine};
use plinth_series::time::{FORMS, parse_moment};
use plinth_series::{MAX_NAME_BYTES, MAX_TAGS, form_pairs};

const LINES: &str = "/api/v1/import";
const TEXT: &str = "/api/v1/import/prometheus";

/// Whether a request is answered here.
pub(super) fn owns(path: &str, method: &Method) -> bool {
    matches!(path, LINES | TEXT) && (method == Method::POST || method == Method::PUT)
}

/// Answers a request that is [`owns`].
pub(super) async fn answer(
    hub: &Hub,
    head: &Parts,
    body: &[u8],
    (sender, held): (&Sender, &mut Held),
) -> Told {
    let refused = |status: StatusCode, why: String| (status, format!("{}\n", why.trim_end()), None);
    let opened = match hub.slot.takes().await {
        Ok(opened) => opened,
        Err(why) => return refused(StatusCode::SERVICE_UNAVAILABLE, why.to_string()),
    };
    let body = match decoded(hub, &head.headers, body, held).await {
        Ok(body) => body,
        Err((status, why)) => return refused(status, why),
    };
    let pairs = form_pairs(head.uri.query().unwrap_or_default().as_bytes());
    let (now, extra) = match moment(hub, &pairs).and_then(|now| Ok((now, extra_labels(&pairs)?))) {
        Ok(said) => said,
        Err(why) => return refused(StatusCode::BAD_REQUEST, why),
    };
    let mut session = opened.waiting.take(hub, Protocol::Exposition(now), sender);
    session.add_labels(extra);
    if head.uri.path() == TEXT {
        return match fed(hub, &opened, (&mut session, held), &body).await {
            Some(at) => end(hub, &opened, session, &body[at..]).await,
            None => refused(StatusCode::SERVICE_UNAVAILABLE, said(session.replies())),
        };
    }
    let mut lines = ImportLines::of(body);
    loop {
        if let Some(long) = lines.long().map(<[u8]>::to_vec) {
            // With what is read of it.
            let name = ("import", 3 * long.len());
            match hub.bodies.apart(&hub.env, name, move || ReadLine::of(&long)).await {
                Some(line) => lines.put(line),
                None => return refused(StatusCode::SERVICE_UNAVAILABLE, NO_ROOM.to_owned()),
            }
        }
        if session.take_import(&mut lines) {
            return end(hub, &opened, session, b"").await;
        }
        if !between(hub, &opened, &mut session, held).await {
            return refused(StatusCode::SERVICE_UNAVAILABLE, said(session.replies()));
        }
    }
}

fn said(replies: &[u8]) -> String {
    String::from_utf8_lossy(replies).into_owned()
}

/// When samples are of that have no time: `timestamp`, or now.
fn moment(hub: &Hub, pairs: &[(String, String)]) -> Result<Clock, String> {
    let Clock { unit, now } = clock(hub, 1_000_000);
    let given = pairs.iter().find(|(name, text)| name == "timestamp" && !text.is_empty());
    let Some((_, text)) = given else { return Ok(Clock { unit, now }) };
    let wrong = || format!("timestamp={text} is no time, such as {}", FORMS);
    Ok(Clock { unit, now: parse_moment(text, Some(now)).ok_or_else(wrong)? })
}

/// The labels that all series are to get: `extra_label=name=value`, as often as there are some.
fn extra_labels(pairs: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
    let given = pairs.iter().filter(|(name, _)| name == "extra_label");
    let bytes: usize = given.clone().map(|(_, text)| text.len()).sum();
    if given.clone().count() > MAX_TAGS || bytes > MAX_NAME_BYTES {
        return Err(format!(
            "extra_label: more than {MAX_TAGS} of them, or {MAX_NAME_BYTES} bytes: no name has those"
        ));
    }
    let label = |(_, text): &(String, String)| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name != "__name__" => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("extra_label={text}: name=value is expected")),
    };
    given.map(label).collect()
}
