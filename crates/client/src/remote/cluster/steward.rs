//! The task that looks after what waits: every 50 ms, and whenever something has changed, as long
//! as anything waits, and for a second after.
//!
//! Servers are asked who leads when somebody waits for that: nobody is known to lead, or whoever
//! does has been silent. All of them are asked, so that one that was lost is noticed when it is
//! back.
//!
//! Whoever leads is asked every two seconds besides, and members that aren't known to be there;
//! every half a minute where nobody waited for anything lately, which is longer than a server takes
//! a connection for one in use. Members come and go while the leader stays, and a client that
//! hadn't heard of those who came would be lost with the last one that it knows. If none of them
//! answers, those may have changed while this process was not there, so its cluster file is read
//! again.

use super::super::refusal;
use super::Cluster;
use plinth_env::reply::Reply;
use plinth_env::sync::race;
use plinth_types::{Error, Located};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often what waits is looked at.
const TICK: Duration = Duration::from_millis(50);
/// After so many looks at nothing it sleeps until something waits: to wake it for each operation of
/// a client that does one at a time would cost more than the operation.
const IDLE: u32 = 20;
/// How often it is asked who is a member: while something waits, or did lately, and at rest.
const REFRESH: Duration = Duration::from_secs(2);
const LATELY: Duration = Duration::from_secs(10);
const AT_REST: Duration = Duration::from_secs(30);
/// The shortest time from one look to the next.
const BREATH: Duration = Duration::from_millis(5);

pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut idle = 0;
    let mut refreshed = cluster.env.now();
    // When something waited last, if ever: before that nobody is asked for anything.
    let mut used: Option<Duration> = None;
    loop {
        if cluster.closed.load(Ordering::Acquire) {
            return end(&cluster);
        }
        let now = cluster.env.now();
        let next = used.map(|used| {
            refreshed + if now.saturating_sub(used) < LATELY { REFRESH } else { AT_REST }
        });
        if next.is_some_and(|next| now >= next) {
            refreshed = now;
            refresh(&cluster);
        }
        let is_asked = cluster.look_for_silence();
        let waiting = cluster.waiting.look();
        if waiting.is_empty() && !is_asked {
            idle += 1;
        } else {
            (idle, used) = (0, Some(now));
        }
        if idle > IDLE && cluster.waiting.may_rest(|| cluster.look_for_silence()) {
            let rest = next.map_or(AT_REST, |next| next.saturating_sub(now));
            race(cluster.wake.wait(), cluster.env.sleep(rest)).await;
            // What was asked for meanwhile may have been answered, too.
            if cluster.waiting.is_watched() {
                (idle, used) = (0, Some(cluster.env.now()));
            }
            continue;
        }
        if waiting.iter().any(|op| op.wants_leader(&cluster)) {
            (0..cluster.servers().count()).for_each(|at| locate(&cluster, at));
        }
        for op in waiting {
            op.look(&cluster);
        }
        cluster.env.sleep(BREATH).await;
        race(cluster.wake.wait(), cluster.env.sleep(TICK - BREATH)).await;
    }
}

/// Asks who is a member: whoever leads, those who aren't known to be there, and all of them if
/// nobody is known to lead; and if none of them is there, the cluster file.
fn refresh(cluster: &Arc<Cluster>) {
    // One that was removed while nothing was asked of it isn't known to be lost.
    let is_any_up = cluster.servers().any(|server| server.is_up() && cluster.is_member(server));
    if !is_any_up {
        cluster.read_file_again();
    }
    let leader = cluster.leader().at.filter(|at| cluster.server(*at).is_up());
    for at in 0..cluster.servers().count() {
        let server = cluster.server(at);
        let is_wanted = !is_any_up || cluster.is_member(server);
        if Some(at) == leader || is_wanted && (leader.is_none() || !server.is_up()) {
            locate(cluster, at);
        }
    }
}

/// Asks a server who leads, unless it owes an answer to that.
fn locate(cluster: &Arc<Cluster>, at: usize) {
    let server = cluster.server(at);
    if server.asked.swap(true, Ordering::Relaxed) {
        return;
    }
    let reply: Reply<Located> = server.endpoint().locate();
    let cluster = Arc::downgrade(cluster);
    reply.on_complete(move |located| {
        let Some(cluster) = cluster.upgrade() else { return };
        let server = cluster.server(at);
        server.asked.store(false, Ordering::Relaxed);
        match located {
            Ok(located) => {
                server.is_there();
                cluster.note(at, &located);
            }
            // A server from before there were clusters leads itself.
            Err(error) if error == Error::unsupported_operation() => {
                server.is_there();
                let located =
                    Located { node: u64::MAX, leader: Some(u64::MAX), ..Located::default() };
                cluster.note(at, &located);
            }
            Err(error) => {
                let is_final = refusal::is_final(&error);
                server.lost(is_final.then_some(&error));
            }
        }
        cluster.wake.notify();
    });
}

/// Tells all who wait that nobody will answer.
fn end(cluster: &Cluster) {
    cluster.waiting.look().into_iter().for_each(|op| op.fail(&Error::broken_promise()));
}
