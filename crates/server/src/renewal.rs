//! The task that reads the rows of rights and of quotas again and again, and has connections look
//! what has changed for them.
//!
//! They are few, and read from what this process has, so it is done several times a second: a grant
//! that was taken back gives nothing a second later, whatever else is at work. A member that has no
//! rows asks the others of its cluster meanwhile whether there are rights: then nobody is let in
//! before it has them.

use crate::outbox::Outbox;
use crate::quotas;
use crate::rights::Last;
#[cfg(feature = "series")]
use crate::rights::PATIENCE;
use crate::shared::Shared;
#[cfg(feature = "series")]
use plinth_client::{RangeOptions, TransactionOption};
use plinth_env::sync::{First, race};
use plinth_types::quotas::Of;
#[cfg(feature = "series")]
use plinth_types::{Error, system};
use std::sync::Arc;
use std::time::Duration;

/// How often the rows are read, if anything was written meanwhile.
const RENEWAL: Duration = Duration::from_millis(200);
/// Of which every so many are quotas read, too: they keep nobody out, so they take their time.
const QUOTAS_EVERY: u32 = 3;

/// Renews what is known of rights and quotas until told to stop.
pub(crate) async fn run(shared: Arc<Shared>) {
    let Shared { env, endpoint, stops, doors, .. } = &*shared;
    if !doors.rights.are_kept() {
        return;
    }
    let (mut last, mut last_quotas) = (Last::default(), quotas::Last::default());
    let mut turn = 0_u32;
    ask_others(&shared).await;
    while let First::Right(()) = race(stops.rights.wait(), env.sleep(RENEWAL)).await {
        let by_tokens = doors.rights.renew_tokens().await;
        let by_rows = doors.rights.renew(&**endpoint, &mut last).await;
        turn = turn.wrapping_add(1);
        let by_quotas = turn.is_multiple_of(QUOTAS_EVERY)
            && doors.quotas.renew(&**endpoint, &mut last_quotas, doors.rights.locals()).await;
        if by_quotas {
            shared.snapshots.recount(|who| {
                let dues = doors.quotas.dues(&doors.rights, who);
                dues.enter(Of::Snapshots, true).unwrap_or_default()
            });
        }
        if ask_others(&shared).await || by_tokens || by_rows || by_quotas {
            shared.connections.visit(Outbox::wake);
        }
    }
}

/// Asks the others of its cluster whether there are rights, if this member has no rows. Gives
/// whether that changes anything.
#[cfg(feature = "series")]
async fn ask_others(shared: &Shared) -> bool {
    let Shared { env, config, doors, .. } = shared;
    let Some(among) = config.among.as_ref().filter(|_| doors.rights.has_no_rows()) else {
        return false;
    };
    let first = RangeOptions::from(system::RIGHTS.0..system::RIGHTS.1).limit(1);
    let asked = among.database.transact(async |tr| {
        tr.set_option(TransactionOption::ReadSystemKeys)?;
        tr.set_option(TransactionOption::ReadLockAware)?;
        Ok::<_, Error>(!tr.get_range(first.clone()).await?.rows.is_empty())
    });
    match race(asked, env.sleep(PATIENCE)).await {
        First::Left(Ok(are_there)) => doors.rights.hear(are_there),
        First::Left(Err(why)) if why == Error::permission_denied() => doors.rights.hear(true),
        // Nobody answers: what was thought before may be so.
        First::Left(Err(_)) | First::Right(()) => false,
    }
}

#[cfg(not(feature = "series"))]
async fn ask_others(_: &Shared) -> bool {
    false
}
