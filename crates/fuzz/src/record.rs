//! Recording what clients say: a proxy in front of a server, which adds to the corpus.
//!
//! ```text
//!   client (any binding) ──▶ proxy ──▶ server
//!                              │ each frame of a client, once for each kind, length and beginning
//!                              ├──▶ corpus/requests/recorded-KIND-NN
//!                              └──▶ corpus/connection/recorded-NN   the first frames of a connection
//! ```
//!
//! Bytes pass unchanged. What is kept is small: a fuzzer makes long messages of short ones.

use plinth_env::{Env, Stream};
use plinth_proto::Hello;
use plinth_proto::frame::{self, MAX_REQUEST};
use plinth_types::Result;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Bytes of a body that is kept, and of a connection's frames.
const MOST: usize = 512;
const MOST_OF_CONNECTION: usize = 2048;
/// Messages that are kept of a kind, and connections.
const KEPT: usize = 12;
const CONNECTIONS: usize = 24;

/// What has been kept so far.
struct Kept {
    corpus: PathBuf,
    /// By kind: how long a message's body was, about, and how it began.
    requests: BTreeMap<u8, Vec<(u32, Vec<u8>)>>,
    /// By the kinds of their frames.
    connections: Vec<Vec<u8>>,
}

/// Stands between clients at `listen` and the server at `server` until the process ends.
///
/// # Errors
/// Those of listening.
pub async fn record(
    env: &Env,
    listen: SocketAddr,
    server: SocketAddr,
    corpus: &Path,
) -> Result<()> {
    let listener = env.sockets().listen(listen).await?;
    let kept =
        Kept { corpus: corpus.to_path_buf(), requests: BTreeMap::new(), connections: Vec::new() };
    let kept = Arc::new(Mutex::new(kept));
    loop {
        let client = poll_fn(|context| listener.poll_accept(context)).await?;
        let (env, kept) = (env.clone(), kept.clone());
        drop(env.clone().spawn("recorded", async move {
            let Ok(server) = env.sockets().connect(server).await else { return };
            let said = pass(client, server).await;
            let files = kept.lock().unwrap_or_else(PoisonError::into_inner).choose(&said);
            for (path, bytes) in files {
                if let Err(error) = env.files().replace(&path, &bytes).await {
                    eprintln!("plinth-fuzz: {}: {error}", path.display());
                }
            }
        }));
    }
}

/// One direction: what was read and not sent yet, and whether the end has been seen.
#[derive(Default)]
struct Pipe {
    waiting: Vec<u8>,
    is_over: bool,
}

impl Pipe {
    /// Passes on what there is. `Ready` once the end has been passed on.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        (from, to): (&mut Stream, &mut Stream),
        mut heard: impl FnMut(&[u8]),
    ) -> Poll<std::io::Result<()>> {
        let mut buffer = [0; 4096];
        loop {
            while !self.waiting.is_empty() {
                match to.poll_send(context, &self.waiting) {
                    Poll::Ready(sent) => drop(self.waiting.drain(..sent?)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.is_over {
                return to.poll_finish(context);
            }
            match from.poll_receive(context, &mut buffer) {
                Poll::Ready(Ok(0)) => self.is_over = true,
                Poll::Ready(Ok(len)) => {
                    heard(&buffer[..len]);
                    self.waiting.extend_from_slice(&buffer[..len]);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Passes bytes both ways until either side ends; gives what the client has said.
async fn pass(mut client: Stream, mut server: Stream) -> Vec<u8> {
    let (mut there, mut back) = (Pipe::default(), Pipe::default());
    let mut said = Vec::new();
    poll_fn(|context| {
        let to_server = there.poll(context, (&mut client, &mut server), |bytes| {
            said.extend_from_slice(bytes);
        });
        let to_client = back.poll(context, (&mut server, &mut client), |_| {});
        match to_server.is_ready() || to_client.is_ready() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    said
}

impl Kept {
    /// The files that what a client has said is worth.
    fn choose(&mut self, said: &[u8]) -> Vec<(PathBuf, Vec<u8>)> {
        let Ok(Some((_, greeting))) = Hello::decode(said) else { return Vec::new() };
        let (mut rest, mut files, mut kinds) = (&said[greeting..], Vec::new(), Vec::new());
        let (frames, mut first) = (rest, 0);
        while let Ok(Some(frame)) = frame::split(rest, MAX_REQUEST) {
            files.extend(self.request(frame.kind, frame.body));
            let begin = frames.len() - rest.len();
            if begin == first && begin + frame.len() <= MOST_OF_CONNECTION {
                first += frame.len();
                kinds.push(frame.kind);
            }
            rest = &rest[frame.len()..];
        }
        kinds.dedup();
        if self.connections.len() < CONNECTIONS && !self.connections.contains(&kinds) {
            let name = format!("connection/recorded-{:02}", self.connections.len());
            files.push((self.corpus.join(name), frames[..first].to_vec()));
            self.connections.push(kinds);
        }
        files
    }

    fn request(&mut self, kind: u8, body: &[u8]) -> Option<(PathBuf, Vec<u8>)> {
        let known = self.requests.entry(kind).or_default();
        // Of versions, which come first in reads, messages differ anyway.
        let len = body.len().checked_ilog2().unwrap_or(0);
        let shape = (len, body.iter().skip(8).take(8).copied().collect());
        if body.len() > MOST || known.len() == KEPT || known.contains(&shape) {
            return None;
        }
        let name = format!("requests/recorded-{kind:02}-{:02}", known.len());
        known.push(shape);
        Some((self.corpus.join(name), [&[kind], body].concat()))
    }
}
