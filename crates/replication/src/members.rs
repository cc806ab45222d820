//! Who is a member of the cluster: each node with its address, and what part it has.
//!
//! It lies in the log, as the value of one row of an entry of a kind of its own, whole after each
//! change. So whoever reads rows and whoever counts votes have it from the same bytes. It takes
//! effect where that entry is committed, on every node alike.
//!
//! ```text
//!   stable           learners and voters                             | enter: each with the part that it will have
//!   joint            both majorities count, that of before and that of after
//!                                                                    | leave: those that went are gone
//!   stable           the voters of after
//! ```
//!
//! Always: each node has a number of its own, below the next one to be given, and an address of its
//! own unless it takes another one's place; there is a voter before and after. Changes of voters go
//! through a joint state; learners come and go one at a time.

use crate::failure::{ReplicationError, ReplicationResult};
use plinth_log::sections;
use plinth_types::{Bytes, Error, MutationList, MutationType, system};
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState,
};

use crate::NodeId;

/// The most members that a cluster may have.
pub const MAX_MEMBERS: usize = 64;
/// The most voters.
pub const MAX_VOTERS: usize = 15;
/// The most bytes of an address.
pub const MAX_ADDRESS: usize = 255;

/// The protocol that a cluster begins with.
const FIRST_PROTOCOL: u16 = 1;
/// The format of a row that names no protocol: it is that one.
const FIRST_FORMAT: u8 = 1;
const FORMAT: u8 = 2;

/// What part a node has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Part {
    /// It follows.
    Learner = 0,
    /// It votes.
    Voter = 1,
    /// It votes in what comes, and did not before.
    Coming = 2,
    /// It votes in what was, and is no member in what comes.
    Going = 3,
    /// It votes in what was, and follows in what comes.
    Yielding = 4,
}

impl Part {
    const ALL: [Self; 5] = [Self::Learner, Self::Voter, Self::Coming, Self::Going, Self::Yielding];

    /// Whether a node with it votes, before or after.
    pub fn votes(self) -> bool {
        self != Self::Learner
    }

    /// Whether a node with it votes in what comes.
    pub fn stays(self) -> bool {
        matches!(self, Self::Voter | Self::Coming)
    }

    fn is_joint(self) -> bool {
        matches!(self, Self::Coming | Self::Going | Self::Yielding)
    }
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberNode {
    /// Its number, which is never used again.
    pub id: NodeId,
    /// What part it has.
    pub part: Part,
    /// Where other nodes and clients reach it, as `ip:port`; may change.
    pub address: String,
}

/// Who is a member; by default nobody.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// The number that the next new node gets.
    pub next_id: NodeId,
    /// The version of the protocol that all of them speak, so that whatever is written may be as it
    /// says: see [`Spoken`](crate::Spoken).
    pub protocol: u16,
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<MemberNode>,
}

impl Default for Members {
    fn default() -> Self {
        Self { next_id: 0, protocol: FIRST_PROTOCOL, nodes: Vec::new() }
    }
}

impl Members {
    /// Voters at these addresses.
    pub fn of_voters(voters: impl IntoIterator<Item = (NodeId, String)>) -> Self {
        let node = |(id, address)| MemberNode { id, part: Part::Voter, address };
        let mut nodes: Vec<_> = voters.into_iter().map(node).collect();
        nodes.sort_by_key(|node| node.id);
        let next_id = nodes.last().map_or(1, |node| node.id + 1);
        Self { next_id, nodes, ..Self::default() }
    }

    /// What is known of a node.
    pub fn node(&self, id: NodeId) -> Option<&MemberNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The newest node at an address: an older one there has lost its place.
    pub fn at_address(&self, address: &str) -> Option<&MemberNode> {
        self.nodes.iter().rev().find(|node| node.address == address)
    }

    /// The part of a node; `None` if it is no member.
    pub fn part(&self, id: NodeId) -> Option<Part> {
        self.node(id).map(|node| node.part)
    }

    fn ids(&self, wanted: impl Fn(Part) -> bool) -> Vec<NodeId> {
        self.nodes.iter().filter(|node| wanted(node.part)).map(|node| node.id).collect()
    }

    /// Who votes once a change that is under way is over.
    pub fn voters(&self) -> Vec<NodeId> {
        self.ids(Part::stays)
    }

    /// Who votes, before or after.
    pub fn all_voters(&self) -> Vec<NodeId> {
        self.ids(Part::votes)
    }

    /// Whether a change of voters is under way.
    pub fn is_joint(&self) -> bool {
        self.nodes.iter().any(|node| node.part.is_joint())
    }

    /// Whether so many of these nodes as count are among `wanted`: a majority of what was, and one
    /// of what comes.
    pub fn has_majority(&self, wanted: impl Fn(NodeId) -> bool) -> bool {
        // Asked for each answer to a proof of leadership, so it allocates nothing.
        let is_met = |votes: fn(Part) -> bool| {
            let voters = self.nodes.iter().filter(|node| votes(node.part));
            let (met, all) = voters
                .fold((0, 0), |(met, all), node| (met + usize::from(wanted(node.id)), all + 1));
            all == 0 || met * 2 > all
        };
        is_met(Part::stays)
            && is_met(|part| matches!(part, Part::Voter | Part::Going | Part::Yielding))
    }

    /// With a new node that follows.
    pub fn with_learner(&self, address: &str) -> Self {
        let mut next = self.clone();
        let node =
            MemberNode { id: self.next_id, part: Part::Learner, address: address.to_owned() };
        next.nodes.push(node);
        next.next_id += 1;
        next
    }

    /// Without a node that follows.
    pub fn without_learner(&self, id: NodeId) -> Self {
        let is_it = |node: &MemberNode| node.id == id && node.part == Part::Learner;
        let nodes = self.nodes.iter().filter(|node| !is_it(node)).cloned().collect();
        Self { nodes, ..self.clone() }
    }

    /// With another address for a node.
    pub fn with_address(&self, id: NodeId, address: &str) -> Self {
        let mut next = self.clone();
        next.nodes
            .iter_mut()
            .filter(|node| node.id == id)
            .for_each(|node| address.clone_into(&mut node.address));
        next
    }

    /// The same, who speak this version of the protocol all.
    pub fn with_protocol(&self, protocol: u16) -> Self {
        Self { protocol, ..self.clone() }
    }

    /// The joint state on the way to these voters; of those that vote no longer, `gone` are no
    /// members then, the others follow.
    pub fn enter(&self, voters: &[NodeId], gone: &[NodeId]) -> Self {
        let mut next = self.clone();
        for node in &mut next.nodes {
            node.part = match (node.part, voters.contains(&node.id)) {
                (Part::Learner, true) => Part::Coming,
                (Part::Voter, false) if gone.contains(&node.id) => Part::Going,
                (Part::Voter, false) => Part::Yielding,
                (part, _) => part,
            };
        }
        next
    }

    /// The state behind a joint one.
    pub fn leave(&self) -> Self {
        let mut next = self.clone();
        next.nodes.retain(|node| node.part != Part::Going);
        for node in &mut next.nodes {
            node.part = match node.part {
                Part::Coming => Part::Voter,
                Part::Yielding => Part::Learner,
                part => part,
            };
        }
        next
    }

    /// Whether these can be the members of a cluster.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong.
    pub fn check(&self) -> ReplicationResult<()> {
        let refuse = |what: String| Err(ReplicationError::Invalid(what));
        let ids = self.ids(|_| true);
        if ids.first().is_some_and(|first| *first == 0) || !ids.is_sorted_by(|one, next| one < next)
        {
            return refuse(format!(
                "members {ids:?}: each needs a number of its own, from 1, in order"
            ));
        }
        if ids.last().is_some_and(|last| *last >= self.next_id) {
            return refuse(format!("members {ids:?}, and the next to come is {}", self.next_id));
        }
        let before = self.ids(|part| matches!(part, Part::Voter | Part::Going | Part::Yielding));
        if self.voters().is_empty() || before.is_empty() {
            return refuse("no voter: a cluster has one at least".to_owned());
        }
        if ids.len() > MAX_MEMBERS || self.voters().len() > MAX_VOTERS || before.len() > MAX_VOTERS
        {
            return refuse(format!(
                "{} members, {} of them voters; there may be {MAX_MEMBERS} and {MAX_VOTERS}",
                ids.len(),
                self.voters().len().max(before.len())
            ));
        }
        for (at, MemberNode { id, part, address }) in self.nodes.iter().enumerate() {
            if address.is_empty() || address.len() > MAX_ADDRESS {
                return refuse(format!("the address of node {id} has {} bytes", address.len()));
            }
            let mut earlier = self.nodes[..at].iter().filter(|other| other.address == *address);
            if let Some(other) = earlier.find(|other| other.part.stays() && part.stays()) {
                return refuse(format!(
                    "nodes {} and {id} have the same address {address}",
                    other.id
                ));
            }
        }
        Ok(())
    }

    /// How `raft` gets from these members to `next`; `None` if there is no such step.
    pub(crate) fn step_to(&self, next: &Self) -> Option<ConfChangeV2> {
        next.check().ok()?;
        let is_new = |node: &&MemberNode| self.part(node.id).is_none();
        let mut new = next.nodes.iter().filter(is_new);
        if next.next_id < self.next_id
            || next.protocol < self.protocol
            || new.any(|node| node.id < self.next_id || node.part != Part::Learner)
        {
            return None;
        }
        let parts = |members: &Self| {
            members.nodes.iter().map(|node| (node.id, node.part)).collect::<Vec<_>>()
        };
        let mut change = ConfChangeV2::default();
        let mut add = |kind: ConfChangeType, id: NodeId| {
            let mut single = ConfChangeSingle { node_id: id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            change.mut_changes().push(single);
        };
        match (self.is_joint(), next.is_joint()) {
            (true, false) if parts(&self.leave()) == parts(next) => {}
            (false, true) => {
                let gone = next.ids(|part| part == Part::Going);
                if parts(&self.enter(&next.voters(), &gone)) != parts(next) {
                    return None;
                }
                for node in &next.nodes {
                    match node.part {
                        Part::Coming => add(ConfChangeType::AddNode, node.id),
                        Part::Going => add(ConfChangeType::RemoveNode, node.id),
                        Part::Yielding => add(ConfChangeType::AddLearnerNode, node.id),
                        Part::Learner | Part::Voter => {}
                    }
                }
                change.set_transition(ConfChangeTransition::Explicit);
            }
            (false, false) if self.voters() == next.voters() => {
                let (learners, after) =
                    (self.ids(|part| !part.votes()), next.ids(|part| !part.votes()));
                let added = after.iter().filter(|id| !learners.contains(id));
                added.for_each(|id| add(ConfChangeType::AddLearnerNode, *id));
                let removed = learners.iter().filter(|id| !after.contains(id));
                removed.for_each(|id| add(ConfChangeType::RemoveNode, *id));
                match change.get_changes().len() {
                    // A change without any would end a joint state.
                    0 => add_again(&mut change, *self.voters().first()?),
                    1 => {}
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(change)
    }

    /// As `raft` keeps it.
    pub(crate) fn conf_state(&self) -> ConfState {
        let mut state = ConfState::from((self.voters(), self.ids(|part| part == Part::Learner)));
        if self.is_joint() {
            state.set_voters_outgoing(
                self.ids(|part| matches!(part, Part::Voter | Part::Going | Part::Yielding)),
            );
            state.set_learners_next(self.ids(|part| part == Part::Yielding));
        }
        state
    }

    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.protocol == FIRST_PROTOCOL {
            // Who speaks that alone knows no other format.
            bytes.push(FIRST_FORMAT);
        } else {
            bytes.push(FORMAT);
            bytes.extend_from_slice(&self.protocol.to_le_bytes());
        }
        bytes.extend_from_slice(&self.next_id.to_le_bytes());
        bytes.push(self.nodes.len() as u8);
        for MemberNode { id, part, address } in &self.nodes {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&[*part as u8, address.len() as u8]);
            bytes.extend_from_slice(address.as_bytes());
        }
        bytes
    }

    /// Reads the row's value.
    ///
    /// # Errors
    /// `Malformed` if these bytes are none, or none that can be the members of a cluster.
    pub fn decode(bytes: &[u8]) -> ReplicationResult<Self> {
        let corrupt =
            |what: String| ReplicationError::Malformed(format!("members of a cluster: {what}"));
        if let Some(format) = bytes.first().filter(|format| **format > FORMAT) {
            let detail = format!(
                "members of a cluster: format {format}, newer than the {FORMAT} that this program reads; open it with a newer Plinth"
            );
            return Err(ReplicationError::NewerFormat(detail));
        }
        let found =
            parse(bytes).ok_or_else(|| corrupt(format!("{} bytes that are none", bytes.len())))?;
        found.check().map_err(|error| corrupt(error.detail().to_owned()))?;
        Ok(found)
    }

    /// The members that an entry of that kind brings: the body has a row of them.
    ///
    /// # Errors
    /// `Malformed` if it has none, or what isn't one.
    pub fn of_entry(body: &Bytes) -> ReplicationResult<Self> {
        let malformed = |error: Error| {
            ReplicationError::Malformed(error.detail().unwrap_or_default().to_owned())
        };
        let mut found = None;
        for (_, mutations) in sections(body).map_err(|error| malformed(error.into()))? {
            for mutation in &MutationList::decode(mutations.to_vec()).map_err(malformed)? {
                if mutation.kind == MutationType::Set && mutation.param1 == system::MEMBERS {
                    found = Some(Self::decode(mutation.param2)?);
                }
            }
        }
        found.ok_or_else(|| {
            ReplicationError::Malformed("an entry with members that has none".into())
        })
    }
}

/// What changes nothing.
fn add_again(change: &mut ConfChangeV2, voter: NodeId) {
    let mut single = ConfChangeSingle { node_id: voter, ..ConfChangeSingle::default() };
    single.set_change_type(ConfChangeType::AddNode);
    change.mut_changes().push(single);
}

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn parse(bytes: &[u8]) -> Option<Members> {
    let mut rest = bytes;
    let protocol = match take(&mut rest)? {
        [FIRST_FORMAT] => FIRST_PROTOCOL,
        [FORMAT] => Some(u16::from_le_bytes(take(&mut rest)?))
            .filter(|protocol| *protocol > FIRST_PROTOCOL)?,
        _ => return None,
    };
    let next_id = u64::from_le_bytes(take(&mut rest)?);
    let [count] = take(&mut rest)?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        let id = u64::from_le_bytes(take(&mut rest)?);
        let [part, len] = take(&mut rest)?;
        let part = Part::ALL.into_iter().find(|known| *known as u8 == part)?;
        let (address, tail) = rest.split_at_checked(usize::from(len))?;
        rest = tail;
        nodes.push(MemberNode { id, part, address: std::str::from_utf8(address).ok()?.to_owned() });
    }
    rest.is_empty().then_some(Members { next_id, protocol, nodes })
}

#[cfg(test)]
mod tests;
