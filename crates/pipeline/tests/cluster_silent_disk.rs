//! A follower whose disk hangs: it says so, nobody waits for it, and it heals when the disk
//! answers.

#[path = "common/heard.rs"]
mod heard;
mod machines;

use heard::heard;
use machines::Machines;
use plinth_client::Endpoint;
use plinth_pipeline::NodeConfig;
use std::time::Duration;
use tracing::Level;

fn formed(seed: u64) -> (Machines, usize) {
    let machines = Machines::new(seed, 3, NodeConfig::default());
    let leader = machines.await_leader(|_| true);
    machines.set(leader, "before", "1").expect("a commit");
    (machines, leader)
}

/// The disk of a machine answers nothing that changes a file, or answers again.
fn silence(machines: &Machines, at: usize, is_silent: bool) {
    let dir = is_silent.then(|| "/".into());
    machines.sim.update_faults(&machines.envs[at], |plan| plan.silent = dir);
}

/// Commits by whoever leads, for so many seconds.
fn put(machines: &Machines, seconds: u64) {
    let until = machines.sim.now() + Duration::from_secs(seconds);
    while machines.sim.now() < until {
        let leader = machines.await_leader(|_| true);
        // Whoever lost its place meanwhile says so.
        let _ = machines.set(leader, "row", "1");
        machines.sim.run_for(Duration::from_millis(200));
    }
}

/// Whether a member's status and its metrics tell that its disk hangs.
fn tells(machines: &Machines, at: usize) -> (bool, bool) {
    let host = machines.host(at);
    let status = machines.sim.run_until(host.endpoint().status_json()).unwrap();
    let metrics = host.metrics_text();
    let value = |line: &str| line.strip_prefix("plinth_disk_silent_seconds ")?.parse::<f64>().ok();
    let seconds = metrics.lines().find_map(value).expect("it is measured");
    (status.contains("\"name\":\"disk_silent\""), seconds > 5.0)
}

#[test]
fn a_follower_whose_disk_hangs_says_so_and_serves_what_others_commit() {
    let (machines, leader) = formed(1);
    let silent = (leader + 1) % 3;
    let ((), log) = heard(Level::INFO, || {
        silence(&machines, silent, true);
        put(&machines, 20);
        assert_eq!(machines.await_leader(|_| true), leader, "nobody had to miss it");
        assert_eq!(tells(&machines, silent), (true, true));
        // Its clients' commits are the leader's.
        assert_eq!(machines.host(silent).endpoint().refusal(), None);
        assert_eq!(tells(&machines, leader), (false, false));
        silence(&machines, silent, false);
        put(&machines, 20);
        assert_eq!(tells(&machines, silent), (false, false));
    });
    for what in ["the disk does not answer", "the disk answers again"] {
        let told = log.iter().filter(|line| line.contains(what)).count();
        assert_eq!(told, 1, "{what}: {log:#?}");
    }
    assert_eq!(machines.host(silent).failure(), None);
}
