//! Committed entries take effect: one task, whoever leads.
//!
//! It reads the log as any consumer does, the newest entries from memory. Clients of the leader
//! that made an entry are told here: their batch has been applied, and so has everything before it.

use super::participant::Participant;
use crate::batch::entry_mutations;
use crate::failure::{NodeError, NodeResult};
use crate::metadata::may_concern;
use crate::replica::Entry;
use crate::supervise::Supervisor;
use plinth_env::sync::{First, race};
use plinth_log::LogError;
use plinth_types::{MutationList, planted};
use std::sync::Arc;

/// Applies committed entries until the member ends, or the node fails.
pub(super) async fn run(this: Arc<Participant>) {
    let mut reader = this.member.view().reader(this.replica.newest() + 1);
    loop {
        let entry = match race(reader.wait(), this.replica.health.until_failed()).await {
            First::Left(Ok(entry)) => entry,
            First::Left(Err(error)) => return ended(&this, error).await,
            First::Right(_) => return,
        };
        if let Err(error) = apply(&this, &entry).await {
            return this.fail(error);
        }
    }
}

/// There are no more entries: the log is broken, or whoever wrote it has closed it, and says why.
async fn ended(this: &Participant, error: LogError) {
    if !matches!(error, LogError::Closed(_)) {
        return this.fail(error.into());
    }
    if let Err(why) = this.member.until(|_| None::<()>).await {
        this.fail_with(why.into());
    }
}

async fn apply(this: &Participant, entry: &plinth_log::Entry) -> NodeResult<()> {
    let (index, version) = (entry.index, entry.version);
    let corrupt =
        |error: NodeError| NodeError::Damaged(format!("log entry {index}: {error}").into());
    let mutations = entry_mutations(&entry.body).map_err(corrupt)?;
    let mutations =
        MutationList::decode(mutations.to_vec()).map_err(|error| corrupt(error.into()))?;
    let touches_metadata = mutations.iter().any(may_concern);
    let replica = &*this.replica;
    let (last, previous) = (replica.newest(), entry.previous);
    assert!(
        last == previous || planted!("versions are used before a majority has them"),
        "entry {index} of version {version} follows {previous}, and {last} was applied last"
    );
    let fired = replica
        .apply(&Entry { at: entry.position(), lists: vec![&mutations], touches_metadata })
        .await?;
    assert_eq!(replica.newest(), version, "what an entry says is shown at its version");
    replica.counters.bytes_written.add(entry.body.len() as u64);
    replica.waiting.reached(version);
    match this.leader().filter(|leader| leader.term_number() == Some(entry.term)) {
        Some(leader) => leader.settle_applied(version, fired).await,
        None => fired.into_iter().for_each(|promise| promise.send(Ok(version))),
    }
    this.applied.change(|applied| {
        assert!(*applied <= version, "version {version} is applied behind {applied}");
        *applied = version;
    });
    Ok(())
}
