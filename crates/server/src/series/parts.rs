//! Series in parts: which server owns each of them, and what this one does with the others'.
//!
//! ```text
//!   each part:  opening --> free --> taking --> open, as long as the lease is renewed --> opening
//!                  \                                  \--> leaving: handed over to another server
//!                   \--> elsewhere: its owner is asked and points are posted to him
//!
//!   whole    a store of all parts: those that are open, and of the others such as post and ask
//!   own      a store of those that are open, for what only an owner does: deleting, retention
//! ```
//!
//! Whoever sends points or asks gets the whole, from the first moment on: so any server takes and
//! answers everything. When a part comes or goes there is a new whole, to which sessions move on. A
//! part that changes hands while somebody asks is looked for, for some seconds. How many parts a
//! server should have, and when it takes or leaves one, is the affair of `balance.rs`.

use super::opened::Opened;
use super::pass::hex;
use super::{Hub, events, pass};
use crate::config::Among;
use crate::token::is_same;
use plinth_env::sync::all;
use plinth_series::{Division, Error, Holder, Owner, Result, SeriesStore, Told};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// For how long the owner of a part is looked for, and how long it is from one try to the next.
const OWNER: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of a part.
pub(super) enum State {
    Opening,
    /// Nobody owns it.
    Free,
    /// It is about to be this server's.
    Taking,
    Open(SeriesStore),
    /// It is this server's for the last moments: no new points are taken for it here.
    Leaving(SeriesStore),
    Elsewhere(Holder),
    Unavailable(Error),
}

impl State {
    /// The store of a part that is this server's.
    fn store(&self) -> Option<&SeriesStore> {
        match self {
            Self::Open(store) | Self::Leaving(store) => Some(store),
            _ => None,
        }
    }
}

/// All parts, as this server sees them.
pub(super) struct Parts {
    pub(super) division: Division,
    states: Mutex<Vec<State>>,
    /// Stores that post to each part, and read it through its owner.
    foreign: Vec<SeriesStore>,
    stores: Mutex<Stores>,
    /// The place is another one now.
    are_over: AtomicBool,
}

struct Stores {
    whole: Arc<Opened>,
    own: Option<Arc<Opened>>,
}

/// Who has a part, for people.
#[derive(Clone, Default)]
pub(crate) struct Having {
    /// The owner's name and address; nothing while nobody is known.
    pub(crate) owner: Option<(String, String)>,
    pub(crate) is_ours: bool,
}

impl Parts {
    pub(super) fn new(hub: &Arc<Hub>, division: Division) -> Arc<Self> {
        Arc::new_cyclic(|parts| {
            let way = |part| Arc::new(Way { hub: Arc::downgrade(hub), parts: parts.clone(), part });
            let foreign: Vec<SeriesStore> =
                (0..division.parts()).map(|part| division.elsewhere(part, way(part))).collect();
            let whole = Opened::new(division.together(foreign.iter().cloned()));
            Self {
                states: Mutex::new(foreign.iter().map(|_| State::Opening).collect()),
                stores: Mutex::new(Stores { whole, own: None }),
                are_over: AtomicBool::new(false),
                foreign,
                division,
            }
        })
    }

    /// Whether nobody looks after them any more.
    pub(super) fn are_over(&self) -> bool {
        self.are_over.load(Ordering::Relaxed)
    }

    /// Has nobody look after them any more.
    pub(super) fn end(&self) {
        self.are_over.store(true, Ordering::Relaxed);
    }

    fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stores(&self) -> MutexGuard<'_, Stores> {
        self.stores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at what is known of all parts, or changes it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut [State]) -> T) -> T {
        look(&mut self.states())
    }

    /// Notes what is known of a part from now on.
    pub(super) fn set(&self, part: usize, state: State) {
        let mut states = self.states();
        states[part] = state;
        self.rebuild(&states);
    }

    /// Notes why a part can't be had; tells it if that is news.
    pub(super) fn note(&self, part: usize, why: &Error) {
        let is_known = |state: &State| matches!(state, State::Unavailable(known) if known.to_string() == why.to_string());
        if !is_known(&self.states()[part]) {
            events::unavailable(why);
            self.set(part, State::Unavailable(why.clone()));
        }
    }

    /// Puts the stores together anew, if other parts are open than before.
    fn rebuild(&self, states: &[State]) {
        let open = |state: &State| match state {
            State::Open(store) if store.failure().is_none() => Some(store.clone()),
            _ => None,
        };
        let parts = states.iter().zip(&self.foreign);
        let parts: Vec<SeriesStore> =
            parts.map(|(state, foreign)| open(state).unwrap_or_else(|| foreign.clone())).collect();
        let own: Vec<SeriesStore> = states.iter().filter_map(open).collect();
        let mut stores = self.stores();
        let whole = self.division.together(parts);
        if whole.is_same_as(&stores.whole.store) {
            return;
        }
        stores.whole = Opened::new(whole);
        stores.own = (!own.is_empty()).then(|| Opened::new(self.division.together(own)));
    }

    /// The store of all parts.
    pub(super) fn whole(&self) -> Arc<Opened> {
        let whole = self.stores().whole.clone();
        if whole.store.failure().is_none() {
            return whole;
        }
        // A part was lost, and whoever looks after it has yet to notice.
        self.rebuild(&self.states());
        self.stores().whole.clone()
    }

    /// The store of the parts that are this server's.
    ///
    /// # Errors
    /// [`Error::NotOwner`] if there are none.
    pub(super) fn own(&self) -> Result<Arc<Opened>> {
        self.stores().own.clone().ok_or(Error::NotOwner)
    }

    /// The store of all parts, if the first one is this server's.
    ///
    /// # Errors
    /// [`Error::NotOwner`] if it isn't.
    pub(super) fn of_first(&self) -> Result<Arc<Opened>> {
        // One that was lost may not have been noticed yet.
        let is_ours = matches!(&self.states()[0], State::Open(store) if store.failure().is_none());
        if is_ours { Ok(self.whole()) } else { Err(Error::NotOwner) }
    }

    /// How many parts there are, and how many of them are this server's.
    pub(super) fn count(&self) -> (usize, usize) {
        let states = self.states();
        // One that was lost, or handed over, is so before whoever looks after it has noticed.
        let is_owned =
            |state: &&State| state.store().is_some_and(|store| store.failure().is_none());
        (states.len(), states.iter().filter(is_owned).count())
    }

    /// Why a part can neither be had nor asked for, if that is so of any.
    pub(super) fn unavailable(&self) -> Option<Error> {
        self.states().iter().find_map(|state| match state {
            State::Unavailable(why) => Some(why.clone()),
            _ => None,
        })
    }

    /// Why neither this server nor another one has a part.
    fn why_nobody_has(&self, part: usize) -> Error {
        if let Some(State::Unavailable(why)) = self.states().get(part) {
            return why.clone();
        }
        let why = format!("part {part} of the series is being opened");
        plinth_types::Error::process_behind().with_detail(why).into()
    }

    /// Whether it is known of each part who has it.
    pub(super) fn are_known(&self) -> bool {
        let is_unknown =
            |state: &State| matches!(state, State::Opening | State::Free | State::Taking);
        !self.states().iter().any(is_unknown)
    }

    /// Who has each part.
    pub(super) fn having(&self, among: &Among) -> Vec<Having> {
        let having = |state: &State| match state {
            State::Open(_) | State::Leaving(_) => {
                Having { owner: Some((among.name.clone(), String::new())), is_ours: true }
            }
            State::Elsewhere(holder) => {
                let owner = Some((holder.name.clone(), holder.address.clone()));
                Having { owner, is_ours: false }
            }
            _ => Having::default(),
        };
        self.states().iter().map(having).collect()
    }

    /// Who has a part instead of this server, if that is known.
    pub(super) fn holder(&self, part: usize) -> Option<Holder> {
        match self.states().get(part)? {
            State::Elsewhere(holder) => Some(holder.clone()),
            _ => None,
        }
    }

    /// The store of a part that is this server's.
    pub(super) fn store(&self, part: usize) -> Option<SeriesStore> {
        self.states().get(part)?.store().cloned()
    }

    /// Whether this is the secret of the lease of any part that this server has.
    pub(super) fn is_secret(&self, told: &str) -> bool {
        let secret = |(part, state): (usize, &State)| state.store()?.lease_secret_of(part);
        let secrets: Vec<[u8; 16]> = self.states().iter().enumerate().filter_map(secret).collect();
        secrets.iter().any(|secret| is_same(told, &hex(secret)))
    }

    /// Commits all that was taken, and lets others have what is this server's.
    pub(super) async fn finish(&self, name: &str) {
        let own: Vec<SeriesStore> =
            self.states().iter().filter_map(|state| state.store().cloned()).collect();
        // All beside each other: a part is free as soon as what it has is committed, whatever
        // becomes of points for owners that have no room, and others know at once that they should
        // have more. A database that fails has told those who asked; nobody is left to be told.
        type Ending<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
        let member = self.division.member(name);
        let leaving: Ending<'_> = Box::pin(member.leave());
        let giving_up = own.iter().map(|store| Box::pin(store.give_up()) as Ending<'_>);
        let posting = self.foreign.iter().map(|store| Box::pin(store.sync()) as Ending<'_>);
        all([leaving].into_iter().chain(giving_up).chain(posting)).await;
    }

    /// What whoever owns a part says to a question: this server or another one, for some seconds.
    async fn ask(&self, hub: &Hub, part: usize, question: &[u8]) -> Result<Vec<u8>> {
        let until = hub.env.now() + OWNER;
        loop {
            let why = match (self.store(part), self.holder(part)) {
                (Some(store), _) => match store.answer(part, question).await {
                    Err(Error::NotOwner) => Error::NotOwner,
                    answered => return answered,
                },
                (None, Some(holder)) => match pass::question(hub, &holder, part, question).await {
                    Ok(answer) => return Ok(answer),
                    Err(why) => why.into(),
                },
                (None, None) => self.why_nobody_has(part),
            };
            if hub.env.now() >= until || hub.is_stopping() || self.are_over() {
                return Err(why);
            }
            hub.env.sleep(PAUSE).await;
        }
    }
}

/// The way to whoever owns a part.
struct Way {
    hub: Weak<Hub>,
    parts: Weak<Parts>,
    part: usize,
}

impl Owner for Way {
    fn ask(&self, question: Vec<u8>) -> Told<'_> {
        Box::pin(async move {
            let hub = self.hub.upgrade().ok_or(Error::NotOwner)?;
            let parts = self.parts.upgrade().ok_or(Error::NotOwner)?;
            parts.ask(&hub, self.part, &question).await
        })
    }
}
