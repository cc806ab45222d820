//! Bytes of members stay what they are, whatever is damaged among them is refused, and steps from
//! one membership to the next are those that a cluster can take.
//!
//! Numbers are never given twice, a joint state needs both majorities, and no bytes make a panic.

use super::*;
use crate::failure::ReplicationError;
use plinth_env::simulated::Random;
use plinth_log::{ALL_ROWS, sections_head};

fn sample() -> Members {
    let voters = [(1, "a:1".to_owned()), (2, "b:2".to_owned())];
    Members { next_id: 9, ..Members::of_voters(voters) }.with_learner("c:3")
}

#[test]
fn the_bytes_of_members() {
    let bytes = sample().encode();
    let expected = [
        &[1, 10, 0, 0, 0, 0, 0, 0, 0, 3][..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 1, 3],
        b"a:1",
        &[2, 0, 0, 0, 0, 0, 0, 0, 1, 3],
        b"b:2",
        &[9, 0, 0, 0, 0, 0, 0, 0, 0, 3],
        b"c:3",
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!(Members::decode(&bytes), Ok(sample()));
    for len in 0..bytes.len() {
        assert_eq!(
            Members::decode(&bytes[..len]),
            Err(ReplicationError::Malformed(String::new())),
            "{len}"
        );
    }
    assert_eq!(
        Members::decode(&[&bytes[..], &[0]].concat()),
        Err(ReplicationError::Malformed(String::new()))
    );
}

/// Who speaks the first protocol alone reads the first format alone: a later one names the
/// protocol, so it is written only once all speak that.
#[test]
fn a_later_protocol_has_a_format_of_its_own_and_only_rises() {
    let later = sample().with_protocol(2);
    let bytes = later.encode();
    assert_eq!(bytes[..3], [2, 2, 0]);
    assert_eq!(bytes[3..], sample().encode()[1..]);
    assert_eq!(Members::decode(&bytes), Ok(later.clone()));
    assert_eq!(
        Members::decode(&[&[2, 1, 0][..], &bytes[3..]].concat()),
        Err(ReplicationError::Malformed(String::new()))
    );
    let newer = Members::decode(&[&[3][..], &bytes[1..]].concat()).unwrap_err();
    assert!(
        newer == ReplicationError::NewerFormat(String::new())
            && newer.to_string().contains("newer Plinth"),
        "{newer}"
    );
    for members in [&later, &sample()] {
        let places = plinth_types::places::member_places(&members.encode()).unwrap();
        let found: Vec<_> =
            places.iter().map(|place| (place.node, &*place.address, place.votes)).collect();
        assert_eq!(
            found,
            [(1, "a:1", true), (2, "b:2", true), (9, "c:3", false)],
            "as clients read it"
        );
    }
    assert!(sample().step_to(&later).is_some());
    assert!(later.step_to(&sample()).is_none());
    assert_eq!(later.enter(&[1], &[]).leave().with_learner("d:4").protocol, 2);
}

#[test]
fn an_entry_has_them_in_its_row() {
    let mut rows = MutationList::new();
    rows.push(MutationType::Set, b"a", b"b");
    let body = |rows: &MutationList| {
        let head = sections_head(&[(ALL_ROWS, rows.as_bytes().len())]);
        Bytes::from([&head[..], rows.as_bytes()].concat())
    };
    assert_eq!(Members::of_entry(&body(&rows)), Err(ReplicationError::Malformed(String::new())));
    rows.push(MutationType::Set, system::MEMBERS, &sample().encode());
    assert_eq!(Members::of_entry(&body(&rows)), Ok(sample()));
    rows.push(MutationType::Set, system::MEMBERS, b"\x01");
    assert_eq!(Members::of_entry(&body(&rows)), Err(ReplicationError::Malformed(String::new())));
}

#[test]
fn what_no_cluster_can_have_is_refused() {
    let twice = |part| {
        let mut members = sample();
        members.nodes[1].address = "a:1".to_owned();
        members.nodes[1].part = part;
        members
    };
    assert_eq!(
        twice(Part::Voter).check(),
        Err(ReplicationError::Invalid(String::new())),
        "two voters at one address"
    );
    assert_eq!(twice(Part::Learner).check(), Ok(()), "a new node in the place of another one");
    let wrong = [
        Members { next_id: 9, ..sample() },
        Members { nodes: Vec::new(), ..sample() },
        Members { nodes: sample().nodes.into_iter().rev().collect(), ..sample() },
        sample().with_address(1, ""),
        sample().enter(&[], &[]),
    ];
    for members in wrong {
        assert_eq!(members.check(), Err(ReplicationError::Invalid(String::new())), "{members:?}");
    }
}

#[test]
fn numbers_are_not_given_twice_and_steps_are_small() {
    let members = sample();
    let gone = members.without_learner(9);
    assert!(members.step_to(&gone).is_some() && gone.step_to(&gone.with_learner("d:4")).is_some());
    let wrong = [
        members.clone(),
        Members { next_id: 9, ..gone.clone() },
        gone.with_learner("d:4").with_learner("e:5"),
        gone.enter(&[1], &[]).leave(),
        gone.with_learner("d:4").enter(&[1, 2, 10], &[]),
    ];
    for next in wrong {
        assert_eq!(gone.step_to(&next), None, "{next:?}");
    }
    let joint = members.enter(&[2, 9], &[1]);
    assert!(members.step_to(&joint).is_some() && joint.is_joint());
    assert_eq!(joint.step_to(&members), None, "there is no way back");
    let after = joint.leave();
    assert!(joint.step_to(&after).is_some());
    assert_eq!((after.voters(), after.part(1), after.next_id), (vec![2, 9], None, 10));
}

#[test]
fn both_majorities_count() {
    let five = Members::of_voters((1..=5).map(|id| (id, format!("h:{id}"))));
    let joint = five.with_learner("h:6").enter(&[1, 2, 6], &[]);
    let met = |ids: &'static [NodeId]| joint.has_majority(|id| ids.contains(&id));
    assert!(met(&[1, 2, 3]) && !met(&[1, 3, 4, 5]) && !met(&[1, 6]) && met(&[1, 6, 4, 3]));
}

#[test]
fn damage_is_never_a_panic() {
    let mut random = Random::new(3);
    for _ in 0..20_000 {
        let mut bytes = sample().encode();
        for _ in 0..=random.index(3) {
            let at = random.index(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        if let Ok(members) = Members::decode(&bytes) {
            assert_eq!(members.encode(), bytes);
        }
    }
}
