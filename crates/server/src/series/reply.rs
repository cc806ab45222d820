//! An answer on its way to a reader.
//!
//! It is sent while it is made: hyper asks for the next piece when the last one has gone out, so a
//! reader that is slow slows its query down and nothing piles up. Whoever drops it has stopped the
//! work. What fails halfway is a last line where the answer is one that has such; otherwise it
//! breaks off, and its reader finds no end.

use super::access::Leave;
use super::pulse::Asking;
use super::throttle::Payer;
use crate::http::Patience;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use plinth_series::{Answer, ChunkStream, Export, QueryError, QueryResult, Remarks};
use plinth_types::{Bytes, Error};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How long a connection may be without a whole request.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// How long a reader may leave a piece of its answer untouched.
const STALLED: Duration = Duration::from_secs(300);

/// An answer that is being made, and counted as long as it is.
pub(super) struct Work {
    pub(super) answer: Made,
    asking: Asking,
}

/// What an answer is made of.
pub(super) enum Made {
    Rows(Box<Answer>),
    Lines(Box<Export>),
    Chunks(Box<ChunkStream>),
}

impl Made {
    pub(super) async fn next(&mut self) -> QueryResult<Option<Vec<u8>>> {
        match self {
            Self::Rows(answer) => answer.next().await,
            Self::Lines(export) => export.next().await,
            Self::Chunks(stream) => stream.next().await,
        }
    }

    /// Whether what is wrong can be a line of it, for its reader to see.
    fn tells(&self) -> bool {
        matches!(self, Self::Rows(answer) if answer.is_text())
    }

    /// What is to be said of it beside what is in it.
    pub(super) fn remarks(&self) -> Remarks {
        match self {
            Self::Rows(answer) => answer.remarks(),
            Self::Lines(_) | Self::Chunks(_) => Remarks::default(),
        }
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self, Self::Rows(answer) if answer.is_ended())
    }
}

impl Work {
    pub(super) fn new(asking: &Asking, answer: Made) -> Box<Self> {
        asking.queries.fetch_add(1, Ordering::Relaxed);
        Box::new(Self { answer, asking: asking.clone() })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.asking.queries.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A piece being made: what comes of it, and the answer itself.
type Piece = Pin<Box<dyn Future<Output = (Box<Work>, QueryResult<Option<Vec<u8>>>)> + Send>>;

/// A reply on its way.
pub(crate) struct Reply {
    pub(super) state: State,
    pub(super) patience: Arc<Patience>,
    /// Who pays for it.
    pub(super) payer: Option<Payer>,
    /// For how long it goes on, where that isn't to its end.
    pub(super) leave: Option<Leave>,
}

impl Reply {
    /// Ends it if its reader may not hear the rest any more: it breaks off.
    fn heed_rights(&mut self, context: &mut Context<'_>) {
        let Some(leave) = &mut self.leave else { return };
        if !matches!(self.state, State::End) && leave.poll_ended(context).is_ready() {
            let why = Error::permission_denied().with_detail("the right to this was taken back");
            self.state = State::Broken(QueryError::Series(why.into()));
            self.leave = None;
        }
    }

    /// A piece goes out.
    fn pay(&self, piece: &Bytes) {
        if let Some(payer) = &self.payer {
            payer.pay(piece.len());
        }
    }
}

/// How far it is.
pub(super) enum State {
    /// Text that is there, and the answer that comes behind it.
    Text(Bytes, Option<Box<Work>>),
    Making(Piece),
    /// What the owner of the series answers, to which this was passed on.
    Passed(Incoming),
    /// It failed, and its reader can't be told by what is in it.
    Broken(QueryError),
    End,
}

impl State {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(text.into(), None)
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = QueryError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, QueryError>>> {
        self.heed_rights(context);
        loop {
            match &mut self.state {
                State::Text(text, rest) => {
                    let (text, rest) = (std::mem::take(text), rest.take());
                    self.state =
                        rest.map_or(State::End, |work| State::Making(Box::pin(piece(work))));
                    if !text.is_empty() {
                        self.patience.set(STALLED);
                        self.pay(&text);
                        return Poll::Ready(Some(Ok(Frame::data(text))));
                    }
                }
                State::Making(piece) => {
                    let made = piece.as_mut().poll(context);
                    if made.is_pending() {
                        self.patience.stop();
                    }
                    self.state = match ready!(made) {
                        (work, Ok(Some(text))) => State::Text(text.into(), Some(work)),
                        (_, Ok(None)) => State::End,
                        (work, Err(error)) if work.answer.tells() => State::text(refusal(&error)),
                        (_, Err(error)) => State::Broken(error),
                    };
                }
                State::Passed(answer) => {
                    let frame = Pin::new(answer).poll_frame(context);
                    if frame.is_pending() {
                        self.patience.stop();
                    }
                    match ready!(frame) {
                        Some(Ok(frame)) if frame.is_data() => {
                            self.patience.set(STALLED);
                            frame.data_ref().inspect(|piece| self.pay(piece));
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Some(Ok(_)) => {}
                        // It breaks off here too, so that its reader finds no end.
                        Some(Err(why)) => {
                            self.state = State::Broken(QueryError::Series(lost(&why)))
                        }
                        None => self.state = State::End,
                    }
                }
                State::Broken(error) => {
                    let error = error.clone();
                    self.state = State::End;
                    return Poll::Ready(Some(Err(error)));
                }
                State::End => {
                    self.patience.set(IDLE);
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::End)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Text(text, None) => SizeHint::with_exact(text.len() as u64),
            State::End => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}

async fn piece(mut work: Box<Work>) -> (Box<Work>, QueryResult<Option<Vec<u8>>>) {
    let pulse = work.asking.pulse.clone();
    let made = pulse.or_silent(work.answer.next()).await;
    let made = made.unwrap_or_else(|why| Err(QueryError::Series(why.into())));
    (work, made)
}

/// An error as one line.
pub(super) fn refusal(error: &QueryError) -> Vec<u8> {
    let line = error.to_string().replace(['\r', '\n'], " ");
    format!("-{line}\r\n").into_bytes()
}

/// Why the rest of an answer that was passed on doesn't come.
fn lost(why: &hyper::Error) -> plinth_series::Error {
    Error::connection_failed().with_detail(why.to_string()).into()
}

#[cfg(feature = "arrow")]
#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::{Env, block_on};
    use plinth_pipeline::{Node, NodeConfig};
    use plinth_series::SeriesStore;
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    /// What a reader hears of an answer that fails halfway.
    fn heard(format: &str) -> Result<String, String> {
        let env = Env::real();
        let node = block_on(Node::in_memory(&env, NodeConfig::default())).unwrap();
        let endpoint: Arc<dyn plinth_client::Endpoint> = Arc::new(node.endpoint());
        let database = plinth_client::Database::new(endpoint.clone());
        let pulse = super::super::pulse::Pulse::new(&endpoint, database.clone());
        let store = block_on(SeriesStore::open(&database)).unwrap();
        let query = format!(r#"{{"select": "metric-names", "output": {{"format": "{format}"}}}}"#);
        let answer = store.suggest(query.as_bytes()).unwrap();
        let answer = Made::Rows(Box::new(answer));
        let work = Work::new(&Asking::new(pulse), answer);
        let failing = async { (work, Err(QueryError::TooMany("points".to_owned()))) };
        let state = State::Making(Box::pin(failing));
        let patience =
            Arc::new(Patience::new(&env, crate::rights::Identity::at(Ipv4Addr::LOCALHOST.into())));
        let mut reply = Reply { state, patience, payer: None, leave: None };
        let frame = block_on(poll_fn(|context| Pin::new(&mut reply).poll_frame(context))).unwrap();
        assert!(block_on(poll_fn(|context| Pin::new(&mut reply).poll_frame(context))).is_none());
        let text =
            |frame: Frame<Bytes>| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        frame.map(text).map_err(|error| error.to_string())
    }

    /// A line behind rows of text; but nothing that a reader of a stream could take for its end.
    #[test]
    fn a_stream_that_fails_halfway_breaks_off() {
        assert!(heard("csv").unwrap().starts_with("-high cardinality"));
        assert!(heard("arrow").unwrap_err().starts_with("high cardinality"));
    }
}
