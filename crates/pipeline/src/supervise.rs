//! Supervision: a task of a node that ends before the node does takes the node with it.
//!
//! A task that panicked, or returned although nobody asked it to, has left its work undone: whoever waits for that work
//! would wait for ever. So the node fails, which answers everybody who waits and stops the other tasks;
//! a server ends with it, and is started again.

use crate::leader::Leader;
use plinth_env::Task;
use plinth_types::{Error, probe};
use std::future::Future;
use std::sync::Arc;

/// Starts a task of the node. Its early end is the node's.
pub(crate) fn spawn(
    leader: &Arc<Leader>,
    name: &str,
    task: impl Future<Output = ()> + Send + 'static,
) -> Task {
    let watched = Watched { leader: leader.clone(), name: name.to_string() };
    leader.replica.env.spawn(name, async move {
        let watched = watched;
        task.await;
        if !watched.leader.replica.health.is_over() {
            watched.failed("ended before the node did");
        }
    })
}

struct Watched {
    leader: Arc<Leader>,
    name: String,
}

impl Watched {
    fn failed(&self, what: &str) {
        probe!("pipeline: a task of the node ended early");
        let detail = format!("the task {:?} of the node {what}; it takes nothing more", self.name);
        self.leader.fail(Error::internal_error().with_detail(detail));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A task that is merely dropped goes with its process (in simulation), where nobody is left to be told.
        if std::thread::panicking() {
            self.failed("panicked");
        }
    }
}
