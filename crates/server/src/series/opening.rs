//! The store behind the listeners: opened in the background, and again after it was lost, so that keys are served whatever becomes of series.
//!
//! ```text
//!   opening --> open --> lost: somebody else owns the series, or their rows were cleared
//!      |                   |
//!      +--> unavailable <--+   the database is locked, or rows of series are damaged: tried again every second
//! ```
//!
//! Whoever sends points or asks for some gets the store, or why there is none. While it is opened for the first time they wait: that takes as long as
//! reading the tail does.

use super::Hub;
use super::waiting::Waiting;
use crate::events;
use plinth_client::Database;
use plinth_env::Signal;
use plinth_env::sync::{First, race};
use plinth_series::{Error, Result, SeriesStore, Settings};
use plinth_types::Error as DatabaseError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often opening is tried again, and an open store looked at.
const LOOK: Duration = Duration::from_secs(1);

/// A store that is open, and what belongs to it alone.
pub(crate) struct Opened {
    pub(crate) store: SeriesStore,
    /// Sessions between two requests that write: they remember series of this store.
    pub(super) waiting: Waiting,
}

/// The store, or why there is none.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    /// Given once it is known for the first time, and by everybody to the next.
    decided: Signal,
    pub(super) stop: Signal,
}

#[derive(Default)]
enum State {
    #[default]
    Opening,
    Open(Arc<Opened>),
    Unavailable(Error),
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, as soon as it is known whether there is one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn opened(&self) -> Result<Arc<Opened>> {
        loop {
            match &*self.lock() {
                State::Open(opened) => return Ok(opened.clone()),
                State::Unavailable(why) => return Err(why.clone()),
                State::Opening => {}
            }
            self.decided.wait().await;
            self.decided.notify();
        }
    }

    /// The store, if it is open now.
    ///
    /// # Errors
    /// Why it isn't.
    pub(crate) fn now(&self) -> Result<Arc<Opened>> {
        match &*self.lock() {
            State::Open(opened) => Ok(opened.clone()),
            State::Unavailable(why) => Err(why.clone()),
            State::Opening => {
                Err(DatabaseError::process_behind().with_detail("the series are being opened").into())
            }
        }
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.decided.notify();
    }

    /// Notes why there is no store; tells it if that is news.
    fn note(&self, why: &Error) {
        let known =
            matches!(&*self.lock(), State::Unavailable(known) if known.to_string() == why.to_string());
        if !known {
            events::series_unavailable(why);
            self.set(State::Unavailable(why.clone()));
        }
    }
}

/// Keeps the store open until the server stops.
pub(super) async fn keep_open(hub: Arc<Hub>, database: Database) {
    let slot = &hub.slot;
    let settings = Settings { limits: hub.bounds.limits.clone(), ..Settings::default() };
    let go_on = async || race(slot.stop.wait(), hub.env.sleep(LOOK)).await != First::Left(());
    loop {
        match race(slot.stop.wait(), SeriesStore::open_with(&database, settings.clone())).await {
            First::Left(()) => return,
            First::Right(Ok(store)) => {
                events::series_open();
                slot.set(State::Open(Arc::new(Opened { store: store.clone(), waiting: Waiting::default() })));
                while store.failure().is_none() {
                    if !go_on().await {
                        return;
                    }
                }
                slot.note(&store.failure().unwrap_or(Error::NotOwner));
                // Somebody who has taken them over keeps them. If nobody has, their rows were cleared.
                while SeriesStore::has_owner(&database, &settings).await.unwrap_or(true) {
                    if !go_on().await {
                        return;
                    }
                }
            }
            First::Right(Err(why)) => slot.note(&why),
        }
        if !go_on().await {
            return;
        }
    }
}
