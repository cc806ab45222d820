//! The series of a database for everybody: who writes them in transactions, owns them, or looks at
//! them.
//!
//! Points of a transaction go to the inbox of each part that has some of their series. How many
//! parts there are is read once, and looked at again with each transaction where somebody could
//! have made the place anew; until it is known points wait for that, and are put when their
//! transaction asks whether there is room.

use super::keys::Keys;
use super::letter::{self, Letter};
use super::place::{Home, parts_of};
use super::plot::{of_each, part_of};
use super::{SeriesStore, Settings};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::value::{Point, Value};
use plinth_client::{Database, Get, Transaction};
use plinth_types::Bytes;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

/// The time series of a database. Cheap to make; owns nothing.
///
/// Points that a transaction writes are committed with its keys and values, or not at all. They
/// wait in an inbox until the owner of the series takes them in: the process that has a
/// [`SeriesStore`] open, such as a server that takes in series. Whatever is read there shows every
/// point that was committed before the read began; the transaction itself does not see its own.
///
/// ```
/// # async fn example(db: plinth_client::Database) -> plinth_series::Result<()> {
/// use plinth_series::{Error, SeriesLayer};
/// let series = SeriesLayer::new(&db);
/// db.try_transact(|tr| {
///     let series = series.clone();
///     async move {
///         tr.set("order/17", "paid");
///         series.append(&tr, "shop.sales region=eu", 1_767_225_600_000_000_000, 12.5).await?;
///         Ok::<_, Error>(())
///     }
/// })
/// .await?;
/// let view = series.view().await?;
/// let sales = view.existing("shop.sales region=eu").await?.expect("somebody has bought something");
/// assert_eq!(sales.aggregate(..).await?.map(|summary| summary.sum), Some(12.5));
/// # Ok(()) }
/// # let db = plinth::Local::in_memory().unwrap().into_database();
/// # plinth_env::block_on(example(db)).unwrap();
/// ```
///
/// Points of one time: the one that was committed last counts. Between a transaction and the
/// owner's own [`append`](super::Series::append) it is the one that was taken in last.
#[derive(Clone, Debug)]
pub struct SeriesLayer {
    database: Database,
    settings: Settings,
    root: Keys,
    /// How many parts there are, once that is known; 0 before.
    parts: Arc<AtomicUsize>,
}

impl SeriesLayer {
    /// The series of a database, with the default settings.
    pub fn new(database: &Database) -> Self {
        Self::with_settings(database, Settings::default())
    }

    /// The same with settings of one's own; whoever shares series has to have the same prefix.
    pub fn with_settings(database: &Database, settings: Settings) -> Self {
        let root = Home::of(database, &settings).keys;
        Self { database: database.clone(), root, settings, parts: Arc::default() }
    }

    /// Writes a point in a transaction; the time is nanoseconds since 1970. The series is made if
    /// there is none. Conflicts with nobody but whoever makes the place of the series: once, unless
    /// all of it is cleared.
    ///
    /// What it gives is to be awaited (or `.wait()`ed for, on threads that may block): it reads how
    /// much waits for the owner. Several may be called before the first is awaited, and their reads
    /// travel together.
    ///
    /// # Errors
    /// [`crate::Error::Name`]: no point was written. `process_behind` if more waits for the owner
    /// than [`Settings::inbox_bytes`], or than its part of that where the series are divided: the
    /// transaction shall not be committed, and the loops of [`Database::try_transact`] run it
    /// again, later and later, as they do for other errors of this kind; `retry_limit` and
    /// `timeout` bound that. Others are told by the commit, such as `transaction_too_large`.
    pub fn append(
        &self,
        tr: &Transaction,
        name: &str,
        time: i64,
        value: impl Into<Value>,
    ) -> Appended {
        self.append_all(tr, [(name, Point { time, value: value.into() })])
    }

    /// Writes points of any series in a transaction, many of them for less each.
    ///
    /// # Errors
    /// As [`SeriesLayer::append`]; no point was written then.
    pub fn append_all<'a>(
        &self,
        tr: &Transaction,
        points: impl IntoIterator<Item = (&'a str, Point)>,
    ) -> Appended {
        let mut named = Vec::new();
        for (name, point) in points {
            match Name::parse(name) {
                Ok(name) => named.push((name, point)),
                Err(error) => return Appended::refused(error),
            }
        }
        if self.root.is_of_system() {
            tr.reach_series();
        }
        let parts = self.parts.load(Ordering::Relaxed);
        // With a conflict: whoever makes the place, or makes it anew, has to meet with whoever puts
        // points where it was divided otherwise.
        let format = Some(tr.get(self.root.format()));
        let mut appended = Appended { format, most: self.most(parts), ..Appended::default() };
        let letter = Unsorted { tr: tr.clone(), layer: self.clone(), points: named };
        match parts {
            0 => appended.unsorted = Some(letter),
            _ => {
                appended.sizes = letter.put(parts);
                appended.known = Some(self.clone());
            }
        }
        appended
    }

    /// Bytes that the inbox of one of so many parts may have.
    fn most(&self, parts: usize) -> usize {
        of_each(self.settings.inbox_bytes, parts.max(1))
    }

    /// Takes the series over for writing at full speed, and takes in what transactions write from
    /// now on. Whoever had them before can write no more.
    ///
    /// # Errors
    /// As [`SeriesStore::open`].
    pub async fn open(&self) -> Result<SeriesStore> {
        SeriesStore::open_with(&self.database, self.settings.clone()).await
    }

    /// The series as they are now, to be read whoever owns them.
    ///
    /// # Errors
    /// As [`SeriesStore::view`].
    pub async fn view(&self) -> Result<SeriesStore> {
        SeriesStore::view(&self.database, self.settings.clone()).await
    }
}

/// Points of a transaction of which it isn't known yet where they go.
struct Unsorted {
    tr: Transaction,
    layer: SeriesLayer,
    points: Vec<(Name, Point)>,
}

impl Unsorted {
    /// Puts the points into the inboxes of so many parts, and asks how much waits there.
    fn put(self, parts: usize) -> Vec<Get> {
        let mut letters: BTreeMap<usize, (Letter, Vec<Vec<u8>>)> = BTreeMap::new();
        for (name, point) in self.points {
            let (letter, rows) = letters.entry(part_of(&name, parts)).or_default();
            rows.extend(letter.add(name, point));
        }
        let mut sizes = Vec::with_capacity(letters.len());
        for (part, (letter, mut rows)) in letters {
            rows.extend(letter.rest());
            let root = &self.layer.root;
            let keys = if parts == 1 { root.clone() } else { root.part(part) };
            // Before anything is put there.
            sizes.push(self.tr.snapshot().get(keys.inbox_size()));
            rows.iter().for_each(|row| letter::put(&self.tr, &keys, row));
        }
        sizes
    }
}

/// Points that were written in a transaction: await it, or call [`Appended::wait`], to have them
/// there, and to know that there is room for them.
#[must_use = "the points may not be there, or too many: await it, or `wait()`"]
#[derive(Default)]
pub struct Appended {
    refused: Option<Error>,
    /// What the place says of its parts.
    format: Option<Get>,
    /// What is put once that is known.
    unsorted: Option<Unsorted>,
    /// Whose guess it was, if something was put already.
    known: Option<SeriesLayer>,
    sizes: Vec<Get>,
    /// Bytes that an inbox may have.
    most: usize,
}

impl Appended {
    fn refused(error: Error) -> Self {
        Self { refused: Some(error), ..Self::default() }
    }

    /// The same for threads that may block.
    ///
    /// # Errors
    /// As those of the call that gave it.
    pub fn wait(mut self) -> Result<()> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if let Some(format) = self.format.take() {
            self.learn(format.wait()?)?;
        }
        let most = self.most;
        self.sizes.into_iter().try_for_each(|size| letter::judge(size.wait()?.as_ref(), most))
    }

    /// Takes in how many parts there are.
    fn learn(&mut self, format: Option<Bytes>) -> Result<()> {
        let parts = parts_of(format.as_deref())?;
        if let Some(unsorted) = self.unsorted.take() {
            if format.is_some() {
                unsorted.layer.parts.store(parts, Ordering::Relaxed);
            }
            self.most = unsorted.layer.most(parts);
            self.sizes = unsorted.put(parts);
        } else if let Some(layer) = self.known.take()
            && (format.is_none() || layer.parts.load(Ordering::Relaxed) != parts)
        {
            layer.parts.store(0, Ordering::Relaxed);
            let detail = "the series were cleared meanwhile";
            return Err(plinth_types::Error::process_behind().with_detail(detail).into());
        }
        Ok(())
    }
}

impl Future for Appended {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(error) = self.refused.take() {
            return Poll::Ready(Err(error));
        }
        if let Some(format) = &mut self.format {
            let format = ready!(Pin::new(format).poll(context))?;
            self.format = None;
            self.learn(format)?;
        }
        while let Some(size) = self.sizes.last_mut() {
            let row = ready!(Pin::new(size).poll(context))?;
            self.sizes.pop();
            letter::judge(row.as_ref(), self.most)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for Appended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Appended")
    }
}
