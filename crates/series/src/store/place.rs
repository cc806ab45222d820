//! Where the series of a database are, and where they were before they had a place of their own.
//!
//! ```text
//!   \x02plinth.series\0 ...        among the users' keys: until there was a place, and on a FoundationDB still
//!   \xff\x02/plinth/series/ ...    the place, and in it the row that says whether the former one was emptied
//! ```
//!
//! Whoever writes or clears users' keys does nothing to series: their place is none of those. The
//! former one is looked at until it was emptied once ([`move_in`]), by the owner; what anybody
//! writes there afterwards is theirs.
//!
//! The move goes row by row, some at a time, each from the one place to the other in one
//! transaction that has the owner's row among its read conflicts. So at any instant a row is in one
//! of them, once, whoever is killed when; whoever owns the series next goes on with what is left.
//! An owner that knows the former place alone finds a number there that is not its own.

use super::keys::Keys;
use super::lease::{Holder, Rows, Tenure, Token};
use super::{Settings, Shared, letter, retry};
use crate::error::{Error, Result};
use plinth_client::{Database, MutationType, RangeOptions, StreamingMode, Transaction};
use plinth_types::system::SERIES_LAYER_PREFIX;
use plinth_types::{Bytes, key_after, strinc};
use std::time::Duration;

/// The format of keys and values.
pub(super) const FORMAT: &[u8] = &[1];
/// Parts of a place, at most; as many as there are powers of two for up to there.
pub const MAX_PARTS: usize = 128;
/// The first byte of the format of a place that is divided; how many parts it has is the second.
const DIVIDED: u8 = 2;

/// What the size of the inbox of a place that is divided has: nothing goes there, and programs that
/// know of no parts are told that there is no room instead of having points lie there unread.
const CLOSED: i64 = 1 << 62;

/// What the row says of the former place: it is being emptied, or needn't be looked at any more.
const BEGUN: &[u8] = &[0];
const DONE: &[u8] = &[1];

/// About how many bytes of rows are moved in one transaction.
const STEP_BYTES: usize = 1 << 20;
/// A move that takes longer is told of, and then again each time that so much has passed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the series are.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) keys: Keys,
    /// Where they may have been before.
    former: Option<Keys>,
    /// What says that they are in so many parts, of which this is one.
    divided: Option<(Keys, usize)>,
}

/// What there is to be moved.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Former {
    /// There is no such place, or it has been emptied.
    Done,
    /// Nobody has said so yet, and there are no series.
    Empty,
    /// There are series, owned as these rows say.
    Full(Rows),
    /// Somebody has begun to empty it.
    Begun,
}

/// Who owns the series as one transaction saw it, wherever they are.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) rows: Rows,
    pub(super) former: Former,
}

impl Home {
    /// The place that the settings name, or the usual one.
    pub(super) fn of(database: &Database, settings: &Settings) -> Self {
        let usual = database.endpoint().series_prefix();
        let keys = Keys::new(settings.prefix.as_deref().unwrap_or(usual));
        let has_moved = settings.prefix.is_none() && usual != SERIES_LAYER_PREFIX;
        let former = has_moved.then(|| Keys::new(SERIES_LAYER_PREFIX));
        Self { keys, former, divided: None }
    }

    /// One of the parts of a place that is divided. It was never anywhere else.
    pub(super) fn part(root: &Keys, number: usize, parts: usize) -> Self {
        Self { keys: root.part(number), former: None, divided: Some((root.clone(), parts)) }
    }

    /// The database for whoever reads and writes there.
    pub(super) fn reach(&self, database: &Database) -> Database {
        if self.keys.is_of_system() {
            database.clone().with_system_keys()
        } else {
            database.clone()
        }
    }

    /// The keys of the former place, if that is where the series are.
    pub(super) fn former_keys(&self, former: &Former) -> Option<&Keys> {
        self.former.as_ref().filter(|_| matches!(former, Former::Full(_)))
    }

    /// What there is to be moved, as `tr` sees it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the former place has series of a format that nobody has written.
    pub(super) async fn former(&self, tr: &Transaction) -> Result<Former> {
        let Some(former) = &self.former else { return Ok(Former::Done) };
        match tr.get(self.keys.moved()).await?.as_deref() {
            Some(DONE) => return Ok(Former::Done),
            Some(BEGUN) => return Ok(Former::Begun),
            Some(other) => {
                return Err(Error::damaged(
                    "the row that says where the series were",
                    format!("{DONE:?} or {BEGUN:?} expected, {other:?} found"),
                ));
            }
            None => {}
        }
        let (format, next) = (tr.get(former.format()), tr.get(former.next_id()));
        let inbox = tr.get(former.inbox_size());
        let (rows, inbox) = (Rows::read(tr, former).await?, inbox.await?);
        let has_len = |row: &Option<Bytes>, len| row.as_ref().is_some_and(|row| row.len() == len);
        // Anybody may have written there. What makes it series is a row that only series have.
        let is_there = has_len(&rows.owner, size_of::<Token>())
            || has_len(&next.await?, 8)
            || has_len(&inbox, 8);
        let format = format.await?;
        if let Some([DIVIDED, _]) = format.as_deref()
            && letter::size(inbox.as_ref()) >= CLOSED
        {
            return Err(is_divided(former));
        }
        match format.as_deref() {
            Some(FORMAT) => Ok(Former::Full(rows)),
            None if is_there => Ok(Former::Full(rows)),
            Some(other) if is_there => Err(Error::damaged(
                format!(
                    "the format of the series at {:?}",
                    plinth_types::printable(&former.format())
                ),
                format!(
                    "{FORMAT:?} expected, {other:?} found: it lies among users' keys; set it back"
                ),
            )),
            None | Some(_) => Ok(Former::Empty),
        }
    }

    /// Who owns the series, as `tr` sees it, with conflicts.
    ///
    /// # Errors
    /// [`Error::NotOwner`] if the place is not divided as it was taken to be; as [`Home::former`].
    pub(super) async fn sight(&self, tr: &Transaction) -> Result<Sight> {
        let (root, parts) = self.divided.as_ref().map_or((&self.keys, 1), |(root, of)| (root, *of));
        if parts_of(tr.get(root.format()).await?.as_deref())? != parts {
            // Whoever makes the place again has to come first.
            return Err(Error::NotOwner);
        }
        Ok(Sight { rows: Rows::read(tr, &self.keys).await?, former: self.former(tr).await? })
    }

    /// Becomes the owner with `token`, in `tr`, which has seen `former` and the format, and says
    /// whether there is something to be moved. Whoever owned the series in the former place can't
    /// write any more.
    pub(super) fn claim(
        &self,
        tr: &Transaction,
        (former, format): (&Former, Option<&Bytes>),
        token: &Token,
    ) -> bool {
        if format.is_none() {
            // Only then: whoever puts points into the inbox has it among its read conflicts.
            tr.set(self.keys.format(), FORMAT);
        }
        tr.set(self.keys.owner(), token);
        match (former, &self.former) {
            (Former::Full(_) | Former::Begun, Some(keys)) => {
                tr.set(self.keys.moved(), BEGUN);
                tr.set(keys.owner(), token);
                tr.clear(keys.lease());
                true
            }
            (Former::Empty, _) => {
                tr.set(self.keys.moved(), DONE);
                false
            }
            _ => false,
        }
    }
}

/// How many parts a place has whose format is this; one, where nothing is said yet.
pub(super) fn parts_of(format: Option<&[u8]>) -> Result<usize> {
    match format {
        None | Some(FORMAT) => Ok(1),
        Some([DIVIDED, parts])
            if parts.is_power_of_two() && (2..=MAX_PARTS).contains(&usize::from(*parts)) =>
        {
            Ok(usize::from(*parts))
        }
        Some(other) => Err(Error::damaged(
            "the series",
            format!("format {FORMAT:?} or [{DIVIDED}, parts] expected, {other:?} found"),
        )),
    }
}

/// Makes a place of so many parts, unless there is anything in it, and says how many it has.
pub(super) async fn make(tr: &Transaction, home: &Home, parts: usize) -> Result<usize> {
    // Who would own parts says so before there are any, after all was cleared.
    let (begin, end) = (home.keys.bounds().0, Bytes::from(home.keys.members()));
    // With a conflict: whoever writes there meanwhile knows of no parts.
    let is_empty = tr.get_range(RangeOptions::from(begin..end).limit(1)).await?.rows.is_empty();
    let former = home.former(tr).await?;
    if !is_empty || !matches!(former, Former::Done | Former::Empty) {
        return Ok(1);
    }
    if former == Former::Empty {
        tr.set(home.keys.moved(), DONE);
    }
    let parts = u8::try_from(parts).unwrap_or(1);
    tr.set(home.keys.format(), [DIVIDED, parts]);
    tr.set(home.keys.inbox_size(), CLOSED.to_le_bytes());
    Ok(usize::from(parts))
}

/// Why series in parts are not moved.
fn is_divided(former: &Keys) -> Error {
    let place = plinth_types::printable(&former.format());
    let detail = format!(
        "the series at {place} are divided in parts, and can't be moved to a place of their own: export them with `plinth series export` where they are, and import them here"
    );
    plinth_types::Error::client_invalid_operation().with_detail(detail).into()
}

/// Fails unless the format is one that this program knows.
pub(super) fn check_format(format: Option<&[u8]>) -> Result<()> {
    match format {
        None | Some(FORMAT) => Ok(()),
        Some([DIVIDED, parts]) => Err(Error::damaged(
            "the series",
            format!("they are divided in {parts} parts, and were taken for one"),
        )),
        Some(other) => Err(Error::damaged(
            "the series",
            format!("format {FORMAT:?} expected, {other:?} found"),
        )),
    }
}

/// Who owns series now, if anybody does.
pub(super) async fn holder(database: &Database, home: &Home) -> Result<Option<Holder>> {
    let database = home.reach(database);
    let Sight { rows, former } =
        retry::transact_all(&database, |tr| async move { home.sight(&tr).await }).await?;
    let rows = match former {
        Former::Full(before) if rows.owner.is_none() => before,
        _ => rows,
    };
    rows.owner.as_ref().map(|_| rows.holder()).transpose()
}

/// Takes the series over if the rows are as they were seen, and says whether there is something to
/// be moved; `None` if they are not.
pub(super) async fn take_over(
    database: &Database,
    home: &Home,
    (tenure, seen): (&Tenure, &Sight),
) -> Result<Option<bool>> {
    let keys = &home.keys;
    retry::transact_all(&home.reach(database), |tr| async move {
        let format = tr.get(keys.format()).await?;
        let sight = home.sight(&tr).await?;
        check_format(format.as_deref())?;
        let ours = sight.rows.owner.as_deref() == Some(&tenure.token[..]);
        if !ours && sight != *seen {
            return Ok(None);
        }
        tr.set(keys.lease(), tenure.row(0));
        Ok(Some(home.claim(&tr, (&sight.former, format.as_ref()), &tenure.token)))
    })
    .await
}

/// What a reader is told while rows are in two places.
pub(super) fn is_moving() -> Error {
    let detail = "the series are being moved to their place, and whoever owns them goes on with it: read them then";
    plinth_types::Error::process_behind().with_detail(detail).into()
}

/// Moves what is in the former place, for whoever owns the series.
///
/// # Errors
/// [`Error::NotOwner`], [`Error::Locked`], [`Error::Database`]: whoever owns them next goes on.
pub(super) async fn move_in(shared: &Shared) -> Result<()> {
    let Some(from) = Home::of(&shared.database, &shared.settings).former else { return Ok(()) };
    let mut told = Told::begin(shared);
    for kind in Keys::MOVED_KINDS {
        let mut next = Some(Bytes::from(from.all_of(kind)));
        while let Some(begin) = next {
            let (reached, rows, bytes) = step(shared, &from, kind, &begin).await?;
            told.note(shared, rows, bytes);
            next = reached;
        }
    }
    let tr = shared.database.create_transaction();
    while let Err(error) = try_finish(shared, &tr, &from).await {
        retry::again(&tr, error).await?;
    }
    told.end(shared);
    Ok(())
}

/// The former place is nobody's any more.
async fn try_finish(shared: &Shared, tr: &Transaction, from: &Keys) -> Result<()> {
    shared.check_owner(tr).await?;
    for key in [from.format(), from.owner(), from.lease(), from.moved()] {
        tr.clear(key);
    }
    tr.set(shared.keys.moved(), DONE);
    Ok(tr.commit().await?)
}

/// What a step has moved: where the next one goes on, how many rows, and their bytes.
type Moved = (Option<Bytes>, u64, u64);

/// Moves some rows of a kind.
async fn step(shared: &Shared, from: &Keys, kind: i64, begin: &Bytes) -> Result<Moved> {
    let end = strinc(&from.all_of(kind)).unwrap_or_default();
    let range = RangeOptions::from(begin.clone()..end)
        .mode(StreamingMode::WantAll)
        .target_bytes(STEP_BYTES);
    let tr = shared.database.create_transaction();
    loop {
        match try_step(shared, &tr, from, range.clone(), begin).await {
            Err(error) => retry::again(&tr, error).await?,
            moved => return moved,
        }
    }
}

async fn try_step(
    shared: &Shared,
    tr: &Transaction,
    from: &Keys,
    range: RangeOptions,
    begin: &Bytes,
) -> Result<Moved> {
    shared.check_owner(tr).await?;
    // With a conflict: what comes between is not to be cleared unseen.
    let found = tr.get_range(range).await?;
    let (mut behind, mut rows, mut bytes) = (None, 0, 0);
    for (key, value) in found.rows.iter() {
        let moved = shared.keys.instead_of(from, key)?;
        if moved == shared.keys.inbox_size() {
            // Some may wait in the place already.
            tr.atomic_op(&moved, value, MutationType::Add);
        } else {
            tr.set(&moved, value);
        }
        (rows, bytes) = (rows + 1, bytes + (key.len() + value.len()) as u64);
        behind = Some(key);
    }
    let Some(behind) = behind.map(key_after) else { return Ok((None, 0, 0)) };
    tr.clear_range(begin, &behind);
    tr.commit().await?;
    Ok((found.more.then_some(behind), rows, bytes))
}

/// How far a move is, for people.
struct Told {
    begun: Duration,
    due: Duration,
    rows: u64,
    bytes: u64,
}

impl Told {
    fn begin(shared: &Shared) -> Self {
        let begun = shared.database.endpoint().env().now();
        Self { begun, due: begun + PATIENCE, rows: 0, bytes: 0 }
    }

    fn note(&mut self, shared: &Shared, rows: u64, bytes: u64) {
        (self.rows, self.bytes) = (self.rows + rows, self.bytes + bytes);
        let now = shared.database.endpoint().env().now();
        if now >= self.due {
            self.due = now + PATIENCE;
            let seconds = now.saturating_sub(self.begun).as_secs();
            tracing::info!(
                rows = self.rows,
                bytes = self.bytes,
                seconds,
                "series are being moved to a place of their own; they open when that is done"
            );
        }
    }

    fn end(&self, shared: &Shared) {
        let took = shared.database.endpoint().env().now().saturating_sub(self.begun);
        tracing::info!(
            rows = self.rows,
            bytes = self.bytes,
            milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "series were moved to a place of their own, out of the way of users' keys"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_says_how_many_parts_there_are() {
        let parts = |format: &[u8]| parts_of(Some(format)).ok();
        assert_eq!(parts_of(None).unwrap(), 1);
        assert_eq!([&[1_u8][..], &[2, 2], &[2, 8], &[2, 128]].map(parts), [1, 2, 8, 128].map(Some));
        let wrong = [&[][..], &[2], &[2, 0], &[2, 1], &[2, 3], &[2, 129], &[2, 4, 0], &[3, 4]];
        assert_eq!(wrong.map(parts), [None; 8]);
    }
}
