//! A connection that says whatever it is told to, and gives up where nothing moves.

use plinth_env::{Env, Stream};
use plinth_proto::{Hello, Welcome};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

/// How long a step of an attacker may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes received at a time.
const RECEIVE: usize = 64 << 10;

/// What ended an attempt: nothing that matters to an attacker.
#[derive(Debug)]
pub(super) struct Over;

pub(super) type Step<T> = Result<T, Over>;

/// What comes of `work`, if it comes in time.
pub(super) async fn within<T>(env: &Env, time: Duration, work: impl Future<Output = T>) -> Step<T> {
    let mut work = pin!(work);
    let mut late = pin!(env.sleep(time));
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => late.as_mut().poll(context).map(|()| Err(Over)),
    })
    .await
}

pub(super) struct Wire {
    env: Env,
    stream: Stream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(super) async fn connect(env: &Env, to: SocketAddr) -> Step<Self> {
        let connecting = within(env, PATIENCE, env.sockets().connect(to));
        let stream = connecting.await?.map_err(|_| Over)?;
        Ok(Self { env: env.clone(), stream, buffer: vec![0; RECEIVE] })
    }

    /// As a client that was welcomed.
    pub(super) async fn greeted(env: &Env, to: SocketAddr) -> Step<Self> {
        let mut wire = Self::connect(env, to).await?;
        let mut hello = Vec::new();
        Hello::new("", "hostile").encode(&mut hello);
        wire.send(&hello).await?;
        let mut received = Vec::new();
        while Welcome::decode(&received).map_err(|_| Over)?.is_none() {
            let len = wire.receive().await?;
            received.extend_from_slice(&wire.buffer[..len]);
        }
        Ok(wire)
    }

    /// Sends all of it.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Step<()> {
        let mut sent = 0;
        let stream = &mut self.stream;
        let sending = poll_fn(|context| {
            while sent < bytes.len() {
                sent += ready!(stream.poll_send(context, &bytes[sent..]))?;
            }
            stream.poll_flush(context)
        });
        within(&self.env, PATIENCE, sending).await?.map_err(|_| Over)
    }

    /// Receives something, and forgets it.
    pub(super) async fn receive(&mut self) -> Step<usize> {
        let (stream, buffer) = (&mut self.stream, &mut self.buffer);
        let receiving = poll_fn(|context| stream.poll_receive(context, buffer));
        match within(&self.env, PATIENCE, receiving).await?.map_err(|_| Over)? {
            0 => Err(Over),
            len => Ok(len),
        }
    }

    /// What was received last.
    pub(super) fn received(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }

    /// Receives until the other side closes, or says nothing for a while.
    pub(super) async fn drain(&mut self) -> Step<()> {
        loop {
            self.receive().await?;
        }
    }

    /// Holds the connection for a while, reading nothing.
    pub(super) async fn hold(&mut self, time: Duration) {
        self.env.sleep(time).await;
    }
}
