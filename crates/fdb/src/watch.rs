//! A watch on a value that the client remembers.
//!
//! The library's watches compare with what their own transaction reads. So one reads the value
//! first: if it is another already the watch fires at once; otherwise the library watches that same
//! value from there on, and no change is missed. The read is at a version not older than any commit
//! acknowledged before, the client's own among them.

use crate::native::{Cancel, Database, Transaction, option};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_types::{Bytes, Error, Result, Version, system};
use std::sync::{Arc, Mutex, PoisonError};

/// What is to be cancelled when the reply is given up.
enum Stage {
    Reading(Arc<Transaction>),
    Watching(Cancel),
    Over,
}

type Progress = Arc<Mutex<Stage>>;

/// Moves on to the next stage. Gives false if the reply has been given up.
fn advance(progress: &Progress, next: Stage) -> bool {
    let mut stage = progress.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*stage, Stage::Over) {
        return false;
    }
    *stage = next;
    true
}

fn give_up(progress: &Progress) {
    let stage = {
        let mut stage = progress.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stage, Stage::Over)
    };
    match stage {
        Stage::Reading(tr) => tr.cancel(),
        Stage::Watching(cancel) => cancel.cancel(),
        Stage::Over => {}
    }
}

/// Completes once the value of `key` is another than `value`.
///
/// # Errors
/// Those of building the transaction.
pub(crate) fn watch(
    database: &Database,
    key: Bytes,
    value: Option<Bytes>,
) -> Result<Reply<Version>> {
    let tr = database.create_transaction()?;
    tr.set_option(option::LOCK_AWARE)?;
    if key[..] >= *system::NORMAL_END {
        tr.set_option(option::READ_SYSTEM_KEYS)?;
    }
    let (mut promise, reply) = promise();
    let progress: Progress = Arc::new(Mutex::new(Stage::Reading(tr.clone())));
    promise.on_cancel({
        let progress = progress.clone();
        move || give_up(&progress)
    });
    let version = tr.read_version().reply(|ready| ready.int64());
    let current = tr.get(&key).reply(|ready| ready.value());
    version.on_complete(move |version| {
        current.on_complete(move |current| {
            match version.and_then(|version| Ok((version, current?))) {
                Ok((version, current)) if current != value => promise.send(Ok(version)),
                Ok((version, _)) => arm(&tr, &key, version, &progress, promise),
                Err(error) => promise.send(Err(error)),
            }
        });
    });
    Ok(reply)
}

/// Has the library watch the value that the transaction has read.
fn arm(
    tr: &Arc<Transaction>,
    key: &[u8],
    version: Version,
    progress: &Progress,
    promise: Promise<Version>,
) {
    let pending = tr.watch(key);
    let cancel = pending.canceller();
    if !advance(progress, Stage::Watching(cancel.clone())) {
        return cancel.cancel();
    }
    let over = progress.clone();
    // A commit without writes: it starts the watch. If it fails, so does the watch.
    let committing = tr.commit();
    pending.on_ready(move |ready| {
        let fired = ready.done();
        let given_up = !advance(&over, Stage::Over);
        // The value differs at some later version; the next one is as early as that can be.
        let answer = fired.map(|()| version + 1);
        promise.send(if given_up { Err(Error::operation_cancelled()) } else { answer });
    });
    let keeping = tr.clone();
    committing.on_ready(move |ready| {
        if ready.done().is_err() {
            cancel.cancel();
        }
        drop(keeping);
    });
}
