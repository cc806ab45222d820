//! Says that no server answers, while somebody waits for one: what is asked of a database that is
//! out of reach waits.
//!
//! It is said once, and again when a server had answered meanwhile. A client that wants nothing
//! tries no connection, so a shell at rest says nothing.

use plinth::client::Endpoint;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(500);
/// So many looks in a row nobody must be reachable.
const LOOKS: u32 = 4;

/// Looks for as long as the endpoint is there.
pub fn watch(endpoint: &Arc<dyn Endpoint>) {
    let (watched, env) = (Arc::downgrade(endpoint), endpoint.env().clone());
    drop(env.clone().spawn("silence", async move {
        let mut in_vain = 0;
        loop {
            env.sleep(TICK).await;
            let Some(endpoint) = watched.upgrade() else { return };
            let Some(why) = endpoint.unreachable() else {
                in_vain = 0;
                continue;
            };
            in_vain += 1;
            if in_vain == LOOKS {
                eprintln!("plinth: no server answers, and is waited for (Ctrl-C ends this): {why}");
            }
        }
    }));
}
