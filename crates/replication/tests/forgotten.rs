//! A node whose directory is an older copy is told by those who have heard of it: also by one that
//! has never led it, since nodes say now and then in which term they are.

use plinth_replication::planted::Planted;
use plinth_replication::{
    Config, Core, EntryId, Members, Message, MessageKind, Promise, Spoken, Terms,
};

/// Twice as long as a node takes between saying its term and saying it again.
const A_WHILE: usize = 100;

fn node(id: u64) -> Core {
    let members = Members::of_voters((1..=3).map(|id| (id, format!("node:{id}"))));
    let config = Config {
        id,
        members,
        members_index: 0,
        seed: id,
        heartbeat_ticks: 3,
        election_ticks: 10,
        message_entries: 1000,
        most_log_bytes: u64::MAX,
        spoken: Spoken::THIS,
        planted: Planted::None,
    };
    Core::new(config, Terms::new(EntryId::default()), Promise::default()).unwrap()
}

/// What node 1, which leads, says: that it is there.
fn heartbeat(to: u64, term: u64) -> Message {
    Message::bare(MessageKind::Heartbeat, 1, to, term)
}

/// Does what there is to do, all of it synced at once. What the node says.
fn said(core: &mut Core) -> Vec<Message> {
    let mut said = Vec::new();
    while let Some(work) = core.work() {
        said.extend(work.send);
        said.extend(core.persisted(work.ticket));
    }
    said
}

/// Lets a while pass in which the leader is there. What the node says to whom doesn't lead.
fn said_to_others(core: &mut Core, term: u64) -> Vec<Message> {
    let mut others = Vec::new();
    for _ in 0..A_WHILE {
        core.tick();
        core.receive(&heartbeat(core.id(), term)).unwrap();
        others.extend(said(core).into_iter().filter(|message| message.to != 1));
    }
    others
}

/// What it asks of the others once nobody leads any more.
fn asked(core: &mut Core) -> Vec<Message> {
    for _ in 0..A_WHILE {
        core.tick();
        let asked: Vec<_> = said(core);
        if !asked.is_empty() {
            return asked;
        }
    }
    panic!("it asks nobody");
}

#[test]
fn one_that_follows_says_its_term_to_those_who_follow_too() {
    let mut core = node(3);
    let others = said_to_others(&mut core, 4);
    assert!(!others.is_empty(), "nobody but the leader knows of it");
    for message in &others {
        let what = (message.kind, message.to, message.term, message.context);
        assert_eq!(what, (MessageKind::HeartbeatReply, 2, 4, None));
    }
}

#[test]
fn it_says_no_term_that_is_not_synced() {
    let mut core = node(3);
    core.receive(&heartbeat(3, 4)).unwrap();
    let work = core.work().expect("the term is to be synced");
    let mut early = work.send;
    for _ in 0..A_WHILE {
        core.tick();
        core.receive(&heartbeat(3, 4)).unwrap();
        early.extend(core.work().into_iter().flat_map(|work| work.send));
    }
    assert!(early.iter().all(|message| message.to == 1), "{early:?}");
}

/// Nodes 2 and 3 follow node 1, which goes; node 3 comes back as it was before. Only what it has
/// said meanwhile tells node 2 of it.
#[test]
fn a_copy_from_before_an_election_is_told_by_one_that_never_led_it() {
    let (mut second, mut third) = (node(2), node(3));
    for message in said_to_others(&mut third, 4) {
        second.receive(&message).unwrap();
    }
    second.receive(&heartbeat(2, 4)).unwrap();
    said(&mut second);
    let mut restored = node(3);
    let asked = asked(&mut second);
    let to_third = asked.iter().find(|message| message.to == 3).expect("it asks node 3");
    restored.receive(to_third).unwrap();
    let why = restored.forgotten().expect("it takes part").to_string();
    assert!(why.contains("node 3 has spoken to node 2 in term 4"), "{why}");
    // The real one hears the same, and knows of it.
    third.receive(to_third).unwrap();
    assert!(third.forgotten().is_none());
}
