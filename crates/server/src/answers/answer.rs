//! Answers: a status, a kind, bytes; errors as JSON that names the cause.
//!
//! Every answer forbids the browser to guess kinds, to show the page in a frame of another site,
//! and to load anything from elsewhere; so a value that looks like a page or a script is text,
//! wherever it comes from.

use super::events::{Feed, Reply};
use crate::http::Whole;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Response, StatusCode};
use plinth_types::{Bytes, Error};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;

/// Scripts, styles and data from the server itself, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What is refused with such an error, for a probe.
pub(crate) fn why_refused(error: &Error) -> &'static str {
    if *error == Error::process_behind() {
        "reads and commits wait for the other servers of the cluster"
    } else if *error == Error::io_timeout() {
        "no commit is taken while the disk does not answer"
    } else {
        "commits are refused"
    }
}

/// What is said to one request.
pub(crate) struct Answer {
    status: StatusCode,
    kind: &'static str,
    body: Bytes,
    /// What is sent in the place of the body, while it is made.
    feed: Option<Box<Feed>>,
    cookie: Option<String>,
    allow: Option<String>,
}

impl Answer {
    fn new(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, kind, body: body.into(), feed: None, cookie: None, allow: None }
    }

    pub(crate) fn file(kind: &'static str, text: &'static str) -> Self {
        Self::new(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
    }

    pub(crate) fn text(text: &'static str) -> Self {
        Self::file("text/plain; charset=utf-8", text)
    }

    /// What a probe is told while commits that write rows are refused. Without details: it needs no
    /// token.
    pub(crate) fn not_serving(error: &Error) -> Self {
        let text = format!("{}: {} ({})\n", why_refused(error), error.name(), error.code());
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", text)
    }

    pub(crate) fn metrics(text: String) -> Self {
        Self::new(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// What another server has answered to the same question.
    #[cfg(feature = "series")]
    pub(crate) fn passed(status: StatusCode, text: Bytes) -> Self {
        Self::new(status, "application/json", text)
    }

    /// What is passed on of it.
    #[cfg(feature = "series")]
    pub(crate) fn into_parts(self) -> (StatusCode, Bytes) {
        (self.status, self.body)
    }

    /// A JSON document.
    pub(crate) fn json(text: String) -> Self {
        Self::new(StatusCode::OK, "application/json", text)
    }

    pub(crate) fn value(value: &Value) -> Self {
        Self::json(value.to_string())
    }

    /// Server-sent events, as long as there are some.
    pub(crate) fn events(feed: Feed) -> Self {
        Self { feed: Some(Box::new(feed)), ..Self::new(StatusCode::OK, "text/event-stream", "") }
    }

    fn error(status: StatusCode, name: &str, message: &str) -> Self {
        let mut answer = Self::value(&json!({ "error": name, "message": message }));
        answer.status = status;
        answer
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn not_found() -> Self {
        let message = "nothing is here; docs/monitoring.md lists what there is";
        Self::error(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// There is no such thing as was asked for.
    pub(crate) fn missing(message: &str) -> Self {
        Self::error(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn wrong_method(allowed: &[Method]) -> Self {
        let allowed: Vec<_> = allowed.iter().map(Method::as_str).collect();
        let allowed = allowed.join(", ");
        let message = format!("this address takes {allowed}");
        let mut answer = Self::error(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", &message);
        answer.allow = Some(allowed);
        answer
    }

    pub(crate) fn token_needed(message: &str) -> Self {
        Self::error(StatusCode::UNAUTHORIZED, "token_needed", message)
    }

    pub(crate) fn forbidden(message: &str) -> Self {
        Self::error(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(crate) fn read_only() -> Self {
        let message = "this console only reads; --console-write lets it write";
        Self::error(StatusCode::FORBIDDEN, "read_only", message)
    }

    pub(crate) fn too_large(bytes: usize) -> Self {
        let message = format!("the body has more than {bytes} bytes");
        Self::error(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message)
    }

    /// It was there, and won't be again.
    pub(crate) fn gone(message: &str) -> Self {
        Self::error(StatusCode::GONE, "gone", message)
    }

    pub(crate) fn too_many(message: &str) -> Self {
        Self::error(StatusCode::SERVICE_UNAVAILABLE, "too_many", message)
    }

    /// The database's own word. What can't be as it was asked is the asker's affair, all else the
    /// database's.
    pub(crate) fn database(error: &Error) -> Self {
        let status = match error.code() {
            // Keys and values that are too long, outside of the key space, ranges that end before
            // they begin.
            2000..2200 => StatusCode::BAD_REQUEST,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut answer = Self::value(
            &json!({ "error": "database", "code": error.code(), "message": error.to_string() }),
        );
        answer.status = status;
        answer
    }

    /// The same with a cookie.
    pub(crate) fn with_cookie(mut self, cookie: String) -> Self {
        self.cookie = Some(cookie);
        self
    }

    /// For hyper; without its body, if it is only asked how the answer would be.
    pub(crate) fn into_response(self, is_head: bool) -> Response<Reply> {
        let length = self.feed.is_none().then_some(self.body.len());
        let mut response = Response::new(match self.feed {
            _ if is_head => Reply::Whole(Whole(Bytes::new())),
            Some(feed) => Reply::Feed(feed),
            None => Reply::Whole(Whole(self.body)),
        });
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let mut say = |name, text| headers.insert(name, HeaderValue::from_static(text));
        say(header::CONTENT_TYPE, self.kind);
        say(header::CACHE_CONTROL, "no-store");
        say(header::CONTENT_SECURITY_POLICY, POLICY);
        say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        say(header::X_FRAME_OPTIONS, "DENY");
        say(header::REFERRER_POLICY, "no-referrer");
        say(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        if self.status == StatusCode::UNAUTHORIZED {
            say(header::WWW_AUTHENTICATE, "Bearer realm=\"plinth\"");
        }
        for (name, text) in [(header::SET_COOKIE, self.cookie), (header::ALLOW, self.allow)] {
            // Both are made of plain letters here, so they always are values.
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(&text).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// A request's body as JSON, if it has at most so many bytes.
pub(crate) async fn body(body: Incoming, most: usize) -> Result<Value, Answer> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let frame = frame.map_err(|_| Answer::bad_request("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Err(Answer::too_large(most));
        }
        bytes.extend_from_slice(&data);
    }
    let said =
        |error: serde_json::Error| Answer::bad_request(&format!("the body is no JSON: {error}"));
    serde_json::from_slice(&bytes).map_err(said)
}
