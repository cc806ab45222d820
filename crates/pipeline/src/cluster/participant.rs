//! What a member is for as long as its process lives: replica, part in the agreement, and a place
//! for the leader of a term.
//!
//! The place is empty while this node doesn't lead. Reads never look at it; commits and requests
//! for read versions take a handle from it, and are told who leads where it is empty.

use super::giving::{Giver, Giving};
use super::membership::Membership;
use super::posted::Posted;
use super::progress::Progress;
use super::stalls::Stalls;
use crate::batch::internal_request;
use crate::failure::{NodeError, NodeResult};
use crate::leader::Leader;
use crate::replica::Replica;
use crate::supervise::Supervisor;
use plinth_env::sync::race;
use plinth_replication::{Frame, Member, Members, NodeId, Parcel, Peers, Standing};
use plinth_types::{MutationList, Quorum, Version, probe};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a leader that hands over waits for what it has appended to be committed.
const LAST_ANSWERS: Duration = Duration::from_millis(300);
/// How long it waits for another one to lead.
const HAND_OVER: Duration = Duration::from_secs(1);

/// Who leads, as far as a node knows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leadership {
    /// The newest term that it has heard of. It only rises.
    pub term: u64,
    /// Who leads in that term, if it knows.
    pub leader: Option<NodeId>,
    /// Whether that is this node, and it takes commits.
    pub is_ready: bool,
}

/// The leader that this node is, if it is one.
#[derive(Default)]
struct Place {
    leader: Option<Arc<Leader>>,
    is_ready: bool,
}

/// What a node has noticed of others, and was told of itself.
#[derive(Default)]
pub(super) struct Seen {
    /// Who says to be somewhere else than the members say: where those had it then, and where it
    /// is.
    pub moved: BTreeMap<NodeId, (String, String)>,
    /// Where this node is, once it was told.
    pub here: Option<String>,
    /// Whoever takes nothing, while this node leads.
    pub stalls: Stalls,
}

/// A member of a cluster.
pub(crate) struct Participant {
    pub replica: Arc<Replica>,
    pub node: NodeId,
    cluster_id: [u8; 16],
    pub(crate) member: Arc<Member>,
    peers: Arc<dyn Peers>,
    /// What other members ask of this one's rows.
    pub(super) giving: Arc<Giving>,
    /// How far it is with taking rows itself.
    pub progress: Arc<Progress>,
    place: Posted<Place>,
    leadership: Posted<Leadership>,
    /// Everything up to here has been applied.
    pub(super) applied: Posted<Version>,
    pub(super) seen: Mutex<Seen>,
    /// What went wrong when it ended.
    closed: Posted<Option<NodeResult<()>>>,
}

impl Participant {
    pub fn new(
        replica: Arc<Replica>,
        membership: Membership,
        member: Member,
        (peers, progress): (Arc<dyn Peers>, Arc<Progress>),
    ) -> Arc<Self> {
        let applied = Posted::new(replica.newest());
        Arc::new(Self {
            replica,
            node: membership.node,
            cluster_id: membership.cluster_id,
            member: Arc::new(member),
            peers,
            giving: Arc::default(),
            progress,
            place: Posted::default(),
            leadership: Posted::default(),
            applied,
            seen: Mutex::default(),
            closed: Posted::default(),
        })
    }

    /// Who gives others rows of this member's.
    pub(super) fn giver(self: &Arc<Self>) -> Giver {
        let (replica, member) = (self.replica.clone(), self.member.clone());
        let (peers, giving) = (self.peers.clone(), self.giving.clone());
        let this = self.clone();
        let move_version = Box::new(move || this.move_version());
        Giver { move_version, replica, member, peers, giving }
    }

    /// Has the version move if this node leads and nobody commits: what has been committed lately
    /// then comes to be among the rows that can be given to others.
    fn move_version(&self) {
        if let Some(leader) = self.leader().filter(|leader| leader.is_stale()) {
            probe!("pipeline: the version moves for who needs rows");
            let request = internal_request(MutationList::new(), self.replica.newest());
            // Who needs rows asks again, whatever becomes of it.
            leader.queue.submit_own(request).on_complete(|_| ());
        }
    }

    /// The way to other nodes.
    pub(super) fn peers(&self) -> &dyn Peers {
        &*self.peers
    }

    /// A frame of another node has arrived.
    pub fn receive(&self, frame: Frame) {
        self.member.receive(frame);
    }

    /// The same, on a connection that takes an answer back.
    pub fn receive_and_answer(&self, frame: Frame) -> Option<Frame> {
        self.member.receive_and_answer(frame)
    }

    /// A parcel of another node has arrived that is about this one's rows.
    pub fn receive_parcel(&self, parcel: Parcel) {
        self.giving.receive(parcel, self.replica.env.now());
    }

    /// Who leads, as far as this node knows.
    pub fn leadership(&self) -> Leadership {
        self.leadership.with(|known| *known)
    }

    /// Waits until that is something else than this.
    pub async fn until_leadership_other_than(&self, known: Leadership) -> Leadership {
        self.leadership.until(|now| (*now != known).then_some(*now)).await
    }

    /// How it stands in the agreement.
    pub fn standing(&self) -> Standing {
        self.member.standing()
    }

    /// Who this node is, and who the members are now.
    pub fn membership(&self) -> Membership {
        let Standing { members, members_index, .. } = self.standing();
        Membership { cluster_id: self.cluster_id, node: self.node, index: members_index, members }
    }

    /// Waits until other nodes are members than these.
    pub async fn until_members_other_than(&self, known: &Members) -> Arc<Members> {
        let news = self
            .member
            .until(|standing| (*standing.members != *known).then(|| standing.members.clone()));
        match news.await {
            Ok(members) => members,
            Err(_) => std::future::pending().await,
        }
    }

    /// The leader that this node is at the moment, ready or not.
    pub fn leader(&self) -> Option<Arc<Leader>> {
        self.place.with(|place| place.leader.clone())
    }

    /// The leader that this node is, if it takes commits.
    ///
    /// # Errors
    /// `Behind`, naming whoever leads.
    pub fn ready_leader(&self) -> NodeResult<Arc<Leader>> {
        let ready = self.place.with(|place| place.leader.clone().filter(|_| place.is_ready));
        ready.ok_or_else(|| {
            if let Some(cause) = self.replica.health.failure() {
                return cause;
            }
            if self.replica.health.is_closing() {
                return NodeError::Closed(None);
            }
            self.behind()
        })
    }

    /// Who has to agree that this leader still is one, for a version that it gives behind this call
    /// to be one to read at. `None` where it has to be proven here: this node has not applied all
    /// that others may have, its versions are too old, or who votes is changing.
    pub fn quorum(&self, leader: &Leader) -> Option<Quorum> {
        let (quorum, committed) = self.member.quorum()?;
        let is_its_term = leader.term_number() == Some(quorum.term);
        let has_all = committed <= self.replica.newest();
        (is_its_term && has_all && !leader.is_stale()).then_some(quorum)
    }

    /// What whoever wants a leader is told by a node that is none. Nothing has been done then.
    pub(super) fn behind(&self) -> NodeError {
        let Leadership { term, leader, .. } = self.leadership();
        let us = self.node;
        let detail = match leader {
            Some(leader) if leader != us => {
                format!("node {us} doesn't lead: leader is node {leader} in term {term}")
            }
            _ => format!("node {us} doesn't lead: leader is unknown in term {term}"),
        };
        NodeError::Behind(Some(detail.into()))
    }

    pub(super) fn put(&self, leader: Option<Arc<Leader>>) {
        self.place.change(|place| {
            assert!(
                leader.is_none() || place.leader.is_none(),
                "a node leads for a term at a time"
            );
            *place = Place { leader, is_ready: false };
        });
        self.leadership.change(|known| known.is_ready = false);
    }

    /// The leader takes commits from now on.
    pub(super) fn open(&self, term: u64) {
        self.place.change(|place| {
            assert!(place.leader.is_some(), "term {term} is opened and nobody leads");
            place.is_ready = true;
        });
        self.leadership.change(|known| {
            *known = Leadership { term, leader: Some(self.node), is_ready: true };
        });
    }

    /// Gives the part of the leader to another node, if this one has it. What was appended is
    /// answered before, what wasn't may be sent again.
    pub async fn hand_over(&self) {
        let Some(leader) = self.leader() else { return };
        probe!("pipeline: a leader hands over");
        leader.retire(&self.behind());
        let env = &self.replica.env;
        let answered = self.applied.until(|_| leader.in_flight.is_empty().then_some(()));
        race(answered, env.sleep(LAST_ANSWERS)).await;
        self.member.hand_over();
        let gone = self.member.until(|standing| standing.leads.is_none().then_some(()));
        race(gone, env.sleep(HAND_OVER)).await;
        leader.resign(&self.behind());
    }

    /// It takes no more part.
    pub(super) async fn end(&self) {
        let closed = match self.member.check() {
            Ok(()) => self.member.close().await,
            Err(ended) => Err(ended),
        };
        let closed = closed.map_err(NodeError::from);
        self.closed.change(|told| {
            told.get_or_insert(closed);
        });
    }

    /// The part in the agreement has ended, for this reason: unless the node is about to end
    /// anyhow, that is why it fails. Whoever notices first says so, and not that its own work is
    /// left undone.
    pub(super) fn fail_with(&self, why: NodeError) {
        if !self.is_over() {
            self.fail(why);
        }
    }

    /// Waits until everything up to this version has been applied.
    pub async fn until_applied(&self, version: Version) {
        self.applied.until(|applied| (*applied >= version).then_some(())).await;
    }

    /// Waits until it takes no more part.
    pub async fn until_ended(&self) -> NodeResult<()> {
        self.closed.until(Option::clone).await
    }
}

impl Supervisor for Participant {
    fn replica(&self) -> &Replica {
        &self.replica
    }

    fn is_over(&self) -> bool {
        self.replica.health.is_over()
    }

    fn fail(&self, cause: NodeError) {
        match self.leader() {
            Some(leader) => leader.fail(cause),
            None => self.replica.health.fail(cause),
        }
    }
}

/// Tells who leads, until the member ends.
pub(super) async fn follow_leadership(this: Arc<Participant>) {
    let mut known = Leadership::default();
    let hears = |leader: Option<NodeId>| {
        let is_another = leader != Some(this.node);
        this.replica.health.set_leader(leader.is_some(), is_another, this.replica.env.now());
    };
    hears(this.standing().leader);
    loop {
        let news = this.member.until(|standing| {
            let is_news = (standing.term, standing.leader) != (known.term, known.leader);
            is_news.then_some((standing.term, standing.leader))
        });
        let (term, leader) = match news.await {
            Ok(news) => news,
            Err(why) => return this.fail_with(why.into()),
        };
        hears(leader);
        known = this.leadership.change(|now| {
            let is_ready = now.is_ready && now.term == term && leader == now.leader;
            *now = Leadership { term, leader, is_ready };
            *now
        });
        crate::events::leadership(this.node, term, leader);
    }
}
