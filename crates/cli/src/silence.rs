//! Says what is waited for: what is asked of a database that is out of reach, or that nobody leads,
//! waits until that is over.
//!
//! It is said once, and again when it had been over meanwhile. A client that wants nothing tries no
//! connection, so a shell at rest says nothing. A program that is asked to end while it waits can't
//! look at that itself, and is ended here.

use crate::failure::tell;
use crate::interrupt;
use plinth::client::Endpoint;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(500);
/// So many looks in a row it must be waited.
const LOOKS: u32 = 4;
/// So many looks in a row it is still waited behind the request to end.
const PATIENT_LOOKS: u32 = 2;

/// Looks for as long as the endpoint is there.
pub fn watch(endpoint: &Arc<dyn Endpoint>) {
    let (watched, env) = (Arc::downgrade(endpoint), endpoint.env().clone());
    drop(env.clone().spawn("silence", async move {
        let (mut in_vain, mut asked_in_vain) = (0, 0);
        loop {
            env.sleep(TICK).await;
            let Some(endpoint) = watched.upgrade() else { return };
            let Some(why) = endpoint.stalled() else {
                (in_vain, asked_in_vain) = (0, 0);
                continue;
            };
            in_vain += 1;
            asked_in_vain += u32::from(interrupt::is_asked());
            if asked_in_vain > PATIENT_LOOKS {
                tell(format_args!("interrupted while the database was waited for"));
                interrupt::end();
            }
            if in_vain == LOOKS {
                tell(format_args!(
                    "the database is unavailable, and is waited for (Ctrl-C ends this): {why}"
                ));
            }
        }
    }));
}
