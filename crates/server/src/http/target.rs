//! Requests whose address isn't encoded, as `curl -g` sends `match[]={job="a"}`: Go's servers take
//! quotes, angle brackets and whatever isn't ASCII as they are, and hyper refuses some of them. So
//! they are escaped before it sees them, in the first line of a request's head and nowhere else.
//!
//! Where a head begins is known for as long as no request has had a body, and none has come before
//! the one before it was taken in. Behind the first of either kind every byte of a connection is
//! passed on as it is: what is made longer there could be a body, and what stands behind it would
//! be taken for a request that nobody has made.

use super::Io;
use hyper::rt::ReadBufCursor;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How many bytes are read at a time.
const PIECE: usize = 4096;

/// How many requests without a body hyper has taken in.
#[derive(Clone, Default)]
pub(super) struct Bodiless(Arc<AtomicU64>);

impl Bodiless {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that requests come from.
pub(super) struct Requests<S> {
    io: Io<S>,
    heads: Heads,
    /// Bytes that hyper had no room for yet, and how many of them it has.
    left: Vec<u8>,
    taken: usize,
}

impl<S> Requests<S> {
    /// `head` was read of it already. `bodiless` has to be told of each request without a body,
    /// before more is read.
    pub(super) fn new(stream: S, head: Vec<u8>, bodiless: Bodiless) -> Self {
        let mut heads = Heads { bodiless, ended: 0, at: At::Line { is_empty: true, blanks: 0 } };
        let left = heads.pass(&head).unwrap_or(head);
        Self { io: Io(stream), heads, left, taken: 0 }
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for Requests<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken == this.left.len() {
            let mut bytes = [0; PIECE];
            let room = cursor.remaining().min(PIECE);
            let mut buffer = ReadBuf::new(&mut bytes[..room]);
            ready!(Pin::new(&mut this.io.0).poll_read(context, &mut buffer))?;
            let Some(escaped) = this.heads.pass(buffer.filled()) else {
                cursor.put_slice(buffer.filled());
                return Poll::Ready(Ok(()));
            };
            (this.left, this.taken) = (escaped, 0);
        }
        let left = &this.left[this.taken..];
        let fits = left.len().min(cursor.remaining());
        cursor.put_slice(&left[..fits]);
        this.taken += fits;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Requests<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// Where in its requests a connection is.
struct Heads {
    bodiless: Bodiless,
    /// Heads that have passed.
    ended: u64,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// In a first line, or in the empty ones before it.
    Line { is_empty: bool, blanks: u8 },
    /// In a line behind it.
    Field { is_empty: bool },
    /// Behind the head of a request.
    Behind,
    /// Nobody knows.
    Lost,
}

impl Heads {
    /// What hyper is to see of the next bytes, if that is anything else than they are.
    fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        // Each head that has passed was one of hyper's, too, of a request that ends with it.
        if self.ended != self.bodiless.counted() {
            self.at = At::Lost;
        }
        if matches!(self.at, At::Behind) {
            self.at = At::Line { is_empty: true, blanks: 0 };
        }
        let mut escaped: Option<Vec<u8>> = None;
        for (at, byte) in bytes.iter().enumerate() {
            let is_escaped = self.step(*byte);
            if is_escaped && escaped.is_none() {
                escaped = Some(bytes[..at].to_vec());
            }
            match &mut escaped {
                Some(escaped) if is_escaped => escaped.extend(percent(*byte)),
                Some(escaped) => escaped.push(*byte),
                None => {}
            }
        }
        escaped
    }

    /// Goes on by a byte; gives whether that has to be escaped.
    fn step(&mut self, byte: u8) -> bool {
        self.at = match (self.at, byte) {
            (At::Line { is_empty: true, .. }, b'\r' | b'\n') => self.at,
            (At::Line { .. }, b'\n') => At::Field { is_empty: true },
            (At::Line { blanks, .. }, b' ') => {
                At::Line { is_empty: false, blanks: blanks.saturating_add(1) }
            }
            (At::Line { blanks, .. }, _) => At::Line { is_empty: false, blanks },
            (At::Field { is_empty: true }, b'\n') => {
                self.ended += 1;
                At::Behind
            }
            (At::Field { .. }, b'\n') => At::Field { is_empty: true },
            // What isn't at the end of a line hyper refuses.
            (At::Field { is_empty }, b'\r') => At::Field { is_empty },
            (At::Field { .. }, _) => At::Field { is_empty: false },
            // It has come before the request was taken in.
            (At::Behind | At::Lost, _) => At::Lost,
        };
        let is_target = matches!(self.at, At::Line { blanks: 1, .. });
        is_target && matches!(byte, b'"' | b'#' | b'<' | b'>' | b'`' | 0x80..)
    }
}

/// A byte as addresses have it.
fn percent(byte: u8) -> [u8; 3] {
    let digit = |of: u8| b"0123456789ABCDEF"[usize::from(of & 15)];
    [b'%', digit(byte >> 4), digit(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::Env;
    use plinth_env::simulated::Simulation;

    /// What is passed on of requests that come one after the other, each cut into pieces; beside
    /// each whether it is taken in as one without a body.
    fn passed(requests: &[(&str, bool)], cut: impl Fn() -> usize) -> String {
        let bodiless = Bodiless::default();
        let at = At::Line { is_empty: true, blanks: 0 };
        let mut heads = Heads { bodiless: bodiless.clone(), ended: 0, at };
        let mut out = Vec::new();
        for (request, has_none) in requests {
            let mut left = request.as_bytes();
            while !left.is_empty() {
                let (piece, rest) = left.split_at(cut().clamp(1, left.len()));
                out.extend(heads.pass(piece).unwrap_or_else(|| piece.to_vec()));
                left = rest;
            }
            if *has_none {
                bodiless.count();
            }
        }
        String::from_utf8(out).unwrap()
    }

    fn random() -> Env {
        Simulation::new(7).process("cuts")
    }

    const PLAIN: &str = "GET /a?match[]={job=\"é<b>\"}#x HTTP/1.1\r\nA: \"b\"\r\n\r\n";
    const ESCAPED: &str =
        "GET /a?match[]={job=%22%C3%A9%3Cb%3E%22}%23x HTTP/1.1\r\nA: \"b\"\r\n\r\n";

    #[test]
    fn the_address_of_each_request_is_escaped_and_nothing_else() {
        let env = random();
        for _ in 0..200 {
            let cut = || 1 + (env.random_u64() % 40) as usize;
            let found = passed(&[(PLAIN, true), (PLAIN, true)], cut);
            assert_eq!(found, [ESCAPED, ESCAPED].concat());
            let bare = PLAIN.replace("\r\n", "\n");
            let found = passed(&[("\r\n", false), (&bare, true), (PLAIN, true)], cut);
            assert_eq!(found, ["\r\n", &ESCAPED.replace("\r\n", "\n"), ESCAPED].concat());
        }
    }

    /// A body that looks like requests would grow, and its end be taken for one.
    #[test]
    fn a_body_and_what_comes_behind_it_are_passed_on_as_they_are() {
        let env = random();
        let posted = ["POST /a?\"=1 HTTP/1.1\r\nContent-Length: 9\r\n\r\n", PLAIN].concat();
        let expected = posted.replace("?\"", "?%22");
        for _ in 0..200 {
            let cut = || 1 + (env.random_u64() % 40) as usize;
            let found = passed(&[(PLAIN, true), (&posted, false), (PLAIN, true)], cut);
            assert_eq!(found, [ESCAPED, &expected, PLAIN].concat());
        }
    }

    #[test]
    fn what_comes_before_the_request_before_was_taken_in_is_passed_on_as_it_is() {
        let both = [PLAIN, PLAIN].concat();
        let found = passed(&[(&both, true), (PLAIN, true)], || usize::MAX);
        assert_eq!(found, [ESCAPED, PLAIN, PLAIN].concat());
    }
}
