//! Opening: takes the series over, and brings back what the tail has.
//!
//! The takeover comes first. Once it is committed nobody else can write, so what is read after it
//! is final. Points of the tail that are in a leaf already are told by their time, since leaves
//! take over from the tail in order.

use super::back;
use super::flush::{self, Flusher};
use super::foreign::Owner;
use super::keys::Keys;
use super::lease::{self, Tenure, Token};
use super::names::Index;
use super::place::{self, Former, Sight, check_format};
use super::plot::Plot;
use super::recover::recover;
use super::rolls::{self, Rolls};
use super::turn::Turns;
use super::{PartOf, Pending, Role, Shared, inbox, nodes, retry, rolling};
use crate::error::{Error, Result};
use plinth_client::{RangeOptions, Transaction};
use plinth_env::sync::{First, race};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// How long it is before a commit that failed is tried again by itself: a locked database stays so
/// for a while.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// How often the inbox is looked into when nobody reads.
const LOOK: Duration = Duration::from_millis(250);

/// Rows of the inbox that a view takes into memory without waiting for the owner to do so: up to a
/// mebibyte of points.
const FEW: usize = 32;
/// How long a view waits though nothing is taken in.
const PATIENCE: Duration = LOOK.saturating_mul(4);

pub(super) async fn open(plot: &Plot) -> Result<Arc<Shared>> {
    let (token, moves) = take_over(plot).await?;
    let shared = new(plot, Role::Owner { token, lease: None });
    own(&shared, moves).await?;
    Ok(shared)
}

/// Opens them with a lease, which is renewed from the takeover on: reading the tail may take longer
/// than it lasts. `None` if its rows are not as they were seen.
pub(super) async fn open_leased(
    plot: &Plot,
    tenure: Tenure,
    seen: &Sight,
) -> Result<Option<Arc<Shared>>> {
    let Some(moves) = place::take_over(&plot.database, &plot.home, (&tenure, seen)).await? else {
        return Ok(None);
    };
    let shared = new(plot, tenure.role());
    lease::start_renewing(&shared, tenure);
    own(&shared, moves).await?;
    Ok(Some(shared))
}

/// Brings back what the tail has, for whoever has just become the owner; `moves`: once what is
/// elsewhere is here.
async fn own(shared: &Arc<Shared>, moves: bool) -> Result<()> {
    if moves {
        place::move_in(shared).await?;
    }
    let mut whole_again = back::learn(shared).await?;
    whole_again.sort_unstable();
    recover(shared).await?;
    rolls::learn_now(shared).await?;
    shared.turn.open();
    // With all of them before the first write, which may make leaves of any: what leaves have is
    // left out.
    whole_again.retain(|whose| shared.index.damage.of(whose).is_none());
    for whose in &whole_again {
        back::begin(shared, whose).await?;
    }
    for whose in &whole_again {
        flush::take_back(shared, whose).await?;
    }
    // Before anything else is written: some of it may be in the tree already, from a life that
    // ended in the middle.
    flush::take_in(shared).await?;
    start_committing(shared);
    rolling::start(shared);
    Ok(())
}

/// Opens them to post points to whoever owns them, and to read them through `owner` if there is a
/// way to ask. Reads nothing.
pub(super) fn post(plot: &Plot, owner: Option<Arc<dyn Owner>>) -> Arc<Shared> {
    let shared = new(plot, Role::Poster(owner));
    shared.turn.open();
    start_committing(&shared);
    shared
}

/// Opens what there is to be read. The inbox is read first and the trees last, since points move
/// from there to here.
pub(super) async fn view(plot: &Plot) -> Result<Arc<Shared>> {
    let (database, place) = (&plot.database, &plot.home);
    let_inbox_empty(plot).await?;
    let found = |tr: Transaction| async move {
        let former = place.former(&tr).await?;
        let mut rows = nodes::rows(&tr, &place.keys.inbox()).await?;
        let mut format = tr.get(place.keys.format()).await?;
        let keys = place.former_keys(&former);
        if let Some(keys) = keys {
            // What was posted to the place is newer.
            rows.splice(0..0, nodes::rows(&tr, &keys.inbox()).await?);
            format = tr.get(keys.format()).await?;
        }
        Ok((former, format, rows))
    };
    let (former, format, rows) = retry::transact_all(&place.reach(database), found).await?;
    if former == Former::Begun {
        return Err(place::is_moving());
    }
    check_format(format.as_deref())?;
    let keys = place.former_keys(&former).unwrap_or(&place.keys).clone();
    let shared = new_at(plot, keys, Role::Reader);
    let _ = shared.failure.set(Error::ReadOnly);
    shared.turn.open();
    rolls::learn(&shared).await?;
    recover(&shared).await?;
    inbox::look(&shared, &rows).await?;
    Ok(shared)
}

/// Waits while the owner takes in what waits in the inbox now, if that is much: all that is left
/// there has to be in a view's memory. Where nobody takes it in, it stays as it is.
async fn let_inbox_empty(plot: &Plot) -> Result<()> {
    let database = plot.home.reach(&plot.database);
    let (env, keys) = (database.endpoint().env(), &plot.home.keys);
    let Some(last) = inbox::last(&database, keys).await? else { return Ok(()) };
    let first = &RangeOptions::prefix(keys.inbox()).limit(FEW + 1);
    let rows = |tr: Transaction| async move { tr.snapshot().range(first.clone()).collect().await };
    let (mut oldest, mut since) = (None, env.now());
    loop {
        let waiting = retry::transact(&database, rows).await?;
        let now = env.now();
        match waiting.into_iter().nth(FEW) {
            Some(row) if row.key <= last => {
                if oldest.as_ref() != Some(&row.key) {
                    (oldest, since) = (Some(row.key), now);
                }
            }
            _ => return Ok(()),
        }
        if now >= since.saturating_add(PATIENCE) {
            return Ok(());
        }
        env.sleep(PATIENCE / 50).await;
    }
}

fn new(plot: &Plot, role: Role) -> Arc<Shared> {
    new_at(plot, plot.home.keys.clone(), role)
}

fn new_at(plot: &Plot, keys: Keys, role: Role) -> Arc<Shared> {
    Arc::new(Shared {
        database: plot.home.reach(&plot.database),
        keys,
        of: PartOf { number: plot.number, whole: plot.whole.clone() },
        settings: plot.settings.clone(),
        role,
        index: Index::default(),
        pending: Pending::default(),
        open_points: AtomicUsize::new(0),
        turn: Turns::closed(),
        flusher: Mutex::new(Flusher::default()),
        rolls: Rolls::default(),
        failure: OnceLock::new(),
    })
}

/// Becomes the owner; with what number, and whether there is something to be moved.
async fn take_over(plot: &Plot) -> Result<(Token, bool)> {
    let (database, place) = (&plot.database, &plot.home);
    let mut owner = [0; 16];
    database.endpoint().env().fill_random(&mut owner);
    let moves = retry::transact_all(&place.reach(database), |tr| async move {
        let format = tr.get(place.keys.format()).await?;
        check_format(format.as_deref())?;
        let Sight { former, .. } = place.sight(&tr).await?;
        tr.clear(place.keys.lease());
        Ok(place.claim(&tr, (&former, format.as_ref()), &owner))
    })
    .await?;
    Ok((owner, moves))
}

/// Starts the task that commits every few milliseconds, and now and then looks into the inbox and
/// for series at rest, as long as somebody holds the store.
fn start_committing(shared: &Arc<Shared>) {
    let Some(every) = shared.settings.commit_every else { return };
    let env = shared.database.endpoint().env().clone();
    let work = shared.pending.work.clone();
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let timer = env.clone();
    let task = env.spawn("plinth-series", async move {
        let mut looked = timer.now();
        loop {
            let next = looked.saturating_add(LOOK);
            if race(work.wait(), timer.sleep_until(next)).await == First::Left(()) {
                timer.sleep(every).await;
            }
            let Some(shared) = shared.upgrade() else { return };
            if timer.now() >= next {
                looked = timer.now();
                // What goes wrong here is told to whoever reads or syncs. Who posts has nothing to
                // take in, and no leaves.
                if !shared.is_poster() {
                    let _ = shared.take_in().await;
                    let _ = flush::go_the_round(&shared).await;
                }
            }
            // Whoever asks for a sync is told what went wrong; here it is tried again with what
            // comes next.
            if flush::flush(&shared).await.is_err() && shared.check().is_ok() {
                shared.pending.work.notify();
                drop(shared);
                timer.sleep(TRY_AGAIN).await;
            }
        }
    });
    drop(task);
}
