//! A node whose directory is an older copy is told by those who have heard of it: also by one that
//! has never led it, since nodes say now and then in which term they are. And one that has what the
//! others have lost finds out by what the leader sends: by its terms, or, where those are the same,
//! by checksums.

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
fn it_says_along_how_far_its_log_is_synced_and_knows_what_others_lack() {
    let mut core = node_that_knows(EntryId::default(), 8);
    let others = said_to_others(&mut core, 6);
    assert!(!others.is_empty() && others.iter().all(|said| said.index == 10), "{others:?}");
    assert_eq!(core.lags(&[]), [(3, 0)], "nobody has said anything yet");
    let says = |index| Message { index, ..Message::bare(MessageKind::HeartbeatReply, 2, 3, 6) };
    core.receive(&says(5)).unwrap();
    assert_eq!(core.lags(&[]), [(2, 3), (3, 0)]);
    // A program from before says nothing of it.
    core.receive(&says(0)).unwrap();
    assert_eq!(core.lags(&[]), [(2, 3), (3, 0)]);
    core.receive(&says(9)).unwrap();
    assert_eq!(core.lags(&[]), [(2, 0), (3, 0)], "it may have what isn't known to be committed");
}

/// It said so only at a moment when nothing was under way to the disk, which with a busy one there
/// isn't: the others took it for one that lags.
#[test]
fn it_says_how_far_its_log_is_synced_while_more_is_under_way() {
    let mut core = node_that_knows(EntryId::default(), 8);
    core.receive(&heartbeat(3, 6)).unwrap();
    said(&mut core);
    core.receive(&append(6, (10, 4), &[6, 6])).unwrap();
    let mut under_way = Vec::new();
    for _ in 0..A_WHILE {
        core.tick();
        core.receive(&heartbeat(3, 6)).unwrap();
        under_way.extend(core.work().into_iter().flat_map(|work| work.send));
    }
    let others: Vec<_> = under_way.iter().filter(|message| message.to == 2).collect();
    assert!(!others.is_empty() && others.iter().all(|said| said.index == 10), "{others:?}");
}

/// What node 1 had said before it led counted once it led no more, however long ago it was.
#[test]
fn what_one_has_said_before_it_led_counts_no_more_behind_that() {
    let mut core = node_that_knows(EntryId::default(), 8);
    let leads = |node, term| Message::bare(MessageKind::Heartbeat, node, 3, term);
    let follow = |core: &mut Core, node, term| {
        core.receive(&leads(node, term)).unwrap();
        core.tick();
        said(core);
    };
    follow(&mut core, 2, 6);
    core.receive(&Message { index: 5, ..Message::bare(MessageKind::HeartbeatReply, 1, 3, 6) })
        .unwrap();
    assert_eq!(core.lags(&[]), [(1, 3), (3, 0)]);
    follow(&mut core, 1, 7);
    follow(&mut core, 2, 8);
    assert_eq!(core.lags(&[]), [(3, 0)]);
}

/// Nor what others had said before this node led, which knows better while it does.
#[test]
fn what_others_have_said_before_this_one_led_counts_no_more_behind_that() {
    let mut core = node_that_knows(EntryId::default(), 8);
    core.receive(&Message { index: 5, ..Message::bare(MessageKind::HeartbeatReply, 1, 3, 6) })
        .unwrap();
    core.campaign();
    for kind in [MessageKind::PreVoteReply, MessageKind::VoteReply] {
        said(&mut core);
        core.receive(&Message::bare(kind, 1, 3, 7)).unwrap();
    }
    said(&mut core);
    core.tick();
    let followers = core.followers();
    let lags: Vec<_> = core.lags(&followers).into_iter().map(|(node, _)| node).collect();
    assert_eq!(lags, [1, 2], "it leads");
    core.receive(&Message::bare(MessageKind::Heartbeat, 2, 3, 8)).unwrap();
    said(&mut core);
    assert_eq!(core.lags(&[]), [(3, 0)]);
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

/// A node whose log begins behind this entry, and that knows so many to be committed.
fn node_that_knows(begin: EntryId, commit: u64) -> Core {
    let members = node(3).members().clone();
    let config = Config { planted: Planted::None, ..Config::of_members(3, members, 0, 3) };
    let mut terms = Terms::new(begin);
    (begin.index + 1..=10).for_each(|index| terms.push(EntryId { index, term: 4 }));
    Core::new(config, terms, Promise { term: 6, vote: 0, commit }).unwrap()
}

/// What node 1 says that it has behind an entry.
fn append(term: u64, (index, log_term): (u64, u64), entries: &[u64]) -> Message {
    let bare = Message::bare(MessageKind::Append, 1, 3, term);
    Message { index, log_term, entries: entries.to_vec(), ..bare }
}

fn behind(term: u64, index: u64, log_term: u64) -> Message {
    Message { index, log_term, ..Message::bare(MessageKind::Behind, 1, 3, term) }
}

/// Whoever asks whether it would be elected says what it knows to be committed, in a term that no
/// other node has reached: an append of this node's own term may be older than that.
#[test]
fn what_a_candidate_knows_is_not_held_against_a_leader_from_before() {
    let mut core = node_that_knows(EntryId::default(), 7);
    let asks = Message::bare(MessageKind::PreVote, 2, 3, 8);
    core.receive(&Message { index: 9, log_term: 4, commit: 9, commit_term: 4, ..asks }).unwrap();
    said(&mut core);
    core.receive(&append(6, (8, 4), &[6])).unwrap();
    assert_eq!(core.forgotten(), None);
    // What a leader of its term says counts, up to where it says it.
    core.receive(&Message { commit: 10, ..heartbeat(3, 6) }).unwrap();
    said(&mut core);
    core.receive(&append(7, (8, 4), &[7])).unwrap();
    assert!(core.forgotten().is_some());
}

/// Only who leads in a term that is not over says what the cluster has.
#[test]
fn a_leader_without_what_is_committed_here_is_noticed_and_nothing_else_is() {
    let learner = Message { from: 9, ..append(7, (5, 4), &[7]) };
    for (message, is_lost, what) in [
        (append(7, (5, 4), &[4, 4, 4, 7, 7, 7]), false, "8 were committed"),
        (append(7, (5, 4), &[4, 4, 7, 7]), true, "entry 8 was committed"),
        (append(6, (5, 4), &[6]), true, "who leads in this term has it from before"),
        (append(7, (8, 7), &[]), true, "the entry before the first one"),
        (append(7, (9, 7), &[]), false, "which may have lost"),
        (append(5, (5, 4), &[5, 5, 5]), false, "an old leader's, that comes late"),
        (append(7, (3, 4), &[4, 4, 4]), false, "a doubled one"),
        (behind(7, 7, 5), true, "the log begins behind another entry"),
        (behind(7, 7, 4), false, "it begins behind one that is here"),
        (behind(7, 20, 7), false, "it begins behind one that is not here"),
        (behind(5, 7, 5), false, "an old leader's log"),
        (learner, false, "one that has no vote never leads"),
    ] {
        let mut core = node_that_knows(EntryId { index: 2, term: 2 }, 8);
        let _ = core.receive(&message);
        let lost = core.forgotten().map(ToString::to_string);
        assert_eq!(lost.is_some(), is_lost, "{what}: {lost:?}");
    }
    // What is let go of has no term here.
    let mut core = node_that_knows(EntryId { index: 7, term: 4 }, 8);
    core.receive(&append(7, (3, 3), &[3])).unwrap();
    assert!(core.forgotten().is_none(), "entry 4 is unknown here");
}

/// Rows are taken from any node: one of a later term may have given them, while who leads in this
/// node's term, and is about to learn that it does no more, still sends.
#[test]
fn rows_of_a_later_term_prove_nothing_about_who_leads_in_this_one() {
    let rows = EntryId { index: 8, term: 4 };
    let late = append(6, (7, 4), &[6]);
    let mut core = node_that_knows(rows, 8);
    core.receive(&late).unwrap();
    assert!(core.forgotten().is_none(), "{:?}", core.forgotten());
    // Once a leader has said that more is committed, everything before it counts.
    let tells = Message { commit: 10, ..append(7, (8, 4), &[4, 4]) };
    core.receive(&tells).unwrap();
    said(&mut core);
    assert_eq!(core.committed(), 10);
    core.receive(&append(8, (8, 6), &[6])).unwrap();
    assert!(core.forgotten().is_some());
}

/// What entry 8 of term 4 has for a checksum here, and entry 9.
const SUMS: [u32; 2] = [88, 99];

/// A node with entries of a leader whom the others have forgotten: up to 10 of term 4, of which it
/// has the checksums of 8 and 9.
fn node_with_sums() -> Core {
    let mut core = node_that_knows(EntryId { index: 2, term: 2 }, 5);
    (8..).zip(SUMS).for_each(|(index, sum)| core.note_sum(index, sum));
    core
}

/// The others have elected somebody in a term that had a leader. The entries of both have the same
/// index and term, so that `raft` takes what comes behind them: the rows of both differed in
/// silence.
#[test]
fn entries_of_two_leaders_of_one_term_are_told_apart() {
    let entry = |index| EntryId { index, term: 4 };
    let learner = Message { from: 9, ..append(7, (8, 4), &[7]) };
    for (message, theirs, is_lost, what) in [
        (append(7, (8, 4), &[4, 4, 7]), vec![(entry(8), 1)], true, "the one before is another"),
        (append(7, (8, 4), &[]), vec![(entry(8), 1)], true, "also if nothing comes behind it"),
        (append(6, (8, 4), &[]), vec![(entry(8), 1)], true, "in the term that is"),
        (append(7, (8, 4), &[4]), vec![(entry(8), 88), (entry(9), 1)], true, "one that is sent is"),
        (append(7, (8, 4), &[4]), vec![(entry(8), 88), (entry(9), 99)], false, "they are the same"),
        (append(7, (8, 4), &[4]), vec![], false, "an older program says nothing of them"),
        (append(7, (7, 4), &[]), vec![(entry(7), 1)], false, "nobody knows what is here"),
        (append(5, (8, 4), &[]), vec![(entry(8), 1)], false, "an old leader's, that comes late"),
        (learner, vec![(entry(8), 1)], false, "one that has no vote never leads"),
    ] {
        let mut core = node_with_sums();
        let shared = core.shared(&message, 3);
        let theirs: Vec<_> =
            theirs.into_iter().filter(|(entry, _)| shared.contains(entry)).collect();
        core.receive_checked(&message, &theirs).unwrap();
        let lost = core.forgotten().map(ToString::to_string);
        assert_eq!(lost.is_some(), is_lost, "{what}: {lost:?}");
        if let Some(lost) = lost {
            let parts = ["two leaders have led in term 4", "older disks", "plinth salvage"];
            assert!(parts.iter().all(|part| lost.contains(part)), "{lost}");
            assert_eq!(said(&mut core), [], "{what}: it acknowledges what it doesn't have");
        }
    }
}

/// Only what both have by index and term is looked up, so that in the steady state no more is than
/// the last entry, which was written a moment ago.
#[test]
fn what_both_have_is_compared_and_nothing_else() {
    let core = node_with_sums();
    let shared = |message: &Message| {
        let entries = core.shared(message, 3);
        entries.into_iter().map(|entry| entry.index).collect::<Vec<_>>()
    };
    assert_eq!(shared(&append(7, (10, 4), &[7, 7])), [10]);
    assert_eq!(shared(&append(7, (11, 4), &[7])), [], "it isn't here");
    assert_eq!(shared(&append(7, (8, 4), &[4, 7, 7])), [8, 9], "from the second on they differ");
    assert_eq!(shared(&append(7, (1, 1), &[2, 4])), [3], "the log begins behind entry 2");
    assert_eq!(shared(&append(7, (2, 2), &[4, 4])), [3, 4], "and what is behind it is compared");
    assert_eq!(shared(&heartbeat(3, 7)), []);
    // Of what lost nothing is kept.
    let mut core = node_with_sums();
    let sum = |core: &Core, index, term| core.sum_of(EntryId { index, term });
    assert_eq!((sum(&core, 8, 4), sum(&core, 8, 5), sum(&core, 7, 4)), (Some(88), None, None));
    core.recall_sums(7, &[77]);
    core.recall_sums(11, &[11]);
    assert_eq!((sum(&core, 7, 4), sum(&core, 11, 4)), (Some(77), None));
    core.receive(&append(7, (8, 4), &[7])).unwrap();
    said(&mut core);
    assert_eq!(sum(&core, 9, 4), None);
    core.note_sum(9, 90);
    assert_eq!((sum(&core, 8, 4), sum(&core, 9, 7)), (Some(88), Some(90)));
}
