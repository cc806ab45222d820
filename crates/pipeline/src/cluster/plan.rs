//! From what operators want and who there is to the next change of members: pure.
//!
//! What is wanted are rows below `\xff/conf/`, which anybody with the rights may write in a
//! transaction; what there is changes one step at a time, and only the leader takes such steps. So
//! a command is done once its rows are committed, and whoever leads brings it to its end.
//!
//! 1. A joint state is left. A leader that has no vote behind it has another one lead first.
//! 2. Who votes: the servers that were named, else as many as are wanted. Whoever votes keeps that
//!    as long as it may; a place that is free goes to a node that follows, is heard of, and has
//!    everything.
//! 3. A new node at the address of an older one takes its place, once it has everything: the older
//!    one is not there any more, or it couldn't listen there.
//! 4. Without a node to take its place an excluded voter goes all the same: fewer voters, and so
//!    fewer that may fail.
//! 5. No step leads to voters of whom no majority is heard of.

use plinth_replication::{MemberNode, Members, NodeId, Part};

/// What operators want.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Wish {
    /// How many voters there are to be.
    pub voter_count: Option<usize>,
    /// The addresses of those that are to vote; empty: whoever does.
    pub coordinators: Vec<String>,
    /// Addresses, or hosts, of nodes that are not to vote.
    pub excluded: Vec<String>,
    /// Addresses, or hosts, of nodes that are lost for good: they are members no more.
    pub failed: Vec<String>,
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing: everything is as it is wanted, or can't be yet.
    Nothing,
    /// Another voter is to lead.
    HandOver,
    /// These are to be the members.
    Become(Members),
}

/// Whether one of these places, addresses or hosts, is that of a node.
pub(crate) fn names(places: &[String], address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    places.iter().any(|place| place == address || place == host)
}

/// The next step of a cluster with these members that node `us` leads. `is_ready` says of a node
/// that follows whether it could vote, `is_here` whether it has been heard of lately.
pub(crate) fn plan(
    members: &Members,
    us: NodeId,
    wish: &Wish,
    is_ready: impl Fn(NodeId) -> bool,
    is_here: impl Fn(NodeId) -> bool,
) -> Step {
    if members.is_joint() {
        let stays = members.part(us).is_some_and(Part::stays);
        return if stays { Step::Become(members.leave()) } else { Step::HandOver };
    }
    let newest = |node: &MemberNode| {
        members.at_address(&node.address).is_none_or(|other| other.id == node.id)
    };
    let is_failed = |node: &MemberNode| names(&wish.failed, &node.address);
    let replaced = |node: &MemberNode| {
        !newest(node) && members.at_address(&node.address).is_some_and(|other| is_ready(other.id))
    };
    let may_vote = |node: &&MemberNode| {
        let could = node.part == Part::Voter || (newest(node) && is_ready(node.id));
        could && !is_failed(node) && !replaced(node) && !names(&wish.excluded, &node.address)
    };
    let mut candidates: Vec<&MemberNode> = members.nodes.iter().filter(may_vote).collect();
    let wanted: Vec<NodeId> = if wish.coordinators.is_empty() {
        let count = wish.voter_count.unwrap_or_else(|| members.voters().len()).max(1);
        let heir = |node: &MemberNode| {
            members.nodes.iter().any(|old| {
                old.id < node.id && old.address == node.address && old.part == Part::Voter
            })
        };
        // Whoever leads goes on, then whoever votes, then who takes the place of one that did.
        candidates
            .sort_by_key(|node| (node.id != us, node.part != Part::Voter && !heir(node), node.id));
        let mut taken: Vec<&MemberNode> = Vec::new();
        for node in candidates {
            if taken.len() < count && taken.iter().all(|other| other.address != node.address) {
                taken.push(node);
            }
        }
        taken.into_iter().map(|node| node.id).collect()
    } else {
        let at = |address: &String| candidates.iter().rev().find(|node| node.address == *address);
        let found: Vec<_> = wish.coordinators.iter().filter_map(at).map(|node| node.id).collect();
        // All of them, or as it is: a vote that nobody asked for is not given meanwhile.
        if found.len() < wish.coordinators.len() { members.voters() } else { found }
    };
    let mut wanted = wanted;
    wanted.sort_unstable();
    wanted.dedup();
    // Without a majority of those who are to vote nobody could lead any more, not even to undo it.
    let here = wanted.iter().filter(|id| **id == us || is_here(**id)).count();
    if 2 * here > wanted.len() && wanted != members.voters() {
        let is_gone = |node: &&MemberNode| is_failed(node) || replaced(node);
        let gone: Vec<_> = members.nodes.iter().filter(is_gone).map(|node| node.id).collect();
        return Step::Become(members.enter(&wanted, &gone));
    }
    let is_of_no_use =
        |node: &&MemberNode| node.part == Part::Learner && (is_failed(node) || !newest(node));
    match members.nodes.iter().find(is_of_no_use) {
        Some(node) => Step::Become(members.without_learner(node.id)),
        None => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(voters: u64, learners: u64) -> Members {
        let mut members = Members::of_voters((1..=voters).map(|id| (id, format!("h{id}:1"))));
        for id in voters + 1..=voters + learners {
            members = members.with_learner(&format!("h{id}:1"));
        }
        members
    }

    fn wish(count: usize) -> Wish {
        Wish { voter_count: Some(count), ..Wish::default() }
    }

    /// Takes steps until there is nothing to do; gives the voters and all members, and how often
    /// another one had to lead.
    fn settled(
        mut members: Members,
        mut us: NodeId,
        wish: &Wish,
        ready: &[NodeId],
    ) -> (Vec<NodeId>, Vec<NodeId>, u64) {
        let mut handed_over = 0;
        for _ in 0..20 {
            match plan(&members, us, wish, |id| ready.contains(&id), |_| true) {
                Step::Nothing => {
                    let all = members.nodes.iter().map(|node| node.id).collect();
                    return (members.voters(), all, handed_over);
                }
                Step::HandOver => {
                    us = members.voters()[0];
                    handed_over += 1;
                }
                Step::Become(next) => {
                    assert_eq!(next.check(), Ok(()));
                    members = next;
                }
            }
        }
        panic!("no end: {members:?}");
    }

    #[test]
    fn nothing_is_done_where_nothing_is_to_be_done() {
        let (voters, all, _) = settled(cluster(3, 1), 2, &wish(3), &[4]);
        assert_eq!((voters, all), (vec![1, 2, 3], vec![1, 2, 3, 4]));
        let (voters, ..) = settled(cluster(7, 0), 2, &Wish::default(), &[]);
        assert_eq!(voters.len(), 7);
    }

    #[test]
    fn as_many_vote_as_are_wanted_and_can() {
        assert_eq!(settled(cluster(3, 3), 2, &wish(5), &[4, 6]).0, [1, 2, 3, 4, 6]);
        assert_eq!(
            settled(cluster(3, 2), 2, &wish(5), &[]).0,
            [1, 2, 3],
            "none of them has everything"
        );
        assert_eq!(settled(cluster(5, 0), 4, &wish(3), &[]).0, [1, 2, 4], "whoever leads goes on");
        assert_eq!(settled(cluster(3, 0), 3, &wish(1), &[]).0, [3]);
    }

    #[test]
    fn an_excluded_voter_is_replaced_or_goes_and_comes_back() {
        let without = |places: &[&str]| Wish {
            excluded: places.iter().map(|place| (*place).to_owned()).collect(),
            ..wish(3)
        };
        let (voters, all, handed_over) = settled(cluster(3, 1), 1, &without(&["h1:1"]), &[4]);
        assert_eq!(
            (voters, all, handed_over),
            (vec![2, 3, 4], vec![1, 2, 3, 4], 1),
            "it leads no longer"
        );
        assert_eq!(
            settled(cluster(3, 0), 1, &without(&["h2"]), &[]).0,
            [1, 3],
            "there is nobody else"
        );
        let mut members = cluster(3, 0).enter(&[1, 3], &[]).leave();
        assert_eq!(
            settled(members.clone(), 1, &wish(3), &[2]).0,
            [1, 2, 3],
            "it is included again"
        );
        members = members.with_learner("h9:1");
        assert_eq!(
            settled(members, 1, &without(&["h1:1", "h2:1", "h3:1", "h9:1"]), &[2, 4]).0,
            [1, 3],
            "not the last"
        );
    }

    #[test]
    fn a_lost_node_is_no_member_any_more() {
        let lost = Wish { failed: vec!["h2:1".to_owned()], ..wish(3) };
        let (voters, all, _) = settled(cluster(3, 1), 1, &lost, &[4]);
        assert_eq!((voters, all), (vec![1, 3, 4], vec![1, 3, 4]));
        let lost = Wish { failed: vec!["h4".to_owned()], ..wish(3) };
        assert_eq!(settled(cluster(3, 1), 1, &lost, &[4]).1, [1, 2, 3]);
    }

    #[test]
    fn a_new_node_takes_the_place_of_the_one_that_was_there_when_it_has_everything() {
        let members = cluster(3, 0).with_learner("h2:1");
        let (voters, all, _) = settled(members.clone(), 1, &wish(3), &[]);
        assert_eq!((voters, all), (vec![1, 2, 3], vec![1, 2, 3, 4]));
        let (voters, all, _) = settled(members.clone(), 1, &wish(3), &[4]);
        assert_eq!((voters, all), (vec![1, 3, 4], vec![1, 3, 4]));
        // Wiped twice, before it had everything: the first try is of no use.
        let (voters, all, _) = settled(members.with_learner("h2:1"), 1, &wish(3), &[5]);
        assert_eq!((voters, all), (vec![1, 3, 5], vec![1, 3, 5]));
    }

    #[test]
    fn those_who_were_named_vote_once_all_of_them_can() {
        let named =
            Wish { coordinators: vec!["h1:1".into(), "h4:1".into(), "h5:1".into()], ..wish(3) };
        assert_eq!(settled(cluster(3, 2), 1, &named, &[4]).0, [1, 2, 3]);
        let (voters, all, _) = settled(cluster(3, 2), 2, &named, &[4, 5]);
        assert_eq!((voters, all), (vec![1, 4, 5], vec![1, 2, 3, 4, 5]));
    }

    /// Two voters of whom one is lost: nobody leads any more, and nothing brings that back.
    #[test]
    fn a_voter_that_is_excluded_keeps_its_vote_while_another_one_is_away() {
        let (members, excluded) =
            (cluster(3, 0), Wish { excluded: vec!["h3:1".into()], ..wish(3) });
        let plan = |is_here: fn(NodeId) -> bool| plan(&members, 2, &excluded, |_| false, is_here);
        assert_eq!(plan(|id| id == 3), Step::Nothing);
        assert!(matches!(plan(|_| true), Step::Become(_)));
    }
}
