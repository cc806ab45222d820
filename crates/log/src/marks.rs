//! The file `DURABLE`: how far the log is known to be durable when no later record says so.
//!
//! A record says of those before it that they were durable when it was written. Of the last one
//! nobody says it, so damage to it would look like a write cut short, though it had been synced and
//! acknowledged. So a task notes the last durable record in a file of its own, within two ticks of
//! its sync, unless a record has said it by then. The note is written and not synced: it outlives
//! the process at once, and the power as soon as the system writes its memory down. A clean close
//! syncs it. A commit pays for a look at a flag, a busy writer makes no notes at all, an idle log
//! one for each quiet time.
//!
//! ```text
//!   record  ....N          N+1 says that N was durable
//!           synced ^  ^ ^
//!               tick  | `- note: up to N is durable
//!                    tick
//! ```
//!
//! A note is always true: it is written after the sync has returned, and what was durable once
//! stays so. It is written to two places in turn, so that one of them is whole whatever happens to
//! a write; an idle log and a closed one say the same in both. A place that can't be read is told:
//! what it said may have been more than the other one says. The next note goes there. The file is
//! here; the task that writes to it is in `marking.rs`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use plinth_env::{Env, File, Open, Signal};
use plinth_format::{Corruption, Flaw};
use plinth_types::Version;

use crate::failure::LogResult;
use crate::format::mark::{MARK_LEN, MARK_PLACES, MARKS_LEN, Mark};

pub(crate) fn marks_path(dir: &Path) -> PathBuf {
    dir.join("DURABLE")
}

/// What the file says.
pub(crate) struct Noted {
    /// The newer of its notes.
    pub(crate) last: Mark,
    /// The place that can't be read, if one can't.
    pub(crate) spoilt: Option<Corruption>,
}

/// The file and what was written to it last.
pub(crate) struct Marks {
    file: File,
    seed: u32,
    last: Mutex<Mark>,
    /// A sync has ended.
    pub(crate) synced: Signal,
    /// The task has to end.
    pub(crate) closing: Signal,
}

impl Marks {
    /// Makes the file of a new log, in place of one that may be there, durably: a log with a
    /// segment has it.
    pub(crate) async fn create(env: &Env, dir: &Path, seed: u32) -> LogResult<()> {
        let file = env.files().open(marks_path(dir), Open::Truncate).await?;
        let mut bytes = vec![0; MARKS_LEN];
        bytes[..MARK_LEN].copy_from_slice(&Mark { number: 1, ..Mark::default() }.encode(seed));
        file.write_all_at(0, &bytes).await?;
        file.sync_all().await?;
        Ok(env.files().sync_dir(dir).await?)
    }

    /// Reads the file, or says why nothing can be known of it.
    pub(crate) async fn read(
        env: &Env,
        dir: &Path,
        seed: u32,
    ) -> LogResult<Result<Noted, Corruption>> {
        let path = marks_path(dir);
        if !env.files().exists(&path).await? {
            return Ok(Err(missing(dir)));
        }
        let bytes = env.files().read(&path).await?;
        let [first, second] = MARK_PLACES.map(|place| {
            Mark::decode(bytes.get(place..).unwrap_or_default(), seed)
                .map_err(|flaw| flaw.at(&path.display().to_string(), place as u64))
        });
        Ok(match (first, second) {
            (Ok(first), Ok(second)) => Ok(Noted { last: first.max(second), spoilt: None }),
            // Nothing was written to the second place yet.
            (Ok(last), Err(_)) if last.number == 1 && is_blank(&bytes[MARK_LEN..]) => {
                Ok(Noted { last, spoilt: None })
            }
            (Ok(last), Err(spoilt)) | (Err(spoilt), Ok(last)) => {
                Ok(Noted { last, spoilt: Some(spoilt) })
            }
            (Err(problem), Err(_)) => Err(problem),
        })
    }

    /// Opens the file to write to it.
    pub(crate) async fn open(env: &Env, dir: &Path, seed: u32, last: Mark) -> LogResult<Self> {
        let file = env.files().open(marks_path(dir), Open::Write).await?;
        Ok(Self {
            file,
            seed,
            last: Mutex::new(last),
            synced: Signal::new(),
            closing: Signal::new(),
        })
    }

    /// Notes that everything up to this record is durable.
    pub(crate) async fn note(&self, (sequence, committed): (u64, Version)) -> LogResult<()> {
        let mark = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(sequence >= last.sequence, "what was durable once stays durable");
            let committed = committed.max(last.committed);
            Mark { number: last.number + 1, sequence, committed }
        };
        let place = MARK_PLACES[usize::from(mark.number.is_multiple_of(2))];
        self.file.write_all_at(place as u64, &mark.encode(self.seed)).await?;
        // Only now: a write that failed may have spoilt its place, and the next one must not go to
        // the other.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = mark;
        Ok(())
    }

    /// Makes the last note durable.
    pub(crate) async fn sync(&self) -> LogResult<()> {
        Ok(self.file.sync_data().await?)
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.len() == MARKS_LEN - MARK_LEN && bytes.iter().all(|byte| *byte == 0)
}

/// The problem of a log without the file.
fn missing(dir: &Path) -> Corruption {
    let flaw = Flaw::new("what says how far the log is durable", "a file", "none");
    flaw.at(&marks_path(dir).display().to_string(), 0)
}
