//! The connections that are open: to count them, to end those that are silent, to stop them all.

use crate::config::Limits;
use crate::memory::Memory;
use crate::outbox::{Order, Outbox};
use plinth_env::{Env, Signal};
use plinth_types::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Table {
    connections: BTreeMap<u64, Arc<Outbox>>,
    next: u64,
    stopping: bool,
}

/// All connections of a server.
#[derive(Default)]
pub(crate) struct Registry {
    table: Mutex<Table>,
    /// Rung when the last connection has gone while stopping.
    empty: Signal,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in; gives its number.
    ///
    /// # Errors
    /// `connection_failed`, with why, if there are as many as may be, or the server is stopping.
    pub(crate) fn enter(&self, outbox: &Arc<Outbox>, limits: &Limits) -> Result<u64, Error> {
        let mut table = self.lock();
        if table.stopping {
            return Err(Error::connection_failed().with_detail("the server is stopping"));
        }
        if table.connections.len() >= limits.connections {
            let detail = format!("the server has {} connections and takes no more", limits.connections);
            return Err(Error::connection_failed().with_detail(detail));
        }
        let number = table.next;
        table.next += 1;
        table.connections.insert(number, outbox.clone());
        Ok(number)
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, number: u64) {
        let mut table = self.lock();
        let left = table.connections.remove(&number);
        let is_last = table.connections.is_empty() && table.stopping;
        drop(table);
        drop(left);
        if is_last {
            self.empty.notify();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Shows each connection to `look`, which must be quick: meanwhile none comes or goes.
    pub(crate) fn visit(&self, mut look: impl FnMut(&Outbox)) {
        self.lock().connections.values().for_each(|outbox| look(outbox));
    }

    /// Closes those that `matches` says, because an operator asked for it; says how many.
    pub(crate) fn disconnect(&self, matches: impl Fn(u64, &Outbox) -> bool) -> usize {
        let chosen: Vec<_> = {
            let table = self.lock();
            let chosen = table.connections.iter().filter(|(number, outbox)| matches(**number, outbox));
            chosen.map(|(_, outbox)| outbox.clone()).collect()
        };
        let why = Error::connection_failed().with_detail("an operator had the server close the connection");
        chosen.iter().for_each(|outbox| outbox.order(Order::Close(why.clone())));
        chosen.len()
    }

    /// Closes those that have been silent for too long.
    pub(crate) fn sweep(&self, env: &Env) {
        let now = env.now();
        let overdue: Vec<_> = {
            let table = self.lock();
            table.connections.values().filter(|outbox| outbox.is_overdue(now)).cloned().collect()
        };
        for outbox in overdue {
            let detail = format!("{} was silent, or took no answers, for too long", outbox.peer);
            outbox.order(Order::Close(Error::timed_out().with_detail(detail)));
        }
    }

    /// Cuts off those with whom the most is freed, as many as it takes to be rid of the excess. Those who have yet to let go from the time
    /// before are among them.
    pub(crate) fn relieve(&self, memory: &Memory) {
        let mut holders: Vec<_> = {
            let table = self.lock();
            let all = table.connections.values().map(|outbox| (outbox.frees(), outbox));
            all.filter(|(frees, _)| *frees > 0).map(|(frees, outbox)| (frees, outbox.clone())).collect()
        };
        holders.sort_by_key(|(frees, _)| std::cmp::Reverse(*frees));
        let mut excess = memory.excess();
        for (frees, outbox) in holders {
            if excess == 0 {
                return;
            }
            excess = excess.saturating_sub(frees);
            outbox.order(Order::CutOff { answers: 0 });
        }
    }

    /// Lets no more connections in and has those that are there finish.
    pub(crate) fn finish_all(&self) {
        self.order_all(&Order::Finish);
    }

    /// Closes what is left.
    pub(crate) fn close_all(&self) {
        let why = Error::connection_failed().with_detail("the server is stopping");
        self.order_all(&Order::Close(why));
    }

    fn order_all(&self, order: &Order) {
        let all: Vec<_> = {
            let mut table = self.lock();
            table.stopping = true;
            if table.connections.is_empty() {
                self.empty.notify();
            }
            table.connections.values().cloned().collect()
        };
        all.into_iter().for_each(|outbox| outbox.order(order.clone()));
    }

    /// Waits until no connection is left. After [`Registry::finish_all`].
    pub(crate) async fn emptied(&self) {
        self.empty.wait().await;
    }
}
