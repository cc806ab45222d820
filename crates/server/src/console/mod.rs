//! The console: what a person, or a program that watches, asks the server by HTTP.
//!
//! ## Role
//! One page that shows how the server does and what the database holds, the small interface in JSON
//! behind it (`docs/monitoring.md` has each of its addresses), and `/metrics`, `/status`,
//! `/health`. It sees the database as any client does: through the endpoint that is served, in
//! ordinary transactions.
//!
//! ## Data structure
//! ```text
//!   request ─▶ route ─▶ access: Host, token or session, origin of writes
//!                          ├─ /               page/*, files of the program
//!                          ├─ /api/history    history: one sample a second, ten minutes of them
//!                          ├─ /api/overview   the status document and the registry, as they are now
//!                          ├─ /api/range ...  browse: bounded transactions
//!                          ├─ /api/series ... series: names, and buckets of one of them
//!                          └─ /api/changes/NAME  feed: a stream of changes, as events while they come
//! ```
//!
//! ## Invariants
//! 1. Whatever is asked, the answer is short: rows, bytes, samples and addresses have bounds, and
//!    so has what is read of a body. Only a feed goes on, with a piece in memory at a time; there
//!    are few of them.
//! 2. Nothing here waits on a thread: transactions are awaited on the task of their connection.
//! 3. Where a token is needed, nothing but the page itself and `/health` is answered without one.
//! 4. A write needs the flag, a header that no form of another site can send, and an origin that is
//!    the server's own.
//!
//! ## Not here
//! Sockets and HTTP itself: `http.rs`. What `/metrics` says: `metrics.rs`. Read next: `access.rs`,
//! `history.rs`, `browse.rs`.

mod access;
mod browse;
mod exposition;
mod feed;
mod history;
mod overview;
mod page;

pub(crate) use access::Access;

use crate::answers::{Answer, Count, IDLE, Query, Reply};
use crate::http::{Bounds, Patience, Site};
use crate::rights::{Identity, Rights};
use crate::shared::Shared;
use history::History;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response};
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How far apart samples are.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long answering a request may take.
const ANSWERING: Duration = Duration::from_secs(30);

/// The console of a server, and what is kept for it.
pub(crate) struct Console {
    shared: Arc<Shared>,
    access: Access,
    history: History,
    /// Feeds that are open.
    feeds: Count,
    /// Tells one start of the server from another, so that a page notices.
    boot: String,
    write: bool,
}

impl Console {
    /// Of this server; without an address for HTTP it only exists.
    pub(crate) fn new(shared: Arc<Shared>, access: Access) -> Self {
        let (boot, write) =
            (format!("{:016x}", shared.env.random_u64()), shared.config.console.write);
        Self { shared, access, history: History::default(), feeds: Count::default(), boot, write }
    }

    /// Where the token stands, if one is needed.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.access.token_file()
    }

    /// Takes a sample each second until told to stop.
    pub(crate) async fn sample(self: Arc<Self>) {
        let Shared { env, stops, .. } = &*self.shared;
        loop {
            let text = crate::metrics::text(&self.shared);
            self.history.take(env.now(), env.wall_clock(), &text);
            if let First::Left(()) = race(stops.history.wait(), env.sleep(INTERVAL)).await {
                return;
            }
        }
    }
}

impl Site for Console {
    type Answer = Reply;
    const BOUNDS: Bounds = Bounds {
        connections: 128,
        probes: 0,
        buffer: 16 << 10,
        idle: IDLE,
        half_close: true,
        asked_first: &["/health"],
    };

    fn env(&self) -> &Env {
        &self.shared.env
    }

    fn stop(&self) -> &Signal {
        &self.shared.stops.http
    }

    fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    fn rights(&self) -> Option<&Rights> {
        Some(&self.shared.doors.rights)
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        patience: Arc<Patience>,
    ) -> Response<Reply> {
        patience.set(ANSWERING);
        let answer = answer(&self, request, &patience).await;
        patience.set(IDLE);
        answer
    }
}

/// The answer to one request.
async fn answer(
    console: &Console,
    request: Request<Incoming>,
    patience: &Arc<Patience>,
) -> Response<Reply> {
    let is_head = request.method() == Method::HEAD;
    let answer = match route(console, request, patience).await {
        Ok(answer) | Err(answer) => answer,
    };
    answer.into_response(is_head)
}

/// What a server that serves keys says of its health: whoever looks after it has no cause to end it
/// because of series. Without details: it needs no token.
fn serving(shared: &Shared) -> &'static str {
    match shared.series.unavailable() {
        None => "serving\n",
        Some(_) => "serving keys; time series can't be opened: the status says why\n",
    }
}

/// Finds what a request wants. An answer that is an error is a refusal.
async fn route(
    console: &Console,
    request: Request<Incoming>,
    patience: &Arc<Patience>,
) -> std::result::Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let (shared, access) = (&console.shared, &console.access);
    if path == "/health" {
        only(&head.method, &[Method::GET, Method::HEAD])?;
        return Ok(match shared.endpoint.refusal() {
            None => Answer::text(serving(shared)),
            Some(error) => Answer::not_serving(&error),
        });
    }
    access.check_host(&head.headers)?;
    if let Some(file) = page::file(path) {
        only(&head.method, &[Method::GET, Method::HEAD])?;
        return Ok(file);
    }
    let from = patience.other_side();
    access.check_rights(&shared.env, (&head.headers, path), from).await?;
    if let Some(posted) = path.strip_prefix("/api/").filter(|name| POSTED.contains(name)) {
        only(&head.method, &[Method::POST])?;
        access::check_origin(&head.headers)?;
        return post(console, posted, (&head.headers, from), body).await;
    }
    if let Some(name) = path.strip_prefix(CHANGES).and_then(|rest| rest.strip_suffix(ACKNOWLEDGE)) {
        only(&head.method, &[Method::POST])?;
        access::check_origin(&head.headers)?;
        may_write(console, &head.headers, from).await?;
        let query = Query::parse(head.uri.query().unwrap_or_default())?;
        return feed::acknowledge(shared, name, &query).await;
    }
    access.check_token(&shared.env, &head.headers, from).await?;
    only(&head.method, &[Method::GET, Method::HEAD])?;
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    match path {
        "/metrics" => Ok(Answer::metrics(crate::metrics::text(shared))),
        "/status" | "/status/json" => overview::status(shared).await,
        "/api/overview" => overview::overview(console).await,
        "/api/audit" => Ok(Answer::json(shared.doors.audit.all().to_string())),
        "/api/history" => Ok(Answer::json(console.history.document(&query, &console.boot)?)),
        "/api/range" => browse::range(shared, &query).await,
        "/api/key" => browse::key(shared, &query).await,
        path if crate::series::owns(path) => shared.series.ask(&head).await,
        path => match path.strip_prefix(CHANGES).filter(|name| !name.is_empty()) {
            Some(name) => feed::open(console, name, &query, &head.headers, patience).await,
            None => Err(Answer::not_found()),
        },
    }
}

/// What stands before the name of a stream of changes, and behind it where it is acknowledged.
const CHANGES: &str = "/api/changes/";
const ACKNOWLEDGE: &str = "/ack";

/// What is sent and not asked.
const POSTED: [&str; 4] = ["login", "logout", "set", "clear"];

async fn post(
    console: &Console,
    what: &str,
    (headers, from): (&HeaderMap, &Identity),
    body: Incoming,
) -> std::result::Result<Answer, Answer> {
    let (shared, access) = (&console.shared, &console.access);
    match what {
        "login" => {
            access
                .log_in(&shared.env, &crate::answers::body(body, access::LOGIN_BYTES).await?)
                .await
        }
        "logout" => Ok(access.log_out(headers)),
        change => {
            may_write(console, headers, from).await?;
            browse::change(shared, change, &crate::answers::body(body, browse::CHANGE_BYTES).await?)
                .await
        }
    }
}

/// Refuses who may not write, or anybody where nobody may.
async fn may_write(
    console: &Console,
    headers: &HeaderMap,
    from: &Identity,
) -> std::result::Result<(), Answer> {
    console.access.check_token(&console.shared.env, headers, from).await?;
    if console.write { Ok(()) } else { Err(Answer::read_only()) }
}

fn only(method: &Method, allowed: &[Method]) -> std::result::Result<(), Answer> {
    if allowed.contains(method) { Ok(()) } else { Err(Answer::wrong_method(allowed)) }
}
