//! Who sends points: connections on lines and sockets for datagrams; how each is told to end, and
//! which of them makes room.
//!
//! Senders may be silent for as long as they like, as collectors are between two rounds. But half a
//! line has to be ended, and where there are as many connections as may be, the newcomer takes the
//! place of one that has said nothing for long (`crowd.rs`): these protocols have no words for "too
//! many" that a sender would read.

use crate::crowd::{Waited, home, who_makes_room};
use plinth_env::{Env, Signal};
use plinth_series::Newcomers;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long half a line may be all that comes.
const HALF_LINE: Duration = Duration::from_secs(60);
/// How often that is looked at.
pub(super) const SWEEP: Duration = Duration::from_secs(5);
/// Addresses of senders that are remembered, unless more of them are at work.
const SENDERS: usize = 1024;
/// For one of whom nothing is waited for.
const NEVER: u64 = u64::MAX;

/// Who sends points on lines and in datagrams.
#[derive(Default)]
pub(super) struct Callers {
    open: Mutex<Open>,
    /// Rung when there is none.
    emptied: Signal,
    /// How fast each address makes series.
    senders: Mutex<HashMap<IpAddr, Arc<Newcomers>>>,
}

#[derive(Default)]
struct Open {
    next: u64,
    callers: BTreeMap<u64, Arc<Caller>>,
}

/// One of them, as others see it.
pub(super) struct Caller {
    number: u64,
    address: IpAddr,
    /// It shall end.
    pub(super) stop: Signal,
    /// It shall end without waiting for the other side, or for what it sent to be saved.
    is_displaced: AtomicBool,
    /// Rung when that is so.
    displaced: Signal,
    /// Milliseconds of the clock at which a whole line came last, and at which the half line began
    /// that is there: [`NEVER`] for none.
    heard: AtomicU64,
    half_since: AtomicU64,
}

impl Caller {
    /// A whole line has come, or half of one is left, or both.
    pub(super) fn heard(&self, now: Duration, whole: bool, half: bool) {
        let now = millis(now);
        if whole {
            self.heard.store(now, Ordering::Relaxed);
        }
        let since = self.half_since.load(Ordering::Relaxed);
        let is_known = half && !whole && since != NEVER;
        if !is_known {
            self.half_since.store(if half { now } else { NEVER }, Ordering::Relaxed);
        }
    }

    /// Nothing is received of it for a moment, because it has sent too much: half a line can't be
    /// ended then. It has said nothing for all that, and may have gone.
    pub(super) fn is_held_back(&self, now: Duration) {
        let half = |since: u64| (since != NEVER).then_some(millis(now));
        let _ = self.half_since.fetch_update(Ordering::Relaxed, Ordering::Relaxed, half);
    }

    fn waited(&self) -> Option<Waited> {
        let since = self.heard.load(Ordering::Relaxed);
        (since != NEVER).then_some(Waited { number: self.number, address: self.address, since })
    }

    fn displace(&self) {
        self.is_displaced.store(true, Ordering::Relaxed);
        self.displaced.notify();
        self.stop.notify();
    }

    /// Waits until it shall end at once.
    pub(super) async fn until_displaced(&self) {
        self.displaced.wait().await;
    }

    /// Whether somebody else has its place, or it took too long for a line: then nobody waits for
    /// it.
    pub(super) fn is_displaced(&self) -> bool {
        self.is_displaced.load(Ordering::Relaxed)
    }
}

/// Of which source an address is, and what that is called.
fn source(address: IpAddr) -> (IpAddr, String) {
    match home(address) {
        IpAddr::V6(network) if !network.is_loopback() => (network.into(), format!("{network}/64")),
        address => (address, address.to_string()),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER)
}

impl Open {
    fn add(&mut self, address: IpAddr, heard: u64) -> Arc<Caller> {
        self.next += 1;
        let caller = Arc::new(Caller {
            number: self.next,
            address,
            stop: Signal::new(),
            is_displaced: AtomicBool::new(false),
            displaced: Signal::new(),
            heard: AtomicU64::new(heard),
            half_since: AtomicU64::new(NEVER),
        });
        self.callers.insert(caller.number, caller.clone());
        caller
    }
}

impl Callers {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().callers.len()
    }

    /// Waits until there is none. After [`Callers::stop_all`].
    pub(super) async fn emptied(&self) {
        while !self.lock().callers.is_empty() {
            self.emptied.wait().await;
        }
    }

    /// How many series the senders at this address make, and how fast: what all of them do counts.
    pub(super) fn newcomers(
        &self,
        env: &Env,
        address: IpAddr,
        (a_second, a_day): (u32, u64),
    ) -> Arc<Newcomers> {
        let (address, words) = source(address);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= SENDERS && !senders.contains_key(&address) {
            let now = env.now();
            senders.retain(|_, known| Arc::strong_count(known) > 1 || !known.is_rested(now));
        }
        let new = || Arc::new(Newcomers::new(env, words, a_second, a_day));
        senders.entry(address).or_insert_with(new).clone()
    }

    /// Takes a socket for datagrams in, which makes room for nobody.
    pub(super) fn enter_datagrams(&self, address: IpAddr) -> Arc<Caller> {
        self.lock().add(address, NEVER)
    }

    /// Takes a connection in. If there are `most`, one that has said nothing for long makes room.
    pub(super) fn enter(&self, address: IpAddr, now: Duration, most: usize) -> Arc<Caller> {
        let mut open = self.lock();
        let mut displaced = None;
        if open.callers.len() >= most {
            let waited: Vec<_> =
                open.callers.values().filter_map(|caller| caller.waited()).collect();
            displaced = who_makes_room(&waited).and_then(|number| open.callers.remove(&number));
        }
        let caller = open.add(address, millis(now));
        drop(open);
        if let Some(displaced) = displaced {
            displaced.displace();
        }
        caller
    }

    pub(super) fn leave(&self, caller: &Caller) {
        let mut open = self.lock();
        open.callers.remove(&caller.number);
        if open.callers.is_empty() {
            self.emptied.notify();
        }
    }

    pub(super) fn stop_all(&self) {
        self.lock().callers.values().for_each(|caller| caller.stop.notify());
    }

    /// Ends those that began a line and didn't end it.
    pub(super) fn sweep(&self, now: Duration) {
        let before = millis(now.saturating_sub(HALF_LINE));
        let is_overdue = |caller: &&Arc<Caller>| caller.half_since.load(Ordering::Relaxed) < before;
        self.lock().callers.values().filter(is_overdue).for_each(|caller| caller.displace());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn who_has_said_nothing_for_the_longest_makes_room_and_datagrams_never_do() {
        let callers = Callers::default();
        let at = Duration::from_secs;
        let datagrams = callers.enter_datagrams(HERE);
        let first = callers.enter(HERE, at(1), 3);
        let second = callers.enter(HERE, at(2), 3);
        first.heard(at(3), true, false);
        let third = callers.enter(HERE, at(4), 3);
        assert!(second.is_displaced() && !first.is_displaced() && !datagrams.is_displaced());
        assert_eq!(callers.len(), 3);
        callers.leave(&second);
        assert_eq!(callers.len(), 3, "its place was taken before");
        [&datagrams, &first, &third].into_iter().for_each(|caller| callers.leave(caller));
        assert_eq!(callers.len(), 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        for (address, of) in [
            ("10.0.0.7", "10.0.0.7"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
            ("::1", "::1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:9:9:9:9", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(source(address.parse().unwrap()).1, of);
        }
    }

    #[test]
    fn half_a_line_has_to_be_ended() {
        let callers = Callers::default();
        let at = Duration::from_secs;
        let [silent, slow, busy] = [0, 1, 2].map(|_| callers.enter(HERE, at(1), 9));
        slow.heard(at(1), false, true);
        for second in 1..200 {
            // A byte more of the same line, and a line with the half of another behind it.
            if second < 50 {
                slow.heard(at(second), false, true);
            }
            busy.heard(at(second), true, true);
            callers.sweep(at(second));
            assert_eq!(slow.is_displaced(), second > 61, "{second}");
        }
        assert!(!silent.is_displaced() && !busy.is_displaced());
    }

    /// Whoever waited for his quota was taken for one who had just said something, and kept his
    /// place though he had gone.
    #[test]
    fn who_is_held_back_may_end_his_line_later_and_has_said_nothing() {
        let callers = Callers::default();
        let at = Duration::from_secs;
        let [held_back, other] = [1, 2].map(|second| callers.enter(HERE, at(second), 2));
        held_back.heard(at(3), true, true);
        other.heard(at(4), true, false);
        for second in 4..200 {
            held_back.is_held_back(at(second));
            other.is_held_back(at(second));
            callers.sweep(at(second));
        }
        assert!(!held_back.is_displaced() && !other.is_displaced());
        callers.sweep(at(261));
        assert!(held_back.is_displaced(), "it is received, and still half");
        assert!(!other.is_displaced(), "it has none");
        callers.leave(&held_back);
        let held_back = callers.enter(HERE, at(5), 9);
        held_back.is_held_back(at(300));
        callers.enter(HERE, at(301), 2);
        assert!(other.is_displaced() && !held_back.is_displaced());
        callers.enter(HERE, at(301), 2);
        assert!(held_back.is_displaced(), "it is the one that has said nothing for longest");
    }
}
