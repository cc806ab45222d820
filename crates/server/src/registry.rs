//! The connections that are open: to count them, to end those that are silent, to stop them all.
//!
//! There are so many at most. Beyond that those make room for others that have not greeted, then
//! those that have had nothing under way for a while: their clients connect again when they have
//! (`crowd.rs` says which). Where all are busy, a few more are let in from addresses that have few.
//! An order is left in a connection's outbox, and its task carries it out.

use crate::config::Limits;
use crate::crowd::{Waited, home, who_makes_room};
use crate::memory::Memory;
use crate::outbox::{Order, Outbox};
use plinth_env::{Env, Signal};
use plinth_types::Error;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Connections beyond as many as may be, for addresses that have few of them: however many one
/// address has, an operator gets in from another one.
const SPARE: usize = 64;
/// So few.
const FEW: u32 = 4;
/// Connections among which one is chosen to make room: of those that are half open the oldest ones,
/// of the others the next ones at each time.
const LOOKED_AT: usize = 256;
/// A connection that makes room has had nothing under way for this part of the time after which
/// silence ends it.
const IDLE_SHARE: u32 = 6;

#[derive(Default)]
struct Table {
    connections: BTreeMap<u64, Arc<Outbox>>,
    /// How many of them each address has.
    addresses: HashMap<IpAddr, u32>,
    /// Those of them that haven't greeted.
    half_open: BTreeSet<u64>,
    next: u64,
    /// Behind which connection those begin that are looked at next, to find an idle one.
    looked_at: u64,
    stopping: bool,
}

impl Table {
    /// A connection that makes room for another.
    fn displaced(
        &mut self,
        newcomer: IpAddr,
        limits: &Limits,
        now: Duration,
    ) -> Option<(Arc<Outbox>, Order)> {
        let idle = |table: &mut Self| {
            Some((table.idle_displaced(newcomer, limits, now)?, Order::MakeRoom))
        };
        let half_open = self.half_open_displaced().map(|outbox| (outbox, Order::Leave));
        half_open.or_else(|| idle(self))
    }

    fn half_open_displaced(&mut self) -> Option<Arc<Outbox>> {
        let waited: Vec<_> = self
            .half_open
            .iter()
            .take(LOOKED_AT)
            .filter_map(|number| Some((*number, self.connections.get(number)?)))
            .map(|(number, outbox)| Waited { number, address: outbox.peer.ip(), since: number })
            .collect();
        let number = who_makes_room(&waited)?;
        self.half_open.remove(&number);
        self.connections.get(&number).cloned()
    }

    /// Of those that are looked at: a client's, which has greeted, that doesn't need it now, of an
    /// address that has as many as the newcomer's. Else whoever keeps all of his busy would have
    /// the places of those who ask now and then, one by one.
    fn idle_displaced(
        &mut self,
        newcomer: IpAddr,
        limits: &Limits,
        now: Duration,
    ) -> Option<Arc<Outbox>> {
        if self.connections.len() >= limits.connections + LOOKED_AT {
            // So many are about to leave.
            return None;
        }
        let count = |address| self.addresses.get(&home(address)).copied().unwrap_or(0);
        let least = count(newcomer);
        let idle_before =
            u64::try_from((now + limits.silence - limits.silence / IDLE_SHARE).as_millis());
        let idle_before = idle_before.unwrap_or(u64::MAX);
        let behind = self.connections.range(self.looked_at + 1..);
        let looked_at: Vec<_> =
            behind.chain(&self.connections).take(LOOKED_AT.min(self.connections.len())).collect();
        self.looked_at = looked_at.last().map_or(0, |(number, _)| **number);
        let waited = |(number, outbox): (&u64, &Arc<Outbox>)| {
            let (address, until) = (outbox.peer.ip(), outbox.idle_until()?);
            let may_go = until <= idle_before && count(address) >= least;
            may_go.then_some(Waited { number: *number, address, since: until })
        };
        let waited: Vec<_> = looked_at.into_iter().filter_map(waited).collect();
        let displaced = self.connections.get(&who_makes_room(&waited)?)?;
        // It goes in its next turn; until then nobody else is let in for it.
        displaced.note_idle(false);
        Some(displaced.clone())
    }

    /// Whether somebody from there is let in although there are as many connections as may be.
    fn has_room_to_spare(&self, address: IpAddr, most: usize) -> bool {
        self.connections.len() < most + SPARE
            && self.addresses.get(&home(address)).copied().unwrap_or(0) < FEW
    }
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
    /// `connection_failed`, with why, if there are as many as may be and all of them are busy, or
    /// the server is stopping.
    pub(crate) fn enter(
        &self,
        outbox: &Arc<Outbox>,
        limits: &Limits,
        now: Duration,
    ) -> Result<u64, Error> {
        let mut table = self.lock();
        if table.stopping {
            return Err(Error::connection_failed().with_detail("the server is stopping"));
        }
        let mut displaced = None;
        if table.connections.len() >= limits.connections {
            displaced = table.displaced(outbox.peer.ip(), limits, now);
            if displaced.is_none() && !table.has_room_to_spare(outbox.peer.ip(), limits.connections)
            {
                let detail = format!(
                    "the server has {} connections and takes no more",
                    table.connections.len()
                );
                return Err(Error::connection_failed().with_detail(detail));
            }
        }
        let number = table.next;
        table.next += 1;
        table.connections.insert(number, outbox.clone());
        table.half_open.insert(number);
        *table.addresses.entry(home(outbox.peer.ip())).or_default() += 1;
        drop(table);
        if let Some((displaced, order)) = displaced {
            displaced.order(order);
        }
        Ok(number)
    }

    /// The client of a connection has greeted.
    pub(crate) fn greeted(&self, number: u64) {
        self.lock().half_open.remove(&number);
    }

    /// A connection has ended.
    pub(crate) fn leave(&self, number: u64) {
        let mut table = self.lock();
        let left = table.connections.remove(&number);
        table.half_open.remove(&number);
        if let Some(outbox) = &left
            && let Entry::Occupied(mut count) = table.addresses.entry(home(outbox.peer.ip()))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
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

    /// Shows each connection to `look`. Others come and go meanwhile.
    pub(crate) fn visit(&self, mut look: impl FnMut(&Outbox)) {
        let all: Vec<_> = self.lock().connections.values().cloned().collect();
        all.iter().for_each(|outbox| look(outbox));
    }

    /// Closes those that `matches` says, because an operator asked for it; says how many.
    pub(crate) fn disconnect(&self, matches: impl Fn(u64, &Outbox) -> bool) -> usize {
        let chosen: Vec<_> = {
            let table = self.lock();
            let chosen =
                table.connections.iter().filter(|(number, outbox)| matches(**number, outbox));
            chosen.map(|(_, outbox)| outbox.clone()).collect()
        };
        let why = Error::connection_failed()
            .with_detail("an operator had the server close the connection");
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

    /// Cuts off those with whom the most is freed, as many as it takes to be rid of the excess.
    /// Those who have yet to let go from the time before are among them.
    pub(crate) fn relieve(&self, memory: &Memory) {
        let mut holders: Vec<_> = {
            let table = self.lock();
            let all = table.connections.values().map(|outbox| (outbox.frees(), outbox));
            all.filter(|(frees, _)| *frees > 0)
                .map(|(frees, outbox)| (frees, outbox.clone()))
                .collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_env::simulated::Simulation;
    use std::task::Waker;

    fn outbox(address: &str) -> Arc<Outbox> {
        Outbox::new(address.parse().unwrap(), Arc::new(Memory::new(1 << 20)))
    }

    fn is_told_to_leave(outbox: &Outbox) -> bool {
        let (order, _) = outbox.collect(&mut Vec::new(), &mut Vec::new(), Waker::noop());
        matches!(order, Order::Leave | Order::MakeRoom)
    }

    /// Greeted ones took all places, and an operator at the same address had none.
    #[test]
    fn idle_ones_make_room_and_busy_ones_do_not() {
        const IDLE: Duration = Duration::from_secs(1);
        let env = Simulation::new(1).process("server");
        let limits = Limits { connections: 300, silence: IDLE_SHARE * IDLE, ..Limits::default() };
        let registry = Registry::default();
        let enter = |address: &str, now: Duration| {
            let outbox = outbox(address);
            let number = registry.enter(&outbox, &limits, now);
            number.iter().for_each(|number| registry.greeted(*number));
            outbox.expect_within(&env, limits.silence);
            (number, outbox)
        };
        let all: Vec<_> = (0..300).map(|_| enter("10.0.0.1:1", Duration::ZERO).1).collect();
        assert_eq!(enter("10.0.0.1:2", 9 * IDLE).0.unwrap_err().code(), 1026, "all are busy");
        all.iter().skip(100).take(2).for_each(|idle| idle.note_idle(true));
        assert!(enter("10.0.0.1:2", IDLE / 2).0.is_err(), "not for long");
        // However many there are, it is found within a few.
        let mut refused = 0;
        for _ in 0..2 {
            while enter("10.0.0.1:3", IDLE).0.is_err() {
                refused += 1;
            }
        }
        assert!(refused <= 2, "{refused}");
        let gone = all.iter().map(|outbox| is_told_to_leave(outbox));
        assert_eq!(gone.enumerate().filter(|(_, is)| *is).map(|(at, _)| at).sum::<usize>(), 201);
        assert!((0..3).all(|_| enter("10.0.0.1:4", IDLE).0.is_err()), "nobody is idle any more");
        // Whoever has more gets no place of one who has less.
        let few: Vec<_> = (0..FEW).map(|_| enter("10.0.0.2:1", IDLE).1).collect();
        few.iter().for_each(|idle| idle.note_idle(true));
        assert!((0..5).all(|_| enter("10.0.0.1:4", IDLE).0.is_err()));
        assert!(few.iter().all(|outbox| !is_told_to_leave(outbox)));
        assert!((0..5).any(|_| enter("10.0.0.3:1", IDLE).0.is_ok()), "and whoever has less does");
    }

    #[test]
    fn half_open_ones_make_room_and_addresses_with_few_connections_find_some() {
        let (registry, limits) =
            (Registry::default(), Limits { connections: 4, ..Limits::default() });
        let enter = |address: &str| {
            let outbox = outbox(address);
            (registry.enter(&outbox, &limits, Duration::ZERO), outbox)
        };
        let greeted = |address: &str| {
            let (number, outbox) = enter(address);
            registry.greeted(number.clone().unwrap());
            (number.unwrap(), outbox)
        };
        let (first, _) = greeted("10.0.0.1:1");
        let (_, half_open) = enter("10.0.0.2:1");
        let others: Vec<_> = (0..2).map(|_| greeted("10.0.0.1:2")).collect();
        let (newest, _) = greeted("10.0.0.1:3");
        assert!(is_told_to_leave(&half_open));
        // Nobody is half-open: who has many is refused, who has few is not, and they don't get more
        // than there are to spare.
        assert_eq!(enter("10.0.0.1:4").0.unwrap_err().code(), 1026);
        let few: Vec<_> = (0..FEW).map(|_| greeted("10.0.0.3:1").0).collect();
        assert_eq!(enter("10.0.0.3:1").0.unwrap_err().code(), 1026);
        let mut let_in = 0;
        for host in 10..200 {
            let (number, outbox) = enter(&format!("10.0.1.{host}:1"));
            let Ok(number) = number else { continue };
            assert!(!is_told_to_leave(&outbox));
            registry.greeted(number);
            let_in += 1;
        }
        assert!((SPARE - 20..=SPARE).contains(&let_in), "{let_in}");
        [first, newest]
            .into_iter()
            .chain(few)
            .chain(others.iter().map(|(number, _)| *number))
            .for_each(|number| {
                registry.leave(number);
            });
        assert!(!registry.lock().addresses.contains_key(&IpAddr::from([10, 0, 0, 1])));
    }
}
