//! Queries of time series over HTTP, as Akumuli answers them, `/api/query` and what is around it;
//! and as Prometheus does, `/api/v1/query`.
//!
//! An answer is sent while it is made (`reply.rs`). A reader that goes away takes the connection
//! with it, the connection its answer, and the answer its work. A query that is wrong has status
//! 200 and one line that begins with `-`, since that is what Akumuli's clients look at; one that
//! fails halfway ends with such a line. Where the series can't be read there is the same line, and
//! a status that says so to those who look at nothing else. A stream of Arrow's, and an export,
//! have no room for a line: they break off, and their readers find no end.

use super::access::Leave;
use super::answered::{Answered, json_told, told, unanswered};
use super::charts;
use super::opening::Asked;
use super::parts::Parts as SeriesParts;
use super::reply::{IDLE, Made, Reply, State, Work, refusal};
use super::sight::{is_of_all, metrics_of, seen};
use super::throttle::Payer;
use super::unanswered::{Form, JSON, TAKEN_BACK, TEXT};
use super::waiting::Sender;
use super::{Hub, bodies, import, measured, otlp, pass, probes, pulse, put, write};
use crate::http::{Bounds, Patience, Site};
use crate::rights::{Identity, Rights};
use hyper::body::{Body, Incoming};
use hyper::header::{
    ACCEPT, CONTENT_ENCODING, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal};
use plinth_series::{
    ARROW_CONTENT_TYPE, Export, FUNCTION_NAMES, Holder, LOOKUP, MAX_QUERY_BYTES, Query, QueryError,
    QueryResult, RemoteRead, SeriesStore, delete_series, is_opentsdb, is_prometheus, opentsdb,
    opentsdb_fixed, prometheus,
};
use plinth_types::Bytes;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

/// For how long somebody is looked for who owns the series, where several servers share them, and
/// how long it is from one try to the next.
const OWNER: Duration = pulse::SILENT;
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of an answer to the console, at most: far more than a thousand buckets take.
const MAX_CONSOLE: usize = 4 << 20;

impl Site for Hub {
    type Answer = Reply;
    const BOUNDS: Bounds = probes::BOUNDS;

    fn env(&self) -> &Env {
        &self.env
    }

    fn stop(&self) -> &Signal {
        &self.stops.http
    }

    fn is_stopping(&self) -> bool {
        Self::is_stopping(self)
    }

    fn rights(&self) -> Option<&Rights> {
        Some(self.access.rights())
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        patience: Arc<Patience>,
    ) -> Response<Reply> {
        let (answer, payer, leave) = answer(&self, request, &patience).await;
        // An answer without a body, or to HEAD, is sent without asking for a piece of it.
        patience.set(IDLE);
        answer.map(|state| Reply { state, patience, payer, leave })
    }
}

/// Who pays for an answer, and for how long it may go on; for nothing, and to its end, unless it is
/// said.
type Admitted = (Option<Payer>, Option<Leave>);

/// Whether a request may be answered, and who pays for that: another server that passes it on
/// proves that it knows the lease, has had it paid for, and ends it; everybody else proves himself.
/// Of which metrics there are series for him is noted in the request.
async fn check(
    hub: &Hub,
    request: &mut Request<Incoming>,
    patience: &Patience,
) -> Result<Admitted, (StatusCode, &'static str)> {
    probes::check(request.uri().path(), patience)?;
    let from = patience.other_side();
    if let Some(told) = request.headers().get(pass::LEASE) {
        let is_known = told.to_str().is_ok_and(|told| hub.slot.is_secret(told));
        return match is_known && pass::unwrap(request) {
            true => Ok((None, None)),
            false => Err((pass::MOVED, "the lease of the series is another one")),
        };
    }
    let headers = request.headers();
    let writes = is_sent(request) || request.uri().path() == DELETE;
    let leave = hub.access.check(&hub.env, headers, (from, writes)).await?;
    if request.uri().path() == DELETE && hub.access.rights().is_alone() {
        let why = "this server has yet to learn who may do what: try again";
        return Err((StatusCode::SERVICE_UNAVAILABLE, why));
    }
    if is_from_a_page(headers) {
        return Err((StatusCode::FORBIDDEN, "series have no business with pages in a browser"));
    }
    let payer = hub.access.payer(headers, (from, writes));
    if let Some(payer) = &payer {
        patience.stop();
        if !hub.access.throttle.admits(payer).await {
            let why = "the quota of whoever asks this is used up: ask again in some seconds";
            return Err((StatusCode::SERVICE_UNAVAILABLE, why));
        }
        patience.set(IDLE);
    }
    if let Some(metrics) = leave.as_ref().and_then(|leave| leave.metrics.clone()) {
        request.extensions_mut().insert(metrics);
    }
    Ok((payer, leave))
}

/// What a request is answered.
async fn answer(
    hub: &Hub,
    mut request: Request<Incoming>,
    patience: &Patience,
) -> (Response<State>, Option<Payer>, Option<Leave>) {
    let is_influx = write::is_influx(request.uri().path());
    let is_read = request.uri().path() == RemoteRead::PATH;
    let form = Form::of(request.uri().path(), is_sent(&request));
    let (mut pays, mut goes_on) = (None, None);
    let answered = async {
        match check(hub, &mut request, patience).await {
            Ok(admitted) if is_sent(&request) => {
                sent(hub, request, patience, (form, admitted)).await
            }
            Ok((payer, leave)) => {
                (pays, goes_on) = (payer, leave);
                (as_long_as(&mut goes_on, form, admitted(hub, request, patience)).await, None)
            }
            Err((status, why)) => (unanswered(form, status, why), None),
        }
    };
    let answered = hub.asking.pulse.or_silent(answered).await;
    let (answered, written) = answered.unwrap_or_else(|why| {
        let why = plinth_series::Error::from(why).to_string();
        (unanswered(form, StatusCode::SERVICE_UNAVAILABLE, &why), None)
    });
    let status = answered.status;
    let mut headers = HeaderMap::new();
    if is_influx {
        headers.insert("x-influxdb-version", HeaderValue::from_static(write::INFLUX_VERSION));
    }
    if is_read && answered.kind == RemoteRead::SAMPLES {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
    }
    for (name, count) in WRITTEN.into_iter().zip(written.into_iter().flatten()) {
        headers.insert(name, HeaderValue::from(count));
    }
    // What somebody wrote into a name is never taken for a page.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let mut response = Response::new(answered.into_state(&mut headers));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    (response, pays, goes_on)
}

/// An answer, if it is there before whoever asked may not hear it any more. What deletes goes on:
/// who begins that has done it.
async fn as_long_as(
    leave: &mut Option<Leave>,
    form: Form,
    answering: impl Future<Output = Answered>,
) -> Answered {
    let Some(held) = leave.as_mut().filter(|leave| !leave.writes) else {
        return answering.await;
    };
    if let First::Left(answered) = race(answering, held.ended()).await
        && held.holds()
    {
        return answered;
    }
    // That he may hear.
    *leave = None;
    unanswered(form, StatusCode::UNAUTHORIZED, TAKEN_BACK)
}

/// Whether a page in a browser asks, which says whose it is. Senders are programs, and no page has
/// any business here: it would reach a server on its user's machine from any site.
fn is_from_a_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN)
}

/// What somebody is answered who may ask.
async fn admitted(hub: &Hub, request: Request<Incoming>, patience: &Patience) -> Answered {
    let path = request.uri().path().to_string();
    let has_query = request.uri().query().is_some();
    let mut held = hub.bodies.hold();
    match (path.as_str(), request.method()) {
        ("/api/v1/metadata", &Method::GET | &Method::POST) => {
            metadata(hub, request, patience, &mut held).await
        }
        ("/api/query" | "/api/search" | "/api/suggest" | LOOKUP, &Method::POST) => {
            let (head, content) = request.into_parts();
            match body(content, MAX_QUERY_BYTES, patience, &mut held).await {
                Ok(text) => asked(hub, &head, &text).await,
                Err(status) => told(status, TEXT, format!("-{}\r\n", why_not(status, "1 MiB"))),
            }
        }
        ("/api/query" | "/api/suggest" | LOOKUP, &Method::GET) if has_query => {
            asked(hub, &request.into_parts().0, b"").await
        }
        ("/api/query" | "/api/search" | "/api/suggest" | LOOKUP, _) => {
            told(StatusCode::METHOD_NOT_ALLOWED, TEXT, "-POST expected, with JSON as the body\r\n")
        }
        (asked, &Method::GET | &Method::POST) if is_prometheus(asked) || asked == EXPORT => {
            prometheus_answer(hub, request, patience, &mut held).await
        }
        (DELETE, &Method::POST | &Method::PUT) => {
            prometheus_answer(hub, request, patience, &mut held).await
        }
        (DELETE, _) => told(StatusCode::METHOD_NOT_ALLOWED, TEXT, "POST or PUT expected\n"),
        (RemoteRead::PATH, &Method::POST) => read(hub, request, patience, &mut held).await,
        (RemoteRead::PATH, _) => told(StatusCode::METHOD_NOT_ALLOWED, TEXT, "POST expected\n"),
        (asked, &Method::POST) if asked.starts_with(pass::PART) && is_passed(request.headers()) => {
            let (head, content) = request.into_parts();
            match body(content, MAX_QUERY_BYTES, patience, &mut held).await {
                Ok(question) => of_part(hub, head.uri.path(), &question).await,
                Err(status) => told(status, TEXT, format!("-{}\r\n", why_not(status, "1 MiB"))),
            }
        }
        // The console of another server asks: nobody else has shown the lease.
        (asked, &Method::GET) if charts::owns(asked) && is_passed(request.headers()) => {
            let (head, _) = request.into_parts();
            of_owner(hub, &head, b"").await.unwrap_or_else(|why| {
                told(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("-{why}\r\n"))
            })
        }
        // They are about all series.
        ("/api/stats", _) if metrics_of(request.extensions()).is_some() => told(
            StatusCode::FORBIDDEN,
            TEXT,
            "-permission_denied (6000): a grant of some metrics says nothing of all\r\n",
        ),
        ("/api/stats", &Method::GET | &Method::HEAD) => {
            told(StatusCode::OK, JSON, measured::stats(hub))
        }
        ("/api/function-names", &Method::GET | &Method::HEAD) => {
            told(StatusCode::OK, TEXT, FUNCTION_NAMES.join("\n") + "\n")
        }
        ("/api/aggregators" | "/api/config/filters", &Method::GET) => {
            told(StatusCode::OK, JSON, opentsdb_fixed(&path).unwrap_or_default())
        }
        // Where Prometheus' clients look whether it is there.
        ("/" | "/-/healthy" | "/-/ready", &Method::GET | &Method::HEAD) => {
            let (status, text) = write::greeting(hub, &path).await;
            told(status, TEXT, text)
        }
        ("/api/version", &Method::GET | &Method::HEAD) => {
            told(StatusCode::OK, TEXT, format!("Plinth {}\n", env!("CARGO_PKG_VERSION")))
        }
        _ => nothing_there(&path),
    }
}

/// What is said of a path that isn't here: to who asks as Prometheus is asked, as that would.
fn nothing_there(path: &str) -> Answered {
    if path.starts_with("/api/v1/") {
        let why = format!("there is no {path} here");
        return unanswered(Form::Prometheus, StatusCode::NOT_FOUND, &why);
    }
    told(StatusCode::NOT_FOUND, TEXT, format!("-Invalid url {path}\r\n"))
}

/// What senders have said of metrics.
async fn metadata(
    hub: &Hub,
    request: Request<Incoming>,
    patience: &Patience,
    held: &mut bodies::Held,
) -> Answered {
    let (head, content) = request.into_parts();
    match body(content, MAX_QUERY_BYTES, patience, held).await {
        Ok(form) => {
            let url = head.uri.query().unwrap_or_default().as_bytes();
            let metrics = metrics_of(&head.extensions).map(|metrics| &**metrics);
            told(StatusCode::OK, JSON, hub.described.answer(&[url, &form], metrics))
        }
        Err(status) => unanswered(Form::Prometheus, status, &why_not(status, "1 MiB")),
    }
}

/// Whether somebody sends points.
fn is_sent(request: &Request<Incoming>) -> bool {
    let (path, method) = (request.uri().path(), request.method());
    write::owns(path, method)
        || otlp::owns(path, method)
        || put::owns(path, method)
        || import::owns(path, method)
}

/// What a sender is answered, once all of his body is here; and what was written, where he is told
/// that.
async fn sent(
    hub: &Hub,
    request: Request<Incoming>,
    patience: &Patience,
    (form, (payer, leave)): (Form, Admitted),
) -> (Answered, Option<write::Written>) {
    let mut held = hub.bodies.hold();
    let (head, content) = request.into_parts();
    let content = match body(content, write::MAX_BODY, patience, &mut held).await {
        Ok(content) => content,
        Err(status) => {
            return (told(status, TEXT, format!("{}\n", why_not(status, "32 MiB"))), None);
        }
    };
    // While it came he may have lost the right to some of it, or to all.
    let metrics = match leave {
        Some(mut leave) => match leave.renew() {
            true => leave.metrics,
            false => return (unanswered(form, StatusCode::UNAUTHORIZED, TAKEN_BACK), None),
        },
        None => metrics_of(&head.extensions).cloned(),
    };
    if let Some(payer) = payer {
        payer.pay(content.len());
    }
    let sender = Sender { address: patience.other_side().address, metrics };
    let of = (&sender, &mut held);
    if otlp::owns(head.uri.path(), &head.method) {
        let (status, kind, bytes) = otlp::answer(hub, &head, &content, of).await;
        return (told(status, kind, bytes), None);
    }
    let (path, method) = (head.uri.path(), &head.method);
    let (status, text, written) = if put::owns(path, method) {
        put::answer(hub, &head, &content, of).await
    } else if import::owns(path, method) {
        import::answer(hub, &head, &content, of).await
    } else {
        write::answer(hub, &head, &content, of).await
    };
    (told(status, write::kind(&text), text), written)
}

/// Whether another server has passed a request on.
fn is_passed(headers: &HeaderMap) -> bool {
    headers.contains_key(pass::LEASE)
}

impl Hub {
    /// Whether several servers share the series.
    pub(crate) fn is_shared(&self) -> bool {
        self.slot.among().is_some()
    }

    /// What the owner of the series answers to a question of the console's.
    ///
    /// # Errors
    /// Why nobody answers.
    pub(crate) async fn ask_owner(
        &self,
        head: &Parts,
    ) -> plinth_series::Result<(StatusCode, Bytes)> {
        let Answered { status, state, .. } = of_owner(self, head, b"").await?;
        let mut text = Vec::new();
        let mut reply = Reply {
            state,
            patience: Arc::new(Patience::new(&self.env, Identity::at(Ipv4Addr::LOCALHOST.into()))),
            payer: None,
            leave: None,
        };
        while let Some(frame) = poll_fn(|context| Pin::new(&mut reply).poll_frame(context)).await {
            let lost = |why: QueryError| {
                plinth_types::Error::connection_failed().with_detail(why.to_string())
            };
            text.extend_from_slice(&frame.map_err(lost)?.into_data().unwrap_or_default());
            if text.len() > MAX_CONSOLE {
                let why =
                    plinth_types::Error::internal_error().with_detail("the answer is too long");
                return Err(why.into());
            }
        }
        Ok((status, text.into()))
    }
}

/// Has the owner of the series answer: this server if it is that, else the one to which it is
/// passed on. Whoever loses the series while he answers has not answered: the next owner is asked,
/// for some seconds.
///
/// # Errors
/// Why nobody answers.
async fn of_owner(hub: &Hub, head: &Parts, text: &[u8]) -> plinth_series::Result<Answered> {
    if let Some(parts) = hub.slot.parts() {
        let path = head.uri.path();
        if path == DELETE {
            return Ok(delete_parts(hub, &parts, head, text).await);
        }
        if Hub::is_of_duties(path) && is_of_all(head) && parts.store(0).is_none() {
            return of_first(hub, &parts, head, text).await;
        }
    }
    let until = hub.env.now() + OWNER;
    loop {
        let patience = hub.env.sleep(until.saturating_sub(hub.env.now()));
        let First::Left(asked) = race(hub.slot.asks(), patience).await else {
            let why =
                plinth_types::Error::process_behind().with_detail("the series are being opened");
            return Err(why.into());
        };
        let why = match asked? {
            Asked::Here(opened) => {
                let answered = here(hub, &opened.store, head, text).await;
                match opened.store.failure().filter(|_| hub.is_shared()) {
                    None => return Ok(answered),
                    Some(why) => why,
                }
            }
            Asked::There(_) if is_passed(&head.headers) => plinth_series::Error::NotOwner,
            Asked::There(holder) => match pass::ask(hub, &holder, head, text).await {
                Ok(response) => return Ok(Answered::passed(response)),
                Err(why) => why.into(),
            },
        };
        if is_passed(&head.headers) {
            // Whoever has passed it on asks the next owner.
            return Ok(told(pass::MOVED, TEXT, format!("-{why}\r\n")));
        }
        if hub.env.now() >= until || hub.is_stopping() {
            return Err(why);
        }
        hub.env.sleep(PAUSE).await;
    }
}

/// What the server says that evaluates rules, which another one does.
async fn of_first(
    hub: &Hub,
    parts: &SeriesParts,
    head: &Parts,
    text: &[u8],
) -> plinth_series::Result<Answered> {
    let until = hub.env.now() + OWNER;
    loop {
        if is_passed(&head.headers) {
            return Ok(told(pass::MOVED, TEXT, "-the part is not this server's\r\n"));
        }
        if let Some(holder) = parts.holder(0)
            && let Ok(response) = pass::ask_about(hub, &holder, (head, text), &[0]).await
        {
            return Ok(Answered::passed(response));
        }
        if hub.env.now() >= until || hub.is_stopping() {
            let why = "the first part of the series is being opened";
            return Err(plinth_types::Error::process_behind().with_detail(why).into());
        }
        hub.env.sleep(PAUSE).await;
    }
}

/// What a part of this server's says to a question of another server's.
async fn of_part(hub: &Hub, path: &str, question: &[u8]) -> Answered {
    let part = path.strip_prefix(pass::PART).and_then(|part| part.parse().ok());
    let store = part.and_then(|part| Some((part, hub.slot.parts()?.store(part)?)));
    let Some((part, store)) = store else {
        return told(pass::MOVED, TEXT, "-the part is not this server's\r\n");
    };
    match store.answer(part, question).await {
        Ok(answer) => told(StatusCode::OK, "application/octet-stream", answer),
        Err(plinth_series::Error::NotOwner) => told(pass::MOVED, TEXT, "-the part is lost\r\n"),
        Err(why) => told(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("-{why}\r\n")),
    }
}

/// Deletes series of all parts, or, for another server, of some that are this one's.
async fn delete_parts(hub: &Hub, parts: &SeriesParts, head: &Parts, text: &[u8]) -> Answered {
    let parameters = [head.uri.query().unwrap_or_default().as_bytes(), text];
    let (all, _) = parts.count();
    let is_passed = is_passed(&head.headers);
    let mut left: Vec<usize> = match pass::listed(&head.headers) {
        Some(listed) if is_passed => listed,
        _ => (0..all).collect(),
    };
    let until = hub.env.now() + OWNER;
    loop {
        let mut elsewhere: Vec<(Holder, Vec<usize>)> = Vec::new();
        let mut not_done = Vec::new();
        for part in left {
            let Some(store) = parts.store(part) else {
                match parts.holder(part).filter(|_| !is_passed) {
                    Some(holder) => {
                        match elsewhere.iter_mut().find(|(of, _)| of.name == holder.name) {
                            Some((_, of)) => of.push(part),
                            None => elsewhere.push((holder, vec![part])),
                        }
                    }
                    None => not_done.push(part),
                }
                continue;
            };
            let (status, text) = delete_series(&seen(&store, head), &parameters).await;
            if store.failure().is_some() {
                not_done.push(part);
            } else if status != 204 {
                return json_told(status, text);
            }
        }
        for (holder, of) in elsewhere {
            match pass::ask_about(hub, &holder, (head, text), &of).await {
                Ok(response) if response.status() == StatusCode::NO_CONTENT => {}
                Ok(response) => return Answered::passed(response),
                Err(_) => not_done.extend(of),
            }
        }
        if not_done.is_empty() {
            return json_told(204, String::new());
        }
        if is_passed {
            return told(pass::MOVED, TEXT, "-a part is not this server's\r\n");
        }
        if hub.env.now() >= until || hub.is_stopping() {
            let why = "some parts of the series are being opened: ask again";
            return unanswered(Form::Prometheus, StatusCode::SERVICE_UNAVAILABLE, why);
        }
        left = not_done;
        hub.env.sleep(PAUSE).await;
    }
}

/// Why a body was not taken.
fn why_not(status: StatusCode, most: &str) -> String {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => bodies::NO_ROOM.to_owned(),
        _ => format!("the body broke off, or is longer than {most}"),
    }
}

/// What a sender of remote write, version 2, is told of what was written.
const WRITTEN: [&str; 3] = [
    "x-prometheus-remote-write-samples-written",
    "x-prometheus-remote-write-histograms-written",
    "x-prometheus-remote-write-exemplars-written",
];
/// Lines of JSON, and where they are asked for.
const STREAM: &str = "application/stream+json";
const EXPORT: &str = "/api/v1/export";
/// Where Prometheus' administrators delete series.
const DELETE: &str = "/api/v1/admin/tsdb/delete_series";

/// What is answered here.
async fn here(hub: &Hub, store: &SeriesStore, head: &Parts, text: &[u8]) -> Answered {
    let (path, store) = (head.uri.path(), &seen(store, head));
    if charts::owns(path) {
        let (Ok(answer) | Err(answer)) = charts::here(&hub.env, store, head).await;
        let (status, text) = answer.into_parts();
        return told(status, JSON, text);
    }
    let by_address = ["/api/query", "/api/suggest", LOOKUP].contains(&path);
    if head.method == Method::GET && by_address || is_opentsdb(path, text) {
        let url = head.uri.query().unwrap_or_default().as_bytes();
        let (status, text, remarks) = opentsdb(store, path, (url, text), now(hub)).await;
        return json_told(status, text).remarked(remarks);
    }
    if path == RemoteRead::PATH {
        return read_here(hub, store, text).await;
    }
    if !is_prometheus(path) && path != DELETE && path != EXPORT {
        return match begun(hub, store, head, text).await {
            Ok(answered) => answered,
            Err(error) => refused(&head.headers, &error),
        };
    }
    let parameters = [head.uri.query().unwrap_or_default().as_bytes(), text];
    if path == EXPORT {
        return match Export::begin(store, &parameters).await {
            Ok(export) => {
                let work = Work::new(&hub.asking, Made::Lines(Box::new(export)));
                Answered::of(STREAM, State::Text(Bytes::new(), Some(work)))
            }
            Err((status, text)) => json_told(status, text),
        };
    }
    let of_duties = is_of_all(head).then(|| hub.answer_of_duties(path, &parameters)).flatten();
    match (path, of_duties) {
        (_, Some((status, text))) => json_told(status, text),
        (DELETE, None) => {
            let (status, text) = delete_series(store, &parameters).await;
            json_told(status, text)
        }
        (_, None) => {
            let (status, text) = prometheus(store, path, &parameters, now(hub)).await;
            json_told(status, text)
        }
    }
}

/// What is wrong with a query of Akumuli's, or why it can't be answered, which is another thing:
/// whoever watches statuses has to hear that.
fn refused(headers: &HeaderMap, error: &QueryError) -> Answered {
    use plinth_series::Error;
    let status = match error {
        QueryError::Series(Error::Damaged { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
        // Too many series at once, and a name that is none, are mistakes of the query's.
        QueryError::Series(why) if !matches!(why, Error::Name { .. } | Error::TooMany { .. }) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ if accepts(headers, ARROW_CONTENT_TYPE) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    told(status, TEXT, refusal(error))
}

/// What a request in Prometheus' language is answered; its parameters stand in the URL, the body,
/// or both.
async fn prometheus_answer(
    hub: &Hub,
    request: Request<Incoming>,
    patience: &Patience,
    held: &mut bodies::Held,
) -> Answered {
    let (head, content) = request.into_parts();
    let form = match body(content, MAX_QUERY_BYTES, patience, held).await {
        Ok(form) => form,
        Err(status) => {
            let status = match status {
                StatusCode::SERVICE_UNAVAILABLE => status,
                _ => StatusCode::BAD_REQUEST,
            };
            return unanswered(Form::Prometheus, status, &why_not(status, "1 MiB"));
        }
    };
    // What was passed on is noted where it came in.
    let deletion = (head.uri.path() == DELETE && !is_passed(&head.headers)).then(|| {
        let form = String::from_utf8_lossy(&form);
        let asked = [head.uri.query().unwrap_or_default(), &form].join(" ");
        hub.access.begin_deletion(patience.other_side(), format!("series delete {}", asked.trim()))
    });
    let answered = match of_owner(hub, &head, &form).await {
        Ok(answered) => answered,
        Err(why) => unanswered(Form::Prometheus, StatusCode::SERVICE_UNAVAILABLE, &why.to_string()),
    };
    // One that fails in the middle has deleted a part, and is told when it is dropped.
    match deletion {
        Some(deletion) if answered.status.is_success() => deletion.done(),
        Some(deletion) if answered.status.is_client_error() => deletion.refused(),
        _ => {}
    }
    answered
}

/// What Prometheus' remote read is answered.
async fn read(
    hub: &Hub,
    request: Request<Incoming>,
    patience: &Patience,
    held: &mut bodies::Held,
) -> Answered {
    let (head, content) = request.into_parts();
    let text = match body(content, MAX_QUERY_BYTES, patience, held).await {
        Ok(text) => text,
        Err(status) => return told(status, TEXT, format!("{}\n", why_not(status, "1 MiB"))),
    };
    match of_owner(hub, &head, &text).await {
        Ok(answered) => answered,
        Err(why) => told(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
    }
}

async fn read_here(hub: &Hub, store: &SeriesStore, request: &[u8]) -> Answered {
    match RemoteRead::begin(store, request).await {
        Ok(RemoteRead::Whole(message)) => told(StatusCode::OK, RemoteRead::SAMPLES, message),
        Ok(RemoteRead::Stream(stream)) => {
            let work = Work::new(&hub.asking, Made::Chunks(stream));
            Answered::of(RemoteRead::STREAM, State::Text(Bytes::new(), Some(work)))
        }
        Err((status, why)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            told(status, TEXT, why)
        }
    }
}

/// Whether somebody takes answers of this kind, and says so by its name.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let kinds = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    kinds.flat_map(|kinds| kinds.split(',')).any(|accepted| {
        let name = accepted.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case(kind)
    })
}

/// The beginning of an answer: its first piece, so that what is wrong is all there is. Whoever
/// takes streams of Arrow's is no client of Akumuli's, and is told by the status too.
async fn asked(hub: &Hub, head: &Parts, text: &[u8]) -> Answered {
    match of_owner(hub, head, text).await {
        Ok(answered) => answered,
        Err(why) => refused(&head.headers, &why.into()),
    }
}

/// Nanoseconds since 1970 now.
fn now(hub: &Hub) -> i64 {
    i64::try_from(hub.env.wall_clock().as_nanos()).unwrap_or(i64::MAX)
}

async fn begun(hub: &Hub, store: &SeriesStore, head: &Parts, text: &[u8]) -> QueryResult<Answered> {
    let prepared = |parsed: QueryResult<Query>| {
        let mut query = parsed?;
        if accepts(&head.headers, ARROW_CONTENT_TYPE)
            && let Err(error) = query.prefer_arrow()
        {
            let takes_text =
                ["*/*", "text/*", "text/plain"].iter().any(|kind| accepts(&head.headers, kind));
            return if takes_text { Ok(query) } else { Err(error) };
        }
        Ok(query)
    };
    let answer = match head.uri.path() {
        "/api/suggest" => store.suggest(text)?,
        "/api/search" => store.query(&prepared(Query::parse_search(text))?).await?,
        _ => store.query(&prepared(Query::parse_at(text, Some(now(hub))))?).await?,
    };
    let kind = if answer.is_text() { TEXT } else { ARROW_CONTENT_TYPE };
    let mut work = Work::new(&hub.asking, Made::Rows(Box::new(answer)));
    let first = work.answer.next().await?;
    let remarks = work.answer.remarks();
    // What is all there goes out at once, with its length.
    let rest = (!work.answer.is_ended()).then_some(work);
    let state = first.map_or(State::End, |first| State::Text(first.into(), rest));
    Ok(Answered::of(kind, state).remarked(remarks))
}

/// A request's body, if it has at most so many bytes. What comes then is ours to do: the sender's
/// time stops.
async fn body(
    body: Incoming,
    most: usize,
    patience: &Patience,
    held: &mut bodies::Held,
) -> Result<Vec<u8>, StatusCode> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(data) = frame.map_err(|_| StatusCode::BAD_REQUEST)?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        if !held.add(data.len()) {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        bytes.extend_from_slice(&data);
    }
    patience.stop();
    Ok(bytes)
}
