//! The terms in which this node leads: each has a leader of its own, from its first entry to its
//! last answer.
//!
//! ```text
//!   an entry of term T is committed ─▶ everything before it is applied ─▶ versions: far ahead of all that was ever
//!   seen ─▶ a leader, whose resolver knows nothing ─▶ its first entry is committed and applied ─▶ ready
//!   ─▶ T is over, or the node is ─▶ it resigns ─▶ its tasks end ─▶ the place is free
//! ```
//!
//! Nothing that was read before its first version can commit in its term: it is older than the
//! window. So the resolver need not know what was written before.

use super::participant::Participant;
use crate::batch::internal_request;
use crate::beginning::{first_rows, new_resolver};
use crate::failure::NodeError;
use crate::leader::{Batcher, Leader};
use crate::proof::Prover;
use crate::replica::Replica;
use crate::sequencer::Sequencer;
use crate::supervise::{self, Supervisor};
use crate::versions::Versions;
use plinth_env::reply::{Promise, Reply, Unanswered};
use plinth_env::sync::{First, race};
use plinth_log::{CommitLog, LogError, LogResult};
use plinth_replication::{Member, ReplicatedLog};
use plinth_types::{MutationList, Version, planted, probe};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// After a term that could not be begun, the disk being full say, it is left to others for so long.
const PAUSE: Duration = Duration::from_millis(200);

/// Leads whenever this node is to, until it closes or fails.
pub(super) async fn run(this: Arc<Participant>) {
    let health = &this.replica.health;
    while !health.is_over() {
        match race(health.until_over(), this.member.until_leads()).await {
            First::Left(()) => break,
            First::Right(Ok(log)) => lead(&this, log).await,
            First::Right(Err(ended)) => {
                this.fail(ended.into());
                break;
            }
        }
    }
    this.end().await;
}

/// Leads for a term.
async fn lead(this: &Arc<Participant>, log: ReplicatedLog) {
    let term = log.term();
    let before = this.member.view().committed().version;
    let is_applied = this.applied.until(|applied| (*applied >= before).then_some(()));
    if let First::Left(()) = race(until_over(this, term), is_applied).await {
        return;
    }
    assert!(this.replica.newest() >= before, "a leader has applied everything of former terms");
    let (leader, first) = begin(this, log, before);
    let tasks = supervise::lead(&leader);
    this.put(Some(leader.clone()));
    let over = async {
        race(until_over(this, term), leader.until_over()).await;
    };
    let mut over = std::pin::pin!(over);
    let is_new = before == 0;
    let rows = if is_new {
        first_rows(&this.replica.config, Some(&this.standing().members))
    } else {
        MutationList::new()
    };
    let begun = match is_new {
        true => leader.queue.submit_members(internal_request(rows, first)),
        false => leader.queue.submit_own(internal_request(rows, first)),
    };
    match race(&mut over, begun).await {
        First::Right(Ok(_)) => {
            this.open(term);
            crate::events::leads(this.node, term, this.replica.newest());
            over.await;
        }
        First::Right(Err(error)) => {
            probe!("pipeline: a term could not be begun");
            crate::events::could_not_lead(term, &error);
            this.member.hand_over();
            race(over, this.replica.env.sleep(PAUSE)).await;
        }
        First::Left(()) => {}
    }
    end(this, &leader).await;
    for task in tasks {
        // One that panicked has failed the node.
        let _ = task.await;
    }
    this.put(None);
}

/// A leader on the log of this term, and the version that it begins with.
fn begin(this: &Arc<Participant>, log: ReplicatedLog, before: Version) -> (Arc<Leader>, Version) {
    let replica = &this.replica;
    let now = replica.env.now();
    let seen = before.max(this.member.last_lease());
    let is_jump_forgotten = planted!("a term goes on right behind the last version");
    let sequencer = match before {
        0 => Sequencer::starting_at(1, now),
        _ if is_jump_forgotten => Sequencer::starting_at(before + 1, now),
        // Neither lease nor jump hides that somebody has seen versions that no majority has.
        _ if planted!("versions are used before a majority has them") => {
            Sequencer::starting_at(before.max(replica.newest()) + 1, now)
        }
        _ => Sequencer::after_restart(seen, now),
    };
    let first = sequencer.newest();
    assert!(first > before || before == 0, "a term begins at {first}, {before} is committed");
    let oldest = if is_jump_forgotten { first - replica.config.window } else { first };
    let resolver = new_resolver(&replica.env, oldest, &replica.config);
    let term = log.term();
    let batcher =
        Batcher { log: Some(Box::new(log)), resolver, metadata: replica.visible.metadata() };
    let leader = Arc::new_cyclic(|leader: &Weak<Leader>| {
        let (member, replica) = (this.member.clone(), replica.clone());
        let prover = Proof { member, replica, leader: leader.clone() };
        Leader::begin(
            this.replica.clone(),
            batcher,
            Versions::moved_by_entries(sequencer),
            Some((term, Box::new(prover))),
        )
    });
    (leader, first)
}

/// Waits until this term is over, or the node.
async fn until_over(this: &Participant, term: u64) {
    let is_over = this.member.until(|standing| (standing.leads != Some(term)).then_some(()));
    race(this.replica.health.until_over(), is_over).await;
}

/// Ends a term. A node that closes brings to their end what it has taken, if it can.
async fn end(this: &Participant, leader: &Leader) {
    let replica = &this.replica;
    if replica.health.is_closing() && replica.health.failure().is_none() {
        leader.queue.close();
        let is_answered = || {
            leader.queue.depth().0 == 0 && leader.in_flight.is_empty() && leader.batcher.is_free()
        };
        let answered = async {
            while !is_answered() {
                race(
                    this.applied.until(|_| is_answered().then_some(())),
                    replica.env.sleep(PAUSE / 10),
                )
                .await;
            }
        };
        let lost =
            this.member.until(|standing| (standing.leads != leader.term_number()).then_some(()));
        race(answered, race(lost, replica.env.sleep(10 * PAUSE))).await;
        leader.resign(&NodeError::Closed(None));
    }
    leader.resign(&this.behind());
}

/// What proves that this node leads.
struct Proof {
    member: Arc<Member>,
    replica: Arc<Replica>,
    leader: Weak<Leader>,
}

impl Prover for Proof {
    fn prove(&self) -> Reply<(), NodeError> {
        let (member, replica) = (self.member.clone(), self.replica.clone());
        if planted!("read versions are not proven") {
            return Reply::ready(Ok(()));
        }
        let (done, reply) = Promise::pair();
        match self.leader.upgrade().filter(|leader| leader.is_stale()) {
            None => prove(&member, &replica).on_complete(move |proven| done.send(proven)),
            // An entry of this term that is committed after the request came proves as much, and
            // moves the version.
            Some(leader) => {
                let request = internal_request(MutationList::new(), self.replica.newest());
                leader.queue.submit_own(request).on_complete(move |moved| {
                    probe!("pipeline: an entry moves the version that reads are at");
                    match moved {
                        Ok(_) => done.send(Ok(())),
                        Err(_)
                            if planted!("who waits for a proof is answered when a term ends") =>
                        {
                            done.send(Ok(()));
                        }
                        // On a full disk, say: reads go on at the version that there is.
                        Err(_) => {
                            prove(&member, &replica).on_complete(move |proven| done.send(proven))
                        }
                    }
                });
            }
        }
        reply
    }
}

/// Ready when a majority has said that this node leads, and what was committed then has been
/// applied.
fn prove(member: &Member, replica: &Arc<Replica>) -> Reply<(), NodeError> {
    let (done, reply) = Promise::pair();
    let replica = replica.clone();
    member.prove().on_complete(move |proven: LogResult<Version>| match proven {
        Ok(version) if version <= replica.newest() => done.send(Ok(())),
        Ok(version) => {
            let applied = replica.waiting.wait(&replica.env, version, || replica.newest());
            applied.on_complete(move |applied| done.send(applied));
        }
        Err(_) if planted!("who waits for a proof is answered when a term ends") => {
            done.send(Ok(()))
        }
        Err(LogError::Unanswered(Unanswered::Broken)) => done.send(Err(NodeError::Behind(None))),
        Err(error) => done.send(Err(error.into())),
    });
    reply
}
