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
//! long as it has worked, so that all of this together takes half a processor at most. Status
//! documents are made twenty times a second when they are asked for more often, and those who ask
//! share them. To send them takes time, too: of those who ask for one after the other a thousand a
//! second get one.

use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, Signal};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number in whose name HTTP asks, which no connection has.
pub(crate) const HTTP: u64 = u64::MAX;
/// How long a status document is good for where they are asked for all the time: about a hundredth
/// of a processor makes them.
const STATUS_AGE: Duration = Duration::from_millis(50);
/// Status documents that are made at once when none was asked for in a while.
const STATUS_BURST: u32 = 10;

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

    /// The status document that was made last, if that has to do for who asks now.
    pub(crate) fn shared_status(&self, now: Duration) -> Option<Arc<str>> {
        self.documents().shared(now)
    }

    /// The one that was begun after `asked`, if there is one.
    pub(crate) fn status_since(&self, asked: Duration) -> Option<Arc<str>> {
        let documents = self.documents();
        let (_, document) = documents.last.as_ref().filter(|(made, _)| *made > asked)?;
        Some(document.clone())
    }

    /// Keeps one that was begun then, for others.
    pub(crate) fn keep_status(&self, began: Duration, document: Arc<str>) {
        self.documents().last = Some((began, document));
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

/// The status document that was made last.
#[derive(Default)]
struct StatusDocuments {
    last: Option<(Duration, Arc<str>)>,
    /// How many may be made at once, and since when that is so. Each [`STATUS_AGE`] makes one more.
    left: f64,
    since: Duration,
    is_counting: bool,
}

impl StatusDocuments {
    /// The last document, if that has to do.
    fn shared(&mut self, now: Duration) -> Option<Arc<str>> {
        if !std::mem::replace(&mut self.is_counting, true) {
            self.left = STATUS_BURST.into();
        } else {
            let passed = now.saturating_sub(self.since).as_secs_f64() / STATUS_AGE.as_secs_f64();
            self.left = (self.left + passed).min(STATUS_BURST.into());
        }
        self.since = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return None;
        }
        let (_, document) =
            self.last.as_ref().filter(|(made, _)| now.saturating_sub(*made) < STATUS_AGE)?;
        Some(document.clone())
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
        for millis in 0..5000 {
            let now = Duration::from_millis(millis);
            match documents.shared(now) {
                Some(_) => {}
                None => {
                    made += 1;
                    documents.last = Some((now, "{}".into()));
                }
            }
        }
        assert_eq!(made, STATUS_BURST + 99);
        // After a while without any, they are of the moment again.
        assert!(documents.shared(Duration::from_secs(60)).is_none());
    }
}
