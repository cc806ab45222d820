//! Whatever other nodes say, and however little of it an honest one would: nothing panics.
//!
//! A node can't agree with liars, but it must live through a peer with broken memory or another
//! version of the program. So a core is told messages whose fields are near those that it would
//! expect, in any state that it gets into by that.

use plinth_env::simulated::Random;
use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Core, EntryId, Members, Message, MessageKind, Part, Promise, Proving, Role, Taken,
    Terms,
};
use std::sync::Arc;

fn message(random: &mut Random, core: &Core) -> Message {
    let kind = MessageKind::ALL[random.index(MessageKind::ALL.len())];
    let last = core.terms().last().index;
    let near = |random: &mut Random, value: u64| match random.index(8) {
        0 => 0,
        1 => random.below(1 << 40),
        _ => (value + random.below(5)).saturating_sub(2),
    };
    let term = near(random, core.term()).max(1);
    let index = near(random, last);
    let log_term = core.terms().term_of(index).filter(|_| random.chance(0.7));
    let log_term = log_term.unwrap_or_else(|| near(random, term)).min(term);
    let mut entries = Vec::new();
    if kind == MessageKind::Append {
        let mut before = log_term.max(1);
        for _ in 0..random.index(5) {
            before = (before + random.below(2)).min(term.max(before));
            entries.push(before);
        }
    }
    Message {
        kind,
        from: 1 + random.below(4),
        to: 1,
        term,
        index,
        log_term,
        commit: near(random, core.committed()),
        commit_term: near(random, term),
        reject: random.chance(0.3),
        hint: near(random, last),
        context: random.chance(0.3).then(|| random.below(20)),
        members: (index + 1..=index + entries.len() as u64)
            .filter(|_| random.chance(0.2))
            .collect(),
        entries,
    }
}

/// What an honest node would answer that has everything.
fn answer(asked: &Message) -> Option<Message> {
    let kind = match asked.kind {
        MessageKind::PreVote => MessageKind::PreVoteReply,
        MessageKind::Vote => MessageKind::VoteReply,
        MessageKind::Append => MessageKind::AppendReply,
        MessageKind::Heartbeat => MessageKind::HeartbeatReply,
        _ => return None,
    };
    let index = asked.index + asked.entries.len() as u64;
    let (from, to, entries) = (asked.to, asked.from, Vec::new());
    Some(Message {
        kind,
        from,
        to,
        index,
        entries,
        members: Vec::new(),
        reject: false,
        ..asked.clone()
    })
}

/// Members that can follow these.
fn some_change(random: &mut Random, members: &Members) -> Members {
    let learner = members.nodes.iter().find(|node| node.part == Part::Learner).map(|node| node.id);
    match (random.index(4), learner) {
        (0, Some(learner)) => members.without_learner(learner),
        (1, Some(learner)) => members.enter(&[1, 2, learner], &[3]),
        (2, _) => members.enter(&[1], &[]),
        _ => members.with_learner("node:x"),
    }
}

/// Node 1 of these, with entries 5 to 9.
fn first_of(members: &Members, seed: u64) -> (Core, Proving) {
    let config = Config {
        id: 1,
        members: members.clone(),
        members_index: 0,
        seed,
        heartbeat_ticks: 2,
        election_ticks: 5,
        message_entries: 8,
        most_log_bytes: 1 << 20,
        spoken: plinth_replication::Spoken::THIS,
        planted: Planted::None,
    };
    let mut terms = Terms::new(EntryId { index: 4, term: 2 });
    (5..10).for_each(|index| terms.push(EntryId { index, term: 2 + index / 4 }));
    let promised = Promise { term: 4, vote: 0, commit: 6 };
    let core = Core::new(config, terms, promised).expect("a core");
    let proving = Proving::new(core.id(), core.stand(), Arc::new(members.clone()));
    (core, proving)
}

#[test]
fn no_message_makes_a_core_panic() {
    let (mut taken, mut proofs, mut led, mut committed, mut changed) = (0, 0, 0, 0, 0);
    let members = Members::of_voters((1..=3).map(|id| (id, format!("node:{id}"))));
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (mut core, mut proving) = first_of(&members, seed);
        let (mut tickets, mut sent) = (Vec::new(), Vec::<Message>::new());
        for _ in 0..300 {
            match random.index(10) {
                0 => core.tick(),
                1 => {
                    core.propose();
                }
                2 => drop(proving.ask()),
                3 if random.chance(0.2) => core.campaign(),
                4 => {
                    if let Some(ticket) = tickets.pop() {
                        tickets.clear();
                        sent.extend(core.persisted(ticket));
                    }
                }
                5 if random.chance(0.1) => core.look_at_size(u64::MAX),
                5 => core.forget(core.committed().saturating_sub(random.below(4))),
                6 | 7 => {
                    if let Some(answer) = sent.pop().as_ref().and_then(answer) {
                        core.receive(&answer).expect("an honest answer");
                    }
                }
                _ => {
                    let message = message(&mut random, &core);
                    match proving.receive(&message) {
                        Taken::No => taken += u64::from(core.receive(&message).is_ok()),
                        Taken::Counted | Taken::Answer(_) => proofs += 1,
                    }
                }
            }
            while let Some(work) = core.work() {
                committed += u64::from(work.committed.is_some());
                if work.members {
                    // What another node says may not follow: this one takes it, or says so.
                    let next = core.members().clone();
                    let next = if next.is_joint() {
                        next.leave()
                    } else {
                        some_change(&mut random, &next)
                    };
                    changed += u64::from(core.take_effect(next).is_ok());
                    proving.change_members(Arc::new(core.members().clone()));
                }
                proving.stand(core.stand());
                sent.extend(work.send);
                if work.needs_sync {
                    tickets.push(work.ticket);
                }
            }
            proving.stand(core.stand());
            proving.tick();
            while proving.proven().is_some() {}
            led += u64::from(core.role() == Role::Leader);
            core.check_invariants();
        }
    }
    println!(
        "{taken} messages were taken, led at {led} steps, {committed} times something was committed"
    );
    assert!(proofs > 100, "{proofs} messages were part of proofs");
    assert!(taken > 10_000 && led > 1000 && committed > 500 && changed > 100, "{changed} changes");
}
