//! Ctrl-C at a terminal: ends the command under way and not the shell.
//!
//! A command waits for replies on the shell's own thread. While it does, a task looks at the flag that the signal sets, and cancels the
//! command's transaction: what waits for it fails with `transaction_cancelled`. A second Ctrl-C, before the first one has ended the
//! command, ends the shell.

use plinth::Transaction;
use plinth::client::Endpoint;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, block_on};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How soon Ctrl-C is noticed.
const TICK: Duration = Duration::from_millis(50);
/// After so long it is said that nobody answers.
const SILENCE: Duration = Duration::from_secs(2);

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

    /// Runs a command, whose transaction is cancelled if it shall end. Whether that was so. Should nobody answer it, that is said, once.
    pub fn during<T>(&self, endpoint: Arc<dyn Endpoint>, command: impl FnOnce() -> T) -> (T, bool) {
        let ended = Arc::new(Signal::new());
        let env = endpoint.env().clone();
        let (theirs, timer, until) = (self.clone(), env.clone(), ended.clone());
        let watch = env.spawn("interrupts", async move {
            let (begun, mut is_silent) = (timer.now(), true);
            while race(until.wait(), timer.sleep(TICK)).await != First::Left(()) {
                if is_silent
                    && timer.now().saturating_sub(begun) >= SILENCE
                    && let Some(why) = endpoint.unreachable()
                {
                    is_silent = false;
                    eprintln!(
                        "plinth: no server answers, and is waited for (Ctrl-C ends the command): {why}"
                    );
                }
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

    /// Waits until the command under way shall end: for one that ends well by that.
    pub async fn raised(&self, env: &Env) {
        while !self.flag.load(Ordering::Relaxed) {
            env.sleep(TICK).await;
        }
    }

    /// As Ctrl-C does.
    #[cfg(test)]
    pub fn raise(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}
