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
mod answer;
mod browse;
mod events;
mod exposition;
mod feed;
mod history;
mod overview;
mod page;
mod query;
pub(crate) mod series;

pub use access::ConsoleConfig;
pub(crate) use access::{PENANCE, is_local, is_same, token};
pub(crate) use events::Reply;

use crate::http::Patience;
use crate::server::Shared;
use access::Access;
use answer::Answer;
use history::History;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, Response};
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::Result;
use query::Query;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How far apart samples are.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a server keeps for its console.
pub(crate) struct Console {
    access: Access,
    history: History,
    /// Feeds that are open.
    feeds: events::Count,
    /// Tells one start of the server from another, so that a page notices.
    boot: String,
    write: bool,
}

impl Console {
    /// For HTTP at `address`, which is HTTPS if it is `secure`; without an address it only exists.
    ///
    /// # Errors
    /// `invalid_local_address` if others can reach it and there is to be no token; those of reading
    /// or writing the token.
    pub(crate) async fn open(
        env: &Env,
        config: &ConsoleConfig,
        address: Option<SocketAddr>,
        secure: bool,
    ) -> Result<Self> {
        let access = Access::open(env, config, address, secure).await?;
        let boot = format!("{:016x}", env.random_u64());
        let (history, feeds) = (History::default(), events::Count::default());
        Ok(Self { access, history, feeds, boot, write: config.write })
    }

    /// Where the token stands, if one is needed.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.access.token_file()
    }
}

/// Takes a sample each second until told to stop.
pub(crate) async fn sample(shared: Arc<Shared>) {
    loop {
        let text = crate::metrics::text(&shared);
        shared.console.history.take(shared.env.now(), shared.env.wall_clock(), &text);
        if let First::Left(()) = race(shared.stops.history.wait(), shared.env.sleep(INTERVAL)).await
        {
            return;
        }
    }
}

/// The answer to one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    patience: &Arc<Patience>,
) -> Response<Reply> {
    let is_head = request.method() == Method::HEAD;
    let answer = match route(&shared, request, patience).await {
        Ok(answer) | Err(answer) => answer,
    };
    answer.into_response(is_head)
}

/// Finds what a request wants. An answer that is an error is a refusal.
async fn route(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    patience: &Arc<Patience>,
) -> std::result::Result<Answer, Answer> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let access = &shared.console.access;
    if path == "/health" {
        only(&head.method, &[Method::GET, Method::HEAD])?;
        return Ok(match shared.endpoint.refusal() {
            None => Answer::text("serving\n"),
            Some(error) => Answer::not_serving(&error),
        });
    }
    access.check_host(&head.headers)?;
    if let Some(file) = page::file(path) {
        only(&head.method, &[Method::GET, Method::HEAD])?;
        return Ok(file);
    }
    if let Some(posted) = path.strip_prefix("/api/").filter(|name| POSTED.contains(name)) {
        only(&head.method, &[Method::POST])?;
        access::check_origin(&head.headers)?;
        return post(shared, posted, &head.headers, body).await;
    }
    if let Some(name) = path.strip_prefix(CHANGES).and_then(|rest| rest.strip_suffix(ACKNOWLEDGE)) {
        only(&head.method, &[Method::POST])?;
        access::check_origin(&head.headers)?;
        may_write(shared, &head.headers).await?;
        let query = Query::parse(head.uri.query().unwrap_or_default())?;
        return feed::acknowledge(shared, name, &query).await;
    }
    access.check_token(&shared.env, &head.headers).await?;
    only(&head.method, &[Method::GET, Method::HEAD])?;
    let query = Query::parse(head.uri.query().unwrap_or_default())?;
    match path {
        "/metrics" => Ok(Answer::metrics(crate::metrics::text(shared))),
        "/status" | "/status/json" => overview::status(shared).await,
        "/api/overview" => overview::overview(shared).await,
        "/api/history" => {
            Ok(Answer::json(shared.console.history.document(&query, &shared.console.boot)?))
        }
        "/api/range" => browse::range(shared, &query).await,
        "/api/key" => browse::key(shared, &query).await,
        path if series::owns(path) => series::ask(shared, &head).await,
        path => match path.strip_prefix(CHANGES).filter(|name| !name.is_empty()) {
            Some(name) => feed::open(shared, name, &query, &head.headers, patience).await,
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
    shared: &Shared,
    what: &str,
    headers: &HeaderMap,
    body: Incoming,
) -> std::result::Result<Answer, Answer> {
    let access = &shared.console.access;
    match what {
        "login" => {
            access.log_in(&shared.env, &answer::body(body, access::LOGIN_BYTES).await?).await
        }
        "logout" => Ok(access.log_out(headers)),
        change => {
            may_write(shared, headers).await?;
            browse::change(shared, change, &answer::body(body, browse::CHANGE_BYTES).await?).await
        }
    }
}

/// Refuses who may not write, or anybody where nobody may.
async fn may_write(shared: &Shared, headers: &HeaderMap) -> std::result::Result<(), Answer> {
    shared.console.access.check_token(&shared.env, headers).await?;
    if shared.console.write { Ok(()) } else { Err(Answer::read_only()) }
}

fn only(method: &Method, allowed: &[Method]) -> std::result::Result<(), Answer> {
    if allowed.contains(method) { Ok(()) } else { Err(Answer::wrong_method(allowed)) }
}
