//! An answer before it is on its way: its status, what kind of content comes, and the content.
//!
//! Akumuli's and OpenTSDB's answers have no place for what is to be said of them beside their rows,
//! as Prometheus' have it for warnings. It stands in a header, so it has to be known before the
//! first piece goes out, and whoever passes an answer on passes that on, too.

use super::reply::State;
use super::unanswered::{Form, JSON, TEXT};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use plinth_series::Remarks;
use plinth_types::Bytes;

/// What is to be said of an answer beside its rows: that something is missing, and where it comes
/// from.
const WARNING: HeaderName = HeaderName::from_static("x-plinth-warning");
const INFO: HeaderName = HeaderName::from_static("x-plinth-info");

/// An answer.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) kind: HeaderValue,
    warning: Option<HeaderValue>,
    info: Option<HeaderValue>,
    pub(super) state: State,
}

impl Answered {
    /// One that goes well.
    pub(super) fn of(kind: &'static str, state: State) -> Self {
        let kind = HeaderValue::from_static(kind);
        Self { status: StatusCode::OK, kind, warning: None, info: None, state }
    }

    /// The same with what is to be said beside it.
    pub(super) fn remarked(self, Remarks { warning, info }: Remarks) -> Self {
        let warning = warning.map(HeaderValue::from_static);
        let info = info.and_then(|info| HeaderValue::try_from(info).ok());
        Self { warning, info, ..self }
    }

    /// What another server answers, on its way.
    pub(super) fn passed(response: Response<Incoming>) -> Self {
        let header = |name| response.headers().get(name).cloned();
        let (kind, warning, info) = (header(CONTENT_TYPE), header(WARNING), header(INFO));
        let kind = kind.unwrap_or(HeaderValue::from_static(TEXT));
        let status = response.status();
        Self { status, kind, warning, info, state: State::Passed(response.into_body()) }
    }

    /// Puts what stands before its content into the headers; gives the content.
    pub(super) fn into_state(self, headers: &mut HeaderMap) -> State {
        headers.insert(CONTENT_TYPE, self.kind);
        for (name, value) in [(WARNING, self.warning), (INFO, self.info)] {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        self.state
    }
}

pub(super) fn told(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answered {
    Answered { status, ..Answered::of(kind, State::text(text)) }
}

pub(super) fn json_told(status: u16, text: impl Into<Bytes>) -> Answered {
    told(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), JSON, text)
}

/// What somebody is told whose request isn't carried out.
pub(super) fn unanswered(form: Form, status: StatusCode, why: &str) -> Answered {
    let (kind, text) = form.refusal(status, why);
    told(status, kind, text)
}
