//! Ctrl-C at a terminal: ends the command under way and not the shell.
//!
//! A command waits for replies on the shell's own thread. While it does, a task looks at the flag
//! that the signal sets, and cancels the command's transaction: what waits for it fails with
//! `transaction_cancelled`. What is asked for outside of a transaction, such as the status, is
//! waited for by [`Interrupts::answer`]. A second Ctrl-C, before the first one has ended the
//! command, ends the shell.

use plinth::{Error, Transaction};
use plinth_env::sync::{First, race, until_set};
use plinth_env::{Env, Signal, block_on};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How soon Ctrl-C is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Whether the command under way shall end, and what it waits for.
#[derive(Clone, Default)]
pub struct Interrupts {
    flag: Arc<AtomicBool>,
    current: Arc<Mutex<Option<Transaction>>>,
}

impl Interrupts {
    /// Sets the flag on Ctrl-C from now on.
    pub fn listen(&self) {
        crate::interrupt::on_ctrl_c(&self.flag);
    }

    /// Notes the transaction that a command waits for.
    pub fn note(&self, transaction: &Transaction) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(transaction.clone());
    }

    /// Runs a command, whose transaction is cancelled if it shall end. Whether that was so.
    pub fn during<T>(&self, env: &Env, command: impl FnOnce() -> T) -> (T, bool) {
        let ended = Arc::new(Signal::new());
        let (theirs, timer, until) = (self.clone(), env.clone(), ended.clone());
        let watch = env.spawn("interrupts", async move {
            while race(until.wait(), timer.sleep(TICK)).await != First::Left(()) {
                if theirs.flag.load(Ordering::Relaxed)
                    && let Some(transaction) =
                        theirs.current.lock().unwrap_or_else(PoisonError::into_inner).take()
                {
                    transaction.cancel();
                }
            }
        });
        let result = command();
        ended.notify();
        // It ends by itself; a panic of it is nothing to the command.
        let _ = block_on(watch);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        (result, self.flag.swap(false, Ordering::Relaxed))
    }

    /// An answer, waited for until the command under way shall end.
    ///
    /// # Errors
    /// The answer's; `operation_cancelled` if the command ends.
    pub fn answer<T>(
        &self,
        env: &Env,
        answer: impl Future<Output = plinth::Result<T>>,
    ) -> plinth::Result<T> {
        match block_on(race(answer, self.raised(env))) {
            First::Left(answer) => answer,
            First::Right(()) => Err(Error::operation_cancelled()),
        }
    }

    /// Waits until the command under way shall end: for one that ends well by that.
    pub async fn raised(&self, env: &Env) {
        until_set(&self.flag, env, TICK).await;
    }

    /// As Ctrl-C does.
    #[cfg(test)]
    pub fn raise(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}
