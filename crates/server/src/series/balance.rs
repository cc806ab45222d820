//! How parts of the series are spread over the servers that share them.
//!
//! ```text
//!   members   every half a second: I live; who else does?  --> how many parts each server should have
//!   a task for each part: looks who has it
//!     it is free, and this server has fewer than it should      --> takes it over
//!     it is free, and nobody has taken it for some seconds       --> the same
//!   this server has more than it should, and all parts are held  --> hands one over, and waits until somebody has it
//! ```
//!
//! A server that answers no questions over HTTP is asked for nothing by others, so they could read
//! nothing of its parts that is in no leaf yet: it says nothing of itself, and owns parts only
//! while there is nobody else.
//!
//! Shares add up to all parts, so who has too few finds what others leave: at once what is free,
//! and what others have too much once it has lived for some seconds. They are only a wish: a part
//! has one owner by its lease, whatever two servers think of each other.

use super::parts::{Parts, State};
use super::{Hub, events};
use crate::config::Among;
use plinth_env::sync::{First, race};
use plinth_series::{Claim, Error, Look, Members};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How often a server says that it lives.
const BEAT: Duration = Duration::from_millis(500);
/// How often an open part is looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a part may be free that whoever should have it doesn't take.
const UNTAKEN: Duration = Duration::from_secs(2);
/// For how long nothing is handed over after such a thing.
const QUIET: Duration = Duration::from_secs(60);
/// How long a part that is handed over is still this server's, while sessions move on to where its
/// points go then.
const GRACE: Duration = Duration::from_millis(500);
/// In how many looks in a row this server has to have too many parts before it hands one over.
const SURE: usize = 2;

/// What this server should have.
#[derive(Default)]
struct Wish {
    share: AtomicUsize,
    is_handing_over: AtomicBool,
    /// Milliseconds of the clock before which nothing is handed over.
    quiet_until: AtomicU64,
    /// Others can't ask this server for anything, so it has parts only where there are no others.
    is_unheard: bool,
}

/// Owns as many parts as this server should, until it stops; `address` is where it answers
/// questions, empty if it does nowhere.
pub(super) async fn share(hub: Arc<Hub>, among: Among, address: String, parts: Arc<Parts>) {
    let is_unheard = address.is_empty();
    let wish = Arc::new(Wish { is_unheard, ..Wish::default() });
    for part in 0..parts.division.parts() {
        let claim = Claim::new(among.name.clone(), address.clone());
        let keeping = keep(hub.clone(), (parts.clone(), wish.clone()), part, claim);
        drop(hub.env.spawn_network("part of series", keeping));
    }
    let mut member = parts.division.member(&among.name);
    if is_unheard {
        events::unheard();
        member.only_look(true);
    }
    let mut excess = 0;
    while !hub.is_stopping() {
        match race(hub.slot.stop.wait(), member.beat()).await {
            First::Left(()) => break,
            First::Right(Ok(live)) => {
                let share = |live| Members::share(&among.name, live, parts.division.parts());
                wish.share.store(share(&live.members), Ordering::Relaxed);
                excess = if has_too_many(&parts, share(&live.settled)) { excess + 1 } else { 0 };
                if excess >= SURE && wish.may_hand_over(&hub) {
                    excess = 0;
                    hand_over(&hub, &parts, &wish);
                }
            }
            First::Right(Err(Error::NotOwner)) => {
                // It is another place now. The tasks of the parts look for themselves.
                parts.end();
                return;
            }
            First::Right(Err(why)) => events::members_unknown(&why),
        }
        if race(hub.slot.stop.wait(), hub.env.sleep(BEAT)).await == First::Left(()) {
            break;
        }
    }
    // For the tasks of the parts.
    hub.slot.stop.notify();
}

/// Whether this server has more parts than it should, and whoever should have them has what was
/// free before.
fn has_too_many(parts: &Parts, share: usize) -> bool {
    parts.with(|states| {
        let are_held =
            states.iter().all(|state| matches!(state, State::Open(_) | State::Elsewhere(_)));
        let own = states.iter().filter(|state| matches!(state, State::Open(_))).count();
        are_held && own > share
    })
}

impl Wish {
    fn may_hand_over(&self, hub: &Hub) -> bool {
        !self.is_handing_over.load(Ordering::Relaxed)
            && millis(hub.env.now()) >= self.quiet_until.load(Ordering::Relaxed)
    }

    /// Whether a free part is to be taken; then it is noted that it is about to be.
    fn takes(&self, hub: &Hub, parts: &Parts, part: usize, free_for: Duration) -> bool {
        let is_overdue = free_for >= UNTAKEN && !self.is_unheard;
        let share = self.share.load(Ordering::Relaxed);
        let takes = parts.with(|states| {
            let has = |state: &&State| matches!(state, State::Open(_) | State::Taking);
            let own = states.iter().filter(has).count();
            let takes = own < share || is_overdue;
            states[part] = if takes { State::Taking } else { State::Free };
            takes && own >= share
        });
        if takes {
            let until = millis(hub.env.now() + QUIET);
            self.quiet_until.store(until, Ordering::Relaxed);
        }
        parts.with(|states| matches!(states[part], State::Taking))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Hands the last of this server's parts over: rules are evaluated by whoever has the first.
fn hand_over(hub: &Arc<Hub>, parts: &Arc<Parts>, wish: &Arc<Wish>) {
    let leaving = parts.with(|states| {
        states.iter().enumerate().rev().find_map(|(part, state)| match state {
            State::Open(store) => Some((part, store.clone())),
            _ => None,
        })
    });
    let Some((part, store)) = leaving else { return };
    parts.set(part, State::Leaving(store.clone()));
    wish.is_handing_over.store(true, Ordering::Relaxed);
    let (hub, parts, wish) = (hub.clone(), parts.clone(), wish.clone());
    let task = hub.env.clone().spawn_network("hand over series", async move {
        hub.env.sleep(GRACE).await;
        match store.hand_over().await {
            Ok(()) => events::handed_over(part),
            // It stays here, and is handed over when that can be done.
            Err(_) if store.failure().is_none() => parts.set(part, State::Open(store)),
            Err(_) => {}
        }
        wish.is_handing_over.store(false, Ordering::Relaxed);
    });
    drop(task);
}

/// Looks after one part.
async fn keep(hub: Arc<Hub>, (parts, wish): (Arc<Parts>, Arc<Wish>), part: usize, claim: Claim) {
    let mut candidate = parts.division.candidate(part, claim);
    candidate.only_look(true);
    let mut free_since = None;
    while !hub.is_stopping() && !parts.are_over() {
        match race(hub.slot.stop.wait(), candidate.look()).await {
            First::Left(()) => break,
            First::Right(Ok(Look::Ours(store))) => {
                events::part_ours(part);
                parts.set(part, State::Open(store.clone()));
                while store.failure().is_none() && !hub.is_stopping() {
                    hub.env.sleep(GLANCE).await;
                }
                if hub.is_stopping() {
                    break;
                }
                if store.lost().is_some() {
                    events::part_lost(part);
                }
                parts.set(part, State::Opening);
                (free_since, _) = (None, candidate.only_look(true));
                continue;
            }
            First::Right(Ok(Look::Held(holder))) => {
                free_since = None;
                candidate.only_look(true);
                if parts.holder(part).as_ref() != Some(&holder) {
                    parts.set(part, State::Elsewhere(holder));
                }
            }
            First::Right(Ok(Look::Free)) => {
                let now = hub.env.now();
                let free_for = now.saturating_sub(*free_since.get_or_insert(now));
                if wish.takes(&hub, &parts, part, free_for) {
                    candidate.only_look(false);
                    continue;
                }
            }
            First::Right(Err(why)) => {
                candidate.only_look(true);
                match why {
                    // The place was cleared, and is made again by whoever says next that he lives.
                    Error::NotOwner => parts.set(part, State::Opening),
                    why => parts.note(part, &why),
                }
            }
        }
        if race(hub.slot.stop.wait(), candidate.wait()).await == First::Left(()) {
            break;
        }
    }
    if hub.is_stopping() {
        // For the next task.
        hub.slot.stop.notify();
    }
}
