//! The first copy: in rounds, in the order of the keys, several pieces of a round at once.
//!
//! A round is read at one version, so all of it follows from there on: a round needs one place, not
//! one for each piece. It ends when its pieces are there, or before the version can't be read any
//! more; what is there without a gap counts, the rest comes again. Changes are read and
//! acknowledged between rounds, so the first keeps no more of its log than what is written during
//! one.
//!
//! Always: a round is read at a version at or behind the position, and nothing is applied until it
//! is there, or given up.

use crate::capture;
use crate::follow::Follower;
use crate::lease::Run;
use crate::rows::{NUDGE, Round};
use crate::system::{self, PAUSE};
use plinth_client::Database;
use plinth_env::Env;
use plinth_types::{
    Bytes, Error, KeyRange, KeySelector, KeySpace, MutationList, MutationType, RangeRead, Result,
    Rows, Version, key_after,
};
use std::time::Duration;

/// About how many bytes of rows a piece has.
const PIECE_BYTES: i64 = 4 << 20;
/// Pieces of a round, which are copied at the same time.
const PIECES: usize = 8;
/// About how many bytes of rows a transaction has.
const TRANSACTION_BYTES: usize = 1 << 20;
/// When a round ends: a version can be read for five seconds.
const ROUND: Duration = Duration::from_secs(3);

/// A piece of a round, and how far it has come.
struct Copied {
    /// All rows up to here are there.
    upto: Bytes,
    rows: u64,
    bytes: u64,
}

/// Copies a round, if something is left to be copied and the round before follows already.
pub(crate) async fn round(follower: &mut Follower<'_>) -> Result<()> {
    let Some(copying) = follower.place.copying.clone().filter(|copying| copying.round.is_none())
    else {
        return Ok(());
    };
    let (from, env) = (follower.from.clone(), follower.env().clone());
    let version = system::read_version(&from).await?;
    if version < follower.reached {
        // A node that is behind has answered.
        env.sleep(PAUSE).await;
        return Ok(());
    }
    let Some(range) = next_range(&from, &copying.copied) else { return Ok(()) };
    let pieces = pieces(&mut follower.cuts, &from, &range).await;
    let until = env.now() + ROUND;
    let work = pieces.iter().map(|piece| {
        let source = Source { env: &env, from: &from, version, until };
        let future = source.copy(follower.run, piece.clone());
        Box::pin(future) as std::pin::Pin<Box<dyn Future<Output = Result<Copied>> + Send + '_>>
    });
    let copied = system::all(work.collect()).await;
    let mut upto = range.begin.clone();
    let mut place = follower.place.clone();
    for (piece, copied) in pieces.iter().zip(copied) {
        let copied = copied?;
        if piece.begin != upto {
            continue;
        }
        place.rows += copied.rows;
        place.bytes += copied.bytes;
        upto = copied.upto;
    }
    if upto == range.begin {
        // The place is written all the same: a transaction of this round that is late finds that,
        // and conflicts, where it would put older rows over those of the next round.
        follower.move_to(MutationList::new(), follower.place.clone()).await?;
        env.sleep(PAUSE).await;
        return Ok(());
    }
    place.copying =
        Some(crate::rows::Copying { copied: copying.copied, round: Some(Round { upto, version }) });
    follower.move_to(MutationList::new(), place).await?;
    nudge(&from).await
}

/// What of a first comes behind what is copied, of one of its ranges; `None` if nothing does.
fn next_range(first: &Database, copied: &Bytes) -> Option<KeyRange> {
    let ranges = system::copied_of(first).iter();
    let (begin, end) = ranges.copied().find(|(_, end)| **copied < **end)?;
    Some(KeyRange::new(copied.clone().max(Bytes::from_static(begin)), end))
}

/// Has the first commit something, so that its stream gets behind every version that was read.
pub(crate) async fn nudge(from: &Database) -> Result<()> {
    if capture::of(from).is_some() {
        return capture::nudge(from).await;
    }
    system::transact(from, |tr| async move {
        tr.set(NUDGE, b"");
        Ok(())
    })
    .await
}

/// What comes next of a range, cut into pieces. `cuts` are where it may be cut, as far as that is
/// known, the last one first.
async fn pieces(cuts: &mut Vec<Bytes>, from: &Database, range: &KeyRange) -> Vec<KeyRange> {
    let is_behind = |cut: &Bytes| *cut > range.begin && *cut < range.end;
    while cuts.last().is_some_and(|cut| !is_behind(cut)) {
        cuts.pop();
    }
    if cuts.is_empty() {
        // A guess is all that is wanted: without it one worker takes the whole range.
        let points =
            from.endpoint().split_points(range.clone(), PIECE_BYTES).await.unwrap_or_default();
        *cuts = points.into_iter().filter(is_behind).collect();
        cuts.reverse();
    }
    let (mut pieces, mut begin) = (Vec::new(), range.begin.clone());
    for end in cuts.iter().rev().take(PIECES) {
        pieces.push(KeyRange::new(std::mem::replace(&mut begin, end.clone()), end.clone()));
    }
    if pieces.len() < PIECES {
        pieces.push(KeyRange::new(begin, range.end.clone()));
    }
    pieces
}

/// A version of the first, for as long as it can be read.
struct Source<'s> {
    env: &'s Env,
    from: &'s Database,
    version: Version,
    until: Duration,
}

impl Source<'_> {
    /// Copies a piece, or as much of it as there is time for.
    async fn copy(self, run: &Run, piece: KeyRange) -> Result<Copied> {
        let mut copied = Copied { upto: piece.begin.clone(), rows: 0, bytes: 0 };
        while copied.upto < piece.end && self.env.now() < self.until {
            let (mut reached, mut rows, mut bytes) = (copied.upto.clone(), Vec::new(), 0);
            while reached < piece.end && bytes < TRANSACTION_BYTES && self.env.now() < self.until {
                match self.read(&reached, &piece.end).await {
                    Ok((part, upto)) => {
                        bytes += part.data_len();
                        rows.push(part);
                        reached = upto;
                    }
                    Err(error) if error == Error::transaction_too_old() => break,
                    // A node that is behind, or gone: another round will do.
                    Err(error) if error.is_retryable() => break,
                    Err(error) => return Err(error),
                }
            }
            if reached == copied.upto {
                break;
            }
            let mut mutations = MutationList::new();
            // What an earlier attempt has left is older.
            mutations.push(MutationType::ClearRange, &copied.upto, &reached);
            for (key, value) in rows.iter().flat_map(Rows::iter) {
                mutations.push(MutationType::Set, key, value);
                copied.rows += 1;
            }
            run.commit_rows(&mutations).await?;
            copied.bytes += bytes as u64;
            copied.upto = reached;
        }
        Ok(copied)
    }

    /// Rows from `begin` on, and the key up to which they are all.
    async fn read(&self, begin: &Bytes, end: &Bytes) -> Result<(Rows, Bytes)> {
        let read = RangeRead {
            begin: KeySelector::first_greater_or_equal(begin.clone()),
            end: KeySelector::first_greater_or_equal(end.clone()),
            limit: usize::MAX,
            target_bytes: TRANSACTION_BYTES,
            reverse: false,
        };
        let found = self.from.endpoint().get_range(self.version, KeySpace::System, &read).await?;
        let last = found.rows.last().filter(|_| found.more);
        let reached = last.map_or_else(|| end.clone(), |(key, _)| key_after(key));
        Ok((found.rows, reached))
    }
}
