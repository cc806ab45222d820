//! Waiting until a second site is whole, for whoever goes on then.
//!
//! What may pass is waited out, as an agent does: a database out of reach, an agent that gets no
//! further for a while, or none that works. What it waits for is told each time that it looks. Only
//! what an agent ends for ends this, too.

use crate::agent::Control;
use crate::sites::nothing;
use crate::status::{Phase, Status, status};
use crate::system::{PAUSE, is_final};
use plinth_client::Database;
use plinth_types::{Error, Result};
use std::sync::atomic::Ordering;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Waits<'w> {
    /// The second site, which is like this.
    Status(&'w Status),
    /// An answer: this is why there is none.
    Answer(&'w Error),
}

/// Waits until the second is whole, and gives its status then. `tell` is called with what is waited
/// for, again and again.
///
/// # Errors
/// `client_invalid_operation` if it follows nobody, or the agent has ended for something that no
/// patience helps against; `operation_cancelled` if it was stopped.
pub async fn wait(
    from: Option<&Database>,
    to: &Database,
    control: &Control,
    mut tell: impl FnMut(Waits<'_>),
) -> Result<Status> {
    while !control.stop.load(Ordering::Relaxed) {
        match status(from, to).await {
            Ok(None) => return Err(nothing()),
            Ok(Some(found)) => {
                if found.whole_at.is_some()
                    && matches!(found.phase, Phase::Following | Phase::Paused)
                {
                    return Ok(found);
                }
                if let Some(problem) = found.problem.as_ref().filter(|_| found.is_given_up) {
                    let detail = format!("it gets no further: {problem}");
                    return Err(Error::client_invalid_operation().with_detail(detail));
                }
                tell(Waits::Status(&found));
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => tell(Waits::Answer(&error)),
        }
        to.endpoint().env().sleep(PAUSE).await;
    }
    Err(Error::operation_cancelled().with_detail("stopped before the second site was whole"))
}
