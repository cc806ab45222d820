//! What happens beside the writer: the next segment is made before it is needed, old ones are taken
//! away.
//!
//! A task runs while there is something to do and ends when there isn't. Each chore is chosen under
//! the mutex from what the log looks like at that moment, and done outside of it. Failing costs
//! nothing but time: a segment that couldn't be made is asked for again by the append that needs
//! it, one that couldn't be taken away stays until consumers pop again.
//!
//! Segments leave oldest first, one at a time, each durably gone before the next: whatever crash
//! comes, those on disk are numbered without gaps, so that a gap is always damage.

use std::sync::Arc;

use plinth_env::IoError;
use plinth_types::probe;

use crate::config::LogConfig;
use crate::failure::{LogError, LogResult};
use crate::segment::{Segment, Wanted, segment_path, spare_path};
use crate::shared::{Inner, Shared};
use crate::supply::{Next, Prepared, Spare};

enum Chore {
    Make { serial: u64, bytes: u64, spare: Option<Spare> },
    TakeAway { serial: u64, bytes: u64, keep: bool },
    Discard(Spare),
}

/// Starts the task if there is something to do and it doesn't run.
pub(crate) fn look(shared: &Arc<Shared>) {
    let start = shared.with(|inner| {
        let start = !inner.upkeep.is_running && inner.has_chore(&shared.config);
        inner.upkeep.is_running |= start;
        start
    });
    if start {
        let run = Run { shared: shared.clone(), has_ended: false };
        drop(shared.env.spawn("plinth-log-upkeep", run.run()));
    }
}

/// The task. If it is dropped half-way, whoever waits for it is told.
struct Run {
    shared: Arc<Shared>,
    has_ended: bool,
}

impl Run {
    async fn run(mut self) {
        while let Some(chore) = self.choose() {
            match chore {
                Chore::Make { serial, bytes, spare } => self.make(serial, bytes, spare).await,
                Chore::TakeAway { serial, bytes, keep } => {
                    self.take_away(serial, bytes, keep).await
                }
                Chore::Discard(spare) => {
                    // A file that can't be removed is tried again at the next start.
                    let _ = self
                        .shared
                        .env
                        .files()
                        .remove(spare_path(&self.shared.dir, spare.serial))
                        .await;
                }
            }
        }
    }

    fn choose(&mut self) -> Option<Chore> {
        self.shared.change(|inner| {
            let chore = inner.choose(&self.shared.config);
            inner.upkeep.is_running = chore.is_some();
            self.has_ended = chore.is_none();
            chore
        })
    }

    async fn make(&self, serial: u64, bytes: u64, spare: Option<Spare>) {
        let made = self.try_make(serial, bytes, spare).await;
        self.shared.change(|inner| {
            inner.upkeep.next = match made {
                Ok(segment) => Next::Ready(Prepared::new(segment)),
                Err(error) => Next::Failed(error),
            };
        });
    }

    async fn try_make(&self, serial: u64, bytes: u64, spare: Option<Spare>) -> LogResult<Segment> {
        let Shared { env, dir, identity, config, .. } = &*self.shared;
        let bytes = bytes.min(self.look_at_room().await);
        let mut wanted = Wanted::new(*identity, config, serial, bytes);
        if let Some(spare) = spare {
            probe!("log: segment made of a spare");
            return wanted.recycle(env, dir, &spare_path(dir, spare.serial), spare.bytes).await;
        }
        let is_urgent =
            || self.shared.with(|inner| matches!(inner.upkeep.next, Next::Wanted { urgent: true }));
        let least = (config.first_segment_bytes / 16).max(LogConfig::MIN_SEGMENT_BYTES);
        loop {
            match wanted.make(env, dir, |_, _| Vec::new(), is_urgent).await {
                // A small segment in the room that is left is better than none.
                Err(error) if error.is_disk_full() && wanted.bytes / 2 >= least => {
                    probe!("log: smaller segment in the room that is left");
                    wanted.bytes /= 2;
                }
                made => return made,
            }
        }
    }

    /// How large a segment may be in the room that there is now.
    async fn look_at_room(&self) -> u64 {
        let Shared { env, dir, config, .. } = &*self.shared;
        // Where that can't be known, the segment's own writes will tell.
        let free = env.files().room(dir).await.map_or(u64::MAX, |room| room.free);
        self.shared.with(|inner| {
            let room = &mut inner.upkeep.room;
            room.left = free.saturating_sub(room.keep_free);
            room.segment_bytes(config)
        })
    }

    async fn take_away(&self, serial: u64, bytes: u64, keep: bool) {
        let Shared { env, dir, .. } = &*self.shared;
        let gone = rename_or_remove(&self.shared, serial, keep).await;
        let durably = match &gone {
            Ok(_) => env.files().sync_dir(dir).await,
            Err(_) => Ok(()),
        };
        self.shared.change(|inner| match (gone, durably) {
            (Ok(is_kept), Ok(())) => {
                let left = inner.segments.pop_front();
                assert!(left.is_some_and(|kept| kept.segment.header.serial == serial));
                if let Some(before) = inner.segments.front().map(|kept| kept.before) {
                    inner.history.forget(before.index, before.sequence);
                }
                if is_kept {
                    inner.upkeep.spares.retain(|spare| spare.serial != serial);
                    inner.upkeep.spares.push(Spare { serial, bytes });
                }
            }
            // It is still there under its name: it goes on being part of the log.
            (Err(_), _) => {
                inner.upkeep.is_stuck = true;
                inner.segments.iter_mut().take(1).for_each(|kept| kept.leaving = false);
            }
            // Nobody knows whether it is there: it is neither read nor reused until that is known.
            (_, Err(_)) => inner.upkeep.is_stuck = true,
        });
    }
}

/// Takes the name of a segment away; gives whether the file is a spare now.
async fn rename_or_remove(shared: &Shared, serial: u64, keep: bool) -> LogResult<bool> {
    let Shared { env, dir, .. } = shared;
    let path = segment_path(dir, serial);
    let gone = if keep {
        env.files().rename(&path, &spare_path(dir, serial)).await
    } else {
        env.files().remove(&path).await
    };
    // An earlier attempt may have come this far, and have removed the file where this one keeps it.
    if gone.as_ref().is_err_and(IoError::is_not_found) {
        return Ok(keep && env.files().exists(&spare_path(dir, serial)).await?);
    }
    gone?;
    Ok(keep)
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.shared.change(|inner| {
            inner.upkeep.is_running = false;
            inner.upkeep.is_stuck = true;
            if matches!(inner.upkeep.next, Next::Wanted { .. }) {
                let detail = "the task that makes log segments ended before its time";
                inner.upkeep.next = Next::Failed(LogError::Internal(detail.into()));
            }
        });
    }
}

impl Inner {
    /// Bytes that the next segment is to have.
    fn next_bytes(&self, config: &LogConfig) -> u64 {
        let last = self.segments.back().map_or(0, |kept| kept.segment.header.bytes);
        (2 * last).clamp(config.first_segment_bytes, self.upkeep.room.segment_bytes(config))
    }

    fn has_chore(&self, config: &LogConfig) -> bool {
        if self.upkeep.is_closing || self.poison.is_some() {
            return false;
        }
        matches!(self.upkeep.next, Next::Wanted { .. })
            || self.may_leave()
            || self.surplus(config).is_some()
    }

    fn choose(&mut self, config: &LogConfig) -> Option<Chore> {
        if !self.has_chore(config) {
            return None;
        }
        let wanted = self.next_bytes(config);
        if matches!(self.upkeep.next, Next::Wanted { .. }) {
            let serial = self.segments.back()?.segment.header.serial + 1;
            let place = self.upkeep.spares.iter().position(|spare| spare.bytes >= wanted);
            let spare = place.map(|place| self.upkeep.spares.swap_remove(place));
            return Some(Chore::Make { serial, bytes: wanted, spare });
        }
        if let Some(place) = self.surplus(config) {
            return Some(Chore::Discard(self.upkeep.spares.swap_remove(place)));
        }
        let spare_bytes: u64 = self.upkeep.spares.iter().map(|spare| spare.bytes).sum();
        let oldest = self.segments.front_mut()?;
        oldest.leaving = true;
        let (serial, bytes) = (oldest.segment.header.serial, oldest.segment.header.bytes);
        // What lies in a spare stays on the disk: nothing that another key, or none, has sealed.
        let keep = bytes >= wanted
            && spare_bytes + bytes <= self.upkeep.room.spare_bytes(config)
            && !oldest.segment.cipher.is_outdated(&config.keys);
        Some(Chore::TakeAway { serial, bytes, keep })
    }

    /// A spare that is too small to be used again, or too many.
    fn surplus(&self, config: &LogConfig) -> Option<usize> {
        let wanted = self.next_bytes(config);
        let spares = &self.upkeep.spares;
        let too_small = spares.iter().position(|spare| spare.bytes < wanted);
        let most = self.upkeep.room.spare_bytes(config);
        let too_many = spares.iter().map(|spare| spare.bytes).sum::<u64>() > most;
        too_small.or(too_many.then_some(0))
    }

    /// Whether the oldest segment holds nothing that anybody needs, whatever crash may come.
    fn may_leave(&self) -> bool {
        let (Some(oldest), Some(second), Some(floor)) =
            (self.segments.front(), self.segments.get(1), self.floor())
        else {
            return false;
        };
        !self.upkeep.is_stuck
            && second.before.version <= floor
            && second.before.index <= self.committed().index
            && oldest.last <= self.durable.sequence
            // Or a crash could bring back what was voided, with what it followed gone.
            && self.history.is_settled(self.durable.sequence)
            && !oldest.segment.is_read()
    }
}
