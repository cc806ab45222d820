//! What a connection holds from one turn to the next: given back where it can be, counted, and how
//! it ends if that is too much.
//!
//! Always: the server's memory counts what was held at the end of the last turn, if that is more
//! than a little.

use super::watches::Watches;
use super::{Connection, Gone, LINGER, Phase, RECEIVE};
use crate::counters::Figures;
use crate::memory::{Charge, UNCOUNTED};
use plinth_env::Reply;
use plinth_env::reply::Listener;
use plinth_proto::frame;
use plinth_proto::hello::MAGIC;
use plinth_proto::request::VALUES_BYTES;
use plinth_types::{CommitReply, Error, limits};

/// Bytes of a hello or a welcome before its content, and where the content's length stands.
const GREETING_HEAD: usize = 16;

/// More output that the client doesn't take than replies that go on in another one leave there: it
/// was asked for by a version of the protocol that has none.
const MOST_UNTAKEN: usize = 2 * VALUES_BYTES;

/// What a connection has of the server's memory.
#[derive(Default)]
pub(super) struct Holds {
    /// What the requests are charged with whose answers are yet to come.
    pub(super) in_flight: Charge,
    /// Whether all connections together hold so much that each has to make do with less.
    pub(super) is_tight: bool,
    /// How much of what it holds the server's memory counts.
    pub(super) accounted: usize,
    /// The large commits under way, to be given up when the connection goes.
    large_commits: Vec<Listener<CommitReply>>,
}

impl Holds {
    /// A commit of so many bytes is under way. Nobody is told of it once the connection has gone:
    /// a large one that waits then is better not carried out, for those who are still there.
    pub(super) fn note_commit(&mut self, answer: &Reply<CommitReply>, bytes: usize) {
        if bytes >= limits::LARGE_TRANSACTION
            && let Some(listener) = answer.listener()
        {
            self.large_commits.retain(Listener::is_waiting);
            self.large_commits.push(listener);
        }
    }

    /// The connection has gone, or gets no answers any more.
    pub(super) fn give_up_commits(&mut self) {
        self.large_commits.drain(..).for_each(|commit| commit.give_up());
    }
}

impl Connection {
    /// Brings the accounts up to date at the end of a turn. Says whether the connection was cut
    /// off, and has last words to send.
    ///
    /// # Errors
    /// If it was cut off without any.
    pub(super) fn settle(&mut self) -> Result<bool, Gone> {
        let counted = std::mem::take(&mut self.turn.counted);
        if (counted.bytes_in > 0 || counted.bytes_out > 0) && self.phase != Phase::Lingering {
            self.outbox.expect_within(&self.shared.env, self.patience());
        }
        if counted != Figures::default() {
            self.shared.doors.counters.add(&counted);
        }
        trim(&mut self.input);
        if !self.output.is_empty() {
            trim(&mut self.output);
        }
        let grew = self.account();
        self.outbox.note_idle(self.is_idle());
        let memory = &self.shared.memory;
        if !grew || !memory.is_short() {
            return Ok(false);
        }
        // Were it left to its next turn, others could have as much built meanwhile.
        if self.output.len() - self.sent > MOST_UNTAKEN {
            let cut_off = self.cut_off(0);
            self.account();
            return cut_off.map(|()| true);
        }
        if memory.is_cut_due(self.shared.env.now()) {
            self.shared.connections.relieve(memory);
        }
        Ok(false)
    }

    /// Whether nothing would be lost with it but the connection: nothing is under way, and nothing
    /// watched.
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Open
            && self.holds.in_flight == Charge::default()
            && self.watches.len() == 0
            && (self.input.is_empty() && self.output.is_empty())
            && !self.access.dues.waits()
    }

    /// Tells the server's memory what the connection holds; says whether that is more than before.
    pub(super) fn account(&mut self) -> bool {
        let (requests, frees) = (self.holds.in_flight.request, self.frees());
        // Cutting one off that has left would free nothing sooner.
        let is_there = self.phase != Phase::Left;
        self.outbox.note_holds(requests, if is_there { frees } else { 0 });
        let holds = if requests + frees > UNCOUNTED { requests + frees } else { 0 };
        let before = std::mem::replace(&mut self.holds.accounted, holds);
        self.shared.memory.change(before, holds);
        holds > before
    }

    /// Nobody is there any more who could take anything: gives back what is held but watches.
    pub(super) fn let_go(&mut self) {
        self.outbox.close(std::mem::take(&mut self.holds.in_flight));
        self.holds.give_up_commits();
        self.shared.turns.heavy.forget(self.number);
        self.access.dues.give_up();
        self.access.dues.count_no_more();
        self.input = Vec::new();
        (self.output, self.sent) = (Vec::new(), 0);
    }

    /// Bytes that would be free if the connection were cut off. An empty output is the thread's.
    fn frees(&self) -> usize {
        let output = if self.output.is_empty() { 0 } else { self.output.capacity() };
        self.input.capacity() + output + self.watches.bytes() + self.access.dues.bytes()
    }

    /// Ends the connection because memory is short: with a word, if what the client has begun to
    /// take leaves room for it. So many bytes of answers have been thrown away already.
    ///
    /// # Errors
    /// If it doesn't.
    pub(super) fn cut_off(&mut self, answers: usize) -> Result<(), Gone> {
        let (requests, frees) = (self.holds.in_flight.request, self.frees() + answers);
        let all = self.shared.memory.held();
        self.shared.doors.bursts.cut_off(
            self.outbox.peer,
            self.outbox.name(),
            [requests, frees, all],
        );
        self.turn.counted.cut_off += 1;
        self.outbox.close(std::mem::take(&mut self.holds.in_flight));
        self.holds.give_up_commits();
        self.input = Vec::new();
        self.watches = Watches::default();
        self.access.dues.give_up();
        self.forget_unsent();
        if self.output.len() - self.sent > UNCOUNTED {
            return Err(Gone);
        }
        self.outbox.expect_within(&self.shared.env, LINGER);
        let why = format!(
            "the server is short of memory, and cuts off those who hold the most: here requests of {requests} bytes under \
             way, and {frees} bytes of half requests, watches, and answers that weren't taken"
        );
        self.end_because(&Error::connection_failed().with_detail(why));
        Ok(())
    }

    /// Throws away what has not been sent, but for the rest of a message of which a part has.
    fn forget_unsent(&mut self) {
        let mut end = 0;
        while end < self.sent {
            end += message_len(&self.output[end..]);
        }
        self.output.truncate(end);
        trim(&mut self.output);
    }
}

/// How long the message is that `bytes`, which are ours, begin with.
fn message_len(bytes: &[u8]) -> usize {
    if !bytes.starts_with(&MAGIC) {
        return frame::wanted(bytes);
    }
    let len = bytes.get(8..12).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    GREETING_HEAD + len as usize
}

/// Gives back room that is not needed. A buffer that grows has twice what it needs, and that is let
/// be.
fn trim(buffer: &mut Vec<u8>) {
    if buffer.capacity() > 2 * buffer.len() + RECEIVE {
        buffer.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_proto::{Request, Welcome};

    #[test]
    fn messages_are_as_long_as_they_are() {
        let mut out = Vec::new();
        Welcome::refuse(Error::timed_out().with_detail("why")).encode(&mut out);
        let welcome = out.len();
        Request::Status.encode(&mut out, 3);
        let status = out.len();
        plinth_proto::reply::put_get_key(&mut out, 4, b"key");
        assert_eq!(message_len(&out), welcome);
        assert_eq!(message_len(&out[welcome..]), status - welcome);
        assert_eq!(message_len(&out[status..]), out.len() - status);
    }
}
