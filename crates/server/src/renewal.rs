//! The task that reads the rows of rights again and again, and has connections look what has
//! changed for them.
//!
//! They are few, and read from what this process has, so it is done several times a second: a grant
//! that was taken back gives nothing a second later, whatever else is at work.

use crate::outbox::Outbox;
use crate::rights::Last;
use crate::shared::Shared;
use plinth_env::sync::{First, race};
use std::sync::Arc;
use std::time::Duration;

/// How often the rows are read, if anything was written meanwhile.
const RENEWAL: Duration = Duration::from_millis(200);

/// Renews what is known of rights until told to stop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Shared { env, endpoint, stops, doors, .. } = &*shared;
    if !doors.rights.are_kept() {
        return;
    }
    let mut last = Last::at(env.now());
    while let First::Right(()) = race(stops.rights.wait(), env.sleep(RENEWAL)).await {
        if doors.rights.renew(env, &**endpoint, &mut last).await {
            shared.connections.visit(Outbox::wake);
        }
    }
}
