//! A stream of changes as server-sent events: what `plinth changes tail --format json` prints, an
//! event for each version.
//!
//! ```text
//!   id: VERSION              a batch: its mutations, a line of JSON each
//!   data: {"key":...}
//!   data: {"key":...}
//!
//!   id: VERSION              nothing up to here in the stream's ranges; browsers note it, and show nothing
//!
//!   event: end               the stream was removed, or has lost what its consumer did not take in time
//!   data: {"error":...,"code":...,"message":...}
//! ```
//!
//! Whoever was cut off reads on from the last event that it has, as it says in `Last-Event-ID`.
//! Whoever asks for a stream that is gone gets a status and no events, so that browsers don't ask
//! again.
//!
//! Always: a feed has begun to read before its first word, so what can't be read is refused with a
//! status. Not here: how the events are sent, `events.rs`.

use super::Console;
use crate::answers::Answer;
use crate::answers::query::{self, Query};
use crate::answers::{FEEDS, Feed, READ};
use crate::http::Patience;
use crate::shared::Shared;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use plinth_client::Database;
use plinth_types::{Error, Version};
use serde_json::json;
use std::sync::Arc;

/// From where a browser goes on by itself.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// What cannot be read is gone, or never was.
fn refused(error: &Error) -> Answer {
    if *error == Error::client_invalid_operation() {
        Answer::missing(&error.to_string())
    } else if [Error::version_invalid(), Error::wrong_shard_server()].contains(error) {
        Answer::gone(&error.to_string())
    } else {
        Answer::database(error)
    }
}

/// Begins to send the changes of a stream: behind the last event that the reader has, or `from`, or
/// what was acknowledged.
pub(super) async fn open(
    console: &Console,
    name: &str,
    query: &Query,
    headers: &HeaderMap,
    patience: &Arc<Patience>,
) -> Result<Answer, Answer> {
    let (name, from) = (query::path_key("name", name)?, begins_behind(query, headers)?);
    let busy = |why: &str| Answer::too_many(&format!("{why}: come back later"));
    let shared = &console.shared;
    let counted = console
        .feeds
        .enter()
        .ok_or_else(|| busy(&format!("{FEEDS} streams are followed already")))?;
    if shared.memory.is_short() {
        return Err(busy("the memory that there is for connections is taken"));
    }
    let token = console.access.other_token(headers);
    let may = console.access.may_go_on(patience.other_side(), token);
    let database = Database::new(shared.endpoint.clone());
    let found = database.consume_changes(&name).await.map_err(|error| refused(&error))?;
    let position = from.unwrap_or(found.position());
    let mut consumer = database.resume_changes(found.id(), position).with_bytes(READ);
    let changes = consumer.try_next().await.map_err(|error| refused(&error))?;
    Ok(Answer::events(Feed::new(
        (&shared.env, &shared.memory),
        consumer,
        (changes.batches, may),
        counted,
        patience.clone(),
    )))
}

/// The version behind which a reader wants to begin, if it says so.
fn begins_behind(query: &Query, headers: &HeaderMap) -> Result<Option<Version>, Answer> {
    let said = headers.get(LAST_EVENT).map(|value| value.to_str().unwrap_or("no text"));
    // An address stays the same when a browser comes again.
    let Some(text) = said.or_else(|| query.text("from")) else { return Ok(None) };
    match text.parse::<Version>() {
        Ok(version) if version >= 0 => Ok(Some(version)),
        _ => Err(Answer::bad_request(&format!(
            "from and Last-Event-ID are versions, whole numbers, and not {text:?}"
        ))),
    }
}

/// Notes that the consumer of a stream needs nothing any longer up to a version.
pub(super) async fn acknowledge(
    shared: &Shared,
    name: &str,
    query: &Query,
) -> Result<Answer, Answer> {
    let name = query::path_key("name", name)?;
    let version = query.number("version")?.and_then(|version| Version::try_from(version).ok());
    let version = version.ok_or_else(|| Answer::bad_request("up to which version?"))?;
    let database = Database::new(shared.endpoint.clone());
    let found = database.consume_changes(&name).await.map_err(|error| refused(&error))?;
    let noted = database.acknowledge_changes(found.id(), version).await;
    noted.map_err(|error| Answer::database(&error))?;
    Ok(Answer::value(&json!({ "id": found.id(), "acknowledged": version.max(found.position()) })))
}
