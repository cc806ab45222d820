//! One request for a read version may stand for many transactions: each of them is to be let in.

use plinth_client::ReadVersionReply;
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// What the last of `replies` gives, once all have come; the first error as soon as it comes.
pub(crate) fn together(
    replies: impl ExactSizeIterator<Item = Reply<ReadVersionReply>>,
) -> Reply<ReadVersionReply> {
    let (promise, reply) = promise();
    let waiting = Arc::new(Mutex::new(Waiting { missing: replies.len(), promise: Some(promise) }));
    for reply in replies {
        let waiting = waiting.clone();
        reply.on_complete(move |result| note(&waiting, result));
    }
    reply
}

struct Waiting {
    missing: usize,
    promise: Option<Promise<ReadVersionReply>>,
}

fn note(waiting: &Mutex<Waiting>, result: Result<ReadVersionReply>) {
    let promise = {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(waiting.missing > 0, "more answers than requests");
        waiting.missing -= 1;
        let is_due = waiting.missing == 0 || result.is_err();
        if is_due { waiting.promise.take() } else { None }
    };
    if let Some(promise) = promise {
        promise.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::NodeError;

    fn version(version: i64) -> Result<ReadVersionReply> {
        Ok(ReadVersionReply { version, metadata_version: None, range_locks: None })
    }

    #[test]
    fn all_are_waited_for_and_an_error_is_told_at_once() {
        let (promises, replies): (Vec<_>, Vec<_>) = (0..3).map(|_| promise()).unzip();
        let all = together(replies.into_iter());
        for (at, promise) in (0..).zip(promises) {
            assert!(!all.is_ready());
            promise.send(version(at));
        }
        assert_eq!(all.wait(), version(2));
        let (promises, replies): (Vec<_>, Vec<_>) = (0..3).map(|_| promise()).unzip();
        let all = together(replies.into_iter());
        let [one, two, three] = promises.try_into().unwrap();
        two.send(Err(NodeError::BatchHeldBack.into()));
        assert_eq!(all.wait(), Err(NodeError::BatchHeldBack.into()));
        one.send(version(1));
        three.send(version(2));
    }
}
