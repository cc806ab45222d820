//! Proofs of leadership between threads: [`Proving`], and who waits for what.
//!
//! The member's task publishes how the node stands; threads that take requests ask, those that take
//! frames answer and count. Nothing is sent, and nobody is answered, under the lock.

use crate::NodeId;
use crate::core::Config;
use crate::members::Members;
use crate::message::Message;
use crate::peers::{Frame, Peers};
use crate::proving::{Proving, Taken};
use crate::stand::{Role, Stand};
use plinth_env::reply::{Promise, Reply};
use plinth_log::{LocalView, LogError};
use plinth_types::{Quorum, Standing, Version, probe};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Proofs that are asked for on a node, and the answers that it gives others.
pub(crate) struct Proofs {
    us: NodeId,
    state: Mutex<State>,
    peers: Arc<dyn Peers>,
    view: LocalView,
}

struct State {
    proving: Proving,
    /// Who waits, by the number of the round.
    waiting: BTreeMap<u64, Promise<Version, LogError>>,
    /// Rounds that are proven: whoever waits for one is answered once entries are committed here up
    /// to this index.
    proven: BTreeMap<u64, u64>,
    /// Why the node takes no more part.
    ended: Option<LogError>,
}

impl Proofs {
    pub(crate) fn new(
        config: &Config,
        stand: Stand,
        members: Arc<Members>,
        peers: Arc<dyn Peers>,
        view: LocalView,
    ) -> Arc<Self> {
        #[cfg_attr(
            not(feature = "planted-bugs"),
            expect(unused_mut, reason = "a bug is planted below")
        )]
        let mut proving = Proving::new(config.id, stand, members);
        #[cfg(feature = "planted-bugs")]
        proving.plant(config.planted);
        let (waiting, proven) = (BTreeMap::new(), BTreeMap::new());
        let state = Mutex::new(State { proving, waiting, proven, ended: None });
        Arc::new(Self { us: config.id, state, peers, view })
    }

    /// Ready when it is proven that this node led after the call: the version up to which entries
    /// are committed.
    pub(crate) fn ask(&self) -> Reply<Version, LogError> {
        let (promise, reply) = Promise::pair();
        let asked = {
            let mut state = self.lock();
            if let Some(ended) = &state.ended {
                return Reply::ready(Err(ended.clone()));
            }
            let Some((number, messages)) = state.proving.ask() else {
                return Reply::ready(Err(not_leading()));
            };
            state.waiting.insert(number, promise);
            messages
        };
        // Where nobody else votes it is proven already.
        if asked.is_empty() {
            self.settle();
        }
        self.send(asked);
        reply
    }

    /// Who has to agree that this node leads, for whoever asks them itself, and up to which version
    /// entries are committed here. `None` where it is for this node to prove: it doesn't lead, has
    /// not synced all that others may have applied, or who votes is changing.
    pub(crate) fn quorum(&self) -> Option<(Quorum, Version)> {
        let state = self.lock();
        let stand = state.proving.published();
        let index = stand.committed.filter(|_| stand.role == Role::Leader)?;
        let members = state.proving.members();
        // Two majorities count while that is changing.
        let voters = (!members.is_joint()).then(|| members.voters())?;
        let committed = self.view.committed();
        let has_all = committed.position.entry(committed.version).index >= index;
        let quorum = Quorum { term: stand.term, leader: self.us, voters };
        (has_all && state.ended.is_none()).then_some((quorum, committed.version))
    }

    /// Whom this node follows: it has given nobody its vote for a later term.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let state = self.lock();
        let Stand { term, role, .. } = state.proving.published();
        let follows = match role {
            Role::Follower(leader) => leader,
            Role::Leader | Role::Candidate => None,
        };
        state.ended.is_none().then_some(Standing { node: self.us, term, follows })
    }

    /// Takes a message that is part of a proof.
    pub(crate) fn receive(&self, message: &Message) -> Taken {
        let taken = {
            let mut state = self.lock();
            if state.ended.is_some() { Taken::No } else { state.proving.receive(message) }
        };
        if taken == Taken::Counted {
            self.settle();
        }
        taken
    }

    /// The node stands so now: to be called before it sends anything that comes of that.
    pub(crate) fn stand(&self, stand: Stand) {
        let lost = {
            let mut state = self.lock();
            let is_lost = state.proving.stand(stand);
            if is_lost || stand.committed.is_none() {
                state.proven.clear();
                std::mem::take(&mut state.waiting)
            } else {
                BTreeMap::new()
            }
        };
        lost.into_values().for_each(|promise| promise.send(Err(not_leading())));
    }

    pub(crate) fn change_members(&self, members: &Arc<Members>) {
        self.lock().proving.change_members(members.clone());
        // Fewer may be enough now.
        self.settle();
    }

    pub(crate) fn tick(&self) {
        let asked = self.lock().proving.tick();
        self.send(asked);
    }

    /// Answers those whose proofs are there, as far as entries are committed here: another node may
    /// have applied what was committed when a proof was asked for, before it is synced on this one.
    /// Whoever saw that there is to see it here.
    pub(crate) fn settle(&self) {
        let (committed, mut answered);
        {
            let mut state = self.lock();
            // Under the lock: a commit after this look has its own call behind it, which finds what
            // is proven here.
            committed = self.view.committed();
            answered = BTreeMap::new();
            while let Some((number, index)) = state.proving.proven() {
                state.proven.insert(number, index);
            }
            let upto = committed.position.entry(committed.version).index;
            let is_applied = |index: &u64| *index <= upto;
            while let Some(first) =
                state.proven.first_entry().filter(|first| is_applied(first.get()))
            {
                let (number, _) = first.remove_entry();
                let later = state.waiting.split_off(&(number + 1));
                answered.append(&mut std::mem::replace(&mut state.waiting, later));
            }
            if !state.proven.is_empty() {
                probe!("replication: a proof waits for a sync of this node");
            }
        }
        answered.into_values().for_each(|promise| promise.send(Ok(committed.version)));
    }

    /// The node takes no more part.
    pub(crate) fn end(&self, cause: &LogError) {
        let waiting = {
            let mut state = self.lock();
            state.ended.get_or_insert_with(|| cause.clone());
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(|promise| promise.send(Err(cause.clone())));
    }

    fn send(&self, messages: Vec<Message>) {
        messages.into_iter().for_each(|message| self.peers.send(Frame::new(message, Vec::new())));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn not_leading() -> LogError {
    LogError::Behind("this node doesn't lead in that term, or no longer".into())
}
