//! Network tasks in a build without the feature `net`: there is nothing to wait for but threads.

use std::future::Future;

use super::world::RealWorld;
use super::{Precedence, Which};
use crate::task::Completion;

/// How many threads network tasks share: each has its own.
pub(crate) fn count() -> usize {
    1
}

/// Which of those threads this is: none.
pub(crate) fn number() -> Option<usize> {
    None
}

/// Each task has a thread of its own.
pub(crate) async fn give_way() {}

/// Runs a task on a thread of its own.
pub(crate) fn spawn(
    completion: Completion,
    _: (Precedence, Which),
    future: impl Future<Output = ()> + Send + 'static,
) {
    RealWorld::spawn(completion, "plinth-net", future);
}
