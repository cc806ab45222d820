//! Supervision: a task of a node that ends before the node does takes the node with it.
//!
//! A task that panicked, or returned although nobody asked it to, has left its work undone: whoever
//! waits for that work would wait for ever. So the node fails, which answers everybody who waits
//! and stops the other tasks; a server ends with it, and is started again.

use crate::failure::NodeError;
use crate::leader::Leader;
use crate::replica::Replica;
use crate::{pace, worker};
use plinth_env::Task;
use plinth_types::probe;
use std::future::Future;
use std::sync::Arc;

/// Whose tasks end with it, and not before.
pub(crate) trait Supervisor: Send + Sync + 'static {
    /// The node.
    fn replica(&self) -> &Replica;
    /// Whether its tasks are to end.
    fn is_over(&self) -> bool;
    /// The node takes no more commits.
    fn fail(&self, cause: NodeError);
}

impl Supervisor for Leader {
    fn replica(&self) -> &Replica {
        &self.replica
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn fail(&self, cause: NodeError) {
        Self::fail(self, cause);
    }
}

/// Starts a task of the node. Its early end is the node's.
pub(crate) fn spawn<S: Supervisor>(
    supervisor: &Arc<S>,
    name: &str,
    task: impl Future<Output = ()> + Send + 'static,
) -> Task {
    let watched = Watched { supervisor: supervisor.clone(), name: name.to_string() };
    supervisor.replica().env.spawn(name, async move {
        let watched = watched;
        task.await;
        if !watched.supervisor.is_over() {
            watched.failed("ended before the node did");
        }
    })
}

/// Starts the tasks of a leader: commit workers and chores.
pub(crate) fn lead(leader: &Arc<Leader>) -> Vec<Task> {
    let workers = leader.replica.config.commit_workers.max(1);
    let mut tasks: Vec<_> = (0..workers)
        .map(|n| spawn(leader, &format!("commit-{n}"), worker::run(leader.clone())))
        .collect();
    // In a cluster whoever applies entries settles.
    if leader.term.is_none() && leader.log.as_ref().is_some_and(|log| log.commits_by_itself()) {
        tasks.push(spawn(leader, "commits", worker::follow_commits(leader.clone())));
    }
    tasks.push(spawn(leader, "chores", pace::keep_time(leader.clone())));
    tasks
}

struct Watched<S: Supervisor> {
    supervisor: Arc<S>,
    name: String,
}

impl<S: Supervisor> Watched<S> {
    fn failed(&self, what: &str) {
        probe!("pipeline: a task of the node ended early");
        let detail = format!("the task {:?} of the node {what}; it takes nothing more", self.name);
        self.supervisor.fail(NodeError::Internal(detail.into()));
    }
}

impl<S: Supervisor> Drop for Watched<S> {
    fn drop(&mut self) {
        // A task that is merely dropped goes with its process (in simulation), where nobody is left
        // to be told.
        if std::thread::panicking() {
            self.failed("panicked");
        }
    }
}
