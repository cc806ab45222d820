//! Network tasks in a build without the feature `net`: there is nothing to wait for but threads.

use std::future::Future;

use super::world::RealWorld;
use crate::task::Completion;

/// How many threads network tasks share: each has its own.
pub(crate) fn count() -> usize {
    1
}

/// Each task has a thread of its own.
pub(crate) async fn give_way() {}

/// Which set of reactors a task is for, where there are some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Set {
    /// Tasks whose turns are short.
    First,
    /// Those whose turns may be long.
    Behind,
}

/// Runs a task on a thread of its own.
pub(crate) fn spawn(
    completion: Completion,
    _: (Set, usize),
    future: impl Future<Output = ()> + Send + 'static,
) {
    RealWorld::spawn(completion, "plinth-net", future);
}
