//! The commit queue: where clients leave their transactions and the front of the pipeline collects
//! them.
//!
//! It has one reader at a time (the holder of the batch lock) and any number of writers. What waits
//! in it is bounded by bytes; beyond the bound commits are refused at once with
//! `commit_proxy_memory_limit_exceeded`, which clients retry with a long back-off.
//!
//! Nobody who waits here knows of the others' fates, so any order is as good as that of arrival. A
//! transaction of megabytes keeps the log busy for as long as hundreds of small ones do. So large
//! ones have batches of their own, and take turns with small ones, if there are any, by bytes:
//! behind a batch of large ones as many batches of small ones go as would have kept the log busy as
//! long. Whoever has little to commit then meets large ones rarely, and few at a time.
//!
//! ```text
//!   small  s s s s      s s s s ... s s s s      s s s ...      a batch counts as 64 KiB at least
//!   large          LLLL                     LLLL                one of megabytes, or several of a megabyte together
//!                       <- as many bytes -->
//! ```
//!
//! Small ones come for as long as some wait or are on their way, and a moment longer: who commits
//! again as soon as he was answered needs that to come back. However seldom they do, twenty
//! megabytes of large ones go in a second. Where there are none, large ones go one behind the
//! other. Where there are, nobody else is held back for what waits for its turn; and large ones
//! whose clients have gone come to nothing, so that small ones are soon alone again. Their clients
//! were told that nobody knows what became of them.

use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use plinth_env::Env;
use plinth_env::reply::{Promise, Reply, Unanswered};
use plinth_env::sync::{Signal, race};
use plinth_types::{CommitReply, CommitRequest, Error, limits};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of waiting transactions beyond which new ones are refused.
const QUEUE_BYTES: usize = 256 << 20;

/// Bytes of transactions after which a batch is full.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes of large transactions that share a batch at most.
const LARGE_BATCH_BYTES: usize = 1 << 20;

/// What a batch of small transactions counts as, if it has fewer bytes: a sync takes its time
/// whatever there is to sync.
const BATCH_COUNTS_AS: usize = 64 << 10;

/// For how long small transactions are expected behind those that were there.
const EXPECTED: Duration = Duration::from_millis(10);

/// Bytes of large transactions that go in a second at least, however seldom small ones come that
/// are to have had their turn.
const LARGE_RATE: u32 = 20 << 20;

/// How many times as long large ones wait while much was overwritten lately.
const CROWDED_TURNS: u32 = 8;

/// How much longer that is at most: what a transaction has read is old after five seconds, and it
/// may not be the first that waits.
const CROWDED_MOST: Duration = Duration::from_secs(1);

/// A transaction and whoever waits for its fate.
pub(crate) struct Submitted {
    pub request: CommitRequest,
    /// Who is a member of the cluster is among what it changes: the pipeline's own.
    pub changes_members: bool,
    pub answer: Answer,
}

/// The duty to tell a client what became of its transaction. Dropped unsent, be it by a task that
/// panicked, it tells that nobody knows.
pub(crate) struct Answer(Option<To>);

/// Who waits for the fate of a transaction.
enum To {
    /// A client, who is told in FoundationDB's numbers.
    Client(Promise<CommitReply>),
    /// The pipeline, of a transaction of its own: it reacts to what happened.
    Own(Promise<CommitReply, NodeError>),
}

impl Answer {
    pub fn new(promise: Promise<CommitReply>) -> Self {
        Self(Some(To::Client(promise)))
    }

    fn own(promise: Promise<CommitReply, NodeError>) -> Self {
        Self(Some(To::Own(promise)))
    }

    pub fn send(mut self, result: NodeResult<CommitReply>) {
        self.tell(result);
    }

    /// Whether it is a client's who doesn't wait for it any more.
    fn is_given_up(&self) -> bool {
        matches!(&self.0, Some(To::Client(promise)) if promise.is_cancelled())
    }

    fn tell(&mut self, result: NodeResult<CommitReply>) {
        match self.0.take() {
            Some(To::Client(promise)) => promise.send(result.map_err(Error::from)),
            Some(To::Own(promise)) => promise.send(result),
            None => {}
        }
    }

    /// The transaction may have been committed, or not.
    pub fn unknown(self, cause: &NodeError) {
        self.send(Err(NodeError::Unknown(cause.to_string().into())));
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.0.is_some() {
            let detail = "the commit was given up on its way";
            self.tell(Err(NodeError::Unknown(detail.into())));
        }
    }
}

/// How things stand when somebody wants the next batch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Look {
    pub now: Duration,
    /// Batches are on their way, whose clients may come again.
    pub is_busy: bool,
    /// So much was overwritten lately that transactions begin more slowly, if more is.
    pub is_crowded: bool,
}

/// What the reader of the queue gets.
pub(crate) enum Work {
    /// Transactions; at least one. `is_long`: large ones, behind whose bytes those of the batch
    /// before should not have to wait for the disk.
    Batch { batch: Vec<Submitted>, is_long: bool },
    /// Nothing to commit, but time for the chores (move the window, extend the lease).
    Chores,
    /// No more will come: the database closes and the queue is empty, or the leader has resigned.
    Closed,
}

#[derive(Default)]
struct State {
    /// In order of arrival.
    small: VecDeque<Submitted>,
    /// Those that have batches of their own, in order of arrival.
    large: VecDeque<Submitted>,
    turns: Turns,
    small_bytes: usize,
    large_bytes: usize,
    /// The most bytes that have pressed since somebody asked.
    peak: usize,
    chores: bool,
    closed: bool,
    /// Why the leader has resigned, if it has.
    failed: Option<NodeError>,
}

impl State {
    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Where a transaction of this size waits, beside how many bytes.
    fn among(&mut self, bytes: usize) -> (&mut VecDeque<Submitted>, &mut usize) {
        match bytes >= limits::LARGE_TRANSACTION {
            true => (&mut self.large, &mut self.large_bytes),
            false => (&mut self.small, &mut self.small_bytes),
        }
    }

    /// Puts a transaction where it waits: behind the others, or before them.
    fn put(&mut self, submitted: Submitted, is_first: bool) {
        let bytes = submitted.request.size();
        let (waiting, waiting_bytes) = self.among(bytes);
        *waiting_bytes += bytes;
        match is_first {
            true => waiting.push_front(submitted),
            false => waiting.push_back(submitted),
        }
        self.peak = self.peak.max(self.pressing());
    }

    /// Whether one more of this size is too much.
    fn is_full_for(&self, bytes: usize) -> bool {
        !self.is_empty() && self.small_bytes + self.large_bytes + bytes > QUEUE_BYTES
    }

    /// Takes out the large transactions whose clients have gone. Their answers are the caller's to
    /// drop, without the lock.
    fn take_given_up(&mut self) -> Vec<Submitted> {
        let has_gone = |waits: &Submitted| waits.answer.is_given_up();
        if !self.large.iter().any(has_gone) {
            return Vec::new();
        }
        let (gone, waiting): (Vec<_>, Vec<_>) = self.large.drain(..).partition(has_gone);
        self.large = waiting.into();
        self.large_bytes -= gone.iter().map(|gone| gone.request.size()).sum::<usize>();
        gone
    }

    /// Bytes that wait for nothing but the log: large ones that let small ones go first don't.
    fn pressing(&self) -> usize {
        self.small_bytes + if self.turns.are_shared { 0 } else { self.large_bytes }
    }

    /// The next batch, and whether it is of large ones behind small ones. None if nothing waits
    /// that may go by now.
    fn take_batch(&mut self, look: Look) -> Option<(Vec<Submitted>, bool)> {
        let (now, small_waits) = (look.now, !self.small.is_empty());
        if !self.large.is_empty() && (self.closed || self.turns.large_may_go(look, small_waits)) {
            let (batch, bytes) = take_front(&mut self.large, LARGE_BATCH_BYTES);
            self.large_bytes -= bytes;
            return Some((batch, self.turns.large_go(now, bytes, small_waits)));
        }
        if !small_waits {
            return None;
        }
        let (batch, bytes) = take_front(&mut self.small, BATCH_BYTES);
        self.small_bytes -= bytes;
        self.turns.small_go(now, bytes);
        Some((batch, false))
    }
}

/// Takes the first of those that wait, and the next ones, up to so many bytes.
fn take_front(waiting: &mut VecDeque<Submitted>, most: usize) -> (Vec<Submitted>, usize) {
    let (mut count, mut bytes) = (0, 0);
    for submitted in waiting.iter().take(limits::BATCH_TRANSACTIONS) {
        let size = submitted.request.size();
        if count > 0 && bytes + size > most {
            break;
        }
        count += 1;
        bytes += size;
    }
    let rest = waiting.split_off(count);
    (std::mem::replace(waiting, rest).into(), bytes)
}

/// Whose turn it is, of large transactions and small ones.
#[derive(Default)]
struct Turns {
    /// Bytes of small ones that are to go before the next large one.
    owed: usize,
    /// Until when small ones are expected to come.
    expected_until: Duration,
    /// Until when a large one waits for them at most, and how long that is from the last one on.
    patient_until: Duration,
    patience: Duration,
    /// There were small ones lately, that large ones let go first.
    are_shared: bool,
    /// The last batch was a large one.
    large_was_last: bool,
}

impl Turns {
    /// Batches are on their way, whose clients may come again.
    fn note_in_flight(&mut self, now: Duration) {
        if !self.large_was_last {
            self.expected_until = now + EXPECTED;
        }
    }

    fn large_may_go(&self, look: Look, small_waits: bool) -> bool {
        let comes_small = small_waits || look.now < self.expected_until;
        let is_next = self.owed == 0 && !look.is_crowded;
        is_next || !comes_small || look.now >= self.patient_until(look)
    }

    /// Until when a large one waits at most. What it overwrites would have transactions begin more
    /// slowly while much was overwritten lately: then others have longer turns.
    fn patient_until(&self, look: Look) -> Duration {
        let longer = (self.patience * (CROWDED_TURNS - 1)).min(CROWDED_MOST);
        self.patient_until + if look.is_crowded { longer } else { Duration::ZERO }
    }

    /// When a large one may go for which it is too early now, if nothing else happens.
    fn large_goes_at(&self, look: Look) -> Duration {
        self.expected_until.min(self.patient_until(look))
    }

    /// A batch of large ones goes. True if the one before it was of small ones.
    fn large_go(&mut self, now: Duration, bytes: usize, small_waits: bool) -> bool {
        let comes_small = small_waits || now < self.expected_until;
        self.are_shared = comes_small;
        self.owed = if comes_small { bytes } else { 0 };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.patience = Duration::from_secs(1) * bytes / LARGE_RATE;
        self.patient_until = now + self.patience;
        !std::mem::replace(&mut self.large_was_last, true)
    }

    /// A batch of small ones goes.
    fn small_go(&mut self, now: Duration, bytes: usize) {
        self.owed = self.owed.saturating_sub(bytes.max(BATCH_COUNTS_AS));
        self.expected_until = now + EXPECTED;
        self.are_shared = true;
        self.large_was_last = false;
    }
}

#[derive(Default)]
pub(crate) struct CommitQueue {
    state: Mutex<State>,
    changed: Signal,
}

impl CommitQueue {
    /// Leaves a client's transaction; the reply comes when its fate is known.
    pub fn submit(&self, request: CommitRequest) -> Reply<CommitReply> {
        self.leave(request, false, Answer::new)
    }

    /// Leaves a transaction of the pipeline's own.
    pub fn submit_own(&self, request: CommitRequest) -> Reply<CommitReply, NodeError> {
        self.leave(request, false, Answer::own)
    }

    /// Leaves a transaction that changes who is a member of the cluster: the pipeline's own.
    pub fn submit_members(&self, request: CommitRequest) -> Reply<CommitReply, NodeError> {
        self.leave(request, true, Answer::own)
    }

    fn leave<E: From<NodeError> + From<Unanswered> + Send>(
        &self,
        request: CommitRequest,
        changes_members: bool,
        answer: impl FnOnce(Promise<CommitReply, E>) -> Answer,
    ) -> Reply<CommitReply, E> {
        let (promise, reply) = Promise::pair();
        let mut given_up = Vec::new();
        {
            let mut state = lock(&self.state);
            if let Some(cause) = &state.failed {
                return Reply::ready(Err(cause.clone().into()));
            }
            if state.closed {
                return Reply::ready(Err(NodeError::Closed(None).into()));
            }
            if state.is_full_for(request.size()) {
                given_up = state.take_given_up();
            }
            if state.is_full_for(request.size()) {
                let (small, large) = (state.small_bytes, state.large_bytes);
                let detail = format!(
                    "{} bytes wait to be committed, {large} of them of large transactions",
                    small + large
                );
                return Reply::ready(Err(NodeError::QueueFull(detail.into()).into()));
            }
            state.put(Submitted { request, changes_members, answer: answer(promise) }, false);
        }
        drop(given_up);
        self.changed.notify();
        reply
    }

    /// Whether the leader has resigned.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).failed.is_some()
    }

    /// Puts back, to the front, what was taken from it last.
    pub fn put_back(&self, batch: Vec<Submitted>) {
        let mut state = lock(&self.state);
        if let Some(cause) = state.failed.clone() {
            drop(state);
            return batch
                .into_iter()
                .for_each(|submitted| submitted.answer.send(Err(cause.clone())));
        }
        batch.into_iter().rev().for_each(|submitted| state.put(submitted, true));
        self.changed.notify();
    }

    /// Asks whoever reads the queue to do the chores.
    pub fn ask_for_chores(&self) {
        lock(&self.state).chores = true;
        self.changed.notify();
    }

    /// No more transactions are taken; those that wait are still handed out.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify();
    }

    /// The leader resigns: whoever waits is told why, and so is whoever comes later.
    pub fn fail(&self, cause: &NodeError) {
        let waiting = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.failed.get_or_insert_with(|| cause.clone());
            (state.small_bytes, state.large_bytes) = (0, 0);
            [std::mem::take(&mut state.small), std::mem::take(&mut state.large)]
        };
        self.changed.notify();
        waiting
            .into_iter()
            .flatten()
            .for_each(|submitted| submitted.answer.send(Err(cause.clone())));
    }

    /// How many transactions wait, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.small.len() + state.large.len(), state.small_bytes + state.large_bytes)
    }

    /// The bytes for which the log is too slow. Large transactions that let small ones go first
    /// are not among them: whoever has little to commit isn't held back for their sake.
    pub fn pressing(&self) -> usize {
        lock(&self.state).pressing()
    }

    /// The most of those since this was last asked: the queue is empty at some moment of each
    /// batch, so that a look at it now and then says little.
    pub fn take_peak(&self) -> usize {
        let mut state = lock(&self.state);
        let now = state.pressing();
        std::mem::replace(&mut state.peak, now)
    }

    /// Panics if what must hold between two calls doesn't.
    pub fn check_invariants(&self) {
        let state = lock(&self.state);
        let bytes = |waiting: &VecDeque<Submitted>| -> usize {
            waiting.iter().map(|waits| waits.request.size()).sum()
        };
        let counted = [state.small_bytes, state.large_bytes];
        assert_eq!([&state.small, &state.large].map(bytes), counted, "the bytes of what waits");
        assert!(state.failed.is_none() || state.closed, "who has resigned takes nothing more");
        assert!(state.failed.is_none() || state.is_empty(), "nor does anybody wait");
    }

    /// The next work. One caller at a time; `look` says how things stand.
    pub async fn next(&self, env: &Env, look: impl Fn() -> Look) -> Work {
        loop {
            match self.try_next(look()) {
                Ok(work) => return work,
                Err(None) => self.changed.wait().await,
                Err(Some(pause)) => drop(race(self.changed.wait(), env.sleep(pause)).await),
            }
        }
    }

    /// The next work, or how long there is none if nothing is submitted meanwhile.
    fn try_next(&self, look: Look) -> Result<Work, Option<Duration>> {
        // Dropped behind the lock: whoever is told may come back.
        let _given_up;
        let mut state = lock(&self.state);
        if look.is_busy {
            state.turns.note_in_flight(look.now);
        }
        let has_gone = |first: &Submitted| first.answer.is_given_up();
        _given_up = if state.large.front().is_some_and(has_gone) {
            state.take_given_up()
        } else {
            Vec::new()
        };
        if let Some((batch, is_long)) = state.take_batch(look) {
            assert!(!batch.is_empty(), "a batch is taken of what waits");
            if !state.is_empty() {
                self.changed.notify();
            }
            return Ok(Work::Batch { batch, is_long });
        }
        if state.is_empty() && state.closed {
            // The next worker must find the way out too.
            self.changed.notify();
            return Ok(Work::Closed);
        }
        if std::mem::take(&mut state.chores) {
            return Ok(Work::Chores);
        }
        let waits = !state.is_empty();
        assert!(!waits || state.small.is_empty(), "small transactions go at once");
        Err(waits.then(|| state.turns.large_goes_at(look).saturating_sub(look.now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::MutationType;
    use std::sync::Arc;

    /// A transaction that sets one key to so many bytes.
    fn setting(bytes: usize) -> CommitRequest {
        let mut request = CommitRequest::default();
        request.mutations.push(MutationType::Set, b"key", &vec![0; bytes]);
        request
    }

    /// The sizes of the batches that may go at this time, in kibibytes.
    fn batches(queue: &CommitQueue, now: Duration) -> Vec<Vec<usize>> {
        let mut batches = Vec::new();
        while let Ok(Work::Batch { batch, is_long }) = queue.try_next(at(now)) {
            queue.check_invariants();
            let is_large = batch[0].request.size() >= limits::LARGE_TRANSACTION;
            assert!(is_large || !is_long, "only a large one is long");
            batches.push(batch.iter().map(|one| one.request.size() >> 10).collect());
        }
        batches
    }

    fn at(now: Duration) -> Look {
        Look { now, ..Look::default() }
    }

    /// Leaves transactions of so many kibibytes.
    fn submit(queue: &CommitQueue, kibibytes: &[usize]) -> Vec<Reply<CommitReply>> {
        kibibytes.iter().map(|size| queue.submit(setting(size << 10))).collect()
    }

    /// A moment that is far from the beginning of time.
    const NOW: Duration = Duration::from_secs(100);

    /// Commits of megabytes kept all others waiting until each of them was on the disk.
    #[test]
    fn small_transactions_wait_for_one_large_one_at_most() {
        let queue = CommitQueue::default();
        let replies = submit(&queue, &[1600, 1600, 1, 2, 1700]);
        assert_eq!(queue.depth().0, 5);
        let Ok(Work::Batch { batch: first, is_long }) = queue.try_next(at(NOW)) else {
            panic!("a batch")
        };
        assert_eq!((first.len(), first[0].request.size() >> 10, is_long), (1, 1600, true));
        queue.put_back(first);
        // One that was put back is the next of its kind.
        assert_eq!(batches(&queue, NOW), [[1, 2]]);
        let later = NOW + EXPECTED;
        assert_eq!(batches(&queue, later), [[1600], [1600], [1700]]);
        let more = submit(&queue, &[1600, 1600, 3]);
        assert_eq!(batches(&queue, later + EXPECTED), [[1600], [3]]);
        drop((replies, more));
    }

    /// With one large transaction behind each batch of small ones those took ten times as long as
    /// without.
    #[test]
    fn large_transactions_have_their_share_of_the_log_and_no_more() {
        let queue = CommitQueue::default();
        let (mut now, mut replies) = (NOW, submit(&queue, &[1]));
        assert_eq!(batches(&queue, now), [[1]]);
        let mut gone = Vec::new();
        replies.extend(submit(&queue, &[5 << 10, 5 << 10, 5 << 10]));
        for _ in 0..200 {
            // Somebody commits again as soon as he was answered.
            now += Duration::from_millis(1);
            gone.extend(batches(&queue, now));
            replies.extend(submit(&queue, &[1]));
            gone.extend(batches(&queue, now));
        }
        let large: Vec<_> =
            gone.iter().enumerate().filter(|(_, batch)| batch[0] > 1).map(|(at, _)| at).collect();
        // 5 MiB are 80 batches, and what a transaction is besides makes it one more.
        assert_eq!(large, [0, 82, 164]);
        assert_eq!(gone.len(), 203);
    }

    #[test]
    fn large_transactions_wait_neither_for_nobody_nor_for_ever() {
        let queue = CommitQueue::default();
        let mut replies = submit(&queue, &[5 << 10, 5 << 10]);
        assert_eq!(batches(&queue, NOW), [[5 << 10], [5 << 10]], "nobody else is there");
        replies.extend(submit(&queue, &[1, 5 << 10, 5 << 10]));
        assert_eq!(batches(&queue, NOW), [vec![5 << 10], vec![1]]);
        // While batches are in flight their clients are expected back.
        let mut now = NOW + EXPECTED;
        let until = |told| match told {
            Err(Some(pause)) => pause,
            _ => panic!("it isn't time yet"),
        };
        assert_eq!(until(queue.try_next(Look { is_busy: true, ..at(now) })), EXPECTED);
        queue.ask_for_chores();
        assert!(matches!(queue.try_next(Look { is_busy: true, ..at(now) }), Ok(Work::Chores)));
        now += EXPECTED / 2;
        assert_eq!(until(queue.try_next(at(now))), EXPECTED / 2);
        now += EXPECTED / 2;
        assert_eq!(batches(&queue, now), [[5 << 10]]);
        // Seldom as they come, small ones hold nobody up for long.
        replies.extend(submit(&queue, &[1, 5 << 10, 5 << 10]));
        assert_eq!(batches(&queue, now), [vec![5 << 10], vec![1]]);
        let began = now;
        while batches(&queue, now).is_empty() {
            now += EXPECTED / 2;
            replies.extend(submit(&queue, &[1]));
            let Ok(Work::Batch { batch, .. }) = queue.try_next(at(now)) else {
                panic!("small ones go at once")
            };
            if batch[0].request.size() >= limits::LARGE_TRANSACTION {
                break;
            }
        }
        // 5 MiB at 20 MiB a second, and what a transaction is besides.
        assert_eq!(now - began, Duration::from_millis(255));
        // Who closes waits for nobody.
        replies.extend(submit(&queue, &[1, 5 << 10, 5 << 10]));
        queue.close();
        assert_eq!(batches(&queue, now).len(), 3);
    }

    /// What they overwrote had all starts held back.
    #[test]
    fn large_transactions_wait_longer_while_much_was_overwritten() {
        let queue = CommitQueue::default();
        let crowded = |now| Look { is_crowded: true, ..at(now) };
        let mut replies = submit(&queue, &[1, 5 << 10]);
        let (mut now, mut went) = (NOW, Vec::new());
        while went.len() < 3 {
            // Somebody commits again as soon as he was answered: bytes enough for any turn.
            if let Ok(Work::Batch { batch, .. }) = queue.try_next(crowded(now))
                && batch[0].request.size() >= limits::LARGE_TRANSACTION
            {
                went.push(now);
                replies.extend(submit(&queue, &[5 << 10]));
            }
            now += Duration::from_millis(1);
            replies.extend(submit(&queue, &[1]));
        }
        for pair in went.windows(2) {
            let waited = pair[1] - pair[0];
            let wanted = Duration::from_millis(1250)..Duration::from_millis(1260);
            assert!(wanted.contains(&waited), "{waited:?}");
        }
        // Where nobody else is they go at once.
        now += EXPECTED;
        let mut alone = Vec::new();
        while let Ok(Work::Batch { batch, .. }) = queue.try_next(crowded(now)) {
            alone.push(batch.len());
            now += EXPECTED;
        }
        assert_eq!(queue.depth(), (0, 0), "{alone:?}");
    }

    /// Starts were held back, of everybody, for the bytes of large transactions.
    #[test]
    fn large_transactions_press_nobody_while_they_let_others_go_first() {
        let queue = CommitQueue::default();
        let sizes = [9 << 10; 4];
        let mut replies = submit(&queue, &sizes);
        assert!(queue.pressing() >= 36 << 20, "nobody else is there");
        assert_eq!(batches(&queue, NOW).len(), 4);
        replies.extend(submit(&queue, &[1]));
        assert_eq!(batches(&queue, NOW), [[1]]);
        let began = submit(&queue, &sizes);
        assert!(queue.pressing() < limits::LARGE_TRANSACTION && queue.take_peak() >= 36 << 20);
        assert!(queue.take_peak() < limits::LARGE_TRANSACTION);
        drop(began);
    }

    #[test]
    fn large_transactions_of_those_who_have_gone_come_to_nothing() {
        let queue = CommitQueue::default();
        let mut replies = submit(&queue, &[2 << 10, 3 << 10, 1, 4 << 10, 5 << 10]);
        let gone = replies.remove(1);
        let told = Arc::new(Mutex::new(None));
        let listener = gone.listener().expect("it waits");
        let tell = told.clone();
        gone.on_complete(move |outcome| *lock(&tell) = Some(outcome.map_err(|why| why.code())));
        listener.give_up();
        drop(replies.pop());
        assert_eq!(*lock(&told), None, "it isn't its turn yet");
        assert_eq!(batches(&queue, NOW), [vec![2 << 10], vec![1]]);
        // Whoever left something to be done at its end is told.
        assert_eq!(batches(&queue, NOW + EXPECTED), [vec![4 << 10]]);
        assert_eq!(*lock(&told), Some(Err(1021)));
        assert_eq!(queue.depth(), (0, 0));
    }

    #[test]
    fn room_is_made_where_those_who_filled_it_have_gone() {
        let queue = CommitQueue::default();
        let mut replies = submit(&queue, &[9 << 10; 28]);
        let refused = |kibibytes| submit(&queue, &[kibibytes])[0].try_take().is_some();
        assert!(refused(9 << 10));
        drop(replies.split_off(14));
        assert!(!refused(9 << 10));
        assert_eq!(queue.depth().0, 15);
    }
}
