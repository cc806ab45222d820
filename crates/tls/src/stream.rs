//! The stream that encrypts: a rustls session between the caller's bytes and the socket's.
//!
//! The handshake happens by itself, within the calls that receive and send: until it is over what
//! is sent waits in the session, and nothing is received. What arrives is read in large pieces and
//! fed to the session record by record, so that a turn of the caller costs one call of the system,
//! as it does without TLS; what a turn sends leaves in one call too.
//!
//! When it fails the other side is told: the session's alert, or (to a client who doesn't speak TLS
//! at all) words that it understands, are sent, and a server waits for the client to close, lest
//! the system take the words back.

use crate::words::{self, Other};
use plinth_env::{Ends, Stream, Transport};
use plinth_types::Error;
use rustls::Connection;
use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Ciphertext received at a time.
const RECEIVE: usize = 64 << 10;
/// Bytes that a session encrypts before they are sent.
const SEND: usize = 256 << 10;
/// The kinds of record that a handshake begins with: its own, and an alert instead of it.
const BEGINS: [u8; 2] = [0x16, 0x15];

thread_local! {
    static STAGING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What a server does about those with whom no connection comes about.
pub(crate) struct Refusals {
    /// What clients that don't speak TLS are told, in their own words.
    pub(crate) plain_answer: Arc<[u8]>,
    /// Whom to tell.
    pub(crate) on_failure: Arc<dyn Fn(&Error) + Send + Sync>,
}

pub(crate) struct TlsStream {
    below: Stream,
    session: Connection,
    /// Ciphertext that the caller's buffer had no room for.
    held: Vec<u8>,
    /// Whether anything has been received.
    begun: bool,
    /// A server's; gone with the first failure.
    refusals: Option<Refusals>,
    end: Option<End>,
    finished: bool,
}

/// How a connection that failed ends.
struct End {
    why: Error,
    /// What is still to be said, in the clear.
    words: Vec<u8>,
    lingers: bool,
}

impl TlsStream {
    pub(crate) fn new(below: Stream, mut session: Connection, refusals: Option<Refusals>) -> Self {
        session.set_buffer_limit(Some(SEND));
        Self {
            below,
            session,
            held: Vec::new(),
            begun: false,
            refusals,
            end: None,
            finished: false,
        }
    }

    fn other(&self) -> Other {
        match self.session {
            Connection::Client(_) => Other::Server,
            Connection::Server(_) => Other::Client,
        }
    }

    /// Notes that the connection has failed, and what to say about it.
    fn fail(&mut self, why: Error, words: impl FnOnce(&Refusals) -> Vec<u8>) {
        let refusals = self.refusals.take();
        let words = refusals.as_ref().map(words).unwrap_or_default();
        if let Some(refusals) = &refusals {
            (refusals.on_failure)(&why);
        }
        let lingers = refusals.is_some() && self.session.is_handshaking() || !words.is_empty();
        self.end = Some(End { why, words, lingers });
    }

    /// Gives what was received to the session, and what that decrypts to the caller, as far as
    /// there is room: how many bytes were used.
    fn feed(&mut self, bytes: &[u8], buffer: &mut [u8], filled: &mut usize) -> usize {
        if !self.begun && !bytes.is_empty() {
            self.begun = true;
            if !BEGINS.contains(&bytes[0]) {
                let why = words::no_tls(self.other(), self.below.peer_address(), bytes);
                self.fail(why, |refusals| refusals.plain_answer.to_vec());
                return bytes.len();
            }
        }
        let mut used = 0;
        while used < bytes.len() && *filled < buffer.len() && self.end.is_none() {
            match self.session.read_tls(&mut &bytes[used..]) {
                // After the other side has said that it is over, nothing counts.
                Ok(0) => return bytes.len(),
                Ok(len) => used += len,
                Err(error) => {
                    let why = Error::tls_error().with_detail(error.to_string());
                    self.fail(why, |_| Vec::new());
                    break;
                }
            }
            if let Err(error) = self.session.process_new_packets() {
                let why = words::failure(self.other(), self.below.peer_address(), &error);
                self.fail(why, |_| Vec::new());
            }
            self.take(buffer, filled);
        }
        used
    }

    /// Moves what is decrypted to the caller; says whether the other side has said all.
    fn take(&mut self, buffer: &mut [u8], filled: &mut usize) -> bool {
        while *filled < buffer.len() {
            match self.session.reader().read(&mut buffer[*filled..]) {
                Ok(0) => return true,
                Ok(len) => *filled += len,
                Err(_) => return false,
            }
        }
        false
    }

    /// Says what is to be said about a failure, then gives it.
    fn part(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let _ = self.send_records(context);
        let Some(end) = &mut self.end else {
            return Poll::Ready(io::ErrorKind::NotConnected.into());
        };
        let failed = || io::Error::new(io::ErrorKind::InvalidData, end.why.clone());
        if !end.lingers {
            return Poll::Ready(failed());
        }
        while !end.words.is_empty() {
            match self.below.poll_send(context, &end.words) {
                Poll::Pending => break,
                Poll::Ready(Ok(len)) if len > 0 => drop(end.words.drain(..len)),
                Poll::Ready(_) => return Poll::Ready(failed()),
            }
        }
        if end.words.is_empty() && !self.session.wants_write() {
            let _ = self.below.poll_finish(context);
        }
        let mut buffer = [0; 1024];
        loop {
            match ready!(self.below.poll_receive(context, &mut buffer)) {
                Ok(len) if len > 0 => {}
                _ => return Poll::Ready(failed()),
            }
        }
    }

    /// Sends the records that are ready.
    fn send_records(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            let mut outlet = Outlet { below: &mut self.below, context };
            match self.session.write_tls(&mut outlet) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
        staging: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        loop {
            // Should sending fail, receiving says so; and what the other side said before it went
            // may say why.
            let _ = self.send_records(context);
            let is_over = self.take(buffer, &mut filled);
            if !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                let used = self.feed(&held, buffer, &mut filled);
                self.held.extend_from_slice(&held[used..]);
                let _ = self.send_records(context);
            }
            if filled > 0 || is_over || buffer.is_empty() {
                return Poll::Ready(Ok(filled));
            }
            if self.end.is_some() {
                return self.part(context).map(Err);
            }
            let len = ready!(self.below.poll_receive(context, staging))?;
            if len == 0 {
                if self.session.is_handshaking() {
                    let why = words::gone(self.below.peer_address());
                    self.fail(why, |_| Vec::new());
                    return self.part(context).map(Err);
                }
                return Poll::Ready(Ok(0));
            }
            let used = self.feed(&staging[..len], buffer, &mut filled);
            self.held.extend_from_slice(&staging[used..len]);
        }
    }
}

impl Transport for TlsStream {
    fn local_address(&self) -> SocketAddr {
        self.below.local_address()
    }

    fn peer_address(&self) -> SocketAddr {
        self.below.peer_address()
    }

    fn ends(&self) -> Option<Ends> {
        self.below.ends()
    }

    fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.session.peer_certificates()?.first().map(|certificate| certificate.to_vec())
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut staging = STAGING.take();
        staging.resize(RECEIVE, 0);
        let received = self.receive(context, buffer, &mut staging);
        STAGING.set(staging);
        received
    }

    fn poll_send(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(end) = &self.end {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, end.why.clone())));
        }
        // What was encrypted before goes first, so that a session never holds more than one piece.
        ready!(self.send_records(context))?;
        let len = self.session.writer().write(bytes)?;
        match self.send_records(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // Before the handshake is over the session takes only so much; its end makes room.
            _ if len == 0 && !bytes.is_empty() => Poll::Pending,
            _ => Poll::Ready(Ok(len)),
        }
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send_records(context)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            self.finished = true;
            self.session.send_close_notify();
        }
        ready!(self.send_records(context))?;
        self.below.poll_finish(context)
    }

    fn break_when_dropped(&mut self, breaks: bool) {
        self.below.break_when_dropped(breaks);
    }
}

/// The socket, as a session writes to it.
struct Outlet<'a, 'b> {
    below: &'a mut Stream,
    context: &'a mut Context<'b>,
}

impl Write for Outlet<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_block(self.below.poll_send(self.context, bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        or_block(self.below.poll_send_pieces(self.context, pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn or_block(sent: Poll<io::Result<usize>>) -> io::Result<usize> {
    match sent {
        Poll::Ready(sent) => sent,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}
