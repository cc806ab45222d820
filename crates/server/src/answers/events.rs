//! Server-sent events: the body of an answer that goes on while a stream of changes does. `feed.rs`
//! says what is in it.
//!
//! hyper asks for the next piece when the last one has gone out, so a reader that is slow holds one
//! answer of the stream and nothing piles up; one that takes nothing for a while is cut off.
//!
//! Always: what a feed holds is counted among the memory of connections, and there are few feeds,
//! so that probes find a connection.

use crate::http::{Patience, Whole};
use crate::memory::Memory;
use hyper::body::{Body, Frame, SizeHint};
use plinth_client::ChangeConsumer;
use plinth_env::Env;
use plinth_env::sync::{First, race};
use plinth_types::{Bytes, ChangeBatch, Changes, Error, Version};
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How long a connection to the console may be without a whole request.
pub(crate) const IDLE: Duration = Duration::from_secs(15);
/// Feeds at a time.
pub(crate) const FEEDS: usize = 32;
/// About how many bytes of mutations are read at a time.
pub(crate) const READ: usize = 256 << 10;
/// About how many bytes of text are sent at a time.
const PIECE: usize = 64 << 10;
/// How long a reader may leave a piece untouched.
const STALLED: Duration = Duration::from_secs(60);
/// How long nothing is said at most.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is looked meanwhile whether the reader may read on.
const LOOK: Duration = Duration::from_millis(500);

/// Whether the reader of a feed may read on.
pub(crate) type May = Box<dyn Fn() -> bool + Send>;

/// Feeds that are open.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

/// One of them.
pub(crate) struct Counted(Count);

impl Count {
    pub(crate) fn enter(&self) -> Option<Counted> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.clone());
        (before < FEEDS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer of the console's, on its way.
pub(crate) enum Reply {
    Whole(Whole),
    Feed(Box<Feed>),
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(context),
            Self::Feed(feed) => {
                feed.poll(context).map(|text| text.map(|text| Ok(Frame::data(text))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(whole) if whole.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Feed(_) => SizeHint::default(),
        }
    }
}

/// The events of a stream, while they come.
pub(crate) struct Feed {
    state: State,
    patience: Arc<Patience>,
    /// How long the other side has for what it asks next.
    idle: Duration,
}

/// What comes next, and who goes on behind it.
type Piece = (Bytes, Option<Box<Follower>>);

enum State {
    Text(Bytes, Option<Box<Follower>>),
    Making(Pin<Box<dyn Future<Output = Piece> + Send>>),
    End,
}

impl Feed {
    /// Sends these batches, and what the consumer reads behind them, for as long as the reader may.
    pub(crate) fn new(
        (env, memory): (&Env, &Arc<Memory>),
        consumer: ChangeConsumer,
        (batches, may): (Vec<ChangeBatch>, May),
        counted: Counted,
        patience: Arc<Patience>,
    ) -> Self {
        let (env, held) = (env.clone(), Held { memory: memory.clone(), bytes: 0 });
        let batches_left = VecDeque::new();
        let mut follower = Box::new(Follower {
            env,
            consumer,
            batches: batches_left,
            held,
            may,
            _counted: counted,
        });
        follower.take(batches);
        let state = State::Text(follower.text().into(), Some(follower));
        Self { state, patience, idle: IDLE }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match &mut self.state {
                State::Text(text, follower) => {
                    let (text, follower) = (std::mem::take(text), follower.take());
                    let making =
                        |follower: Box<Follower>| State::Making(Box::pin(follower.go_on()));
                    self.state = follower.map_or(State::End, making);
                    self.patience.set(STALLED);
                    return Poll::Ready(Some(text));
                }
                State::Making(piece) => {
                    let made = piece.as_mut().poll(context);
                    if made.is_pending() {
                        self.patience.stop();
                    }
                    let (text, follower) = ready!(made);
                    self.state = State::Text(text, follower);
                }
                State::End => {
                    self.patience.set(self.idle);
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// Who reads the stream.
struct Follower {
    env: Env,
    consumer: ChangeConsumer,
    batches: VecDeque<ChangeBatch>,
    held: Held,
    may: May,
    _counted: Counted,
}

impl Follower {
    fn take(&mut self, batches: Vec<ChangeBatch>) {
        self.held.set(batches.iter().map(|batch| batch.mutations.as_bytes().len()).sum());
        self.batches = batches.into();
    }

    async fn go_on(mut self: Box<Self>) -> Piece {
        if self.batches.is_empty() {
            match self.read().await {
                Some(Ok(changes)) => self.take(changes.batches),
                Some(Err(error)) => return (Bytes::from(end(&error)), None),
                None if (self.may)() => {
                    return (Bytes::from_static(b": waiting\n\n"), Some(self));
                }
                None => {}
            }
        }
        if !(self.may)() {
            let why = Error::permission_denied().with_detail("there are rights by now");
            return (Bytes::from(end(&why)), None);
        }
        (self.text().into(), Some(self))
    }

    /// What the stream has next; `None` if that is nothing for a while, or the reader may read no
    /// more.
    async fn read(&mut self) -> Option<Result<Changes, Error>> {
        let Self { env, consumer, may, .. } = self;
        let until = env.now() + SILENCE;
        let mut next = pin!(consumer.next());
        while may() && env.now() < until {
            if let First::Left(read) = race(next.as_mut(), env.sleep(LOOK)).await {
                return Some(read);
            }
        }
        None
    }

    /// Batches as events, or only how far the stream has been read.
    fn text(&mut self) -> String {
        let mut text = String::new();
        while text.len() < PIECE
            && let Some(batch) = self.batches.pop_front()
        {
            event(&batch, &mut text);
        }
        if text.is_empty() {
            id(self.consumer.position(), &mut text);
            text.push('\n');
        }
        let left: usize = self.batches.iter().map(|batch| batch.mutations.as_bytes().len()).sum();
        self.held.set(left + text.len());
        text
    }
}

/// What a feed holds of the memory that there is for connections.
struct Held {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Held {
    fn set(&mut self, bytes: usize) {
        self.memory.change(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn id(version: Version, text: &mut String) {
    // Text is always taken.
    let _ = writeln!(text, "id: {version}");
}

fn event(batch: &ChangeBatch, text: &mut String) {
    id(batch.version, text);
    for line in batch.json_lines().lines() {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
}

/// The last word of a feed.
fn end(error: &Error) -> String {
    let why = json!({ "error": "database", "code": error.code(), "message": error.to_string() });
    format!("event: end\ndata: {why}\n\n")
}
