//! A member whose directory is an older copy of itself takes no part: it doesn't know what it has
//! promised since.
//!
//! It went on as if nothing had happened: whoever led believed it to have what it had acknowledged,
//! and sent it no more of that; it voted all the while, for nodes that lacked what it had helped to
//! commit. So it did where the one to whom it had acknowledged that was gone, too.
//!
//! Where that was the only one who could have told, the others go on without what was acknowledged,
//! and it is the one that comes back who finds out.

mod machines;

use machines::Machines;
use plinth_pipeline::NodeConfig;
use std::time::Duration;

#[test]
fn a_member_that_is_restored_from_an_older_copy_takes_no_part_and_says_why() {
    for seed in 0..6 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        let leader = machines.await_leader(|_| true);
        machines.set(leader, "old", "1").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        let restored = (leader + 1) % 3;
        machines.crash(restored);
        let older = machines.files(restored);
        machines.open(restored).expect("it opens");
        // The third is away: what is acknowledged now is on the two alone.
        machines.isolate((leader + 2) % 3);
        for n in 0..20 {
            machines.set(leader, &format!("key{n}"), "new").expect("a commit");
        }
        machines.crash(restored);
        machines.put_files(restored, &older);
        machines.open(restored).expect("it opens, and can't know");
        for _ in 0..2_000 {
            machines.sim.run_for(Duration::from_millis(1));
            if machines.host(restored).failure().is_some() {
                break;
            }
        }
        let failure = machines.host(restored).failure().expect("it takes part").to_string();
        assert!(
            failure.contains("an older copy")
                && failure.contains("empty directory")
                && !failure.contains("restore a backup"),
            "seed {seed}: {failure}"
        );
        // With the leader gone nobody is elected who lacks what was acknowledged.
        machines.crash(leader);
        machines.heal();
        machines.sim.run_for(Duration::from_secs(3));
        let other = (leader + 2) % 3;
        assert!(
            !machines.host(other).leadership().is_ready,
            "seed {seed}: entries are lost that were acknowledged"
        );
        machines.open(leader).expect("it opens");
        let leader = machines.await_leader(|at| at != restored);
        for n in 0..20 {
            assert_eq!(
                machines.get(leader, &format!("key{n}")).expect("a read").as_deref(),
                Some("new")
            );
        }
    }
}

#[test]
fn one_that_is_restored_from_before_an_election_gives_no_vote_to_who_knows_of_it() {
    for seed in 0..6 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        let first = machines.await_leader(|_| true);
        machines.set(first, "old", "1").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        let restored = (first + 1) % 3;
        machines.crash(restored);
        let older = machines.files(restored);
        machines.open(restored).expect("it opens");
        machines.sim.run_for(Duration::from_secs(1));
        // Somebody else is elected: who led, and who is to be restored, both know of it.
        machines.isolate(first);
        let mut leader = machines.await_leader(|at| at != first);
        machines.heal();
        machines.sim.run_for(Duration::from_secs(2));
        if leader == restored {
            let host = machines.host(leader);
            let _ = machines.sim.run_until_within(Duration::from_secs(5), host.hand_over());
            drop(host);
            leader = machines.await_leader(|at| at != restored);
            machines.sim.run_for(Duration::from_secs(2));
        }
        // What is acknowledged now is on the two alone.
        let third = (0..3).find(|at| *at != restored && *at != leader).expect("there are three");
        machines.isolate(third);
        for n in 0..20 {
            machines.set(leader, &format!("key{n}"), "new").expect("a commit");
        }
        machines.crash(restored);
        machines.crash(leader);
        machines.put_files(restored, &older);
        machines.heal();
        machines.open(restored).expect("it opens, and can't know");
        machines.sim.run_for(Duration::from_secs(3));
        assert!(
            !machines.host(third).leadership().is_ready,
            "seed {seed}: entries are lost that were acknowledged"
        );
        let failure = machines.host(restored).failure().expect("it takes part").to_string();
        assert!(
            failure.contains("an older copy") && failure.contains("has spoken to node"),
            "seed {seed}: {failure}"
        );
        machines.open(leader).expect("it opens");
        let leader = machines.await_leader(|at| at != restored);
        for n in 0..20 {
            let value = machines.get(leader, &format!("key{n}")).expect("a read");
            assert_eq!(value.as_deref(), Some("new"));
        }
    }
}

/// Two of three are one that was away and one restored from before: they elect each other, and
/// nobody among them can know. The third does, and it took part in nothing from then on, for ever,
/// while every server told that all is well.
#[test]
fn a_member_that_has_what_a_restored_majority_has_lost_says_so_and_takes_no_part() {
    for seed in 0..6 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        let keeper = machines.await_leader(|_| true);
        let (restored, away) = ((keeper + 1) % 3, (keeper + 2) % 3);
        machines.set(keeper, "old", "1").expect("a commit");
        machines.sim.run_for(Duration::from_millis(500));
        machines.crash(restored);
        let older = machines.files(restored);
        machines.open(restored).expect("it opens");
        machines.sim.run_for(Duration::from_millis(500));
        machines.crash(away);
        for n in 0..5 {
            machines.set(keeper, &format!("key{n}"), "new").expect("a commit");
        }
        machines.sim.run_for(Duration::from_millis(500));
        machines.crash(keeper);
        machines.crash(restored);
        machines.put_files(restored, &older);
        machines.open(restored).expect("it opens, and can't know");
        machines.open(away).expect("it opens");
        let leader = machines.await_leader(|_| true);
        assert_eq!(machines.get(leader, "key0").expect("a read"), None, "the two have lost it");
        machines.set(leader, "after", "1").expect("a commit");
        machines.open(keeper).expect("it opens, and nobody has told it yet");
        machines.sim.run_for(Duration::from_secs(2));
        let failure = machines.host(keeper).failure().expect("it takes part").to_string();
        for part in ["lost commits that were acknowledged", "older disks", "plinth salvage"] {
            assert!(failure.contains(part), "seed {seed}: {failure}");
        }
        // The others go on, with what they have.
        machines.set(leader, "after", "2").expect("a commit");
        for at in [restored, away] {
            assert!(machines.host(at).failure().is_none(), "seed {seed}: node {at}");
        }
        // Nor does a new process on the same directory take part.
        machines.crash(keeper);
        machines.open(keeper).expect("it opens");
        machines.sim.run_for(Duration::from_secs(2));
        assert!(machines.host(keeper).failure().is_some(), "seed {seed}: it takes part");
    }
}

/// As many rows under one key each.
fn fill(machines: &Machines, at: usize, what: &str) {
    (0..20).for_each(|n| machines.set(at, &format!("{what}{n}"), what).expect("a commit"));
    machines.sim.run_for(Duration::from_millis(500));
}

/// Two of three are put back to before an election, and elect somebody in the term of whom they
/// have forgotten. Terms and indices of what the third has from then are those of other entries:
/// it took what came behind them, and its rows differed from there on, in silence.
#[test]
fn a_term_that_has_two_leaders_is_found_by_the_member_that_knew_the_first() {
    let mut reused = 0;
    for seed in 0..8 {
        let mut machines = Machines::new(seed, 3, NodeConfig::default());
        let first = machines.await_leader(|_| true);
        fill(&machines, first, "old");
        (0..3).for_each(|at| machines.crash(at));
        let older: Vec<_> = (0..3).map(|at| machines.files(at)).collect();
        (0..3).for_each(|at| machines.open(at).expect("it opens"));
        let before = machines.await_leader(|_| true);
        let term = machines.host(before).leadership().term;
        fill(&machines, before, "lost");
        (0..3).for_each(|at| machines.crash(at));
        let keeper = (before + seed as usize) % 3;
        for at in (0..3).filter(|at| *at != keeper) {
            machines.put_files(at, &older[at]);
            machines.open(at).expect("it opens, and can't know");
        }
        let leader = machines.await_leader(|_| true);
        fill(&machines, leader, "new");
        reused += u64::from(machines.host(leader).leadership().term == term);
        machines.open(keeper).expect("it opens, and nobody has told it yet");
        machines.sim.run_for(Duration::from_secs(2));
        let failure = machines.host(keeper).failure().expect("it takes part").to_string();
        for part in ["older disks", "plinth salvage"] {
            assert!(failure.contains(part), "seed {seed}: {failure}");
        }
        // The others go on, and it never takes part again.
        machines.set(leader, "after", "1").expect("a commit");
        machines.crash(keeper);
        machines.open(keeper).expect("it opens");
        machines.sim.run_for(Duration::from_secs(2));
        assert!(machines.host(keeper).failure().is_some(), "seed {seed}: it takes part");
    }
    assert!(reused > 0, "no term had two leaders");
}
