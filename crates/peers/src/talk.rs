//! One message after the other over a stream, for as long as two sides come to know each other.

use crate::failure::{PeerError, PeerResult};
use plinth_env::Stream;
use plinth_types::Error;
use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

/// How long connecting and coming to know each other may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes received at a time.
const RECEIVE: usize = 4096;

/// A stream, and what has arrived of it and was not read yet.
pub(crate) struct Talk {
    pub(crate) stream: Stream,
    pub(crate) input: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(stream: Stream, input: Vec<u8>) -> Self {
        Self { stream, input }
    }

    /// Sends all of `bytes`.
    pub(crate) async fn say(&mut self, bytes: &[u8]) -> PeerResult<()> {
        let mut sent = 0;
        let stream = &mut self.stream;
        let said = poll_fn(|context| {
            while sent < bytes.len() {
                match ready!(stream.poll_send(context, &bytes[sent..])) {
                    Ok(0) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                    Ok(more) => sent += more,
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
            stream.poll_flush(context)
        });
        said.await.map_err(lost)
    }

    /// The next message that `decode` finds.
    pub(crate) async fn hear<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> PeerResult<Option<(T, usize)>>,
    ) -> PeerResult<T> {
        let mut buffer = [0; RECEIVE];
        loop {
            if let Some((heard, len)) = decode(&self.input)? {
                self.input.drain(..len);
                return Ok(heard);
            }
            let stream = &mut self.stream;
            let len =
                poll_fn(|context| stream.poll_receive(context, &mut buffer)).await.map_err(lost)?;
            if len == 0 {
                return Err(PeerError::Unreachable(
                    "the other node closed the connection".to_owned(),
                ));
            }
            self.input.extend_from_slice(&buffer[..len]);
        }
    }

    /// Says the last words, and waits until the other side has heard them.
    pub(crate) async fn part(mut self, bytes: &[u8]) {
        if self.say(bytes).await.is_err() {
            return;
        }
        let mut buffer = [0; RECEIVE];
        let stream = &mut self.stream;
        poll_fn(|context| {
            let _ = ready!(stream.poll_finish(context));
            while let Ok(len) = ready!(stream.poll_receive(context, &mut buffer)) {
                if len == 0 {
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// What a lost connection is called. What TLS has to say about it stands in the system's error.
pub(crate) fn lost(error: std::io::Error) -> PeerError {
    match error.get_ref().and_then(|why| why.downcast_ref::<Error>()) {
        Some(why) => PeerError::Told(why.clone()),
        None => PeerError::Unreachable(error.to_string()),
    }
}
