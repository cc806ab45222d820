//! The leader brings the members to what is wanted, one step at a time, and takes new nodes in;
//! every node notices when it is none any more.
//!
//! What is wanted is read from the rows (see `plan.rs`), so it makes no difference who leads by the
//! time that it is done. A step is a transaction of the pipeline's own, which sets the row that
//! says who is a member; in the log it is an entry of its own kind, which consensus acts on when it
//! is committed, as the replica does on its rows.
//!
//! Always: members are changed from those that there are. Who they are is known a while before it
//! is applied, and committed a while before it is known, so each change reads and writes the row,
//! at a version from before it looked: of two that are made of the same members one is committed.
//! So no number is given to two nodes.

use super::membership::Membership;
use super::participant::{Participant, Seen};
use super::plan::{Step, Wish, plan};
use crate::batch::internal_request;
use crate::batch_lock::lock;
use crate::failure::{NodeError, NodeResult};
use crate::supervise::Supervisor;
use plinth_env::sync::race;
use plinth_replication::{Follower, HeldBack, Members, NodeId, Spoken};
use plinth_types::system::CONFIGURATION_PREFIX;
use plinth_types::{
    CommitReply, KeySelector, KeySpace, MutationList, MutationType, RangeRead, Version, planted,
    probe, system,
};
use std::sync::Arc;
use std::time::Duration;

/// How often the leader looks whether anything is to be done.
const PERIOD: Duration = Duration::from_millis(200);
/// Fewer entries than this a node may lack to be given a vote.
const NEAR: u64 = 1000;
/// How often a new node is tried to be taken in while other changes are under way.
const ATTEMPTS: usize = 20;
/// After so long it is told who keeps the protocol from rising: a server that is upgraded is away
/// for a while.
const HELD_BACK: Duration = Duration::from_secs(60);
/// The most bytes of rows that say what is wanted.
const WISH_BYTES: usize = 1 << 20;

/// Why a node serves nothing.
pub(crate) fn removed(node: NodeId) -> NodeError {
    let what = format!(
        "node {node} was removed from its cluster and serves nothing; to have this server take part again, as a new node, start it \
         with an empty directory; `include` its address first if that was excluded as failed, else it is removed again"
    );
    NodeError::Removed(what.into())
}

/// Looks after the members until the node closes.
pub(crate) async fn run(this: Arc<Participant>) {
    let replica = &*this.replica;
    let mut told = Told::default();
    while !this.is_over() {
        if this.membership().is_removed() {
            return this.be_removed();
        }
        lock(&this.seen).stalls.look(&this.standing(), replica.env.now());
        if this.with_moved().is_some()
            && this.ready_leader().is_ok()
            && let Err(error) = tell_moved(&this).await
        {
            crate::events::members_not_changed(&error);
        }
        if this.ready_leader().is_ok() {
            let held_back = this.held_back(&this.standing().members);
            if let Some(told) = told.look(held_back, replica.env.now()) {
                crate::events::protocol_held_back(&told);
            }
            match wish(&this).await.map(|wish| next_step(&this, &wish)) {
                Ok(Step::Become(_)) => {
                    probe!("pipeline: a step to other members");
                    match take_step(&this).await {
                        Ok(true) if this.standing().members.is_joint() => continue,
                        Ok(_) => {}
                        // What can't be now is tried again, a while later, from what is there then.
                        Err(error) => crate::events::members_not_changed(&error),
                    }
                }
                Ok(Step::HandOver) => {
                    probe!("pipeline: a leader that is to have no vote has another one lead");
                    this.hand_over().await;
                }
                // What is wrong with the rows is told wherever rows are read.
                Ok(Step::Nothing) | Err(_) => {}
            }
        }
        race(replica.health.until_over(), replica.env.sleep(PERIOD)).await;
    }
}

/// Commits that a node has another address, if it still has.
async fn tell_moved(this: &Participant) -> NodeResult<()> {
    let at = this.version_before_change().await?;
    let Some(next) = this.with_moved() else { return Ok(()) };
    probe!("pipeline: a node has another address");
    become_members(this, at, &next).await
}

/// Takes the step that is due now; says whether one still was.
async fn take_step(this: &Participant) -> NodeResult<bool> {
    let at = this.version_before_change().await?;
    match next_step(this, &wish(this).await?) {
        Step::Become(members) => become_members(this, at, &members).await.map(|()| true),
        Step::HandOver | Step::Nothing => Ok(false),
    }
}

fn next_step(this: &Participant, wish: &Wish) -> Step {
    let standing = this.standing();
    let is_near = |synced: u64| synced > 0 && synced + NEAR > standing.committed_index;
    let is_ready = |node: NodeId| {
        let known = standing.followers.iter().find(|other| other.node == node);
        known.is_some_and(|other| other.is_active && is_near(other.synced))
    };
    // One that had no time yet to say anything to a new leader may be gone; and one that answers
    // and syncs nothing is no part of a majority.
    let is_here = |node: NodeId| {
        let is_heard = |other: &Follower| other.is_active && is_near(other.synced);
        standing.followers.iter().any(|other| other.node == node && is_heard(other))
    };
    match plan(&standing.members, this.node, wish, is_ready, is_here) {
        Step::Nothing => {
            with_newer_protocol(this, &standing.members).map_or(Step::Nothing, Step::Become)
        }
        step => step,
    }
}

/// The members with the newest protocol that all of them speak, each of which is here and has said
/// so, if that is news. A member that joins meanwhile, and is asked for what it speaks by the
/// others, changes the same row.
fn with_newer_protocol(this: &Participant, members: &Members) -> Option<Members> {
    let ours = this.replica.config.spoken;
    let known = members.nodes.iter().map(|node| this.spoken(node.id));
    let protocol = match planted!("the protocol rises before all members speak it") {
        true => Some(ours.newest),
        false => known.map(|spoken| spoken.map(|spoken| spoken.newest)).min().flatten(),
    };
    protocol.filter(|protocol| *protocol > members.protocol).map(|protocol| {
        probe!("pipeline: the protocol of a cluster rises");
        members.with_protocol(protocol)
    })
}

/// What is wanted, as the rows have it.
async fn wish(this: &Participant) -> NodeResult<Wish> {
    let replica = &*this.replica;
    let end = [CONFIGURATION_PREFIX, b"\xff"].concat();
    let read = RangeRead {
        begin: KeySelector::first_greater_or_equal(CONFIGURATION_PREFIX.to_vec()),
        end: KeySelector::first_greater_or_equal(end),
        limit: usize::MAX,
        target_bytes: WISH_BYTES,
        reverse: false,
    };
    let rows = replica.storage.get_range(replica.newest(), KeySpace::System, &read).await?;
    let mut wish = Wish::default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (key, value) in rows.rows.iter() {
        if key == system::VOTER_COUNT {
            wish.voter_count = text(value).parse().ok();
        } else if key == system::COORDINATORS_WANTED {
            wish.coordinators =
                text(value).split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        } else if let Some(place) = key.strip_prefix(system::EXCLUDED_PREFIX) {
            wish.excluded.push(text(place));
        } else if let Some(place) = key.strip_prefix(system::FAILED_PREFIX) {
            wish.failed.push(text(place));
        }
    }
    Ok(wish)
}

/// Commits that these are the members, if no others have become it above version `at`.
///
/// # Errors
/// `Conflict` or `TooOld` if they may have: what they are has to be looked at again.
async fn become_members(this: &Participant, at: Version, members: &Members) -> NodeResult<()> {
    members.check()?;
    let leader = this.ready_leader()?;
    let mut rows = MutationList::new();
    rows.push(MutationType::Set, system::MEMBERS, &members.encode());
    let mut request = internal_request(rows, at);
    request.conflicts.reads.push_single(system::MEMBERS);
    request.conflicts.writes.push_single(system::MEMBERS);
    // A database that is locked can still lose a machine.
    request.lock_aware = true;
    match leader.queue.submit_members(request).await? {
        CommitReply::Committed { .. } => {
            crate::events::members_changed(members);
            Ok(())
        }
        CommitReply::Conflict { .. } => Err(NodeError::Conflict),
    }
}

/// What has been told of who keeps the protocol from rising.
#[derive(Default)]
struct Told {
    held_back: Option<HeldBack>,
    since: Duration,
    is_told: bool,
}

impl Told {
    /// What is to be told now, once for each reason that has lasted.
    fn look(&mut self, held_back: Option<HeldBack>, now: Duration) -> Option<String> {
        if held_back != self.held_back {
            (self.held_back, self.since, self.is_told) = (held_back, now, false);
        }
        let is_due = !self.is_told && now.saturating_sub(self.since) >= HELD_BACK;
        let told = self.held_back.as_ref().filter(|_| is_due)?;
        self.is_told = true;
        Some(told.to_string())
    }
}

impl Seen {
    /// Notes where a node is, if that is news to these members.
    fn note(&mut self, members: &Members, node: NodeId, address: &str) {
        match members.node(node).filter(|known| known.address != address) {
            Some(known) => {
                self.moved.insert(node, (known.address.clone(), address.to_owned()));
            }
            None => _ = self.moved.remove(&node),
        }
    }
}

impl Participant {
    /// What a node speaks, as far as this one knows.
    fn spoken(&self, node: NodeId) -> Option<Spoken> {
        if node == self.node { Some(self.replica.config.spoken) } else { self.peers().spoken(node) }
    }

    /// Who keeps the protocol of these members from rising, as far as this node knows.
    pub fn held_back(&self, members: &Members) -> Option<HeldBack> {
        HeldBack::find(members, |node| self.spoken(node))
    }

    /// Who follows this node, and has taken nothing for long although it lacks entries.
    pub fn stalled(&self) -> Vec<NodeId> {
        lock(&self.seen).stalls.stalled(self.replica.env.now())
    }

    /// Takes in a new node: see [`crate::Node::take_in`].
    pub async fn take_in(&self, address: &str) -> NodeResult<Membership> {
        let mut refused = NodeError::Behind(None);
        for _ in 0..ATTEMPTS {
            let at = self.version_before_change().await?;
            let members = self.standing().members;
            let id = members.next_id;
            let next = members.with_learner(address);
            if let Some(there) = self.heard_of_at(&members, address) {
                let detail = format!("{address} is the address of node {there}, which is there");
                return Err(NodeError::AddressTaken(detail.into()));
            }
            if !members.is_joint() {
                match become_members(self, at, &next).await {
                    Ok(()) => {
                        probe!("pipeline: a new node is taken in");
                        return Ok(Membership { node: id, ..self.membership() });
                    }
                    Err(error) if error.is_overtaken() => {
                        probe!("pipeline: members have changed while a node was taken in");
                        refused = NodeError::Behind(Some(error.to_string().into()));
                    }
                    Err(error) => return Err(error),
                }
            }
            self.replica.env.sleep(PERIOD / 4).await;
        }
        Err(refused)
    }

    /// A node is somewhere else than it was. That is kept until the members say so: whoever leads,
    /// now or later, has the others told. Where this node is itself holds for as long as it is
    /// open.
    pub fn note_move(&self, node: NodeId, address: &str) {
        let members = self.standing().members;
        let mut seen = lock(&self.seen);
        if node == self.node {
            if planted!("a leader doesn't say where it is") {
                return;
            }
            seen.here = Some(address.to_owned());
        }
        seen.note(&members, node, address);
    }

    /// Where this node is, if it was told.
    pub fn here(&self) -> Option<String> {
        lock(&self.seen).here.clone()
    }

    /// A version of the leader that this node is, from before who is a member is looked at, and
    /// young enough to commit at.
    ///
    /// # Errors
    /// `Behind` if it doesn't lead.
    async fn version_before_change(&self) -> NodeResult<Version> {
        let leader = self.ready_leader()?;
        if leader.is_stale() {
            // Only an entry moves it.
            leader
                .queue
                .submit_own(internal_request(MutationList::new(), self.replica.newest()))
                .await?;
        }
        Ok(self.replica.newest())
    }

    /// The members with a node where it says that it is, if that is news.
    fn with_moved(&self) -> Option<Members> {
        let members = &*self.standing().members;
        if members.is_joint() {
            return None;
        }
        let mut seen = lock(&self.seen);
        // Nobody else tells a node that leads where it is; and what the members said when it was
        // opened may have been of before.
        if let Some(here) = seen.here.clone() {
            seen.note(members, self.node, &here);
        }
        let moved = &mut seen.moved;
        // Whoever was moved meanwhile has been heard of elsewhere, and maybe later.
        moved.retain(|node, (was_at, _)| {
            members.node(*node).is_some_and(|known| known.address == *was_at)
        });
        // Two can't be in one place, and the one that is heard of there is the one that is there.
        let is_free = |address: &str| self.heard_of_at(members, address).is_none();
        let (node, (_, address)) = moved.iter().find(|(_, (_, address))| is_free(address))?;
        Some(members.with_address(*node, address))
    }

    /// The node at an address, unless it is known that nothing was heard of it lately: nobody else
    /// can be there.
    fn heard_of_at(&self, members: &Members, address: &str) -> Option<NodeId> {
        let id = members.at_address(address)?.id;
        let standing = self.standing();
        let is_silent = standing.followers.iter().any(|other| other.node == id && !other.is_active);
        (!is_silent).then_some(id)
    }

    /// It is no member any more: it serves nothing from now on.
    pub fn be_removed(&self) {
        probe!("pipeline: a node was removed");
        self.fail(removed(self.node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reason is told once, and not before it has lasted for a while.
    #[test]
    fn who_holds_the_protocol_back_is_told_once() {
        let one = Members::of_voters([(1, "a:1".to_owned()), (2, "b:2".to_owned())]);
        let spoken = |newest| Some(Spoken { oldest: 1, newest });
        let away = HeldBack::find(&one, |node| if node == 1 { spoken(2) } else { None });
        let older = HeldBack::find(&one, |node| spoken(3 - node as u16));
        assert!(away.is_some() && older.is_some() && away != older);
        let (mut told, second) = (Told::default(), Duration::from_secs(1));
        assert_eq!(told.look(away.clone(), second), None);
        assert_eq!(told.look(None, 30 * second), None, "it came back");
        assert_eq!(told.look(away.clone(), 31 * second), None);
        assert_eq!(told.look(away.clone(), 90 * second), None);
        assert!(told.look(away.clone(), 91 * second).is_some_and(|text| text.contains("b:2")));
        assert_eq!(told.look(away, 200 * second), None);
        assert_eq!(told.look(older.clone(), 201 * second), None);
        assert!(told.look(older, 261 * second).is_some());
    }
}
