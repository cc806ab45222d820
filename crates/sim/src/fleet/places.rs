//! Members that come and go: a disk is lost and its machine comes back as another node, machines
//! are added, votes are taken and given.
//!
//! A disk that is lost counts as one of the machines that a cluster may lose, until all know of the
//! one that has taken its place: no other disk is lost before. A voter that is excluded counts as
//! one from the command on, until it has no vote: no disk is lost meanwhile, and nobody is excluded
//! before the loss of a disk can have been noticed. What can't be done now, because nobody leads,
//! is tried again later.

use super::{Fleet, Machine, Played};
use crate::plan::DIR;
use crate::stage::lock;
use plinth_client::Endpoint;
use plinth_pipeline::Host;
use plinth_pipeline::cluster::Spoken;
use plinth_replication::NodeId;
use plinth_types::system::EXCLUDED_PREFIX;
use plinth_types::{CommitReply, CommitRequest, MutationList, MutationType};
use std::sync::Arc;
use std::time::Duration;

/// How many machines are added at most.
const MORE: usize = 2;
/// How long one attempt to be taken in, or a command, may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often it is attempted when everything works.
const ATTEMPTS: usize = 60;
/// After so long whoever leads knows that nothing is heard of a node any more, whichever clock is
/// slow.
const NOTICED: Duration = Duration::from_millis(1_500);

impl Fleet {
    fn leader(&self) -> Option<Arc<Host>> {
        self.nodes().into_iter().find(|node| node.leadership().is_ready)
    }

    /// Whether a disk may be lost: all nodes are there, and all say the same of who votes, all of
    /// whom are there and none of whom is to have no vote: three at least, or two if it is that of
    /// another one, which may be given a vote at this moment. And no bit of a disk is turned over.
    pub(super) fn may_lose(&self, id: NodeId) -> bool {
        if self.is_damaged() {
            return false;
        }
        let known: Vec<_> = self.nodes().iter().filter_map(|node| node.membership()).collect();
        let Some(first) = known.first().filter(|_| known.len() == self.machines.len()) else {
            return false;
        };
        let is_here = |id: &NodeId| self.machines.iter().any(|machine| machine.id == *id);
        let (members, voters) = (&first.members, first.members.voters());
        let stays = |id: &NodeId| {
            members.node(*id).is_some_and(|node| !self.excluded.contains(&node.address))
        };
        known.iter().all(|other| other.members == *members)
            && !members.is_joint()
            && voters.iter().all(|voter| is_here(voter) && stays(voter))
            && voters.len() >= if voters.contains(&id) { 3 } else { 2 }
    }

    /// The disk of a machine is lost: it comes back as another node, once somebody takes it in.
    pub(super) fn wipe(&mut self, at: usize) -> Played {
        let id = self.machines[at].id;
        if id == 0 || !self.may_lose(id) {
            return Ok(());
        }
        self.stage.probe("disk lost");
        self.lose_disk(at)
    }

    /// The machine goes on with another disk.
    pub(super) fn lose_disk(&mut self, at: usize) -> Played {
        let id = self.machines[at].id;
        self.crash(at);
        self.empty(at);
        self.forget_damage(at);
        self.wires.forget(id);
        self.machines[at].id = 0;
        self.disk_lost = Some(self.sim.now());
        // Who listens there is another one only when nobody has heard of the old one for a while.
        self.sim.run_for(Duration::from_millis(self.random.below(1_500)));
        self.come_back(at)
    }

    fn empty(&mut self, at: usize) {
        let env = self.machines[at].env.clone();
        self.sim.set_faults(&env, plinth_env::simulated::FaultPlan::default());
        let exists = self.sim.run_until(env.files().exists(DIR)).unwrap_or(false);
        if exists {
            let removed = self.sim.run_until(env.files().remove_dir_all(DIR));
            assert_eq!(removed, Ok(()), "a disk without faults can be emptied");
        }
    }

    /// A machine without a disk asks to be taken in. If that can't be now it will be tried again.
    pub(super) fn come_back(&mut self, at: usize) -> Played {
        let Some(leader) = self.leader() else { return Ok(()) };
        let (address, asks) = (self.machines[at].address.clone(), self.stage.env().clone());
        let taken_in = Arc::new(std::sync::Mutex::new(None));
        let place = taken_in.clone();
        let asking = asks.spawn("join", async move {
            let answer = leader.take_in(&address).await;
            *lock(&place) = Some(answer);
        });
        let _ = self.sim.run_until_within(ATTEMPT, asking);
        let Some(Ok(membership)) = lock(&taken_in).take() else { return Ok(()) };
        self.stage.probe("machine taken in");
        self.empty(at);
        self.make(at, &membership)?;
        self.open(at)
    }

    /// Another machine.
    pub(super) fn join(&mut self) -> Played {
        if self.machines.len() >= self.founders + MORE {
            return Ok(());
        }
        let at = self.machines.len();
        self.machines.push(Machine::new(&self.sim, at, 0, Spoken::THIS, self.orders.link));
        self.come_back(at)
    }

    /// A member is to have no vote, or those that are to have none may have one again.
    pub(super) fn leave(&mut self, at: usize) {
        let Some(leader) = self.leader() else { return };
        if self.is_damaged() || self.disk_lost.is_some_and(|lost| self.sim.now() < lost + NOTICED) {
            return;
        }
        let mut mutations = MutationList::new();
        let all = [EXCLUDED_PREFIX, b"\xff"].concat();
        mutations.push(MutationType::ClearRange, EXCLUDED_PREFIX, &all);
        let excluded = self.random.chance(0.6).then(|| self.machines[at].address.clone());
        if let Some(address) = &excluded {
            self.stage.probe("member excluded");
            mutations.push(MutationType::Set, &[EXCLUDED_PREFIX, address.as_bytes()].concat(), b"");
        }
        let request = CommitRequest { mutations, ..CommitRequest::default() };
        let commit = leader.endpoint().commit(request);
        let answer = self.sim.run_until_within(ATTEMPT, commit);
        // What was asked for before, and has an unknown fate, can't come to be behind a commit.
        if let Some(Ok(CommitReply::Committed { .. })) = answer {
            self.excluded.clear();
        }
        self.excluded.extend(excluded);
    }

    /// With everything at work again all machines come back.
    pub(super) fn all_come_back(&mut self) -> Played {
        for _ in 0..ATTEMPTS {
            let Some(at) = self.machines.iter().position(|machine| machine.id == 0) else {
                return Ok(());
            };
            self.come_back(at)?;
            self.sim.run_for(Duration::from_millis(200));
        }
        let lost = self.machines.iter().find(|machine| machine.id == 0);
        match lost {
            Some(machine) => {
                Err(format!("the machine at {} was not taken in", machine.address).into())
            }
            None => Ok(()),
        }
    }
}
