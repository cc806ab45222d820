//! Connecting to whichever of a host's addresses answers first.
//!
//! A name may stand for several addresses, of which one leads nowhere: nobody refuses there, nobody
//! answers, and whoever waits for it gives up before another one has had its turn. So the next is
//! tried beside it after a while, and the first that answers is taken.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use crate::failure::{IoError, IoErrorKind, IoResult};
use crate::{Env, Stream};

/// How long one address is tried before the next is tried beside it. One that refuses has its turn
/// behind it at once.
const HEAD_START: Duration = Duration::from_millis(250);

impl Env {
    /// Connects to a listener at one of these addresses, whichever answers first; they are tried in
    /// this order, the next a quarter of a second after the one before, or when that has failed.
    ///
    /// # Errors
    /// That of the last one that failed, if all have; `UnknownHost` if there is none.
    pub async fn connect_to_any(&self, places: &[SocketAddr]) -> IoResult<Stream> {
        if let [place] = places {
            return self.sockets().connect(*place).await;
        }
        let none = "there is no address to connect to";
        let mut failure = IoError::new(IoErrorKind::UnknownHost, none);
        let mut waiting = places.iter();
        let mut tries: Vec<Pin<Box<dyn Future<Output = IoResult<Stream>> + Send + '_>>> =
            Vec::new();
        loop {
            match waiting.next() {
                Some(place) => tries.push(Box::pin(self.sockets().connect(*place))),
                None if tries.is_empty() => return Err(failure),
                None => {}
            }
            let is_last = waiting.len() == 0;
            let mut head_start = pin!(self.sleep(HEAD_START));
            let connected = poll_fn(|context| {
                let before = tries.len();
                let mut connected = None;
                tries.retain_mut(|one| match one.as_mut().poll(context) {
                    Poll::Pending => true,
                    Poll::Ready(Ok(stream)) => {
                        connected.get_or_insert(stream);
                        false
                    }
                    Poll::Ready(Err(error)) => {
                        failure = error;
                        false
                    }
                });
                let is_due = !is_last && head_start.as_mut().poll(context).is_ready();
                match connected {
                    None if tries.len() == before && !is_due => Poll::Pending,
                    connected => Poll::Ready(connected),
                }
            });
            if let Some(stream) = connected.await {
                return Ok(stream);
            }
        }
    }
}
