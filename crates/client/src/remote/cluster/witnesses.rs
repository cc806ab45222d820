//! Who is asked whether a server leads: as few others as make a majority with it.
//!
//! Those that the thread asks anyhow come first, since what is asked of one server travels
//! together; then those that answer soonest. Whoever was silent, or said otherwise, is passed over
//! for a second.

use super::super::counting::Witnesses;
use super::Cluster;
use plinth_env::reply::Reply;
use plinth_types::Standing;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// For how long who didn't agree isn't asked again.
const PASSED_OVER: Duration = Duration::from_secs(1);

/// The servers beside the one at a place.
pub(super) struct Others {
    cluster: Weak<Cluster>,
    beside: usize,
}

impl Others {
    pub(super) fn new(cluster: Weak<Cluster>, beside: usize) -> Self {
        Self { cluster, beside }
    }
}

impl Witnesses for Others {
    fn ask(&self) -> Option<Vec<(usize, Reply<Standing>)>> {
        let cluster = self.cluster.upgrade()?;
        let now = cluster.env.now();
        let at_hand = cluster.choice.at_hand(super::thread_number(&cluster.env));
        let mut others: Vec<_> = cluster
            .servers()
            .enumerate()
            .filter(|(at, it)| *at != self.beside && it.is_up() && !it.is_passed_over(now))
            .map(|(at, it)| ((at != at_hand, it.latency_us().unwrap_or(u64::MAX)), at))
            .collect();
        let needed = cluster.voters.load(Ordering::Relaxed) / 2;
        if others.len() < needed || needed == 0 {
            return None;
        }
        others.sort_unstable();
        others.truncate(needed);
        let ask = |(_, at)| (at, cluster.server(at).endpoint().core.standing());
        Some(others.into_iter().map(ask).collect())
    }

    fn voters_are(&self, count: usize) {
        if let Some(cluster) = self.cluster.upgrade()
            && cluster.voters.load(Ordering::Relaxed) != count
        {
            cluster.voters.store(count, Ordering::Relaxed);
        }
    }

    fn are_others(&self, place: usize) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.server(place).pass_over(cluster.env.now() + PASSED_OVER);
        }
    }
}
