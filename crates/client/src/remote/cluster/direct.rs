//! What is asked of the server at hand directly, with nothing to look after it: see
//! [`fallback`](super::super::fallback).
//!
//! Always: the steward doesn't sleep while such a request waits.

use super::super::RemoteEndpoint;
use super::super::fallback::{Fallback, Orphan, Waiting, Waits, by_frame, by_request};
use super::super::slots::Answer;
use super::super::token::Token;
use super::op::{Ask, Op, SILENCE, Whom};
use super::{Cluster, thread_number};
use plinth_env::reply::{Listener, Promise, promise};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

impl Cluster {
    /// Where what any server can answer is left, unless this is the moment to see whether another
    /// one is better; [`Cluster::watches`] is said after.
    #[inline]
    pub(in super::super) fn at_hand(&self) -> Option<&RemoteEndpoint> {
        let latency = |at: usize| {
            let server = self.servers.get(at)?.get()?;
            server.is_up().then(|| server.latency_us())
        };
        let at = self.choice.at_once(thread_number(&self.env), latency)?;
        Some(self.server(at).endpoint())
    }

    /// Where what the leader has to answer is left, if it is known and there;
    /// [`Cluster::watches`] is said after.
    #[inline]
    pub(in super::super) fn leading(&self) -> Option<&RemoteEndpoint> {
        let at = self.choose(Whom::Leader, 0)?;
        Some(self.server(at).endpoint())
    }

    /// Something was left with a link: the steward looks after it.
    #[inline]
    pub(in super::super) fn watches(&self) {
        if self.waiting.is_to_be_watched() {
            self.wake.notify();
        }
    }

    /// Has others asked for what was left with servers that are silent. Says whether anything waits
    /// that was left with one.
    pub(super) fn look_for_silence(&self) -> bool {
        let now = self.env.now();
        let links = self.servers().flat_map(|server| server.endpoint().core.links.iter());
        links.fold(false, |waits, link| link.look_for_silence(now, SILENCE) | waits)
    }
}

/// All but the server at a place.
pub(super) struct Rest {
    cluster: Weak<Cluster>,
    but: usize,
}

impl Rest {
    pub(super) fn new(cluster: Weak<Cluster>, but: usize) -> Self {
        Self { cluster, but }
    }
}

impl Fallback for Rest {
    fn take(&self, orphan: Orphan) {
        // Without a cluster nobody waits.
        let Some(cluster) = self.cluster.upgrade() else { return };
        let Orphan { waits, frame, token, is_silent } = orphan;
        let first = First { cluster, at: self.but, is_silent, frame, token };
        match waits {
            Waits::Versions(mut waiting, reply, wanted) => {
                let (promise, answer) = promise();
                taken_back_with(&mut waiting, answer.listener());
                answer.on_complete(move |answer| {
                    waiting.into_iter().for_each(|promise| promise.send(answer.clone()));
                });
                first.ask_again(Whom::Leader, Box::new(by_request(wanted)), (promise, reply));
            }
            Waits::Values(waiting, count) => {
                first.ask_others(waiting, move |promise| Answer::Values(promise, count));
            }
            Waits::Newest(waiting, count) => {
                first.ask_others(waiting, move |promise| Answer::Newest(promise, count));
            }
            Waits::Key(waiting) => first.ask_others(waiting, Answer::Key),
            Waits::Range(waiting) => first.ask_others(waiting, Answer::Range),
            Waits::Number(waiting, kind) => {
                first.ask_others(waiting, move |promise| Answer::Number(promise, kind));
            }
            Waits::Keys(waiting) => first.ask_others(waiting, Answer::Keys),
        }
    }

    fn has_answered(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            let server = cluster.server(self.but);
            if !server.is_up() {
                server.is_there();
            }
        }
    }

    fn watches(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.watches();
        }
    }
}

/// Has the answer that these share taken back once all of them have given up.
fn taken_back_with<T: Send + 'static>(waiting: &mut [Promise<T>], answer: Option<Listener<T>>) {
    let left = Arc::new((AtomicUsize::new(waiting.len()), Mutex::new(answer)));
    for promise in waiting {
        let left = left.clone();
        promise.on_cancel(move || {
            if left.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                let answer = left.1.lock().unwrap_or_else(PoisonError::into_inner).take();
                answer.into_iter().for_each(Listener::cancel);
            }
        });
    }
}

/// The server that was asked first, and what it was asked.
struct First {
    cluster: Arc<Cluster>,
    at: usize,
    is_silent: bool,
    frame: Vec<u8>,
    token: Option<Token>,
}

impl First {
    fn ask_others<T: Send + 'static>(
        mut self,
        waiting: Waiting<T>,
        answer: impl Fn(Promise<T>) -> Answer + Send + Sync + 'static,
    ) {
        let ask = by_frame(std::mem::take(&mut self.frame), self.token.take(), answer);
        self.ask_again(Whom::Any, Box::new(ask), waiting);
    }

    fn ask_again<T: Send + 'static>(self, whom: Whom, ask: Ask<T>, waiting: Waiting<T>) {
        let now = self.cluster.env.now();
        let asked = if self.is_silent { now.saturating_sub(SILENCE) } else { now };
        Op::take_over(&self.cluster, (whom, ask), (self.at, asked), waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::RemoteOptions;
    use super::super::super::cluster_file::ClusterFile;
    use super::super::super::fallback::Fallback;
    use super::super::super::identity::Identity;
    use super::*;
    use plinth_env::Env;

    #[test]
    fn who_answers_anything_is_there() {
        let env = Env::real();
        let file = ClusterFile::parse("a:b@127.0.0.1:1,127.0.0.1:2").unwrap();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let cluster = Cluster::connect(&env, &file, &options, &Arc::new(Identity::new(&file)));
        let rest = Rest::new(Arc::downgrade(&cluster), 1);
        assert!(!cluster.server(1).is_up());
        rest.has_answered();
        assert!(cluster.server(1).is_up() && !cluster.server(0).is_up());
        cluster.close();
    }

    #[test]
    fn an_answer_is_taken_back_once_all_who_share_it_have_given_up() {
        for already in 0..=3 {
            let (asked, answer) = promise::<()>();
            let (mut waiting, mut replies): (Vec<_>, Vec<_>) =
                (0..3).map(|_| promise::<()>()).unzip();
            replies.drain(..already);
            taken_back_with(&mut waiting, answer.listener());
            answer.on_complete(drop);
            while let Some(reply) = replies.pop() {
                assert!(!asked.is_cancelled());
                drop(reply);
            }
            assert!(asked.is_cancelled(), "{already}");
        }
    }
}
