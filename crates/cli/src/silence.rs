//! Says, once, that no server answers, while a command waits for one: what is asked of a database that is out of reach waits.

use plinth::client::Endpoint;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(500);
/// So many looks in a row nobody must be reachable.
const LOOKS: u32 = 4;

/// Looks for as long as the process lives.
pub fn watch(endpoint: &Arc<dyn Endpoint>) {
    let (endpoint, env) = (endpoint.clone(), endpoint.env().clone());
    drop(env.clone().spawn("silence", async move {
        let mut in_vain = 0;
        loop {
            env.sleep(TICK).await;
            let Some(why) = endpoint.unreachable() else {
                in_vain = 0;
                continue;
            };
            in_vain += 1;
            if in_vain == LOOKS {
                return eprintln!("plinth: no server answers, and is waited for (Ctrl-C ends this): {why}");
            }
        }
    }));
}
