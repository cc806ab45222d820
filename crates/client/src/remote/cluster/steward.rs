//! The task that looks after what waits: every 50 ms, and whenever something has changed, as long
//! as anything waits, and for a second after.
//!
//! Servers are asked who leads when somebody waits for that: nobody is known to lead, or whoever
//! does has been silent. All of them are asked, so that one that was lost is noticed when it is
//! back.

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
/// The shortest time from one look to the next.
const BREATH: Duration = Duration::from_millis(5);

pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut idle = 0;
    loop {
        if cluster.closed.load(Ordering::Acquire) {
            return end(&cluster);
        }
        let is_asked = cluster.look_for_silence();
        let waiting = cluster.waiting.look();
        idle = if waiting.is_empty() && !is_asked { idle + 1 } else { 0 };
        if idle > IDLE && cluster.waiting.may_rest(|| cluster.look_for_silence()) {
            cluster.wake.wait().await;
            idle = 0;
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
