//! What a member does at its leisure, whether it leads or not: it looks after its disk, and lets go
//! of the log.
//!
//! Checkpoints and tables need less of the log than other nodes may: one that was away for a while
//! goes on from where it was only as long as somebody has the entries that it missed. So every
//! member, for it may lead tomorrow, keeps the newest entries up to a bound in bytes, as a consumer
//! of its own log.

use super::giving::JOINING_TIMES;
use super::participant::Participant;
use crate::failure::{NodeError, NodeResult};
use crate::replica::Replica;
use crate::space::Level;
use crate::supervise::Supervisor;
use plinth_env::sync::{First, race};
use plinth_log::{LocalView, LogView};
use plinth_types::{Version, probe};
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The name under which entries are kept for other nodes.
pub(crate) const CONSUMER: &str = "followers";

/// A leader that has had no room for rows for so long lets another one lead.
const FULL: Duration = Duration::from_secs(2);
/// Not again within this time, and later not within longer.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

const PERIOD: Duration = Duration::from_millis(200);
/// What another key has sealed than the newest is kept for others for so long.
const OUTDATED: Duration = Duration::from_secs(600);
/// In so many steps what is kept for others is let go of.
const STEPS: u64 = 16;

/// By then whoever takes rows in has said again, behind a restart, which entries it needs.
const RENEWED: Duration = Duration::from_secs(10);

/// The name under which entries are kept for nodes that take rows in.
const JOINING: &str = "joining";

/// Has entries kept for other nodes, from the oldest on that is there, or from where that stood
/// before a restart.
pub(crate) fn keep_for_followers(log: &LocalView) -> NodeResult<()> {
    // Who needs them says so again.
    log.unregister(JOINING);
    if log.consumers().iter().any(|(name, _)| name == CONSUMER) {
        return Ok(());
    }
    let oldest = log.consumers().iter().map(|(_, from)| *from).min().unwrap_or(1);
    Ok(log.register(CONSUMER, oldest, None).map(drop)?)
}

/// Has no more than this kept for others of what was there at the start: a member that is started
/// again and again before it has written as much would let go of nothing.
fn let_go_of_before(log: &dyn LogView, newest: Version, bound: u64) {
    let is_too_much = |upto: Version| log.bytes_between(upto + 1, Version::MAX) > bound;
    let (mut from, mut until) = (0, newest);
    while from < until {
        let middle = from + (until - from) / 2;
        if is_too_much(middle) {
            from = middle + 1;
        } else {
            until = middle;
        }
    }
    // A consumer that is gone holds nothing back.
    let _ = log.pop(CONSUMER, from);
}

/// Does what is due until the node closes.
pub(super) async fn run(this: Arc<Participant>) {
    let replica = &*this.replica;
    let mut kept = Kept::default();
    let mut marked = None;
    let mut giving_up = GivingUp::default();
    let (first, opened) = (replica.newest(), replica.env.now());
    let mut has_let_go = false;
    while !this.is_over() {
        race(replica.health.until_over(), replica.env.sleep(PERIOD)).await;
        if let Err(lost) = replica.check_place() {
            return this.fail(lost);
        }
        let newest = replica.newest();
        if this.leader().is_none() {
            replica.space.look(0).await;
            replica.health.refusals.tick(replica.env.now());
            replica.note_trouble();
            crate::backpressure::end_snapshots(replica);
            if marked != Some(newest) && !this.is_over() && this.standing().full.is_none() {
                // Best effort: what fails here fails where it counts, too.
                let _ = noting(replica, this.member.mark_durable()).await;
                marked = Some(newest);
            }
        }
        if this.standing().full.is_some() {
            // What the log needs most is that some of it goes.
            replica.space.met_full_disk().await;
            replica.space.ask();
        }
        if let Err(damage) = give_way(&this, &mut giving_up).await {
            return this.fail(damage);
        }
        let bound = match replica.space.level() {
            Level::Plenty => replica.config.follower_log_bytes,
            Level::Low | Level::Kept => 0,
        };
        hold_for_joining(&this, bound);
        let upto = kept.look(replica.counters.bytes_written.get(), newest, bound);
        if let Some(log) = &replica.log {
            let since = replica.env.now().saturating_sub(opened);
            if !has_let_go && since > RENEWED {
                let_go_of_before(&**log, first, replica.config.follower_log_bytes);
                has_let_go = true;
            }
            let is_late = replica.env.now().saturating_sub(opened) > OUTDATED;
            let outdated = (is_late && log.outdated().0 > 0).then_some(first);
            if let Some(upto) = upto.max(outdated) {
                // A consumer that is gone holds nothing back.
                let _ = log.pop(CONSUMER, upto);
            }
        }
    }
}

/// Lets another node lead, if this one leads and has no room, or can't write its tables.
///
/// # Errors
/// Its tables are damaged, so that no merge gets past that any more, and others have the rows.
async fn give_way(this: &Participant, giving_up: &mut GivingUp) -> NodeResult<()> {
    let replica = &*this.replica;
    let tables = tables_trouble(replica);
    let has_others = || this.standing().members.voters().len() > 1;
    if let Some(damage) = tables.clone().filter(|error| error.is_damage() && has_others()) {
        probe!("pipeline: a member whose tables are damaged ends");
        return Err(damage);
    }
    let refuses = tables.is_some() || replica.space.level() == Level::Kept;
    if !giving_up.look(refuses && this.leader().is_some(), replica.env.now()) {
        return Ok(());
    }
    match tables {
        Some(error) => {
            probe!("pipeline: a leader that can't write its tables hands over");
            crate::events::hands_over_for_its_tables(&error);
        }
        None => {
            probe!("pipeline: a leader whose disk is full hands over");
            crate::events::hands_over_for_want_of_room();
        }
    }
    this.hand_over().await;
    Ok(())
}

/// Why tables can't be written or merged, once there is no room for what waits for that.
fn tables_trouble(replica: &Replica) -> Option<NodeError> {
    (replica.storage.fullness() >= 1.0).then(|| replica.tables_trouble())?
}

/// Waits for what a disk may keep waiting, and tells meanwhile what is wrong.
async fn noting<T>(replica: &Replica, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        match race(work.as_mut(), replica.env.sleep(PERIOD)).await {
            First::Left(done) => return done,
            First::Right(()) => replica.note_trouble(),
        }
    }
}

/// When a leader with a full disk, or one that takes no tables, lets another one lead, whose disk
/// may do better.
#[derive(Default)]
struct GivingUp {
    since: Option<Duration>,
    /// When it last did, and how long that is to be enough: all disks may be full.
    last: Option<(Duration, Duration)>,
}

impl GivingUp {
    /// Whether it is time.
    fn look(&mut self, refuses: bool, now: Duration) -> bool {
        if !refuses {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let pause = match self.last {
            Some((then, pause)) if now < then + pause => return false,
            Some((then, pause)) if now < then + 4 * pause => (2 * pause).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        if now < since + FULL {
            return false;
        }
        assert!(pause <= LONGEST_PAUSE, "a full disk is left to others for {pause:?}");
        (self.since, self.last) = (None, Some((now, pause)));
        true
    }
}

/// Keeps what nodes need that take rows in, if there is room for it.
fn hold_for_joining(this: &Participant, bound: u64) {
    let Some(log) = &this.replica.log else { return };
    match this.giving.held(this.replica.env.now()).filter(|_| bound > 0) {
        Some(version) => {
            let bound = Some(bound.saturating_mul(JOINING_TIMES));
            // What is gone can't be held; who needs it takes rows again.
            if log.register(JOINING, version.saturating_add(1), bound).is_ok() {
                let _ = log.pop(JOINING, version);
            }
        }
        None => log.unregister(JOINING),
    }
}

/// How much was written up to which version.
#[derive(Default)]
struct Kept {
    steps: VecDeque<(u64, Version)>,
}

impl Kept {
    /// So much has been written, up to this version; gives the version up to which entries may go.
    fn look(&mut self, written: u64, version: Version, bound: u64) -> Option<Version> {
        if self.steps.back().is_none_or(|(before, _)| written >= before + bound / STEPS) {
            self.steps.push_back((written, version));
        }
        let last = self.steps.back().map_or(Version::MIN, |(_, before)| *before);
        assert!(last <= version, "what is kept goes back from {last} to {version}");
        let mut upto = None;
        while let Some((_, version)) = self.steps.pop_front_if(|(then, _)| *then + bound < written)
        {
            upto = Some(version);
        }
        upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_are_kept_and_older_ones_go() {
        let mut kept = Kept::default();
        let mut gone = 0;
        for n in 1..=1000_i64 {
            let written = n as u64 * 100;
            gone = kept.look(written, n, 10_000).unwrap_or(gone);
            assert!(written <= 10_000 || written - gone as u64 * 100 >= 10_000, "enough is kept");
            assert!(
                written - gone as u64 * 100 <= 10_000 + 2 * 10_000 / STEPS + 100,
                "and not more"
            );
            assert!(kept.steps.len() as u64 <= STEPS + 3);
        }
        let upto = kept.look(100_000, 1000, 0).expect("on a full disk all of it goes");
        assert!(
            upto >= 1000 - 2 * 100 / STEPS as i64,
            "but for what is newer than the last step: {upto}"
        );
    }
}
