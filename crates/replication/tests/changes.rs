//! Changes of members at a follower: it has one at a time in its log that it hasn't written down.
//! And what the last voter says.

use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Core, EntryId, Members, Message, MessageKind, Promise, Spoken, Terms, Work,
};

/// Node 3's, with these members as of that index.
fn config(members: Members, members_index: u64) -> Config {
    Config {
        id: 3,
        members,
        members_index,
        seed: 1,
        heartbeat_ticks: 3,
        election_ticks: 10,
        message_entries: 1000,
        most_log_bytes: u64::MAX,
        spoken: Spoken::THIS,
        planted: Planted::None,
    }
}

fn follower(members: Members) -> Core {
    let terms = Terms::new(EntryId::default());
    Core::new(config(members, 0), terms, Promise::default()).unwrap()
}

fn members() -> Members {
    Members::of_voters((1..=3).map(|id| (id, format!("node:{id}"))))
}

/// An append of the leader's, node 1, behind an entry; the indices of those that change members.
fn append(behind: u64, count: usize, changes: &[u64], commit: u64) -> Message {
    Message {
        index: behind,
        log_term: u64::from(behind > 0),
        commit,
        entries: vec![1; count],
        members: changes.to_vec(),
        ..Message::bare(MessageKind::Append, 1, 3, 1)
    }
}

/// Does what there is to do, all of it synced at once, up to a change of members that is to take
/// effect.
fn work(core: &mut Core) -> (Vec<u64>, Option<u64>) {
    let (mut appended, mut change) = (Vec::new(), None);
    while let Some(Work { ticket, append, committed, members, .. }) = core.work() {
        appended.extend(append.iter().map(|entry| entry.index));
        core.persisted(ticket);
        if members {
            change = committed;
            break;
        }
    }
    core.check_invariants();
    (appended, change)
}

#[test]
fn a_second_change_of_members_waits_until_the_first_is_written_down() {
    let first = members().with_learner("node:4");
    let mut core = follower(members());
    core.receive(&append(0, 9, &[], 0)).unwrap();
    core.receive(&append(9, 1, &[10], 9)).unwrap();
    assert_eq!(work(&mut core), ((1..=10).collect(), None));
    // Whether the first is committed it doesn't know.
    core.receive(&append(10, 3, &[12], 9)).unwrap();
    assert_eq!(work(&mut core), (vec![11], None));
    assert_eq!(work(&mut core), (vec![], None));
    // It is, as comes with the second: that is taken behind it, whole.
    core.receive(&append(11, 3, &[12], 11)).unwrap();
    assert_eq!(work(&mut core), (vec![], Some(10)));
    core.take_effect(first.clone()).unwrap();
    assert_eq!(work(&mut core), (vec![12, 13, 14], None));
    assert_eq!((core.members(), core.members_index(), core.committed()), (&first, 10, 11));
}

#[test]
fn a_change_of_members_that_is_written_down_is_committed() {
    let mut terms = Terms::new(EntryId::default());
    (1..=9).for_each(|index| terms.push(EntryId { index, term: 1 }));
    terms.push_members(EntryId { index: 10, term: 1 });
    terms.push_members(EntryId { index: 11, term: 1 });
    let promise = Promise { term: 1, ..Promise::default() };
    let told = |members_index| config(members().with_learner("node:4"), members_index);
    assert_eq!(Core::new(told(10), terms.clone(), promise).unwrap().committed(), 10);
    // Another node has told of members that this log has yet to get.
    assert_eq!(Core::new(told(20), terms, promise).unwrap().committed(), 0);
}

/// Two led in one term: a sole voter spoke as its leader, lost its power before it had synced that,
/// and voted for another one, by the members of before, in the same term.
#[test]
fn a_sole_voter_says_nothing_before_it_has_synced_that_it_leads() {
    let alone = Members::of_voters([(3, "node:3".to_owned())]);
    let alone = alone.with_learner("node:4");
    let mut core = follower(alone);
    core.campaign();
    let first = core.work().unwrap();
    assert_eq!(first.promise.map(|promise| (promise.term, promise.vote)), Some((1, 3)));
    assert!(first.send.is_empty(), "{:?}", first.send);
    core.propose().unwrap();
    let second = core.work().unwrap();
    assert!(!second.append.is_empty() && second.send.is_empty(), "{:?}", second.send);
    let said = core.persisted(second.ticket);
    assert!(said.iter().any(|message| (message.to, message.term) == (4, 1)), "{said:?}");
    // From there on what it appends is on its way beside its own sync.
    core.check_invariants();
}
