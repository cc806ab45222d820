//! The series of a database for everybody: who writes them in transactions, owns them, or looks at
//! them.

use super::keys::Keys;
use super::letter::{self, Appended, Letter};
use super::place::Home;
use super::{SeriesStore, Settings};
use crate::error::Result;
use crate::name::Name;
use crate::value::{Point, Value};
use plinth_client::{Database, Transaction};

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
    keys: Keys,
}

impl SeriesLayer {
    /// The series of a database, with the default settings.
    pub fn new(database: &Database) -> Self {
        Self::with_settings(database, Settings::default())
    }

    /// The same with settings of one's own; whoever shares series has to have the same prefix.
    pub fn with_settings(database: &Database, settings: Settings) -> Self {
        let keys = Home::of(database, &settings).keys;
        Self { database: database.clone(), keys, settings }
    }

    /// Writes a point in a transaction; the time is nanoseconds since 1970. The series is made if
    /// there is none. Conflicts with nothing.
    ///
    /// What it gives is to be awaited (or `.wait()`ed for, on threads that may block): it reads how
    /// much waits for the owner. Several may be called before the first is awaited, and their reads
    /// travel together.
    ///
    /// # Errors
    /// [`crate::Error::Name`]: no point was written. `process_behind` if more waits for the owner
    /// than [`Settings::inbox_bytes`]: the transaction shall not be committed, and the loops of
    /// [`Database::try_transact`] run it again, later and later, as they do for other errors of
    /// this kind; `retry_limit` and `timeout` bound that. Others are told by the commit, such as
    /// `transaction_too_large`.
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
        let (mut letter, mut rows) = (Letter::default(), Vec::new());
        for (name, point) in points {
            match Name::parse(name) {
                Ok(name) => rows.extend(letter.add(name, point)),
                Err(error) => return Appended::refused(error),
            }
        }
        rows.extend(letter.rest());
        if self.keys.is_of_system() {
            tr.reach_series();
        }
        let appended = Appended::new(tr, &self.keys, self.settings.inbox_bytes);
        rows.iter().for_each(|row| letter::put(tr, &self.keys, row));
        appended
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
