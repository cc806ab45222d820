//! Requests that take milliseconds: on a task of their own, one after the other, so that they hold
//! up nobody but each other.
//!
//! A network's thread serves hundreds of connections, and a request that it takes a millisecond to
//! carry out is a millisecond that all of them wait. Status documents, cuts of large ranges, and
//! lists of clients are made here:
//!
//! ```text
//!   waiting     connection 7: [cut, cut, cut]   connection 9: [status]   ──▶ one of each in turn ──▶ the task
//! ```
//!
//! Always: connections have turns, so who asks for much waits for himself; the task rests for as
//! long as it has worked, so that all of this together takes half a processor at most. Who asks for
//! the status now and then gets one of the moment; once ten were asked for at a time one is made a
//! second, which all who ask share. One from before an operator did something is nobody's any more.
//! To send them takes time, too: of those who ask for one after the other a thousand a second get
//! one.

use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, Signal};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number in whose name HTTP asks, which no connection has.
pub(crate) const HTTP: u64 = u64::MAX;
/// How long a status document is good for where they are asked for all the time.
const STATUS_AGE: Duration = Duration::from_secs(1);
/// Status documents that are made at once when none was asked for in a while.
const STATUS_BURST: u32 = 10;

/// What an operator has done, and what has been learnt of rights and quotas: numbers that grow with
/// each. A document of before isn't shown to who asks behind it.
pub(crate) type AsOf = [u64; 3];

/// How long the task rests at least behind a document for somebody who has had one just before.
pub(crate) const REST: Duration = Duration::from_millis(1);

/// What is to be carried out, and how long the task rests at least behind it.
struct Job {
    work: Box<dyn FnOnce() + Send>,
    rest: Duration,
}

/// What waits to be carried out.
#[derive(Default)]
pub(crate) struct Heavy {
    waiting: Mutex<Waiting>,
    /// There is something to do, or nothing will come any more.
    due: Signal,
    status: Mutex<StatusDocuments>,
}

#[derive(Default)]
struct Waiting {
    /// Jobs by connection. Whose turn it is stands first; nobody stands here without a job.
    turns: VecDeque<(u64, VecDeque<Job>)>,
    is_closed: bool,
}

impl Waiting {
    fn push(&mut self, connection: u64, job: Job) {
        match self.turns.iter_mut().find(|(number, _)| *number == connection) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.turns.push_back((connection, VecDeque::from([job]))),
        }
    }

    /// The next job, of the connection whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let (connection, mut jobs) = self.turns.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.turns.push_back((connection, jobs));
        }
        job
    }
}

impl Heavy {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn documents(&self) -> MutexGuard<'_, StatusDocuments> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether who asks for a status document now gets one of his own, as there were few lately.
    pub(crate) fn may_have_own_status(&self, now: Duration) -> bool {
        self.documents().take_own(now)
    }

    /// The status document that was made last, if that does for who gets none of his own.
    pub(crate) fn recent_status(&self, now: Duration, as_of: AsOf) -> Option<Arc<str>> {
        self.documents().recent(now, as_of)
    }

    /// The one that was begun after `asked`, if there is one.
    pub(crate) fn status_since(&self, asked: Duration) -> Option<Arc<str>> {
        let documents = self.documents();
        let last = documents.last.as_ref().filter(|last| last.began > asked)?;
        Some(last.document.clone())
    }

    /// Keeps one that was begun then, and for which that had been done, for others.
    pub(crate) fn keep_status(&self, began: Duration, as_of: AsOf, document: Arc<str>) {
        self.documents().last = Some(Made { began, as_of, document });
    }

    /// Has `job` carried out when it is the connection's turn. The reply fails with
    /// `broken_promise` if the connection is gone by then, or the server.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        connection: u64,
        job: impl FnOnce() -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        self.submit_and_rest(connection, Duration::ZERO, job)
    }

    /// The same, and the task rests for so long behind it.
    pub(crate) fn submit_and_rest<T: Send + 'static>(
        &self,
        connection: u64,
        rest: Duration,
        job: impl FnOnce() -> Reply<T> + Send + 'static,
    ) -> Reply<T> {
        let (done, reply) = promise();
        let work = Box::new(move || {
            if !done.is_cancelled() {
                job().on_complete(move |result| done.send(result));
            }
        });
        let job = Job { work, rest };
        let mut waiting = self.lock();
        if waiting.is_closed {
            drop(waiting);
            drop(job);
            return reply;
        }
        waiting.push(connection, job);
        drop(waiting);
        self.due.notify();
        reply
    }

    /// The connection has gone, and what it asked for isn't needed.
    pub(crate) fn forget(&self, connection: u64) {
        let mut waiting = self.lock();
        let gone = waiting.turns.iter().position(|(number, _)| *number == connection);
        let gone = gone.and_then(|at| waiting.turns.remove(at));
        drop(waiting);
        drop(gone);
    }

    /// Nothing more comes: the task ends once it has done what waits.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.due.notify();
    }

    /// The task.
    pub(crate) async fn run(self: Arc<Self>, env: Env) {
        loop {
            let (job, is_closed) = {
                let mut waiting = self.lock();
                (waiting.pop(), waiting.is_closed)
            };
            match job {
                Some(job) => {
                    let began = env.now();
                    (job.work)();
                    let rest = env.now().saturating_sub(began).max(job.rest);
                    if !is_closed && !rest.is_zero() {
                        env.sleep(rest).await;
                    }
                }
                None if is_closed => return,
                None => self.due.wait().await,
            }
        }
    }
}

/// A status document.
struct Made {
    began: Duration,
    as_of: AsOf,
    document: Arc<str>,
}

/// The status document that was made last, and how many may be made.
#[derive(Default)]
struct StatusDocuments {
    last: Option<Made>,
    /// How many may be made at once, and since when that is so. Each [`STATUS_AGE`] makes one more.
    left: f64,
    since: Duration,
    is_counting: bool,
}

impl StatusDocuments {
    fn take_own(&mut self, now: Duration) -> bool {
        if !std::mem::replace(&mut self.is_counting, true) {
            self.left = STATUS_BURST.into();
        } else {
            let passed = now.saturating_sub(self.since).as_secs_f64() / STATUS_AGE.as_secs_f64();
            self.left = (self.left + passed).min(STATUS_BURST.into());
        }
        self.since = now;
        let may = self.left >= 1.0;
        if may {
            self.left -= 1.0;
        }
        may
    }

    fn recent(&self, now: Duration, as_of: AsOf) -> Option<Arc<str>> {
        let last = self.last.as_ref()?;
        let does = last.as_of == as_of && now.saturating_sub(last.began) < STATUS_AGE;
        does.then(|| last.document.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_turns_however_much_one_of_them_asks_for() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Waiting::default();
        for (connection, name) in [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "p"), (3, "q")] {
            let order = order.clone();
            let work = Box::new(move || order.lock().unwrap().push(name));
            waiting.push(connection, Job { work, rest: Duration::ZERO });
        }
        while let Some(job) = waiting.pop() {
            (job.work)();
        }
        assert_eq!(*order.lock().unwrap(), ["a", "x", "p", "b", "q", "c"]);
        assert!(waiting.turns.is_empty());
    }

    #[test]
    fn what_a_connection_that_has_gone_asked_for_is_not_done() {
        let heavy = Heavy::default();
        let kept = heavy.submit(1, || Reply::ready(Ok(1)));
        let gone = heavy.submit::<()>(2, || panic!("nobody wants it"));
        heavy.forget(2);
        assert_eq!(gone.wait().unwrap_err().code(), 1100);
        (heavy.lock().pop().unwrap().work)();
        assert_eq!(kept.wait(), Ok(1));
        heavy.close();
        assert_eq!(heavy.submit(3, || Reply::ready(Ok(2))).wait().unwrap_err().code(), 1100);
    }

    #[test]
    fn documents_are_of_the_moment_unless_they_are_asked_for_all_the_time() {
        let mut documents = StatusDocuments::default();
        let mut made = 0;
        let mut ask = |millis, as_of| {
            let now = Duration::from_millis(millis);
            if documents.take_own(now) || documents.recent(now, as_of).is_none() {
                made += 1;
                documents.last = Some(Made { began: now, as_of, document: "{}".into() });
            }
            made
        };
        let seconds = 5;
        let of_a_flood = (0..1000 * seconds).map(|millis| ask(millis, [0; 3])).last();
        assert!(of_a_flood.is_some_and(|made| made <= u64::from(STATUS_BURST) + seconds));
        // What an operator has done since is in the next one, and that is everybody's.
        let before = ask(5000, [0; 3]);
        assert_eq!((ask(5001, [1, 0, 0]), ask(5002, [1, 0, 0])), (before + 1, before + 1));
        // After a while without any, they are of the moment again.
        assert_eq!((ask(60_000, [1, 0, 0]), ask(60_001, [1, 0, 0])), (before + 2, before + 3));
    }
}
